package signin_test

import (
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// different is what two returns may differ in.
var different = regexp.MustCompile(`"(requestId|id)":"[0-9a-z]{26}"`)

// seen is what the client can tell two responses apart by.
func (r *response) seen(address string) string {
	header := r.Header.Clone()
	for _, name := range []string{"X-Request-Id", "Set-Cookie", "Content-Length", "Date"} {
		header.Del(name)
	}
	body := different.ReplaceAllString(string(r.Body), "")
	return fmt.Sprint(r.Status, strings.ReplaceAll(body, address, "ADDRESS"), header)
}

// Nobody learns from a response whether an address has an account.
func TestResponsesAlike(t *testing.T) {
	calls := map[string]func(b *browser, address string) *response{
		"sign in": func(b *browser, to string) *response {
			return b.post("/sign-in/email", object{"email": to, "password": "wrong one"})
		},
		"sign up": func(b *browser, to string) *response {
			return b.post("/sign-up/email", object{"email": to, "password": password, "name": "Eve"})
		},
		"sign up under a taken name": func(b *browser, to string) *response {
			return b.post("/sign-up/email", object{"email": to, "password": password, "username": "taken"})
		},
		"reset": func(b *browser, to string) *response { return b.post("/request-password-reset", object{"email": to}) },
		"verify": func(b *browser, to string) *response {
			return b.post("/send-verification-email", object{"email": to})
		},
		"link": func(b *browser, to string) *response { return b.post("/sign-in/magic-link", object{"email": to}) },
		"code": func(b *browser, to string) *response {
			return b.post("/email-otp/send-verification-otp", object{"email": to, "type": "forget-password"})
		},
		"reset code": func(b *browser, to string) *response {
			return b.post("/email-otp/request-password-reset", object{"email": to})
		},
		"guess 1": guessReset, "guess 2": guessReset, "guess 3": guessReset, "guess 4": guessReset,
	}
	order := []string{"sign in", "sign up", "sign up under a taken name", "reset", "verify", "link", "code", "guess 1", "guess 2", "guess 3", "guess 4", "reset code"}
	for _, disabled := range []bool{false, true} {
		a := openAuth(t, databasetest.Memory(t), auth.Config{
			Library: signin.Quick(signin.Config{RequireVerification: true, DisableSignUp: disabled, Usernames: true}),
			RateLimits: map[string]auth.RateLimit{
				"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}, "auth-link": {Events: -1}, "send": {Events: -1}, "verify": {Events: -1},
			},
		})
		_, err := signin.ImportUser(ctx, a.db, a.Auth, signin.Imported{
			NewUser:      auth.NewUser{Email: "known@example.com", EmailVerified: true, Name: "Ada"},
			PasswordHash: "$2a$04$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy",
		})
		must(t, err)
		_, err = a.CreateUser(ctx, auth.NewUser{Username: "taken"})
		must(t, err)
		for _, name := range order {
			if disabled && strings.HasPrefix(name, "sign up") {
				continue
			}
			known := calls[name](a.browser(), "known@example.com")
			waiting := a.waiting()
			unknown := calls[name](a.browser(), "other@example.com")
			if diff := cmp.Diff(known.seen("known@example.com"), unknown.seen("other@example.com")); diff != "" {
				t.Errorf("%s: known and unknown differ:\n%s", name, diff)
			}
			if more := a.waiting() - waiting; more != waiting {
				t.Errorf("%s: %d jobs for a known and %d for an unknown address", name, waiting, more)
			}
			a.work()
		}
		for _, mail := range a.mail.mails {
			if disabled && mail.To != "known@example.com" {
				t.Errorf("somebody who may not sign up got %+v", mail)
			}
		}
	}
}

func guessReset(b *browser, to string) *response {
	return b.post("/email-otp/reset-password", object{"email": to, "otp": "no code", "password": "a new password"})
}

// waiting counts the mails that wait to be made.
func (a *app) waiting() int64 {
	n, _, err := database.Get(ctx, a.db, func(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) },
		`SELECT count(*) FROM kit_job WHERE binding = 'SIGNIN_MAIL' AND state = 'available'`)
	must(a.t, err)
	return n
}

// That holds for whatever a sign-up may say about its user, right or wrong.
func TestSignUpsAlike(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{
		Library: signin.Quick(signin.Config{RequireVerification: true, Usernames: true}), RateLimits: unlimited,
		Profile: []auth.ProfileField{{Name: "team", Type: auth.ProfileString, Editable: true}},
	})
	_, err := a.CreateUser(ctx, auth.NewUser{Email: "known@example.com", EmailVerified: true})
	must(t, err)
	for name, fields := range map[string]object{
		"name":          {"name": " Eve "},
		"user name":     {"username": "Eve.X"},
		"shown as":      {"username": "eve_y", "displayUsername": " E V E "},
		"field":         {"team": "red"},
		"invalid field": {"team": 1},
	} {
		seen := func(address string) string {
			body := object{"email": address, "password": password}
			maps.Copy(body, fields)
			return a.browser().post("/sign-up/email", body).seen(address)
		}
		other := strings.ReplaceAll(name, " ", "") + "@example.com"
		if diff := cmp.Diff(seen("known@example.com"), seen(other)); diff != "" {
			t.Errorf("%s: known and unknown differ:\n%s", name, diff)
		}
	}
}

// The owner of an address that somebody signs up with again is told.
func TestSignUpAgain(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{RequireVerification: true})
	signUp := object{"email": "ada@example.com", "password": password, "name": "Ada"}
	a.browser().post("/sign-up/email", signUp).ok()
	a.verify("ada@example.com")
	a.browser().post("/sign-up/email", object{"email": "ada@example.com", "password": "another password"}).ok()
	if mail := a.deliver("ada@example.com"); mail.Kind != auth.MailAccountExists || mail.Link != "" {
		t.Errorf("%+v", mail)
	}
	a.browser().post("/sign-in/email", signUp).ok()
	a.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": "another password"}).want(401, "INVALID_EMAIL_OR_PASSWORD")
}

// A user who does not exist, or has no password, costs a hash like any other.
// Each hash takes 19 MiB, so what was allocated counts them.
func TestWorkAlike(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{
		Library:    signin.New(signin.Config{RequireVerification: true, Usernames: true}),
		RateLimits: map[string]auth.RateLimit{"auth-sign-in": {Events: -1}},
	})
	hashes := func(path string, body object) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a.browser().post(path, body)
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / (19 << 20)
	}
	signUp := object{"email": "known@example.com", "password": password}
	a.browser().post("/sign-up/email", signUp).ok()
	_, err := a.CreateUser(ctx, auth.NewUser{Email: "bare@example.com", Username: "bare"})
	must(t, err)
	for _, c := range []struct {
		path string
		body object
	}{
		{"/sign-in/email", object{"email": "known@example.com", "password": "wrong one"}},
		{"/sign-in/email", object{"email": "bare@example.com", "password": "wrong one"}},
		{"/sign-in/email", object{"email": "nobody@example.com", "password": "wrong one"}},
		{"/sign-in/username", object{"username": "bare", "password": "wrong one"}},
		{"/sign-in/username", object{"username": "nobody", "password": "wrong one"}},
		{"/sign-up/email", signUp},
		{"/sign-up/email", object{"email": "new@example.com", "password": password}},
	} {
		if n := hashes(c.path, c.body); n != 1 {
			t.Errorf("%s %v: %d hashes", c.path, c.body, n)
		}
	}
}
