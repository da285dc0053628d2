package signin_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// users lists who is signed in in the browser, with the handles of the sessions.
func (b *browser) users() (emails []string, tokens map[string]string) {
	b.a.t.Helper()
	tokens = map[string]string{}
	for _, both := range decoded[[]struct {
		User    struct{ Email string }
		Session struct{ Token string }
	}](b.get("/multi-session/list-device-sessions").ok()) {
		emails = append(emails, both.User.Email)
		tokens[both.User.Email] = both.Session.Token
	}
	return emails, tokens
}

func TestMultiSession(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{MultiSession: true})
		elsewhere := a.signedUp("eve@example.com")
		page := a.signedUp("ada@example.com")
		a.clock.advance(1e9)
		page.post("/sign-up/email", object{"email": "bob@example.com", "password": password}).ok()
		emails, tokens := page.users()
		if diff := cmp.Diff([]string{"bob@example.com", "ada@example.com"}, emails); diff != "" || page.user()["email"] != "bob@example.com" {
			t.Fatalf("%s %v", diff, page.user())
		}
		_, theirs := elsewhere.users()
		page.post("/multi-session/set-active", object{"sessionToken": theirs["eve@example.com"]}).want(401, "INVALID_SESSION_TOKEN")
		page.post("/multi-session/revoke", object{"sessionToken": theirs["eve@example.com"]}).want(401, "INVALID_SESSION_TOKEN")

		page.post("/multi-session/set-active", object{"sessionToken": tokens["ada@example.com"]}).ok()
		if page.user()["email"] != "ada@example.com" {
			t.Errorf("%v", page.user())
		}
		page.post("/multi-session/set-active", object{"sessionToken": tokens["bob@example.com"]}).ok()
		page.post("/multi-session/revoke", object{"sessionToken": tokens["bob@example.com"]}).ok()
		if page.user()["email"] != "ada@example.com" {
			t.Errorf("after the end of the active session: %v", page.user())
		}
		page.post("/multi-session/revoke", object{"sessionToken": tokens["ada@example.com"]}).ok()
		if emails, _ := page.users(); page.user() != nil || len(emails) != 0 {
			t.Errorf("%v %v", page.user(), emails)
		}

		// A user who signs in twice has one session; there are five at most; signing out
		// ends all of them.
		for i := range 7 {
			a.clock.advance(1e9)
			signUp := object{"email": fmt.Sprintf("user%d@example.com", i), "password": password}
			page.post("/sign-up/email", signUp).ok()
			page.post("/sign-in/email", signUp).ok()
		}
		emails, _ = page.users()
		want := []string{"user6@example.com", "user5@example.com", "user4@example.com", "user3@example.com", "user2@example.com"}
		if diff := cmp.Diff(want, emails); diff != "" {
			t.Error(diff)
		}
		page.post("/sign-out", nil).ok()
		if emails, _ := page.users(); page.user() != nil || len(emails) != 0 {
			t.Errorf("%v %v", page.user(), emails)
		}
		if elsewhere.user() == nil {
			t.Error("another browser was signed out too")
		}
	})
}
