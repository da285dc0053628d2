package mount_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// recorder is as much of a tracer as the test needs; the module has no SDK.
type recorder struct {
	embedded.Tracer
	mu    sync.Mutex
	spans []*recordedSpan
}

type provider struct {
	embedded.TracerProvider
	tracer *recorder
}

func (p provider) Tracer(string, ...trace.TracerOption) trace.Tracer { return p.tracer }

type recordedSpan struct {
	noop.Span
	name  string
	attrs map[string]string
	ended bool
	code  codes.Code
}

func (r *recorder) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := &recordedSpan{name: name, attrs: make(map[string]string)}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *recordedSpan) IsRecording() bool                { return true }
func (s *recordedSpan) End(...trace.SpanEndOption)       { s.ended = true }
func (s *recordedSpan) SetStatus(c codes.Code, _ string) { s.code = c }
func (s *recordedSpan) SetAttributes(list ...attribute.KeyValue) {
	for _, kv := range list {
		s.attrs[string(kv.Key)] = kv.Value.String()
	}
}

func TestSpans(t *testing.T) {
	before := otel.GetTracerProvider()
	rec := &recorder{}
	otel.SetTracerProvider(provider{tracer: rec})
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	w := newWorld(t, nil)
	w.send("GET /things/items/secret-id", "")
	w.send("GET /things/broken", "", auth, "Bearer ada")

	var got []map[string]string
	for _, s := range rec.spans {
		if !s.ended {
			t.Errorf("%s never ended", s.name)
		}
		got = append(got, s.attrs)
	}
	want := []map[string]string{
		{"http.request.method": "GET", "http.response.status_code": "200", "http.route": "/things/items/:id", "kit.capability": "things", "kit.guard": "public"},
		{"http.request.method": "GET", "http.response.status_code": "500", "http.route": "/things/broken", "kit.capability": "things", "kit.guard": "public", "error.type": "kit/internal"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if names := []string{rec.spans[0].name, rec.spans[1].name}; !slices.Equal(names, []string{"HTTP GET /things/items/:id", "HTTP GET /things/broken"}) {
		t.Error(names)
	}
	if rec.spans[1].code != codes.Error || rec.spans[0].code == codes.Error {
		t.Error("only a failure is an error")
	}
}

// TestMethodsAreFew: a caller that makes up methods adds no series to the metrics.
func TestMethodsAreFew(t *testing.T) {
	before := otel.GetTracerProvider()
	rec := &recorder{}
	otel.SetTracerProvider(provider{tracer: rec})
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	w := newWorld(t, nil)
	w.send("MADEUP1 /things/who", "")
	w.send("get /nowhere", "")
	w.send("PATCH /things/who", "")
	var got []string
	for _, s := range rec.spans {
		got = append(got, s.name+", "+s.attrs["http.request.method"])
	}
	if diff := cmp.Diff([]string{"HTTP, _OTHER", "HTTP, _OTHER", "HTTP PATCH, PATCH"}, got); diff != "" {
		t.Error(diff)
	}
}
