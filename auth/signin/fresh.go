package signin

import (
	"context"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/capability"
)

// freshHeader carries, in the response to a proof, a token that shows for ten minutes that the user
// has given it, for clients that prove their session by access tokens.
const freshHeader = "X-Kit-Fresh"

// fresh returns the session of a caller who may change how the user signs in:
// its cookie or session token, with a sign-in or a proof within FreshAge, or a
// fresh proof in X-Kit-Fresh. An access token alone never suffices. Refuses with
// UNAUTHORIZED and SESSION_NOT_FRESH.
func (c *call) fresh() (auth.Session, error) {
	session, err := c.session()
	if err == nil && !c.isFresh(session) {
		err = errSessionNotFresh
	}
	return session, err
}

func (c *call) isFresh(session auth.Session) bool {
	fresh, _ := c.l.auth.Fresh(c.r, session, c.l.cfg.FreshAge)
	return fresh
}

// recent returns a session that began or was confirmed within FreshAge, whatever proves it, for
// routes that change nothing. Refuses with UNAUTHORIZED and SESSION_NOT_FRESH.
func (c *call) recent() (auth.Session, error) {
	session, err := c.session()
	if err == nil && c.l.host.Now().Sub(session.ConfirmedAt) >= c.l.cfg.FreshAge {
		err = errSessionNotFresh
	}
	return session, err
}

// freshOr accepts a fresh session or the password of its user. Refuses with SESSION_NOT_FRESH and
// as provePassword does.
func (c *call) freshOr(user auth.User, session auth.Session, password string) error {
	if password == "" {
		if !c.isFresh(session) {
			return errSessionNotFresh
		}
		return nil
	}
	if _, err := c.l.provePassword(c, user, password); err != nil {
		return err
	}
	return c.passwordSuffices(user, session)
}

// passwordSuffices checks whether a right password is enough to change how the user of a session
// signs in: if a second factor is on, the session must be fresh too. Refuses with
// SESSION_NOT_FRESH.
func (c *call) passwordSuffices(user auth.User, session auth.Session) error {
	enabled, err := c.l.twoFactorEnabled(c.Context(), user.ID)
	if err == nil && enabled && !c.isFresh(session) {
		err = errSessionNotFresh
	}
	return err
}

// confirm records a proof that the user of a session has just given, and sends the client the token
// that shows it. A password alone confirms nothing if a second factor is on.
func (c *call) confirm(session auth.Session, second bool) error {
	if !second {
		enabled, err := c.l.twoFactorEnabled(c.Context(), session.UserID)
		if err != nil || enabled {
			return err
		}
	}
	if err := c.l.auth.Confirm(c.Context(), session.ID, second); err != nil {
		return err
	}
	token, err := c.l.auth.FreshToken(session, second)
	if err == nil {
		c.w.Header().Set(freshHeader, token)
	}
	return err
}

// confirmed reads the body of a route that changes a second factor. It asks a
// signed-in user for the password, one without a password for a fresh session,
// and, where a second factor is on, for that: proved in this session within
// FreshAge, or by a code in the body. Refuses with UNAUTHORIZED,
// INVALID_PASSWORD, SESSION_NOT_FRESH, TOO_MANY_REQUESTS and as
// [library.prove] does.
func (c *call) confirmed(in *enableBody) (auth.User, auth.Session, error) {
	user, session, err := c.user()
	if err != nil {
		return user, session, err
	}
	if err := c.decode(in); err != nil {
		return user, session, err
	}
	_, has, err := c.l.store.password(c.Context(), user.ID)
	if err == nil && has {
		_, err = c.l.provePassword(c, user, in.Password)
	}
	if err == nil {
		err = c.factorProved(user, session, in.Code, has)
	}
	return user, session, err
}

// factorProved asks for the second factor of a user who has one; of another, who has
// not given a password either, for a fresh session: no code is a proof there.
func (c *call) factorProved(user auth.User, session auth.Session, code string, password bool) error {
	state, _, err := c.l.factors.State(c.Context(), user.ID)
	if err != nil {
		return err
	}
	fresh, proved := c.l.auth.Fresh(c.r, session, c.l.cfg.FreshAge)
	switch {
	case proved, !state.Enabled && (password || fresh):
		return nil
	case !state.Enabled || code == "":
		return errSessionNotFresh
	}
	return c.l.prove(c, prover{user: user, session: session}, func(ctx context.Context, state factor.State) (*capability.Error, error) {
		if len(strings.TrimSpace(code)) == factor.Digits {
			return c.l.factors.TakeTOTP(ctx, state, code)
		}
		return c.l.takeBackupCode(ctx, user, state, code)
	})
}
