// Package clients serves the typed browser client to the pages of an application, which therefore
// need neither Node nor a build:
//
//	paths.Handle("/client/", clients.Browser())
//
// and in a page:
//
//	import { createClient } from "/client/index.js"
//
// Pages that are built install the package of clients/ts instead.
package clients

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"
)

// modules are the compiled modules of ts/src.
//
//go:embed ts/dist/*.js
var modules embed.FS

// Browser returns a handler that serves the modules of the client to GET and HEAD requests, under
// any path and in any router: the last element of the request's path is the name of the module.
// Browsers cache a module and revalidate it each time, so all modules are of the version that the
// program was built with.
func Browser() http.Handler {
	type module struct {
		text []byte
		etag string
	}
	known := make(map[string]module)
	names, _ := fs.Glob(modules, "ts/dist/*.js") // fails only for a malformed pattern
	for _, name := range names {
		text, err := modules.ReadFile(name)
		if err != nil {
			panic(err) // cannot happen, it is embedded
		}
		known[path.Base(name)] = module{text, fmt.Sprintf(`"%x"`, sha256.Sum256(text))}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, ok := known[path.Base(r.URL.Path)]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "modules are only read", http.StatusMethodNotAllowed)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "text/javascript; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", m.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(m.text))
	})
}
