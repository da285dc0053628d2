package signin_test

import (
	"strings"
	"testing"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database/databasetest"
)

// Pages of others change nothing in the name of a signed-in user, and sign
// nobody in.
func TestOrigins(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.signedUp("ada@example.com")
	in := object{"email": "ada@example.com", "password": password}
	for _, c := range []struct {
		name   string
		b      *browser
		status int
		code   string
	}{
		{"own page", page, 200, ""},
		{"the kit's own page", page.with("Origin", baseURL).with("Sec-Fetch-Site", "same-origin"), 200, ""},
		{"no origin", page.with("Origin", ""), 403, "MISSING_OR_NULL_ORIGIN"},
		{"null origin", page.with("Origin", "null"), 403, "MISSING_OR_NULL_ORIGIN"},
		{"a foreign page", page.with("Origin", "https://evil.example"), 403, "INVALID_ORIGIN"},
		{"a longer name", page.with("Origin", pages+".evil.example"), 403, "INVALID_ORIGIN"},
		{"another scheme", page.with("Origin", strings.Replace(pages, "https", "http", 1)), 403, "INVALID_ORIGIN"},
		{"another port", page.with("Origin", pages+":8443"), 403, "INVALID_ORIGIN"},
		{"a foreign page's form", a.browser().with("Origin", "https://evil.example").with("Sec-Fetch-Site", "cross-site").with("Sec-Fetch-Mode", "navigate"), 403, "CROSS_SITE_NAVIGATION_LOGIN_BLOCKED"},
		{"a foreign page without cookies", a.browser().with("Origin", "https://evil.example").with("Sec-Fetch-Site", "cross-site"), 403, "INVALID_ORIGIN"},
		{"a browser without origin", a.browser().with("Origin", ""), 403, "MISSING_OR_NULL_ORIGIN"},
		{"an old browser's foreign page", a.browser().with("Origin", "").with("Sec-Fetch-Site", "").with("Sec-Fetch-Mode", "").with("Sec-Fetch-Dest", "").with("Referer", "https://evil.example/x"), 403, "INVALID_ORIGIN"},
		{"a browser that adds a password of the proxy's", page.with("Origin", "https://evil.example").with("Authorization", "Basic YTpi"), 403, "INVALID_ORIGIN"},
		{"no browser", a.native(), 200, ""},
		{"the fetch of Node and Deno", a.native().with("Sec-Fetch-Mode", "cors"), 200, ""},
		{"that of a page", a.native().with("Sec-Fetch-Mode", "cors").with("Sec-Fetch-Site", "cross-site"), 403, "MISSING_OR_NULL_ORIGIN"},
		{"that fetch with a cookie", page.with("Origin", "").with("Sec-Fetch-Site", "").with("X-Kit-Transport", "body"), 403, "MISSING_OR_NULL_ORIGIN"},
		{"that fetch without the header", a.native().with("X-Kit-Transport", "").with("Sec-Fetch-Mode", "cors"), 403, "MISSING_OR_NULL_ORIGIN"},
	} {
		got := c.b.post("/sign-in/email", in)
		if got.Status != c.status || got.code() != c.code {
			t.Errorf("%s: got %d %s, want %d %s", c.name, got.Status, got.Body, c.status, c.code)
		}
		a.clock.advance(600e9)
	}
	for _, path := range []string{"/sign-out", "/revoke-sessions", "/delete-user", "/change-password", "/update-user"} {
		page.with("Origin", "https://evil.example").post(path, nil).want(403, "INVALID_ORIGIN")
	}
	if page.user() == nil {
		t.Error("a foreign page signed the user out")
	}
}
