package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/kittest"
)

// front serves the page as its own server would, and knows where the kit is.
func front(t *testing.T, api string) *httptest.Server {
	t.Helper()
	index, err := os.ReadFile("web/index.html")
	if err != nil {
		t.Fatal(err)
	}
	files := http.FileServer(http.Dir("web"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			files.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(strings.Replace(string(index), "http://localhost:8080", api, 1))) // the browser shows a short one
	}))
	t.Cleanup(server.Close)
	return server
}

// TestPageOfAnotherOrigin signs up, writes, finds and signs out in a browser,
// from another origin.
func TestPageOfAnotherOrigin(t *testing.T) {
	b := browsertest.Start(t)
	var handler http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer api.Close()
	own := strings.Replace(api.URL, "127.0.0.1", "localhost", 1)
	page := front(t, own)
	origin := strings.Replace(page.URL, "127.0.0.1", "localhost", 1)
	handler = kittest.New(t, options(own, origin)...)

	tab := b.Open(origin)
	tab.Fill("#sign [name=email]", "ada@example.com")
	tab.Fill("#sign [name=password]", "correct horse battery")
	tab.Click("#sign [name=up]")
	tab.Until(`document.querySelector("#who").textContent === "ada@example.com"`)
	tab.Fill("#write [name=text]", "The spare key is under the flower pot")
	tab.Click("#write button")
	tab.Until(`document.querySelector("#write [name=text]").value === ""`)
	tab.Fill("#find [name=query]", "spare key")
	tab.Click("#find button")
	tab.Until(`document.querySelector("#found").textContent.includes("flower pot")`)
	tab.Click("#out")
	tab.See("#sign")
	for _, complaint := range tab.Complaints() {
		t.Errorf("the browser complains: %s", complaint)
	}
}

// TestPageOfNoTrustedOriginReadsNothing holds the other side of it.
func TestPageOfNoTrustedOriginReadsNothing(t *testing.T) {
	k := kittest.New(t, options("http://localhost:8080", "http://localhost:5173")...)
	ada := k.Browser("ada").With("Sec-Fetch-Site", "same-site")
	for origin, want := range map[string]bool{"http://localhost:5173": true, "http://localhost:5174": false} {
		h := ada.With("Origin", origin).Get("/auth/devices").Want(200, "").Header
		if shared := h.Get("Access-Control-Allow-Origin") == origin; shared != want {
			t.Errorf("%s: shared %v, want %v", origin, shared, want)
		}
	}
}

// TestBearer is the flow of an application on a phone: no cookies, no origin.
func TestBearer(t *testing.T) {
	k := kittest.New(t, options("http://localhost:8080", "http://localhost:5173")...)
	phone := k.Anonymous()
	var signed struct{ Token string }
	phone.Post("/auth/sign-up/email", map[string]string{"email": "ada@example.com", "password": "correct horse battery", "name": "Ada"}).Want(200, "").JSON(&signed)
	k.Bearing("Bearer "+signed.Token).Post("/vector/notes/documents", `{"documents":[{"id":"1","text":"by phone"}]}`).Want(200, "")
}
