package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/kittest"
)

// front runs Vite's development server for the page, which knows the address of the kit.
func front(t *testing.T, api, port string) {
	t.Helper()
	node, npm := os.Getenv("KIT_TEST_NODE"), os.Getenv("KIT_TEST_CLIENTS")
	if node == "" || npm == "" {
		t.Skip("KIT_TEST_NODE and KIT_TEST_CLIENTS do not name Node and a folder with node_modules that has vite")
	}
	vite := exec.Command(node, filepath.Join(npm, "node_modules/vite/bin/vite.js"), "web", "--configLoader", "native", "--host", "localhost", "--port", port, "--strictPort")
	vite.Env = append(os.Environ(), "VITE_API="+api)
	out := new(bytes.Buffer)
	vite.Stdout, vite.Stderr = out, out
	if err := vite.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = vite.Process.Kill()
		_ = vite.Wait()
		if t.Failed() {
			t.Logf("vite: %s", out)
		}
	})
	processtest.Listening(t, "localhost:"+port)
}

// free returns a port that no process listens on.
func free(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// TestPageOfAnotherOrigin signs up, writes, searches and signs out in a browser, on a page that
// Vite serves on another port and that calls the kit with the typed client.
func TestPageOfAnotherOrigin(t *testing.T) {
	var handler http.Handler
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer api.Close()
	own := strings.Replace(api.URL, "127.0.0.1", "localhost", 1)
	port := free(t)
	origin := "http://localhost:" + port
	handler = kittest.New(t, options(own, origin)...)
	b := browsertest.Start(t)
	front(t, own, port)

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

// TestPageOfNoTrustedOriginReadsNothing checks that a page of another origin cannot do the same.
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

// TestBearer is the flow of a mobile application: no cookies, no origin, and an access token that
// is renewed when it has expired.
func TestBearer(t *testing.T) {
	k := kittest.New(t, options("http://localhost:8080", "http://localhost:5173")...)
	phone := k.Anonymous().With("X-Kit-Transport", "body")
	var signed, renewed struct{ Token, AccessToken, RefreshToken string }
	response := phone.Post("/auth/sign-up/email", map[string]string{"email": "ada@example.com", "password": "correct horse battery", "name": "Ada"}).Want(200, "")
	response.JSON(&signed)
	if cookies := response.Header.Values("Set-Cookie"); len(cookies) > 0 {
		t.Errorf("a phone got cookies: %v", cookies)
	}
	k.Bearing("Bearer "+signed.Token).Post("/vector/notes/documents", `{"documents":[{"id":"1","text":"by phone"}]}`).Want(200, "")
	k.Clock.Advance(20 * time.Minute)
	k.Bearing("Bearer "+signed.Token).Get("/auth/devices").Want(401, "auth/unauthenticated")
	phone.Post("/auth/token/rotate", map[string]string{"refreshToken": signed.RefreshToken}).Want(200, "").JSON(&renewed)
	if renewed.RefreshToken == "" {
		t.Error("a renewed token cannot be renewed again")
	}
	k.Bearing("Bearer "+renewed.AccessToken).Get("/auth/devices").Want(200, "")
}
