package mount

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/bearer"
)

// guard identifies the caller of the row or refuses.
func (x *exchange) guard(call *capability.Call) error {
	g := x.row.entry.Route.Guard
	var caller capability.Caller
	var err error
	switch g.Strategy() {
	case capability.StrategyUser, capability.StrategyBearer, capability.StrategySession:
		caller, err = x.user(g)
		call.Recheck = x.recheck(g)
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
	if token, ok, err := x.bearer(); err != nil {
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
	x.tellToken(caller)
	if err := x.ownPage(g, caller); err != nil {
		return none, err
	}
	return caller, scoped(caller, g)
}

// scoped refuses a caller without the scope of the row. A session carries no scope.
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
	if err := x.fromOutside(); err != nil {
		return capability.ErrCSRF.Because(err)
	}
	return x.m.Users.CSRF(x.r, caller)
}

var errPlainPage = errors.New("the page was not loaded over https")

// fromOutside refuses an unsafe request that a browser sent for a page of another origin. The
// standard library's check, where it has only the Origin of an old browser, accepts pages of the
// same host over plain http; fromOutside does not.
func (x *exchange) fromOutside() error {
	if x.m.secure && !safe(x.r.Method) {
		origin := x.r.Header.Get("Origin")
		trusted := x.m.Users != nil && slices.Contains(x.m.Users.Origins, origin)
		if !trusted && strings.HasPrefix(strings.ToLower(origin), "http:") {
			return errPlainPage
		}
	}
	return x.m.cross.Check(x.r)
}

// sameOrigin reports whether the Origin that a browser sends with a WebSocket upgrade is the kit's
// own or a trusted one; the cross-origin protection passes an upgrade because it is a GET. Where
// clients use https, a page over plain http is refused, because it may come from an attacker on the
// network.
func (x *exchange) sameOrigin() bool {
	origin := x.r.Header.Get("Origin")
	host, ok := strings.CutPrefix(origin, "https://")
	if !ok && !x.m.secure {
		host, ok = strings.CutPrefix(origin, "http://")
	}
	return origin == x.m.origin || ok && strings.EqualFold(host, x.r.Host) || slices.Contains(x.m.Users.Origins, origin)
}

func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// bearer reads the token of the request. A socket takes it among its subprotocols
// too, since a page can set no header there.
func (x *exchange) bearer() (token string, ok bool, err error) {
	token, ok, err = bearer.Token(x.r)
	if err != nil || !x.row.entry.Route.Handle.IsSocket() {
		return token, ok, err
	}
	switch tokens := offered(x.r); {
	case len(tokens) == 0:
		return token, ok, nil
	case ok || len(tokens) > 1:
		return "", false, capability.ErrUnauthenticated.Saying("Send one access token.")
	default:
		return tokens[0], true, nil
	}
}

// bearerProtocol begins the subprotocol whose rest is an access token. It is
// never the one that the socket selects.
const bearerProtocol = "kit.bearer."

// offered lists the tokens among the subprotocols a client offers.
func offered(r *http.Request) (tokens []string) {
	for _, header := range r.Header["Sec-Websocket-Protocol"] {
		for name := range strings.SplitSeq(header, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(name), bearerProtocol); ok {
				tokens = append(tokens, token)
			}
		}
	}
	return tokens
}

// recheck returns the function that verifies the credential of a socket's caller again; it holds
// the credential alone, not the request.
func (x *exchange) recheck(g capability.Guard) func(context.Context) error {
	if x.m.Users == nil || !x.row.entry.Route.Handle.IsSocket() {
		return nil
	}
	users := x.m.Users
	if token, ok, _ := x.bearer(); ok && g.Strategy() != capability.StrategySession {
		return func(ctx context.Context) error {
			_, err := users.Bearer(ctx, token)
			return err
		}
	}
	proof := &http.Request{Method: x.r.Method, URL: x.r.URL, Host: x.r.Host, Header: http.Header{"Cookie": x.r.Header["Cookie"]}}
	return func(ctx context.Context) error {
		_, ok, err := users.Session(proof.WithContext(ctx))
		if err == nil && !ok {
			return capability.ErrUnauthenticated
		}
		return err
	}
}

// anybody admits every request; an identifying row gets the caller if a valid credential is
// presented. While credentials cannot be verified, a request that presents one is refused rather
// than treated as anonymous.
func (x *exchange) anybody(g capability.Guard) (capability.Caller, error) {
	public := capability.Caller{Strategy: capability.StrategyPublic}
	if g.CSRF() {
		if err := x.fromOutside(); err != nil {
			return public, capability.ErrCSRF.Because(err)
		}
	}
	if !g.Identifies() {
		return public, nil
	}
	caller, err := x.user(capability.User())
	if err == nil {
		return caller, nil
	}
	if capability.AsError(err).Status >= http.StatusInternalServerError {
		return public, err
	}
	if _, sent, malformed := x.bearer(); sent || malformed != nil {
		x.disproved = err
	}
	return public, nil
}

// forWantOfProof returns the refusal of the access token in place of a refusal that may follow from
// it, so that a client learns that its token has expired.
func (x *exchange) forWantOfProof(err error) error {
	if err == nil || x.disproved == nil {
		return err
	}
	switch capability.AsError(err).Status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return x.disproved
	}
	return err
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
	caller, err := x.m.Machines.Verify(x.r, call.Body)
	if err != nil {
		return none, asRefusal(err, capability.ErrInvalidCredential)
	}
	x.origin.Caller = caller
	if g.Scope() != "" && !caller.HasScope(g.Scope()) {
		if err := x.record(capability.ErrControlPlaneScope); err != nil {
			return caller, err
		}
		return caller, capability.ErrControlPlaneScope.With(map[string]string{"scope": g.Scope()})
	}
	return caller, nil
}

// record writes the decision about a verified machine before the response is sent, also when the
// client has disconnected, unless the operation has recorded its own event.
func (x *exchange) record(refusal *capability.Error) error {
	if x.m.Record == nil || x.recorded || refusal == nil && x.origin.Recorded() {
		return nil
	}
	x.recorded = true
	err := x.m.Record(x.r.WithContext(context.WithoutCancel(x.r.Context())), Decision{Action: x.row.action, Params: x.params(), Refusal: refusal})
	if err != nil {
		return capability.ErrUnavailable.Because(err)
	}
	return nil
}

// asRefusal returns err if it is a refusal, and cover in place of any other error.
func asRefusal(err error, cover *capability.Error) error {
	if capability.AsError(err).Is(capability.ErrInternal) {
		return cover.Because(err)
	}
	return err
}
