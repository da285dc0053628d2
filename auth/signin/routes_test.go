package signin_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
)

// What better-auth's clients call is there, limited as there, and what sends a
// mail to whom a stranger names asks for a proof of humanity.
func TestRouteTable(t *testing.T) {
	base, err := url.Parse(baseURL)
	must(t, err)
	host := capability.Host{
		Now: time.Now, BaseURL: base, DB: databasetest.Memory(t), Sealing: func() (capability.Sealer, error) { return nil, nil },
	}
	lib, err := signin.New(everything)(host, &auth.Auth{})
	must(t, err)
	byClass := map[string][]string{}
	for _, r := range lib.Routes {
		name := strings.TrimSpace(strings.Join([]string{r.Method, r.Path, r.Sends}, " "))
		byClass[r.Rate] = append(byClass[r.Rate], name)
		if r.Rate == "" || r.Method == "" || !strings.HasPrefix(r.Path, "/") {
			t.Errorf("%+v", r)
		}
	}
	for class, want := range map[string][]string{
		"auth-sign-in": {
			"POST /sign-up/email", "POST /sign-in/email", "POST /change-password", "POST /verify-password", "POST /reset-password",
			"POST /email-otp/check-verification-otp", "POST /email-otp/verify-email", "POST /sign-in/email-otp",
			"POST /email-otp/reset-password", "POST /email-otp/change-email", "POST /sign-in/username", "POST /is-username-available",
			"POST /sign-in/anonymous", "POST /one-time-token/verify",
		},
		"auth-send": {
			"POST /send-verification-email magic_link", "POST /request-password-reset magic_link", "POST /change-email magic_link",
			"POST /delete-user magic_link",
			"POST /email-otp/send-verification-otp otp", "POST /email-otp/request-password-reset otp", "POST /forget-password/email-otp otp",
			"POST /email-otp/request-email-change otp",
		},
		"auth-link": {
			"POST /sign-in/magic-link magic_link", "GET /magic-link/verify", "POST /magic-link/verify", "GET /verify-email", "POST /verify-email",
			"GET /reset-password/:token", "GET /delete-user/callback", "POST /delete-user/callback",
		},
		"read": {
			"GET /ok", "GET /error", "GET /get-session", "POST /get-session", "GET /list-sessions", "GET /list-accounts", "GET /token", "GET /jwks",
			"GET /one-time-token/generate", "GET /multi-session/list-device-sessions",
		},
		"write": {
			"POST /update-user", "POST /unlink-account", "POST /revoke-session", "POST /revoke-sessions", "POST /revoke-other-sessions",
			"POST /update-session", "POST /sign-out", "POST /delete-anonymous-user", "POST /multi-session/set-active", "POST /multi-session/revoke",
		},
	} {
		for _, name := range want {
			if !slices.Contains(byClass[class], name) {
				t.Errorf("%s is not limited as %s", name, class)
			}
		}
	}
	if diff := cmp.Diff([]string{"SIGNIN_MAIL", "SIGNIN_SWEEP"}, []string{lib.Jobs[0].Name, lib.Jobs[1].Name}); diff != "" {
		t.Error(diff)
	}
}
