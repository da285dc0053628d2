package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/internal/npmtest"
)

// front is between a page and its backend: paths of the OpenAPI document go through an independent
// validating proxy, all others directly to the backend.
type front struct {
	paths           []string
	direct, through http.Handler

	mu     sync.Mutex
	passed map[string]bool // paths of the document that were requested
	wrong  []string
}

// spoilt is a path that the proxy's document describes wrongly; no page requests it.
const spoilt = "/auth/ok"

// startFront puts the proxy in front of a handler, with the document of its kit.
func startFront(t *testing.T, k *kit.Kit, next http.Handler) *front {
	t.Helper()
	raw, err := k.OpenAPI()
	check(t, err)
	var document map[string]any
	check(t, json.Unmarshal(raw, &document))
	paths := document["paths"].(map[string]any)
	paths[spoilt] = map[string]any{"get": map[string]any{"responses": map[string]any{"201": map[string]any{"description": "Never."}}}}
	raw, err = json.Marshal(document)
	check(t, err)
	file := filepath.Join(t.TempDir(), "openapi.json")
	check(t, os.WriteFile(file, raw, 0o600))
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&disguised{ResponseWriter: w}, r)
	}))
	t.Cleanup(upstream.Close)
	to := npmtest.Proxy(t, file, upstream.URL)
	f := &front{paths: slices.Collect(maps.Keys(paths)), direct: next, passed: make(map[string]bool)}
	f.through = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		ModifyResponse: func(r *http.Response) error {
			f.see(r.Request, npmtest.Violations(t, r.Header.Get(npmtest.ViolationHeader)))
			reveal(r.Header)
			return nil
		},
	}
	return f
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.path(r) == "" || r.Header.Get("Upgrade") != "" {
		f.direct.ServeHTTP(w, r)
		return
	}
	f.through.ServeHTTP(w, r)
}

// path returns the path of the document that describes a request, such as /devices/{id}, or "".
func (f *front) path(r *http.Request) string {
	parts := strings.Split(r.URL.Path, "/")
	at := slices.IndexFunc(f.paths, func(path string) bool {
		return slices.EqualFunc(strings.Split(path, "/"), parts, func(want, got string) bool { return want == got || strings.HasPrefix(want, "{") && got != "" })
	})
	if at < 0 {
		return ""
	}
	return f.paths[at]
}

func (f *front) see(r *http.Request, violations []npmtest.Violation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.passed[f.path(r)] = true
	for _, v := range violations {
		f.wrong = append(f.wrong, fmt.Sprintf("%s %s: %s", r.Method, r.URL.Path, v))
	}
}

// taken returns the violations of the document found so far, and clears them.
func (f *front) taken() (wrong []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wrong, f.wrong = f.wrong, nil
	return wrong
}

// finds fails the test unless the proxy reports a response that differs from its document.
func (f *front) finds(t *testing.T, base string) {
	t.Helper()
	resp, err := http.Get(base + spoilt)
	check(t, err)
	_ = resp.Body.Close()
	if wrong := f.taken(); resp.StatusCode != 200 || len(wrong) != 1 || !strings.HasPrefix(wrong[0], "GET "+spoilt+": ") {
		t.Errorf("%s of a document that is wrong about %s: %q", resp.Status, spoilt, wrong)
	}
}

// found reports violations of the document, and a story that did not go through the proxy.
func (f *front) found(t *testing.T) {
	t.Helper()
	for _, wrong := range f.taken() {
		t.Error(wrong)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.passed) < 25 {
		t.Errorf("requests of %d paths passed the proxy: %v", len(f.passed), slices.Sorted(maps.Keys(f.passed)))
	}
}

// changed are the headers that the proxy changes: it follows redirects itself, and merges several
// cookies into one. They pass through it under another name, as JSON.
var changed = []string{"Location", "Set-Cookie"}

const disguise = "X-Front-"

// disguised renames these headers of a response.
type disguised struct {
	http.ResponseWriter
	begun bool
}

func (d *disguised) WriteHeader(status int) {
	d.begun = true
	h := d.Header()
	for _, name := range changed {
		if values := h.Values(name); len(values) > 0 {
			raw, _ := json.Marshal(values) // strings always encode
			h.Set(disguise+name, string(raw))
			h.Del(name)
		}
	}
	d.ResponseWriter.WriteHeader(status)
}

func (d *disguised) Write(p []byte) (int, error) {
	if !d.begun {
		d.WriteHeader(http.StatusOK)
	}
	return d.ResponseWriter.Write(p)
}

// reveal restores their names.
func reveal(h http.Header) {
	for _, name := range changed {
		var values []string
		if json.Unmarshal([]byte(h.Get(disguise+name)), &values) == nil {
			h[name] = values
		}
		h.Del(disguise + name)
	}
}
