package mount_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/internal/rate"
)

// world is a mount over a small table, with users ada (bearer "ada", bearer
// "ada-admin" with the scope things:admin, cookie "ada") and one machine.
type world struct {
	*mount.Mount
	log       strings.Builder
	decisions []mount.Decision
	recordErr error
	now       time.Time
}

type echoBody struct {
	Text string `json:"text"`
}

func routes() []capability.Route {
	text := func(c *capability.Call, in echoBody) (echoBody, error) { return in, nil }
	who := func(c *capability.Call, _ capability.None) (map[string]string, error) {
		return map[string]string{"user": c.Caller.UserID, "strategy": c.Caller.Strategy.String(), "request": capability.RequestInfoOf(c.Context()).RequestID}, nil
	}
	get, post := http.MethodGet, http.MethodPost
	return capability.Mount("/things",
		capability.Route{Method: get, Path: "/who", Guard: capability.User(), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/bearer", Guard: capability.Bearer(), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/session", Guard: capability.Session(), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/maybe", Guard: capability.Public("anybody may look").Identifying(), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/own", Guard: capability.Public("the handler refuses strangers").Identifying(), Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (string, error) {
			if c.Caller.UserID == "" {
				return "", capability.ErrNotFound
			}
			return c.Caller.UserID, nil
		})},
		capability.Route{Method: post, Path: "/text", Guard: capability.User(), MaxBody: 1000, Handle: capability.JSON(201, text)},
		capability.Route{Method: post, Path: "/open", Guard: capability.Public("anybody may echo"), Handle: capability.JSON(201, text)},
		capability.Route{Method: post, Path: "/admin", Guard: capability.UserWithScope("things:admin"), Handle: capability.JSON(201, text)},
		capability.Route{Method: get, Path: "/csrf", Guard: capability.User().WithCSRF(), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/socket", Guard: capability.User(), Handle: capability.Socket(func(c *capability.Call) error {
			c.Writer().WriteHeader(200)
			return nil
		})},
		capability.Route{Method: http.MethodDelete, Path: "/shares/:token", Guard: capability.User(), Handle: capability.JSON(204, func(c *capability.Call, _ capability.None) (capability.None, error) {
			return capability.None{}, nil
		})},
		capability.Route{Method: get, Path: "/items/:id", Guard: capability.Public("public items"), Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (map[string]string, error) {
			return map[string]string{"id": c.Param("id"), "q": c.Query("q")}, nil
		})},
		capability.Route{Method: get, Path: "/items/:id/parts", Guard: capability.Public("public items"), Handle: capability.JSON(200, who)},
		capability.Route{Method: get, Path: "/panic", Guard: capability.Public("tests"), Handle: capability.Raw(func(*capability.Call) error { panic("secret inside") })},
		capability.Route{Method: get, Path: "/late", Guard: capability.Public("tests"), Handle: capability.Raw(func(c *capability.Call) error {
			c.Writer().WriteHeader(202)
			return errors.New("after the response")
		})},
		capability.Route{Method: get, Path: "/broken", Guard: capability.Public("tests"), Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) {
			return 0, errors.New("password=hunter2")
		})},
		capability.Route{Method: get, Path: "/refused", Guard: capability.Public("tests"), Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) {
			return 0, capability.NewError(409, "things/taken", "It is taken.").With(map[string]int{"by": 7}).Because(errors.New("inner cause"))
		})},
		capability.Route{Method: get, Path: "/unavailable", Guard: capability.Public("tests"), Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) {
			return 0, capability.ErrUnavailable
		})},
		capability.Route{Method: get, Path: "/list", Guard: capability.Public("tests"), Handle: capability.List(list)},
		capability.Route{Method: get, Path: "/admin/things/:id", Guard: capability.ControlPlane("things:list:read"), Summary: "List.", Handle: capability.JSON(200, who)},
		capability.Route{Method: post, Path: "/admin/things/:id", Guard: capability.ControlPlane("things:write"), Summary: "Write.", Handle: capability.JSON(200, func(*capability.Call, echoBody) (int, error) {
			return 0, capability.NewError(404, "things/gone", "Gone.")
		})},
		capability.Route{Method: post, Path: "/hook", Guard: capability.SignedWebhook(func(r *http.Request, body []byte) error {
			switch r.Header.Get("Signature") {
			case string(body):
				return nil
			case "down":
				return capability.ErrUnavailable
			default:
				return errors.New("does not verify")
			}
		}), Handle: capability.Raw(func(c *capability.Call) error {
			body, err := c.Body()
			if err != nil {
				return err
			}
			_, err = c.Writer().Write(body)
			return err
		})},
		capability.Route{Method: capability.Any, Path: "/lib/*", Guard: capability.Public("a library decides"), Handle: capability.Raw(func(c *capability.Call) error {
			_, err := io.WriteString(c.Writer(), c.Request().Method+" "+c.Request().URL.Path)
			return err
		})},
		capability.Route{Method: get, Path: "/lib/admin/known", Guard: capability.Public("tests"), Handle: capability.JSON(200, who)},
	)
}

// list pages over the numbers 1 to 120.
func list(_ *capability.Call, page capability.Page) (capability.Items[int64], error) {
	var after int64
	if _, err := page.After(&after); err != nil {
		return capability.Items[int64]{}, err
	}
	var rows []int64
	for n := after + 1; n <= 120 && len(rows) <= page.Limit; n++ {
		rows = append(rows, n)
	}
	return capability.Paged(page, rows, func(n int64) []any { return []any{n} }), nil
}

func newWorld(t testing.TB, change func(*mount.Config)) *world {
	t.Helper()
	w := &world{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	base, err := url.Parse("https://example.com/api")
	if err != nil {
		t.Fatal(err)
	}
	cfg := mount.Config{
		Users: &capability.Users{
			Bearer: func(_ context.Context, token string) (capability.Caller, error) {
				name, scope, _ := strings.Cut(token, "-")
				if name == "down" {
					return capability.Caller{}, capability.ErrUnavailable
				}
				if name != "ada" {
					return capability.Caller{}, capability.ErrUnauthenticated
				}
				c := capability.Caller{Strategy: capability.StrategyBearer, UserID: name}
				if scope == "admin" {
					c.Scopes = []string{"things:admin"}
				}
				return c, nil
			},
			Session: func(r *http.Request) (capability.Caller, bool, error) {
				cookie, err := r.Cookie("session")
				if err != nil {
					return capability.Caller{}, false, nil
				}
				if cookie.Value != "ada" {
					return capability.Caller{}, false, capability.ErrUnauthenticated
				}
				return capability.Caller{Strategy: capability.StrategySession, UserID: "ada"}, true, nil
			},
			CSRF: func(r *http.Request, c capability.Caller) error {
				if r.Header.Get("X-CSRF-Token") != "token-of-"+c.UserID {
					return capability.ErrCSRF
				}
				return nil
			},
		},
		Machines: &capability.Machines{
			Verify: func(r *http.Request, _ func() ([]byte, error)) (capability.Caller, error) {
				scopes, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer machine ")
				if !ok {
					return capability.Caller{}, errors.New("no machine")
				}
				return capability.Caller{Strategy: capability.StrategyControlPlane, KeyID: "k1", Scopes: strings.Fields(scopes)}, nil
			},
			AllowOrigin: func(origin string) bool { return origin == "https://console.example" },
			MaxAge:      10 * time.Minute,
		},
		Record: func(_ *http.Request, d mount.Decision) error {
			w.decisions = append(w.decisions, d)
			return w.recordErr
		},
		Log: slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Now: func() time.Time { return w.now }, BaseURL: base,
	}
	for _, r := range routes() {
		cfg.Entries = append(cfg.Entries, mount.Entry{Domain: "things", Route: r})
	}
	if change != nil {
		change(&cfg)
	}
	w.Mount = mount.New(cfg)
	return w
}

// send makes a request: "METHOD path", a JSON body or "", and header pairs.
func (w *world) send(line, body string, header ...string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(line, " ")
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequest(method, "https://example.com"+target, reader)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

func code(t *testing.T, rec *httptest.ResponseRecorder) string {
	t.Helper()
	var body struct {
		Error struct{ Code, Message, RequestID string }
	}
	if rec.Code < 400 {
		return ""
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
		t.Fatalf("a refusal that is not JSON: %q", rec.Body)
	}
	if body.Error.Message == "" || body.Error.RequestID == "" || body.Error.RequestID != rec.Header().Get("X-Request-Id") {
		t.Errorf("an incomplete refusal: %s", rec.Body)
	}
	return body.Error.Code
}

const (
	cookie = "Cookie"
	ada    = "session=ada"
	auth   = "Authorization"
	offer  = "Sec-WebSocket-Protocol"
)

func TestGuards(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		line, body string
		header     []string
		status     int
		code       string
	}{
		"no proof":                    {"GET /things/who", "", nil, 401, "auth/unauthenticated"},
		"bearer":                      {"GET /things/who", "", []string{auth, "Bearer ada"}, 200, ""},
		"scheme in other case":        {"GET /things/who", "", []string{auth, "bearer ada"}, 200, ""},
		"bad bearer":                  {"GET /things/who", "", []string{auth, "Bearer eve"}, 401, "auth/unauthenticated"},
		"bad bearer, good cookie":     {"GET /things/who", "", []string{auth, "Bearer eve", cookie, ada}, 401, "auth/unauthenticated"},
		"two authorizations":          {"GET /things/who", "", []string{auth, "Bearer ada", auth, "Bearer ada"}, 401, "auth/unauthenticated"},
		"another scheme and cookie":   {"GET /things/who", "", []string{auth, "Basic eA==", cookie, ada}, 200, ""},
		"cookie":                      {"GET /things/who", "", []string{cookie, ada}, 200, ""},
		"bad cookie":                  {"GET /things/who", "", []string{cookie, "session=eve"}, 401, "auth/unauthenticated"},
		"bearer row, cookie":          {"GET /things/bearer", "", []string{cookie, ada}, 401, "auth/unauthenticated"},
		"bearer row, bearer":          {"GET /things/bearer", "", []string{auth, "Bearer ada"}, 200, ""},
		"session row, bearer":         {"GET /things/session", "", []string{auth, "Bearer ada"}, 401, "auth/unauthenticated"},
		"session row, cookie":         {"GET /things/session", "", []string{cookie, ada}, 200, ""},
		"scope missing":               {"POST /things/admin", `{}`, []string{auth, "Bearer ada"}, 403, "auth/insufficient_scope"},
		"scope":                       {"POST /things/admin", `{}`, []string{auth, "Bearer ada-admin"}, 201, ""},
		"scope, cookie":               {"POST /things/admin", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada"}, 403, "auth/insufficient_scope"},
		"unsafe, cookie alone":        {"POST /things/text", `{}`, []string{cookie, ada}, 403, "auth/csrf"},
		"unsafe, cookie and token":    {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada"}, 201, ""},
		"unsafe, token of another":    {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-eve"}, 403, "auth/csrf"},
		"unsafe, cross-site page":     {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada", "Sec-Fetch-Site", "cross-site"}, 403, "auth/csrf"},
		"unsafe, foreign origin":      {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada", "Origin", "https://evil.example"}, 403, "auth/csrf"},
		"unsafe, plain http page":     {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada", "Origin", "http://example.com"}, 403, "auth/csrf"},
		"unsafe, own origin":          {"POST /things/text", `{}`, []string{cookie, ada, "X-CSRF-Token", "token-of-ada", "Origin", "https://example.com"}, 201, ""},
		"unsafe, bearer, no token":    {"POST /things/text", `{}`, []string{auth, "Bearer ada", "Sec-Fetch-Site", "cross-site"}, 201, ""},
		"safe with csrf, cookie":      {"GET /things/csrf", "", []string{cookie, ada}, 403, "auth/csrf"},
		"safe with csrf, token":       {"GET /things/csrf", "", []string{cookie, ada, "X-CSRF-Token", "token-of-ada"}, 200, ""},
		"identifying, nobody":         {"GET /things/maybe", "", nil, 200, ""},
		"identifying, bad proof":      {"GET /things/maybe", "", []string{auth, "Bearer eve"}, 200, ""},
		"identifying, no verifier":    {"GET /things/maybe", "", []string{auth, "Bearer down"}, 503, "kit/unavailable"},
		"identifying, refused":        {"GET /things/own", "", nil, 404, "kit/not_found"},
		"identifying, token is over":  {"GET /things/own", "", []string{auth, "Bearer eve"}, 401, "auth/unauthenticated"},
		"identifying, another scheme": {"GET /things/own", "", []string{auth, "Basic eA=="}, 404, "kit/not_found"},
		"identifying, bad cookie":     {"GET /things/own", "", []string{cookie, "session=eve"}, 404, "kit/not_found"},
		"socket, cookie, no origin":   {"GET /things/socket", "", []string{cookie, ada}, 403, "auth/csrf"},
		"socket, cookie, foreign":     {"GET /things/socket", "", []string{cookie, ada, "Origin", "https://evil.example"}, 403, "auth/csrf"},
		"socket, cookie, own":         {"GET /things/socket", "", []string{cookie, ada, "Origin", "https://example.com"}, 200, ""},
		"socket, cookie, plain http":  {"GET /things/socket", "", []string{cookie, ada, "Origin", "http://example.com"}, 403, "auth/csrf"},
		"socket, cookie, other port":  {"GET /things/socket", "", []string{cookie, ada, "Origin", "https://example.com:8443"}, 403, "auth/csrf"},
		"socket, cookie, sandboxed":   {"GET /things/socket", "", []string{cookie, ada, "Origin", "null"}, 403, "auth/csrf"},
		"socket, bearer":              {"GET /things/socket", "", []string{auth, "Bearer ada"}, 200, ""},
		"socket, offered token":       {"GET /things/socket", "", []string{offer, "kit.v1, kit.bearer.ada", "Origin", "https://evil.example"}, 200, ""},
		"socket, token in a header":   {"GET /things/socket", "", []string{offer, "kit.v1", offer, "kit.bearer.ada"}, 200, ""},
		"socket, bad token, cookie":   {"GET /things/socket", "", []string{offer, "kit.v1, kit.bearer.eve", cookie, ada, "Origin", "https://example.com"}, 401, "auth/unauthenticated"},
		"socket, two tokens":          {"GET /things/socket", "", []string{offer, "kit.bearer.ada, kit.bearer.ada"}, 401, "auth/unauthenticated"},
		"socket, token and header":    {"GET /things/socket", "", []string{offer, "kit.bearer.ada", auth, "Bearer ada"}, 401, "auth/unauthenticated"},
		"socket, token and Basic":     {"GET /things/socket", "", []string{offer, "kit.bearer.ada", auth, "Basic eA=="}, 200, ""},
		"socket, other protocols":     {"GET /things/socket", "", []string{offer, "kit.v1, bearer.ada"}, 401, "auth/unauthenticated"},
		"no socket, offered token":    {"GET /things/who", "", []string{offer, "kit.bearer.ada"}, 401, "auth/unauthenticated"},
		"webhook":                     {"POST /things/hook", `exact bytes`, []string{"Signature", "exact bytes"}, 200, ""},
		"webhook, bad proof":          {"POST /things/hook", `exact bytes`, []string{"Signature", "Exact bytes"}, 401, "kit/invalid_signature"},
		"webhook, transient":          {"POST /things/hook", `x`, []string{"Signature", "down"}, 503, "kit/unavailable"},
		"machine without credential":  {"GET /things/admin/things/1", "", nil, 401, "controlplane/invalid_credential"},
		"machine without scope":       {"GET /things/admin/things/1", "", []string{auth, "Bearer machine things:list things:list:rea *"}, 403, "controlplane/insufficient_scope"},
		"machine":                     {"GET /things/admin/things/1", "", []string{auth, "Bearer machine things:list:read"}, 200, ""},
		"machine from a foreign page": {"GET /things/admin/things/1", "", []string{auth, "Bearer machine things:list:read", "Origin", "https://evil.example"}, 401, "controlplane/invalid_credential"},
		"user on a machine row":       {"GET /things/admin/things/1", "", []string{auth, "Bearer ada-admin"}, 401, "controlplane/invalid_credential"},
	} {
		t.Run(name, func(t *testing.T) {
			rec := w.send(c.line, c.body, c.header...)
			if rec.Code != c.status || code(t, rec) != c.code {
				t.Errorf("%s: got %d %s, want %d %s", c.line, rec.Code, rec.Body, c.status, c.code)
			}
			if rec.Code == 401 && rec.Header().Get("WWW-Authenticate") == "" {
				t.Error("a 401 without WWW-Authenticate")
			}
		})
	}
}

// A socket outlives its request: its handler can have the same proof verified
// again, and nobody else's.
func TestSocketsRecheckTheirProof(t *testing.T) {
	var call *capability.Call
	ended := false
	w := newWorld(t, func(c *mount.Config) {
		bearer, session := c.Users.Bearer, c.Users.Session
		c.Users.Bearer = func(ctx context.Context, token string) (capability.Caller, error) {
			if ended {
				return capability.Caller{}, capability.ErrUnauthenticated
			}
			return bearer(ctx, token)
		}
		c.Users.Session = func(r *http.Request) (capability.Caller, bool, error) {
			if ended {
				return capability.Caller{}, false, nil
			}
			return session(r)
		}
		keep := func(kept *capability.Call) error { call = kept; return nil }
		c.Entries = append(c.Entries,
			mount.Entry{Domain: "things", Route: capability.Route{Method: http.MethodGet, Path: "/keep", Guard: capability.User(), Handle: capability.Socket(keep)}},
			mount.Entry{Domain: "things", Route: capability.Route{Method: http.MethodGet, Path: "/plain", Guard: capability.User(), Handle: capability.Raw(keep)}})
	})
	for name, proof := range map[string][]string{
		"header": {auth, "Bearer ada"}, "offer": {offer, "kit.bearer.ada"}, "cookie": {cookie, ada, "Origin", "https://example.com"},
	} {
		ended = false
		if rec := w.send("GET /keep", "", proof...); rec.Code != 200 {
			t.Fatalf("%s: %d", name, rec.Code)
		}
		if err := call.Recheck(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ended = true
		if err := call.Recheck(t.Context()); !errors.Is(err, capability.ErrUnauthenticated) {
			t.Errorf("%s, ended: %v", name, err)
		}
	}
	ended = false
	if w.send("GET /plain", "", auth, "Bearer ada"); call.Recheck != nil {
		t.Error("a request has no second check")
	}
}

func TestWithoutVerifiersEveryGuardedRouteRefuses(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) { c.Users, c.Machines = nil, nil })
	if got := code(t, w.send("GET /things/who", "", auth, "Bearer ada")); got != "auth/unauthenticated" {
		t.Error(got)
	}
	if got := code(t, w.send("GET /things/admin/things/1", "", auth, "Bearer machine things:list:read")); got != "controlplane/not_connected" {
		t.Error(got)
	}
	if got := code(t, w.send("OPTIONS /things/admin/things/1", "", "Origin", "https://console.example")); got != "controlplane/not_connected" {
		t.Error(got)
	}
}

func TestMachineCallsAreRecorded(t *testing.T) {
	w := newWorld(t, nil)
	w.send("GET /things/admin/things/7", "", auth, "Bearer machine things:list:read")
	w.send("GET /things/admin/things/7", "", auth, "Bearer machine other")
	w.send("POST /things/admin/things/7", `{}`, auth, "Bearer machine things:write")
	w.send("GET /things/admin/things/7", "", auth, "Bearer nobody")
	params := map[string]string{"id": "7"}
	want := []mount.Decision{
		{Action: "things/list_read", Params: params},
		{Action: "things/list_read", Params: params, Refusal: capability.ErrControlPlaneScope},
		{Action: "things/write", Params: params, Refusal: capability.NewError(404, "things/gone", "Gone.")},
	}
	byCode := cmp.Comparer(func(a, b *capability.Error) bool {
		return a == nil && b == nil || a != nil && b != nil && a.Code == b.Code
	})
	if diff := cmp.Diff(want, w.decisions, byCode); diff != "" {
		t.Error(diff)
	}

	w.recordErr = errors.New("disk full")
	rec := w.send("GET /things/admin/things/7", "", auth, "Bearer machine things:list:read")
	if got := code(t, rec); got != "kit/unavailable" || strings.Contains(rec.Body.String(), `"k1"`) {
		t.Errorf("a read that could not be recorded was served: %s", rec.Body)
	}
}

func TestPreflight(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.send("OPTIONS /things/admin/things/9", "", "Origin", "https://console.example", "Access-Control-Request-Method", "POST")
	got := map[string]string{}
	for _, h := range []string{"Access-Control-Allow-Origin", "Access-Control-Allow-Methods", "Access-Control-Max-Age", "Vary", "Access-Control-Allow-Credentials"} {
		got[h] = rec.Header().Get(h)
	}
	want := map[string]string{"Access-Control-Allow-Origin": "https://console.example", "Access-Control-Allow-Methods": "GET, POST",
		"Access-Control-Max-Age": "600", "Vary": "Origin", "Access-Control-Allow-Credentials": ""}
	if diff := cmp.Diff(want, got); diff != "" || rec.Code != 204 {
		t.Error(rec.Code, diff)
	}
	for _, origin := range []string{"https://evil.example", "null", ""} {
		rec := w.send("OPTIONS /things/admin/things/9", "", "Origin", origin)
		if code(t, rec) != "controlplane/invalid_credential" || rec.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("origin %q: %d %v", origin, rec.Code, rec.Header())
		}
	}
	rec = w.send("GET /things/admin/things/9", "", "Origin", "https://console.example", auth, "Bearer machine things:list:read")
	if rec.Header().Get("Access-Control-Allow-Origin") != "https://console.example" {
		t.Error("a listed page cannot read its response")
	}
}

func TestHostileAddresses(t *testing.T) {
	w := newWorld(t, nil)
	long := strings.Repeat("x", 10_000)
	for line, want := range map[string]struct {
		status int
		id     string
	}{
		"GET /things/items/plain":          {200, "plain"},
		"GET /things/items/a%2Fb":          {200, "a/b"},
		"GET /things/items/a%20b%25":       {200, "a b%"},
		"GET /things/items/100%25":         {200, "100%"},
		"GET /things/items/%2E%2E":         {200, ".."},
		"GET /things/items/%2e%2e%2fetc":   {200, "../etc"},
		"GET /things/items/":               {404, ""},
		"GET /things/items//parts":         {404, ""},
		"GET /things/items/a/b":            {404, ""},
		"GET /things/items/%00":            {404, ""},
		"GET /things/items/%FF":            {404, ""},
		"GET /things/items/a%2F%00":        {404, ""},
		"GET /things/items/" + long:        {404, ""},
		"GET /things/items/x?q=%00":        {400, ""},
		"GET /things/items/x?q=%FF":        {400, ""},
		"GET /things/items/x?q=%zz":        {400, ""},
		"GET /things/items/x?q=" + long:    {400, ""},
		"GET /things/items/x?%00=1":        {400, ""},
		"GET /things/../things/items/x":    {404, ""},
		"GET //things/items/x":             {404, ""},
		"GET /things":                      {404, ""},
		"GET /":                            {404, ""},
		"GET /apix/things/items/x":         {404, ""},
		"GET /api/things/items/y":          {200, "y"},
		"GET /api/things/items/a%2Fb":      {200, "a/b"},
		"GET /api":                         {404, ""},
		"POST /things/items/x":             {405, ""},
		"PATCH /things/who":                {405, ""},
		"DELETE /things/shares/shares/t":   {404, ""},
		"DELETE /things/shares/t%2Fu":      {401, ""},
		"PUT /things/lib/any/depth/at/all": {200, ""},
	} {
		rec := w.send(line, "")
		if rec.Code != want.status {
			t.Errorf("%.60s: %d %s, want %d", line, rec.Code, rec.Body, want.status)
			continue
		}
		code(t, rec)
		var got struct{ ID string }
		if want.id != "" && (json.Unmarshal(rec.Body.Bytes(), &got) != nil || got.ID != want.id) {
			t.Errorf("%.60s: the parameter is %q, want %q", line, got.ID, want.id)
		}
	}
	if allow := w.send("POST /things/items/x", "").Header().Get("Allow"); !strings.Contains(allow, "GET") {
		t.Errorf("405 with Allow %q", allow)
	}
	if body := w.send("GET /things/lib/admin/known", "").Body.String(); !strings.Contains(body, "strategy") {
		t.Error("the catch-all took a literal row")
	}
}

func TestHostileBodies(t *testing.T) {
	w := newWorld(t, nil)
	for name, c := range map[string]struct {
		body, kind string
		status     int
		code       string
	}{
		"good":              {`{"text":"x"}`, "application/json", 201, ""},
		"with a charset":    {`{"text":"x"}`, "application/json; charset=UTF-8", 201, ""},
		"no content type":   {`{"text":"x"}`, "", 415, "kit/unsupported_media_type"},
		"a form":            {`text=x`, "application/x-www-form-urlencoded", 415, "kit/unsupported_media_type"},
		"another charset":   {`{"text":"x"}`, "application/json; charset=utf-16", 415, "kit/unsupported_media_type"},
		"malformed":         {`{"text":`, "application/json", 400, "kit/invalid_request"},
		"duplicate":         {`{"text":"x","text":"y"}`, "application/json", 400, "kit/invalid_request"},
		"unknown":           {`{"text":"x","more":1}`, "application/json", 400, "kit/invalid_request"},
		"deep":              {strings.Repeat(`{"text":`, 100), "application/json", 400, "kit/invalid_request"},
		"too large":         {`{"text":"` + strings.Repeat("x", 1000) + `"}`, "application/json", 413, "kit/body_too_large"},
		"empty":             {"", "application/json", 400, "kit/invalid_request"},
		"wrong type":        {`{"text":5}`, "application/json", 400, "kit/invalid_request"},
		"html in the text":  {`{"text":"<b>"}`, "application/json", 201, ""},
		"unpaired surrogat": {`{"text":"\ud800"}`, "application/json", 201, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := w.send("POST /things/text", c.body, auth, "Bearer ada", "Content-Type", c.kind)
			if c.kind == "" || c.body == "" || c.kind != "application/json" {
				r := httptest.NewRequest("POST", "https://example.com/things/text", strings.NewReader(c.body))
				r.Header.Set(auth, "Bearer ada")
				if c.kind != "" {
					r.Header.Set("Content-Type", c.kind)
				}
				rec = httptest.NewRecorder()
				w.ServeHTTP(rec, r)
			}
			if rec.Code != c.status || code(t, rec) != c.code {
				t.Errorf("got %d %s", rec.Code, rec.Body)
			}
		})
	}
	// A body without a declared length is cut off at the limit too.
	r := httptest.NewRequest("POST", "https://example.com/things/text", io.MultiReader(strings.NewReader(`{"text":"`), strings.NewReader(strings.Repeat("x", 5000))))
	r.Header.Set(auth, "Bearer ada")
	r.Header.Set("Content-Type", "application/json")
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	if code(t, rec) != "kit/body_too_large" {
		t.Errorf("got %d %s", rec.Code, rec.Body)
	}
}

func TestFailuresLeakNothing(t *testing.T) {
	w := newWorld(t, nil)
	for _, path := range []string{"/things/panic", "/things/broken"} {
		rec := w.send("GET "+path, "")
		if rec.Code != 500 || code(t, rec) != "kit/internal" || strings.Contains(rec.Body.String(), "secret") || strings.Contains(rec.Body.String(), "hunter2") {
			t.Errorf("%s: %d %s", path, rec.Code, rec.Body)
		}
		if !strings.Contains(w.log.String(), rec.Header().Get("X-Request-Id")) {
			t.Errorf("%s: its request id is not in the log", path)
		}
	}
	rec := w.send("GET /things/refused", "")
	if want := `{"error":{"code":"things/taken","message":"It is taken.","requestId":"` + rec.Header().Get("X-Request-Id") + `","details":{"by":7}}}` + "\n"; rec.Body.String() != want {
		t.Errorf("got %s want %s", rec.Body, want)
	}
	if rec := w.send("GET /things/unavailable", ""); rec.Header().Get("Retry-After") == "" {
		t.Error("a 503 without Retry-After")
	}
	if rec := w.send("GET /things/late", ""); rec.Code != 202 || rec.Body.Len() != 0 {
		t.Errorf("a response was written over: %d %q", rec.Code, rec.Body)
	}
}

// Only a trusted proxy names requests, and not in whatever words.
func TestRequestIDsAreNotChosenByAnybody(t *testing.T) {
	const given = "trace-me-12345"
	returned := func(w *world, name string) string {
		return w.send("GET /things/who", "", auth, "Bearer ada", "X-Request-Id", name).Header().Get("X-Request-Id")
	}
	if got := returned(newWorld(t, nil), given); got == given || got == "" {
		t.Errorf("a stranger's request is called %q", got)
	}
	behind := newWorld(t, func(c *mount.Config) {
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // httptest's peer
	})
	if got := returned(behind, given); got != given {
		t.Errorf("a trusted proxy's request is called %q, want %q", got, given)
	}
	for _, name := range []string{"two words\n", "short", strings.Repeat("x", 65)} {
		if got := returned(behind, name); got == name {
			t.Errorf("the hostile request id %q came back", name)
		}
	}
}

func TestResponses(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.send("GET /things/who", "", auth, "Bearer ada")
	for header, want := range map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY", "Strict-Transport-Security": "max-age=31536000",
	} {
		if got := rec.Header().Get(header); got != want {
			t.Errorf("%s: %q, want %q", header, got, want)
		}
	}
	if rec := w.send("DELETE /things/shares/t", "", auth, "Bearer ada"); rec.Code != 204 || rec.Body.Len() != 0 {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
	w.log.Reset()
	w.send("GET /things/items/7", "")
	lines := strings.Split(strings.TrimSpace(w.log.String()), "\n")
	if len(lines) != 1 || !strings.Contains(lines[0], "route=/things/items/:id") || !strings.Contains(lines[0], "status=200") {
		t.Errorf("the access log: %q", lines)
	}
}

func TestLists(t *testing.T) {
	w := newWorld(t, nil)
	var all []int64
	for target := "/things/list?limit=50"; ; {
		rec := w.send("GET "+target, "")
		var page struct {
			Items      []int64
			NextCursor *string
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &page); err != nil {
			t.Fatal(err, rec.Body)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			break
		}
		target = "/things/list?limit=50&cursor=" + *page.NextCursor
	}
	if len(all) != 120 || all[0] != 1 || all[119] != 120 {
		t.Errorf("pages add up to %d items", len(all))
	}
	for _, query := range []string{"limit=0", "limit=201", "limit=-1", "limit=x", "limit=1e2", "cursor=x", "cursor=bnVsbA", "cursor=W251bGxd", "cursor=WyJ4Il0", "cursor=WzEsMl0", "cursor=" + strings.Repeat("A", 3000)} {
		if rec := w.send("GET /things/list?"+query, ""); code(t, rec) != "kit/invalid_request" {
			t.Errorf("%s: %d %s", query, rec.Code, rec.Body)
		}
	}
}

func TestRateClasses(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) {
		c.Limits = map[string]rate.Limit{"write": {Events: 2, Per: time.Minute}, "public": {Events: 2, Per: time.Minute}}
		c.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")} // httptest's peer
	})
	post := func(header ...string) int { return w.send("POST /things/text", `{}`, header...).Code }
	for range 2 {
		if got := post(auth, "Bearer ada"); got != 201 {
			t.Fatal(got)
		}
	}
	rec := w.send("POST /things/text", `{}`, auth, "Bearer ada")
	if code(t, rec) != "kit/rate_limited" || rec.Header().Get("Retry-After") != "30" {
		t.Errorf("%d %v", rec.Code, rec.Header())
	}
	if got := w.send("GET /things/who", "", auth, "Bearer ada").Code; got != 200 {
		t.Errorf("a class that is off limits: %d", got)
	}
	w.now = w.now.Add(30 * time.Second)
	if got := post(auth, "Bearer ada"); got != 201 {
		t.Errorf("after the wait: %d", got)
	}

	open := func(forwarded string) int {
		return w.send("POST /things/open", `{}`, "X-Forwarded-For", forwarded).Code
	}
	open("203.0.113.1")
	open("6.6.6.6, 203.0.113.1")
	if got := open("203.0.113.1, 192.0.2.9"); got != 429 {
		t.Errorf("the nearest untrusted address is the client: %d", got)
	}
	open("2001:db8::1")
	open("2001:db8::2")
	if got := open("2001:db8::3"); got != 429 {
		t.Errorf("one /64 is one client: %d", got)
	}
	if got := open("2001:db8:0:1::1"); got != 201 {
		t.Errorf("another /64 is another: %d", got)
	}
	open("198.51.100.1:4711") // as some proxies tell it
	open("198.51.100.1:4712")
	if got := open("198.51.100.1"); got != 429 {
		t.Errorf("a client is one whatever its port: %d", got)
	}
	open("[2001:db8:1::1]:4711")
	open("[2001:db8:1::1]")
	if got := open("2001:db8:1::1"); got != 429 {
		t.Errorf("a client is one however it is written: %d", got)
	}
}

func TestOwned(t *testing.T) {
	var entries []mount.Entry
	for _, path := range []string{"/ledger/:currency", "/ledger/:currency/transactions", "/auth/*", "/health", "/:any/top"} {
		entries = append(entries, mount.Entry{Route: capability.Route{Path: path}})
	}
	o := mount.NewOwned("/api", entries)
	for path, want := range map[string]bool{
		"/api/health": true, "/api/ledger/coins": true, "/api/ledger/coins/transactions": true, "/api/auth/x/y": true, "/api/b/top": true,
		"/api/health/": false, "/api/ledger": false, "/api/ledger/": false, "/api/ledger//transactions": false, "/api/ledger/coins/other": false,
		"/api/auth": false, "/health": false, "/apix/health": false, "/api": false, "/": false, "": false, "/api/index.html": false, "/api//top": false,
	} {
		if got := o.Has(path); got != want {
			t.Errorf("%q: %v", path, got)
		}
	}
}

func TestRateLimitedMachinesAreOnTheTrail(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) { c.Limits = map[string]rate.Limit{"read": {Events: 1, Per: time.Minute}} })
	for range 2 {
		w.send("GET /things/admin/things/7", "", auth, "Bearer machine things:list:read")
	}
	if len(w.decisions) != 2 || w.decisions[1].Refusal == nil || w.decisions[1].Refusal.Code != "kit/rate_limited" {
		t.Errorf("decisions: %+v, want the limited call recorded", w.decisions)
	}
}

func TestPanicsOfMachineRowsAreOnTheTrail(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) {
		c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: "POST", Path: "/things/boom",
			Guard: capability.ControlPlane("things:write"), Summary: "Panic.",
			Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) { panic("after the commit") })}})
	})
	if rec := w.send("POST /things/boom", "", auth, "Bearer machine things:write"); rec.Code != 500 {
		t.Fatal(rec.Code)
	}
	if len(w.decisions) != 1 || w.decisions[0].Refusal == nil || w.decisions[0].Refusal.Status != 500 {
		t.Errorf("decisions: %+v, want one that failed", w.decisions)
	}
}

// leaving is a request whose client goes away before the handler returns: the rest
// of its way has a context that has ended.
func (w *world) leaving(line, bearer string) *httptest.ResponseRecorder {
	method, target, _ := strings.Cut(line, " ")
	ctx, leave := context.WithCancel(context.Background())
	r := httptest.NewRequestWithContext(context.WithValue(ctx, leaveKey{}, leave), method, "https://example.com"+target, nil)
	r.Header.Set(auth, "Bearer "+bearer)
	rec := httptest.NewRecorder()
	w.ServeHTTP(rec, r)
	return rec
}

type leaveKey struct{}

// left is a row whose client goes away while it is served.
func left(method, path string, guard capability.Guard, err func(context.Context) error) func(*mount.Config) {
	return func(c *mount.Config) {
		c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: method, Path: path,
			Guard: guard, Summary: "Left.", Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (int, error) {
				c.Context().Value(leaveKey{}).(context.CancelFunc)()
				return 1, err(c.Context())
			})}})
	}
}

func TestMachinesThatLeaveAreOnTheTrail(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) {
		left("POST", "/things/left", capability.ControlPlane("things:write"), func(context.Context) error { return nil })(c)
		record := c.Record
		c.Record = func(r *http.Request, d mount.Decision) error { return errors.Join(r.Context().Err(), record(r, d)) }
	})
	if rec := w.leaving("POST /things/left", "machine things:write"); rec.Code != 200 || len(w.decisions) != 1 {
		t.Errorf("status %d with decisions %+v, want the call recorded though nobody waits for it", rec.Code, w.decisions)
	}
}

// TestClientsThatLeaveAreNoFailures: what a client breaks off is told apart from what
// fails here.
func TestClientsThatLeaveAreNoFailures(t *testing.T) {
	public := capability.Public("tests")
	w := newWorld(t, func(c *mount.Config) {
		left("POST", "/things/left", public, func(ctx context.Context) error { return fmt.Errorf("a statement: %w", ctx.Err()) })(c)
		left("POST", "/things/unread", public, func(ctx context.Context) error { return capability.ErrUnavailable.Because(ctx.Err()) })(c)
		left("POST", "/things/failed", public, func(context.Context) error { return errors.New("the disk fails") })(c)
	})
	for _, path := range []string{"left", "unread", "failed"} {
		if rec := w.leaving("POST /things/"+path, ""); rec.Code < 500 {
			t.Errorf("%s: status %d, want none that says it was done", path, rec.Code)
		}
	}
	rows, refusals := w.Counts()
	for _, row := range rows {
		if want := strings.Count(row.Path, "failed"); row.Requests != 1 || row.Failures != int64(want) {
			t.Errorf("%s: %d failures of %d, want %d of 1", row.Path, row.Failures, row.Requests, want)
		}
	}
	if diff := cmp.Diff(map[string]int64{"kit/internal": 1}, refusals); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(w.log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d errors in the log, want the one that failed:\n%s", n, w.log.String())
	}
}

func TestAnOperationsEventTakesThePlaceOfTheGuards(t *testing.T) {
	w := newWorld(t, func(c *mount.Config) {
		c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: "POST", Path: "/things/done",
			Guard: capability.ControlPlane("things:write"), Summary: "Done.",
			Handle: capability.JSON(200, func(c *capability.Call, _ capability.None) (int, error) {
				capability.RequestInfoOf(c.Context()).MarkRecorded()
				return 1, nil
			})}})
	})
	if rec := w.send("POST /things/done", "", auth, "Bearer machine things:write"); rec.Code != 200 {
		t.Fatal(rec.Code)
	}
	if len(w.decisions) != 0 {
		t.Errorf("decisions: %+v, want only the operation's", w.decisions)
	}
}

func TestMachineBodiesWaitForTheSignature(t *testing.T) {
	read := false
	w := newWorld(t, func(c *mount.Config) {
		verify := c.Machines.Verify
		c.Machines.Verify = func(r *http.Request, body func() ([]byte, error)) (capability.Caller, error) {
			return verify(r, func() ([]byte, error) { read = true; return body() })
		}
	})
	w.send("POST /things/admin/things/7", `{"text":"x"}`, auth, "Bearer forged")
	if read {
		t.Error("the body was read for a credential that does not verify")
	}
}

func TestIdempotencyKeysKeepNoMachineOffTheTrail(t *testing.T) {
	db := databasetest.Memory(t)
	if err := db.Migrate(t.Context(), mount.Migrations()); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *mount.Config) {
		c.DB = db
		c.Entries = append(c.Entries, mount.Entry{Domain: "things", Route: capability.Route{Method: "POST", Path: "/things/once",
			Guard: capability.ControlPlane("things:write"), Summary: "Once.", Idempotent: true,
			Handle: capability.JSON(200, func(*capability.Call, capability.None) (int, error) { return 1, nil })}})
	})
	for range 2 {
		if rec := w.send("POST /things/once", "", auth, "Bearer machine things:write", "Idempotency-Key", "k1"); rec.Code != 200 {
			t.Fatal(rec.Code, rec.Body)
		}
	}
	if len(w.decisions) != 2 {
		t.Errorf("decisions: %+v, want the first call and its repetition", w.decisions)
	}
}
