package mount_test

import (
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/mount"
)

// The own origin is compared as browsers write it, also where a proxy has put
// another Host, and a page of plain http is one of ours only where all are.
func TestOwnOrigin(t *testing.T) {
	for name, c := range map[string]struct {
		base, host, origin string
		status             int
	}{
		"behind a proxy":                 {"https://Example.COM/api", "backend:8080", "https://example.com", 200},
		"behind a proxy, foreign":        {"https://Example.COM/api", "backend:8080", "https://evil.example", 403},
		"another name of ours":           {"https://example.com", "www.example.com", "https://www.example.com", 200},
		"another name of ours, http":     {"https://example.com", "www.example.com", "http://www.example.com", 403},
		"a host without TLS":             {"http://localhost:8080", "127.0.0.1:8080", "http://127.0.0.1:8080", 200},
		"a host without TLS, by a proxy": {"http://localhost:8080", "box.example", "https://box.example", 200},
		"no host, no origin":             {"https://example.com", "", "", 403},
		"the host alone":                 {"https://example.com", "example.com", "example.com", 403},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(cfg *mount.Config) {
				base, err := url.Parse(c.base)
				if err != nil {
					t.Fatal(err)
				}
				cfg.BaseURL = base
			})
			for _, line := range []string{"GET /things/socket", "POST /things/text"} {
				method, path, _ := strings.Cut(line, " ")
				if method == "POST" && (c.origin == "" || strings.HasPrefix(c.origin, "http://www") || !strings.Contains(c.origin, "://")) {
					continue // the general protection knows no scheme, and asks for the token
				}
				r := httptest.NewRequest(method, path, strings.NewReader(`{}`))
				r.Host = c.host
				r.Header.Set("Cookie", ada)
				r.Header.Set("X-CSRF-Token", "token-of-ada")
				r.Header.Set("Content-Type", "application/json")
				if c.origin != "" {
					r.Header.Set("Origin", c.origin)
				}
				rec := httptest.NewRecorder()
				w.ServeHTTP(rec, r)
				if rec.Code/100*100 != c.status/100*100 {
					t.Errorf("%s: %d %s", line, rec.Code, rec.Body)
				}
			}
		})
	}
}
