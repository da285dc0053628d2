package signin_test

import (
	"encoding/base32"
	"maps"
	"net/url"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin"
)

const ada = "ada@example.org"

func (b *browser) signIn() *response {
	b.a.t.Helper()
	return b.post("/sign-in/email", object{"email": ada, "password": password}).ok()
}

// copy returns a thief of the cookies.
func (b *browser) copy() *browser {
	other := *b
	other.cookies = maps.Clone(b.cookies)
	return &other
}

// field returns a member of the body.
func (r *response) field(name string) any {
	r.t.Helper()
	return decoded[object](r)[name]
}

// lastOf returns the last mail of a kind.
func (o *outbox) lastOf(kind auth.MailKind) (last auth.Mail) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, m := range o.mails {
		if m.Kind == kind {
			last = m
		}
	}
	return last
}

// authenticator is an application that shows codes.
type authenticator struct {
	a      *app
	secret []byte
}

func authenticatorOf(b *browser, enabled *response) authenticator {
	b.a.t.Helper()
	uri, err := url.Parse(enabled.field("totpURI").(string))
	must(b.a.t, err)
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(uri.Query().Get("secret"))
	must(b.a.t, err)
	return authenticator{b.a, secret}
}

// code returns a code that was not used before.
func (a authenticator) code() string {
	a.a.clock.advance(30 * time.Second)
	return signin.TOTPCode(a.secret, a.a.clock.Now())
}

// enableTOTP gives a signed-in user an authenticator and backup codes.
func (b *browser) enableTOTP() (authenticator, []string) {
	b.a.t.Helper()
	enabled := b.post("/two-factor/enable", object{"password": password}).ok()
	app := authenticatorOf(b, enabled)
	b.post("/two-factor/verify-totp", object{"code": app.code()}).ok()
	return app, decoded[struct{ BackupCodes []string }](enabled).BackupCodes
}

func (a *app) userID() string {
	a.t.Helper()
	user, found, err := a.UserByEmail(ctx, ada)
	if err != nil || !found {
		a.t.Fatal(found, err)
	}
	return user.ID
}

// audited counts the events of an action.
func (a *app) audited(action string) (n int) {
	a.t.Helper()
	must(a.t, a.db.QueryRow(ctx, `SELECT COUNT(*) FROM audit_event WHERE action = $1`, action).Scan(&n))
	return n
}
