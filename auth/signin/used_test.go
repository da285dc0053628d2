package signin_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// twin is the browser as it was before its last response came: what sends the second
// of two calls at once.
func (b *browser) twin() *browser {
	other := *b
	other.cookies = make(map[string]string, len(b.cookies))
	for name, value := range b.cookies {
		other.cookies[name] = value
	}
	return &other
}

func (a *app) sessionsOf(address string) []auth.Session {
	a.t.Helper()
	user, _, err := a.UserByEmail(ctx, address)
	must(a.t, err)
	sessions, err := a.Sessions(ctx, user.ID)
	must(a.t, err)
	return sessions
}

// Effects of React's StrictMode call twice: a link that has signed a browser in is
// no error to it, and a second session for nobody.
func TestMagicLinkTwiceByScript(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.browser()
		page.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
		link := a.deliver("ada@example.com").Link
		twin := page.twin()
		id := func(r *response) any { return decoded[object](r.ok())["session"].(object)["id"] }
		first := id(page.get(link))
		if again := id(page.get(link)); again != first {
			t.Errorf("signed in again: %v, then %v", first, again)
		}
		before := twin.get(link) // sent before the first response came
		if again := id(before); again != first {
			t.Errorf("the call at the same time signed in again: %v, then %v", first, again)
		}
		if len(before.Header.Values("Set-Cookie")) != 0 {
			t.Errorf("the second response could take the first one's cookie away: %v", before.Header)
		}
		a.browser().get(link).want(400, "INVALID_TOKEN")
		a.signedUp("eve@example.com").get(link).want(400, "INVALID_TOKEN")
		if page.user() == nil {
			t.Error("signed out")
		}
		if n := len(a.sessionsOf("ada@example.com")); n != 1 {
			t.Errorf("%d sessions", n)
		}
		a.clock.advance(11 * time.Second)
		page.get(link).want(400, "INVALID_TOKEN")
		a.clock.advance(2 * time.Hour)
		a.work()
		if n, _, err := database.Get(ctx, db, func(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) },
			`SELECT count(*) FROM signin_used`); n != 0 || err != nil {
			t.Errorf("%d uses are left after the sweep, %v", n, err)
		}
	})
}

// Of calls at once by one browser all succeed, with one session.
func TestMagicLinkAtOnceByOneBrowser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.browser()
		page.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
		link := a.deliver("ada@example.com").Link
		var all sync.WaitGroup
		for range 4 {
			twin := page.twin()
			all.Go(func() {
				if got := twin.get(link); got.Status != http.StatusOK {
					t.Errorf("got %d %s", got.Status, got.Body)
				}
			})
		}
		all.Wait()
		if n := len(a.sessionsOf("ada@example.com")); n != 1 {
			t.Errorf("%d sessions", n)
		}
	})
}

// A button that is pressed twice drops the first response: the second signs in.
func TestMagicLinkButtonTwice(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	a.browser().post("/sign-in/magic-link", object{"email": "ada@example.com", "callbackURL": "/home"}).ok()
	link := a.deliver("ada@example.com").Link
	phone := a.browser()
	phone.navigating().get(link).page(true)
	dropped := phone.twin()
	dropped.pressing().do("POST", link, nil).lead("/home")
	phone.pressing().do("POST", link, nil).lead("/home")
	if phone.user() == nil {
		t.Error("not signed in")
	}
	if dropped.user() != nil {
		t.Error("two cookies prove one session")
	}
	a.browser().pressing().do("POST", link, nil).lead("/home?error=INVALID_TOKEN")
	if n := len(a.sessionsOf("ada@example.com")); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestChangeOfAddressTwice(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.signedUp("ada@example.com")
	page.post("/change-email", object{"newEmail": "new@example.com"}).ok()
	link := a.deliver("new@example.com").Link
	for range 2 {
		if got := decoded[object](page.get(link).ok()); got["user"].(object)["email"] != "new@example.com" {
			t.Errorf("%v", got)
		}
	}
	if got := decoded[object](a.browser().get(link).ok()); got["user"] != nil {
		t.Errorf("another browser sees %v", got)
	}
	a.clock.advance(11 * time.Second)
	page.get(link).want(401, "INVALID_TOKEN")
}

func TestDeletionTwice(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page, eve := a.signedUp("ada@example.com"), a.signedUp("eve@example.com")
	page.post("/delete-user", object{}).ok()
	link := a.deliver("ada@example.com").Link
	twin := page.twin()
	page.get(link).ok()
	page.get(link).ok()
	twin.get(link).ok()
	eve.get(link).want(400, "INVALID_TOKEN")
	if eve.user() == nil {
		t.Error("somebody else was signed out")
	}
	a.clock.advance(11 * time.Second)
	page.get(link).want(401, "UNAUTHORIZED")
}

// TestDeletionInAnotherBrowser: a link that is opened where its user is not signed in says so, and
// still works where they are.
func TestDeletionInAnotherBrowser(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	laptop, eve, phone := a.signedUp("ada@example.com"), a.signedUp("eve@example.com"), a.browser()
	laptop.post("/delete-user", object{}).ok()
	link := a.deliver("ada@example.com").Link
	for who, b := range map[string]*browser{"nobody": phone, "another user": eve} {
		b.navigating().get(link).page(true)
		page := b.pressing().do("POST", link, nil).page(false)
		if !strings.Contains(string(page.Body), "Sign in as a***@example.com in this browser") {
			t.Errorf("%s is not told what to do: %s", who, page.Body)
		}
	}
	laptop.navigating().get(link).page(true)
	laptop.pressing().do("POST", link, nil).page(false)
	if laptop.user() != nil {
		t.Error("the account was not deleted")
	}
}

func TestOneTimeTokenTwice(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{OneTimeTokens: true})
	token := decoded[struct{ Token string }](a.signedUp("ada@example.com").get("/one-time-token/generate").ok()).Token
	other := a.browser()
	id := func() any {
		return decoded[object](other.post("/one-time-token/verify", object{"token": token}).ok())["session"].(object)["id"]
	}
	if first := id(); id() != first {
		t.Error("handed on twice")
	}
	a.browser().post("/one-time-token/verify", object{"token": token}).want(400, "INVALID_TOKEN")
}

// A page that is loaded again while the provider sends the browser back.
func TestCallbackTwice(t *testing.T) {
	each(t, func(t *testing.T, w *world, p *idp) {
		b := w.browser()
		j := b.begin(p, "acme", nil)
		query := j.consent()
		dropped := b.twin()
		journey{dropped, p, "acme", nil}.back(query).lead("/new")
		j.back(query).lead("/new")
		j.back(query).lead("/new")
		if b.user() == nil {
			t.Error("not signed in")
		}
		if n := len(w.sessionsOf("ada@example.com")); n != 1 {
			t.Errorf("%d sessions", n)
		}
		journey{w.browser(), p, "acme", nil}.back(query).lead("/auth/error?error=state_mismatch")
		w.clock.advance(11 * time.Second)
		j.back(query).lead("/auth/error?error=state_mismatch")
	})
}
