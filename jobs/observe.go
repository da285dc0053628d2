package jobs

import (
	"context"
	"errors"
	"runtime/pprof"
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

// maxTrace bounds what is kept of a trace, in bytes; traceparent has 55.
const maxTrace = 64

// traceOf is the trace of ctx as a job keeps it, "" where none is recorded.
func traceOf(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if parent := carrier["traceparent"]; len(parent) <= maxTrace {
		return parent
	}
	return ""
}

// telemetry are the instruments of a queue; without an SDK they do nothing.
type telemetry struct {
	tracer   trace.Tracer
	duration metric.Float64Histogram
	wait     metric.Float64Histogram
}

func newTelemetry() telemetry {
	meter := otel.Meter(scope)
	t := telemetry{tracer: otel.Tracer(scope)}
	var err error
	t.duration, err = meter.Float64Histogram("kit.jobs.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of one run of a job."),
		metric.WithExplicitBucketBoundaries(0.005, 0.025, 0.1, 0.5, 1, 5, 15, 60, 300, 1800))
	if err != nil {
		otel.Handle(err)
	}
	t.wait, err = meter.Float64Histogram("kit.jobs.wait", metric.WithUnit("s"),
		metric.WithDescription("How long a job that was due waited for a worker."),
		metric.WithExplicitBucketBoundaries(0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800))
	if err != nil {
		otel.Handle(err)
	}
	return t
}

// observe begins the span of a run, which continues the trace of the request
// that enqueued the job, labels the goroutine for profiles, and returns what
// ends both.
func (q *Queue) observe(ctx *context.Context, r *run) (end func(error)) {
	began := time.Now()
	if r.trace != "" {
		*ctx = propagation.TraceContext{}.Extract(*ctx, propagation.MapCarrier{"traceparent": r.trace})
	}
	var span trace.Span
	*ctx, span = q.telemetry.tracer.Start(*ctx, "job "+r.Binding, trace.WithSpanKind(trace.SpanKindConsumer))
	*ctx = pprof.WithLabels(*ctx, pprof.Labels("kit.job", r.Binding))
	pprof.SetGoroutineLabels(*ctx)
	if q.telemetry.wait.Enabled(*ctx) {
		q.telemetry.wait.Record(*ctx, max(q.now().Sub(time.UnixMilli(r.runAt)).Seconds(), 0),
			metric.WithAttributes(attribute.String("binding", r.Binding)))
	}
	observed := *ctx
	return func(err error) {
		outcome := wordFor(err)
		if span.IsRecording() {
			span.SetAttributes(attribute.String("kit.job.binding", r.Binding), attribute.String("kit.job.outcome", outcome),
				attribute.Int("kit.job.attempt", r.Attempt))
			if outcome == "failed" {
				span.SetStatus(codes.Error, "")
			}
		}
		span.End()
		if q.telemetry.duration.Enabled(observed) {
			q.telemetry.duration.Record(observed, time.Since(began).Seconds(),
				metric.WithAttributes(attribute.String("binding", r.Binding), attribute.String("outcome", outcome)))
		}
		pprof.SetGoroutineLabels(context.Background())
	}
}

// wordFor returns a word for the outcome of a run.
func wordFor(err error) string {
	var wait *snoozed
	var over *cancelled
	switch {
	case err == nil:
		return "completed"
	case errors.As(err, &wait):
		return "snoozed"
	case errors.As(err, &over):
		return "cancelled"
	default:
		return "failed"
	}
}
