package signin_test

import (
	"flag"
	"fmt"
	"net/url"
	"os"
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
	lib, err := signin.New(everything)(host, &auth.LibraryHost{Auth: &auth.Auth{}})
	must(t, err)
	goldenRows(t, lib.Routes)
	byClass := map[string][]string{}
	for _, r := range lib.Routes {
		name := strings.TrimSpace(strings.Join([]string{r.Method, r.Path, r.Sends}, " "))
		byClass[r.Rate] = append(byClass[r.Rate], name)
		if r.Rate == "" || r.Method == "" || !strings.HasPrefix(r.Path, "/") || r.Summary == "" {
			t.Errorf("%+v", r)
		}
	}
	for class, want := range map[string][]string{
		"auth-sign-in": {
			"POST /sign-up/email", "POST /sign-in/email", "POST /change-password", "POST /verify-password", "POST /reset-password", "POST /reset-password/:token",
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

var update = flag.Bool("update", false, "write testdata/routes.golden")

// goldenRows compares the table with testdata/routes.golden, so that a change of a
// row is seen in review.
func goldenRows(t *testing.T, rows []auth.LibraryRoute) {
	t.Helper()
	var text strings.Builder
	for _, r := range rows {
		text.WriteString(strings.TrimSpace(fmt.Sprintf("%-4s %-42s %-12s %s", r.Method, r.Path, r.Rate, r.Sends)) + "\n")
	}
	const file = "testdata/routes.golden"
	if *update {
		must(t, os.WriteFile(file, []byte(text.String()), 0o644))
	}
	golden, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(string(golden), text.String()); diff != "" {
		t.Errorf("the table is not that of %s; -update writes it:\n%s", file, diff)
	}
}
