package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/bearer"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/jose"
)

const (
	// tokenType is the typ of an access token, RFC 9068 section 2.1.
	tokenType = "at+jwt"
	// clientID is the client_id of tokens that no OAuth client requested.
	clientID = "kit"
	// leeway is how far the clocks of two nodes may be apart.
	leeway = 5 * time.Second

	maxScopes = 64
)

// scopeForm is a scope-token of RFC 6749, bounded.
var scopeForm = regexp.MustCompile(`^[\x21\x23-\x5B\x5D-\x7E]{1,128}$`)

// claims of an access token, RFC 9068 section 2.2.
type claims struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	Subject   string `json:"sub"`
	ClientID  string `json:"client_id"`
	IssuedAt  int64  `json:"iat"`
	ExpiresAt int64  `json:"exp"`
	ID        string `json:"jti"`
	// SessionID is the id by which the token is revoked: its session, or the token family of the
	// user if it was issued without one.
	SessionID string   `json:"sid"`
	DeviceID  string   `json:"did,omitempty"`
	Scope     string   `json:"scope,omitempty"`
	AuthTime  int64    `json:"auth_time,omitempty"`
	Methods   []string `json:"amr,omitempty"`
	// Rotation is the counter of the refresh token issued with it: use of the access token shows
	// that the client received both.
	Rotation int64 `json:"rtc,omitempty"`
}

// IssueToken makes an access token for a user that carries the scopes, at most 64 and 2 KiB in all.
// Only the application can call it: users cannot grant themselves scopes. The token is valid for
// ttl, at least a second and at most [MaxAccessTokenTTL]; 0 means Config.AccessTokenTTL. Refuses
// with auth/user_not_found, auth/user_disabled and kit/invalid_request.
func (a *Auth) IssueToken(ctx context.Context, user string, scopes []string, ttl time.Duration) (token string, err error) {
	if ttl == 0 {
		ttl = a.cfg.AccessTokenTTL
	}
	if ttl < time.Second || ttl > MaxAccessTokenTTL {
		return "", capability.ErrInvalidRequest.Saying("An access token is good for a second to %s.", MaxAccessTokenTTL)
	}
	if err := checkScopes(scopes); err != nil {
		return "", err
	}
	family, found, err := a.store.tokenFamily(ctx, user)
	if err != nil {
		return "", err
	}
	switch {
	case !found:
		return "", ErrUserNotFound
	case family.disabled:
		return "", ErrUserDisabled
	}
	return a.sign(ctx, claims{Subject: user, SessionID: family.id, Scope: strings.Join(scopes, " ")}, ttl)
}

// SessionAccessToken makes an access token that ends with its session. It carries
// the scopes of Config.Scopes.
func (a *Auth) SessionAccessToken(ctx context.Context, s Session) (string, error) {
	return a.sessionToken(ctx, s, nil)
}

func (a *Auth) sessionToken(ctx context.Context, s Session, scopes []string) (string, error) {
	granted, err := a.scopesOf(ctx, s.UserID)
	if err != nil {
		return "", err
	}
	for _, scope := range scopes {
		if !slices.Contains(granted, scope) {
			granted = append(granted, scope)
		}
	}
	return a.sign(ctx, sessionClaims(s, granted), a.tokenTTL(s))
}

// scopesOf returns the scopes of a user's tokens by Config.Scopes.
func (a *Auth) scopesOf(ctx context.Context, userID string) ([]string, error) {
	if a.cfg.Scopes == nil {
		return nil, nil
	}
	scopes, err := a.cfg.Scopes(ctx, userID)
	if err == nil {
		err = checkScopes(scopes)
	}
	if err != nil {
		return nil, unavailable("reading the scopes of a user", err)
	}
	return slices.Clone(scopes), nil
}

// tokenTTL returns how long a token may be valid: not longer than its session, because it could not
// be revoked afterwards.
func (a *Auth) tokenTTL(s Session) time.Duration {
	return max(min(a.cfg.AccessTokenTTL, s.ExpiresAt.Sub(a.host.Now())), time.Second)
}

// rotatedToken makes an access token whose use confirms that the client received the refresh token
// issued with it.
func (a *Auth) rotatedToken(ctx context.Context, s Session) (string, error) {
	scopes, err := a.scopesOf(ctx, s.UserID)
	if err != nil {
		return "", err
	}
	c := sessionClaims(s, scopes)
	if !s.refresh.confirmed {
		c.Rotation = s.refresh.counter
	}
	return a.sign(ctx, c, a.tokenTTL(s))
}

func sessionClaims(s Session, scopes []string) claims {
	return claims{
		Subject: s.UserID, SessionID: s.ID, DeviceID: s.DeviceID, Scope: strings.Join(scopes, " "),
		AuthTime: s.CreatedAt.Unix(), Methods: s.Methods,
	}
}

func (a *Auth) sign(ctx context.Context, c claims, ttl time.Duration) (string, error) {
	key, err := a.keys.signer(ctx)
	if err != nil {
		return "", err
	}
	now := a.host.Now()
	c.Issuer, c.Audience, c.ClientID = a.issuer, a.issuer, clientID
	c.IssuedAt, c.ExpiresAt = now.Unix(), now.Add(ttl).Unix()
	c.ID = id.New(now)
	token, err := jose.Sign(key.private, key.id, tokenType, c)
	if errors.Is(err, jose.ErrMalformed) {
		return "", capability.ErrInvalidRequest.Saying("The scopes do not fit into a token.").Because(err)
	}
	return token, err
}

func checkScopes(scopes []string) error {
	if len(scopes) > maxScopes {
		return capability.ErrInvalidRequest.Saying("A token carries at most %d scopes.", maxScopes)
	}
	if slices.ContainsFunc(scopes, func(scope string) bool { return !scopeForm.MatchString(scope) }) {
		return capability.ErrInvalidRequest.Saying("A scope is 1 to 128 printable characters without spaces, quotes and backslashes.")
	}
	return nil
}

// bearer verifies an access token. Refuses with auth/unauthenticated, with kit/rate_limited for an
// unknown token from an address that sent too many forged ones, and with kit/unavailable while
// revocations cannot be read. The caller's scopes are shared and not to be changed.
func (a *Auth) bearer(ctx context.Context, raw string) (capability.Caller, error) {
	if len(raw) > jose.MaxSize {
		return capability.Caller{}, capability.ErrUnauthenticated
	}
	now := a.host.Now()
	if err := a.revoked.refresh(ctx, now); err != nil {
		return capability.Caller{}, unavailable("reading revocations", err)
	}
	token, cached := a.verified.get(raw)
	if !cached {
		var err error
		if token, err = a.firstSeen(ctx, raw, now); err != nil {
			return capability.Caller{}, err
		}
	}
	if expired(token.expiresAt, now) || a.revoked.has(token.caller.SessionID) {
		a.verified.remove(raw)
		return capability.Caller{}, capability.ErrUnauthenticated
	}
	if !cached {
		a.verified.put(raw, token)
		if token.rotation > 0 {
			a.confirms.confirm(token.caller.SessionID, token.rotation)
		}
	}
	return token.caller, nil
}

func expired(at int64, now time.Time) bool { return !now.Before(time.Unix(at, 0).Add(leeway)) }

// firstSeen verifies a token that is not in the cache, unless its address has sent too many forged
// ones. An expired token does not count as forged.
func (a *Auth) firstSeen(ctx context.Context, raw string, now time.Time) (accessToken, error) {
	t, err := jose.Parse(raw)
	if err != nil {
		if a.forgeries.refuses(ctx, "") {
			return accessToken{}, capability.ErrRateLimited
		}
		a.forgeries.found(ctx)
		return accessToken{}, refused(err)
	}
	if a.forgeries.refuses(ctx, t.Text("sid")) {
		return accessToken{}, capability.ErrRateLimited
	}
	token, err := a.verify(ctx, t, now)
	switch {
	case err == nil:
		a.forgeries.trust(token.caller.SessionID)
	case errors.Is(err, capability.ErrUnauthenticated) && !errors.Is(err, errOver):
		a.forgeries.found(ctx)
	}
	return token, err
}

// Lapsed returns the session of the request's access token where the token has expired and the
// session has not: a client that renews the token is signed in. ok is false for any other request.
// Refuses with kit/rate_limited from an address that sent too many forged tokens.
func (a *LibraryHost) Lapsed(r *http.Request) (session Session, ok bool, err error) {
	raw, given, err := bearer.Token(r)
	if err != nil || !given || len(raw) > jose.MaxSize {
		return Session{}, false, nil
	}
	now := a.host.Now()
	t, err := jose.Parse(raw)
	if err != nil || t.Type != tokenType || !expired(t.ExpiresAt, now) {
		return Session{}, false, nil
	}
	if a.forgeries.refuses(r.Context(), t.Text("sid")) {
		return Session{}, false, capability.ErrRateLimited
	}
	switch err := a.checkSigned(r.Context(), t, now); {
	case errors.Is(err, capability.ErrUnavailable):
		return Session{}, false, err
	case errors.Is(err, errUnknownKey): // of a token so old that its key is gone
		return Session{}, false, nil
	case err != nil:
		a.forgeries.found(r.Context())
		return Session{}, false, nil
	}
	session, ok, err = a.store.sessionByID(r.Context(), t.Text("sid"), now)
	if err != nil {
		return Session{}, false, unavailable("reading the session", err)
	}
	return session, ok, nil
}

var (
	// errOver refuses a token that has expired or whose session has ended.
	errOver = errors.New("expired or revoked")
	// errUnknownKey refuses a token of a key that there is not, or no longer.
	errUnknownKey = errors.New("signed with an unknown key")
)

// verify checks a token. It refuses an expired one without checking the signature.
func (a *Auth) verify(ctx context.Context, t *jose.Token, now time.Time) (accessToken, error) {
	if t.Type != tokenType {
		return accessToken{}, refused(fmt.Errorf("a token of type %q", t.Type))
	}
	if expired(t.ExpiresAt, now) || a.revoked.has(t.Text("sid")) {
		return accessToken{}, refused(errOver)
	}
	if err := a.checkSigned(ctx, t, now); err != nil {
		return accessToken{}, err
	}
	rotation, _ := t.Integer("rtc")
	return accessToken{
		rotation: rotation,
		caller: capability.Caller{
			Strategy: capability.StrategyBearer,
			UserID:   t.Text("sub"), SessionID: t.Text("sid"), TokenID: t.Text("jti"),
			Scopes: strings.Fields(t.Text("scope")),
		},
		expiresAt: t.ExpiresAt,
	}, nil
}

// checkSigned checks the signature and the claims of a token, but not whether it is over.
func (a *Auth) checkSigned(ctx context.Context, t *jose.Token, now time.Time) error {
	key, found, err := a.keys.find(ctx, t.KeyID, now)
	if err != nil {
		return unavailable("reading signing keys", err)
	}
	if !found {
		return refused(fmt.Errorf("%w: %s", errUnknownKey, t.KeyID))
	}
	if err := t.Verify(key.public); err != nil {
		return refused(err)
	}
	if err := a.checkClaims(t, now); err != nil {
		return refused(err)
	}
	return nil
}

// checkClaims checks that a token with a valid signature is meant for this kit and valid now.
func (a *Auth) checkClaims(t *jose.Token, now time.Time) error {
	switch {
	case t.Text("iss") != a.issuer:
		return fmt.Errorf("issued by %q", t.Text("iss"))
	case t.Text("aud") != a.issuer:
		return fmt.Errorf("meant for %q", t.Text("aud"))
	case t.Text("sub") == "" || t.Text("sid") == "" || t.Text("jti") == "" || t.Text("client_id") == "":
		return errors.New("a claim is missing")
	case time.Unix(t.IssuedAt, 0).After(now.Add(leeway)):
		return errors.New("issued in the future")
	case t.Has("nbf") && notBefore(t).After(now.Add(leeway)):
		return errors.New("not good yet")
	case t.ExpiresAt-t.IssuedAt > int64(MaxAccessTokenTTL/time.Second):
		return errors.New("good for too long")
	}
	return nil
}

func notBefore(t *jose.Token) time.Time {
	seconds, _ := t.Integer("nbf")
	return time.Unix(seconds, 0)
}

func refused(reason error) error { return capability.ErrUnauthenticated.Because(reason) }
