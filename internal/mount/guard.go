package mount

import (
	"net/http"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// guard establishes the caller of the row or refuses.
func (x *exchange) guard(call *capability.Call) error {
	g := x.row.entry.Route.Guard
	var caller capability.Caller
	var err error
	switch g.Strategy() {
	case capability.StrategyUser, capability.StrategyBearer, capability.StrategySession:
		caller, err = x.user(g)
	case capability.StrategyControlPlane:
		caller, err = x.machine(g, call)
	case capability.StrategySignedWebhook:
		caller, err = x.webhook(g, call)
	case capability.StrategyPublic:
		caller, err = x.anybody(g)
	default:
		err = capability.ErrUnauthenticated
	}
	call.Caller, x.origin.Caller = caller, caller
	return err
}

// user accepts a bearer token or a cookie session; the token wins.
func (x *exchange) user(g capability.Guard) (capability.Caller, error) {
	none := capability.Caller{}
	if x.m.Users == nil {
		return none, capability.ErrUnauthenticated
	}
	if token, ok, err := bearer(x.r); err != nil {
		return none, err
	} else if ok && g.Strategy() != capability.StrategySession {
		caller, err := x.m.Users.Bearer(x.r.Context(), token)
		if err != nil {
			return none, err
		}
		return caller, scoped(caller, g)
	}
	if g.Strategy() == capability.StrategyBearer {
		return none, capability.ErrUnauthenticated
	}
	caller, ok, err := x.m.Users.Session(x.r)
	if err != nil {
		return none, err
	}
	if !ok {
		return none, capability.ErrUnauthenticated
	}
	if err := x.ownPage(g, caller); err != nil {
		return none, err
	}
	return caller, scoped(caller, g)
}

// scoped compares exactly. A session carries no scope.
func scoped(caller capability.Caller, g capability.Guard) error {
	if g.Scope() != "" && !caller.HasScope(g.Scope()) {
		return capability.ErrInsufficientScope.With(map[string]string{"scope": g.Scope()})
	}
	return nil
}

// ownPage is the CSRF defence of a request proved by a cookie.
func (x *exchange) ownPage(g capability.Guard, caller capability.Caller) error {
	if x.row.entry.Route.Handle.IsSocket() && !x.sameOrigin() {
		return capability.ErrCSRF
	}
	if safe(x.r.Method) && !g.CSRF() {
		return nil
	}
	if err := x.m.cross.Check(x.r); err != nil {
		return capability.ErrCSRF.Because(err)
	}
	return x.m.Users.CSRF(x.r, caller)
}

// sameOrigin checks the Origin a browser sends with a WebSocket upgrade, which
// the cross-origin protection passes because it is a GET.
func (x *exchange) sameOrigin() bool {
	origin := x.r.Header.Get("Origin")
	return origin == x.m.origin || strings.EqualFold(strings.TrimPrefix(strings.TrimPrefix(origin, "https://"), "http://"), x.r.Host)
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// bearer reads the one Authorization header; another scheme is not ours to read.
func bearer(r *http.Request) (token string, ok bool, err error) {
	headers := r.Header["Authorization"]
	switch {
	case len(headers) == 0:
		return "", false, nil
	case len(headers) > 1:
		return "", false, capability.ErrUnauthenticated.Saying("Send one Authorization header.")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	return token, strings.EqualFold(scheme, "Bearer"), nil
}

// anybody passes everyone; an identifying row learns who calls when the
// presented proof is good.
func (x *exchange) anybody(g capability.Guard) (capability.Caller, error) {
	public := capability.Caller{Strategy: capability.StrategyPublic}
	if g.CSRF() {
		if err := x.m.cross.Check(x.r); err != nil {
			return public, capability.ErrCSRF.Because(err)
		}
	}
	if !g.Identifies() {
		return public, nil
	}
	if caller, err := x.user(capability.User()); err == nil {
		return caller, nil
	}
	return public, nil
}

func (x *exchange) webhook(g capability.Guard, call *capability.Call) (capability.Caller, error) {
	sender := capability.Caller{Strategy: capability.StrategySignedWebhook}
	body, err := call.Body()
	if err != nil {
		return sender, err
	}
	if err := g.Verifier()(x.r, body); err != nil {
		return sender, asRefusal(err, capability.ErrInvalidSignature)
	}
	return sender, nil
}

// machine verifies a control-plane credential, origin first: a foreign page
// learns nothing and spends nothing.
func (x *exchange) machine(g capability.Guard, call *capability.Call) (capability.Caller, error) {
	none := capability.Caller{}
	if x.m.Machines == nil {
		return none, capability.ErrNotConnected
	}
	if !x.allowOrigin() {
		return none, capability.ErrInvalidCredential
	}
	body, err := call.Body()
	if err != nil {
		return none, err
	}
	caller, err := x.m.Machines.Verify(x.r, body)
	if err != nil {
		return none, asRefusal(err, capability.ErrInvalidCredential)
	}
	if g.Scope() != "" && !caller.HasScope(g.Scope()) {
		x.origin.Caller = caller
		if err := x.record(capability.ErrControlPlaneScope); err != nil {
			return caller, err
		}
		return caller, capability.ErrControlPlaneScope.With(map[string]string{"scope": g.Scope()})
	}
	return caller, nil
}

// record writes the decision about a verified machine before it is answered.
func (x *exchange) record(refusal *capability.Error) error {
	if x.m.Record == nil {
		return nil
	}
	err := x.m.Record(x.r, Decision{Action: x.row.action, Params: x.params(), Refusal: refusal})
	if err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	return nil
}

// asRefusal keeps a refusal and covers any other failure of a proof.
func asRefusal(err error, cover *capability.Error) error {
	refusal := capability.AsError(err)
	if refusal.Is(capability.ErrInternal) {
		return cover.Because(err)
	}
	return refusal
}
