package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/internal/jose"
)

// The bounds of a credential's times.
const (
	maxLifetime = 120 * time.Second
	// ahead is how far the customer's clock may be fast, behind is how long a token is accepted
	// after it expired.
	ahead  = 30 * time.Second
	behind = 5 * time.Second
)

// The bounds of a token id: 16 characters of base64url hold up to 96 bits; clients generate at
// least 128.
const (
	minTokenID = 16
	maxTokenID = 64
)

// reason is the failed step of verification: for the log and the audit trail, never for the caller.
type reason string

func (r reason) Error() string { return string(r) }

const (
	noRegister       reason = "register unavailable"
	wrongHeader      reason = "authorization header"
	malformed        reason = "malformed token"
	wrongType        reason = "type"
	unknownKey       reason = "unknown key"
	wrongSignature   reason = "signature"
	wrongIssuer      reason = "issuer"
	wrongAudience    reason = "audience"
	wrongSubject     reason = "subject"
	wrongEnvironment reason = "environment"
	wrongTokenID     reason = "token id"
	wrongScope       reason = "scope"
	wrongTime        reason = "time"
	wrongLifetime    reason = "lifetime"
	wrongMethod      reason = "method"
	wrongAddress     reason = "address"
	wrongBody        reason = "body"
	spent            reason = "spent"
	noReplaySet      reason = "replay set unavailable"
)

// verify is the guard: it returns the caller of a request with a valid credential, and spends the
// credential. The mount compares the scopes.
func (cp *ControlPlane) verify(r *http.Request, body func() ([]byte, error)) (capability.Caller, error) {
	ctx := r.Context()
	reg, err := cp.register.current(ctx)
	if err != nil {
		return capability.Caller{}, cp.refuse(ctx, nil, nil, errors.Join(noRegister, err))
	}
	if reg.connection == nil {
		return capability.Caller{}, capability.ErrNotConnected
	}
	token, err := authenticate(reg, r)
	if err != nil {
		return capability.Caller{}, cp.refuse(ctx, nil, token, err)
	}
	if err := cp.accept(ctx, reg, token, r, body); err != nil {
		return capability.Caller{}, cp.refuse(ctx, reg, token, err)
	}
	return capability.Caller{
		Strategy: capability.StrategyControlPlane, ConnectionID: reg.connection.id, KeyID: token.KeyID, TokenID: token.Text("jti"),
		Scopes: strings.FieldsFunc(token.Text("scope"), func(c rune) bool { return c == ' ' }),
	}, nil
}

// authenticate parses the token and verifies its signature, using only memory.
func authenticate(reg *snapshot, r *http.Request) (*jose.Token, error) {
	headers := r.Header["Authorization"]
	if len(headers) != 1 {
		return nil, wrongHeader
	}
	scheme, raw, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return nil, wrongHeader
	}
	token, err := jose.Parse(raw)
	if err != nil {
		return nil, errors.Join(malformed, err)
	}
	if token.Type != wire.CredentialType {
		return token, wrongType
	}
	key := reg.key(token.KeyID)
	if key == nil {
		return token, unknownKey
	}
	if err := token.Verify(key.public); err != nil {
		return token, wrongSignature
	}
	return token, nil
}

// accept checks the claims of a token signed by a known key, and spends its id last.
func (cp *ControlPlane) accept(ctx context.Context, reg *snapshot, token *jose.Token, r *http.Request, body func() ([]byte, error)) error {
	if err := cp.checkClaims(reg.connection, token); err != nil {
		return err
	}
	if err := checkTimes(token, cp.host.Now()); err != nil {
		return err
	}
	if err := cp.checkRequest(token, r, body); err != nil {
		return err
	}
	until := time.Unix(token.ExpiresAt, 0).Add(behind + remember)
	won, err := cp.replay.claim(ctx, token.Text("jti"), until)
	switch {
	case err != nil:
		return errors.Join(noReplaySet, err)
	case !won:
		return spent
	}
	return nil
}

func (cp *ControlPlane) checkClaims(c *connection, token *jose.Token) error {
	switch {
	case token.Text("iss") != c.issuer:
		return wrongIssuer
	case token.Text("aud") != cp.audience:
		return wrongAudience
	case token.Text("sub") != c.id:
		return wrongSubject
	case token.Text("env") != c.environment:
		return wrongEnvironment
	case !isTokenID(token.Text("jti")):
		return wrongTokenID
	case !token.Has("scope"):
		return wrongScope
	}
	return nil
}

func isTokenID(id string) bool {
	if len(id) < minTokenID || len(id) > maxTokenID {
		return false
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

// checkTimes checks the times of a token against the clock and the maximum lifetime.
func checkTimes(token *jose.Token, now time.Time) error {
	issued, expires := time.Unix(token.IssuedAt, 0), time.Unix(token.ExpiresAt, 0)
	notBefore, _ := token.Integer("nbf")
	switch {
	case issued.After(now.Add(ahead)), time.Unix(notBefore, 0).After(now.Add(ahead)), !expires.After(now.Add(-behind)):
		return wrongTime
	case !expires.After(issued), expires.Sub(issued) > maxLifetime:
		return wrongLifetime
	}
	return nil
}

// checkRequest compares the token's claims about its request with the request (as RFC 9449, section
// 4.2). The hash of the body is required if another body would change a key or a secret.
func (cp *ControlPlane) checkRequest(token *jose.Token, r *http.Request, body func() ([]byte, error)) error {
	origin := capability.RequestInfoOf(r.Context())
	required := origin == nil || cp.bodyBound()[origin.Method+" "+origin.Route]
	switch {
	case !matches(token, "htm", r.Method):
		return wrongMethod
	case !matches(token, "htu", cp.host.BaseURL.String()+r.URL.EscapedPath()):
		return wrongAddress
	case !token.Has("bdh"):
		if required {
			return wrongBody
		}
		return nil
	}
	content, err := body()
	if err != nil {
		return errors.Join(wrongBody, err)
	}
	if token.Text("bdh") != wire.BodyHash(content) {
		return wrongBody
	}
	return nil
}

// matches reports whether a claim is absent or equals want.
func matches(token *jose.Token, claim, want string) bool {
	return !token.Has(claim) || token.Text(claim) == want
}

// refuse logs the reason, and records it in audit if the signature of a known key verified; reg is
// nil if none did.
func (cp *ControlPlane) refuse(ctx context.Context, reg *snapshot, token *jose.Token, err error) error {
	var why reason
	errors.As(err, &why)
	attrs := []slog.Attr{slog.String("reason", string(why)), slog.String("error", err.Error())}
	if token != nil {
		attrs = append(attrs, slog.String("keyId", token.KeyID), slog.String("token", tokenMark(token)))
	}
	cp.host.Log.LogAttrs(ctx, slog.LevelInfo, "control-plane credential refused", attrs...)
	if reg != nil {
		cp.recordRefusal(ctx, reg, token, why)
	}
	if unread := new(capability.Error); why == wrongBody && errors.As(err, &unread) {
		return unread // the signer is known, so it may learn that the body is too large or too slow
	}
	return capability.ErrInvalidCredential.Because(err)
}

func (cp *ControlPlane) recordRefusal(ctx context.Context, reg *snapshot, token *jose.Token, why reason) {
	if _, ok := cp.refused.Allow(token.KeyID); !ok {
		return
	}
	err := cp.peers.Audit.Record(ctx, audit.Event{
		Action:  "controlplane/credential_refused",
		Actor:   audit.Actor{Kind: audit.ActorControlPlane, ID: reg.connection.id, KeyID: token.KeyID},
		Outcome: audit.OutcomeRefused, Code: capability.ErrInvalidCredential.Code,
		Detail: map[string]string{"reason": string(why), "token": tokenMark(token)},
	})
	if err != nil {
		cp.host.Log.LogAttrs(ctx, slog.LevelError, "a refused credential was not recorded", slog.String("error", err.Error()))
	}
}

// tokenMark returns a short hash that identifies a token in the log without its id.
func tokenMark(token *jose.Token) string {
	sum := sha256.Sum256([]byte(token.Text("jti")))
	return hex.EncodeToString(sum[:4])
}
