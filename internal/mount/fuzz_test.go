package mount_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/budget"
	"github.com/kitbackend/kit/internal/mount"
)

// FuzzAddress sends any path, query and proof through the mount: nothing fails,
// and a path that is no row's is no row's however it is escaped.
func FuzzAddress(f *testing.F) {
	w := newWorld(f, func(c *mount.Config) { c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} })
	f.Add("/things/items/7", "q=x", "Bearer ada", "session=ada", "203.0.113.7, 192.0.2.1", "https://example.com")
	f.Add("/things/items/%ff%00", "%ff=%00", "Bearer", "session=ada; session=eve", "::1%eth0, x", "null")
	f.Add("//things//items/\u00e4%2f..", "a&b=c;d", "Basic eA==", "=", ",,,", "http://example.com")
	f.Fuzz(func(t *testing.T, path, query, authorization, cookie, forwarded, origin string) {
		if strings.ContainsAny(authorization+cookie+forwarded+origin, "\r\n\x00") || strings.Contains(path, "panic") || strings.Contains(path, "broken") {
			return
		}
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodConnect} {
			r, err := http.NewRequestWithContext(t.Context(), method, "https://example.com/api"+path, strings.NewReader("{}"))
			if err != nil {
				return
			}
			r.URL.RawQuery, r.RemoteAddr = query, "192.0.2.1:1"
			r.Header = http.Header{"Authorization": {authorization}, "Cookie": {cookie}, "X-Forwarded-For": {forwarded}, "Origin": {origin},
				"X-Request-Id": {forwarded}, "Idempotency-Key": {cookie}, "Content-Type": {"application/json"}}
			budget.Hold(t, len(path)+len(query)+len(authorization)+len(cookie)+len(forwarded)+len(origin), func() {
				rec := httptest.NewRecorder()
				w.ServeHTTP(rec, r)
				if rec.Code == http.StatusInternalServerError {
					t.Fatalf("%s %q: %s", method, path, rec.Body)
				}
			})
		}
	})
}
