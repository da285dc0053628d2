package mount

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation name of the kit's spans and metrics.
const scope = "github.com/kitbackend/kit"

// instrument asks the OpenTelemetry API for its instruments; without an SDK
// installed by the application they do nothing.
func (m *Mount) instrument() {
	m.tracer = otel.Tracer(scope)
	meter := otel.Meter(scope)
	var err error
	m.duration, err = meter.Float64Histogram("http.server.request.duration",
		metric.WithUnit("s"), metric.WithDescription("Duration of the kit's requests."),
		metric.WithExplicitBucketBoundaries(0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10))
	if err != nil {
		otel.Handle(err)
	}
	m.refusals, err = meter.Int64Counter("kit.refusals", metric.WithDescription("Refused requests by code."))
	if err != nil {
		otel.Handle(err)
	}
}

var serverSpan = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}

// trace starts the server span, a child of what the caller sent along.
func (x *exchange) trace(ctx context.Context) context.Context {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.HeaderCarrier(x.c.Request().Header))
	name := "HTTP"
	if x.row != nil {
		name = x.row.name
	} else if method := x.method(); method != otherMethod {
		name += " " + method
	}
	ctx, x.span = x.m.tracer.Start(ctx, name, serverSpan...)
	return ctx
}

// otherMethod replaces unknown methods in metrics and spans, as OpenTelemetry specifies.
const otherMethod = "_OTHER"

// method returns the request's method, or otherMethod for an unknown one: clients may make methods
// up.
func (x *exchange) method() string {
	switch x.origin.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return x.origin.Method
	}
	return otherMethod
}

// observe closes the span, counts, and writes the one access-log line.
func (x *exchange) observe() {
	ctx, took := x.r.Context(), time.Since(x.start)
	code := ""
	if x.refusal != nil {
		code = x.refusal.Code
	}
	x.m.counts.add(x.row, x.w.Status, took, code)
	if x.span.IsRecording() {
		x.span.SetAttributes(x.attributes(code)...)
		if x.w.Status >= 500 {
			x.span.SetStatus(codes.Error, code)
		}
	}
	x.span.End()
	if x.m.duration.Enabled(ctx) {
		x.m.duration.Record(ctx, took.Seconds(), metric.WithAttributes(x.attributes(code)...))
	}
	if code != "" && x.m.refusals.Enabled(ctx) {
		x.m.refusals.Add(ctx, 1, metric.WithAttributes(attribute.String("code", code)))
	}
	x.log(slog.LevelInfo, "request", slog.String("method", x.origin.Method), slog.Int("status", x.w.Status),
		slog.Int64("bytes", x.w.Size), slog.Duration("took", took), slog.String("code", code))
}

// attributes never carry a user id, an address or a token.
func (x *exchange) attributes(code string) []attribute.KeyValue {
	list := []attribute.KeyValue{
		attribute.String("http.request.method", x.method()),
		attribute.Int("http.response.status_code", x.w.Status),
	}
	if x.row != nil {
		list = append(list, attribute.String("http.route", x.origin.Route),
			attribute.String("kit.capability", x.row.entry.Domain),
			attribute.String("kit.guard", x.row.entry.Route.Guard.Strategy().String()))
	}
	if x.w.Status >= 500 {
		list = append(list, attribute.String("error.type", code))
	}
	return list
}

// log writes a line about this request; nothing is built when the level is off.
func (x *exchange) log(level slog.Level, message string, attrs ...slog.Attr) {
	ctx := x.r.Context()
	if !x.m.Log.Enabled(ctx, level) {
		return
	}
	all := append(make([]slog.Attr, 0, len(attrs)+2), slog.String("requestId", x.origin.RequestID), slog.String("route", x.origin.Route))
	x.m.Log.LogAttrs(ctx, level, message, append(all, attrs...)...)
}
