package signin_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// What a mail scanner does with a link: it looks, it opens it, it follows.
func (a *app) scan(link string) {
	a.t.Helper()
	scanner := &browser{a: a, cookies: map[string]string{}, ip: "198.51.100.7", header: map[string][]string{}}
	for _, b := range []*browser{
		scanner, scanner.with("Accept", "*/*"), scanner.with("Accept", "text/html,application/xhtml+xml"),
		scanner.navigating(), scanner.navigating().with("Sec-Purpose", "prefetch"),
		scanner.with("Sec-Fetch-Mode", "no-cors"), scanner.with("Sec-Fetch-Mode", "cors").with("Accept", "*/*"),
		scanner.with("Sec-Fetch-Mode", "cors").with("Origin", "https://evil.example"),
	} {
		b.do("HEAD", link, nil)
		got := b.get(link)
		if got.Status != 200 && got.Status != 302 || b.user() != nil {
			a.t.Errorf("a scanner got %d %s, signed in: %v", got.Status, got.Body, b.user())
		}
	}
}

func TestVerifyEmail(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{RequireVerification: true})
		page := a.browser()
		got := decoded[object](page.post("/sign-up/email", object{"email": "ada@example.com", "password": password, "callbackURL": pages + "/welcome"}).ok())
		if got["token"] != nil || page.user() != nil {
			t.Errorf("signed in with an address nobody has proved: %v", got)
		}
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(403, "EMAIL_NOT_VERIFIED")
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": "wrong one"}).want(401, "INVALID_EMAIL_OR_PASSWORD")

		mail := a.deliver("ada@example.com")
		if mail.Kind != auth.MailVerifyEmail || mail.ExpiresIn != time.Hour {
			t.Errorf("%+v", mail)
		}
		page.post("/send-verification-email", object{"email": "ada@example.com", "callbackURL": pages + "/welcome"}).ok()
		link := a.deliver("ada@example.com").Link
		a.scan(link)
		a.browser().navigating().get(link).page(true)
		a.browser().pressing().do("POST", link, nil).lead(pages + "/welcome")
		a.browser().pressing().do("POST", link, nil).lead(pages + "/welcome") // once more changes nothing
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
		if user := page.user(); user["emailVerified"] != true {
			t.Errorf("%v", user)
		}
		page.post("/send-verification-email", object{"email": "ada@example.com"}).want(400, "EMAIL_ALREADY_VERIFIED")
		page.post("/send-verification-email", object{"email": "eve@example.com"}).want(400, "EMAIL_MISMATCH")
	})
}

// better-auth's client proves an address from a script.
func TestVerifyEmailByScript(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.signedUp("ada@example.com")
	link, err := url.Parse(a.deliver("ada@example.com").Link)
	must(t, err)
	token := "/verify-email?token=" + link.Query().Get("token")
	if got := decoded[object](page.get(token).ok()); got["status"] != true {
		t.Errorf("%v", got)
	}
	if got := decoded[object](page.get(token).ok()); got["status"] != true { // an effect of React's StrictMode runs twice
		t.Errorf("the same call again: %v", got)
	}
	page.get("/verify-email?token=x").want(401, "INVALID_TOKEN")
	page.get("/verify-email").want(400, "VALIDATION_ERROR")
	page.get(token+"&callbackURL="+url.QueryEscape("https://evil.example")).want(403, "INVALID_CALLBACK_URL")

	page = a.signedUp("bob@example.com")
	link, err = url.Parse(a.deliver("bob@example.com").Link)
	must(t, err)
	a.clock.advance(2 * time.Hour)
	page.get("/verify-email?token="+link.Query().Get("token")).want(401, "TOKEN_EXPIRED")
	a.browser().navigating().get("/verify-email?token=" + link.Query().Get("token")).page(false)
}

// TestResetPasswordWithoutAFormOfTheApplication: the link of a request that names no page to return
// to shows a form of its own, which says why a password is refused.
func TestResetPasswordWithoutAFormOfTheApplication(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	before := a.signedUp("ada@example.com")
	a.browser().post("/request-password-reset", object{"email": "ada@example.com"}).ok()
	link := a.deliver("ada@example.com").Link
	a.scan(link)
	phone := a.browser()
	if form := phone.navigating().get(link).page(true); !strings.Contains(string(form.Body), "a***@example.com") || !strings.Contains(string(form.Body), `name="newPassword"`) ||
		!strings.Contains(string(form.Body), "at least 8 characters") {
		t.Errorf("the form is %s", form.Body)
	}
	phone.get(link).want(400, "INVALID_TOKEN") // a script has asked for the application's form
	choose := func(password string) *response {
		return phone.pressing().send("POST", link, "application/x-www-form-urlencoded", strings.NewReader(url.Values{"newPassword": {password}}.Encode()))
	}
	if again := choose("short").page(true); again.Status != 400 || !strings.Contains(string(again.Body), "PASSWORD_TOO_SHORT") {
		t.Errorf("a short password: %d %s", again.Status, again.Body)
	}
	if done := choose("a new password").page(false); done.Status != 200 || before.user() != nil {
		t.Errorf("%d %s, and the session of before has %v", done.Status, done.Body, before.user())
	}
	if used := choose("another password").page(false); used.Status != 400 {
		t.Errorf("the link was taken twice: %d %s", used.Status, used.Body)
	}
	phone.post("/sign-in/email", object{"email": "ada@example.com", "password": "a new password"}).ok()
}

func TestResetPassword(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp("ada@example.com")
		a.verify("ada@example.com")
		a.browser().post("/request-password-reset", object{"email": "ada@example.com", "redirectTo": "https://evil.example"}).want(403, "INVALID_REDIRECT_URL")
		a.browser().post("/request-password-reset", object{"email": "ada@example.com", "redirectTo": pages + "/reset?x=1"}).ok()
		mail := a.deliver("ada@example.com")
		if mail.Kind != auth.MailResetPassword {
			t.Errorf("%+v", mail)
		}
		a.scan(mail.Link)
		got := a.browser().navigating().get(mail.Link)
		form, err := url.Parse(got.Header.Get("Location"))
		must(t, err)
		token := form.Query().Get("token")
		if got.Status != 302 || form.Host != "app.example" || form.Query().Get("x") != "1" || token == "" {
			t.Fatalf("%d %s", got.Status, got.Header.Get("Location"))
		}
		a.browser().post("/reset-password", object{"newPassword": "short", "token": token}).want(400, "PASSWORD_TOO_SHORT")
		a.browser().post("/reset-password", object{"newPassword": "a new password", "token": token}).ok()
		a.browser().post("/reset-password", object{"newPassword": "a newer password", "token": token}).want(400, "INVALID_TOKEN")
		a.browser().post("/reset-password", object{"newPassword": "a newer password"}).want(400, "INVALID_TOKEN")
		a.browser().navigating().get(mail.Link).lead(pages + "/reset?error=INVALID_TOKEN&x=1")
		if page.user() != nil {
			t.Error("a session outlived the reset of the password")
		}
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": "a new password"}).ok()
	})
}

// Of two proofs of an address at once the second removes nothing that the first has set,
// and one of an address that is given up meanwhile signs nobody in.
func TestAddressIsReclaimedOnce(t *testing.T) {
	a := open(t, databasetest.Shared(t, 1)[0], signin.Config{})
	a.signedUp(ada)
	id, yes, other := a.userID(), true, "eve@example.com"
	owner := a.browser()
	meanwhile := func(patch auth.UserPatch) *response {
		owner.post("/sign-in/magic-link", object{"email": ada}).ok()
		link := a.deliver(ada).Link
		return a.meanwhile(id, func() *response { return owner.get(link) }, func(ctx context.Context) {
			_, err := a.UpdateUser(ctx, id, patch)
			must(t, err)
		})
	}
	meanwhile(auth.UserPatch{Email: &other, EmailVerified: &yes}).want(503, "SERVICE_UNAVAILABLE")
	address, no := ada, false
	_, err := a.UpdateUser(ctx, id, auth.UserPatch{Email: &address, EmailVerified: &no})
	must(t, err)
	meanwhile(auth.UserPatch{EmailVerified: &yes}).ok()
	if accounts := decoded[[]object](owner.get("/list-accounts").ok()); len(accounts) != 1 {
		t.Errorf("the password is gone: %v", accounts)
	}
}

// One who registers a foreign address first keeps nothing once its owner shows.
func TestPreHijack(t *testing.T) {
	proofs := map[string]func(a *app, owner *browser){
		"link": func(a *app, owner *browser) {
			owner.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
			owner.pressing().do("POST", a.deliver("ada@example.com").Link, nil)
		},
		"code": func(a *app, owner *browser) {
			owner.post("/email-otp/send-verification-otp", object{"email": "ada@example.com", "type": "sign-in"}).ok()
			owner.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": a.deliver("ada@example.com").Code}).ok()
		},
		"reset": func(a *app, owner *browser) {
			owner.post("/request-password-reset", object{"email": "ada@example.com", "redirectTo": "/reset"}).ok()
			link := a.deliver("ada@example.com").Link
			token := link[strings.LastIndex(link, "/")+1 : strings.Index(link, "?")]
			owner.post("/reset-password", object{"token": token, "newPassword": "the owner's own"}).ok()
			owner.post("/sign-in/email", object{"email": "ada@example.com", "password": "the owner's own"}).ok()
		},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		for name, prove := range proofs {
			attacker := a.signedUp("ada@example.com")
			owner := a.browser()
			prove(a, owner)
			user := owner.user()
			if user == nil || user["emailVerified"] != true {
				t.Fatalf("%s: the owner is %v", name, user)
			}
			if attacker.user() != nil {
				t.Errorf("%s: the attacker's session lives", name)
			}
			attacker.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")
			must(t, a.DeleteUser(ctx, user["id"].(string)))
			a.clock.advance(time.Hour) // a mailbox gets so many mails only
		}
	})
}
