package local_test

import (
	"net/http/httptest"
	"testing"

	"github.com/kitbackend/kit/internal/local"
)

func TestFromThisMachine(t *testing.T) {
	for name, c := range map[string]struct {
		peer, host, header string
		want               bool
	}{
		"direct":       {"127.0.0.1:5000", "localhost:8080", "", true},
		"ipv6":         {"[::1]:5000", "[::1]:8080", "", true},
		"mapped":       {"[::ffff:127.0.0.1]:5000", "127.0.0.1", "", true},
		"other peer":   {"192.0.2.1:5000", "localhost", "", false},
		"rebound name": {"127.0.0.1:5000", "evil.example:8080", "", false},
		"proxied":      {"127.0.0.1:5000", "localhost", "X-Forwarded-For", false},
		"via":          {"127.0.0.1:5000", "localhost", "Via", false},
		"no peer":      {"", "localhost", "", false},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Host = c.peer, c.host
		if c.header != "" {
			r.Header.Set(c.header, "x")
		}
		if got := local.FromThisMachine(r); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestFromOtherSite(t *testing.T) {
	for site, want := range map[string]bool{"": false, "none": false, "same-origin": false, "same-site": true, "cross-site": true} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("Sec-Fetch-Site", site)
		if got := local.FromOtherSite(r); got != want {
			t.Errorf("%q: %v", site, got)
		}
	}
}
