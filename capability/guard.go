package capability

import "net/http"

// Strategy is one of the five ways the kit verifies who is calling.
type Strategy int

// The strategies of the specification. User rows accept a bearer token or a
// cookie session. The zero value is no strategy and is refused at assembly.
const (
	StrategyUser Strategy = iota + 1
	StrategyBearer
	StrategySession
	StrategyControlPlane
	StrategySignedWebhook
	StrategyPublic
)

func (s Strategy) String() string {
	switch s {
	case StrategyUser:
		return "user"
	case StrategyBearer:
		return "bearer"
	case StrategySession:
		return "session"
	case StrategyControlPlane:
		return "control-plane"
	case StrategySignedWebhook:
		return "signed-webhook"
	case StrategyPublic:
		return "public"
	default:
		return "none"
	}
}

// Guard says who may call a route. Only the constructors make a valid one; the
// kit enforces it before the handler runs.
type Guard struct {
	strategy    Strategy
	scope       string
	note        string
	csrf        bool
	identifying bool
	verifier    Verifier
}

// Verifier checks the sender's own proof over the exact bytes received. An
// error that is not a refusal is the cause of [ErrInvalidSignature]: it is logged,
// so it contains no secret, and not sent.
type Verifier func(r *http.Request, body []byte) error

// User admits a signed-in user, by bearer token or cookie session. An unsafe
// method proved by the cookie must carry X-CSRF-Token. Refuses with
// auth/unauthenticated and auth/csrf.
func User() Guard { return Guard{strategy: StrategyUser} }

// UserWithScope admits a user whose access token carries exactly this scope; a
// cookie session never carries one. Refuses also with auth/insufficient_scope.
func UserWithScope(scope string) Guard { return Guard{strategy: StrategyUser, scope: scope} }

// Bearer admits an access token only.
func Bearer() Guard { return Guard{strategy: StrategyBearer} }

// Session admits a cookie session only.
func Session() Guard { return Guard{strategy: StrategySession} }

// ControlPlane admits a machine credential with exactly this scope; the empty
// scope admits every verified one and is for ping alone. The call is recorded
// by audit, refusals of a verified identity included. Refuses with
// controlplane/not_connected, invalid_credential and insufficient_scope.
func ControlPlane(scope string) Guard { return Guard{strategy: StrategyControlPlane, scope: scope} }

// SignedWebhook admits a sender whose proof over the received bytes verifies.
func SignedWebhook(v Verifier) Guard { return Guard{strategy: StrategySignedWebhook, verifier: v} }

// Public admits every request. The reason is required and says what protects the route instead,
// such as "the share token is the credential".
func Public(why string) Guard { return Guard{strategy: StrategyPublic, note: why} }

// WithCSRF asks for X-CSRF-Token whenever the proof is a cookie, whatever the method.
func (g Guard) WithCSRF() Guard { g.csrf = true; return g }

// Identifying resolves a caller on a public route when a valid credential is presented. If the
// access token was invalid and the handler refuses with 401, 403 or 404, the response is the
// refusal of the token instead.
func (g Guard) Identifying() Guard { g.identifying = true; return g }

// Conditional notes that the handler decides about a scope, per board or game.
func (g Guard) Conditional(note string) Guard { g.note = note; return g }

// Anonymous reports whether the guard identifies no caller.
func (g Guard) Anonymous() bool {
	return g.strategy == StrategyPublic || g.strategy == StrategySignedWebhook
}

// Strategy returns how callers of the route are verified.
func (g Guard) Strategy() Strategy { return g.strategy }

// Scope returns the scope the caller must carry, or "".
func (g Guard) Scope() string { return g.scope }

// Note returns why the route is public, or the condition its handler decides.
func (g Guard) Note() string { return g.note }

// CSRF reports whether a cookie proof always needs the CSRF token.
func (g Guard) CSRF() bool { return g.csrf }

// Identifies reports whether a public route resolves a presented caller.
func (g Guard) Identifies() bool { return g.identifying }

// Verifier returns the verifier of a signed webhook, or nil.
func (g Guard) Verifier() Verifier { return g.verifier }

// Valid reports whether the guard came from a constructor with what it needs.
func (g Guard) Valid() bool {
	switch g.strategy {
	case StrategySignedWebhook:
		return g.verifier != nil
	case StrategyPublic:
		return g.note != ""
	default:
		return g.strategy != 0
	}
}

// DevelopmentOnly is the reason to give [Public] for routes that exist only in the development
// environment.
const DevelopmentOnly = "development only"
