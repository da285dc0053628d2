package signin_test

import (
	"fmt"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
	"github.com/kitbackend/kit/database/databasetest"
)

// Whoever guesses is slowed down; the owner, who has signed in before, is not,
// however many addresses guess.
func TestGuessing(t *testing.T) {
	a := open(t, databasetest.Memory(t), signin.Config{})
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
	var last *answer
	for i := range 11 { // IPv6 clients change the last 64 bits at will
		last = a.browser().at(fmt.Sprintf("2001:db8::%d", i)).post("/sign-in/email", signIn)
	}
	last.want(429, "TOO_MANY_REQUESTS")
	for i := range 10 * 9 { // from everywhere
		last = a.browser().at(fmt.Sprintf("203.0.113.%d", i/9)).post("/sign-in/email", signIn)
	}
	last.want(429, "TOO_MANY_REQUESTS")
	signIn["password"] = password
	owner.at("198.51.100.1").post("/sign-in/email", signIn).ok() // from where somebody guesses
	// Unknown addresses are limited alike, so that the limit tells nothing.
	for range 10 {
		a.browser().at("198.51.100.9").post("/sign-in/email", object{"email": "nobody@example.com", "password": password}).want(401, "INVALID_EMAIL_OR_PASSWORD")
	}
	a.browser().at("198.51.100.9").post("/sign-in/email", object{"email": "nobody@example.com", "password": password}).want(429, "TOO_MANY_REQUESTS")
}

// A mailbox is not flooded, whoever asks; its owner's browser has its own share.
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
	owner.post("/sign-in/magic-link", object{"email": "ada@example.com"}).ok()
}

func TestAddressLimits(t *testing.T) {
	a := openAuth(t, databasetest.Memory(t), auth.Config{Library: signin.New(signin.Config{})})
	for path, n := range map[string]int{"/sign-in/email": 3, "/request-password-reset": 3, "/sign-in/magic-link": 5} {
		for range n {
			a.browser().post(path, object{"email": "x"}).want(400, "INVALID_EMAIL")
		}
		a.browser().post(path, object{"email": "x"}).want(429, "TOO_MANY_REQUESTS")
		a.browser().at("192.0.2.200").post(path, object{"email": "x"}).want(400, "INVALID_EMAIL")
	}
	for range 50 { // reading one's session is no sign-in
		a.browser().get("/get-session").ok()
	}
}
