package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/browsertest"
)

// TestHosts requests a page, a path of the kit, and an unknown path from every host.
func TestHosts(t *testing.T) {
	for _, host := range []string{"nethttp", "chi", "echo"} {
		t.Run(host, func(t *testing.T) {
			_, h, err := application(host, "http://localhost:8080")
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]struct {
				status int
				says   string
			}{
				"/":                           {200, "One kit, your router"},
				"/api/health":                 {200, `"status":"ok"`},
				"/api/ledger/coins":           {401, "auth/unauthenticated"},
				"/api/__kit/dev-login?user=a": {200, `"userId":"a"`},
				"/client/index.js":            {200, "createClient"},
				"/missing.html":               {404, ""},
			} {
				r := httptest.NewRequest("GET", "http://localhost:8080"+path, nil)
				r.RemoteAddr = "127.0.0.1:50000"
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, r)
				if rec.Code != want.status || !strings.Contains(rec.Body.String(), want.says) {
					t.Errorf("%s: %d %.200s", path, rec.Code, rec.Body)
				}
			}
		})
	}
	if _, _, err := application("gin", ""); err == nil {
		t.Error("an unknown host is taken")
	}
}

// TestPage clicks the button of the page in a browser, under each host.
func TestPage(t *testing.T) {
	b := browsertest.Start(t)
	for _, host := range []string{"nethttp", "chi", "echo"} {
		var handler http.Handler
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
		defer server.Close()
		k, h, err := application(host, server.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Close(context.Background()) }()
		handler = h
		page := b.Open(server.URL + "/")
		page.Click("button")
		page.Until(`document.querySelector("output").textContent.startsWith('ada has {"currency":"coins"')`)
		for _, complaint := range page.Complaints() {
			t.Errorf("%s: %s", host, complaint)
		}
	}
}
