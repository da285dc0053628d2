package signin_test

import (
	"fmt"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestLinkingByAddress: an account is linked to the user of its address when
// both sides have verified the address, and else to nobody.
func TestLinkingByAddress(t *testing.T) {
	for _, c := range []struct {
		provider, local bool
		linked          bool
	}{{true, true, true}, {false, true, false}, {true, false, false}, {false, false, false}} {
		t.Run(fmt.Sprintf("provider %v, local %v", c.provider, c.local), func(t *testing.T) {
			each(t, func(t *testing.T, w *world, p *idp) {
				owner := w.signedUp("ada@example.com")
				if c.local {
					w.verify("ada@example.com")
				}
				p.claims["email_verified"] = c.provider
				p.claims["email"] = "Ada@Example.com"
				b := w.browser()
				j := b.begin(p, "acme", nil)
				native := func() *response {
					return w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}})
				}
				if !c.linked {
					j.arrive().lead("/sorry?error=account_not_linked")
					if b.user() != nil {
						t.Error("signed in")
					}
					native().want(401, "OAUTH_LINK_ERROR")
					if accounts := decoded[[]object](owner.get("/list-accounts").ok()); len(accounts) != 1 {
						t.Errorf("accounts: %v", accounts)
					}
					return
				}
				j.arrive().lead("/welcome")
				if b.user()["id"] != owner.user()["id"] {
					t.Error("signed in as somebody else")
				}
				native().ok()
				w.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
			})
		})
	}
}

// TestUnverifiedAddressMakesNobodyElse: a claim to an unproved address
// makes an account of its own at most, which the owner takes back.
func TestUnverifiedAddressMakesNobodyElse(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		p.claims["email_verified"] = "false"
		squatter := w.browser()
		squatter.begin(p, "acme", nil).arrive().lead("/new")
		if user := squatter.user(); user["emailVerified"] != false {
			t.Fatalf("got %v", user)
		}
		// The owner proves the address by a provider that has verified it: they are
		// not let into the squatter's account.
		p.claims = object{"sub": "owner"}
		w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=account_not_linked")
		// By mail they take it over, and the squatter is out.
		owner := w.browser()
		owner.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
		owner.pressing().do("POST", w.deliver("ada@example.com").Link, nil)
		if owner.user() == nil || squatter.user() != nil {
			t.Errorf("owner %v, squatter %v", owner.user(), squatter.user())
		}
		p.claims = object{"email_verified": false}
		squatter.begin(p, "acme", nil).arrive().lead("/sorry?error=account_not_linked")
		p.claims = object{"sub": "owner"}
		again := w.browser()
		again.begin(p, "acme", nil).arrive().lead("/welcome")
		if again.user()["id"] != owner.user()["id"] {
			t.Error("the owner's account is not linked")
		}
	})
}

// TestProviderProvesAddress: once the provider has verified the address of its
// user, what was set before anybody had proved it is gone.
func TestProviderProvesAddress(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		p.claims["email_verified"] = false
		before := w.browser()
		before.begin(p, "acme", nil).arrive().lead("/new")
		user := before.user()

		p.claims["email_verified"] = true
		after := w.browser()
		after.begin(p, "acme", nil).arrive().lead("/welcome")
		proved := after.user()
		if proved["id"] != user["id"] || proved["emailVerified"] != true {
			t.Errorf("got %v", proved)
		}
		if before.user() != nil {
			t.Error("the session of before goes on")
		}
		if accounts := decoded[[]object](after.get("/list-accounts").ok()); len(accounts) != 1 || accounts[0]["providerId"] != "acme" {
			t.Errorf("accounts: %v", accounts)
		}
		w.browser().begin(p, "acme", nil).arrive().lead("/welcome")
		if after.user() == nil {
			t.Error("it is proved once")
		}
	})
}

func TestLinkSocial(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
		b := w.signedUp("ada@example.com")
		link := func(b *browser) journey { return b.depart("/link-social", p, "acme", nil) }

		p.claims = object{"email_verified": false}
		link(b).arrive().lead("/sorry?error=unable_to_link_account")
		p.claims = object{"email": "other@example.com"}
		link(b).arrive().lead("/sorry?error=email_does_not_match")
		p.claims = object{"email": nil}
		p.profile = object{"sub": "subject-1"}
		link(b).arrive().lead("/sorry?error=unable_to_link_account")
		p.claims = object{}
		p.tokens = object{"scope": "openid email"}
		link(b).arrive().lead("/welcome")
		p.tokens = object{"scope": "openid calendar"}
		link(b).arrive().lead("/welcome") // once more adds what was granted
		accounts := decoded[[]struct {
			Scopes []string
		}](b.get("/list-accounts").ok())
		if len(accounts) != 2 || !slices.Equal(accounts[1].Scopes, []string{"openid", "email", "calendar"}) {
			t.Errorf("accounts: %v", accounts)
		}

		other := w.browser()
		other.post("/sign-up/email", object{"name": "Eve", "email": "eve@example.com", "password": password}).ok()
		link(other).arrive().lead("/sorry?error=account_already_linked_to_different_user")
		native := func(b *browser) *response {
			return b.post("/link-social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}})
		}
		native(other).want(409, "SOCIAL_ACCOUNT_ALREADY_LINKED")
		p.claims = object{"sub": "subject-2"}
		native(other).want(401, "LINKING_DIFFERENT_EMAILS_NOT_ALLOWED")
		p.claims = object{"sub": "subject-2", "email": "eve@example.com", "email_verified": false}
		native(other).want(401, "LINKING_NOT_ALLOWED")
		p.claims = object{"sub": "subject-2", "email": "eve@example.com"}
		if got := decoded[object](native(other).ok()); got["status"] != true {
			t.Errorf("got %v", got)
		}
		native(other).want(401, "INVALID_TOKEN") // a token counts once
		p.claims = object{"sub": "subject-2", "email": "eve@example.com", "name": "Eve again"}
		native(other).ok()

		// Somebody else has signed in in the browser meanwhile.
		p.claims = object{"sub": "subject-3"}
		j := link(b)
		query := j.consent()
		b.post("/sign-out", nil).ok()
		b.post("/sign-in/email", object{"email": "eve@example.com", "password": password}).ok()
		j.back(query).lead("/sorry?error=state_mismatch")

		owner := w.browser()
		owner.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
		owner.post("/unlink-account", object{"providerId": "acme"}).ok()
		p.claims = object{}
		w.browser().begin(p, "acme", nil).arrive().lead("/sorry?error=account_not_linked") // the address was never proved
	})
}

func TestUnlinkLastAccount(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/new")
		b.post("/unlink-account", object{"providerId": "acme"}).want(400, "FAILED_TO_UNLINK_LAST_ACCOUNT")
	})
}

// TestAccountsOfAUserAreBounded: one address may be many subjects at a provider.
func TestAccountsOfAUserAreBounded(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		for i := range 21 {
			p.claims["sub"] = fmt.Sprint("subject-", i)
			want := "/welcome"
			switch i {
			case 0:
				want = "/new"
			case 20:
				want = "/sorry?error=unable_to_link_account"
			}
			w.browser().begin(p, "acme", nil).arrive().lead(want)
		}
	})
}

// TestAnonymousUpgrade: an anonymous user keeps their data.
func TestAnonymousUpgrade(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Anonymous: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
		for i, path := range []string{"/sign-in/social", "/link-social"} {
			p.claims = object{"sub": fmt.Sprint("subject-", i), "email": fmt.Sprintf("user%d@example.com", i)}
			b := w.browser()
			b.post("/sign-in/anonymous", nil).ok()
			before := b.user()
			arrived := b.depart(path, p, "acme", nil).arrive()
			if arrived.Status != 302 || arrived.Header.Get("Location") == "" || arrived.Header.Get("Location")[:2] == "/s" {
				t.Errorf("%s: got %q", path, arrived.Header.Get("Location"))
			}
			after := b.user()
			if after["id"] != before["id"] || after["isAnonymous"] != false || after["email"] != fmt.Sprintf("user%d@example.com", i) {
				t.Errorf("%s: %v became %v", path, before, after)
			}
		}
		p.claims = object{"sub": "subject-9", "email": "user0@example.com"}
		b := w.browser()
		b.post("/sign-in/anonymous", nil).ok()
		b.depart("/link-social", p, "acme", nil).arrive().lead("/sorry?error=email_does_not_match")
	})
}

func TestWhoMaySignUp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*signin.Config, *oauth.Provider)
		body   object
		want   string
	}{
		"no account":            {func(c *signin.Config, _ *oauth.Provider) { c.DisableSignUp = true }, nil, "/sorry?error=signup_disabled"},
		"nobody from there":     {func(_ *signin.Config, p *oauth.Provider) { p.NoSignUp = true }, object{"requestSignUp": true}, "/sorry?error=signup_disabled"},
		"sign-up not requested": {func(_ *signin.Config, p *oauth.Provider) { p.ExplicitSignUp = true }, nil, "/sorry?error=signup_disabled"},
		"sign-up requested":     {func(_ *signin.Config, p *oauth.Provider) { p.ExplicitSignUp = true }, object{"requestSignUp": true}, "/new"},
		"who is verified":       {func(c *signin.Config, _ *oauth.Provider) { c.RequireVerification = true }, nil, "/new"},
		"whom all trust":        {func(_ *signin.Config, p *oauth.Provider) { p.EmailTrust = oauth.EmailAlwaysVerified }, nil, "/new"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newIDP(t)
			cfg, provider := signin.Config{}, p.provider("acme")
			c.change(&cfg, &provider)
			cfg.Providers = []oauth.Provider{provider}
			w := openSocial(t, databasetest.Memory(t), cfg, p)
			w.browser().begin(p, "acme", c.body).arrive().lead(c.want)
		})
	}
}

// TestVerificationIsRequiredOfProvidersToo: the user proves the address by mail
// and is then let in.
func TestVerificationIsRequiredOfProvidersToo(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{RequireVerification: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
		p.claims["email_verified"] = false
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/sorry?error=email_not_verified")
		w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}}).want(403, "EMAIL_NOT_VERIFIED")
		if b.user() != nil {
			t.Fatal("signed in")
		}
		b.pressing().do("POST", w.deliver("ada@example.com").Link, nil).lead("/welcome")
		b.begin(p, "acme", nil).arrive().lead("/welcome")
	})
}

// TestRacingFirstSignIns: of many browsers that bring the same new user at once,
// all are signed in as one.
func TestRacingFirstSignIns(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		type way struct {
			j     journey
			query url.Values
		}
		ways := make([]way, 8)
		for i := range ways {
			j := w.browser().begin(p, "acme", nil)
			ways[i] = way{j, j.consent()}
		}
		var wg sync.WaitGroup
		for _, way := range ways {
			wg.Go(func() { way.j.back(way.query) })
		}
		wg.Wait()
		ids := map[any]bool{}
		for _, way := range ways {
			ids[way.j.b.user()["id"]] = true
		}
		var users, accounts int
		must(t, w.db.QueryRow(ctx, `SELECT COUNT(*) FROM auth_user`).Scan(&users))
		must(t, w.db.QueryRow(ctx, `SELECT COUNT(*) FROM signin_account`).Scan(&accounts))
		if len(ids) != 1 || ids[nil] || users != 1 || accounts != 1 {
			t.Errorf("signed in as %v: %d users, %d accounts", ids, users, accounts)
		}
	})
}

// TestDisabledUserAtProvider: a provider lets in nobody who is locked out, and
// nothing is left of a deleted user.
func TestDisabledUserAtProvider(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/new")
		id := b.user()["id"].(string)
		must(t, w.DisableUser(ctx, id))
		b.begin(p, "acme", nil).arrive().lead("/sorry?error=banned_user")
		must(t, w.EnableUser(ctx, id))
		b.begin(p, "acme", nil).arrive().lead("/welcome")
		must(t, w.DeleteUser(ctx, id))
		for _, table := range []string{"signin_account", "signin_provider_token", "signin_state"} {
			var n int
			must(t, w.db.QueryRow(ctx, `SELECT COUNT(*) FROM `+table).Scan(&n))
			if n != 0 {
				t.Errorf("%s: %d rows are left", table, n)
			}
		}
	})
}

// TestSecondFactorAfterProvider: a provider is one factor.
func TestSecondFactorAfterProvider(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		owner := w.signedUp("ada@example.com")
		w.verify("ada@example.com")
		app, _ := owner.enableTOTP()
		b := w.browser()
		b.begin(p, "acme", nil).arrive().lead("/welcome?twoFactorRedirect=true")
		if b.user() != nil {
			t.Fatal("signed in by one factor")
		}
		native := decoded[object](w.native().post("/sign-in/social", object{"provider": "acme", "idToken": object{"token": p.idToken(nil)}}).ok())
		if native["twoFactorRedirect"] != true || native["token"] != nil {
			t.Errorf("got %v", native)
		}
		w.clock.advance(time.Minute)
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		if b.user() == nil {
			t.Error("not signed in by two factors")
		}
	})
}
