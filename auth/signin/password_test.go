package signin_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/bcrypt"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestSignUpAndIn(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.browser()
		got := decoded[object](page.post("/sign-up/email", object{"name": "Ada", "email": " Ada@Example.com", "password": password, "image": "https://x.example/a.png"}).ok())
		user := got["user"].(object)
		want := object{
			"id": user["id"], "name": "Ada", "email": "ada@example.com", "emailVerified": false, "image": "https://x.example/a.png",
			"createdAt": "2026-03-01T12:00:00.000Z", "updatedAt": "2026-03-01T12:00:00.000Z",
			"isAnonymous": false, "username": nil, "displayUsername": nil, "twoFactorEnabled": false,
		}
		if diff := cmp.Diff(want, user); diff != "" {
			t.Error(diff)
		}
		if got["token"] == "" || page.cookies["__Host-kit_session"] == "" {
			t.Errorf("not signed in: %v %v", got, page.cookies)
		}
		if diff := cmp.Diff(want, page.user()); diff != "" {
			t.Error(diff)
		}
		page.post("/sign-out", nil).ok()
		if page.user() != nil {
			t.Error("signed out and still there")
		}
		in := decoded[object](page.post("/sign-in/email", object{"email": "ADA@example.com", "password": password, "callbackURL": "/home"}).ok())
		if in["redirect"] != true || in["url"] != "/home" || in["user"].(object)["id"] != user["id"] {
			t.Errorf("%v", in)
		}
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password + "!"}).want(401, "INVALID_EMAIL_OR_PASSWORD")
		page.post("/sign-up/email", object{"email": "ada@example.com", "password": password}).want(422, "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL")
	})
}

// TestRefusalNamesTheField: a form shows a refusal at the member that details name.
func TestRefusalNamesTheField(t *testing.T) {
	b := open(t, databasetest.Memory(t), signin.Config{}).browser()
	for field, body := range map[string]object{
		"email":    {"email": "x", "password": "correct horse battery"},
		"password": {"email": "ada@example.com"},
		"name":     {"email": "ada@example.com", "password": "correct horse battery", "name": 7},
	} {
		got := decoded[struct {
			Error struct{ Details struct{ Field string } }
		}](b.post("/sign-up/email", body).want(400, "VALIDATION_ERROR"))
		if got.Error.Details.Field != field {
			t.Errorf("the refusal of %v names %q", body, got.Error.Details.Field)
		}
	}
}

func TestSignUpRefusals(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{Breached: func(_ context.Context, password string) (bool, error) {
		return password == "password1", nil
	}})
	for _, c := range []struct {
		body   any
		status int
		code   string
	}{
		{object{"email": "nobody", "password": password}, 400, "VALIDATION_ERROR"},
		{object{"password": password}, 400, "VALIDATION_ERROR"},
		{object{"email": "a@example.com"}, 400, "VALIDATION_ERROR"},
		{object{"email": "a@example.com", "password": "seven 7"}, 400, "PASSWORD_TOO_SHORT"},
		{object{"email": "a@example.com", "password": strings.Repeat("ä", 129)}, 400, "PASSWORD_TOO_LONG"},
		{object{"email": "a@example.com", "password": "password1"}, 400, "PASSWORD_COMPROMISED"},
		{object{"email": "a@example.com", "password": password, "name": strings.Repeat("n", 257)}, 400, "VALIDATION_ERROR"},
		{object{"email": "a@example.com", "password": password, "image": "javascript:alert(1)"}, 400, "VALIDATION_ERROR"},
		{object{"email": 7, "password": password}, 400, "VALIDATION_ERROR"},
		{[]int{1}, 400, "VALIDATION_ERROR"},
		{object{"email": "a@example.com", "password": password, "callbackURL": "https://evil.example/"}, 403, "INVALID_CALLBACK_URL"},
	} {
		a.browser().post("/sign-up/email", c.body).want(c.status, c.code)
	}
	a.browser().send("POST", "/sign-up/email", "application/json", strings.NewReader(`{"email":"a@example.com","email":"b@example.com"}`)).want(400, "VALIDATION_ERROR")
	a.browser().send("POST", "/sign-up/email", "application/json", strings.NewReader(`{"email`)).want(400, "BAD_REQUEST")
	a.browser().send("POST", "/sign-up/email", "text/plain", strings.NewReader(`{}`)).want(415, "UNSUPPORTED_MEDIA_TYPE")
	a.browser().send("POST", "/sign-up/email", "application/x-www-form-urlencoded", strings.NewReader(`{"email":"a@example.com"}`)).want(415, "UNSUPPORTED_MEDIA_TYPE")
	a.browser().send("POST", "/sign-up/email", "application/x-www-form-urlencoded", strings.NewReader("email=form%40example.com&rememberMe=false&password=correct+horse+battery")).ok()
	a.browser().get("/sign-up/email").want(405, "METHOD_NOT_ALLOWED")
	a.browser().get("/nowhere").want(404, "NOT_FOUND")
}

func TestSwitchedOff(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{DisablePasswords: true, DisableLinks: true, DisableCodes: true, DisableDeletion: true})
	page := a.browser()
	mail := object{"email": "a@example.com", "password": password}
	page.post("/sign-up/email", mail).want(400, "EMAIL_PASSWORD_SIGN_UP_DISABLED")
	page.post("/sign-in/email", mail).want(400, "EMAIL_PASSWORD_DISABLED")
	page.post("/request-password-reset", mail).want(400, "EMAIL_PASSWORD_DISABLED")
	page.post("/sign-in/magic-link", mail).want(404, "NOT_FOUND")
	page.post("/email-otp/send-verification-otp", mail).want(404, "NOT_FOUND")
	page.post("/delete-user", nil).want(404, "NOT_FOUND")
	for _, path := range []string{"/sign-in/anonymous", "/sign-in/username", "/one-time-token/verify"} {
		page.post(path, nil).want(404, "NOT_FOUND")
	}
}

// A failing list of leaked passwords does not stop sign-up.
func TestBreachListFails(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{Breached: func(context.Context, string) (bool, error) { return false, errors.New("down") }})
	a.signedUp("ada@example.com")
}

func TestConfigFaults(t *testing.T) {
	for name, cfg := range map[string]signin.Config{
		"minPassword": {MinPassword: 7}, "maxPassword": {MaxPassword: 129}, "linkTTL": {LinkTTL: time.Second},
		"codeTTL": {CodeTTL: 2 * time.Hour}, "verifyTTL": {VerifyTTL: 8 * 24 * time.Hour}, "resetTTL": {ResetTTL: 25 * time.Hour},
		"freshAge": {FreshAge: time.Second},
	} {
		if err := refusedConfig(t, cfg); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestChangePassword(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp("ada@example.com")
		other := a.browser()
		other.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()

		page.post("/verify-password", object{"password": password}).ok()
		page.post("/verify-password", object{"password": "wrong"}).want(400, "INVALID_PASSWORD")
		a.browser().post("/verify-password", object{"password": password}).want(401, "UNAUTHORIZED")
		page.post("/change-password", object{"currentPassword": "wrong", "newPassword": "another one here"}).want(400, "INVALID_PASSWORD")
		page.post("/change-password", object{"currentPassword": password, "newPassword": "short"}).want(400, "PASSWORD_TOO_SHORT")
		got := decoded[object](page.post("/change-password", object{"currentPassword": password, "newPassword": "another one here", "revokeOtherSessions": true}).ok())
		if got["token"] == nil || got["user"].(object)["email"] != "ada@example.com" {
			t.Errorf("%v", got)
		}
		kept := a.signedUp("bob@example.com")
		elsewhere := a.browser()
		elsewhere.post("/sign-in/email", object{"email": "bob@example.com", "password": password}).ok()
		kept.post("/change-password", object{"currentPassword": password, "newPassword": "another one here"}).ok()
		if elsewhere.user() == nil {
			t.Error("a session ended that nobody asked to end")
		}
		if other.user() != nil {
			t.Error("another session outlived the change of the password")
		}
		if page.user() == nil {
			t.Error("the own session did not")
		}
		other.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")
		other.post("/sign-in/email", object{"email": "ada@example.com", "password": "another one here"}).ok()
		if mail := a.deliver("ada@example.com"); mail.Kind != auth.MailPasswordChanged {
			t.Errorf("the user was told %+v", mail)
		}
	})
}

func TestImport(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		hash, err := bcrypt.GenerateFromPassword([]byte("from elsewhere"), 4)
		must(t, err)
		user, err := signin.ImportUser(ctx, db, a.Auth, signin.Imported{
			NewUser: auth.NewUser{Email: "old@example.com", EmailVerified: true}, PasswordHash: string(hash),
		})
		must(t, err)
		for range 2 { // the second time by the hash that was made anew
			got := decoded[object](a.browser().post("/sign-in/email", object{"email": "old@example.com", "password": "from elsewhere"}).ok())
			if got["user"].(object)["id"] != user.ID {
				t.Errorf("%v", got)
			}
		}
		stored, _, err := database.Get(ctx, db, func(row database.Scanner) (text string, err error) { return text, row.Scan(&text) },
			`SELECT password_hash FROM signin_account WHERE user_id = $1`, user.ID)
		must(t, err)
		if !strings.HasPrefix(stored, "$argon2id$") {
			t.Errorf("the hash was not made anew: %s", stored)
		}
		if err := signin.ImportPassword(ctx, db, user.ID, "$9$nothing"); !errors.Is(err, signin.ErrPasswordHash) {
			t.Errorf("%v", err)
		}
		if _, err := signin.ImportUser(ctx, db, a.Auth, signin.Imported{NewUser: auth.NewUser{Email: "new@example.com"}, PasswordHash: "md5"}); !errors.Is(err, signin.ErrPasswordHash) {
			t.Errorf("%v", err)
		}
		if _, found, _ := a.UserByEmail(ctx, "new@example.com"); found {
			t.Error("a user was made whose password was refused")
		}
	})
}

// Clients without cookies get the refresh token in the body, and no cookies.
func TestNativeClient(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	client := a.native()
	got := decoded[struct{ Token, RefreshToken string }](client.post("/sign-up/email", object{"email": "ada@example.com", "password": password}).ok())
	if got.Token == "" || got.RefreshToken == "" || len(client.cookies) != 0 {
		t.Fatalf("%+v %v", got, client.cookies)
	}
	signed := client.with("Authorization", "Bearer "+got.Token)
	if user := signed.user(); user["email"] != "ada@example.com" {
		t.Errorf("%v", user)
	}
	signed.get("/token").want(401, "UNAUTHORIZED") // it rotates its refresh token
}

func TestDisabledUser(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	user := a.signedUp("ada@example.com").user()
	must(t, a.DisableUser(ctx, user["id"].(string)))
	a.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(403, "BANNED_USER")
	a.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": "wrong one"}).want(401, "INVALID_EMAIL_OR_PASSWORD")
}

// A session that is not to be remembered ends with the browser.
func TestRememberMe(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	a.signedUp("ada@example.com")
	for remember, want := range map[bool]bool{true: true, false: false} {
		got := a.browser().post("/sign-in/email", object{"email": "ada@example.com", "password": password, "rememberMe": remember}).ok()
		for _, c := range (&http.Response{Header: got.Header}).Cookies() {
			if c.Name == "__Host-kit_session" && (c.MaxAge > 0) != want {
				t.Errorf("rememberMe %v: MaxAge %d", remember, c.MaxAge)
			}
		}
	}
}

// Of any number of sign-ups for one address one makes the user.
func TestSignUpRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, required := range []bool{false, true} {
			a := open(t, db, signin.Config{RequireVerification: required})
			address := "ada" + map[bool]string{true: "r"}[required] + "@example.com"
			won := atOnce(5, func(int) bool {
				return a.browser().post("/sign-up/email", object{"email": address, "password": password}).Status == 200
			})
			if required && won != 5 || !required && won != 1 {
				t.Errorf("verification required %v: %d of 5 returned 200", required, won)
			}
			n, _, err := database.Get(ctx, db, func(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) },
				`SELECT count(*) FROM auth_user WHERE email = $1`, address)
			must(t, err)
			if n != 1 {
				t.Errorf("%d users", n)
			}
		}
	})
}

// TestOldPasswordChangesNoNewOne: who knew the password of before, and had it looked at
// while the owner set a new one, does not change that.
func TestOldPasswordChangesNoNewOne(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var lib *signin.TestLibrary
		a := openAuth(t, db, auth.Config{Library: signin.NewForTest(signin.Config{}, &lib), RateLimits: unlimited})
		const owned = "set by the owner meanwhile"
		thief := a.signedUp(ada)
		a.browser().post("/sign-up/email", object{"email": "bob@example.com", "password": owned}).ok()
		var r *response
		lib.WhileHashing(func() {
			r = thief.post("/change-password", object{"currentPassword": password, "newPassword": "set by the thief"})
		}, func() {
			_, err := db.Exec(ctx, `UPDATE signin_account SET password_hash = (SELECT o.password_hash FROM signin_account AS o
				WHERE o.user_id <> $1) WHERE user_id = $1`, a.userID())
			must(t, err)
		})
		r.want(400, "INVALID_PASSWORD")
		a.browser().post("/sign-in/email", object{"email": ada, "password": owned}).ok()
	})
}
