package signin_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestAnonymous(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var moved [2]string
		fails := false
		a := open(t, db, signin.Config{Anonymous: true, OnUpgrade: func(_ context.Context, from, to auth.User) error {
			if fails {
				return errors.New("no room")
			}
			moved = [2]string{from.ID, to.Email}
			return nil
		}})
		page := a.browser()
		got := decoded[object](page.post("/sign-in/anonymous", nil).ok())
		if user := got["user"].(object); user["isAnonymous"] != true || user["email"] != "" || got["token"] == "" {
			t.Errorf("%v", got)
		}
		page.post("/sign-in/anonymous", nil).want(400, "ANONYMOUS_USERS_CANNOT_SIGN_IN_AGAIN_ANONYMOUSLY")
		page.post("/change-email", object{"newEmail": "x@example.com"}).want(400, "CHANGE_EMAIL_DISABLED")

		// Signing up keeps the id, so what they own stays theirs.
		id := page.user()["id"]
		page.post("/sign-up/email", object{"email": "ada@example.com", "password": password, "name": "Ada"}).ok()
		if user := page.user(); user["id"] != id || user["isAnonymous"] != false || user["email"] != "ada@example.com" || user["name"] != "Ada" {
			t.Errorf("%v", user)
		}
		page.post("/delete-anonymous-user", nil).want(403, "USER_IS_NOT_ANONYMOUS")

		// Signing in as somebody else hands over and deletes.
		page = a.browser()
		page.post("/sign-in/anonymous", nil).ok()
		id = page.user()["id"]
		fails = true
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).want(500, "INTERNAL_SERVER_ERROR")
		if page.user()["id"] != id {
			t.Error("the anonymous user is gone although the application could not take over")
		}
		fails = false
		page.post("/sign-in/email", object{"email": "ada@example.com", "password": password}).ok()
		if moved != [2]string{id.(string), "ada@example.com"} {
			t.Errorf("told %v", moved)
		}
		if _, err := a.User(ctx, id.(string)); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("the anonymous user is left: %v", err)
		}

		// A link does so too, for a new address.
		page = a.browser()
		page.post("/sign-in/anonymous", nil).ok()
		id = page.user()["id"]
		page.post("/sign-in/magic-link", object{"email": "new@example.com"}).ok()
		page.get(a.deliver("new@example.com").Link).ok()
		if user := page.user(); user["id"] != id || user["emailVerified"] != true {
			t.Errorf("%v", user)
		}

		page = a.browser()
		page.post("/sign-in/anonymous", nil).ok()
		page.post("/delete-anonymous-user", nil).ok()
		if page.user() != nil {
			t.Error("a deleted user is signed in")
		}
	})
}

// TestAnonymousUserBecomesOnePerson: of two requests that make an anonymous user
// somebody the second neither changes nor deletes who that is by then.
func TestAnonymousUserBecomesOnePerson(t *testing.T) {
	told := 0
	a := open(t, databasetest.Shared(t, 1)[0], signin.Config{Anonymous: true, OnUpgrade: func(context.Context, auth.User, auth.User) error {
		told++
		return nil
	}})
	a.signedUp(ada)
	visit := func() (*browser, string) {
		page := a.browser()
		page.post("/sign-in/anonymous", nil).ok()
		return page, page.user()["id"].(string)
	}
	signIn := func(page *browser) func() *response {
		return func() *response { return page.post("/sign-in/email", object{"email": ada, "password": password}) }
	}

	page, id := visit()
	address, no := "bob@example.com", false
	become := func(ctx context.Context) {
		_, err := a.UpdateUser(ctx, id, auth.UserPatch{Email: &address, Anonymous: &no})
		must(t, err)
	}
	a.meanwhile(id, signIn(page), become).ok()
	if bob, err := a.User(ctx, id); err != nil || bob.Email != address {
		t.Errorf("who signed up meanwhile is %+v, %v", bob, err)
	}

	page, id = visit()
	address = "carol@example.com"
	signUp := func() *response {
		return page.post("/sign-up/email", object{"email": "dan@example.com", "password": password})
	}
	a.meanwhile(id, signUp, become).ok()
	if carol, err := a.User(ctx, id); err != nil || carol.Email != address {
		t.Errorf("who signed up meanwhile is %+v, %v", carol, err)
	}

	page, id = visit()
	address = "erin@example.com"
	remove := func() *response { return page.post("/delete-anonymous-user", nil) }
	a.meanwhile(id, remove, become).want(403, "USER_IS_NOT_ANONYMOUS")
	if erin, err := a.User(ctx, id); err != nil || erin.Email != address {
		t.Errorf("who signed up meanwhile is %+v, %v", erin, err)
	}

	page, id = visit()
	a.meanwhile(id, signIn(page), func(ctx context.Context) { must(t, a.DeleteUser(ctx, id)) }).ok()
	if told != 0 {
		t.Errorf("the application was told %d times", told)
	}
}

// TestExpiredTokenOfALiveSession: a client whose access token has expired is told to renew it,
// instead of that it is signed out, and a guest who signs up then keeps what they own. A token whose
// session has ended counts as none, so that its user can sign in again.
func TestExpiredTokenOfALiveSession(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{Anonymous: true})
	bearing := func(token any) *browser { return a.native().with("Authorization", "Bearer "+token.(string)) }
	got := decoded[object](a.native().post("/sign-in/anonymous", nil).ok())
	id := got["user"].(object)["id"].(string)
	phone := bearing(got["token"])
	up := object{"email": "ada@example.com", "password": password, "name": "Ada"}
	a.clock.advance(20 * time.Minute)
	phone.get("/get-session").want(401, "UNAUTHORIZED")
	phone.post("/sign-out", object{}).want(401, "UNAUTHORIZED")
	phone.post("/sign-in/anonymous", nil).want(401, "UNAUTHORIZED")
	phone.post("/sign-up/email", up).want(401, "UNAUTHORIZED")
	if n := len(a.live(id)); n != 1 {
		t.Fatalf("%d sessions", n)
	}
	token, err := a.SessionAccessToken(t.Context(), a.live(id)[0])
	must(t, err)
	if user := decoded[object](bearing(token).post("/sign-up/email", up).ok())["user"].(object); user["id"] != id {
		t.Errorf("the guest became %v", user)
	}
	in := object{"email": "ada@example.com", "password": password}
	old := bearing(decoded[object](phone.post("/sign-in/email", in).ok())["token"])
	a.clock.advance(20 * time.Minute)
	_, err = a.RevokeUser(t.Context(), id)
	must(t, err)
	if body := string(old.get("/get-session").ok().Body); body != "null" {
		t.Errorf("an ended session is %s", body)
	}
	old.post("/sign-out", object{}).ok()
	old.post("/sign-in/email", in).ok()
}

func (a *app) live(userID string) []auth.Session {
	a.t.Helper()
	list, err := a.Sessions(a.t.Context(), userID)
	must(a.t, err)
	return list
}
