package main

import (
	"embed"
	"io/fs"
	"net/http"
	"unicode/utf8"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/clients"
)

//go:embed static
var static embed.FS

// policy lets the page load its own files and connect to its own origin, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// site serves the sign-in page and the client that it uses, and passes the paths of the kit to the
// kit.
func site(k *kit.Kit) http.Handler {
	files, err := fs.Sub(static, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	pages := http.NewServeMux()
	pages.Handle("/client/", clients.Browser())
	pages.Handle("/", http.FileServerFS(files))
	return k.Before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "pages are only read", http.StatusMethodNotAllowed)
			return
		}
		if !utf8.ValidString(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		pages.ServeHTTP(w, r)
	}))
}
