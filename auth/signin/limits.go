package signin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/wait"
)

// limits are what auth's own buckets, for each account at each client, leave to
// add. A key is the account as it was named, whether it exists or not.
type limits struct {
	// strangers is for all clients together that the account does not know. It
	// stops many addresses that guess at one account; a client that has signed
	// in to it before is not one of them, and one that has not can still have a mail.
	strangers *rate.Limiter
	slow      *slowLane
}

func newLimits(now func() time.Time) limits {
	return limits{strangers: rate.New(rate.Limit{Events: 100, Per: time.Hour}, now), slow: newSlowLane()}
}

// mayGuess takes one try at what proves an account, before anything about the
// account is looked at. A client that the account knows shares its tries with
// nobody. When strangers together have used up theirs, theirs take seconds, and
// none is refused for what others did. Refuses with TOO_MANY_REQUESTS.
func (c *call) mayGuess(account string, known bool) error {
	err := c.allowed(c.l.auth.AllowAccount("sign-in", account+"\x00"+c.place(known)))
	if err != nil || known {
		return err
	}
	if _, ok := c.l.limits.strangers.Allow(account); ok {
		return nil
	}
	ok, err := c.l.limits.slow.wait(c.Context(), account, c.widely())
	if err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	return c.allowed(slowLeast, ok)
}

// mails are counted apart by whether they let the mailbox's owner in: when
// strangers have those delayed, that user has the last of them, and the others let
// strangers delay nothing else.
type mails string

const (
	mailsIn    mails = "in"
	mailsOther mails = "other"
)

// mail sends a letter within the quota of its mailbox, which all nodes share. A
// client that the mailbox's owner has used before shares its mails with nobody
// and is refused beyond them; the mails of strangers beyond theirs are delayed,
// see [library.mailOnce]. Refuses with TOO_MANY_REQUESTS and
// VERIFICATION_EMAIL_NOT_ENABLED.
func (c *call) mail(ctx context.Context, what mails, mailbox string, known bool, m letter) error {
	if !c.l.auth.CanMail() {
		return errMailUnavailable
	}
	limit, on := c.l.auth.AccountLimit("send")
	if !on {
		return c.l.send(ctx, m)
	}
	key := string(what) + "\x00" + mailbox
	if known {
		key += "\x00" + c.place(known)
	}
	wait, ok, err := c.l.spend(ctx, limit, "send", key)
	switch {
	case err != nil:
		return err
	case ok:
		return c.l.send(ctx, m)
	case known || m.Address != mailbox:
		return c.allowed(wait, false)
	default:
		return c.l.mailOnce(ctx, what, m, wait)
	}
}

// mailTo is mail for any caller, to the address of the letter.
func (c *call) mailTo(ctx context.Context, what mails, m letter) error {
	user, _, err := c.l.auth.UserByEmail(ctx, m.Address)
	if err != nil {
		return err
	}
	known, err := c.in(ctx).knownTo(user.ID)
	if err != nil {
		return err
	}
	return c.mail(ctx, what, m.Address, known, m)
}

// place tells clients at one account apart.
func (c *call) place(known bool) string {
	if secret := c.clientSecret(); known && secret != "" {
		return string(opaque.Hash(secret))
	}
	return c.network()
}

func (c *call) allowed(after time.Duration, ok bool) error {
	if ok {
		return nil
	}
	wait.Tell(c.w.Header(), after)
	return errTooManyRequests
}

// network is where the client is.
func (c *call) network() string {
	origin := capability.RequestInfoOf(c.Context())
	if origin == nil {
		return ""
	}
	return rate.AddressKey(origin.IP)
}

// widely is the network that the client is in, which others share.
func (c *call) widely() string {
	origin := capability.RequestInfoOf(c.Context())
	if origin == nil {
		return ""
	}
	return rate.NetworkKey(origin.IP)
}

// secureName is a cookie's name where the kit is on https: browsers then take
// it from this very host alone.
func (l *library) secureName(name string) string {
	if l.host.BaseURL.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// setCookie gives the browser a cookie for our eyes only; an age of less than
// a second removes it.
func (c *call) setCookie(name, value string, age time.Duration) {
	seconds := int(age / time.Second)
	if seconds <= 0 {
		seconds = -1
	}
	http.SetCookie(c.w, &http.Cookie{
		Name: c.l.secureName(name), Value: value, Path: "/", MaxAge: seconds,
		Secure: strings.HasPrefix(c.l.secureName(name), "__Host-"), HttpOnly: true, SameSite: c.l.auth.CookieSameSite(),
	})
}

// cookie returns the one cookie of a name. Two of them are none: one may have
// been set from elsewhere.
func (c *call) cookie(name string) string {
	cookies := c.r.CookiesNamed(c.l.secureName(name))
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}
