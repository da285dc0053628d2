package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// A session token is sessionTokenVersion and, in base64url, the session's id
// and a MAC under the session's own key: it lives as long as the session does.
const (
	sessionTokenVersion = "st1."
	sessionTokenSize    = id.Len + sha256.Size
)

// SessionToken returns a token that proves a session to the library's routes in place of its
// cookie, for clients that keep no cookies: the token of better-auth's bearer plugin. It has the
// rights of the cookie and is valid as long as the session. It is no access token: the kit's own
// routes refuse it.
func (a *LibraryHost) SessionToken(s Session) (string, error) {
	raw := []byte(s.ID)
	mac, err := a.sessionMAC(s, "session-token")
	if err != nil {
		return "", err
	}
	return sessionTokenVersion + encoding.EncodeToString(append(raw, mac...)), nil
}

// sessionMAC returns the MAC of a use and a message under the session's own key.
func (a *Auth) sessionMAC(s Session, use string, message ...byte) ([]byte, error) {
	key, err := a.sealer.Open(refreshContext(s.ID), s.refresh.sealed)
	if err != nil {
		return nil, err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("kit/auth/" + use + "/v1/" + s.ID + "/" + s.DeviceID + "/"))
	mac.Write(message)
	return mac.Sum(nil), nil
}

// tokenSession returns the live session of a session token. Its use moves the
// idle end. Refuses with auth/unauthenticated and kit/rate_limited.
func (a *Auth) tokenSession(r *http.Request, token string) (Session, error) {
	raw, err := encoding.DecodeString(strings.TrimPrefix(token, sessionTokenVersion))
	if err != nil || len(raw) != sessionTokenSize || !isID(raw[:id.Len]) {
		return Session{}, capability.ErrUnauthenticated
	}
	sessionID := string(raw[:id.Len])
	if a.forgeries.refuses(r.Context(), sessionID) {
		return Session{}, capability.ErrRateLimited
	}
	now := a.host.Now()
	session, found, err := a.store.sessionByID(r.Context(), sessionID, now)
	if err != nil {
		return Session{}, unavailable("reading the session", err)
	}
	if found {
		mac, err := a.sessionMAC(session, "session-token")
		found = err == nil && hmac.Equal(mac, raw[id.Len:])
	}
	if !found {
		a.forgeries.found(r.Context())
		return Session{}, capability.ErrUnauthenticated
	}
	a.forgeries.trust(sessionID)
	session.Proof = ProofSessionToken
	return a.used(r.Context(), session, now)
}

// freshVersion begins a proof of [LibraryHost.FreshToken]: the instant it was made, a
// byte that is 1 for a second factor, and a MAC under the session's own key.
const (
	freshVersion = "ft1."
	freshHeader  = "X-Kit-Fresh"
	freshSize    = 8 + 1 + sha256.Size
	// maxFreshTTL bounds how long such a proof is valid.
	maxFreshTTL = 10 * time.Minute
)

// FreshToken returns a token that a client sends as X-Kit-Fresh, for ten minutes, to show that the
// user of a session has just proved who they are; factor says that they did so by a second factor
// or a passkey. It is for clients that prove the session with an access token, which alone does not
// suffice to change how a user signs in.
func (a *LibraryHost) FreshToken(s Session, factor bool) (string, error) {
	message := binary.BigEndian.AppendUint64(nil, uint64(a.host.Now().UnixMilli()))
	message = append(message, flag(factor))
	mac, err := a.sessionMAC(s, "fresh", message...)
	if err != nil {
		return "", err
	}
	return freshVersion + encoding.EncodeToString(append(message, mac...)), nil
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// Fresh reports whether the user of a session proved who they are less than age
// ago, and whether by a second factor or a passkey. A request proved by an
// access token counts only with a proof of [LibraryHost.FreshToken].
func (a *LibraryHost) Fresh(r *http.Request, s Session, age time.Duration) (fresh, factor bool) {
	now := a.host.Now()
	within := func(at time.Time, age time.Duration) bool {
		return !at.IsZero() && now.Sub(at) < age && at.Sub(now) <= leeway
	}
	if s.Proof == ProofCookie || s.Proof == ProofSessionToken {
		fresh, factor = within(s.ConfirmedAt, age), within(s.FactorAt, age)
	}
	at, second, ok := a.freshProof(r, s)
	if ok && within(at, min(age, maxFreshTTL)) {
		fresh, factor = true, factor || second
	}
	return fresh || factor, factor
}

func (a *Auth) freshProof(r *http.Request, s Session) (at time.Time, factor, ok bool) {
	given := r.Header.Values(freshHeader)
	if len(given) != 1 {
		return time.Time{}, false, false
	}
	encoded, ok := strings.CutPrefix(given[0], freshVersion)
	raw, err := encoding.DecodeString(encoded)
	if !ok || err != nil || len(raw) != freshSize {
		return time.Time{}, false, false
	}
	message := raw[:freshSize-sha256.Size]
	mac, err := a.sessionMAC(s, "fresh", message...)
	if err != nil || !hmac.Equal(mac, raw[len(message):]) {
		return time.Time{}, false, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(message))), message[8] == 1, true
}

// Confirm records that the user of a session has just proved who they are; factor says that they
// did so by a second factor or a passkey. It joins the transaction in ctx.
func (a *LibraryHost) Confirm(ctx context.Context, sessionID string, factor bool) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		return a.store.confirmSession(ctx, sessionID, factor, a.host.DB.Now(ctx))
	})
}
