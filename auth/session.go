package auth

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/random"
)

const (
	secretSize = 32
	// maxTouchEvery is the longest interval at which the use of a session is written.
	maxTouchEvery = time.Hour
	// maxSessions bounds the sessions of a user, so that all can be listed, and
	// ended in one transaction.
	maxSessions = 1000
)

// origin is where a session comes from.
type origin struct{ ip, userAgent string }

func originOf(ctx context.Context) origin {
	if o := capability.RequestInfoOf(ctx); o != nil {
		return origin{o.IP, o.UserAgent}
	}
	return origin{}
}

// newSession holds the facts of a new session; without a device of the user it gets a new one.
type newSession struct {
	user, device, deviceName string
	methods                  []string
	remember, factor         bool
	still                    func(context.Context) error
}

// CreateSession signs a user in without a request. The caller gives the client the
// [Auth.SessionCookie] and the [Auth.CSRFToken] of the session. Refuses with auth/user_not_found
// and auth/user_disabled.
func (a *Auth) CreateSession(ctx context.Context, userID string) (session Session, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		session, err = a.createSession(ctx, newSession{user: userID, remember: true})
		return err
	})
	return session, err
}

// createSession runs in a transaction. It deletes the user's expired sessions, and ends the least
// recently used one if there are too many.
func (a *Auth) createSession(ctx context.Context, n newSession) (Session, error) {
	user, found, err := a.store.lockUser(ctx, n.user)
	switch {
	case err != nil:
		return Session{}, err
	case !found:
		return Session{}, ErrUserNotFound
	case !user.DisabledAt.IsZero():
		return Session{}, ErrUserDisabled
	}
	if n.still != nil {
		if err := n.still(ctx); err != nil {
			return Session{}, err
		}
	}
	now, from := a.host.DB.Now(ctx), originOf(ctx)
	if err := a.store.deleteExpiredSessions(ctx, n.user, now); err != nil {
		return Session{}, err
	}
	if err := a.endOldest(ctx, n.user); err != nil {
		return Session{}, err
	}
	known, err := a.store.hasDevice(ctx, n.user, n.device)
	if err != nil {
		return Session{}, err
	}
	if !known {
		device := Device{ID: id.New(now), UserID: n.user, Name: n.deviceName, UserAgent: from.userAgent, IP: from.ip, CreatedAt: now, LastSeenAt: now}
		if err := a.store.insertDevice(ctx, device); err != nil {
			return Session{}, err
		}
		n.device = device.ID
	}
	secret := newSecret()
	session := Session{
		ID: id.New(now), UserID: n.user, DeviceID: n.device, Methods: n.methods, Remembered: n.remember,
		IP: from.ip, UserAgent: from.userAgent,
		CreatedAt: now, UpdatedAt: now, EndsAt: now.Add(a.cfg.SessionAbsolute),
		ConfirmedAt: now, usedDay: day(now), Proof: ProofCookie,
		secret: func() []byte { return secret },
	}
	if n.factor {
		session.FactorAt = now
	}
	session.ExpiresAt = a.idleEnd(session, now)
	session.refresh.sealed = a.newRefreshKey(session.ID)
	if err := a.store.insertSession(ctx, session, hashed(secret)); err != nil {
		return Session{}, err
	}
	return session, a.host.Hooks.SessionStarted.Fire(ctx, hooks.Session{UserID: n.user, SessionID: session.ID, At: now})
}

// day counts the UTC days from 1970.
func day(at time.Time) int64 { return at.Unix() / (24 * 60 * 60) }

// endOldest makes room for one more session.
func (a *Auth) endOldest(ctx context.Context, userID string) error {
	ended, err := a.store.deleteOldestSessions(ctx, userID, maxSessions-1)
	if err != nil || len(ended) == 0 {
		return err
	}
	if err := a.store.deleteIdleDevices(ctx, userID); err != nil {
		return err
	}
	if err := a.ended(ctx, userID, "superseded", ended...); err != nil {
		return err
	}
	return a.record(ctx, "auth/sessions_revoked", userID, map[string]any{"sessions": len(ended), "atMost": maxSessions})
}

// newSecret returns the random content of a session cookie.
func newSecret() []byte {
	return random.Bytes(secretSize)
}

// idleEnd returns when a session that was just used expires. A clock that went back does not end it
// before it began.
func (a *Auth) idleEnd(s Session, now time.Time) time.Time {
	if now.Before(s.CreatedAt) {
		now = s.CreatedAt
	}
	idle := a.cfg.SessionIdle
	if !s.Remembered {
		idle = min(idle, unremembered)
	}
	if end := now.Add(idle); end.Before(s.EndsAt) {
		return end
	}
	return s.EndsAt
}

// session verifies the session cookie by reading its row, so a session that
// ended on any node ends here.
func (a *Auth) session(r *http.Request) (caller capability.Caller, ok bool, err error) {
	session, ok, err := a.cookieSession(r)
	if err != nil || !ok {
		return capability.Caller{}, false, err
	}
	return capability.Caller{Strategy: capability.StrategySession, UserID: session.UserID, SessionID: session.ID}, true, nil
}

// cookieSession returns the live session of the request's cookie; ok is false
// without a cookie. Its use moves the idle end. Refuses with
// auth/unauthenticated.
func (a *Auth) cookieSession(r *http.Request) (session Session, ok bool, err error) {
	secret, given := a.secret(r)
	if !given {
		a.warnCrossSite(r)
		return Session{}, false, nil
	}
	now, hash := a.host.Now(), hashed(secret)
	if a.madeUp.refuses(r.Context(), string(hash)) {
		return Session{}, false, capability.ErrRateLimited
	}
	session, found, err := a.store.sessionBySecret(r.Context(), hash, now)
	if err != nil {
		return Session{}, false, unavailable("reading the session", err)
	}
	if !found {
		a.madeUp.found(r.Context())
		return Session{}, false, capability.ErrUnauthenticated
	}
	a.madeUp.trust(string(hash))
	session.secret, session.Proof = func() []byte { return secret }, ProofCookie
	session, err = a.used(r.Context(), session, now)
	return session, err == nil, err
}

// used writes the use of a session if that is due: at least once a day, so that hooks run for each
// day.
func (a *Auth) used(ctx context.Context, s Session, now time.Time) (Session, error) {
	if now.Sub(s.UpdatedAt) < a.touchEvery() && day(now) <= s.usedDay {
		return s, nil
	}
	s, err := a.touch(ctx, s, now)
	if err != nil {
		return Session{}, unavailable("writing the use of the session", err)
	}
	return s, nil
}

// touchEvery returns an hour, or less if a session could expire unused in that time.
func (a *Auth) touchEvery() time.Duration { return min(maxTouchEvery, a.cfg.SessionIdle/10) }

// touch writes the use of a session and its device.
func (a *Auth) touch(ctx context.Context, s Session, now time.Time) (Session, error) {
	from, before := originOf(ctx), s.UpdatedAt
	first := day(now) > s.usedDay
	s.UpdatedAt, s.ExpiresAt, s.IP, s.UserAgent, s.Renewed = now, a.idleEnd(s, now), from.ip, from.userAgent, true
	s.usedDay = max(s.usedDay, day(now))
	err := a.host.DB.InTx(ctx, func(ctx context.Context) error {
		touched, err := a.store.touchSession(ctx, s, before)
		if err != nil || !touched { // another request has, or the session has just ended
			return err
		}
		if err := a.store.touchDevice(ctx, s.DeviceID, from, now); err != nil || !first {
			return err
		}
		return a.host.Hooks.SessionUsed.Fire(ctx, hooks.Session{UserID: s.UserID, SessionID: s.ID, At: now})
	})
	return s, err
}

// Sessions lists a user's live sessions, newest first. There are at most 1000: a further sign-in
// ends the least recently used one.
func (a *Auth) Sessions(ctx context.Context, userID string) ([]Session, error) {
	return a.store.sessionsOf(ctx, userID, a.host.Now(), maxSessions)
}

// Session returns a live session by its id. Refuses with
// auth/session_not_found.
func (a *Auth) Session(ctx context.Context, sessionID string) (Session, error) {
	session, found, err := a.store.sessionByID(ctx, sessionID, a.host.Now())
	if err == nil && !found {
		err = ErrSessionNotFound
	}
	return session, err
}

// RevokeSession ends a session: its cookie and its tokens are refused from the
// commit on. Refuses with auth/session_not_found.
func (a *Auth) RevokeSession(ctx context.Context, sessionID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		user, err := a.endSession(ctx, sessionID, "revoked")
		if err != nil {
			return err
		}
		return a.record(ctx, "auth/session_revoked", user, nil, audit.Target{Type: "session", ID: sessionID})
	})
}

// endSession runs in a transaction and returns the owner of the session. Every change of sessions
// locks the user first, so that devices and sessions stay consistent.
func (a *Auth) endSession(ctx context.Context, sessionID, reason string) (user string, err error) {
	user, found, err := a.store.userOfSession(ctx, sessionID)
	if err != nil || !found {
		return "", errOr(err, ErrSessionNotFound)
	}
	if _, _, err := a.store.lockUser(ctx, user); err != nil {
		return "", err
	}
	if found, err = a.store.deleteSession(ctx, sessionID); err != nil || !found {
		return "", errOr(err, ErrSessionNotFound)
	}
	if err := a.store.deleteIdleDevices(ctx, user); err != nil {
		return "", err
	}
	return user, a.ended(ctx, user, reason, sessionID)
}

// ended revokes the tokens of ended sessions and fires the hooks. It runs in the transaction that
// deletes their rows.
func (a *Auth) ended(ctx context.Context, userID, reason string, sessions ...string) error {
	if err := a.revoke(ctx, sessions...); err != nil {
		return err
	}
	for _, session := range sessions {
		event := hooks.SessionEnded{UserID: userID, SessionID: session, Reason: reason}
		if err := a.host.Hooks.SessionEnded.Fire(ctx, event); err != nil {
			return err
		}
	}
	return nil
}

// RevokeOthers ends all sessions of a user but keep, and revokes the tokens of [Auth.IssueToken].
// It returns how many sessions it ended. It is for changes to how the user signs in. An empty keep
// ends all. Refuses with auth/user_not_found.
func (a *Auth) RevokeOthers(ctx context.Context, userID, keep string) (sessions int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if sessions, err = a.endAllBut(ctx, userID, keep); err != nil {
			return err
		}
		return a.record(ctx, "auth/sessions_revoked", userID, map[string]any{"sessions": sessions, "kept": keep})
	})
	return sessions, err
}

// RevokeUser ends all sessions of a user and returns how many there were; the
// tokens of [Auth.IssueToken] end too. Refuses with auth/user_not_found.
func (a *Auth) RevokeUser(ctx context.Context, userID string) (sessions int, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if sessions, err = a.endAll(ctx, userID); err != nil {
			return err
		}
		return a.record(ctx, "auth/sessions_revoked", userID, map[string]any{"sessions": sessions})
	})
	return sessions, err
}

func (a *Auth) endAll(ctx context.Context, userID string) (sessions int, err error) {
	return a.endAllBut(ctx, userID, "")
}

// endAllBut runs in a transaction.
func (a *Auth) endAllBut(ctx context.Context, userID, keep string) (sessions int, err error) {
	if _, found, err := a.store.lockUser(ctx, userID); err != nil || !found {
		return 0, errOr(err, ErrUserNotFound)
	}
	family, _, err := a.store.tokenFamily(ctx, userID)
	if err != nil {
		return 0, err
	}
	if err := a.store.setTokenFamily(ctx, userID, id.New(a.host.DB.Now(ctx))); err != nil {
		return 0, err
	}
	ended, err := a.store.deleteSessionsBut(ctx, userID, keep)
	if err != nil {
		return 0, err
	}
	if err := a.store.deleteIdleDevices(ctx, userID); err != nil {
		return 0, err
	}
	if err := a.revoke(ctx, family.id); err != nil || len(ended) == 0 {
		return 0, err
	}
	return len(ended), a.ended(ctx, userID, "revoked", ended...)
}

// record writes an event about a user.
func (a *Auth) record(ctx context.Context, action, userID string, detail any, targets ...audit.Target) error {
	return a.peers.Audit.Record(ctx, audit.Event{
		Action: action, Subject: audit.Target{Type: "user", ID: userID}, Targets: targets, Detail: detail,
	})
}

func joinMethods(methods []string) string { return strings.Join(methods, " ") }

func splitMethods(text string) []string { return slices.Clip(strings.Fields(text)) }
