package kittest

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
)

// csrfCookie ends the name of the cookie that scripts read the CSRF token from,
// whatever prefix the application chose.
const csrfCookie = "csrf"

// Via returns the caller on the application's own router, as a browser with one
// tab. It keeps the cookies of responses and sends them again. Requests say that
// they come from a page of the application; those of unsafe methods carry the CSRF
// token of the session, as the script of a page would send it. Browser("ada").Via(handler) is
// signed in, Anonymous().Via(handler) is not yet. Paths are those of the router,
// that of the base URL included. See [Client.Form] and [Client.Follow].
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

// Form submits a form of a page, as browsers do: the fields in the body, no
// script, so no CSRF token.
func (c *Client) Form(path string, fields url.Values) *Response {
	c.t.Helper()
	plain := c.With("Content-Type", "application/x-www-form-urlencoded").With("X-CSRF-Token", "")
	return plain.Do(http.MethodPost, path, fields.Encode())
}

// Follow reads what a response redirects to; it fails the test where that is
// nothing.
func (c *Client) Follow(r *Response) *Response {
	c.t.Helper()
	to, err := url.Parse(r.Header.Get("Location"))
	if r.Status < 300 || r.Status > 399 || err != nil || to.Path == "" {
		c.t.Fatalf("kittest: got %d to %q, want a redirect", r.Status, r.Header.Get("Location"))
	}
	return c.Get((&url.URL{Path: to.Path, RawQuery: to.RawQuery}).String())
}

// jar keeps cookies of one origin.
type jar struct {
	origin string
	// signedIn is the cookie of the session that the browser began with, token the
	// CSRF token of that.
	signedIn *http.Cookie
	token    string

	mu      sync.Mutex
	cookies map[string]*http.Cookie
}

// dress puts on a request what a browser does.
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

// keep takes the cookies of a response.
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
