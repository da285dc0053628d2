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

// limits are limits in addition to auth's buckets, which are for each account at each client. A key
// is the account as it was named, whether it exists or not.
type limits struct {
	// strangers limits all clients together that the account does not know, so that many addresses
	// cannot guess at one account. It does not apply to a client that has signed in to the account
	// before; others can still request a mail.
	strangers *rate.Limiter
	slow      *slowLane
}

func newLimits(now func() time.Time) limits {
	return limits{strangers: rate.New(rate.Limit{Events: 100, Per: time.Hour}, now), slow: newSlowLane()}
}

// mayGuess counts one guess at an account, before anything about the account is read. A client that
// the account knows has a limit of its own. When unknown clients together have used up theirs,
// their guesses are delayed by seconds, but none is refused because of others. Refuses with
// TOO_MANY_REQUESTS.
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

// mails says how mails are counted: those that let the mailbox's owner sign in, and the others,
// which strangers therefore cannot use to delay the former.
type mails string

const (
	mailsIn    mails = "in"
	mailsOther mails = "other"
)

// mail sends a letter within the quota of its mailbox, which all nodes share. A client that the
// mailbox's owner has used before has a quota of its own, beyond which it is refused; beyond the
// quota of unknown clients their mails are delayed, see [library.mailOnce]. Refuses with
// TOO_MANY_REQUESTS and VERIFICATION_EMAIL_NOT_ENABLED.
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

// place returns the key by which an account's clients are limited.
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

// network returns the network of the client.
func (c *call) network() string {
	origin := capability.RequestInfoOf(c.Context())
	if origin == nil {
		return ""
	}
	return rate.AddressKey(origin.IP)
}

// widely returns the wider network of the client, which others share.
func (c *call) widely() string {
	origin := capability.RequestInfoOf(c.Context())
	if origin == nil {
		return ""
	}
	return rate.NetworkKey(origin.IP)
}

// secureName returns a cookie's name, with the prefix by which browsers on https accept it from
// this host alone.
func (l *library) secureName(name string) string {
	if l.host.BaseURL.Scheme == "https" {
		return "__Host-" + name
	}
	return name
}

// setCookie sets a cookie that scripts cannot read; an age of less than a second removes it.
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

// cookie returns the cookie of a name. Two of them count as none: another host may have set one.
func (c *call) cookie(name string) string {
	cookies := c.r.CookiesNamed(c.l.secureName(name))
	if len(cookies) != 1 {
		return ""
	}
	return cookies[0].Value
}
