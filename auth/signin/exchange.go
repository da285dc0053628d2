package signin

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/kitbackend/kit/email"
)

// Bounds of what a provider hands out, in bytes.
const (
	maxProviderToken = 16 << 10
	maxTokenLife     = 10 * 365 * 24 * time.Hour
)

// providerClient is the kit's side of one provider. It is safe for concurrent use.
type providerClient struct {
	Provider
	http   *http.Client
	now    func() time.Time
	issuer *issuer
}

func newProviderClient(p Provider, now func() time.Time) *providerClient {
	p = p.withDefaults()
	c := &providerClient{Provider: p, http: newFetcher(p.addresses()), now: now}
	c.issuer = newIssuer(p, c.http, now)
	return c
}

// authorization is what one request to sign in asks of the provider.
type authorization struct {
	state, verifier, nonce, redirect string
	scopes                           []string // in addition to those of the provider
	parameters                       map[string]string
	loginHint                        string
}

// authorizeURL returns where to send the browser (RFC 6749, 4.1.1; RFC 7636, 4.3).
func (c *providerClient) authorizeURL(ctx context.Context, a authorization) (string, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return "", err
	}
	scopes := slices.Clone(c.Scopes)
	for _, scope := range a.scopes {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(a.verifier)}
	set := func(name, value string) {
		if value != "" {
			options = append(options, oauth2.SetAuthURLParam(name, value))
		}
	}
	for _, parameters := range []map[string]string{c.Parameters, a.parameters} {
		for _, name := range slices.Sorted(maps.Keys(parameters)) {
			set(name, parameters[name])
		}
	}
	set("login_hint", a.loginHint)
	if c.wantsIDToken() {
		set("nonce", a.nonce)
	}
	if c.FormPost {
		set("response_mode", "form_post")
	}
	config := oauth2.Config{
		ClientID: c.ClientID, RedirectURL: a.redirect, Scopes: scopes, Endpoint: oauth2.Endpoint{AuthURL: m.authorize},
	}
	return config.AuthCodeURL(a.state, options...), nil
}

// checkIssuer verifies which issuer the authorization response names, so
// that no other provider's response is taken for it (RFC 9207). It returns the
// code of a refusal, or "".
func (c *providerClient) checkIssuer(ctx context.Context, given string) (code string, err error) {
	m, err := c.issuer.endpoints(ctx)
	switch {
	case err != nil:
		return "temporarily_unavailable", err
	case given == "" && m.namesIssuer:
		return "issuer_missing", nil
	case given != "" && c.Issuer != "" && !strings.Contains(c.Issuer, tenantPart) && given != c.Issuer:
		return "issuer_mismatch", nil
	}
	return "", nil
}

// tokens are what a provider gave for a user.
type tokens struct {
	Access  string `json:"access,omitempty"`
	Refresh string `json:"refresh,omitempty"`
	ID      string `json:"id,omitempty"`
	// ExpiresAt is when the access token ends; zero: it does not say.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	Scopes    []string  `json:"scopes,omitempty"`
}

// exchange turns a code into tokens (RFC 6749, 4.1.3). Its error is
// errProviderDown or errProviderRefused.
func (c *providerClient) exchange(ctx context.Context, code, verifier, redirect string) (tokens, error) {
	config, err := c.config(ctx)
	if err != nil {
		return tokens{}, err
	}
	config.RedirectURL = redirect
	token, err := config.Exchange(c.context(ctx), code, oauth2.VerifierOption(verifier))
	return c.received(token, err)
}

// refresh gets new tokens (RFC 6749, 6). Its errors are those of exchange.
func (c *providerClient) refresh(ctx context.Context, refreshToken string) (tokens, error) {
	config, err := c.config(ctx)
	if err != nil {
		return tokens{}, err
	}
	token, err := config.TokenSource(c.context(ctx), &oauth2.Token{RefreshToken: refreshToken}).Token()
	return c.received(token, err)
}

func (c *providerClient) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, c.http)
}

func (c *providerClient) config(ctx context.Context) (*oauth2.Config, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	secret := c.ClientSecret.Reveal()
	if c.secret != nil {
		if secret, err = c.secret(c.now()); err != nil {
			return nil, err
		}
	}
	style := oauth2.AuthStyleInParams
	if m.secretInHeader && secret != "" {
		style = oauth2.AuthStyleInHeader
	}
	return &oauth2.Config{
		ClientID: c.ClientID, ClientSecret: secret,
		Endpoint: oauth2.Endpoint{TokenURL: m.token, AuthStyle: style},
	}, nil
}

// received checks the response of the token endpoint. Text of the
// provider other than an error code is left out: it may quote the secret.
func (c *providerClient) received(token *oauth2.Token, err error) (tokens, error) {
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode >= http.StatusInternalServerError:
		return tokens{}, fmt.Errorf("%w: status %d", errProviderDown, refused.Response.StatusCode)
	case errors.As(err, &refused):
		return tokens{}, fmt.Errorf("%w: status %d, %.64q", errProviderRefused, refused.Response.StatusCode, refused.ErrorCode)
	case err != nil:
		return tokens{}, fmt.Errorf("%w: %w", errProviderDown, err)
	}
	idToken, _ := token.Extra("id_token").(string)
	scope, _ := token.Extra("scope").(string)
	got := tokens{
		Access: token.AccessToken, Refresh: token.RefreshToken, ID: idToken, ExpiresAt: c.expiry(token),
		Scopes: strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' || r == ',' }),
	}
	for _, text := range []string{got.Access, got.Refresh, got.ID, scope} {
		if len(text) > maxProviderToken {
			return tokens{}, fmt.Errorf("%w: a token is over %d bytes", errProviderRefused, maxProviderToken)
		}
	}
	return got, nil
}

// expiry is reckoned on the kit's own clock.
func (c *providerClient) expiry(token *oauth2.Token) time.Time {
	seconds := token.ExpiresIn
	if seconds == 0 { // the response was a form
		switch written := token.Extra("expires_in").(type) {
		case int64:
			seconds = written
		case float64:
			seconds = int64(written)
		}
	}
	if seconds <= 0 {
		return time.Time{}
	}
	return c.now().UTC().Add(min(time.Duration(min(seconds, int64(maxTokenLife/time.Second)))*time.Second, maxTokenLife))
}

// profile is what a provider says about a user.
type profile struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name, Image   string
	claims        claims
}

// identify returns whose tokens these are: by the ID token with the nonce of
// the request where there has to be one, else by the user info. Its error is
// errProviderDown, errProviderRefused or errIDToken.
func (c *providerClient) identify(ctx context.Context, t tokens, nonce string) (profile, error) {
	if !c.wantsIDToken() {
		known, err := c.userInfo(ctx, t.Access)
		if err != nil {
			return profile{}, err
		}
		return c.profile(known)
	}
	if t.ID == "" || nonce == "" {
		return profile{}, fmt.Errorf("%w: there is none", errIDToken)
	}
	known, err := c.issuer.verify(ctx, idProof{idToken: t.ID, nonce: nonce, accessToken: t.Access})
	if err != nil {
		return profile{}, err
	}
	return c.enriched(ctx, known, t.Access)
}

// enriched adds the user info of the same subject to an ID token that names no
// address: providers may tell it there alone (OpenID Connect Core, 5.3).
func (c *providerClient) enriched(ctx context.Context, known claims, accessToken string) (profile, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return profile{}, err
	}
	if known.at(c.Fields.Email) == nil && m.userInfo != "" && accessToken != "" {
		more, err := c.userInfo(ctx, accessToken)
		if err != nil {
			return profile{}, err
		}
		if more.text("sub") != known.text("sub") {
			return profile{}, fmt.Errorf("%w: the user info is about another subject", errIDToken)
		}
		delete(known, c.Fields.EmailVerified) // it is about no address
		for name, value := range more {
			if _, given := known[name]; !given {
				known[name] = value
			}
		}
	}
	return c.profile(known)
}

func (c *providerClient) userInfo(ctx context.Context, accessToken string) (claims, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return nil, err
	}
	known := claims{}
	if err := fetchJSON(ctx, c.http, m.userInfo, accessToken, &known); err != nil {
		return nil, err
	}
	if c.complete != nil {
		get := func(address string, into any) error { return fetchJSON(ctx, c.http, address, accessToken, into) }
		if err := c.complete(known, get); err != nil {
			return nil, err
		}
	}
	return known, nil
}

// describe returns what the provider says about a user whose tokens were
// checked when they came.
func (c *providerClient) describe(ctx context.Context, t tokens) (profile, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return profile{}, err
	}
	known := claims{}
	if parts := strings.Split(t.ID, "."); len(parts) == 3 {
		payload, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil || decodeJSON(payload, &known) != nil {
			return profile{}, errIDToken
		}
	}
	if m.userInfo != "" {
		more, err := c.userInfo(ctx, t.Access)
		if err != nil {
			return profile{}, err
		}
		maps.Copy(known, more)
	}
	return c.profile(known)
}

// native returns whom an ID token is about that a client brought.
func (c *providerClient) native(ctx context.Context, idToken, nonce string) (profile, error) {
	known, err := c.issuer.verify(ctx, idProof{idToken: idToken, nonce: nonce, native: true})
	if err != nil {
		return profile{}, err
	}
	return c.profile(known)
}

// profile reads the facts of a user by the provider's names.
func (c *providerClient) profile(known claims) (profile, error) {
	p := profile{
		Subject: known.text(c.Fields.Subject), Email: known.text(c.Fields.Email),
		Name: known.text(c.Fields.Name), Image: known.text(c.Fields.Image), claims: known,
	}
	if c.subject != nil {
		p.Subject = c.subject(known)
	}
	if canonical, err := email.Canonical(p.Email); err == nil {
		p.Email = canonical
	} else {
		p.Email = ""
	}
	if p.Subject == "" || len(p.Subject) > maxSubject {
		return profile{}, fmt.Errorf("%w: it names no subject of at most %d bytes", errProviderRefused, maxSubject)
	}
	for name, value := range c.Require {
		if known.text(name) != value {
			return profile{}, fmt.Errorf("%w: its %s is %.200q", errProviderRefused, name, known.text(name))
		}
	}
	switch c.EmailTrust {
	case EmailAlwaysVerified:
		p.EmailVerified = p.Email != ""
	case EmailAsClaimed:
		p.EmailVerified = p.Email != "" && known.is(c.Fields.EmailVerified)
	case EmailNeverVerified:
	}
	p.Name = displayName(p.Name)
	if !strings.HasPrefix(p.Image, "https://") || checkProfile("", p.Image) != nil {
		p.Image = ""
	}
	return p, nil
}

// displayName makes a name of what a provider wrote: of bounded length, in one
// line.
func displayName(text string) string {
	text = strings.Map(func(r rune) rune {
		if misleads(r) {
			return -1
		}
		return r
	}, text)
	if len(text) > maxName {
		text = text[:maxName]
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, ""))
}
