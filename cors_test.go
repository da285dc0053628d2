package kit_test

import (
	"net/http"
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
	if h := ada.With("Origin", front).Get("/ledger/coins").Want(200, "").Header; h.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("a listed page cannot read the response: %v", h)
	}
}
