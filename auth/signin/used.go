package signin

import (
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

// A link works once. But effects run twice in React's StrictMode and buttons are pressed twice, and
// the second call should not show an error for a success: for some seconds the browser that used a
// link gets the same response again, without a second effect.
const (
	againTTL = 10 * time.Second
	// usingTTL bounds how long a call that uses a link may be under way.
	usingTTL = time.Minute
	// usingLook is the interval at which a second call checks whether the first has ended,
	// usingLooks how often it does.
	usingLook  = 100 * time.Millisecond
	usingLooks = 100
)

// kindState is the kind of a state that was used at a provider.
func kindState(provider string) string { return "oauth:" + provider }

// browserHash returns the hash of a cookie that this browser had before it used a link, or nil.
func (c *call) browserHash() []byte {
	if isNative(c.r) {
		return nil
	}
	if asker := c.asker(); asker != nil {
		return asker
	}
	if secret := c.cookie(clientCookie); secret != "" {
		return opaque.Hash(secret)
	}
	return nil
}

// using records that a call is using a link; it runs in the transaction that takes the link.
// [library.settle] follows.
func (l *library) using(ctx context.Context, token, kind, userID string, browser []byte) error {
	return l.store.putUsed(ctx, used{
		hash: opaque.Hash(token), kind: kind, userID: userID, browser: browser,
		expiresAt: l.host.DB.Now(ctx).Add(usingTTL),
	})
}

// settle records the result of a link: its target, and the session it made, if any.
func (l *library) settle(ctx context.Context, u used) error {
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		u.settled, u.expiresAt = true, l.host.DB.Now(ctx).Add(againTTL)
		return l.store.putUsed(ctx, u)
	})
}

// settleEntry settles a link that signed in.
func (l *library) settleEntry(c *call, token, kind string, e entry, target string) error {
	return l.settle(c.Context(), used{
		hash: opaque.Hash(token), kind: kind, userID: e.user.ID, sessionID: e.in.Session.ID, target: target,
	})
}

// unsettled removes the record of a link whose use failed, and returns err.
func (l *library) unsettled(c *call, token string, err error) error {
	if failed := l.store.deleteUsed(c.Context(), opaque.Hash(token)); failed != nil {
		return failed
	}
	return err
}

// justUsed returns the result of a link that was used a few seconds ago.
func (l *library) justUsed(ctx context.Context, token, kind string) (used, bool, error) {
	if len(token) != opaque.Length {
		return used{}, false, nil
	}
	u, found, err := l.store.used(ctx, opaque.Hash(token), kind)
	return u, found && l.host.DB.Now(ctx).Before(u.expiresAt), err
}

// again returns the result of a link for the browser that used it: the one with the session that
// the link made or, before that session's cookie has arrived, with the cookie it had before. It
// waits for a use that is under way.
func (l *library) again(c *call, token, kind string, browser []byte) (u used, own, ok bool, err error) {
	for range usingLooks {
		var found bool
		if u, found, err = l.justUsed(c.Context(), token, kind); err != nil || !found {
			return used{}, false, false, err
		}
		same := len(browser) > 0 && subtle.ConstantTimeCompare(browser, u.browser) == 1
		if u.settled {
			session, signedIn, err := c.maybeSession()
			own = signedIn && u.sessionID != "" && session.ID == u.sessionID
			return u, own, own || same, err
		}
		if !same {
			return used{}, false, false, nil
		}
		look := time.NewTimer(usingLook)
		select {
		case <-look.C:
		case <-c.Context().Done():
			look.Stop()
			return used{}, false, false, c.Context().Err()
		}
	}
	return used{}, false, false, nil
}

// enteredAgain is the entry of a link that [library.again] has returned. A page
// whose first response was dropped gets the session's cookie once more; a script
// does not, since both of its responses arrive, in any order. ok is false when the
// session has ended.
func (l *library) enteredAgain(c *call, u used, own bool, method string) (e entry, ok bool, err error) {
	if e.user, err = l.auth.User(c.Context(), u.userID); err != nil {
		return entry{}, false, notFoundIsNone(err, auth.ErrUserNotFound)
	}
	if err := l.mayEnter(e.user); err != nil {
		return entry{}, false, err
	}
	if u.sessionID == "" {
		e.challenge, ok, err = l.challenge(c, e.user, method, true, nil)
		return e, ok, err
	}
	if !own && !c.fromScript() {
		e.in, err = l.auth.Resume(c.w, c.r, u.sessionID)
		return e, err == nil, notFoundIsNone(err, auth.ErrSessionNotFound)
	}
	if e.in.Session, err = l.auth.Session(c.Context(), u.sessionID); err != nil {
		return entry{}, false, notFoundIsNone(err, auth.ErrSessionNotFound)
	}
	if e.in.AccessToken, err = l.auth.SessionAccessToken(c.Context(), e.in.Session); err != nil {
		return entry{}, false, err
	}
	return e, true, c.bearerTokens(e.in.Session, e.in.AccessToken)
}

// notFoundIsNone returns nil for a refusal that says that something is gone.
func notFoundIsNone(err, gone error) error {
	if errors.Is(err, gone) {
		return nil
	}
	return err
}
