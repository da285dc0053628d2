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
		"real ip":      {"127.0.0.1:5000", "localhost", "X-Real-IP", false},
		"client ip":    {"127.0.0.1:5000", "localhost", "Client-Ip", false},
		"true client":  {"127.0.0.1:5000", "localhost", "True-Client-Ip", false},
		"cloudflare":   {"127.0.0.1:5000", "localhost", "Cf-Ray", false},
		"envoy":        {"127.0.0.1:5000", "localhost", "X-Envoy-External-Address", false},
		"amazon":       {"127.0.0.1:5000", "localhost", "X-Amzn-Trace-Id", false},
		"azure":        {"127.0.0.1:5000", "localhost", "X-Azure-Ref", false},
		"fastly":       {"127.0.0.1:5000", "localhost", "Fastly-Client-Ip", false},
		"app engine":   {"127.0.0.1:5000", "localhost", "X-Appengine-User-Ip", false},
		"cluster":      {"127.0.0.1:5000", "localhost", "X-Cluster-Client-Ip", false},
		"original url": {"127.0.0.1:5000", "localhost", "X-Original-Url", false},
		"proxied conn": {"127.0.0.1:5000", "localhost", "Proxy-Connection", false},
		"tunnel":       {"127.0.0.1:5000", "localhost", "Ngrok-Trace-Id", false},
		"cdn":          {"127.0.0.1:5000", "localhost", "Cdn-Loop", false},
		"varnish":      {"127.0.0.1:5000", "localhost", "X-Varnish", false},
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

func TestHTTP10IsNotFromThisMachine(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.0", 1, 0
	if local.FromThisMachine(r) {
		t.Error("HTTP/1.0, which proxies speak upstream, passes as a client of this machine")
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
