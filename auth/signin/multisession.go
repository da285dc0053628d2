package signin

import (
	"context"
	"errors"
	"slices"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
)

// browserCookie proves which sessions are this browser's; maxSessions bounds
// how many those are.
const (
	browserCookie = "kit_browser"
	maxSessions   = 5
)

func (l *library) multiSessionRoutes() []route {
	if !l.cfg.MultiSession {
		return nil
	}
	return []route{
		get("/multi-session/list-device-sessions", rateRead, l.listDeviceSessions),
		post("/multi-session/set-active", rateWrite, l.setActive),
		post("/multi-session/revoke", rateWrite, l.revokeDeviceSession),
	}
}

// keepSession records that a session belongs to this browser. It ends an earlier one of the same
// user, and the oldest one if there are too many.
func (l *library) keepSession(c *call, session auth.Session) error {
	if !l.cfg.MultiSession {
		return nil
	}
	before, err := c.browserSessions()
	if err != nil {
		return err
	}
	old, secret := c.cookie(browserCookie), opaque.New() // a copy of the old one is not to find this session
	c.setCookie(browserCookie, secret, clientTTL)
	return l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		kept := 1
		for _, s := range before {
			if s.UserID != session.UserID && kept < maxSessions {
				kept++
				continue
			}
			if err := l.endSession(ctx, s.ID); err != nil {
				return err
			}
		}
		if err := l.store.moveBrowserSessions(ctx, opaque.Hash(old), opaque.Hash(secret)); err != nil {
			return err
		}
		return l.store.insertBrowserSession(ctx, opaque.Hash(secret), session.ID, l.host.DB.Now(ctx))
	})
}

// endSession ends a session that may have ended already.
func (l *library) endSession(ctx context.Context, sessionID string) error {
	if _, err := l.auth.Session(ctx, sessionID); err != nil {
		if errors.Is(err, auth.ErrSessionNotFound) {
			err = nil
		}
		return err
	}
	return l.auth.RevokeSession(ctx, sessionID)
}

// browserSessions returns the live sessions of this browser, newest first.
func (c *call) browserSessions() ([]auth.Session, error) {
	secret := c.cookie(browserCookie)
	if !c.l.cfg.MultiSession || secret == "" {
		return nil, nil
	}
	ids, err := c.l.store.browserSessions(c.Context(), opaque.Hash(secret))
	if err != nil {
		return nil, err
	}
	sessions := make([]auth.Session, 0, len(ids))
	for _, id := range ids {
		session, err := c.l.auth.Session(c.Context(), id)
		if errors.Is(err, auth.ErrSessionNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, session)
	}
	return sessions, nil
}

func (l *library) listDeviceSessions(c *call) (any, error) {
	sessions, err := c.browserSessions()
	if err != nil {
		return nil, err
	}
	out := make([]any, len(sessions))
	for i, session := range sessions {
		user, err := l.auth.User(c.Context(), session.UserID)
		if err != nil {
			return nil, err
		}
		if out[i], err = l.showBoth(c, session, user); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type chosenBody struct {
	SessionToken string `json:"sessionToken"`
}

// chosenSession returns the session of this browser that the request names. Refuses with
// INVALID_SESSION_TOKEN.
func (l *library) chosenSession(c *call) (chosen auth.Session, others []auth.Session, err error) {
	var in chosenBody
	if err := c.decode(&in); err != nil {
		return chosen, nil, err
	}
	sessions, err := c.browserSessions()
	if err != nil {
		return chosen, nil, err
	}
	i := slices.IndexFunc(sessions, func(s auth.Session) bool { return s.ID == in.SessionToken })
	if i < 0 {
		return chosen, nil, errInvalidSessionToken
	}
	return sessions[i], slices.Delete(slices.Clone(sessions), i, i+1), nil
}

func (l *library) setActive(c *call) (any, error) {
	session, _, err := l.chosenSession(c)
	if err != nil {
		return nil, err
	}
	user, err := l.auth.User(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	if err := l.resume(c, session); err != nil {
		return nil, err
	}
	return l.showBoth(c, session, user)
}

// resume makes a session of this browser the active one.
func (l *library) resume(c *call, session auth.Session) error {
	_, err := l.auth.Resume(c.w, c.r, session.ID)
	if errors.Is(err, auth.ErrSessionNotFound) {
		err = errInvalidSessionToken
	}
	return err
}

// revokeDeviceSession ends a session of this browser; after the active one
// another of them is.
func (l *library) revokeDeviceSession(c *call) (any, error) {
	chosen, others, err := l.chosenSession(c)
	if err != nil {
		return nil, err
	}
	active, signedIn, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	if err := l.endSession(c.Context(), chosen.ID); err != nil {
		return nil, err
	}
	switch {
	case !signedIn || active.ID != chosen.ID:
		return ok, nil
	case len(others) > 0:
		return ok, l.resume(c, others[0])
	default:
		return ok, l.auth.Leave(c.w, c.r)
	}
}

// leaveAll ends all sessions of this browser.
func (l *library) leaveAll(c *call) error {
	sessions, err := c.browserSessions()
	if err != nil || len(sessions) == 0 {
		return err
	}
	c.setCookie(browserCookie, "", 0)
	return l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		for _, s := range sessions {
			if err := l.endSession(ctx, s.ID); err != nil {
				return err
			}
		}
		return nil
	})
}
