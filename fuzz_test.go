package kit_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/budget"
	"github.com/kitbackend/kit/kittest"
)

// helped is a fuzz target's F for what its function calls, where F itself may not
// be asked for anything.
type helped struct{ testing.TB }

func (helped) Helper() {}

// fuzzed is a kit with every capability, for targets.
func fuzzed(f *testing.F) *kittest.Kit {
	return kittest.New(helped{f}, append(everything(), kit.WithEnvironment("development"), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// FuzzRequests sends any request to any row of a kit with every capability, as
// nobody and as a caller that its guard admits: whatever the path's parameters,
// the query, a header and the body decode to, it is never a failure of the kit,
// and takes a time that grows with its length alone.
func FuzzRequests(f *testing.F) {
	k := fuzzed(f)
	k.Anonymous().Get("/health").Want(200, "")
	rows := k.Routes()
	if err := k.Auth().EnsureUser(f.Context(), "ada"); err != nil {
		f.Fatal(err)
	}
	for i := range rows {
		f.Add(uint16(i), i%2 == 0, "a", "limit=5&cursor=x", "Range", "bytes=0-1", []byte(`{"a":1}`))
	}
	f.Add(uint16(7), true, "%ff%00", "cursor=%ff", "Content-Type", "multipart/form-data; boundary=x", []byte("--x\r\n\r\n\r\n--x--"))
	f.Add(uint16(9), true, "\u00e4\u0308", "a=b&a=c", "Cookie", "kit_session=a; kit_session=b", []byte(`[[[[[]]]]]`))
	f.Fuzz(func(t *testing.T, row uint16, proved bool, param, query, name, value string, body []byte) {
		route := rows[int(row)%len(rows)]
		path := parameters(route.Path, param)
		target := "http://localhost" + path
		if query != "" {
			target += "?" + query
		}
		request := func() *http.Request {
			r, err := http.NewRequestWithContext(t.Context(), strings.TrimSuffix(route.Method, "*"), target, bytes.NewReader(body))
			if err != nil || strings.ContainsAny(name+value, "\r\n\x00") {
				return nil
			}
			r.RemoteAddr = "127.0.0.1:50000"
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set(name, value)
			if !proved || r.Header.Get("Authorization") != "" {
				return r
			}
			switch route.Guard {
			case "control-plane":
				r.Header.Set("Authorization", k.Credential(r.Method, r.URL.EscapedPath(), route.Scope))
			case "user", "bearer":
				var scopes []string
				if strings.Contains(route.Scope, ":") {
					scopes = []string{route.Scope}
				}
				token, err := k.Auth().IssueToken(t.Context(), "ada", scopes, time.Minute)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Authorization", "Bearer "+token)
			}
			return r
		}
		size := len(path) + len(query) + len(name) + len(value) + len(body)
		budget.Hold(t, size, func() {
			r := request()
			if r == nil {
				return
			}
			k.Clock.Advance(time.Minute)
			rec := httptest.NewRecorder()
			k.ServeHTTP(rec, r)
			if rec.Code == http.StatusInternalServerError {
				t.Fatalf("%s %s: %d %s", route.Method, target, rec.Code, rec.Body)
			}
		})
	})
}

// parameters puts a value in the place of each of a path's parameters.
func parameters(path, value string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if strings.HasPrefix(part, ":") || part == "*" {
			parts[i] = value
		}
	}
	return strings.Join(parts, "/")
}

// FuzzSignature gives dispatches any signature: none is good.
func FuzzSignature(f *testing.F) {
	k := fuzzed(f)
	f.Add("t=1,v1=00")
	f.Add("t=1795262400,v1=" + strings.Repeat("ab", 32) + ",v1=zz,t=2")
	f.Fuzz(func(t *testing.T, header string) {
		if strings.ContainsAny(header, "\r\n\x00") {
			return
		}
		k.Clock.Advance(time.Minute) // so that no limit refuses it first
		budget.Hold(t, len(header), func() {
			if got := k.Anonymous().With("Kit-Signature", header+" ").Post("/__kit/workflows/STORAGE_SWEEP", "{}").Status; got != 401 {
				t.Fatalf("signature %q: %d, want 401", header, got)
			}
		})
	})
}
