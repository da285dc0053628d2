package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

const (
	// secureCookie and plainCookie name the session cookie on https and on
	// plain http; browsers take the prefix __Host- only with Secure, Path=/ and
	// no Domain, so nobody can set it from another host.
	secureCookie = "__Host-kit_session"
	plainCookie  = "kit_session"
	csrfHeader   = "X-CSRF-Token"
	secretSize   = 32
)

var encoding = base64.RawURLEncoding.Strict()

// Session is a sign-in of a user that lasts until ExpiresAt.
type Session struct {
	ID        string
	UserID    string
	CreatedAt time.Time
	ExpiresAt time.Time
	// secret answers the cookie's content, known only to who made the session.
	// It is a function because fmt and slog print whatever a struct holds.
	secret func() []byte
}

// CreateSession signs a user in: hand the client the [Auth.SessionCookie] and
// the [Auth.CSRFToken] of the session. Refuses with auth/user_not_found.
func (a *Auth) CreateSession(ctx context.Context, user string) (session Session, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := a.host.DB.Now(ctx)
		secret := make([]byte, secretSize)
		_, _ = rand.Read(secret) // never fails: crypto/rand ends the process instead
		session = Session{
			ID: id.New(now), UserID: user,
			CreatedAt: now, ExpiresAt: now.Add(a.cfg.SessionTTL),
			secret: func() []byte { return secret },
		}
		if err := a.store.deleteExpiredSessions(ctx, user, now); err != nil {
			return err
		}
		found, err := a.store.insertSession(ctx, session, hashed(secret))
		if err == nil && !found {
			return ErrUserNotFound
		}
		return err
	})
	return session, err
}

// SessionCookie answers the cookie of a session that [Auth.CreateSession] made.
func (a *Auth) SessionCookie(s Session) *http.Cookie {
	return &http.Cookie{
		Name: a.cookieName(), Value: encoding.EncodeToString(s.secret()), Path: "/",
		MaxAge: int(s.ExpiresAt.Sub(s.CreatedAt) / time.Second),
		Secure: a.secure(), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	}
}

// CSRFToken answers what a page of the session that [Auth.CreateSession] made
// sends as X-CSRF-Token with unsafe methods.
func (a *Auth) CSRFToken(s Session) string { return csrfToken(s.secret(), s.ID) }

// session verifies the session cookie by reading its row, so a session that
// ended on any node ends here.
func (a *Auth) session(r *http.Request) (caller capability.Caller, ok bool, err error) {
	secret, given := a.secret(r)
	if !given {
		return capability.Caller{}, false, nil
	}
	session, found, err := a.store.liveSession(r.Context(), hashed(secret), a.host.Now())
	if err != nil {
		return capability.Caller{}, false, unavailable("reading the session", err)
	}
	if !found {
		return capability.Caller{}, false, capability.ErrUnauthenticated
	}
	return capability.Caller{Strategy: capability.StrategySession, UserID: session.UserID, SessionID: session.ID}, true, nil
}

// csrf checks that the page which sent the request was told the token of the
// very session that proved it. Refuses with auth/csrf.
func (a *Auth) csrf(r *http.Request, caller capability.Caller) error {
	secret, given := a.secret(r)
	tokens := r.Header.Values(csrfHeader)
	if !given || len(tokens) != 1 || !hmac.Equal([]byte(tokens[0]), []byte(csrfToken(secret, caller.SessionID))) {
		return capability.ErrCSRF
	}
	return nil
}

// csrfToken is keyed by the cookie itself: who can make it already has the
// session, it needs no row and holds on every node.
func csrfToken(secret []byte, sessionID string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("kit/auth/csrf/v1/" + sessionID))
	return encoding.EncodeToString(mac.Sum(nil))
}

// secret reads the session cookie. Two of them are none: one may have been set
// from elsewhere.
func (a *Auth) secret(r *http.Request) (secret []byte, given bool) {
	cookies := r.CookiesNamed(a.cookieName())
	if len(cookies) != 1 {
		return nil, false
	}
	secret, err := encoding.DecodeString(cookies[0].Value)
	return secret, err == nil && len(secret) == secretSize
}

func hashed(secret []byte) []byte {
	sum := sha256.Sum256(secret)
	return sum[:]
}

func (a *Auth) secure() bool { return a.host.BaseURL.Scheme == "https" }

func (a *Auth) cookieName() string {
	if a.secure() {
		return secureCookie
	}
	return plainCookie
}
