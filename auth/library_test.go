package auth_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
)

// What the kit keeps for itself never reaches the library; everything else does.
func TestCatchAll(t *testing.T) {
	var seen []string
	n := open(t, databasetest.Memory(t), setup{baseURL: "https://api.example.com/v1", config: auth.Config{Library: func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
		return auth.Library{
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				seen = append(seen, r.Method+" "+r.URL.Path)
				if o := capability.RequestInfoOf(r.Context()); o == nil || o.IP != "192.0.2.1" || o.RequestID == "" {
					t.Errorf("origin %v", o)
				}
				w.WriteHeader(http.StatusTeapot)
			}),
			Routes: []auth.LibraryRoute{{Method: "GET", Path: "/link/:token"}, {Method: capability.Any, Path: "/files/*"}},
		}, nil
	}}})
	c := n.client(t)
	for _, call := range []struct {
		method, path string
		status       int
		code         string
		reaches      bool
	}{
		{"GET", "/v1/auth/anything", 418, "", true},
		{"POST", "/auth/deep/path/", 418, "", true},
		{"DELETE", "/auth/x", 418, "", true},
		{"OPTIONS", "/auth/x", 418, "", true},
		{"GET", "/auth/administration", 418, "", true},
		{"GET", "/auth/devices/x", 418, "", true},
		{"GET", "/auth/admin", 404, "kit/not_found", false},
		{"GET", "/auth/admin/", 404, "kit/not_found", false},
		{"GET", "/auth/admin/unknown", 404, "kit/not_found", false},
		{"POST", "/auth/admin/users", 404, "kit/not_found", false},
		{"GET", "/auth/admin%2Funknown", 404, "kit/not_found", false},
		{"GET", "/auth/%61dmin/unknown", 404, "kit/not_found", false},
		{"HEAD", "/auth/admin/users", 404, "", false},
		{"HEAD", "/auth/link/secret", 200, "", false},
		{"HEAD", "/auth/link/", 404, "", false},
		{"HEAD", "/auth/files/a/b", 200, "", false},
		{"HEAD", "/auth/other", 404, "", false},
		{"GET", "/auth/admin/users", 401, "controlplane/invalid_credential", false},
		{"GET", "/auth/devices", 401, "auth/unauthenticated", false},
		{"GET", "/other", 404, "kit/not_found", false},
	} {
		seen = nil
		response := c.do(call.method, call.path, "")
		if call.method == http.MethodHead {
			response.body = nil
			call.code = ""
		}
		response.want(call.status, call.code)
		if (len(seen) == 1) != call.reaches || call.reaches && seen[0] != call.method+" "+strings.TrimPrefix(call.path, "/v1") {
			t.Errorf("%s %s: the library saw %v", call.method, call.path, seen)
		}
	}
	c.do("POST", "/auth/x", `"`+strings.Repeat("x", 64<<10)+`"`).want(413, "PAYLOAD_TOO_LARGE")
}

func TestWithoutALibrary(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{})
	n.client(t).do("POST", "/auth/sign-in/email", "{}").want(404, "NOT_FOUND")
}

func TestLibraryThatCannotBeMade(t *testing.T) {
	broken := errors.New("broken")
	host := open(t, databasetest.Memory(t), setup{}).host
	_, err := auth.New(host, auth.Config{Library: func(capability.Host, *auth.LibraryHost) (auth.Library, error) { return auth.Library{}, broken }},
		auth.Peers{})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	_, err = auth.New(host, auth.Config{Library: func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
		return auth.Library{Routes: []auth.LibraryRoute{{Method: "POST", Path: "/a", Rate: "auth-sing-in"}, {Method: "GET", Path: "/b", Rate: "read"}}}, nil
	}}, auth.Peers{})
	if fault := new(capability.Fault); !errors.As(err, &fault) || fault.Value != "POST /a" {
		t.Errorf("a misspelled rate class: %v", err)
	}
}

// Each address has its own bucket a class, IPv6 by the /64.
func TestLimitsOfTheLibrary(t *testing.T) {
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{RateLimits: map[string]auth.RateLimit{"auth-send": {Events: 2, Per: time.Minute}}}))
	n.user(t, "ada")
	c := n.client(t)
	for range 3 {
		c.do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(200, "")
	}
	refused := c.do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(429, "TOO_MANY_REQUESTS")
	if refused.Header.Get("Retry-After") != "4" || refused.Header.Get("X-Retry-After") != "4" || !strings.HasPrefix(string(refused.body), `{"code":"TOO_MANY_REQUESTS","message":`) {
		t.Errorf("%v %s", refused.Header, refused.body)
	}
	if len(refused.Cookies()) > 0 {
		t.Error("a limit takes cookies away")
	}
	for range 2 {
		c.do("POST", "/auth/send", "").want(200, "")
	}
	c.do("POST", "/auth/send", "").want(429, "TOO_MANY_REQUESTS")
	for range 20 { // not limited by a class of its own
		c.do("GET", "/auth/session", "").want(200, "")
	}
	n.clock.advance(10 * time.Second)
	c.do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(200, "")
	c.do("POST", "/auth/send", "").want(429, "TOO_MANY_REQUESTS")
}

func TestAllowAccount(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{RateLimits: map[string]auth.RateLimit{"send": {Events: 1, Per: time.Hour}, "verify": {Events: -1}}}})
	allow := func(bucket, key string, want bool) {
		t.Helper()
		if wait, ok := n.AllowAccount(bucket, key); ok != want || ok != (wait == 0) {
			t.Errorf("%s %s: %v %v", bucket, key, wait, ok)
		}
	}
	allow("send", "ada@example.com", true)
	allow("send", "ada@example.com", false)
	allow("send", "bob@example.com", true)
	for range 10 {
		allow("sign-in", "ada", true)
	}
	allow("sign-in", "ada", false)
	for range 100 {
		allow("verify", "ada", true)
	}
}

func TestHumanity(t *testing.T) {
	down := errors.New("down")
	var asked []string
	n := open(t, databasetest.Memory(t), withDoorman(auth.Config{Humanity: func(ctx context.Context, response, ip string) (bool, error) {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("no time limit")
		}
		asked = append(asked, response+" "+ip)
		if response == "down" {
			return true, down
		}
		return response == "human", nil
	}}))
	n.user(t, "ada")
	c := n.client(t)
	c.do("POST", "/auth/send", "").want(400, "MISSING_RESPONSE")
	c.with("X-Captcha-Response", strings.Repeat("x", 9<<10)).do("POST", "/auth/send", "").want(400, "MISSING_RESPONSE")
	c.with("X-Captcha-Response", "robot").do("POST", "/auth/send", "").want(403, "VERIFICATION_FAILED")
	c.with("X-Captcha-Response", "down").do("POST", "/auth/send", "").want(503, "SERVICE_UNAVAILABLE")
	c.with("X-Captcha-Response", "human").do("POST", "/auth/send", "").want(200, "")
	c.do("POST", "/auth/sign-in/name", `{"name":"ada"}`).want(200, "") // sends nothing
	if got := fmt.Sprint(asked); got != "[robot 192.0.2.1 down 192.0.2.1 human 192.0.2.1]" {
		t.Error(got)
	}
	for _, r := range n.LibraryRoutes() {
		named := slices.ContainsFunc(r.Refusals, func(e *capability.Error) bool { return e.Code == "MISSING_RESPONSE" })
		if named != (r.Sends != "") {
			t.Errorf("%s: documents name the refusals of the check: %t", r.Path, named)
		}
	}
}

func TestRedirects(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{TrustedOrigins: []string{"https://app.example.com", "http://localhost:3000", "myapp://"}}})
	for target, want := range map[string]bool{
		"/":                                  true,
		"/a/b?c=d#e":                         true,
		"https://api.example.com/x":          true,
		"https://app.example.com":            true,
		"https://APP.example.com/x":          true,
		"http://localhost:3000/x":            true,
		"myapp://signed-in?x=y":              true,
		"":                                   false,
		"a":                                  false,
		"//evil.example":                     false,
		"/\\evil.example":                    false,
		"\\\\evil.example":                   false,
		"///evil.example":                    false,
		"/\t/evil.example":                   false,
		" /x":                                false,
		"/x\n":                               false,
		"https://evil.example":               false,
		"https://app.example.com.evil":       false,
		"https://app.example.com@evil.x":     false,
		"https://app.example.com:8443":       false,
		"http://app.example.com":             false,
		"http://localhost:3001/x":            false,
		"https:/app.example.com":             false,
		"https:app.example.com":              false,
		"https://":                           false,
		"javascript:alert(1)":                false,
		"data:text/html,x":                   false,
		"otherapp://x":                       false,
		"myapp:x":                            false,
		"/\u2028/evil":                       false,
		"/" + strings.Repeat("x", 2048):      false,
		"https://app.example.com\\@evil.com": false,
	} {
		if got, ok := n.RedirectAllowed(target); ok != want || ok && got != target {
			t.Errorf("%.60q: %q %v", target, got, ok)
		}
	}
	for origin, want := range map[string]bool{
		"https://api.example.com": true, "https://app.example.com": true, "http://localhost:3000": true,
		"https://app.example.com/": false, "null": false, "": false, "https://evil.example": false,
	} {
		if n.TrustedOrigin(origin) != want {
			t.Errorf("%q: %v", origin, !want)
		}
	}
}

// A holder of a /48 does not have 65,536 times the limit of a /64.
func TestWideNetworksAreLimited(t *testing.T) {
	n := open(t, databasetest.Memory(t), setup{config: auth.Config{Library: func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
		return auth.Library{
			Routes:  []auth.LibraryRoute{{Method: "POST", Path: "/sign-in/x", Rate: "auth-sign-in"}},
			Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		}, nil
	}}})
	passed := 0
	for i := range 100 {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "https://api.example.com/join", http.NoBody)
		r.RemoteAddr = fmt.Sprintf("[2001:db8:1:%x::1]:443", i)
		reply, err := n.Call(httptest.NewRecorder(), r, "/sign-in/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Status == http.StatusNoContent {
			passed++
		}
	}
	if passed != 3*16 {
		t.Errorf("%d requests of one /48 passed, want %d", passed, 3*16)
	}
}

// TestRefusalsInFrontOfTheLibrary: every refusal below the path of the library has
// its code and message at the top level, also one that the kit writes.
func TestRefusalsInFrontOfTheLibrary(t *testing.T) {
	library := func(capability.Host, *auth.LibraryHost) (auth.Library, error) {
		return auth.Library{Routes: []auth.LibraryRoute{
			{Method: "POST", Path: "/broken", Handle: func(http.ResponseWriter, *http.Request) error { panic("broken") }},
			{Method: "GET", Path: "/plain", Handle: func(http.ResponseWriter, *http.Request) error { return errors.New("disk full") }},
			{Method: "GET", Path: "/own/:name", Handle: func(_ http.ResponseWriter, r *http.Request) error {
				return capability.NewError(418, "NO_"+strings.ToUpper(r.PathValue("name")), r.Pattern)
			}},
		}}, nil
	}
	k, err := kit.New(kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithAuth(auth.Config{Library: library}), kit.WithRateLimit("auth", 6, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(ctx)
	for _, c := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/auth/own/tea", "", 418, "NO_TEA"},
		{"GET", "/auth/plain", "", 500, "INTERNAL_SERVER_ERROR"},
		{"POST", "/auth/broken", "{}", 500, "INTERNAL_SERVER_ERROR"},
		{"POST", "/auth/broken", strings.Repeat("x", 65<<10), 413, "PAYLOAD_TOO_LARGE"},
		{"GET", "/auth/plain?a=%zz", "", 400, "VALIDATION_ERROR"},
		{"POST", "/auth/plain", "", 405, "METHOD_NOT_ALLOWED"},
		{"GET", "/auth/nowhere", "", 404, "NOT_FOUND"},
		{"GET", "/auth/plain", "", 429, "TOO_MANY_REQUESTS"},
	} {
		r := httptest.NewRequestWithContext(ctx, c.method, "http://localhost:8080"+c.path, strings.NewReader(c.body))
		w := httptest.NewRecorder()
		k.ServeHTTP(w, r)
		type fields struct{ Code, Message, RequestID string }
		var got struct {
			fields
			Error fields
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != c.status || got.Code != c.code || got.Message == "" ||
			got.Error.Code != c.code || got.Error.Message != got.Message || got.Error.RequestID == "" {
			t.Errorf("%s %s: %d %s, want %d %s at the top and in error", c.method, c.path, w.Code, w.Body, c.status, c.code)
		}
		if c.status == 429 && (w.Header().Get("X-Retry-After") == "" || w.Header().Get("X-Retry-After") != w.Header().Get("Retry-After")) {
			t.Errorf("a limit does not say when to come back: %v", w.Header())
		}
	}
}
