package signin

import (
	"encoding/json"
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

func (l *library) sessionRoutes() []route {
	return []route{
		get("/get-session", rateRead, l.getSession),
		post("/get-session", rateRead, l.getSession),
		get("/list-sessions", rateRead, l.listSessions),
		post("/revoke-session", rateWrite, l.revokeSession),
		post("/revoke-sessions", rateWrite, l.revokeSessions),
		post("/revoke-other-sessions", rateWrite, l.revokeOtherSessions),
		post("/update-session", rateWrite, l.updateSession),
		post("/sign-out", rateWrite, l.signOut),
		get("/token", rateRead, l.getToken),
		get("/jwks", rateRead, l.getJWKS),
		get("/.well-known/openid-configuration", rateRead, l.getDiscovery),
	}
}

// wireSession is a session as better-auth's clients know it. Its token is a
// handle to revoke it by and proves nothing.
type wireSession struct {
	ID        string          `json:"id"`
	Token     string          `json:"token"`
	UserID    string          `json:"userId"`
	ExpiresAt capability.Time `json:"expiresAt"`
	CreatedAt capability.Time `json:"createdAt"`
	UpdatedAt capability.Time `json:"updatedAt"`
	IPAddress string          `json:"ipAddress"`
	UserAgent string          `json:"userAgent"`
}

func showSession(s auth.Session) wireSession {
	return wireSession{
		ID: s.ID, Token: s.ID, UserID: s.UserID, ExpiresAt: capability.Time{Time: s.ExpiresAt},
		CreatedAt: capability.Time{Time: s.CreatedAt}, UpdatedAt: capability.Time{Time: s.UpdatedAt},
		IPAddress: s.IP, UserAgent: s.UserAgent,
	}
}

// sessionAndUser is better-auth's response that names the signed-in user.
type sessionAndUser struct {
	Session wireSession `json:"session"`
	User    wireUser    `json:"user"`
}

func (l *library) showBoth(c *call, session auth.Session, user auth.User) (any, error) {
	wire, err := l.wire(c.Context(), user)
	return sessionAndUser{showSession(session), wire}, err
}

// getSession returns null to callers without a session.
func (l *library) getSession(c *call) (any, error) {
	session, ok, err := c.maybeSession()
	if err == nil && !ok {
		err = c.notLapsed()
	}
	if err != nil || !ok {
		return nil, err
	}
	user, err := l.auth.User(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	return l.showBoth(c, session, user)
}

func (l *library) listSessions(c *call) (any, error) {
	session, err := c.recent()
	if err != nil {
		return nil, err
	}
	sessions, err := l.auth.Sessions(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	out := make([]wireSession, len(sessions))
	for i, s := range sessions {
		out[i] = showSession(s)
	}
	return out, nil
}

type revokeSessionBody struct {
	Token string `json:"token"`
}

// revokeSession ends a session of the caller. A session of another user gets the response of one
// that has ended.
func (l *library) revokeSession(c *call) (any, error) {
	var in revokeSessionBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	if err := c.needs("token"); err != nil {
		return nil, err
	}
	sessions, err := l.auth.Sessions(c.Context(), session.UserID)
	if err != nil {
		return nil, err
	}
	for _, s := range sessions {
		if s.ID == in.Token {
			return ok, l.auth.RevokeSession(c.Context(), s.ID)
		}
	}
	return ok, nil
}

func (l *library) revokeSessions(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	if _, err := l.auth.RevokeUser(c.Context(), session.UserID); err != nil {
		return nil, err
	}
	return ok, l.auth.Leave(c.w, c.r)
}

func (l *library) revokeOtherSessions(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	_, err = l.auth.RevokeOthers(c.Context(), session.UserID, session.ID)
	return ok, err
}

// updateSession is for fields that an application added to better-auth's
// sessions: there are none.
func (l *library) updateSession(c *call) (any, error) {
	var in map[string]json.RawMessage
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if _, err := c.session(); err != nil {
		return nil, err
	}
	if len(in) > 0 {
		return nil, errFieldNotAllowed
	}
	return nil, errNoFields
}

func (l *library) signOut(c *call) (any, error) {
	if err := c.notLapsed(); err != nil {
		return nil, err
	}
	if err := l.auth.Leave(c.w, c.r); err != nil {
		return nil, err
	}
	return success, l.leaveAll(c)
}

type onlyToken struct {
	Token string `json:"token"`
}

// getToken exchanges a cookie or a session token for an access token. A client with an access token
// must rotate its refresh token instead, so that a stolen access token cannot be prolonged.
func (l *library) getToken(c *call) (any, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	if session.Proof == auth.ProofAccessToken {
		return nil, errUnauthorized.Saying("Change the refresh token for another access token.")
	}
	token, err := l.auth.SessionAccessToken(c.Context(), session)
	if err != nil {
		return nil, err
	}
	return onlyToken{token}, nil
}

// discovery is the metadata for verifiers of access tokens: the members of OpenID Connect Discovery
// that apply to an issuer that only issues tokens.
type discovery struct {
	Issuer     string   `json:"issuer"`
	KeysURL    string   `json:"jwks_uri"`
	Algorithms []string `json:"id_token_signing_alg_values_supported"`
}

func (l *library) getDiscovery(*call) (any, error) {
	base := l.host.BaseURL.String()
	return discovery{Issuer: base, KeysURL: base + l.auth.BasePath() + "/jwks", Algorithms: []string{"EdDSA"}}, nil
}

// getJWKS may be kept for a few minutes: keys are published before they sign.
func (l *library) getJWKS(c *call) (any, error) {
	keys, err := l.auth.JWKS(c.Context())
	if err != nil {
		return nil, err
	}
	h := c.w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "public, max-age=300")
	c.w.WriteHeader(http.StatusOK)
	_, _ = c.w.Write(keys) // the client has disconnected
	return written{}, nil
}
