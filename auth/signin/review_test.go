package signin_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestUnlinkByRow: better-auth's client names an account by its row alone.
func TestUnlinkByRow(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, p)
		b, eve := w.signedUp("ada@example.com"), w.signedUp("eve@example.com")
		b.depart("/link-social", p, "acme", nil).arrive().lead("/welcome")
		row := b.accountID("acme")
		for _, body := range []object{{}, {"accountId": ""}, {"accountId": "subject-1"}, {"accountId": eve.accountID("credential")}} {
			b.post("/unlink-account", body).want(400, "ACCOUNT_NOT_FOUND")
		}
		eve.post("/unlink-account", object{"accountId": row}).want(400, "ACCOUNT_NOT_FOUND")
		b.post("/unlink-account", object{"accountId": row}).ok()
		b.post("/unlink-account", object{"accountId": b.accountID("credential")}).want(400, "FAILED_TO_UNLINK_LAST_ACCOUNT")
	})
}

// TestRewrap: what an older master key has sealed opens with the new one alone.
func TestRewrap(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		clock := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		under := func(masterKeys string) *world {
			w := &world{}
			made := signin.NewForTest(signin.Config{Providers: []oauth.Provider{p.provider("acme")}}, &w.lib)
			w.app = openSealed(t, db, auth.Config{Library: made, RateLimits: unlimited}, baseURL, clock, masterKeys)
			return w
		}
		old := under(masterKey("k1", 1))
		p.now = clock.Now
		home := old.signedUp(ada)
		old.verify(ada)
		app, _ := home.enableTOTP()
		clock.advance(time.Hour) // passwords were tried
		pending := authenticatorOf(home, home.post("/two-factor/enable", object{"password": password}).ok())
		p.claims["email"] = ada
		home.depart("/link-social", p, "acme", nil).arrive().lead("/welcome")
		account := home.accountID("acme")

		both := under(masterKey("k2", 2) + "," + masterKey("k1", 1))
		const signinRows = 4 // both secrets, the key of the backup codes, a provider's tokens
		if n, err := both.lib.Rewrap(ctx); n != signinRows || err != nil {
			t.Errorf("rewrapped %d, %v", n, err)
		}
		if n, err := both.lib.Rewrap(ctx); n != 0 || err != nil {
			t.Errorf("once more: %d, %v", n, err)
		}
		if n, err := both.Rewrap(ctx); n == 0 || err != nil { // the sessions' own
			t.Errorf("by auth: %d, %v", n, err)
		}

		b := under(masterKey("k2", 2)).browser()
		b.signIn()
		app.a = b.a
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
		b.post("/two-factor/verify-totp", object{"code": pending.code()}).ok()
		if got := decoded[object](b.post("/get-access-token", object{"accountId": account}).ok()); got["accessToken"] == nil {
			t.Errorf("got %v", got)
		}
		if n, err := under(masterKey("k3", 3)).lib.Rewrap(ctx); n != 0 || err != nil {
			t.Errorf("with a foreign key: %d, %v", n, err)
		}
	})
}

func TestAuthRewrapsWhatItsLibrarySealed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		clock := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		under := func(masterKeys string) *app {
			return openSealed(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: unlimited}, baseURL, clock, masterKeys)
		}
		authenticator, _ := under(masterKey("k1", 1)).signedUp(ada).enableTOTP()
		if _, err := under(masterKey("k2", 2) + "," + masterKey("k1", 1)).Rewrap(ctx); err != nil {
			t.Fatal(err)
		}
		b := under(masterKey("k2", 2)).browser()
		b.signIn()
		b.post("/two-factor/verify-totp", object{"code": authenticator.code()}).ok()
	})
}

// TestProvidersAreShown by their ids, and by nothing else.
func TestProvidersAreShown(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Providers: []oauth.Provider{p.provider("acme"), p.provider("other")}}, p)
		var shown any
		for _, key := range w.Capability().Config {
			if key.Key == "library.providers" {
				shown = key.Value
			}
		}
		if diff := cmp.Diff([]string{"acme", "other"}, shown); diff != "" {
			t.Error(diff)
		}
	})
}

// TestUpgradeEndsTheSessionsOfBefore: a copy of an anonymous session
// is no session of the user it becomes.
func TestUpgradeEndsTheSessionsOfBefore(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Anonymous: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
		for name, upgrade := range map[string]func(*browser){
			"sign-up": func(b *browser) {
				b.post("/sign-up/email", object{"email": ada, "password": password, "name": "Ada"}).ok()
			},
			"link": func(b *browser) {
				b.post("/sign-in/magic-link", object{"email": "bob@example.com"}).ok()
				b.pressing().do(http.MethodPost, w.deliver("bob@example.com").Link, nil).lead("/")
			},
			"provider": func(b *browser) { b.begin(p, "acme", nil).arrive().lead("/new") },
		} {
			b := w.browser()
			b.post("/sign-in/anonymous", nil).ok()
			id, thief := b.user()["id"], b.copy()
			upgrade(b)
			if user := b.user(); user == nil || user["id"] != id || user["isAnonymous"] != false {
				t.Errorf("%s: %v", name, user)
			}
			if user := thief.user(); user != nil {
				t.Errorf("%s: the copy became %v", name, user)
			}
		}
	})
}

// TestUpgradeEndsTheFactorsOfBefore: nor is a passkey or a second factor that was set
// with a copy of an anonymous session one of the user it becomes.
func TestUpgradeEndsTheFactorsOfBefore(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Anonymous: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
		for name, upgrade := range map[string]func(*browser){
			"sign-up": func(b *browser) { b.post("/sign-up/email", object{"email": ada, "password": password}).ok() },
			"linking": func(b *browser) { b.depart("/link-social", p, "acme", nil).arrive().lead("/welcome") },
		} {
			b, key := w.browser(), newEd25519(t)
			b.post("/sign-in/anonymous", nil).ok()
			thief := b.copy().ownPage()
			thief.register(key)
			app := authenticatorOf(thief, thief.post("/two-factor/enable", nil).ok())
			thief.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
			upgrade(b)
			if user := b.user(); user["isAnonymous"] != false || user["twoFactorEnabled"] != false {
				t.Errorf("%s: %v", name, user)
			}
			elsewhere := w.browser().ownPage()
			elsewhere.post("/passkey/verify-authentication", key.get(elsewhere.signInOptions())).want(401, "PASSKEY_NOT_FOUND")
		}
	})
}

// TestLinkingUpgradesOneSession: linking makes no new session, so the one that
// asked is kept and the others of the anonymous user end.
func TestLinkingUpgradesOneSession(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := newIDP(t)
		w := openSocial(t, db, signin.Config{Anonymous: true, Providers: []oauth.Provider{p.provider("acme")}}, p)
		b := w.browser()
		b.post("/sign-in/anonymous", nil).ok()
		id := b.user()["id"].(string)
		other, err := w.CreateSession(ctx, id)
		must(t, err)
		b.depart("/link-social", p, "acme", nil).arrive().lead("/welcome")
		if user := b.user(); user["id"] != id || user["isAnonymous"] != false || user["name"] != "Ada Lovelace" {
			t.Errorf("got %v", user)
		}
		if _, err := w.Session(ctx, other.ID); !errors.Is(err, auth.ErrSessionNotFound) {
			t.Errorf("another session of the anonymous user: %v", err)
		}
	})
}

// TestLinkingNeedsItsUser: once the user's sessions have ended, what was begun in one of
// them adds no way to sign in.
func TestLinkingNeedsItsUser(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.signedUp("ada@example.com")
		j := b.depart("/link-social", p, "acme", nil)
		query := j.consent()
		if _, err := w.RevokeUser(ctx, b.user()["id"].(string)); err != nil {
			t.Fatal(err)
		}
		j.back(query).lead("/sorry?error=state_mismatch")
	})
}

// TestBrowserOfSeveralUsersIsNotShared: a copy of a browser's cookies
// from before a sign-in there does not reach that session.
func TestBrowserOfSeveralUsersIsNotShared(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{MultiSession: true})
		page := a.signedUp("eve@example.com")
		eve := page.copy()
		a.clock.advance(time.Second)
		page.post("/sign-up/email", object{"email": "ada@example.com", "password": password}).ok()
		if emails, _ := page.users(); !cmp.Equal(emails, []string{"ada@example.com", "eve@example.com"}) {
			t.Errorf("the browser has %v", emails)
		}
		if emails, _ := eve.users(); len(emails) != 0 {
			t.Errorf("the copy has %v", emails)
		}
	})
}

// TestCeremoniesAreSwept: anybody can begin one, so those that are over go with
// the next.
func TestCeremoniesAreSwept(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		for range 3 {
			a.browser().get("/passkey/generate-authenticate-options").ok()
		}
		a.clock.advance(5 * time.Minute)
		a.browser().get("/passkey/generate-authenticate-options").ok()
		var n int
		must(t, db.QueryRow(ctx, `SELECT COUNT(*) FROM signin_ceremony`).Scan(&n))
		if n != 1 {
			t.Errorf("%d challenges are left", n)
		}
	})
}

// TestChangePageNamesTheAccount: the page that asks to confirm an address
// names the account it is for.
func TestChangePageNamesTheAccount(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		a.signedUp("eve@evil.example").post("/change-email", object{"newEmail": ada}).ok()
		page := a.browser().navigating().get(a.deliver(ada).Link).page(true)
		for _, address := range []string{"e***@evil.example", "a***@example.org"} {
			if !strings.Contains(string(page.Body), address) {
				t.Errorf("the page does not name %s: %s", address, page.Body)
			}
		}
	})
}

// broken is a mail server that is down.
type broken struct{}

func (broken) SendMail(context.Context, auth.Mail) error { return errors.New("no route to host") }

// TestMailIsNotAwaited: nothing that a user does waits for the mail about it, nor
// fails with it.
func TestMailIsNotAwaited(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := openAuth(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: unlimited, Mailer: broken{}})
		home := a.signedUp(ada)
		yes := true
		_, err := a.UpdateUser(ctx, a.userID(), auth.UserPatch{EmailVerified: &yes})
		must(t, err)
		home.enableTOTP()
		home.post("/two-factor/enable", object{"password": password, "method": "otp"}).ok()
		b := a.browser()
		b.signIn()
		b.post("/two-factor/send-otp", nil).ok()
	})
}

// TestStrangersCannotUseUpACode: guesses from elsewhere do not end the code of
// the browser that asked for it, nor does asking for another one.
func TestStrangersCannotUseUpACode(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		ask, use := "/email-otp/send-verification-otp", "/sign-in/email-otp"
		victim, stranger := a.browser(), a.browser().at("198.51.100.1")
		victim.post(ask, object{"email": ada, "type": "sign-in"}).ok()
		code := a.deliver(ada).Code
		for range 2 {
			stranger.post(use, object{"email": ada, "otp": wrong(code)}).want(400, "INVALID_OTP")
		}
		stranger.post(use, object{"email": ada, "otp": code}).want(403, "TOO_MANY_ATTEMPTS")
		stranger.post(ask, object{"email": ada, "type": "sign-in"}).ok()
		a.work()
		victim.copy().post(use, object{"email": ada, "otp": code}).ok()
		victim.post(use, object{"email": ada, "otp": code}).want(400, "INVALID_OTP")
	})
}

// TestOneMailboxIsOneAccount however its domain ends.
func TestOneMailboxIsOneAccount(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		a.signedUp(ada)
		for _, spelling := range []string{"ada@example.org.", "ada@example.org。", "ada@example.org．"} {
			a.browser().post("/sign-up/email", object{"email": spelling, "password": password}).want(400, "VALIDATION_ERROR")
		}
		for _, spelling := range []string{" ADA@example.org", "ada@EXAMPLE.org", "ada@ｅxample.org", "Ada <ada@example.org>"} {
			a.browser().post("/sign-up/email", object{"email": spelling, "password": password}).want(422, "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL")
		}
	})
}

// TestLockEndsWhateverTheClockDoes: one that was set while the clock was wrong
// lasts no longer than any.
func TestLockEndsWhateverTheClockDoes(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		app, _ := a.signedUp(ada).enableTOTP()
		_, err := db.Exec(ctx, `UPDATE signin_two_factor SET locked_until = $1`, a.clock.Now().AddDate(1, 0, 0).UnixMilli())
		must(t, err)
		b := a.browser()
		b.signIn()
		b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
	})
}

// TestMailsThatLetNobodyIn do not use up those that let a mailbox's owner in: who
// is no stranger's victim gets a link in a new browser whatever else was asked for.
func TestMailsThatLetNobodyIn(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		a.signedUp(ada)
		eve := a.signedUp("eve@example.com")
		for path, body := range map[string]object{
			"/change-email":                    {"newEmail": ada},
			"/email-otp/request-email-change":  {"newEmail": ada},
			"/sign-up/email":                   {"email": ada, "password": password},
			"/email-otp/send-verification-otp": {"email": ada, "type": "email-verification"},
		} {
			for range 10 {
				eve.post(path, body)
			}
		}
		for range 10 {
			a.browser().post("/send-verification-email", object{"email": ada})
		}
		a.browser().post("/sign-in/magic-link", object{"email": ada}).ok()
		a.browser().post("/request-password-reset", object{"email": ada}).ok()
	})
}

// TestNoCodesForPasswordsThatAreNot: a code that could set a password is of no
// use where nobody has one, and would use up the mails of one who wants in.
func TestNoCodesForPasswordsThatAreNot(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		b := open(t, db, signin.Config{DisablePasswords: true}).browser()
		b.post("/email-otp/send-verification-otp", object{"email": ada, "type": "forget-password"}).want(400, "EMAIL_PASSWORD_DISABLED")
		b.post("/email-otp/request-password-reset", object{"email": ada}).want(400, "EMAIL_PASSWORD_DISABLED")
		b.post("/email-otp/send-verification-otp", object{"email": ada, "type": "sign-in"}).ok()
	})
}

// TestOneTimeTokensDoNotBreed: a session that was handed on hands nothing on, so
// that no stolen one stays fresh for ever.
func TestOneTimeTokensDoNotBreed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{OneTimeTokens: true})
		token := a.signedUp(ada).get("/one-time-token/generate").ok().field("token")
		other := a.browser()
		other.post("/one-time-token/verify", object{"token": token}).ok()
		other.get("/one-time-token/generate").want(403, "SESSION_NOT_FRESH")
	})
}

// TestUserIsToldOfANewAccount that signs in to theirs: somebody at the provider may
// have made it.
func TestUserIsToldOfANewAccount(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		w.browser().begin(p, "acme", nil).arrive().lead("/new")
		w.work()
		if told := w.mail.lastOf(auth.MailAccountConnected); told.To != "" {
			t.Errorf("a new user was told %+v", told)
		}
		p.claims["sub"] = "subject-2"
		w.browser().begin(p, "acme", nil).arrive().lead("/welcome")
		w.work()
		if told := w.mail.lastOf(auth.MailAccountConnected); told.To != "ada@example.com" || told.Detail != "acme" {
			t.Errorf("told %+v", told)
		}
	})
}
