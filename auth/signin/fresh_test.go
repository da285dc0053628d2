package signin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
)

// bearing is an attacker with a token of the signed-in user, and nothing else.
func (b *browser) bearing(token string) *browser {
	return b.a.native().with("Authorization", "Bearer "+token)
}

func (b *browser) accessToken() string {
	b.a.t.Helper()
	return b.get("/token").ok().field("token").(string)
}

// changes are the requests that change how a user signs in, which an access
// token alone must not.
func changes(b *browser) map[string]*response {
	return map[string]*response{
		"change email":         b.post("/change-email", object{"newEmail": "eve@example.com"}),
		"change email by code": b.post("/email-otp/request-email-change", object{"newEmail": "eve@example.com"}),
		"use the code":         b.post("/email-otp/change-email", object{"newEmail": "eve@example.com", "otp": "000000"}),
		"passkey options":      b.get("/passkey/generate-register-options"),
		"passkey":              b.post("/passkey/verify-registration", object{"response": object{}}),
		"delete a passkey":     b.post("/passkey/delete-passkey", object{"id": "x"}),
		"link":                 b.post("/link-social", object{"provider": "google"}),
		"unlink":               b.post("/unlink-account", object{"providerId": "credential"}),
		"hand on":              b.get("/one-time-token/generate"),
	}
}

// A stolen access token is not the account: it changes nothing about how its
// user signs in.
func TestStolenAccessTokenIsNotTheAccount(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{OneTimeTokens: true, Anonymous: true})
		home := a.signedUp(ada)
		thief := home.bearing(home.accessToken())
		for name, got := range changes(thief) {
			if got.Status != 403 || got.code() != "SESSION_NOT_FRESH" {
				t.Errorf("%s: got %d %s, want SESSION_NOT_FRESH", name, got.Status, got.Body)
			}
		}
		for _, path := range []string{"enable", "disable", "generate-backup-codes"} {
			thief.post("/two-factor/"+path, nil).want(400, "INVALID_PASSWORD")
		}
		thief.post("/change-password", object{"currentPassword": "", "newPassword": "of the thief"}).want(400, "INVALID_PASSWORD")
		a.work()
		if _, mailed := a.mail.last("eve@example.com"); mailed {
			t.Error("the thief's address was asked")
		}
		visitor := a.browser()
		visitor.post("/sign-in/anonymous", nil).ok()
		visitor.bearing(visitor.accessToken()).post("/delete-anonymous-user", nil).want(403, "SESSION_NOT_FRESH")
		visitor.post("/delete-anonymous-user", nil).ok()
	})
}

// A stolen access token does not reach what the provider says of its user: a caller that
// presents an ID token as an app does is signed in anew.
func TestStolenAccessTokenGetsNoIDToken(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		home := w.browser()
		home.begin(p, "acme", nil).arrive().lead("/new")
		id := home.accountID("acme")
		thief := home.bearing(home.accessToken())
		p.tokens = object{"id_token": p.idToken(nil)} // of a refresh
		for _, path := range []string{"/get-access-token", "/refresh-token"} {
			got := decoded[object](thief.post(path, object{"accountId": id}).ok())
			if token := got["idToken"]; token != nil {
				entered := w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": token}})
				t.Errorf("%s gave out an ID token, by which a thief signs in with %d", path, entered.Status)
			}
			if got := decoded[object](home.post(path, object{"accountId": id}).ok()); got["idToken"] == nil {
				t.Errorf("%s: got %v, want an ID token for a user who signed in lately", path, got)
			}
		}
		w.clock.advance(25 * time.Hour)
		if got := decoded[object](home.post("/refresh-token", object{"accountId": id}).ok()); got["idToken"] != nil {
			t.Error("a session that is not fresh got an ID token")
		}
	})
}

// A code is no proof of a user who has neither a password nor a second factor: with one,
// a stolen access token would add a factor, and with the factor whatever else signs in.
func TestCodeOfNobodysFactorProvesNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		home := a.browser()
		home.post("/sign-in/magic-link", object{"email": ada}).ok()
		home.pressing().do("POST", a.deliver(ada).Link, nil).lead("/")
		thief := home.bearing(home.accessToken())
		for _, path := range []string{"enable", "disable", "get-totp-uri", "generate-backup-codes"} {
			thief.post("/two-factor/"+path, object{"code": "000000"}).want(403, "SESSION_NOT_FRESH")
		}
		a.clock.advance(25 * time.Hour)
		home.post("/two-factor/enable", object{"code": "000000"}).want(403, "SESSION_NOT_FRESH")
	})
}

// A request of a session that waits while the session ends adds no way to sign in: who is
// put out by a new password leaves nothing behind.
func TestEndedSessionAddsNoWayIn(t *testing.T) {
	p := newIDP(t)
	w := openSocial(t, databasetest.Shared(t, 1)[0], signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
	const eve = "eve@example.com"
	w.signedUp(ada)
	w.verify(ada)
	p.claims["email"] = ada
	for name, prepare := range map[string]func(b *browser) func() *response{
		"passkey": func(b *browser) func() *response {
			credential := newEd25519(t).create(b.registerOptions())
			return func() *response { return b.post("/passkey/verify-registration", credential) }
		},
		"authenticator": func(b *browser) func() *response {
			code := authenticatorOf(b, b.post("/two-factor/enable", object{"password": password}).ok()).code()
			return func() *response { return b.post("/two-factor/verify-totp", object{"code": code}) }
		},
		"codes by mail": func(b *browser) func() *response {
			return func() *response { return b.post("/two-factor/enable", object{"password": password, "method": "otp"}) }
		},
		"account": func(b *browser) func() *response {
			token := object{"token": p.idToken(nil)}
			return func() *response { return b.post("/link-social", object{"provider": "acme", "idToken": token}) }
		},
		"password": func(b *browser) func() *response {
			return func() *response {
				return b.post("/change-password", object{"currentPassword": password, "newPassword": "another " + password})
			}
		},
		"address": func(b *browser) func() *response {
			b.post("/email-otp/request-email-change", object{"newEmail": eve}).ok()
			w.browser().pressing().do("POST", w.deliver(ada).Link, nil).page(false)
			code := w.deliver(eve).Code
			return func() *response { return b.post("/email-otp/change-email", object{"newEmail": eve, "otp": code}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := w.browser().ownPage()
			b.signIn()
			request := prepare(b)
			w.meanwhile(w.userID(), request, func(ctx context.Context) {
				_, err := w.RevokeUser(ctx, w.userID())
				must(t, err)
			}).want(401, "UNAUTHORIZED")
			b.signIn()
			accounts := decoded[[]object](b.get("/list-accounts").ok())
			if passkeys := decoded[[]object](b.get("/passkey/list-user-passkeys").ok()); len(passkeys)+len(accounts) != 1 || b.user()["twoFactorEnabled"] != false || b.user()["email"] != ada {
				t.Errorf("passkeys %v, accounts %v, user %v", passkeys, accounts, b.user())
			}
		})
	}
}

// Who signs in by what is taken away before there is a session gets none: it would
// outlive the new password, or the restored address, of the user who signed them out.
func TestSignInDoesNotOutliveItsProof(t *testing.T) {
	p := newIDP(t)
	w := openSocial(t, databasetest.Shared(t, 1)[0], signin.Config{OneTimeTokens: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
	w.signedUp(ada)
	w.verify(ada)
	user := w.userID()
	p.claims["email"] = ada
	execute := func(statement string) func(context.Context) {
		return func(ctx context.Context) {
			_, err := w.db.Exec(ctx, statement, user)
			must(t, err)
		}
	}
	moved, home, proved := "moved@example.com", ada, true
	move := func(ctx context.Context) {
		_, err := w.UpdateUser(ctx, user, auth.UserPatch{Email: &moved, EmailVerified: &proved})
		must(t, err)
	}
	for _, c := range []struct {
		name    string
		prepare func(b *browser) func() *response
		lose    func(context.Context)
		code    string
	}{
		{"link", func(b *browser) func() *response {
			b.post("/sign-in/magic-link", object{"email": ada}).ok()
			link := w.deliver(ada).Link
			return func() *response { return b.get(link) }
		}, move, "UNAUTHORIZED"},
		{"code", func(b *browser) func() *response {
			b.post("/email-otp/send-verification-otp", object{"email": ada, "type": "sign-in"}).ok()
			code := w.deliver(ada).Code
			return func() *response { return b.post("/sign-in/email-otp", object{"email": ada, "otp": code}) }
		}, move, "UNAUTHORIZED"},
		{"one-time token", func(b *browser) func() *response {
			b.signIn()
			token := decoded[object](b.get("/one-time-token/generate").ok())["token"]
			return func() *response { return w.browser().post("/one-time-token/verify", object{"token": token}) }
		}, func(ctx context.Context) {
			_, err := w.RevokeUser(ctx, user)
			must(t, err)
		}, "UNAUTHORIZED"},
		{"passkey", func(b *browser) func() *response {
			b.signIn()
			key, other := newEd25519(t), w.browser().ownPage()
			b.ownPage().register(key)
			assertion := key.get(other.signInOptions())
			return func() *response { return other.post("/passkey/verify-authentication", assertion) }
		}, execute(`DELETE FROM signin_passkey WHERE user_id = $1`), "PASSKEY_NOT_FOUND"},
		{"account", func(b *browser) func() *response {
			token := object{"token": p.idToken(nil)}
			b.post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(object{"jti": "before"})}}).ok()
			return func() *response { return b.post("/sign-in/social", object{"provider": "acme", "idToken": token}) }
		}, execute(`DELETE FROM signin_account WHERE user_id = $1 AND provider = 'acme'`), "UNAUTHORIZED"},
		{"password", func(b *browser) func() *response {
			return func() *response { return b.post("/sign-in/email", object{"email": ada, "password": password}) }
		}, execute(`DELETE FROM signin_account WHERE user_id = $1`), "INVALID_EMAIL_OR_PASSWORD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := c.prepare(w.browser())
			var before int
			r := w.meanwhile(user, request, func(ctx context.Context) {
				c.lose(ctx)
				must(t, w.db.QueryRow(ctx, `SELECT count(*) FROM auth_session`).Scan(&before))
			})
			if got := r.code(); got != c.code {
				t.Errorf("got %s, want %s", got, c.code)
			}
			var after int
			must(t, w.db.QueryRow(ctx, `SELECT count(*) FROM auth_session`).Scan(&after))
			if after != before {
				t.Errorf("%d sessions, want %d", after, before)
			}
			_, err := w.UpdateUser(ctx, user, auth.UserPatch{Email: &home, EmailVerified: &proved})
			must(t, err)
		})
	}
}

// A request to delete the account that waits while all sessions end deletes nothing.
func TestEndedSessionDeletesNoAccount(t *testing.T) {
	a := open(t, databasetest.Shared(t, 1)[0], signin.Config{})
	a.signedUp(ada)
	a.verify(ada)
	for name, prepare := range map[string]func(b *browser) func() *response{
		"password": func(b *browser) func() *response {
			return func() *response { return b.post("/delete-user", object{"password": password}) }
		},
		"link": func(b *browser) func() *response {
			b.post("/delete-user", nil).ok()
			link := a.deliver(ada).Link
			return func() *response { return b.do("POST", link, nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := a.browser().ownPage()
			b.signIn()
			a.meanwhile(a.userID(), prepare(b), func(ctx context.Context) {
				_, err := a.RevokeUser(ctx, a.userID())
				must(t, err)
			}).want(401, "UNAUTHORIZED")
			if _, found, err := a.UserByEmail(ctx, ada); err != nil || !found {
				t.Fatalf("the account is gone: %v", err)
			}
		})
	}
}

// A proof makes fresh again: the password, or the second factor where one is on.
func TestProofsMakeFresh(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		home := a.signedUp(ada)
		change := func(b *browser) *response { return b.post("/change-email", object{"newEmail": "new@example.com"}) }

		a.clock.advance(25 * time.Hour)
		change(home).want(403, "SESSION_NOT_FRESH")
		home.post("/change-email", object{"newEmail": "new@example.com", "password": "wrong"}).want(400, "INVALID_PASSWORD")
		home.post("/change-email", object{"newEmail": "new@example.com", "password": password}).ok()
		change(home).want(403, "SESSION_NOT_FRESH")
		home.post("/verify-password", object{"password": password}).ok()
		change(home).ok()

		client := home.bearing(home.accessToken())
		change(client).want(403, "SESSION_NOT_FRESH")
		proof := client.post("/verify-password", object{"password": password}).ok().Header.Get("X-Kit-Fresh")
		change(client).want(403, "SESSION_NOT_FRESH")
		change(client.with("X-Kit-Fresh", proof)).ok()
		change(client.with("X-Kit-Fresh", proof[:len(proof)-2]+"AA")).want(403, "SESSION_NOT_FRESH")
		other := a.signedUp("bob@example.com")
		change(other.bearing(other.accessToken()).with("X-Kit-Fresh", proof)).want(403, "SESSION_NOT_FRESH")
		a.clock.advance(10 * time.Minute)
		change(client.with("X-Kit-Fresh", proof)).want(403, "SESSION_NOT_FRESH")

		// A session token is as good as the cookie.
		signedIn := a.native().post("/sign-in/email", object{"email": ada, "password": password}).ok()
		change(home.bearing(signedIn.Header.Get("Set-Auth-Token"))).ok()
		change(home.bearing(signedIn.Header.Get("Set-Auth-Jwt"))).want(403, "SESSION_NOT_FRESH")

		// With a second factor on, the password alone confirms nothing.
		app, _ := home.enableTOTP()
		a.clock.advance(25 * time.Hour)
		if header := home.post("/verify-password", object{"password": password}).ok().Header.Get("X-Kit-Fresh"); header != "" {
			t.Error("a password confirmed a user with a second factor")
		}
		change(home).want(403, "SESSION_NOT_FRESH")
		home.post("/change-email", object{"newEmail": "new@example.com", "password": password}).want(403, "SESSION_NOT_FRESH")
		home.post("/change-password", object{"currentPassword": password, "newPassword": "of the thief"}).want(403, "SESSION_NOT_FRESH")
		home.post("/delete-user", object{"password": password}).want(403, "SESSION_NOT_FRESH")
		home.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		change(home).ok()
	})
}

// Turning the second factor off, or replacing what stands in for it, needs it.
func TestSecondFactorGuardsItself(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		app, codes := a.signedUp(ada).enableTOTP()
		trusted := a.browser()
		trusted.signIn()
		trusted.post("/two-factor/verify-totp", object{"code": app.code(), "trustDevice": true}).ok()
		trusted.signIn() // without the factor
		for _, path := range []string{"enable", "disable", "get-totp-uri", "generate-backup-codes"} {
			trusted.post("/two-factor/"+path, object{"password": password}).want(403, "SESSION_NOT_FRESH")
			trusted.post("/two-factor/"+path, object{"password": password, "code": "000000"}).want(401, "INVALID_CODE")
		}
		a.clock.advance(time.Hour) // passwords are counted
		trusted.post("/two-factor/get-totp-uri", object{"password": password, "code": codes[0]}).ok()
		trusted.post("/two-factor/get-totp-uri", object{"password": password, "code": codes[0]}).want(401, "INVALID_BACKUP_CODE")
		trusted.post("/two-factor/disable", object{"password": password, "code": app.code()}).ok()
	})
}

// Wrong codes count in a session too, apart from those of sign-ins.
func TestWrongCodesCountInASession(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		home := a.signedUp(ada)
		app, _ := home.enableTOTP()
		for range 10 {
			home.post("/two-factor/verify-totp", object{"code": "000000"}).want(401, "INVALID_CODE")
		}
		locked := home.post("/two-factor/verify-totp", object{"code": app.code()}).want(429, "ACCOUNT_TEMPORARILY_LOCKED")
		if locked.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		b := a.browser() // signing in is not locked
		b.signIn()
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		a.clock.advance(15 * time.Minute)
		home.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
	})
}

// The old address, where it was proved, is asked before and told after a change,
// and can undo it: the one who changed it keeps no way in.
func TestOldAddressApprovesAndUndoes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, byCode := range []bool{false, true} {
			a := open(t, db, signin.Config{})
			home := a.signedUp(ada)
			a.verify(ada)
			request := "/change-email"
			if byCode {
				request = "/email-otp/request-email-change"
			}
			home.post(request, object{"newEmail": "eve@example.com"}).ok()
			asked := a.deliver(ada)
			if asked.Kind != auth.MailApproveChange || asked.Detail != "eve@example.com" {
				t.Fatalf("the old address was asked %+v", asked)
			}
			if _, early := a.mail.last("eve@example.com"); early && !byCode {
				t.Fatal("the new address was asked before the old one approved")
			}
			a.browser().navigating().get(asked.Link).page(true)
			a.browser().pressing().do("POST", asked.Link, nil).page(false)
			proof := a.deliver("eve@example.com")
			if byCode {
				home.post("/email-otp/change-email", object{"newEmail": "eve@example.com", "otp": proof.Code}).ok()
			} else {
				home.pressing().do("POST", proof.Link, nil).page(false)
			}
			if got := home.user()["email"]; got != "eve@example.com" {
				t.Fatalf("the address is %v", got)
			}
			told := a.deliver(ada)
			if told.Kind != auth.MailEmailChanged || told.Link == "" {
				t.Fatalf("the old address was told %+v", told)
			}
			a.clock.advance(time.Minute)
			home.ownPage().register(newEd25519(t))
			home.post("/change-password", object{"currentPassword": password, "newPassword": "of the thief"}).ok()

			a.clock.advance(6 * 24 * time.Hour)
			a.browser().navigating().get(told.Link).page(true)
			a.browser().pressing().do("POST", told.Link, nil).page(false)
			if home.user() != nil {
				t.Error("the one who changed the address is still signed in")
			}
			user, found, err := a.UserByEmail(ctx, ada)
			if err != nil || !found || !user.EmailVerified {
				t.Fatalf("the address is not back: %+v %v", user, err)
			}
			for table, want := range map[string]int{"signin_passkey": 0, "signin_account": 0} {
				var n int
				must(t, db.QueryRow(ctx, `SELECT count(*) FROM `+table).Scan(&n))
				if n != want {
					t.Errorf("%s has %d rows, want %d", table, n, want)
				}
			}
			a.browser().pressing().do("POST", told.Link, nil).page(false)
			if n := a.audited("auth/email_change_undone"); n == 0 {
				t.Error("the undoing is not on the trail")
			}
			must(t, a.DeleteUser(ctx, user.ID))
		}
	})
}

// An address that is back stays back: a caller that changed it, and on from there to
// another one, cannot undo the second change, whether or not the mail about it was sent.
func TestUndoneChangeStaysUndone(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const eve, last = "eve@example.com", "mallory@example.com"
		for _, mailed := range []bool{false, true} {
			a := open(t, db, signin.Config{})
			home := a.signedUp(ada)
			a.verify(ada)
			move := func(from, to string) {
				home.post("/change-email", object{"newEmail": to}).ok()
				a.browser().pressing().do("POST", a.deliver(from).Link, nil).page(false)
				a.clock.advance(time.Minute)
				home.pressing().do("POST", a.deliver(to).Link, nil).page(false)
			}
			undo := func(from string) *response {
				told := a.deliver(from)
				if told.Kind != auth.MailEmailChanged || told.Link == "" {
					t.Fatalf("%s was told %+v", from, told)
				}
				return a.browser().pressing().do("POST", told.Link, nil)
			}
			move(ada, eve)
			told := a.deliver(ada)
			move(eve, last)
			if mailed {
				a.work()
			}
			a.browser().pressing().do("POST", told.Link, nil).page(false)
			a.clock.advance(time.Minute)
			if mailed {
				undo(eve)
			}
			a.work()
			if mail, _ := a.mail.last(eve); !mailed && mail.Kind == auth.MailEmailChanged {
				t.Errorf("after the undoing %s got %+v", eve, mail)
			}
			must(t, a.DeleteUser(ctx, a.userID()))
			a.clock.advance(time.Hour)
		}
	})
}

// Nor is it changed again by another link that the old address had approved before.
func TestUndoneChangeEndsWhatWasApproved(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const eve, last = "eve@example.com", "mallory@example.com"
		a := open(t, db, signin.Config{})
		home := a.signedUp(ada)
		a.verify(ada)
		links := map[string]string{}
		for _, to := range []string{last, eve} {
			home.post("/change-email", object{"newEmail": to}).ok()
			a.browser().pressing().do("POST", a.deliver(ada).Link, nil).page(false)
			links[to] = a.deliver(to).Link
			a.clock.advance(time.Minute)
		}
		home.pressing().do("POST", links[eve], nil).page(false)
		a.browser().pressing().do("POST", a.deliver(ada).Link, nil).page(false)
		a.browser().pressing().do("POST", links[last], nil)
		if user, found, err := a.UserByEmail(ctx, last); err != nil || found {
			t.Errorf("the address was changed again: %+v, %v", user, err)
		}
	})
}

// What set-auth-token carries lives as long as the session, renews itself, and is
// changed for access tokens.
func TestBearerTokenLivesAsLongAsTheSession(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		token := a.native().post("/sign-up/email", object{"email": ada, "password": password}).ok().Header.Get("Set-Auth-Token")
		client := a.browser().bearing(token)
		for range 60 {
			a.clock.advance(24 * time.Hour)
			got := client.get("/get-session").ok()
			if string(got.Body) == "null" || got.Header.Get("Set-Auth-Token") == "" {
				t.Fatalf("got %s with the token %q", got.Body, got.Header.Get("Set-Auth-Token"))
			}
		}
		access := client.get("/token").ok().field("token").(string)
		client.bearing(access).get("/token").want(401, "UNAUTHORIZED")
		if got := a.device(access); got != 200 {
			t.Errorf("the access token on a kit route: %d", got)
		}
		if got := a.device(token); got != 401 {
			t.Errorf("the session token on a kit route: %d, want 401", got)
		}
		client.post("/sign-out", nil).ok()
		client.get("/token").want(401, "UNAUTHORIZED")
	})
}

// device calls a user route of the kit with a token and returns the status.
func (a *app) device(token string) int {
	a.t.Helper()
	return a.native().with("Authorization", "Bearer "+token).get("/devices").Status
}

// Nor does the first half of a sign-in with two factors.
func TestChallengeDoesNotOutliveThePassword(t *testing.T) {
	a := open(t, databasetest.Shared(t, 1)[0], signin.Config{})
	app, _ := a.signedUp(ada).enableTOTP()
	b := a.browser()
	a.meanwhile(a.userID(), func() *response { return b.post("/sign-in/email", object{"email": ada, "password": password}) },
		func(ctx context.Context) {
			_, err := a.db.Exec(ctx, `DELETE FROM signin_account WHERE user_id = $1`, a.userID())
			must(t, err)
		}).want(401, "INVALID_EMAIL_OR_PASSWORD")
	b.post("/two-factor/verify-totp", object{"code": app.code()}).want(401, "INVALID_TWO_FACTOR_COOKIE")
}

// Nor does the second half, once the code has been looked at; the browser is not
// trusted either, and a guest stays one.
func TestSecondFactorDoesNotOutliveThePassword(t *testing.T) {
	a := open(t, databasetest.Shared(t, 1)[0], signin.Config{Anonymous: true})
	app, _ := a.signedUp(ada).enableTOTP()
	before, err := a.Sessions(ctx, a.userID())
	must(t, err)
	b := a.browser()
	b.post("/sign-in/anonymous", nil).ok()
	guest := b.user()["id"].(string)
	b.signIn()
	a.meanwhile(a.userID(), func() *response {
		return b.post("/two-factor/verify-totp", object{"code": app.code(), "trustDevice": true})
	},
		func(ctx context.Context) {
			_, err := a.db.Exec(ctx, `DELETE FROM signin_challenge WHERE user_id = $1`, a.userID()) // as a new password does
			must(t, err)
		}).want(401, "INVALID_TWO_FACTOR_COOKIE")
	if after, err := a.Sessions(ctx, a.userID()); err != nil || len(after) != len(before) {
		t.Errorf("%d sessions, want %d (%v)", len(after), len(before), err)
	}
	var trusted int
	if err := a.db.QueryRow(ctx, `SELECT count(*) FROM signin_trusted_device`).Scan(&trusted); err != nil || trusted != 0 {
		t.Errorf("%d trusted browsers (%v)", trusted, err)
	}
	if _, err := a.User(ctx, guest); err != nil {
		t.Errorf("the guest: %v", err)
	}
}

// TestRefusedSignInLeavesTheGuest: what a guest owns is not lost to a sign-in that did not happen.
func TestRefusedSignInLeavesTheGuest(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{Anonymous: true})
		a.signedUp(ada)
		b := a.browser()
		b.post("/sign-in/anonymous", nil).ok()
		guest := b.user()["id"].(string)
		refusing := true
		a.hooks.SessionStarted.In(func(context.Context, hooks.Session) error {
			if refusing {
				return errors.New("not now")
			}
			return nil
		})
		b.post("/sign-in/email", object{"email": ada, "password": password}).want(500, "INTERNAL_SERVER_ERROR")
		if b.user()["id"] != guest {
			t.Error("the guest is gone, though nobody signed in")
		}
		refusing = false
		b.post("/sign-in/email", object{"email": ada, "password": password}).ok()
		if _, err := a.User(ctx, guest); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("the guest after the sign-in: %v", err)
		}
	})
}
