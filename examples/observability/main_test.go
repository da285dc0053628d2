package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/kitbackend/kit/email"
)

func get(t *testing.T, server *httptest.Server, path string) string {
	t.Helper()
	resp, err := http.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 500 {
		t.Fatalf("%s: %s %v\n%s", path, resp.Status, err, body)
	}
	return string(body)
}

// TestScrape calls the kit and checks that its calls appear in the metrics, and that every metric
// of the dashboard and the alerts exists.
func TestScrape(t *testing.T) {
	registry := prometheus.NewRegistry()
	flush, err := telemetry(t.Context(), registry)
	if err != nil {
		t.Fatal(err)
	}
	k, err := compose(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(site(k, registry))
	t.Cleanup(func() {
		server.Close()
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
		_ = flush(context.Background())
	})
	get(t, server, "/health")
	get(t, server, "/ledger/coins") // refused
	if _, err := k.Email().Send(t.Context(), email.Message{To: "ada@example.org", Subject: "Hello", Text: "Hello"}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Jobs().RunDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	metrics := get(t, server, "/metrics")
	for _, want := range []string{
		`http_route="/health"`, `kit_refusals_total{code="auth/unauthenticated"`, `kit_jobs_duration_seconds_count{binding=`,
		`kit_jobs_lag_seconds{database="DB"`, `kit_health{capability="ledger",key="accounts"`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s in\n%s", want, metrics)
		}
	}
	for _, file := range []string{"dashboard.json", "alerts.yml"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		names := regexp.MustCompile(`\b(?:kit|http_server)_[a-z_]+\b`).FindAllString(string(raw), -1)
		if len(names) == 0 {
			t.Errorf("%s asks for nothing", file)
		}
		for _, name := range names {
			if !strings.Contains(metrics, name) {
				t.Errorf("%s asks for %s, which nobody emits", file, name)
			}
		}
	}
	raw, err := os.ReadFile("dashboard.json")
	if err != nil || !json.Valid(raw) {
		t.Errorf("dashboard.json is no JSON: %v", err)
	}
}

// TestTraceFollowsIntoJobs checks that the trace of a request contains the job of the mail that the
// request enqueued.
func TestTraceFollowsIntoJobs(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(spans)))
	otel.SetTextMapPropagator(propagation.TraceContext{})
	k, err := compose(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(context.Background())
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	r := httptest.NewRequest("POST", "http://localhost:8080/auth/sign-up/email",
		strings.NewReader(`{"name":"Ada","email":"ada@example.org","password":"correct horse battery"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", "http://localhost:8080")
	r.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if _, err := k.Jobs().RunDue(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, span := range spans.Ended() {
		if span.SpanContext().TraceID().String() == trace {
			found[span.Name()] = true
		}
	}
	if !found["HTTP ALL /auth/*"] || !found["job EMAIL_SEND"] {
		t.Errorf("the trace holds %v, want the request and its mail", found)
	}
}
