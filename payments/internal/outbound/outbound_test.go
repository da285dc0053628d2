package outbound_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/outbound"
	"github.com/kitbackend/kit/payments/railtest/script"
)

// world is a client of a scripted server, on a clock that waiting moves.
type world struct {
	mu      sync.Mutex
	now     time.Time
	waits   []time.Duration
	calls   int
	handler func(w http.ResponseWriter, r *http.Request, call int)
	client  *outbound.Client
}

func newWorld(handler func(w http.ResponseWriter, r *http.Request, call int)) *world {
	x := &world{now: time.Unix(1_772_000_000, 0), handler: handler}
	x.client = outbound.New("app_test", script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x.mu.Lock()
		x.calls++
		call := x.calls
		x.mu.Unlock()
		x.handler(w, r, call)
	})))
	x.client.Waiting(func(_ context.Context, d time.Duration) error {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.waits = append(x.waits, d)
		x.now = x.now.Add(d)
		return nil
	})
	return x
}

func (x *world) Now() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.now
}

func (x *world) do(ctx context.Context, repeatable bool) (outbound.Response, error) {
	return x.client.Do(ctx, outbound.Request{Now: x.Now, Base: "https://api.example.com", Path: "/x", Repeatable: repeatable})
}

func statuses(list ...int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, call int) { w.WriteHeader(list[min(call, len(list))-1]) }
}

func TestTries(t *testing.T) {
	for name, c := range map[string]struct {
		statuses   []int
		repeatable bool
		calls      int
		status     int // 0 for transient
	}{
		"well":                      {[]int{200}, true, 1, 200},
		"once ill":                  {[]int{503, 200}, true, 2, 200},
		"twice ill":                 {[]int{500, 502, 200}, true, 3, 200},
		"ill":                       {[]int{503}, true, 3, 0},
		"ill, not repeatable":       {[]int{503, 200}, false, 1, 0},
		"too many, not repeatable":  {[]int{429, 200}, false, 2, 200},
		"timeout of the server":     {[]int{408, 200}, true, 2, 200},
		"a refusal":                 {[]int{400}, true, 1, 400},
		"not found":                 {[]int{404}, true, 1, 404},
		"a redirect is a response":  {[]int{302}, true, 1, 302},
		"credentials of no account": {[]int{401}, true, 1, 401},
	} {
		x := newWorld(statuses(c.statuses...))
		response, err := x.do(t.Context(), c.repeatable)
		if x.calls != c.calls || (c.status == 0) != payments.IsTransient(err) || c.status != 0 && response.Status != c.status {
			t.Errorf("%s: %d calls, status %d, %v; want %d calls, status %d", name, x.calls, response.Status, err, c.calls, c.status)
		}
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	for value, c := range map[string]struct {
		calls int
		least time.Duration
	}{
		"2":                             {2, 2 * time.Second},
		"3600":                          {1, time.Hour},
		"Fri, 27 Feb 2026 16:13:22 GMT": {0, 0},
		"-1":                            {2, 0},
		"soon":                          {2, 0},
	} {
		x := newWorld(func(w http.ResponseWriter, _ *http.Request, call int) {
			if call == 1 {
				w.Header().Set("Retry-After", value)
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		_, err := x.do(t.Context(), true)
		var transient *payments.TransientError
		switch {
		case c.calls == 0: // a date: as long as it is in the future
		case x.calls != c.calls:
			t.Errorf("%s: %d calls, want %d", value, x.calls, c.calls)
		case c.calls == 2 && (err != nil || x.waits[0] < c.least):
			t.Errorf("%s: waited %v: %v", value, x.waits, err)
		case c.calls == 1 && (!errors.As(err, &transient) || transient.RetryAfter != c.least):
			t.Errorf("%s: %v, want an error that says to wait %v", value, err, c.least)
		}
		if c.calls == 1 { // and the next call does not ask before that
			if _, err := x.do(t.Context(), true); !payments.IsTransient(err) || x.calls != 1 {
				t.Errorf("%s: the next call asked: %v", value, err)
			}
		}
	}
}

func TestBreaker(t *testing.T) {
	var mu sync.Mutex
	ill := true
	x := newWorld(func(w http.ResponseWriter, _ *http.Request, _ int) {
		mu.Lock()
		defer mu.Unlock()
		if ill {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for range 5 {
		_, _ = x.do(t.Context(), false) // what fails is counted
	}
	if _, err := x.do(t.Context(), false); !payments.IsTransient(err) || x.calls != 5 {
		t.Fatalf("after five failures the server was asked %d times: %v", x.calls, err)
	}
	advance := func(d time.Duration) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.now = x.now.Add(d)
	}
	advance(5 * time.Second)
	_, _ = x.do(t.Context(), false)
	_, _ = x.do(t.Context(), false)
	if x.calls != 6 {
		t.Errorf("%d calls, want one probe after the pause", x.calls)
	}
	advance(5 * time.Second)
	if _, _ = x.do(t.Context(), false); x.calls != 6 {
		t.Errorf("%d calls, want a pause twice as long after a probe that failed", x.calls)
	}
	mu.Lock()
	ill = false
	mu.Unlock()
	advance(5 * time.Second)
	for range 3 {
		if _, err := x.do(t.Context(), false); err != nil {
			t.Errorf("the server is well again: %v", err)
		}
	}
}

func TestResponsesAreBounded(t *testing.T) {
	x := newWorld(func(w http.ResponseWriter, _ *http.Request, _ int) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), outbound.MaxResponse+1)) // to a recorder
	})
	if response, err := x.do(t.Context(), false); !payments.IsTransient(err) || len(response.Body) > outbound.MaxResponse {
		t.Errorf("a response of %d bytes: %v", len(response.Body), err)
	}
	x = newWorld(func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write([]byte("<html>")) })
	var into struct{}
	if _, err := x.client.JSON(t.Context(), outbound.Request{Now: x.Now, Base: "https://api.example.com"}, &into); !payments.IsTransient(err) {
		t.Errorf("a response that is no JSON: %v", err)
	}
}

func TestCallerThatGoesAwayProvesNothing(t *testing.T) {
	x := newWorld(statuses(200))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if _, err := x.do(ctx, true); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the error of the context", err)
		}
	}
	if _, err := x.do(t.Context(), true); err != nil {
		t.Errorf("the breaker counts callers that went away: %v", err)
	}
}

func TestErrorsQuoteNoAddress(t *testing.T) {
	client := outbound.New("app_test", &http.Client{Transport: failing{}})
	client.Waiting(func(context.Context, time.Duration) error { return nil })
	_, err := client.Do(t.Context(), outbound.Request{Now: time.Now, Base: "https://api.example.com", Path: "/tokens/secret-token"})
	if err == nil || strings.Contains(err.Error(), "secret-token") || !strings.Contains(err.Error(), "no route") {
		t.Errorf("got %v, want the cause without the address", err)
	}
}

type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no route") }

func TestBase(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://api.example.com": true, "http://127.0.0.1:8080": true, "http://localhost:1": true, "http://[::1]:1": true,
		"http://api.example.com": false, "ftp://127.0.0.1": false, "api.example.com": false, "": false, "https://u:p@api.example.com": false,
		"https://api.example.com?x=1": false, "https://api.example.com#x": false, "http://127.0.0.1.example.com": false,
	} {
		if err := outbound.CheckBase(address); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	for text, want := range map[string]string{"a": "a", "a/b": "a%2Fb", "..": "%2E%2E", ".": "%2E", "a?b#c": "a%3Fb%23c", "x.y": "x.y"} {
		if got := outbound.Segment(text); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

// TestBreakerAfterTheClockWasSetBack: it does not stay open until the time that was
// not comes again.
func TestBreakerAfterTheClockWasSetBack(t *testing.T) {
	ill := true
	x := newWorld(func(w http.ResponseWriter, _ *http.Request, _ int) {
		if ill {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for range 5 {
		_, _ = x.do(t.Context(), false) // what fails is counted
	}
	ill, x.now = false, x.now.Add(-24*time.Hour)
	if _, err := x.do(t.Context(), false); err != nil {
		t.Error(err)
	}
}
