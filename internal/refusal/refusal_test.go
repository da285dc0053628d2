package refusal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
)

// delay is a cause that says how long to wait.
type delay time.Duration

func (d delay) Error() string       { return "busy" }
func (d delay) Wait() time.Duration { return time.Duration(d) }

func TestWriteRefusesAsTheKitDoes(t *testing.T) {
	gone, leave := context.WithCancel(context.Background())
	leave()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		status int
		body   string
		header [2]string
		logged bool
	}{
		{name: "a refusal with details", err: capability.ErrInvalidRequest.With(map[string]string{"field": "<name>"}),
			status: 400, body: `{"error":{"code":"kit/invalid_request","message":"` + capability.ErrInvalidRequest.Message + `","details":{"field":"<name>"}}}`},
		{name: "details that do not encode", err: capability.ErrInvalidRequest.With(func() {}),
			status: 400, body: `{"error":{"code":"kit/invalid_request","message":"` + capability.ErrInvalidRequest.Message + `"}}`},
		{name: "nobody", err: capability.ErrUnauthenticated, status: 401, header: [2]string{"WWW-Authenticate", "Bearer"}},
		{name: "an invalid credential", err: capability.ErrInvalidCredential, status: 401, header: [2]string{"WWW-Authenticate", `Bearer error="invalid_token"`}},
		{name: "a wait", err: capability.ErrRateLimited.Because(delay(90 * time.Second)), status: 429, header: [2]string{"Retry-After", "90"}},
		{name: "no wait", err: capability.ErrUnavailable, status: 503, header: [2]string{"Retry-After", "1"}, logged: true},
		{name: "a body over the limit", err: fmt.Errorf("decode: %w", &http.MaxBytesError{Limit: 10}), status: 413,
			body: `{"error":{"code":"kit/body_too_large","message":"The request body has at most 10 bytes.","details":{"maxBytes":10}}}`},
		{name: "no refusal", err: errors.New("the secret text"), status: 500,
			body: `{"error":{"code":"kit/internal","message":"` + capability.ErrInternal.Message + `"}}`, logged: true},
		{name: "a nil error", status: 500, body: `{"error":{"code":"kit/internal","message":"` + capability.ErrInternal.Message + `"}}`, logged: true},
		{name: "a nil refusal", err: (*capability.Error)(nil), status: 500, logged: true},
		{name: "a client that disconnected", ctx: gone, err: fmt.Errorf("read: %w", context.Canceled), status: 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log bytes.Buffer
			w, r := httptest.NewRecorder(), httptest.NewRequest("GET", "/own", nil)
			if c.ctx != nil {
				r = r.WithContext(c.ctx)
			}
			Write(slog.New(slog.NewTextHandler(&log, nil)), w, r, c.err)
			body := strings.TrimSpace(w.Body.String())
			if w.Code != c.status || c.body != "" && body != c.body {
				t.Errorf("%d %s, expected %d %s", w.Code, body, c.status, c.body)
			}
			if name, want := c.header[0], c.header[1]; name != "" && w.Header().Get(name) != want {
				t.Errorf("%s: %q, expected %q", name, w.Header().Get(name), want)
			}
			if logged := log.Len() > 0; logged != c.logged {
				t.Errorf("logged %q, expected that it is logged: %t", log.String(), c.logged)
			}
		})
	}
}
