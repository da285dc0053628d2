package auth_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
)

// Cookies are named, prefixed and sent as the application says, and prove the
// session under their names.
func TestCookieOptions(t *testing.T) {
	cfg := withDoorman(auth.Config{Cookies: auth.Cookies{
		Session: "better-auth.session_token", SecurePrefix: true, SameSite: http.SameSiteNoneMode,
	}})
	n := open(t, databasetest.Memory(t), cfg)
	n.user(t, "ada")
	browser := n.client(t)
	browser.signIn("ada")
	cookie := browser.cookies["__Secure-better-auth.session_token"]
	if cookie == nil || cookie.SameSite != http.SameSiteNoneMode || !cookie.Secure {
		t.Fatalf("%v", browser.cookies)
	}
	browser.with("Sec-Fetch-Site", "same-origin").do("GET", "/auth/session", "").want(200, "")
	for name := range browser.cookies {
		if !strings.HasPrefix(name, "__Secure-") {
			t.Errorf("the cookie %s has another prefix", name)
		}
	}
}

// A cookie that browsers would not take is refused at assembly.
func TestCookieFaults(t *testing.T) {
	host := open(t, databasetest.Memory(t), setup{}).host
	for name, cookies := range map[string]auth.Cookies{
		"a prefix": {Session: "__Host-x"}, "a space": {Session: "a b"}, "another of the kit's": {Session: "kit_csrf"}, "a mode": {SameSite: 9},
	} {
		if _, err := auth.New(host, auth.Config{Cookies: cookies}, auth.Peers{}); !isFault(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	local := *host.BaseURL
	local.Scheme, host.BaseURL = "http", &local
	if _, err := auth.New(host, auth.Config{Cookies: auth.Cookies{SameSite: http.SameSiteNoneMode}}, auth.Peers{}); !isFault(err) {
		t.Errorf("SameSite=None on http: %v", err)
	}
}

func isFault(err error) bool {
	var fault *capability.Fault
	return errors.As(err, &fault)
}
