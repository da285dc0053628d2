// Observability exports the traces and metrics of a kit: both by OTLP if
// OTEL_EXPORTER_OTLP_ENDPOINT is set, metrics at /metrics for Prometheus, and profiles at
// /debug/pprof/, labeled by route and job. The kit itself depends only on the API of OpenTelemetry,
// so this example is a separate module.
//
//	go run . -addr localhost:8080
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 go run .
//
// dashboard.json is for Grafana, alerts.yml for Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"os/signal"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	promexporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/ledger"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "the address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *addr); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	registry := prometheus.NewRegistry()
	flush, err := telemetry(ctx, registry)
	if err != nil {
		return err
	}
	k, err := compose(slog.New(traced{slog.NewJSONHandler(os.Stderr, nil)}))
	if err != nil {
		return errors.Join(err, flush(ctx))
	}
	err = k.Serve(ctx, addr, site(k, registry))
	return errors.Join(err, flush(context.WithoutCancel(ctx)))
}

func compose(logger *slog.Logger, more ...kit.Option) (*kit.Kit, error) {
	return kit.New(append([]kit.Option{
		kit.WithEnvironment("development"), kit.WithLogger(logger),
		kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
	}, more...)...)
}

// site separates the paths of operators from those of users: in production they have their own
// address that only operators can reach.
func site(k *kit.Kit, registry *prometheus.Registry) http.Handler {
	operators := http.NewServeMux()
	operators.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	operators.HandleFunc("GET /debug/pprof/", pprof.Index)
	operators.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	return k.Before(operators)
}

// telemetry installs an SDK. It is called before the kit is composed, because the kit creates its
// instruments then. flush sends the remaining data and stops the SDK.
func telemetry(ctx context.Context, registry *prometheus.Registry) (flush func(context.Context) error, err error) {
	scraped, err := promexporter.New(promexporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	metrics := []metric.Option{metric.WithReader(scraped)}
	traces := []trace.TracerProviderOption{}
	if os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" { // the exporters read the other OTEL_ variables too
		spans, err := otlptracehttp.New(ctx)
		if err != nil {
			return nil, err
		}
		pushed, err := otlpmetrichttp.New(ctx)
		if err != nil {
			return nil, err
		}
		traces = append(traces, trace.WithBatcher(spans))
		metrics = append(metrics, metric.WithReader(metric.NewPeriodicReader(pushed)))
	}
	tracer, meter := trace.NewTracerProvider(traces...), metric.NewMeterProvider(metrics...)
	otel.SetTracerProvider(tracer)
	otel.SetMeterProvider(meter)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return func(ctx context.Context) error { return errors.Join(tracer.Shutdown(ctx), meter.Shutdown(ctx)) }, nil
}

// traced adds the trace to every log line.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if span := oteltrace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
