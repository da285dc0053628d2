package kittest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/auth"
)

// Client calls the kit as one caller.
type Client struct {
	t       testing.TB
	handler http.Handler
	// before adds the credentials of the caller to a request.
	before func(*http.Request)
	// after applies the changes of With.
	after func(*http.Request)
	// base is the base URL of the kit; auth and session are set for a Browser.
	base    string
	auth    *auth.Auth
	session *auth.Session
	jar     *jar // nil without Via
}

// Response is the response to a call.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
	t      testing.TB
}

// Anonymous returns a client without credentials.
func (k *Kit) Anonymous() *Client { return k.client(func(*http.Request) {}) }

// User returns a client that acts as a user, created if absent, by an access token with the scopes.
// A user who was erased fails the test; a client of a user who is erased or disabled later is
// refused. It requires auth to be composed.
func (k *Kit) User(userID string, scopes ...string) *Client {
	k.t.Helper()
	ctx := context.Background()
	k.ensureUser(ctx, userID)
	first, err := k.Auth().IssueToken(ctx, userID, scopes, time.Minute)
	k.must(err)
	return k.client(func(r *http.Request) {
		// Each call has a new token, because the clock may have passed the expiry of the first.
		token, err := k.Auth().IssueToken(ctx, userID, scopes, time.Minute)
		if errors.Is(err, auth.ErrUserNotFound) || errors.Is(err, auth.ErrUserDisabled) {
			token, err = first, nil
		}
		k.must(err)
		r.Header.Set("Authorization", "Bearer "+token)
	})
}

// Browser returns a client that acts as a signed-in user, created if absent, by a session cookie
// and its CSRF token. A user who was erased fails the test. It requires auth to be composed.
func (k *Kit) Browser(userID string) *Client {
	k.t.Helper()
	ctx := context.Background()
	k.ensureUser(ctx, userID)
	session, err := k.Auth().CreateSession(ctx, userID)
	k.must(err)
	c := k.client(func(r *http.Request) {
		r.AddCookie(k.Auth().SessionCookie(session))
		r.Header.Set("X-CSRF-Token", k.Auth().CSRFToken(session))
	})
	c.auth, c.session = k.Auth(), &session
	return c
}

// ensureUser creates a user unless there is one, but none who was erased: a test that goes on as
// that user would look at somebody else.
func (k *Kit) ensureUser(ctx context.Context, userID string) {
	k.t.Helper()
	_, gone := k.Auth().User(ctx, userID)
	if _, err := k.Erasure(ctx, userID); errors.Is(gone, auth.ErrUserNotFound) && err == nil {
		k.t.Fatalf("kittest: user %s was erased; a user of the same id has to be created by Auth().EnsureUser", userID)
	}
	k.must(k.Auth().EnsureUser(ctx, userID))
}

// Bearing returns a client that sends this Authorization header.
func (k *Kit) Bearing(authorization string) *Client {
	return k.client(func(r *http.Request) { r.Header.Set("Authorization", authorization) })
}

func (k *Kit) client(before func(*http.Request)) *Client {
	return &Client{t: k.t, handler: k, before: before, base: k.BaseURL()}
}

func (k *Kit) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatalf("kittest: %v", err)
	}
}

// With returns a client that also sends a header, or that omits it if the value is empty.
func (c *Client) With(header, value string) *Client {
	with := *c
	with.after = func(r *http.Request) {
		if c.after != nil {
			c.after(r)
		}
		if value == "" {
			r.Header.Del(header)
			return
		}
		r.Header.Set(header, value)
	}
	return &with
}

// Get sends a GET request.
func (c *Client) Get(path string) *Response { c.t.Helper(); return c.Do(http.MethodGet, path, nil) }

// Post sends a POST request. A body that is a string is sent unchanged, any other is encoded as
// JSON.
func (c *Client) Post(path string, body any) *Response {
	c.t.Helper()
	return c.Do(http.MethodPost, path, body)
}

// Do sends a request with any method. The body is as in [Client.Post]; nil means no body.
func (c *Client) Do(method, path string, body any) *Response {
	c.t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			c.t.Fatalf("kittest: body: %v", err)
		}
		reader = bytes.NewReader(raw)
	}
	r := httptest.NewRequestWithContext(context.Background(), method, path, reader)
	r.RemoteAddr = "127.0.0.1:50000"
	if reader != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.jar != nil {
		c.jar.dress(r)
	}
	c.before(r)
	if c.after != nil {
		c.after(r)
	}
	rec := httptest.NewRecorder()
	c.serve(rec, r)
	if c.jar != nil {
		c.jar.keep(rec.Header())
	}
	return &Response{Status: rec.Code, Header: rec.Header(), Body: rec.Body.Bytes(), t: c.t}
}

// serve fails the test if the response is cut off.
func (c *Client) serve(w http.ResponseWriter, r *http.Request) {
	c.t.Helper()
	defer func() {
		if p := recover(); p == http.ErrAbortHandler { //nolint:errorlint // the value itself is thrown
			c.t.Fatalf("kittest: the response to %s %s was cut off", r.Method, r.URL.Path)
		} else if p != nil {
			panic(p)
		}
	}()
	c.handler.ServeHTTP(w, r)
}

// Code returns the code of a refusal, or "" if the call succeeded.
func (r *Response) Code() string {
	var body struct {
		Error struct{ Code string }
	}
	if r.Status < 400 || json.Unmarshal(r.Body, &body) != nil {
		return ""
	}
	return body.Error.Code
}

// JSON decodes the body into the value that into points to; it fails the test if it cannot.
func (r *Response) JSON(into any) {
	r.t.Helper()
	if err := json.Unmarshal(r.Body, into); err != nil {
		r.t.Fatalf("kittest: %d %s: %v", r.Status, r.Body, err)
	}
}

// Want fails the test unless the status and the code of the refusal are as given; the code of a
// success is "".
func (r *Response) Want(status int, code string) *Response {
	r.t.Helper()
	if r.Status != status || r.Code() != code {
		r.t.Fatalf("got %d %s, want %d %s", r.Status, r.Body, status, code)
	}
	return r
}
