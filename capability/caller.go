package capability

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// Caller is the user or machine that a guard identified.
type Caller struct {
	// Strategy is the proof that was accepted: bearer, session, control-plane,
	// signed-webhook or public.
	Strategy Strategy
	// UserID is set for users.
	UserID    string
	SessionID string
	// Scopes are those of the credential; a cookie session has none.
	Scopes []string
	// ConnectionID, KeyID and TokenID name the control-plane connection, its key,
	// and the spent token.
	ConnectionID, KeyID, TokenID string
}

// HasScope compares exactly: there is no prefix rule and no wildcard.
func (c Caller) HasScope(scope string) bool { return slices.Contains(c.Scopes, scope) }

// Users verifies end users. The auth capability provides it; without one every
// user route refuses.
type Users struct {
	// Bearer verifies an access token.
	Bearer func(ctx context.Context, token string) (Caller, error)
	// Session verifies the request's session cookie; ok is false when it has none.
	Session func(r *http.Request) (caller Caller, ok bool, err error)
	// CSRF checks the X-CSRF-Token of a request proved by that session's cookie.
	CSRF func(r *http.Request, caller Caller) error
	// CSRFToken returns the CSRF token of the session whose cookie proves the request, "" for none,
	// for pages that cannot read it from the cookie. It may be nil.
	CSRFToken func(r *http.Request, c Caller) string
	// Origins are those, besides the kit's own, whose pages may call with cookies, such as
	// "https://app.example.com". User rows, and the public rows of Domain, send them CORS headers.
	Origins []string
	// Domain is the domain of the capability that verifies; see [Capability.Domain].
	Domain string
}

// Machines verifies control-plane credentials. The control plane provides it;
// without one every control-plane route refuses with controlplane/not_connected.
type Machines struct {
	// Verify checks the credential of a request and spends its token id. A
	// verified caller is returned even when it lacks the route's scope. body reads the request's
	// body; Verify calls it only once the signature has verified.
	Verify func(r *http.Request, body func() ([]byte, error)) (Caller, error)
	// AllowOrigin reports whether a browser page of this origin may call.
	AllowOrigin func(origin string) bool
	// MaxAge is how long a browser may cache a preflight response.
	MaxAge time.Duration
}

// RequestInfo describes the request that a piece of work belongs to. The kit adds it to the context
// of every handler; audit reads it.
type RequestInfo struct {
	RequestID string
	Method    string
	// Route is the pattern, such as "/ledger/:currency".
	Route     string
	Caller    Caller
	IP        string
	UserAgent string

	recorded atomic.Bool
}

// MarkRecorded notes that an operation of this request is on the audit trail:
// its event takes the place of the one that the guard of a control-plane row
// would write. Audit calls it once the event is committed.
func (info *RequestInfo) MarkRecorded() { info.recorded.Store(true) }

// Recorded reports whether an operation of this request is on the audit trail.
func (info *RequestInfo) Recorded() bool { return info.recorded.Load() }

type requestInfoKey struct{}

// WithRequestInfo returns a context that carries the request information.
func WithRequestInfo(ctx context.Context, info *RequestInfo) context.Context {
	return context.WithValue(ctx, requestInfoKey{}, info)
}

// RequestInfoOf returns the request a context belongs to, or nil outside of one.
func RequestInfoOf(ctx context.Context) *RequestInfo {
	o, _ := ctx.Value(requestInfoKey{}).(*RequestInfo)
	return o
}
