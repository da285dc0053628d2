package clients_test

import (
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"testing"

	"github.com/kitbackend/kit/clients"
)

func ask(h http.Handler, method, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

// TestEveryModuleIsServed follows the imports from index.js.
func TestEveryModuleIsServed(t *testing.T) {
	h := clients.Browser()
	imports := regexp.MustCompile(`from "(\./[a-z]+\.js)"`)
	seen := map[string]bool{}
	for left := []string{"/any/where/index.js"}; len(left) > 0; left = left[1:] {
		if seen[left[0]] {
			continue
		}
		seen[left[0]] = true
		got := ask(h, "GET", left[0])
		if got.Code != 200 || got.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || got.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", left[0], got.Code, got.Header())
		}
		for _, found := range imports.FindAllStringSubmatch(got.Body.String(), -1) {
			left = append(left, path.Join("/any/where", found[1]))
		}
	}
	if len(seen) < 6 {
		t.Errorf("the imports lead to %v", seen)
	}
}

func TestModulesAreSentOnce(t *testing.T) {
	h := clients.Browser()
	first := ask(h, "GET", "/client/index.js")
	etag := first.Header().Get("ETag")
	if etag == "" || first.Header().Get("Cache-Control") != "no-cache" {
		t.Errorf("nothing says how long a module may be kept: %v", first.Header())
	}
	if again := ask(h, "GET", "/client/index.js", "If-None-Match", etag); again.Code != 304 || again.Body.Len() != 0 {
		t.Errorf("what the browser has is sent again: %d, %d bytes", again.Code, again.Body.Len())
	}
	if other := ask(h, "GET", "/client/client.js"); other.Header().Get("ETag") == etag {
		t.Error("two modules have one tag")
	}
}

func TestNothingElseIsServed(t *testing.T) {
	h := clients.Browser()
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"HEAD", "/client/index.js", 200}, {"POST", "/client/index.js", 405}, {"GET", "/client/", 404}, {"GET", "/client/index.ts", 404},
		{"GET", "/client/index.d.ts", 404}, {"GET", "/client/../clients.go", 404}, {"GET", "/", 404},
	} {
		if got := ask(h, c.method, c.path); got.Code != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got.Code, c.status)
		}
	}
}
