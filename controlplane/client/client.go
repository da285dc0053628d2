// Package client is the customer's side of a control-plane connection: it signs a credential for
// each call and calls a service with it. It depends on no part of the service; a customer's program
// imports only this package.
//
// The file browser.js in this directory does the same for a page of the issuer's origin.
package client

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/internal/local"
)

// maxResponse is the maximum of a response that is read, in bytes.
const maxResponse = 8 << 20

// Client calls one service with one identity. It is safe for concurrent use.
type Client struct {
	identity Identity
	service  *url.URL // the origin of the service
	http     *http.Client
	now      func() time.Time
}

// Option configures [New].
type Option func(*Client)

// WithHTTP sets the HTTP client; redirects are never followed.
func WithHTTP(c *http.Client) Option { return func(to *Client) { to.http = c } }

// WithClock sets the clock of the times in credentials.
func WithClock(now func() time.Time) Option { return func(to *Client) { to.now = now } }

// New returns a client. The address must be https, or http on this machine.
func New(identity Identity, opts ...Option) (*Client, error) {
	u, err := url.Parse(identity.Address)
	if err != nil || u.Host == "" || (u.Scheme != "https" && !(u.Scheme == "http" && local.Host(u.Hostname()))) {
		return nil, fmt.Errorf("client: %q is neither https nor http on this machine", identity.Address)
	}
	c := &Client{identity: identity, service: &url.URL{Scheme: u.Scheme, Host: u.Host}, now: time.Now,
		http: &http.Client{Timeout: 30 * time.Second}}
	for _, opt := range opts {
		opt(c)
	}
	direct := *c.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.http = &direct
	return c, nil
}

// String returns a description without the private key.
func (c *Client) String() string { return "client of " + c.identity.String() }

// GoString returns a description without the private key.
func (c *Client) GoString() string { return c.String() }

// Error is a refusal of the service.
type Error struct {
	Status int
	// Code is domain/reason, such as controlplane/invalid_credential; empty if the response is not
	// from the service.
	Code, Message, RequestID string
	// Details is JSON that the code defines, such as the scope that a credential lacks; nil if there
	// is none.
	Details json.RawMessage
}

func (e *Error) Error() string {
	if e.Code == "" {
		return fmt.Sprintf("client: HTTP status %d", e.Status)
	}
	details := ""
	if len(e.Details) > 0 {
		details = ", details " + string(e.Details)
	}
	return fmt.Sprintf("client: %s: %s (status %d, request %s%s)", e.Code, e.Message, e.Status, e.RequestID, details)
}

// Call sends one request with a new credential that has the scopes. path is a path of the manifest,
// optionally with a query; body is sent as JSON unless it is nil, and the response is decoded into
// out unless that is nil. A refusal is returned as an [*Error].
func (c *Client) Call(ctx context.Context, method, path string, body, out any, scopes ...string) error {
	return c.call(ctx, rand.Text(), method, path, body, out, scopes)
}

func (c *Client) call(ctx context.Context, id, method, path string, body, out any, scopes []string) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	target, err := c.service.Parse(path)
	if err != nil || target.Scheme != c.service.Scheme || target.Host != c.service.Host {
		return fmt.Errorf("client: %q is no path of the service", path)
	}
	token, err := c.identity.token(c.now(), id, method, target.String(), text, scopes)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.do(r, out)
}

func (c *Client) do(r *http.Request, out any) error {
	resp, err := c.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	response, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return err
	}
	if len(response) > maxResponse {
		return errors.New("client: the response is too large")
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		var refusal struct{ Error Error }
		_ = json.Unmarshal(response, &refusal) // other responses have no code
		refusal.Error.Status = resp.StatusCode
		return &refusal.Error
	}
	if out == nil || len(response) == 0 {
		return nil
	}
	return json.Unmarshal(response, out)
}

// Ping checks that the service is reachable and accepts the key.
func (c *Client) Ping(ctx context.Context) (p Ping, err error) {
	err = c.Call(ctx, http.MethodGet, c.path("/ping"), nil, &p)
	return p, err
}

// Manifest returns the service's manifest; scopes are requested in addition to manifest:read and
// returned as granted.
func (c *Client) Manifest(ctx context.Context, scopes ...string) (m Manifest, err error) {
	err = c.Call(ctx, http.MethodGet, c.path("/manifest"), nil, &m, append([]string{"manifest:read"}, scopes...)...)
	return m, err
}

// Keys lists the live keys, oldest first.
func (c *Client) Keys(ctx context.Context) ([]Key, error) {
	var page struct{ Items []Key }
	err := c.Call(ctx, http.MethodGet, c.path("/keys"), nil, &page, scopeRotate)
	return page.Items, err
}

// Register registers a new key that replaces the client's key, which verifies until the new key
// expires it: continue with Identity.WithKey. Refused with controlplane/key_conflict if another
// registration was faster.
func (c *Client) Register(ctx context.Context, key ed25519.PrivateKey) (k Key, err error) {
	id := rand.Text()
	proof, err := c.identity.proof(c.now(), id, key)
	if err != nil {
		return Key{}, err
	}
	body := struct {
		PublicKey wire.JWK `json:"publicKey"`
		Proof     string   `json:"proof"`
	}{wire.NewJWK(key.Public().(ed25519.PublicKey)), proof}
	err = c.call(ctx, id, http.MethodPost, c.path("/keys"), body, &k, []string{scopeRotate})
	return k, err
}

// Expire expires the key that the client's own has replaced.
func (c *Client) Expire(ctx context.Context, keyID string) (k Key, err error) {
	err = c.Call(ctx, http.MethodPost, c.path("/keys/"+url.PathEscape(keyID)+"/expire"), nil, &k, scopeRotate)
	return k, err
}

const scopeRotate = "keys:rotate"

// path returns the path of a route of the control plane.
func (c *Client) path(rest string) string {
	u, _ := url.Parse(c.identity.Address) // New has checked it
	return u.EscapedPath() + rest
}
