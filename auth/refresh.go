package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/random"
)

// A refresh token is refreshVersion and, in base64url, the session's id, a
// counter and their MAC under the session's own key. There is one good counter
// a session and no row a token.
const (
	refreshVersion = "rt1."
	refreshSize    = id.Len + 4 + sha256.Size
	maxCounter     = 1<<32 - 1
)

// refreshState is the state of a session's refresh tokens in its row.
type refreshState struct {
	sealed    []byte // the key of the MAC
	counter   int64
	rotatedAt time.Time // zero: not since sign-in
	confirmed bool
}

// Rotate exchanges a refresh token for its successor and an access token. Every
// caller within Config.ReuseGrace gets the same successor. So does a later caller
// whose response was lost, as long as nobody has used the new tokens. Any other
// reuse means that two parties hold the token: the session ends. Refuses with
// auth/refresh_invalid and auth/refresh_reused.
func (a *Auth) Rotate(ctx context.Context, token string) (Rotated, error) {
	sessionID, counter, ok := splitRefresh(token)
	if !ok {
		return Rotated{}, ErrRefreshInvalid
	}
	if a.forgeries.refuses(ctx, sessionID) {
		return Rotated{}, capability.ErrRateLimited
	}
	now := a.host.Now()
	session, found, err := a.store.sessionByID(ctx, sessionID, now)
	if err != nil {
		return Rotated{}, unavailable("reading the session", err)
	}
	if !found {
		a.forgeries.found(ctx)
		return Rotated{}, ErrRefreshInvalid
	}
	good, err := a.refreshToken(session, counter)
	if err != nil || !hmac.Equal([]byte(good), []byte(token)) {
		a.forgeries.found(ctx)
		return Rotated{}, ErrRefreshInvalid.Because(err)
	}
	a.forgeries.trust(sessionID)
	session, reused, err := a.advance(ctx, session, counter)
	switch {
	case err != nil:
		return Rotated{}, err
	case reused:
		return Rotated{}, ErrRefreshReused
	}
	rotated := Rotated{Session: session}
	if rotated.AccessToken, err = a.rotatedToken(ctx, session); err != nil {
		return Rotated{}, err
	}
	rotated.RefreshToken, err = a.refreshToken(session, session.refresh.counter)
	return rotated, err
}

// advance makes the successor of a counter the valid one, or returns why the counter is no longer
// valid. The returned session carries the counter to continue with.
func (a *Auth) advance(ctx context.Context, session Session, counter int64) (after Session, reused bool, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		now, from := a.host.DB.Now(ctx), originOf(ctx)
		after, reused = session, false
		if counter == session.refresh.counter && !a.inGrace(session, now) && counter < maxCounter {
			seen := session.UpdatedAt
			first := day(now) > session.usedDay
			after.usedDay = max(session.usedDay, day(now))
			after.UpdatedAt, after.ExpiresAt, after.IP, after.UserAgent = now, a.idleEnd(session, now), from.ip, from.userAgent
			rotated, err := a.store.rotate(ctx, after, counter, now)
			if err != nil {
				return err
			}
			if rotated {
				after.refresh.counter, after.refresh.rotatedAt, after.refresh.confirmed = counter+1, now, false
				if first {
					event := hooks.Session{UserID: session.UserID, SessionID: session.ID, At: now}
					if err := a.host.Hooks.SessionUsed.Fire(ctx, event); err != nil {
						return err
					}
				}
				if now.Sub(seen) < a.touchEvery() {
					return nil
				}
				return a.store.touchDevice(ctx, session.DeviceID, from, now)
			}
		}
		var found bool
		if after, found, err = a.store.sessionByID(ctx, session.ID, now); err != nil || !found {
			return errOr(err, ErrRefreshInvalid)
		}
		reused, err = a.reuse(ctx, after, counter, now)
		return err
	})
	return after, reused, err
}

// reuse decides about a token that is not to be rotated, because it is younger than the grace or
// was rotated before.
func (a *Auth) reuse(ctx context.Context, s Session, counter int64, now time.Time) (reused bool, err error) {
	switch s.refresh.counter - counter {
	case 0: // its own successor, so that tabs which race in any order stay together
		return false, a.store.confirmRefresh(ctx, s.ID, counter)
	case 1:
		if a.inGrace(s, now) || a.cfg.ReuseGrace > 0 && !s.refresh.confirmed {
			return false, nil
		}
	}
	if s.refresh.counter < counter {
		return false, ErrRefreshInvalid // of a row that was restored from a backup
	}
	if _, err := a.endSession(ctx, s.ID, "refresh_reused"); err != nil {
		if errors.Is(err, ErrSessionNotFound) { // another has just ended it
			err = ErrRefreshInvalid
		}
		return false, err
	}
	return true, a.peers.Audit.Record(ctx, audit.Event{
		Action: "auth/refresh_reused", Outcome: audit.OutcomeRefused, Code: ErrRefreshReused.Code,
		Subject: audit.Target{Type: "user", ID: s.UserID},
		Targets: []audit.Target{{Type: "session", ID: s.ID}, {Type: "device", ID: s.DeviceID}},
	})
}

// inGrace allows for a node whose clock is a little behind that of the one which
// rotated, not for one that went back.
func (a *Auth) inGrace(s Session, now time.Time) bool {
	since := now.Sub(s.refresh.rotatedAt)
	return a.cfg.ReuseGrace > 0 && !s.refresh.rotatedAt.IsZero() && -leeway <= since && since < a.cfg.ReuseGrace
}

// newRefreshKey draws the key of a session's tokens and seals it.
func (a *Auth) newRefreshKey(sessionID string) (sealed []byte) {
	key := random.Bytes(sha256.Size)
	return a.sealer.Seal(refreshContext(sessionID), key)
}

func refreshContext(sessionID string) string { return "auth/refresh-key/" + sessionID }

// refreshToken makes the token of a counter.
func (a *Auth) refreshToken(s Session, counter int64) (string, error) {
	key, err := a.sealer.Open(refreshContext(s.ID), s.refresh.sealed)
	if err != nil {
		return "", err
	}
	raw := make([]byte, 0, refreshSize)
	raw = append(raw, s.ID...)
	raw = binary.BigEndian.AppendUint32(raw, uint32(counter))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(refreshVersion))
	mac.Write(raw)
	mac.Write([]byte(s.DeviceID))
	return refreshVersion + encoding.EncodeToString(mac.Sum(raw)), nil
}

// splitRefresh splits a token without verifying it.
func splitRefresh(token string) (sessionID string, counter int64, ok bool) {
	encoded, ok := strings.CutPrefix(token, refreshVersion)
	if !ok || len(encoded) != encoding.EncodedLen(refreshSize) || strings.ContainsAny(encoded, "\r\n") {
		return "", 0, false
	}
	raw, err := encoding.DecodeString(encoded)
	if err != nil || !isID(raw[:id.Len]) {
		return "", 0, false
	}
	return string(raw[:id.Len]), int64(binary.BigEndian.Uint32(raw[id.Len:])), true
}

// isID reports whether raw can be an id: the database refuses bytes such as NUL.
func isID(raw []byte) bool {
	for _, c := range raw {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'z') {
			return false
		}
	}
	return true
}
