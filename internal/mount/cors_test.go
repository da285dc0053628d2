package mount_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mount"
)

const front = "https://app.example.com"

// withFront lists an origin in addition to the own; things signs users in.
func withFront(cfg *mount.Config) {
	users := *cfg.Users
	users.Origins, users.Domain = []string{front}, "things"
	cfg.Users = &users
}

func crossing(w http.Handler, method, path, origin, asking string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(`{"text":"x"}`))
	r.Host = "example.com"
	r.Header.Set("Origin", origin)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if asking != "" {
		r.Header.Set("Access-Control-Request-Method", asking)
	} else {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Cookie", ada)
		r.Header.Set("X-CSRF-Token", "token-of-ada")
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

func TestTrustedOriginsMayCall(t *testing.T) {
	w := newWorld(t, withFront)
	for line, status := range map[string]int{
		"GET /things/who": 200, "POST /things/text": 201, "GET /things/maybe": 200, "GET /things/socket": 200,
		"GET /things/csrf": 200, "GET /things/bearer": 401, "POST /things/lib/sign-in": 200,
	} {
		method, path, _ := strings.Cut(line, " ")
		rec := crossing(w, method, path, front, "")
		h := rec.Header()
		if rec.Code != status {
			t.Errorf("%s: %d %s, want %d", line, rec.Code, rec.Body, status)
		}
		if h.Get("Access-Control-Allow-Origin") != front || h.Get("Access-Control-Allow-Credentials") != "true" ||
			!strings.Contains(h.Get("Access-Control-Expose-Headers"), "Set-Auth-Token") || h.Get("Vary") != "Origin" {
			t.Errorf("%s: a listed page cannot read the response: %v", line, h)
		}
		rec = crossing(w, http.MethodOptions, path, front, method)
		h = rec.Header()
		if rec.Code != 204 || h.Get("Access-Control-Allow-Origin") != front || h.Get("Access-Control-Allow-Credentials") != "true" ||
			!strings.Contains(h.Get("Access-Control-Allow-Methods"), method) || !strings.Contains(h.Get("Access-Control-Allow-Headers"), "X-CSRF-Token") {
			t.Errorf("preflight of %s: %d %v", line, rec.Code, h)
		}
	}
}

func TestOthersGetNoCORS(t *testing.T) {
	listed, alone := newWorld(t, withFront), newWorld(t, nil)
	for name, c := range map[string]struct {
		w                    http.Handler
		method, path, origin string
		status, preflight    int
	}{
		"an unlisted page":          {listed, "POST", "/things/text", "https://evil.example", 403, 204},
		"a subdomain of a listed":   {listed, "POST", "/things/text", "https://x.app.example.com", 403, 204},
		"plain http of a listed":    {listed, "POST", "/things/text", "http://app.example.com", 403, 204},
		"no origin at all":          {listed, "POST", "/things/text", "null", 403, 204},
		"an unlisted page's socket": {listed, "GET", "/things/socket", "https://evil.example", 403, 204},
		"nobody is listed":          {alone, "POST", "/things/text", front, 403, 204},
		"a signed webhook":          {listed, "POST", "/things/hook", front, 401, 204},
		"the control plane":         {listed, "GET", "/things/admin/things/7", front, 401, 401},
	} {
		for asking, status := range map[string]int{"": c.status, c.method: c.preflight} {
			method := c.method
			if asking != "" {
				method = http.MethodOptions
			}
			rec := crossing(c.w, method, c.path, c.origin, asking)
			if rec.Code != status {
				t.Errorf("%s, %s: %d %s, want %d", name, method, rec.Code, rec.Body, status)
			}
			for header := range rec.Header() {
				if strings.HasPrefix(header, "Access-Control-") {
					t.Errorf("%s, %s: %s: %s", name, method, header, rec.Header().Get(header))
				}
			}
		}
	}
}

// A page of a listed origin learns that there is nothing at a path; without CORS it would look as if
// the server did not respond.
func TestListedPagesLearnThatAPathIsMissing(t *testing.T) {
	w := newWorld(t, withFront)
	for origin, allowed := range map[string]string{front: front, "https://evil.example": ""} {
		rec := crossing(w, "POST", "/nowhere", origin, "")
		if got := rec.Header().Get("Access-Control-Allow-Origin"); rec.Code != 404 || got != allowed {
			t.Errorf("a page of %s: %d, allowed %q", origin, rec.Code, got)
		}
		if got := crossing(w, "OPTIONS", "/nowhere", origin, "POST").Header().Get("Access-Control-Allow-Origin"); got != allowed {
			t.Errorf("the preflight of %s: allowed %q", origin, got)
		}
	}
}

// A row that only development has is for nobody's pages.
func TestDevelopmentRowsGetNoCORS(t *testing.T) {
	w := newWorld(t, func(cfg *mount.Config) {
		withFront(cfg)
		cfg.Entries = append(cfg.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: "GET", Path: "/dev",
			Guard:  capability.Public(capability.DevelopmentOnly),
			Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) { return 1, nil })}})
	})
	if rec := crossing(w, "GET", "/dev", front, ""); rec.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("%v", rec.Header())
	}
}
