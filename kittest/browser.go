package kittest

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
)

// csrfCookie is the end of the name of the cookie with the CSRF token, which may begin with any
// prefix.
const csrfCookie = "csrf"

// Via returns a client of the application's own router that acts like a browser with one tab. It
// stores the cookies of responses and sends them again. Requests have the headers of requests of
// the application's pages; those with unsafe methods carry the CSRF token of the session, as a
// script of a page would send it. Browser("ada").Via(handler) is signed in,
// Anonymous().Via(handler) is not. Paths are those of the router and include the path of the base
// URL. See [Client.Form] and [Client.Follow].
func (c *Client) Via(handler http.Handler) *Client {
	c.t.Helper()
	base, err := url.Parse(c.base)
	if err != nil {
		c.t.Fatalf("kittest: %v", err)
	}
	via := *c
	via.handler, via.jar = handler, &jar{cookies: make(map[string]*http.Cookie)}
	if c.session != nil {
		cookie := c.auth.SessionCookie(*c.session)
		via.jar.cookies[cookie.Name] = cookie
		via.jar.signedIn, via.jar.token = cookie, c.auth.CSRFToken(*c.session)
		via.before = func(*http.Request) {}
	}
	via.jar.origin = base.Scheme + "://" + base.Host
	return &via
}

// Form submits a form as browsers do: with the fields in the body and, because no script is
// involved, without a CSRF token.
func (c *Client) Form(path string, fields url.Values) *Response {
	c.t.Helper()
	plain := c.With("Content-Type", "application/x-www-form-urlencoded").With("X-CSRF-Token", "")
	return plain.Do(http.MethodPost, path, fields.Encode())
}

// Follow requests the target of a redirect; it fails the test if the response is not a redirect.
func (c *Client) Follow(r *Response) *Response {
	c.t.Helper()
	to, err := url.Parse(r.Header.Get("Location"))
	if r.Status < 300 || r.Status > 399 || err != nil || to.Path == "" {
		c.t.Fatalf("kittest: got %d to %q, want a redirect", r.Status, r.Header.Get("Location"))
	}
	return c.Get((&url.URL{Path: to.Path, RawQuery: to.RawQuery}).String())
}

// jar stores the cookies of one origin.
type jar struct {
	origin string
	// signedIn is the cookie of the session that the browser began with, and token its CSRF token.
	signedIn *http.Cookie
	token    string

	mu      sync.Mutex
	cookies map[string]*http.Cookie
}

// dress adds to a request what a browser adds.
func (j *jar) dress(r *http.Request) {
	j.mu.Lock()
	defer j.mu.Unlock()
	token := ""
	for name, cookie := range j.cookies {
		if inside := strings.TrimSuffix(cookie.Path, "/"); inside == "" || r.URL.Path == inside || strings.HasPrefix(r.URL.Path, inside+"/") {
			r.AddCookie(&http.Cookie{Name: name, Value: cookie.Value})
		}
		if strings.HasSuffix(name, csrfCookie) {
			token = cookie.Value
		}
	}
	if now := j.signedIn; token == "" && now != nil && j.cookies[now.Name] != nil && j.cookies[now.Name].Value == now.Value {
		token = j.token
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		r.Header.Set("Origin", j.origin)
		if token != "" {
			r.Header.Set("X-CSRF-Token", token)
		}
	}
}

// keep stores the cookies of a response.
func (j *jar) keep(header http.Header) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, cookie := range (&http.Response{Header: header}).Cookies() {
		cookie.Path = path.Clean("/" + cookie.Path)
		if cookie.MaxAge < 0 || cookie.Value == "" {
			delete(j.cookies, cookie.Name)
			continue
		}
		j.cookies[cookie.Name] = cookie
	}
}
