package client_test

import (
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/browsertest"
	"github.com/kitbackend/kit/kittest"
)

//go:embed browser.js
var browserJS []byte

// page generates a key, has it connected, calls the service, and posts the result.
const page = `<!doctype html><script type="module">
import { generateKey, publicJWK, connectionId, credential, call } from "/browser.js"
const result = {}
const attempt = async (name, f) => { try { result[name] = await f() } catch (e) { result[name] = e.name } }
try {
	const { address } = await (await fetch("/service")).json()
	const keys = await generateKey()
	const jwk = await publicJWK(keys)
	await fetch("/connect", { method: "POST", body: JSON.stringify(jwk) })
	const connection = { address, environment: "test", issuer: location.origin, keys, connection: await connectionId("test", jwk) }
	const base = new URL(address).pathname
	const code = async (response) => response.ok ? response.status : (await response.json()).error.code
	await attempt("extract", async () => { await crypto.subtle.exportKey("pkcs8", keys.privateKey); return "extracted" })
	await attempt("ping", async () => (await (await call(connection, "GET", base + "/ping")).json()).connectionId === connection.connection)
	await attempt("manifest", async () => (await (await call(connection, "GET", base + "/manifest", { scopes: ["manifest:read"] })).json()).grantedScopes[0])
	await attempt("scope", async () => code(await call(connection, "GET", base + "/manifest")))
	await attempt("post", async () => code(await call(connection, "POST", base + "/keys/k_none/expire", { scopes: ["keys:rotate"] })))
	await attempt("body", async () => code(await call(connection, "POST", base + "/keys", { body: "{}", scopes: ["keys:rotate"] })))
	const url = new URL(base + "/ping", address)
	const headers = { authorization: "Bearer " + await credential(connection, "GET", url, "", []) }
	await attempt("once", async () => code(await fetch(url, { headers })))
	await attempt("twice", async () => code(await fetch(url, { headers })))
} catch (e) { result.error = String(e) }
await fetch("/result", { method: "POST", body: JSON.stringify(result) })
</script>`

// TestBrowser runs browser.js in a real browser: on the issuer's origin, and on another origin,
// which can call nothing.
func TestBrowser(t *testing.T) {
	for name, tt := range map[string]struct {
		host string
		want map[string]any
	}{
		"issuer": {"127.0.0.1", map[string]any{
			"extract": "InvalidAccessError", "ping": true, "manifest": "manifest:read",
			"scope": "controlplane/insufficient_scope", "post": "controlplane/key_not_found", "body": "kit/invalid_request",
			"once": 200.0, "twice": "controlplane/invalid_credential",
		}},
		"another origin": {"localhost", map[string]any{
			"extract": "InvalidAccessError", "ping": "TypeError", "manifest": "TypeError", "scope": "TypeError",
			"post": "TypeError", "body": "TypeError", "once": "TypeError", "twice": "TypeError",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, runPage(t, tt.host)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func runPage(t *testing.T, host string) (result map[string]any) {
	b := browsertest.Start(t)
	var handler http.Handler
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer service.Close()
	clock := kittest.NewClock()
	clock.Advance(time.Since(clock.Now())) // the clock of the browser
	w := controlplanetest.New(t, databasetest.File(t), controlplanetest.Options{BaseURL: service.URL, Clock: clock, Unconnected: true})
	handler = w

	results := make(chan map[string]any, 1)
	mux := http.NewServeMux()
	console := httptest.NewServer(mux)
	defer console.Close()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, page)
	})
	mux.HandleFunc("GET /browser.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		_, _ = w.Write(browserJS)
	})
	mux.HandleFunc("GET /service", func(rw http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(rw).Encode(map[string]string{"address": w.Identity.Address})
	})
	mux.HandleFunc("POST /connect", func(_ http.ResponseWriter, r *http.Request) {
		var jwk controlplane.JWK
		if err := json.NewDecoder(r.Body).Decode(&jwk); err != nil {
			t.Error(err)
		}
		if err := w.Connect(r.Context(), controlplane.Connection{Issuer: console.URL, PublicKey: jwk}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("POST /result", func(_ http.ResponseWriter, r *http.Request) {
		var result map[string]any
		if err := json.NewDecoder(r.Body).Decode(&result); err != nil {
			t.Error(err)
		}
		results <- result
	})

	b.Open(strings.Replace(console.URL, "127.0.0.1", host, 1))
	select {
	case result = <-results:
	case <-time.After(time.Minute):
		t.Error("the page returned nothing")
	}
	return result
}
