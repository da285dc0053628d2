package kit_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/kittest"
)

// TestTrustedOriginsOfAuth holds that a page listed in auth alone may call every
// row of users and the sign-in library, and that others may not.
func TestTrustedOriginsOfAuth(t *testing.T) {
	const front = "http://localhost:5173"
	k := kittest.New(t, kit.WithAuth(auth.Config{TrustedOrigins: []string{front, "myapp://"}}), kit.WithLedger(coins()))
	for path, method := range map[string]string{"/ledger/coins": "GET", "/auth/sign-in/email": "POST", "/auth/devices": "GET"} {
		for origin, allowed := range map[string]string{front: front, "http://localhost:5174": "", "myapp://": ""} {
			page := k.Anonymous().With("Origin", origin).With("Access-Control-Request-Method", method)
			if got := page.Do(http.MethodOptions, path, nil).Header.Get("Access-Control-Allow-Origin"); got != allowed {
				t.Errorf("%s, a page of %s: allowed %q, want %q", path, origin, got, allowed)
			}
		}
	}
	ada := k.Browser("ada").With("Sec-Fetch-Site", "same-site")
	h := ada.With("Origin", front).Get("/ledger/coins").Want(200, "").Header
	if h.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("a listed page cannot read the response: %v", h)
	}
	exposed := strings.Split(h.Get("Access-Control-Expose-Headers"), ", ")
	for _, header := range []string{"Retry-After", "X-Retry-After", "X-Kit-Fresh", "X-CSRF-Token", "Set-Auth-Token"} {
		if !slices.Contains(exposed, header) {
			t.Errorf("a listed page cannot read %s, only %s", header, exposed)
		}
	}
}

// TestRefusalTellsOwnPagesTheToken holds that a page of the own origin that has no cookie to read,
// as in a service worker, gets the CSRF token of its session with the refusal, and others do not.
func TestRefusalTellsOwnPagesTheToken(t *testing.T) {
	const front = "http://localhost:5173"
	k := kittest.New(t, kit.WithAuth(auth.Config{TrustedOrigins: []string{front}}), kit.WithLedger(coins()), kit.WithBaseURL("https://example.com"))
	for origin, told := range map[string]bool{"https://example.com": true, front: true, "http://localhost:5174": false, "": false} {
		page := k.Browser("ada").With("X-CSRF-Token", "")
		if origin != "" {
			page = page.With("Origin", origin)
		}
		if got := page.Post("/auth/devices/revoke", nil).Want(403, "auth/csrf").Header.Get("X-CSRF-Token"); (got != "") != told {
			t.Errorf("a page of %q was told %q", origin, got)
		}
	}
}
