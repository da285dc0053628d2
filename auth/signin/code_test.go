package signin_test

import (
	"fmt"
	"regexp"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// code asks for a code and returns it.
func (b *browser) code(address, kind string) string {
	b.a.t.Helper()
	b.post("/email-otp/send-verification-otp", object{"email": address, "type": kind}).ok()
	return b.a.deliver(address).Code
}

// otherThan returns another code.
func otherThan(code string) string { return fmt.Sprintf("%c%s", '0'+(code[0]-'0'+1)%10, code[1:]) }

func TestSignInByCode(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.browser()
		code := page.code("ada@example.com", "sign-in")
		mail := a.deliver("ada@example.com")
		if mail.Kind != auth.MailSignInCode || !regexp.MustCompile(`^\d{6}$`).MatchString(code) || mail.ExpiresIn != 5*time.Minute {
			t.Errorf("%+v", mail)
		}
		signIn := object{"email": "Ada@example.com", "otp": code, "name": "Ada"}
		page.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": otherThan(code)}).want(400, "INVALID_OTP")
		page.post("/email-otp/check-verification-otp", object{"email": "ada@example.com", "otp": code, "type": "sign-in"}).ok()
		got := decoded[object](page.post("/sign-in/email-otp", signIn).ok())
		if user := got["user"].(object); got["token"] == "" || user["name"] != "Ada" || user["emailVerified"] != true || page.user()["id"] != user["id"] {
			t.Errorf("%v", got)
		}
		page.post("/sign-in/email-otp", signIn).want(400, "INVALID_OTP")

		code = page.code("ada@example.com", "sign-in")
		a.clock.advance(6 * time.Minute)
		page.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": code}).want(400, "OTP_EXPIRED")
		page.post("/email-otp/send-verification-otp", object{"email": "ada@example.com", "type": "change-email"}).want(400, "VALIDATION_ERROR")
		page.post("/email-otp/check-verification-otp", object{"email": "ada@example.com", "type": "x"}).want(400, "VALIDATION_ERROR")
		page.post("/email-otp/send-verification-otp", object{"email": "ada", "type": "sign-in"}).want(400, "INVALID_EMAIL")
	})
}

// A code of one kind is none of another.
func TestCodeKinds(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.signedUp("ada@example.com")
	code := page.code("ada@example.com", "email-verification")
	page.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": code}).want(400, "INVALID_OTP")
	page.post("/email-otp/reset-password", object{"email": "ada@example.com", "otp": code, "password": "a new password"}).want(400, "INVALID_OTP")
	got := decoded[object](page.post("/email-otp/verify-email", object{"email": "ada@example.com", "otp": code}).ok())
	if got["status"] != true || got["user"].(object)["emailVerified"] != true {
		t.Errorf("%v", got)
	}
	// Typing the code of the sign-up proves the address and keeps the password.
	page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
}

func TestResetByCode(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp("ada@example.com")
		a.verify("ada@example.com")
		for _, path := range []string{"/email-otp/request-password-reset", "/forget-password/email-otp"} {
			page.post(path, object{"email": "ada@example.com"}).ok()
			mail := a.deliver("ada@example.com")
			if mail.Kind != auth.MailResetPassword || mail.Link != "" {
				t.Errorf("%+v", mail)
			}
			reset := object{"email": "ada@example.com", "otp": mail.Code, "password": "new by " + path}
			a.browser().post("/email-otp/reset-password", object{"email": "ada@example.com", "otp": mail.Code, "password": "short"}).want(400, "PASSWORD_TOO_SHORT")
			a.browser().post("/email-otp/reset-password", reset).ok()
			a.browser().post("/email-otp/reset-password", reset).want(400, "INVALID_OTP")
			a.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": "new by " + path}).ok()
		}
		if page.user() != nil {
			t.Error("a session outlived the reset")
		}
	})
}

func TestChangeEmailByCode(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		a.signedUp("eve@example.com")
		page := a.signedUp("ada@example.com")
		a.work()
		page.post("/email-otp/request-email-change", object{"newEmail": "ada@example.com"}).want(400, "EMAIL_IS_THE_SAME")
		page.post("/email-otp/request-email-change", object{"newEmail": "x"}).want(400, "INVALID_EMAIL")
		page.post("/email-otp/request-email-change", object{"newEmail": "eve@example.com"}).ok()
		before := a.mail.count()
		a.work()
		if a.mail.count() != before {
			t.Error("the owner of a taken address got a mail")
		}
		page.post("/email-otp/request-email-change", object{"newEmail": "lovelace@example.com"}).ok()
		code := a.deliver("lovelace@example.com").Code
		a.browser().post("/email-otp/change-email", object{"newEmail": "lovelace@example.com", "otp": code}).want(401, "UNAUTHORIZED")
		page.post("/email-otp/change-email", object{"newEmail": "lovelace@example.com", "otp": otherThan(code)}).want(400, "INVALID_OTP")
		page.post("/email-otp/change-email", object{"newEmail": "lovelace@example.com", "otp": code}).ok()
		if user := page.user(); user["email"] != "lovelace@example.com" || user["emailVerified"] != true {
			t.Errorf("%v", user)
		}
		if mail := a.deliver("ada@example.com"); mail.Kind != auth.MailEmailChanged || mail.Detail != "lovelace@example.com" {
			t.Errorf("the old address was told %+v", mail)
		}
	})
}

// A code for a new address was asked for with the old one as it was: once that is
// proved, or another, it is to approve first.
func TestCodeOfAChangeEndsWithWhatItWasAskedFor(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp(ada)
		verification := a.deliver(ada).Link
		ask := func(to string) {
			a.clock.advance(time.Minute)
			page.post("/email-otp/request-email-change", object{"newEmail": to}).ok()
		}
		use := func(to, code string) *response {
			return page.post("/email-otp/change-email", object{"newEmail": to, "otp": code})
		}
		ask("eve@example.com")
		unapproved := a.deliver("eve@example.com").Code
		a.browser().pressing().do("POST", verification, nil).page(false)
		use("eve@example.com", unapproved).want(400, "INVALID_OTP")

		codes := map[string]string{}
		for _, to := range []string{"bob@example.com", "carol@example.com"} {
			ask(to)
			a.browser().pressing().do("POST", a.deliver(ada).Link, nil).page(false)
			codes[to] = a.deliver(to).Code
		}
		use("bob@example.com", codes["bob@example.com"]).ok()
		use("carol@example.com", codes["carol@example.com"]).want(400, "INVALID_OTP")
	})
}

// A code has three attempts, however many come at once; the next code has three
// again.
func TestCodeAttempts(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := openAuth(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: map[string]auth.RateLimit{
			"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}, "verify": {Events: -1},
		}})
		code := a.native().code("ada@example.com", "sign-in")
		try := func(code string) *response {
			return a.browser().post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": code})
		}
		invalid := atOnce(40, func(int) bool { return try(otherThan(code)).code() == "INVALID_OTP" })
		if invalid != 3 {
			t.Errorf("%d of 40 attempts were looked at", invalid)
		}
		try(code).want(403, "TOO_MANY_ATTEMPTS")
		try(a.browser().code("ada@example.com", "sign-in")).ok()
	})
}

// Three guesses in all, however they are spread over browsers, the last of them
// kept for the browser that asked.
func TestCodeTakesThreeGuessesInAll(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := openAuth(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: map[string]auth.RateLimit{
			"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}, "verify": {Events: -1},
		}})
		for strangers := range 4 {
			address := fmt.Sprintf("ada%d@example.com", strangers)
			asker := a.browser()
			code := asker.code(address, "sign-in")
			looked := 0
			try := func(b *browser) {
				if got := b.post("/sign-in/email-otp", object{"email": address, "otp": otherThan(code)}); got.code() == "INVALID_OTP" {
					looked++
				}
			}
			for range strangers {
				try(a.browser())
			}
			for range 4 {
				try(asker)
			}
			for range 4 {
				try(a.browser())
			}
			if looked != 3 {
				t.Errorf("%d strangers first: %d guesses were looked at, want 3", strangers, looked)
			}
			asker.post("/sign-in/email-otp", object{"email": address, "otp": code}).want(403, "TOO_MANY_ATTEMPTS")
		}
	})
}

// Wrong guesses at an account's codes are bounded a day over all its codes; the
// owner's client and links are not affected by those of strangers.
func TestWrongCodesAreBoundedADay(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := openAuth(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: map[string]auth.RateLimit{
			"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}, "auth-link": {Events: -1}, "verify": {Events: -1}, "send": {Events: -1},
		}})
		owner := a.signedUp(ada)
		looked := 0
		for range 30 {
			code := a.native().code(ada, "sign-in")
			for range 3 {
				if a.browser().post("/sign-in/email-otp", object{"email": ada, "otp": otherThan(code)}).code() == "INVALID_OTP" {
					looked++
				}
			}
			a.clock.advance(time.Minute)
		}
		if looked != 30 {
			t.Errorf("%d guesses were looked at in half an hour, want 30", looked)
		}
		refused := a.browser().post("/sign-in/email-otp", object{"email": ada, "otp": a.native().code(ada, "sign-in")}).want(429, "TOO_MANY_REQUESTS")
		if refused.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
		owner.post("/sign-in/email-otp", object{"email": ada, "otp": owner.code(ada, "sign-in")}).ok()
		b := a.browser()
		b.post("/sign-in/magic-link", object{"email": ada}).ok()
		b.pressing().do("POST", a.deliver(ada).Link, nil).lead("/")
	})
}

// Of any number of uses of one code one signs in.
func TestCodeRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		code := a.browser().code("ada@example.com", "sign-in")
		if won := atOnce(10, func(int) bool {
			return a.browser().post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": code}).Status == 200
		}); won != 1 {
			t.Errorf("%d of 10 signed in by one code", won)
		}
	})
}

func TestNoSignUpByMail(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{DisableSignUp: true})
	_, err := a.CreateUser(ctx, auth.NewUser{Email: "ada@example.com"})
	must(t, err)
	page := a.browser()
	page.post("/email-otp/send-verification-otp", object{"email": "eve@example.com", "type": "sign-in"}).ok()
	page.post("/sign-in/magic-link", object{"email": "eve@example.com"}).ok()
	a.work()
	if n := a.mail.count(); n != 0 {
		t.Errorf("%d mails to somebody who may not sign up", n)
	}
	page.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": page.code("ada@example.com", "sign-in")}).ok()
}

// A user who signs in by mail alone has no password to prove, and a user who goes has
// no address to verify.
func TestNoPasswordNoUser(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.browser()
	page.post("/sign-in/email-otp", object{"email": "ada@example.com", "otp": page.code("ada@example.com", "sign-in")}).ok()
	page.post("/verify-password", object{"password": password}).want(400, "CREDENTIAL_ACCOUNT_NOT_FOUND")
	page.post("/change-password", object{"currentPassword": password, "newPassword": "a new password"}).want(400, "CREDENTIAL_ACCOUNT_NOT_FOUND")
	page.post("/delete-user", object{"password": password}).want(400, "CREDENTIAL_ACCOUNT_NOT_FOUND")

	bob := a.signedUp("bob@example.com")
	code := bob.code("bob@example.com", "email-verification")
	must(t, a.DeleteUser(ctx, bob.user()["id"].(string)))
	a.browser().post("/email-otp/verify-email", object{"email": "bob@example.com", "otp": code}).want(400, "USER_NOT_FOUND")
}
