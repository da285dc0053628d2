package auth_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

var local = setup{environment: capability.Development, baseURL: "http://localhost:8080"}

// signedIn is what a client has after GET /__kit/dev-login.
type signedIn struct {
	id, token, csrf string
	cookie          *http.Cookie
}

func fromLoopback(query string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/__kit/dev-login?"+query, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:50123", "localhost:8080"
	return r
}

func (n *node) devLoginRoute() (capability.Route, bool) {
	for _, r := range n.Capability().Routes {
		if r.Method == http.MethodGet && r.Path == "/__kit/dev-login" {
			return r, true
		}
	}
	return capability.Route{}, false
}

func (n *node) devLogin(t testing.TB, r *http.Request) (signedIn, error) {
	t.Helper()
	route, ok := n.devLoginRoute()
	if !ok {
		t.Fatal("no such route")
	}
	w := httptest.NewRecorder()
	origin := &capability.RequestInfo{Caller: capability.Caller{Strategy: capability.StrategyPublic}}
	r = r.WithContext(capability.WithRequestInfo(r.Context(), origin))
	reply, err := route.Handle.Reply(capability.NewCall(w, r, &route, origin, nil))
	if err != nil {
		if len(w.Result().Cookies()) > 0 {
			t.Error("a refusal sets a cookie")
		}
		return signedIn{}, err
	}
	text, err := json.Marshal(reply)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]string
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	cookies := w.Result().Cookies()
	if len(cookies) != 3 || cookies[0].Name != "kit_session" || body["userId"] == "" {
		t.Fatalf("headers %v, body %s", w.Header(), text)
	}
	caller, err := n.users.Bearer(ctx, body["accessToken"])
	if err != nil {
		t.Fatal(err)
	}
	return signedIn{id: caller.SessionID, token: body["accessToken"], csrf: body["csrfToken"], cookie: cookies[0]}, nil
}

func (n *node) devSession(t *testing.T, user string) signedIn {
	t.Helper()
	s, err := n.devLogin(t, fromLoopback("user="+user))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDevLogin(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, local)
		for range 2 { // created, then found
			s, err := n.devLogin(t, fromLoopback("user=ada&scope=ledger:admin,rating:record&scope=leaderboard:submit+ledger:admin"))
			if err != nil {
				t.Fatal(err)
			}
			bearer, err := n.users.Bearer(ctx, s.token)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"ledger:admin", "rating:record", "leaderboard:submit"}, bearer.Scopes); diff != "" {
				t.Error(diff)
			}
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.AddCookie(s.cookie)
			r.Header.Set("X-CSRF-Token", s.csrf)
			caller, ok, err := n.users.Session(r)
			want := capability.Caller{Strategy: capability.StrategySession, UserID: "ada", SessionID: bearer.SessionID}
			if diff := cmp.Diff(want, caller); diff != "" || !ok || err != nil {
				t.Error(ok, err, diff)
			}
			if err := n.users.CSRF(r, caller); err != nil {
				t.Error(err)
			}
			if _, claims := decode(t, s.token); claims["auth_time"] != float64(n.clock.Now().Unix()) {
				t.Errorf("auth_time %v", claims["auth_time"])
			}
		}
		want := []string{"auth/user_created anonymous ada", "auth/signed_in user ada", "auth/signed_in user ada"}
		if diff := cmp.Diff(want, n.actions(t)); diff != "" {
			t.Error(diff)
		}
		page, err := n.trail.ListEvents(ctx, audit.Filter{Action: "auth/signed_in"}, capability.NewPage(1, ""))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(page.Items[0].Detail); got != `{"method":"dev_login","scopes":["ledger:admin","rating:record","leaderboard:submit"]}` {
			t.Error(got)
		}
	})
}

func TestDevLoginIsForDevelopmentOnly(t *testing.T) {
	for _, environment := range []string{capability.Production, capability.Sandbox, "staging", "Development", "dev"} {
		n := open(t, databasetest.Memory(t), setup{environment: environment})
		if _, ok := n.devLoginRoute(); ok {
			t.Errorf("mounted in %s", environment)
		}
	}
	route, _ := open(t, databasetest.Memory(t), local).devLoginRoute()
	if route.Guard.Strategy() != capability.StrategyPublic || route.Guard.Note() != "development only" {
		t.Errorf("%v %q", route.Guard.Strategy(), route.Guard.Note())
	}
}

func TestDevLoginServesThisMachineOnly(t *testing.T) {
	n := open(t, databasetest.Memory(t), local)
	set := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	peer := func(addr string) func(*http.Request) { return func(r *http.Request) { r.RemoteAddr = addr } }
	tests := map[string]struct {
		change func(*http.Request)
		want   error
	}{
		"as it is":                {func(*http.Request) {}, nil},
		"IPv6 peer":               {peer("[::1]:50123"), nil},
		"mapped peer":             {peer("[::ffff:127.0.0.1]:50123"), nil},
		"other loopback":          {peer("127.8.9.10:50123"), nil},
		"host without port":       {host("localhost"), nil},
		"upper case host":         {host("LOCALHOST:3000"), nil},
		"host 127.0.0.1":          {host("127.0.0.1:8080"), nil},
		"host [::1]":              {host("[::1]:8080"), nil},
		"host [::1] without port": {host("[::1]"), nil},
		"typed into a browser":    {set("Sec-Fetch-Site", "none"), nil},
		"own page":                {set("Sec-Fetch-Site", "same-origin"), nil},

		"private peer":       {peer("192.168.1.7:50123"), capability.ErrNotFound},
		"public peer":        {peer("203.0.113.7:50123"), capability.ErrNotFound},
		"unspecified peer":   {peer("0.0.0.0:50123"), capability.ErrNotFound},
		"peer without port":  {peer("127.0.0.1"), capability.ErrNotFound},
		"peer is a name":     {peer("localhost:50123"), capability.ErrNotFound},
		"unix socket":        {peer("@"), capability.ErrNotFound},
		"no peer":            {peer(""), capability.ErrNotFound},
		"rebound name":       {host("evil.example:8080"), capability.ErrNotFound},
		"localhost as part":  {host("localhost.evil.example"), capability.ErrNotFound},
		"name in localhost":  {host("evil.localhost"), capability.ErrNotFound},
		"trailing dot":       {host("localhost."), capability.ErrNotFound},
		"two ports":          {host("localhost:80:80"), capability.ErrNotFound},
		"other loopback IP":  {host("127.0.0.2"), capability.ErrNotFound},
		"no host":            {host(""), capability.ErrNotFound},
		"Forwarded":          {set("Forwarded", "for=127.0.0.1"), capability.ErrNotFound},
		"X-Forwarded-For":    {set("X-Forwarded-For", "127.0.0.1"), capability.ErrNotFound},
		"X-Forwarded-Host":   {set("X-Forwarded-Host", "localhost"), capability.ErrNotFound},
		"X-Forwarded-Proto":  {set("X-Forwarded-Proto", "http"), capability.ErrNotFound},
		"X-Forwarded-Any":    {set("X-Forwarded-Client-Cert", "x"), capability.ErrNotFound},
		"empty X-Forwarded":  {set("X-Forwarded-For", ""), capability.ErrNotFound},
		"not canonical name": {func(r *http.Request) { r.Header["x-forwarded-for"] = []string{"127.0.0.1"} }, capability.ErrNotFound},
		"Via":                {set("Via", "1.1 proxy"), capability.ErrNotFound},
		"X-Real-Ip":          {set("X-Real-Ip", "127.0.0.1"), capability.ErrNotFound},
		"cross-site page":    {set("Sec-Fetch-Site", "cross-site"), capability.ErrNotFound},
		"same-site page":     {set("Sec-Fetch-Site", "same-site"), capability.ErrNotFound},
		"odd site":           {set("Sec-Fetch-Site", "Cross-Site"), capability.ErrNotFound},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := fromLoopback("user=ada")
			tt.change(r)
			if _, err := n.devLogin(t, r); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestDevLoginRefusesBadQueries(t *testing.T) {
	n := open(t, databasetest.Memory(t), local)
	for _, query := range []string{
		"", "user=", "user=ada&user=bob", "User=ada", "user=" + url.QueryEscape("a b"), "user=..%2Fada", "user=%00",
		"user=ada&scope=" + url.QueryEscape(`a"b`), "user=ada&scope=%C3%A4",
	} {
		if _, err := n.devLogin(t, fromLoopback(query)); !errors.Is(err, capability.ErrInvalidRequest) {
			t.Errorf("%q: %v", query, err)
		}
	}
	if actions := n.actions(t); len(actions) > 0 {
		t.Errorf("recorded: %v", actions)
	}
}

// A failing part takes all of it back: no user without the event, no session.
func TestDevLoginIsOneTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, local)
		if _, err := db.Exec(ctx, `DROP TABLE audit_event`); err != nil {
			t.Fatal(err)
		}
		if _, err := n.devLogin(t, fromLoopback("user=ada")); err == nil {
			t.Fatal("signed in without a trail")
		}
		if _, err := n.IssueToken(ctx, "ada", nil, 0); !errors.Is(err, auth.ErrUserNotFound) {
			t.Errorf("the user stayed: %v", err)
		}
	})
}
