package signin_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestSessions(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp("ada@example.com")
		stranger := a.signedUp("eve@example.com")
		var others []*browser
		for range 3 {
			b := a.browser()
			b.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
			others = append(others, b)
		}
		list := decoded[[]struct{ ID, Token, UserID, IPAddress string }](page.get("/list-sessions").ok())
		if len(list) != 4 || list[0].Token != list[0].ID || list[0].UserID != page.user()["id"] || list[0].IPAddress != "192.0.2.1" {
			t.Fatalf("%+v", list)
		}
		own := decoded[struct{ Session struct{ ID, Token string } }](others[0].get("/get-session").ok()).Session
		// The token in a listing is a handle: it proves nothing.
		a.native().with("Authorization", "Bearer "+own.Token).get("/list-sessions").want(401, "UNAUTHORIZED")

		stranger.post("/revoke-session", object{"token": own.Token}).ok()
		if others[0].user() == nil {
			t.Error("a stranger ended the session")
		}
		page.post("/revoke-session", object{"token": own.Token}).ok()
		if others[0].user() != nil {
			t.Error("the session lives on")
		}
		page.post("/revoke-other-sessions", nil).ok()
		if others[1].user() != nil || page.user() == nil {
			t.Error("other sessions, and only those, should have ended")
		}
		page.post("/revoke-sessions", nil).ok()
		if page.user() != nil || stranger.user() == nil {
			t.Error("all sessions of the user, and no others, should have ended")
		}
		for _, path := range []string{"/revoke-session", "/revoke-sessions", "/revoke-other-sessions", "/update-session", "/update-user", "/change-password", "/unlink-account"} {
			page.post(path, nil).want(401, "UNAUTHORIZED")
		}
		for _, path := range []string{"/list-sessions", "/list-accounts", "/token"} {
			page.get(path).want(401, "UNAUTHORIZED")
		}
		if got := page.get("/get-session").ok(); string(got.Body) != "null" || got.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s %v", got.Body, got.Header)
		}
		stranger.post("/update-session", nil).want(400, "NO_FIELDS_TO_UPDATE")
		stranger.post("/update-session", object{"role": "admin"}).want(400, "FIELD_NOT_ALLOWED")
	})
}

func TestTokenAndKeys(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.signedUp("ada@example.com")
	token := decoded[struct{ Token string }](page.get("/token").ok()).Token
	bearer := a.native().with("Authorization", "Bearer "+token)
	if bearer.user()["email"] != "ada@example.com" {
		t.Error("the access token does not prove the user")
	}
	keys := page.get("/jwks").ok()
	var set struct{ Keys []map[string]any }
	if err := json.Unmarshal(keys.Body, &set); err != nil || len(set.Keys) == 0 || set.Keys[0]["d"] != nil {
		t.Errorf("%s", keys.Body)
	}
	if got := page.get("/ok").ok(); string(got.Body) != `{"ok":true}` {
		t.Errorf("%s", got.Body)
	}
	page.navigating().get("/error?error=%3Cscript%3E").page(false)
}

// What is delicate asks for a sign-in that was lately.
func TestFreshness(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{OneTimeTokens: true})
	page := a.signedUp("ada@example.com")
	a.clock.advance(25 * time.Hour)
	page.get("/list-sessions").want(403, "SESSION_NOT_FRESH")
	page.get("/one-time-token/generate").want(403, "SESSION_NOT_FRESH")
	page.post("/change-email", object{"newEmail": "new@example.com"}).want(403, "SESSION_NOT_FRESH")
	page.post("/email-otp/request-email-change", object{"newEmail": "new@example.com"}).want(403, "SESSION_NOT_FRESH")
	page.post("/unlink-account", object{"providerId": "credential"}).want(403, "SESSION_NOT_FRESH")
}

func TestUpdateUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{Usernames: true})
		a.browser().post("/sign-up/email", object{"email": "eve@example.com", "password": password, "username": "Eve"}).ok()
		page := a.signedUp("ada@example.com")
		page.post("/update-user", object{"name": "Ada L", "image": "/a.png", "username": "Ada.L"}).ok()
		if user := page.user(); user["name"] != "Ada L" || user["image"] != "/a.png" || user["username"] != "ada.l" {
			t.Errorf("%v", user)
		}
		page.post("/update-user", object{"image": nil}).ok()
		if user := page.user(); user["image"] != nil || user["name"] != "Ada L" {
			t.Errorf("%v", user)
		}
		page.post("/update-user", object{"email": "x@example.com"}).want(400, "EMAIL_CAN_NOT_BE_UPDATED")
		page.post("/update-user", nil).want(400, "NO_FIELDS_TO_UPDATE")
		page.post("/update-user", object{"name": "a\u0000b"}).want(400, "VALIDATION_ERROR")
		page.post("/update-user", object{"username": "eve"}).want(400, "USERNAME_IS_ALREADY_TAKEN")

		for name, code := range map[string]string{"ab": "USERNAME_TOO_SHORT", "abcdefghijklmnopqrstuvwxyz12345": "USERNAME_TOO_LONG", "no way": "INVALID_USERNAME", "": "INVALID_USERNAME"} {
			page.post("/is-username-available", object{"username": name}).want(422, code) // as better-auth has it
		}
		for name, want := range map[string]bool{"EVE": false, "nobody": true} {
			if got := decoded[object](page.post("/is-username-available", object{"username": name}).ok()); got["available"] != want {
				t.Errorf("%s: %v", name, got)
			}
		}
		a.browser().post("/sign-up/email", object{"email": "new@example.com", "password": password, "username": "EVE"}).want(400, "USERNAME_IS_ALREADY_TAKEN")
		in := a.browser()
		in.post("/sign-in/username", object{"username": "EVE", "password": password}).ok()
		if in.user()["email"] != "eve@example.com" {
			t.Errorf("%v", in.user())
		}
		in.post("/sign-in/username", object{"username": "eve", "password": "wrong one"}).want(401, "INVALID_USERNAME_OR_PASSWORD")
		in.post("/sign-in/username", object{"username": "nobody", "password": password}).want(401, "INVALID_USERNAME_OR_PASSWORD")
	})
	a := open(t, databasetest.Memory(t), signin.Config{})
	b := a.signedUp("ada@example.com")
	b.post("/update-user", object{"username": "ada"}).want(400, "FIELD_NOT_ALLOWED")
	for _, name := range []string{"Ada\u202eadA", "\u2066Ada", "Ada\u200f", "Ada\x00"} {
		b.post("/update-user", object{"name": name}).want(400, "VALIDATION_ERROR")
	}
}

func TestChangeEmail(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		stranger := a.signedUp("eve@example.com")
		page := a.signedUp("ada@example.com")
		a.work()
		page.post("/change-email", object{"newEmail": "ada@example.com"}).want(400, "EMAIL_IS_THE_SAME")
		before := a.mail.count()
		page.post("/change-email", object{"newEmail": "eve@example.com"}).ok()
		a.work()
		if a.mail.count() != before {
			t.Error("the owner of a taken address got a mail")
		}
		page.post("/change-email", object{"newEmail": "lovelace@example.com", "callbackURL": "/done"}).ok()
		link := a.deliver("lovelace@example.com").Link
		a.scan(link)
		stranger.pressing().do("POST", link, nil).lead("/done?error=INVALID_USER")
		if user := page.user(); user["email"] != "ada@example.com" {
			t.Errorf("%v", user)
		}
		page.pressing().do("POST", link, nil).lead("/done")
		if user := page.user(); user["email"] != "lovelace@example.com" || user["emailVerified"] != true {
			t.Errorf("%v", user)
		}
		if mail := a.deliver("ada@example.com"); mail.Kind != auth.MailEmailChanged {
			t.Errorf("the old address was told %+v", mail)
		}
		page.post("/sign-in/email", object{"email": "lovelace@example.com", "password": password}).ok()

		// An address that somebody else takes meanwhile is not changed to.
		page.post("/change-email", object{"newEmail": "wanted@example.com"}).ok()
		page.pressing().do("POST", a.deliver("lovelace@example.com").Link, nil).page(false) // it approves
		link = a.deliver("wanted@example.com").Link
		a.signedUp("wanted@example.com")
		page.get(link).want(422, "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL")
	})
}

func TestDeleteUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		stranger := a.signedUp("eve@example.com")
		page := a.signedUp("ada@example.com")
		page.post("/delete-user", object{"password": "wrong one"}).want(400, "INVALID_PASSWORD")
		if got := decoded[object](page.post("/delete-user", object{"callbackURL": "/bye"}).ok()); got["message"] != "Verification email sent" {
			t.Errorf("%v", got)
		}
		link := a.deliver("ada@example.com").Link
		a.scan(link)
		stranger.pressing().do("POST", link, nil).page(false)
		page.navigating().get(link).page(true)
		page.pressing().do("POST", link, nil).lead("/bye")
		if page.user() != nil {
			t.Error("a deleted user is signed in")
		}
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")

		if got := decoded[object](stranger.post("/delete-user", object{"password": password}).ok()); got["message"] != "User deleted" {
			t.Errorf("%v", got)
		}
		page = a.signedUp("bob@example.com")
		page.post("/delete-user", nil).ok()
		u, err := url.Parse(a.deliver("bob@example.com").Link)
		must(t, err)
		page.post("/delete-user", object{"token": "nothing"}).want(400, "INVALID_TOKEN")
		page.post("/delete-user", object{"token": u.Query().Get("token")}).ok()
		if _, found, _ := a.UserByEmail(ctx, "bob@example.com"); found {
			t.Error("not deleted")
		}
	})
}

func TestAccounts(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.signedUp("ada@example.com")
		id := page.user()["id"].(string)
		list := decoded[[]struct{ ProviderID, AccountID, UserID string }](page.get("/list-accounts").ok())
		if len(list) != 1 || list[0].ProviderID != "credential" || list[0].AccountID != id || list[0].UserID != id {
			t.Errorf("%+v", list)
		}
		page.post("/unlink-account", object{"providerId": "credential"}).want(400, "FAILED_TO_UNLINK_LAST_ACCOUNT")
		page.post("/unlink-account", object{"providerId": "github"}).want(400, "ACCOUNT_NOT_FOUND")
		_, err := db.Exec(ctx, `INSERT INTO signin_account (id, user_id, provider, issuer, account_id, created_at, updated_at)
			VALUES ('a1', $1, 'github', 'https://github.com', '7', 1, 1)`, id)
		must(t, err)
		if won := atOnce(2, func(i int) bool {
			return page.post("/unlink-account", object{"providerId": []string{"github", "credential"}[i]}).Status == 200
		}); won != 1 {
			t.Errorf("%d of 2 accounts were unlinked", won)
		}
	})
}

func TestOneTimeToken(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{OneTimeTokens: true})
		page := a.signedUp("ada@example.com")
		ask := func() string { return decoded[struct{ Token string }](page.get("/one-time-token/generate").ok()).Token }
		token := ask()
		if won := atOnce(10, func(int) bool {
			return a.browser().post("/one-time-token/verify", object{"token": token}).Status == 200
		}); won != 1 {
			t.Errorf("%d of 10 signed in by one token", won)
		}
		other := a.browser()
		got := decoded[object](other.post("/one-time-token/verify", object{"token": ask()}).ok())
		if got["user"].(object)["email"] != "ada@example.com" || other.user() == nil {
			t.Errorf("%v", got)
		}
		old, late := ask(), ask()
		a.clock.advance(2 * time.Minute)
		page.post("/sign-out", nil).ok()
		other.post("/one-time-token/verify", object{"token": old}).want(400, "INVALID_TOKEN")
		a.clock.advance(2 * time.Minute)
		other.post("/one-time-token/verify", object{"token": late}).want(400, "INVALID_TOKEN")
	})
}

// An anonymous user has no address to confirm at, so they have to be here lately.
func TestDeleteAnonymousUserLater(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{Anonymous: true})
	page := a.browser()
	page.post("/sign-in/anonymous", nil).ok()
	a.clock.advance(25 * time.Hour)
	page.post("/delete-user", nil).want(400, "SESSION_EXPIRED")
	page.post("/delete-anonymous-user", nil).ok()
}
