package auth_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/pubsub"
)

var ctx = context.Background()

// clock is a time that only tests move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// node is one process of a deployment.
type node struct {
	*auth.LibraryHost
	users capability.Users
	trail *audit.Audit
	clock *clock
	log   *bytes.Buffer
	host  capability.Host
}

type setup struct {
	clock       *clock
	bus         *pubsub.Bus
	keys        *seal.Keys
	baseURL     string
	environment string
	config      auth.Config
}

func open(t testing.TB, db *database.DB, s setup) *node {
	t.Helper()
	if s.clock == nil {
		s.clock = newClock()
	}
	if s.bus == nil {
		s.bus = pubsub.NewMemory()
	}
	if s.keys == nil {
		s.keys = masterKeys(t)
	}
	if s.baseURL == "" {
		s.baseURL = "https://api.example.com"
	}
	if s.environment == "" {
		s.environment = capability.Sandbox
	}
	base, err := url.Parse(s.baseURL)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{clock: s.clock, log: new(bytes.Buffer)}
	db.UseClock(s.clock.Now)
	n.host = capability.Host{
		DB: db, PubSub: s.bus, Log: slog.New(slog.NewTextHandler(n.log, nil)), Now: s.clock.Now,
		Environment: s.environment, BaseURL: base, InternalPrefix: "/__kit", Hooks: hooks.New(),
		Sealing: func() (capability.Sealer, error) { return s.keys, nil },
	}
	if n.trail, err = audit.New(n.host, audit.Config{}, audit.Peers{}); err != nil {
		t.Fatal(err)
	}
	a, err := auth.New(n.host, s.config, auth.Peers{Audit: n.trail})
	if err != nil {
		t.Fatal(err)
	}
	n.LibraryHost = &auth.LibraryHost{Auth: a}
	n.users = n.Users()
	for _, c := range []capability.Capability{n.trail.Capability(), n.Capability()} {
		if err := db.Migrate(ctx, database.Migrations{Name: c.Name, FS: c.Migrations}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := n.Capability().Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return n
}

func masterKeys(t testing.TB) *seal.Keys {
	t.Helper()
	keys, err := seal.Load(capability.Production, func(string) string {
		return "k1:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{1}, 32))
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (n *node) user(t testing.TB, id string) {
	t.Helper()
	if err := n.EnsureUser(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func (n *node) token(t testing.TB, user string, scopes ...string) string {
	t.Helper()
	token, err := n.IssueToken(ctx, user, scopes, 0)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (n *node) signIn(t testing.TB, user string) auth.Session {
	t.Helper()
	n.user(t, user)
	session, err := n.CreateSession(ctx, user)
	if err != nil {
		t.Fatal(err)
	}
	return session
}

// request is one with the session's cookie.
func (n *node) request(method string, session auth.Session) *http.Request {
	r := httptest.NewRequest(method, "/", nil)
	r.AddCookie(n.SessionCookie(session))
	return r
}

func (n *node) wantBearer(t *testing.T, token string, want error) {
	t.Helper()
	if _, err := n.users.Bearer(ctx, token); !errors.Is(err, want) {
		t.Errorf("bearer: got %v, want %v", err, want)
	}
}

func (n *node) wantSession(t *testing.T, session auth.Session, want error) {
	t.Helper()
	caller, ok, err := n.users.Session(n.request(http.MethodGet, session))
	if !errors.Is(err, want) || ok != (want == nil) || ok && caller.UserID != session.UserID {
		t.Errorf("session: got %v %v %v, want %v", caller, ok, err, want)
	}
}

func (n *node) actions(t *testing.T) []string {
	t.Helper()
	page, err := n.trail.ListEvents(ctx, audit.Filter{}, capability.NewPage(200, ""))
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, e := range page.Items {
		actions = append([]string{e.Action + " " + string(e.Actor.Kind) + " " + e.Subject.ID}, actions...)
	}
	return actions
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		h.Environment = capability.Development
		a, err := auth.New(h, auth.Config{BasePath: basePath}, auth.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return a.Capability(), nil
	})
}

func TestFaultyConfig(t *testing.T) {
	host := capability.Host{
		BaseURL: &url.URL{Scheme: "https", Host: "api.example.com"},
		Sealing: func() (capability.Sealer, error) {
			return nil, &capability.Fault{Capability: "auth", Key: "keys", Reason: "are missing", Fix: "set them"}
		},
	}
	_, err := auth.New(host, auth.Config{
		AccessTokenTTL: time.Second, SessionIdle: -1, SessionAbsolute: 401 * 24 * time.Hour, ReuseGrace: time.Hour, SigningKeyTTL: time.Hour,
		TrustedOrigins: []string{
			"https://app.example.com", "http://localhost:3000", "myapp://", // good
			"app.example.com", "https://app.example.com/", "https://*.example.com", "*", "null", "https://App.example.com", "https://u@app.example.com",
			"javascript://", "data://", "https://", "MyApp://",
		},
		RateLimits: map[string]auth.RateLimit{"auth-send": {Events: 1}, "off": {Events: -1}},
	}, auth.Peers{})
	var keys []string
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, err := range joined.Unwrap() {
			if fault := new(capability.Fault); errors.As(err, &fault) {
				keys = append(keys, fault.Capability+"."+fault.Key)
			}
		}
	}
	want := []string{"auth.accessTokenTTL", "auth.sessionIdle", "auth.sessionAbsolute", "auth.reuseGrace", "auth.signingKeyTTL"}
	for i := 3; i < 14; i++ {
		want = append(want, fmt.Sprintf("auth.trustedOrigins[%d]", i))
	}
	if diff := cmp.Diff(append(want, "auth.rateLimits.auth-send", "auth.keys"), keys); diff != "" {
		t.Error(diff)
	}
}

func TestEnsureUser(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, setup{})
		n.user(t, "ada")
		n.user(t, "ada")
		if diff := cmp.Diff([]string{"auth/user_created system ada"}, n.actions(t)); diff != "" {
			t.Error(diff)
		}
		for _, id := range []string{"", "-ada", ".", "a b", "a/b", "ada\x00", "ada\n", "ädä", "a'--", string(bytes.Repeat([]byte("a"), 65))} {
			if err := n.EnsureUser(ctx, id); !errors.Is(err, capability.ErrInvalidRequest) {
				t.Errorf("%q: %v", id, err)
			}
		}
		n.user(t, string(bytes.Repeat([]byte("a"), 64)))
	})
}
