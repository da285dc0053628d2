package signin_test

import (
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestMagicLink(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		page := a.browser()
		page.post("/sign-in/magic-link", object{"email": "ada@example.com", "name": "Ada", "callbackURL": pages + "/home", "newUserCallbackURL": "myapp://new"}).ok()
		mail := a.deliver("ada@example.com")
		if mail.Kind != auth.MailMagicLink || mail.ExpiresIn != 5*time.Minute {
			t.Errorf("%+v", mail)
		}
		a.scan(mail.Link)

		phone := a.browser() // another browser than the one that asked
		got := phone.navigating().get(mail.Link).page(true)
		if policy := got.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "form-action 'self' https://app.example myapp:") {
			t.Errorf("the button would not lead on: %s", policy)
		}
		if !strings.Contains(string(got.Body), "a***@example.com") || got.Header.Get("Referrer-Policy") != "same-origin" {
			t.Errorf("%s %v", got.Body, got.Header)
		}
		phone.pressing().do("POST", mail.Link, nil).lead("myapp://new")
		if user := phone.user(); user["name"] != "Ada" || user["emailVerified"] != true {
			t.Errorf("%v", user)
		}
		a.clock.advance(11 * time.Second)
		phone.pressing().do("POST", mail.Link, nil).lead(pages + "/home?error=INVALID_TOKEN")

		// The browser that asked signs in by opening the link.
		page.post("/sign-in/magic-link", object{"email": "ada@example.com", "callbackURL": "/home", "errorCallbackURL": "/failed"}).ok()
		link := a.deliver("ada@example.com").Link
		page.navigating().with("Sec-Purpose", "prefetch;prerender").get(link).page(true)
		page.navigating().get(link).lead("/home")
		if page.user() == nil {
			t.Error("not signed in")
		}
		page.navigating().get(link).lead("/home") // loaded again
		a.clock.advance(11 * time.Second)
		page.navigating().get(link).lead("/failed?error=INVALID_TOKEN")
	})
}

func TestMagicLinkRefusals(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.browser()
	page.post("/sign-in/magic-link", object{"email": "x"}).want(400, "VALIDATION_ERROR")
	page.post("/sign-in/magic-link", object{"email": "a@example.com", "callbackURL": "//evil.example"}).want(403, "INVALID_CALLBACK_URL")
	page.post("/sign-in/magic-link", object{"email": "a@example.com", "newUserCallbackURL": "//evil.example"}).want(403, "INVALID_NEW_USER_CALLBACK_URL")
	page.post("/sign-in/magic-link", object{"email": "a@example.com", "errorCallbackURL": "//evil.example"}).want(403, "INVALID_ERROR_CALLBACK_URL")

	page.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
	link := a.deliver("ada@example.com").Link
	page.pressing().do("POST", link+"&callbackURL=https%3A%2F%2Fevil.example", nil).want(403, "INVALID_CALLBACK_URL")
	page.pressing().with("Origin", "https://evil.example").with("Sec-Fetch-Site", "cross-site").do("POST", link, nil).want(403, "CROSS_SITE_NAVIGATION_LOGIN_BLOCKED")
	a.clock.advance(6 * time.Minute)
	page.get(link).want(400, "INVALID_TOKEN")
	page.navigating().get(link).page(false)
}

// better-auth's client signs in by a link's token from a script.
func TestMagicLinkByScript(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	page := a.browser()
	page.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
	got := decoded[object](page.get(a.deliver("ada@example.com").Link).ok())
	if got["token"] == "" || got["session"].(object)["userId"] != got["user"].(object)["id"] || page.user() == nil {
		t.Errorf("%v", got)
	}
}

// Of any number of uses of one link one signs in.
func TestLinkRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		a.browser().post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
		link := a.deliver("ada@example.com").Link
		if won := atOnce(50, func(int) bool { return a.browser().get(link).Status == 200 }); won != 1 {
			t.Errorf("%d of 50 signed in by one link", won)
		}
		user, _, err := a.UserByEmail(ctx, "ada@example.com")
		must(t, err)
		sessions, err := a.Sessions(ctx, user.ID)
		must(t, err)
		if len(sessions) != 1 {
			t.Errorf("%d sessions", len(sessions))
		}
	})
}

// atOnce runs n calls at once and counts those that won.
func atOnce(n int, try func(i int) bool) int64 {
	var won atomic.Int64
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			if try(i) {
				won.Add(1)
			}
		})
	}
	close(start)
	all.Wait()
	return won.Load()
}

// Links do not pile up, and those past their time are swept.
func TestLinksAreBounded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		count := func() int64 {
			n, _, err := database.Get(ctx, db, func(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) },
				`SELECT (SELECT count(*) FROM signin_link) + (SELECT count(*) FROM signin_code)`)
			must(t, err)
			return n
		}
		for i := range 5 {
			ask := a.browser()
			ask.post("/sign-in/magic-link", object{"email": "ada@example.com"}).want(200, "")
			a.work()
			a.clock.advance(time.Duration(i) * time.Second)
		}
		a.clock.advance(time.Hour)
		for range 4 {
			a.browser().post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
			a.work()
		}
		a.browser().post("/email-otp/send-verification-otp", object{"email": "ada@example.com", "type": "sign-in"}).ok()
		a.work()
		if n := count(); n > 6 {
			t.Errorf("%d live links and codes", n)
		}
		a.clock.advance(2 * time.Hour)
		a.work()
		if n := count(); n != 0 {
			t.Errorf("%d links and codes after the sweep", n)
		}
	})
}

// A mail that is too late to be of use is not sent.
func TestLateMail(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	a.browser().post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
	a.clock.advance(11 * time.Minute)
	a.work()
	if n := a.mail.count(); n != 0 {
		t.Errorf("%d mails", n)
	}
}

func FuzzTarget(f *testing.F) {
	for _, seed := range []string{
		"/home", "//evil.example", "/\\evil.example", "https://app.example/x", "https://app.example.evil.example", "https://app.example@evil.example",
		"javascript:alert(1)", "myapp://x", "\thttps://evil.example", "https:evil.example", "/%5cevil.example", "https://kit.example:443/",
	} {
		f.Add(seed)
	}
	a := open(f, databasetest.Memory(f), signin.Config{})
	f.Fuzz(func(t *testing.T, target string) {
		inner := *a
		inner.t = t
		got := inner.browser().navigating().get("/reset-password/none?callbackURL=" + url.QueryEscape(target))
		if got.Status != 302 {
			return
		}
		to, err := url.Parse(got.Header.Get("Location"))
		if err != nil {
			t.Fatalf("%q leads to %q", target, got.Header.Get("Location"))
		}
		switch origin := to.Scheme + "://" + to.Host; {
		case to.Scheme == "" && to.Host == "" && strings.HasPrefix(to.Path, "/") && !strings.HasPrefix(to.Path, "//") && !strings.Contains(got.Header.Get("Location"), "\\"):
		case origin == pages, strings.EqualFold(origin, baseURL), to.Scheme == "myapp":
		default:
			t.Errorf("%q leads to %q", target, got.Header.Get("Location"))
		}
	})
}
