package auth_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mount"
	_ "github.com/kitbackend/kit/internal/provoked" // records what the tests provoke
)

// serve puts a node's routes under HTTP, with a machine that says its scopes in
// place of a credential.
func (n *node) serve(extra ...capability.Route) http.Handler {
	var table []mount.Entry
	for _, r := range append(n.Capability().Routes, extra...) {
		table = append(table, mount.Entry{Domain: "auth", Route: r})
	}
	users := n.Users()
	return mount.New(mount.Config{
		Entries: table, Users: &users, DB: n.host.DB, Log: n.host.Log, Now: n.clock.Now, BaseURL: n.host.BaseURL,
		Machines: &capability.Machines{
			Verify: func(r *http.Request, _ func() ([]byte, error)) (capability.Caller, error) {
				scopes, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Machine ")
				if !ok {
					return capability.Caller{}, errors.New("no machine")
				}
				return capability.Caller{Strategy: capability.StrategyControlPlane, Scopes: strings.Fields(scopes), ConnectionID: "c"}, nil
			},
			AllowOrigin: func(string) bool { return false },
		},
	})
}

// client keeps cookies as a browser does, and the headers that a test adds.
type client struct {
	t       testing.TB
	handler http.Handler
	cookies map[string]*http.Cookie
	headers map[string]string
}

func (n *node) client(t testing.TB, extra ...capability.Route) *client {
	return &client{t: t, handler: n.serve(extra...), cookies: map[string]*http.Cookie{}, headers: map[string]string{}}
}

// with returns a client that also sends a header, and shares the cookies.
func (c *client) with(name, value string) *client {
	headers := map[string]string{name: value}
	for k, v := range c.headers {
		if k != name {
			headers[k] = v
		}
	}
	return &client{c.t, c.handler, c.cookies, headers}
}

type response struct {
	*http.Response
	body []byte
	t    testing.TB
}

func (c *client) do(method, path, body string) response {
	c.t.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(ctx, method, path, reader)
	r.Host = "api.example.com"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, cookie := range c.cookies {
		if cookie.Path == "/" || strings.HasPrefix(path, cookie.Path+"/") {
			r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
		}
	}
	for name, value := range c.headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, r)
	a := response{w.Result(), w.Body.Bytes(), c.t}
	for _, cookie := range a.Cookies() {
		if cookie.MaxAge < 0 {
			delete(c.cookies, cookie.Name)
		} else {
			c.cookies[cookie.Name] = cookie
		}
	}
	return a
}

// want fails the test unless the status and the code, "" for success, are these.
func (a response) want(status int, code string) response {
	a.t.Helper()
	var body struct{ Error struct{ Code string } }
	_ = json.Unmarshal(a.body, &body)
	if a.StatusCode != status || body.Error.Code != code {
		a.t.Fatalf("got %d %s, want %d %s", a.StatusCode, a.body, status, code)
	}
	return a
}

func (a response) decode(into any) {
	a.t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		a.t.Fatalf("%s: %v", a.body, err)
	}
}

// doorman is the smallest library: it believes every name it is told.
func doorman(_ capability.Host, a *auth.LibraryHost) (auth.Library, error) {
	reply := func(w http.ResponseWriter, v any, err error) {
		if err != nil {
			refusal := capability.AsError(err)
			w.WriteHeader(refusal.Status)
			v = map[string]any{"code": refusal.Code, "error": map[string]string{"code": refusal.Code}}
		}
		_ = json.NewEncoder(w).Encode(v)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /auth/sign-in/name", func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Name, Device string }
		if json.NewDecoder(r.Body).Decode(&in) != nil {
			reply(w, nil, capability.ErrInvalidRequest)
			return
		}
		entered, err := a.Enter(w, r, auth.Entry{UserID: in.Name, Method: "pwd totp", Remember: true, DeviceName: in.Device})
		out := map[string]string{"token": entered.AccessToken, "csrf": entered.CSRFToken, "session": entered.Session.ID}
		if auth.BodyTransport(r) {
			out["refreshToken"] = entered.RefreshToken
		}
		reply(w, out, err)
	})
	mux.HandleFunc("POST /auth/sign-out", func(w http.ResponseWriter, r *http.Request) {
		reply(w, map[string]bool{"success": true}, a.Leave(w, r))
	})
	mux.HandleFunc("/auth/session", func(w http.ResponseWriter, r *http.Request) {
		session, found, err := a.Current(r)
		reply(w, map[string]any{"user": session.UserID, "found": found, "methods": session.Methods}, err)
	})
	mux.HandleFunc("GET /auth/link/{token}", func(w http.ResponseWriter, r *http.Request) {
		reply(w, map[string]string{"used": r.PathValue("token")}, nil)
	})
	mux.HandleFunc("POST /auth/resume/{session}", func(w http.ResponseWriter, r *http.Request) {
		entered, err := a.Resume(w, r, r.PathValue("session"))
		reply(w, map[string]string{"token": entered.AccessToken, "csrf": entered.CSRFToken}, err)
	})
	mux.HandleFunc("POST /auth/send", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]bool{"sent": true}, nil) })
	return auth.Library{
		Name: "doorman", Handler: mux,
		Routes: []auth.LibraryRoute{
			{Method: "POST", Path: "/sign-in/name", Rate: "auth-sign-in"},
			{Method: "POST", Path: "/sign-out"},
			{Method: capability.Any, Path: "/session"},
			{Method: "GET", Path: "/link/:token"},
			{Method: "POST", Path: "/send", Rate: "auth-send", Sends: "magic_link"},
		},
	}, nil
}

// withDoorman is a node with that library and no limits.
func withDoorman(config auth.Config) setup {
	config.Library = doorman
	if config.RateLimits == nil {
		config.RateLimits = map[string]auth.RateLimit{"auth-sign-in": {Events: -1}, "auth-send": {Events: -1}}
	}
	return setup{config: config}
}

// entered is what a client has after a sign-in.
type entered struct{ Token, CSRF, Session, RefreshToken string }

func (c *client) signIn(user string) (e entered) {
	c.t.Helper()
	c.do("POST", "/auth/sign-in/name", `{"name":"`+user+`","device":"laptop"}`).want(200, "").decode(&e)
	return e
}
