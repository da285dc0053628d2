package signin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// Guessers are slowed down; the owner, who has signed in before, is not,
// however many addresses guess.
func TestGuessing(t *testing.T) {
	var lib *signin.TestLibrary
	a := openAuth(t, databasetest.Memory(t), auth.Config{Library: signin.NewForTest(signin.Config{}, &lib), RateLimits: unlimited})
	paused := lib.Paused()
	owner := a.signedUp("ada@example.com")
	owner.post("/sign-out", nil).ok()
	signIn := object{"email": "ada@example.com", "password": "wrong one"}
	for range 10 {
		a.browser().at("198.51.100.1").post("/sign-in/email", signIn).want(401, "INVALID_EMAIL_OR_PASSWORD")
	}
	refused := a.browser().at("198.51.100.1").post("/sign-in/email", signIn).want(429, "TOO_MANY_REQUESTS")
	if refused.Header.Get("Retry-After") == "" || refused.Header.Get("X-Retry-After") == "" {
		t.Errorf("%v", refused.Header)
	}
	var last *response
	for i := range 11 { // IPv6 clients change the last 64 bits at will
		last = a.browser().at(fmt.Sprintf("2001:db8::%d", i)).post("/sign-in/email", signIn)
	}
	last.want(429, "TOO_MANY_REQUESTS")
	for i := range 10 * 9 { // from everywhere
		a.browser().at(fmt.Sprintf("203.0.%d.1", i/9)).post("/sign-in/email", signIn).want(401, "INVALID_EMAIL_OR_PASSWORD")
	}
	if len(*paused) == 0 || (*paused)[0] < 2*time.Second {
		t.Errorf("guesses from everywhere were slowed down by %v", *paused)
	}
	right := object{"email": "ada@example.com", "password": password}
	a.browser().at("198.51.100.77").post("/sign-in/email", right).ok() // the owner, on a new device
	// One that the account knows, in a native application too, is not slowed down.
	phone := a.native()
	client := phone.at("198.51.101.1").post("/sign-in/email", right).ok().Header.Get("X-Kit-Client")
	before := len(*paused)
	phone.at("198.51.102.1").with("X-Kit-Client", client).post("/sign-in/email", right).ok()
	if len(*paused) != before {
		t.Error("a native client that the account knows was slowed down")
	}
	signIn["password"] = password
	owner.at("198.51.100.1").post("/sign-in/email", signIn).ok() // from where somebody guesses
	// Unknown addresses are limited alike, so that the limit tells nothing.
	for range 10 {
		a.browser().at("198.51.100.9").post("/sign-in/email", object{"email": "nobody@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")
	}
	a.browser().at("198.51.100.9").post("/sign-in/email", object{"email": "nobody@example.com", "password": password}).want(429, "TOO_MANY_REQUESTS")
}

// No caller can flood a mailbox; its owner's browser has its own share.
func TestMailboxIsNotFlooded(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
	owner := a.signedUp("ada@example.com")
	owner.post("/sign-out", nil).ok()
	a.work()
	before := a.mail.count()
	for i := range 20 {
		a.browser().at(fmt.Sprintf("203.0.113.%d", i)).post("/sign-in/magic-link", object{"email": "ada@example.com"})
	}
	a.work()
	if n := a.mail.count() - before; n != 5 {
		t.Errorf("%d mails in half an hour", n)
	}
	// Strangers delay the mail that they ask for, and the owner's with it; they do
	// not keep it back.
	a.browser().at("198.51.100.9").post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
	a.clock.advance(6 * time.Minute)
	a.work()
	if n := a.mail.count() - before; n != 6 {
		t.Errorf("%d mails six minutes later, want 6", n)
	}
	owner.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
}

func TestAddressLimits(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{Library: signin.Quick(signin.Config{})})
	for path, n := range map[string]int{"/sign-in/email": 3, "/request-password-reset": 3, "/sign-in/magic-link": 5} {
		// No password, or no address: refused before anything is looked up.
		for range n {
			a.browser().post(path, object{"email": "x"}).want(400, "VALIDATION_ERROR")
		}
		a.browser().post(path, object{"email": "x"}).want(429, "TOO_MANY_REQUESTS")
		a.browser().at("192.0.2.200").post(path, object{"email": "x"}).want(400, "VALIDATION_ERROR")
	}
	for range 50 { // reading one's session is no sign-in
		a.browser().get("/get-session").ok()
	}
}

// The mails of a mailbox are counted over all nodes.
func TestMailsAreCountedOverNodes(t *testing.T) {
	for _, dbs := range [][]*database.DB{databasetest.Shared(t, 2)} {
		start := &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
		var nodes []*app
		for _, db := range dbs {
			nodes = append(nodes, openAt(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: unlimited}, baseURL, start))
		}
		for i := range 20 {
			nodes[i%2].browser().at(fmt.Sprintf("203.0.%d.1", i)).post("/sign-in/magic-link", object{"email": ada}).ok()
		}
		n := 0
		for _, node := range nodes {
			node.work()
			n += node.mail.count()
		}
		if n != 5 {
			t.Errorf("%d mails by two nodes, want 5", n)
		}
	}
}

// A browser that another user signs in with is not known to the first any more.
func TestClientIsOneUsers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{})
		shared := a.signedUp(ada)
		first := shared.cookies["__Host-kit_client"]
		shared.post("/sign-out", nil).ok()
		shared.post("/sign-up/email", object{"email": "eve@example.com", "password": password}).ok()
		if got := shared.cookies["__Host-kit_client"]; got == first || got == "" {
			t.Errorf("the second user got the client %q of the first", got)
		}
	})
}

// Without anything that sends mail, asking for a link or a code is refused.
func TestMailWithoutAMailer(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: unlimited, Mailer: nobody{}})
	for path, body := range map[string]object{
		"/sign-in/magic-link":               {"email": ada},
		"/request-password-reset":           {"email": ada},
		"/email-otp/send-verification-otp":  {"email": ada, "type": "sign-in"},
		"/send-verification-email":          {"email": ada},
		"/email-otp/request-password-reset": {"email": ada},
	} {
		a.browser().post(path, body).want(503, "VERIFICATION_EMAIL_NOT_ENABLED")
	}
	a.signedUp(ada)
}

// Users who never prove the address that they must prove are removed, and nobody
// else.
func TestNewcomersAreSwept(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		a := open(t, db, signin.Config{RequireVerification: true})
		for _, address := range []string{ada, "eve@example.com"} {
			a.browser().post("/sign-up/email", object{"email": address, "password": password}).ok()
		}
		a.verify(ada)
		_, err := a.CreateUser(ctx, auth.NewUser{Email: "imported@example.com"})
		must(t, err)
		for _, days := range []int{29, 2} {
			a.clock.advance(time.Duration(days) * 24 * time.Hour)
			_, err := a.queue.Enqueue(ctx, "SIGNIN_SWEEP", nil)
			must(t, err)
			a.work()
			_, found, err := a.UserByEmail(ctx, "eve@example.com")
			if must(t, err); found != (days == 29) {
				t.Errorf("there %v after %d days more", found, days)
			}
		}
		for _, address := range []string{ada, "imported@example.com"} {
			if _, found, err := a.UserByEmail(ctx, address); err != nil || !found {
				t.Errorf("%s is gone: %v", address, err)
			}
		}
	})
}

// A user who has entered while no address had to be proved is no newcomer any more,
// whether or not a session is left.
func TestUsersWhoEnteredAreNotSwept(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		strict := open(t, db, signin.Config{RequireVerification: true})
		strict.browser().post("/sign-up/email", object{"email": ada, "password": password}).ok()
		lax := openAt(t, db, auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: unlimited}, baseURL, strict.clock)
		lax.browser().post("/sign-in/email", object{"email": ada, "password": password, "rememberMe": false}).ok()
		lax.clock.advance(31 * 24 * time.Hour)
		for _, a := range []*app{lax, strict} {
			_, err := a.queue.Enqueue(ctx, "SIGNIN_SWEEP", nil)
			must(t, err)
			a.work()
			a.userID()
		}
	})
}

// One address signs up a few users an hour.
func TestSignUpsOfAnAddress(t *testing.T) {
	limits := map[string]auth.RateLimit{"auth-sign-in": {Events: -1}, "sign-up": {Events: 3, Per: time.Hour}, "sign-up-network": {Events: 5, Per: time.Hour}}
	a := openAuth(t, databasetest.Memory(t), auth.Config{Library: signin.Quick(signin.Config{}), RateLimits: limits})
	n := 0
	join := func(ip string) *response {
		n++
		return a.browser().at(ip).post("/sign-up/email", object{"email": fmt.Sprintf("u%d@example.com", n), "password": password})
	}
	for range 3 {
		join("2001:db8:1:1::1").ok()
	}
	join("2001:db8:1:1::2").want(429, "TOO_MANY_REQUESTS")
	join("2001:db8:1:2::1").ok() // another /64
	join("2001:db8:1:3::1").ok()
	join("2001:db8:1:4::1").want(429, "TOO_MANY_REQUESTS") // of the same /48
	join("2001:db8:2:1::1").ok()
}
