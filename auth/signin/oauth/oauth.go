// Package oauth is the client's side of OAuth 2.0 and OpenID Connect: it makes the address that
// sends a browser to a provider, exchanges the returned code for tokens, and identifies their user.
// Package signin calls it; applications make a [Provider] with [Google], [Apple], [GitHub],
// [Microsoft], [Discord], [Facebook] or [OpenID] and put it into signin.Config.Providers.
//
// What it promises:
//   - A profile is what the provider vouches for: by an ID token whose signature,
//     issuer, audience, age and nonce were checked, or by the user info over TLS. An
//     address counts as verified as [EmailTrust] has it.
//   - A provider cannot harm this process: responses are bounded in size and time, JSON with a
//     duplicate member is refused, no redirect is followed, and discovered endpoints are called
//     at public addresses alone.
//   - Configuration and keys are fetched by one caller for all that wait, at most once in 30
//     seconds however many unknown keys are named, and are used for a day while the provider is
//     down.
//
// It handles no browser requests, database or sessions: states, cookies and accounts are its
// caller's.
package oauth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// Bounds of a provider's tokens.
const (
	maxProviderToken = 16 << 10 // bytes
	maxTokenLife     = 10 * 365 * 24 * time.Hour
)

// Client is the kit's side of one provider. It is safe for concurrent use.
type Client struct {
	Provider
	http   *http.Client
	now    func() time.Time
	issuer *issuer
}

// NewClient returns the client of a provider in which [Validate] found no fault.
func NewClient(p Provider, network Network, now func() time.Time) *Client {
	p = p.withDefaults()
	c := &Client{Provider: p, http: newFetcher(p.addresses(), network), now: now}
	c.issuer = newIssuer(p, c.http, now)
	return c
}

// AuthorizeURL returns where to send the browser (RFC 6749, 4.1.1; RFC 7636, 4.3).
func (c *Client) AuthorizeURL(ctx context.Context, a Authorization) (string, error) {
	m, err := c.issuer.endpoints(ctx)
	if err != nil {
		return "", err
	}
	scopes := slices.Clone(c.Scopes)
	for _, scope := range a.Scopes {
		if !slices.Contains(scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	options := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(a.Verifier)}
	set := func(name, value string) {
		if value != "" {
			options = append(options, oauth2.SetAuthURLParam(name, value))
		}
	}
	for _, parameters := range []map[string]string{c.Parameters, a.Parameters} {
		for _, name := range slices.Sorted(maps.Keys(parameters)) {
			set(name, parameters[name])
		}
	}
	set("login_hint", a.LoginHint)
	if c.wantsIDToken() {
		set("nonce", a.Nonce)
	}
	if c.FormPost {
		set("response_mode", "form_post")
	}
	config := oauth2.Config{
		ClientID: c.ClientID, RedirectURL: a.Redirect, Scopes: scopes, Endpoint: oauth2.Endpoint{AuthURL: m.authorize},
	}
	return config.AuthCodeURL(a.State, options...), nil
}

// CheckIssuer checks the issuer that an authorization response names, "" for none, so that the
// response of another provider is not accepted (RFC 9207). Its error is [ErrIssuerMissing] or
// [ErrIssuerMismatch], or that of discovery.
func (c *Client) CheckIssuer(ctx context.Context, given string) error {
	m, err := c.issuer.endpoints(ctx)
	switch {
	case err != nil:
		return err
	case given == "" && m.namesIssuer:
		return ErrIssuerMissing
	case given != "" && c.Issuer != "" && !strings.Contains(c.Issuer, tenantPart) && given != c.Issuer:
		return ErrIssuerMismatch
	}
	return nil
}

// Exchange turns a code into tokens (RFC 6749, 4.1.3). Its error is
// [ErrUnreachable] or [ErrRefused].
func (c *Client) Exchange(ctx context.Context, code, verifier, redirect string) (Tokens, error) {
	config, err := c.config(ctx)
	if err != nil {
		return Tokens{}, err
	}
	config.RedirectURL = redirect
	token, err := config.Exchange(c.context(ctx), code, oauth2.VerifierOption(verifier))
	return c.received(token, err)
}

// Refresh gets new tokens (RFC 6749, 6). Its errors are those of [Client.Exchange].
func (c *Client) Refresh(ctx context.Context, refreshToken string) (Tokens, error) {
	config, err := c.config(ctx)
	if err != nil {
		return Tokens{}, err
	}
	token, err := config.TokenSource(c.context(ctx), &oauth2.Token{RefreshToken: refreshToken}).Token()
	return c.received(token, err)
}

func (c *Client) context(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, c.http)
}

func (c *Client) config(ctx context.Context) (*oauth2.Config, error) {
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

// received checks the response of the token endpoint. It omits text of the provider other than an
// error code, because that may quote the secret.
func (c *Client) received(token *oauth2.Token, err error) (Tokens, error) {
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.Response.StatusCode >= http.StatusInternalServerError:
		return Tokens{}, fmt.Errorf("%w: status %d", ErrUnreachable, refused.Response.StatusCode)
	case errors.As(err, &refused):
		return Tokens{}, fmt.Errorf("%w: status %d, %.64q", ErrRefused, refused.Response.StatusCode, refused.ErrorCode)
	case err != nil:
		return Tokens{}, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	idToken, _ := token.Extra("id_token").(string)
	scope, _ := token.Extra("scope").(string)
	got := Tokens{
		Access: token.AccessToken, Refresh: token.RefreshToken, ID: idToken, ExpiresAt: c.expiry(token),
		Scopes: strings.FieldsFunc(scope, func(r rune) bool { return r == ' ' || r == ',' }),
	}
	for _, text := range []string{got.Access, got.Refresh, got.ID, scope} {
		if len(text) > maxProviderToken {
			return Tokens{}, fmt.Errorf("%w: a token is over %d bytes", ErrRefused, maxProviderToken)
		}
	}
	return got, nil
}

// expiry returns when a token expires, by the kit's own clock.
func (c *Client) expiry(token *oauth2.Token) time.Time {
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
