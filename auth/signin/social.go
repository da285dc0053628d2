package signin

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/auth/signin/oauth"
	"github.com/kitbackend/kit/capability"
)

func (l *library) socialRoutes() []route {
	return append([]route{
		post("/sign-in/social", rateSignIn, l.signInSocial),
		post("/link-social", rateWrite, l.linkSocial),
		post("/one-tap/callback", rateSignIn, l.oneTap),
		get("/callback/:id", rateWrite, l.getCallback).opened().reads(ofProvider...),
		post("/callback/:id", rateWrite, l.postCallback).opened(),
	}, l.providerTokenRoutes()...)
}

// ofProvider are the query parameters with which a provider sends the browser back.
var ofProvider = []capability.Param{
	{Name: "state", Summary: "The state of the request to the provider."},
	{Name: "code", Summary: "The code to exchange for tokens."},
	{Name: "error", Summary: "The code of the provider's refusal."},
	{Name: "iss", Summary: "The issuer."},
	{Name: "user", Summary: "What Apple says of a new user, as JSON."},
}

const (
	oauthCookie = "kit_oauth"
	stateTTL    = 10 * time.Minute
	// statesTrimmed is after how many new sign-ins the number of all is checked.
	statesTrimmed = 1024
)

// Bounds of what a client or a provider sends along, in bytes or in number.
const (
	maxCallbackField = 4 << 10
	maxScopes        = 20
	maxParameters    = 10
	maxParameter     = 512
)

var (
	scopeForm     = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]{1,256}$`) // RFC 6749, 3.3
	parameterForm = regexp.MustCompile(`^[a-zA-Z0-9_.-]{1,64}$`)
)

// providers are the clients of the providers, by their ids.
type providers struct {
	clients map[string]*oauth.Client
	began   atomic.Uint64
	turns
}

func newProviders(list []oauth.Provider, now func() time.Time) *providers {
	p := &providers{clients: make(map[string]*oauth.Client, len(list))}
	for _, provider := range list {
		p.clients[provider.ID] = oauth.NewClient(provider, oauth.Network{}, now)
	}
	return p
}

// socialBody is better-auth's body of /sign-in/social and /link-social.
type socialBody struct {
	Provider           string            `json:"provider"`
	CallbackURL        string            `json:"callbackURL,omitempty"`
	NewUserCallbackURL string            `json:"newUserCallbackURL,omitempty"`
	ErrorCallbackURL   string            `json:"errorCallbackURL,omitempty"`
	DisableRedirect    bool              `json:"disableRedirect,omitempty"`
	RequestSignUp      bool              `json:"requestSignUp,omitempty"`
	Scopes             []string          `json:"scopes,omitempty"`
	LoginHint          string            `json:"loginHint,omitempty"`
	AdditionalParams   map[string]string `json:"additionalParams,omitempty"`
	IDToken            *nativeToken      `json:"idToken,omitempty"`
}

// nativeToken is an ID token that an app got on its own. Other members that better-auth's clients
// send are ignored, because the provider does not vouch for them.
type nativeToken struct {
	Token string            `json:"token"`
	Nonce string            `json:"nonce,omitempty"`
	User  *oauth.PostedUser `json:"user,omitempty"`
}

// readSocial reads a request to a provider. Refuses with PROVIDER_NOT_FOUND,
// VALIDATION_ERROR and the codes of foreign targets.
func (l *library) readSocial(c *call) (in socialBody, p *oauth.Client, to targets, err error) {
	if err = c.decode(&in); err != nil {
		return in, nil, to, err
	}
	if p = l.providers.clients[in.Provider]; p == nil {
		return in, nil, to, errProviderNotFound
	}
	if len(in.Scopes) > maxScopes || slices.ContainsFunc(in.Scopes, func(s string) bool { return !scopeForm.MatchString(s) }) {
		return in, nil, to, errValidation.Saying("scopes are at most %d of printable characters.", maxScopes)
	}
	if len(in.AdditionalParams) > maxParameters || len(in.LoginHint) > maxParameter {
		return in, nil, to, errValidation.Saying("There are at most %d additionalParams.", maxParameters)
	}
	for name, value := range in.AdditionalParams {
		if !parameterForm.MatchString(name) || len(value) > maxParameter || oauth.Reserved(name) {
			return in, nil, to, errValidation.Saying("additionalParams cannot set %.64q.", name)
		}
	}
	to, err = l.readTargets(in)
	return in, p, to, err
}

func (l *library) readTargets(in socialBody) (to targets, err error) {
	for _, t := range []struct {
		into    *string
		given   string
		refusal *capability.Error
	}{
		{&to.Callback, in.CallbackURL, errInvalidCallbackURL},
		{&to.NewUser, in.NewUserCallbackURL, errInvalidNewUser},
		{&to.Error, in.ErrorCallbackURL, errInvalidErrorCallback},
	} {
		if *t.into, err = l.target(t.given, t.refusal); err != nil {
			return to, err
		}
	}
	return to, nil
}

// authorizeResponse is better-auth's response that leads to a provider.
type authorizeResponse struct {
	URL      string `json:"url"`
	Redirect bool   `json:"redirect"`
}

// signInSocial begins a sign-in at a provider, or completes one with an ID token that an app has
// brought.
func (l *library) signInSocial(c *call) (any, error) {
	in, p, to, err := l.readSocial(c)
	if err != nil {
		return nil, err
	}
	if in.IDToken != nil {
		return l.signInNative(c, p, *in.IDToken, in.RequestSignUp, to)
	}
	return l.begin(c, in, p, passage{targets: to, SignUp: in.RequestSignUp}, "")
}

// linked is better-auth's response to /link-social with an ID token.
type linked struct {
	URL      string `json:"url"`
	Status   bool   `json:"status"`
	Redirect bool   `json:"redirect"`
}

// linkSocial begins to link a provider's account to the signed-in user, or does
// it with an ID token.
func (l *library) linkSocial(c *call) (any, error) {
	session, err := c.fresh()
	if err != nil {
		return nil, err
	}
	in, p, to, err := l.readSocial(c)
	if err != nil {
		return nil, err
	}
	if in.IDToken == nil {
		return l.begin(c, in, p, passage{targets: to}, session.UserID)
	}
	who, err := l.nativeIdentity(c, p, *in.IDToken)
	if err != nil {
		return nil, err
	}
	if err := l.linkTo(c, session, who); err != nil {
		return nil, asReply(err, true)
	}
	return linked{Status: true}, nil
}

// passage is the state of a sign-in at a provider until the browser returns.
type passage struct {
	targets
	SignUp bool `json:"signUp,omitempty"`
}

// begin returns the address to which to send the browser. The state in that address is valid once,
// for ten minutes, and only with the cookie that is set here. The PKCE verifier and the nonce are
// derived from cookie and state, so that neither is stored.
func (l *library) begin(c *call, in socialBody, p *oauth.Client, pass passage, linkUser string) (any, error) {
	browser := c.cookie(oauthCookie)
	if len(browser) != opaque.Length {
		browser = opaque.New()
	}
	value := opaque.New()
	address, err := p.AuthorizeURL(c.Context(), oauth.Authorization{
		State: value, Verifier: derived(browser, value, "verifier"), Nonce: derived(browser, value, "nonce"),
		Redirect: l.callbackAddress(p), Scopes: in.Scopes, Parameters: in.AdditionalParams, LoginHint: in.LoginHint,
	})
	if err != nil {
		return nil, errUnavailable.Because(err)
	}
	data, err := json.Marshal(pass)
	if err != nil {
		return nil, fmt.Errorf("signin: encoding a passage: %w", err)
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		now := l.host.DB.Now(ctx)
		return l.store.insertState(ctx, state{
			hash: opaque.Hash(value), browser: opaque.Hash(browser), provider: p.ID, userID: linkUser, data: string(data),
			createdAt: now, expiresAt: now.Add(stateTTL),
		})
	})
	if err != nil {
		return nil, err
	}
	if l.providers.began.Add(1)%statesTrimmed == 0 {
		if err := l.store.trimStates(c.Context(), statesAtMost); err != nil {
			return nil, err
		}
	}
	c.setCookie(oauthCookie, browser, stateTTL)
	if !in.DisableRedirect {
		c.w.Header().Set("Location", address)
	}
	return authorizeResponse{URL: address, Redirect: !in.DisableRedirect}, nil
}

// derived derives a secret for one use from the browser's cookie and the state.
func derived(browser, state, use string) string {
	mac := hmac.New(sha256.New, []byte(browser))
	mac.Write([]byte("kit/signin/" + use + "\x00" + state))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func (l *library) callbackAddress(p *oauth.Client) string {
	return l.host.BaseURL.String() + l.auth.BasePath() + "/callback/" + p.ID
}

// postCallback takes the form that a provider's page makes the browser post. Browsers send no Lax
// cookie with it, so they are redirected to the GET route.
func (l *library) postCallback(c *call) (any, error) {
	p := l.providers.clients[c.param("id")]
	if p == nil {
		return l.failed(c, "", "oauth_provider_not_found", nil)
	}
	var in struct{ State, Code, Error, Iss, User string }
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	query := url.Values{}
	for name, value := range map[string]string{"state": in.State, "code": in.Code, "error": in.Error, "iss": in.Iss, "user": in.User} {
		if value != "" && len(value) <= maxCallbackField {
			query.Set(name, value)
		}
	}
	l.privately(c)
	http.Redirect(c.w, c.r, l.callbackAddress(p)+"?"+query.Encode(), http.StatusSeeOther)
	return written{}, nil
}

// privately keeps the address, which holds the code, out of caches and referrers.
func (l *library) privately(c *call) {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.Header().Set("Referrer-Policy", "no-referrer")
}

// getCallback serves the browser that returns from a provider.
func (l *library) getCallback(c *call) (any, error) {
	l.privately(c)
	p := l.providers.clients[c.param("id")]
	if p == nil {
		return l.failed(c, "", "oauth_provider_not_found", nil)
	}
	value, browser := c.query("state"), c.cookie(oauthCookie)
	if value == "" {
		return l.failed(c, "", "state_not_found", nil)
	}
	st, found, err := l.takeState(c, value, browser)
	if err != nil {
		return nil, err
	}
	if !found {
		return l.callbackAgain(c, p, value, browser)
	}
	c.state = value
	var pass passage
	if err := json.Unmarshal([]byte(st.data), &pass); err != nil {
		return nil, fmt.Errorf("signin: reading a passage: %w", err)
	}
	if st.provider != p.ID || !l.host.Now().Before(st.expiresAt) {
		return l.failed(c, pass.Error, "state_mismatch", nil)
	}
	who, code, err := l.returned(c, p, derived(browser, value, "verifier"), derived(browser, value, "nonce"))
	if code != "" || err != nil {
		return l.failed(c, pass.Error, code, err)
	}
	who.signUp, who.callback = pass.SignUp, pass.Callback
	if st.userID != "" {
		return l.finishLink(c, who, st.userID, pass)
	}
	return l.finishSignIn(c, who, pass)
}

func (l *library) takeState(c *call, value, browser string) (st state, found bool, err error) {
	if len(value) != opaque.Length || len(browser) != opaque.Length {
		return state{}, false, nil
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		st, found, err = l.store.takeState(ctx, opaque.Hash(value), opaque.Hash(browser))
		if err != nil || !found {
			return err
		}
		return l.using(ctx, value, kindState(st.provider), st.userID, opaque.Hash(browser))
	})
	return st, found, err
}

// returned reads an authorization response and identifies its user. code is the one for the
// redirect if the response is refused.
func (l *library) returned(c *call, p *oauth.Client, verifier, nonce string) (who identity, code string, err error) {
	if err := p.CheckIssuer(c.Context(), c.query("iss")); err != nil {
		return who, failure(err, "temporarily_unavailable"), err
	}
	if refusal := c.query("error"); refusal != "" {
		if !errorCode.MatchString(refusal) {
			refusal = "access_denied"
		}
		return who, refusal, nil
	}
	given := c.query("code")
	if given == "" || len(given) > maxCallbackField {
		return who, "no_code", nil
	}
	got, err := p.Exchange(c.Context(), given, verifier, l.callbackAddress(p))
	if err != nil {
		return who, failure(err, "invalid_code"), err
	}
	known, err := p.Identify(c.Context(), got, nonce)
	if err != nil {
		return who, failure(err, "unable_to_get_user_info"), err
	}
	if known.Name == "" && p.FormPost {
		var user oauth.PostedUser
		if text := c.query("user"); text != "" && json.Unmarshal([]byte(text), &user) == nil {
			known.Name = user.DisplayName()
		}
	}
	return identity{client: p, profile: known, tokens: got}, "", nil
}

// failure returns the code of the redirect for an error of the provider.
func failure(err error, refused string) string {
	switch {
	case errors.Is(err, oauth.ErrIssuerMissing):
		return "issuer_missing"
	case errors.Is(err, oauth.ErrIssuerMismatch):
		return "issuer_mismatch"
	case errors.Is(err, oauth.ErrUnreachable):
		return "temporarily_unavailable"
	default:
		return refused
	}
}

// finishSignIn signs the user in and redirects the browser.
func (l *library) finishSignIn(c *call, who identity, pass passage) (any, error) {
	user, created, err := l.resolve(c, who)
	if err != nil {
		return l.failed(c, pass.Error, "", err)
	}
	e, err := l.enter(c, user, "oauth:"+who.client.ID, true, l.stillLinked(user, who))
	if err != nil {
		return l.failed(c, pass.Error, "", err)
	}
	target := orHome(pass.Callback)
	if created && pass.NewUser != "" {
		target = pass.NewUser
	}
	if err := l.settleEntry(c, c.state, kindState(who.client.ID), e, target); err != nil {
		return nil, err
	}
	return l.lead(c, e, target)
}

// callbackAgain repeats the redirect for the browser that has just returned with a state, and
// refuses any other.
func (l *library) callbackAgain(c *call, p *oauth.Client, value, browser string) (any, error) {
	if len(value) != opaque.Length || len(browser) != opaque.Length {
		return l.failed(c, "", "state_mismatch", nil)
	}
	u, own, ok, err := l.again(c, value, kindState(p.ID), opaque.Hash(browser))
	if err != nil {
		return nil, err
	}
	if ok && u.userID == "" { // an account was linked
		return c.redirect(u.target)
	}
	if ok {
		e, ok, err := l.enteredAgain(c, u, own, "oauth:"+p.ID)
		if err != nil {
			return l.failed(c, "", "", err)
		}
		if ok {
			return l.lead(c, e, u.target)
		}
	}
	return l.failed(c, "", "state_mismatch", nil)
}

// finishLink links the account and redirects the browser, unless the user who requested that is no
// longer signed in.
func (l *library) finishLink(c *call, who identity, userID string, pass passage) (any, error) {
	session, signedIn, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	if !signedIn || session.UserID != userID {
		return l.failed(c, pass.Error, "state_mismatch", nil)
	}
	if err := l.linkTo(c, session, who); err != nil {
		return l.failed(c, pass.Error, "", err)
	}
	target := orHome(pass.Callback)
	if err := l.settle(c.Context(), used{hash: opaque.Hash(c.state), kind: kindState(who.client.ID), target: target}); err != nil {
		return nil, err
	}
	return c.redirect(target)
}

func orHome(target string) string {
	if target == "" {
		return "/"
	}
	return target
}

// failed redirects the browser to the page for errors with a code; "" means the error's own.
func (l *library) failed(c *call, target, code string, err error) (any, error) {
	if c.state != "" {
		if failed := l.unsettled(c, c.state, nil); failed != nil {
			return nil, failed
		}
	}
	if target == "" {
		target = l.host.BaseURL.Path + l.auth.BasePath() + "/error"
	}
	var refusal linkRefusal
	switch {
	case code != "":
	case errors.As(err, &refusal):
		code = string(refusal)
	default:
		known := auth.LibraryRefusal(err)
		if known.Status >= http.StatusInternalServerError {
			return nil, err
		}
		code = strings.ToLower(known.Code)
	}
	l.host.Log.InfoContext(c.Context(), "sign-in by a provider refused", "provider", c.param("id"), "code", code, "error", err)
	return c.redirect(withQuery(target, "error", code))
}

// nativeIdentity checks an ID token that an app has brought. Refuses with
// ID_TOKEN_NOT_SUPPORTED and INVALID_TOKEN.
func (l *library) nativeIdentity(c *call, p *oauth.Client, t nativeToken) (identity, error) {
	if p.Issuer == "" {
		return identity{}, errIDTokenNotSupported
	}
	known, err := p.Native(c.Context(), t.Token, t.Nonce)
	switch {
	case errors.Is(err, oauth.ErrUnreachable):
		return identity{}, errUnavailable.Because(err)
	case err != nil:
		return identity{}, withStatus(errInvalidToken, http.StatusUnauthorized).Because(err)
	}
	if err := l.spendToken(c, t.Token); err != nil {
		return identity{}, err
	}
	if known.Name == "" {
		known.Name = t.User.DisplayName()
	}
	return identity{client: p, profile: known}, nil
}

// spendToken records an ID token that an application has brought, so that it is accepted once.
// Refuses with INVALID_TOKEN.
func (l *library) spendToken(c *call, token string) error {
	signed := token[:strings.LastIndexByte(token, '.')+1] // a signature may have several spellings
	spent := false
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		spent, err = l.store.spendToken(ctx, opaque.Hash(signed), l.host.DB.Now(ctx).Add(oauth.NativeLife))
		return err
	})
	if err == nil && !spent {
		err = withStatus(errInvalidToken, http.StatusUnauthorized)
	}
	return err
}

// signInNative signs in by an ID token.
func (l *library) signInNative(c *call, p *oauth.Client, t nativeToken, signUp bool, to targets) (any, error) {
	who, err := l.nativeIdentity(c, p, t)
	if err != nil {
		return nil, err
	}
	who.signUp, who.callback = signUp, to.Callback
	e, err := l.enterNative(c, who)
	if err != nil {
		return nil, err
	}
	return l.response(c, e, "")
}

func (l *library) enterNative(c *call, who identity) (entry, error) {
	user, _, err := l.resolve(c, who)
	if err != nil {
		return entry{}, asReply(err, false)
	}
	return l.enter(c, user, "oauth:"+who.client.ID, true, l.stillLinked(user, who))
}

// stillLinked returns the still of a user whom a provider's account signs in.
func (l *library) stillLinked(user auth.User, who identity) still {
	return func(ctx context.Context) error {
		linked, _, err := l.store.accountOf(ctx, who.client.ID, who.issuer(), who.profile.Subject)
		if err == nil && linked.userID != user.ID {
			err = errUnauthorized
		}
		return err
	}
}

type oneTapBody struct {
	IDToken     string `json:"idToken"`
	CallbackURL string `json:"callbackURL,omitempty"`
}

// oneTap signs in by the ID token of Google One Tap.
func (l *library) oneTap(c *call) (any, error) {
	var in oneTapBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	to, err := l.readTargets(socialBody{CallbackURL: in.CallbackURL})
	if err != nil {
		return nil, err
	}
	p := l.providers.clients["google"]
	if p == nil {
		return nil, errProviderNotFound
	}
	return l.signInNative(c, p, nativeToken{Token: in.IDToken}, false, to)
}

// asReply is the refusal of a request that is no redirect, whose account was not taken.
func asReply(err error, linking bool) error {
	var refusal linkRefusal
	if errors.As(err, &refusal) {
		return refusal.reply(linking).Because(err)
	}
	return err
}
