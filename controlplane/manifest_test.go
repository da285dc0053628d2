package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kv"
)

func manifestOf(t *testing.T, w *controlplanetest.World, scopes ...string) client.Manifest {
	t.Helper()
	m, err := w.Client(w.Identity).Manifest(t.Context(), scopes...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func entry(t *testing.T, m client.Manifest, name string) client.Capability {
	t.Helper()
	for _, c := range m.Capabilities {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no entry %s", name)
	return client.Capability{}
}

func TestManifest(t *testing.T) {
	sick := capability.Capability{
		Name: "sick", Version: "0.2.0",
		Config: []capability.ConfigKey{
			{Key: "mode", Value: "fast", Choices: []string{"fast", "slow"}, Summary: "How fast."},
			{Key: "list", Value: []int{1, 2}, Summary: "A list."},
			{Key: "nothing", Value: []int(nil), Summary: "A list that is not set."},
			{Key: "nobody", Value: map[string]int(nil), Summary: "An object that is not set."},
			{Key: "own", Value: json.RawMessage(nil), Summary: "What encodes itself."},
		},
		Health: []capability.HealthKey{
			{Key: "well", Read: func(context.Context) (any, error) { return map[string]int{"n": 1}, nil }},
			{Key: "failing", Read: func(context.Context) (any, error) { return 1, errors.New("secret cause") }},
			{Key: "fat", Read: func(context.Context) (any, error) { return strings.Repeat("x", 2049), nil }},
			{Key: "odd", Read: func(context.Context) (any, error) { return func() {}, nil }},
		},
	}
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{
		BaseURL: "https://example.com/api", Others: []capability.Capability{things(), sick},
	})
	m := manifestOf(t, w, "b", "a", "b")
	if m.Environment != "test" || m.ConnectionID != w.Identity.ConnectionID || m.Version != "1.2.3" {
		t.Errorf("%+v", m)
	}
	if diff := cmp.Diff([]string{"manifest:read", "b", "a"}, m.GrantedScopes); diff != "" {
		t.Error(diff)
	}
	names := make([]string, len(m.Capabilities))
	for i, c := range m.Capabilities {
		names[i] = c.Name
	}
	if diff := cmp.Diff([]string{"audit", "things", "sick", "control-plane"}, names); diff != "" {
		t.Error(diff)
	}
	want := client.Capability{
		Name: "sick", Version: "0.2.0", HealthKeys: []string{"well", "failing", "fat", "odd"},
		Health: map[string]json.RawMessage{"well": json.RawMessage(`{"n":1}`), "failing": json.RawMessage("null"),
			"fat": json.RawMessage("null"), "odd": json.RawMessage("null")},
		ConfigKeys: []client.ConfigKey{{Key: "mode", Choices: []string{"fast", "slow"}, Summary: "How fast."},
			{Key: "list", Choices: []string{}, Summary: "A list."}, {Key: "nothing", Choices: []string{}, Summary: "A list that is not set."},
			{Key: "nobody", Choices: []string{}, Summary: "An object that is not set."},
			{Key: "own", Choices: []string{}, Summary: "What encodes itself."}},
		Config: map[string]json.RawMessage{"mode": json.RawMessage(`"fast"`), "list": json.RawMessage(`[1,2]`),
			"nothing": json.RawMessage(`[]`), "nobody": json.RawMessage(`{}`), "own": json.RawMessage(`null`)},
		AdminRoutes: []client.Route{},
	}
	if diff := cmp.Diff(want, entry(t, m, "sick")); diff != "" {
		t.Error(diff)
	}
	routes := []client.Route{
		{Method: "GET", Path: "/api/control-plane/ping", Summary: "Prove connectivity and the key."},
		{Method: "GET", Path: "/api/control-plane/manifest", Scope: "manifest:read", Summary: "What the service composes and how to call it."},
		{Method: "GET", Path: "/api/control-plane/keys", Scope: "keys:rotate", Summary: "The live keys, their ages and windows, oldest first."},
		{Method: "POST", Path: "/api/control-plane/keys", Scope: "keys:rotate", Summary: "Register a new key, signed with the key it replaces."},
		{Method: "POST", Path: "/api/control-plane/keys/:keyId/expire", Scope: "keys:rotate", Summary: "Expire a superseded key, signed with its successor."},
	}
	if diff := cmp.Diff(routes, entry(t, m, "control-plane").AdminRoutes); diff != "" {
		t.Error(diff)
	}
}

// TestManifestOmitsNothing checks that every field of the specification is present, if only empty.
func TestManifestOmitsNothing(t *testing.T) {
	w := newWorld(t)
	var m struct{ Capabilities []map[string]json.RawMessage }
	if err := w.Client(w.Identity).Call(t.Context(), "GET", "/control-plane/manifest", nil, &m, "manifest:read"); err != nil {
		t.Fatal(err)
	}
	got := m.Capabilities[1] // things has neither configuration nor health
	delete(got, "adminRoutes")
	want := map[string]json.RawMessage{
		"name": json.RawMessage(`"things"`), "version": json.RawMessage(`"0.1.0"`), "healthKeys": json.RawMessage(`[]`),
		"health": json.RawMessage(`null`), "configKeys": json.RawMessage(`[]`), "config": json.RawMessage(`{}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOwnHealth(t *testing.T) {
	w := newWorld(t)
	rotate(t, w, w.Identity)
	w.Clock.Advance(31 * 24 * time.Hour)
	health := entry(t, manifestOf(t, w), "control-plane").Health
	want := map[string]json.RawMessage{"connected": json.RawMessage("true"), "liveKeys": json.RawMessage("2"), "overdueKeys": json.RawMessage("1")}
	if diff := cmp.Diff(want, health); diff != "" {
		t.Error(diff)
	}
}

// TestCORS checks that the origin restricts the browser and the credential the call; neither
// replaces the other.
func TestCORS(t *testing.T) {
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{
		Config: controlplane.Config{AllowedOrigins: []string{"http://localhost:5173", "https://console.example"}, CORSMaxAgeSeconds: new(7)},
		Others: []capability.Capability{things()},
	})
	f := forger{w.Identity}
	for origin, allowed := range map[string]bool{
		"https://console.example":      true,
		"http://localhost:5173":        true,
		"https://example.com":          false, // the origin of the service, which is not the issuer here
		"https://console.example:443":  false,
		"http://console.example":       false,
		"https://CONSOLE.example":      false,
		"https://evil.example":         false,
		"https://console.example.evil": false,
		"null":                         false,
		"*":                            false,
	} {
		status, code, h := send(w, "OPTIONS", target, "", "Origin", origin, "Access-Control-Request-Method", "GET")
		got := []string{h.Get("Access-Control-Allow-Origin"), h.Get("Access-Control-Max-Age"), h.Get("Access-Control-Allow-Methods"), h.Get("Access-Control-Allow-Credentials"), h.Get("Vary")}
		want := []string{"", "", "", "", "Origin"}
		if allowed {
			want = []string{origin, "7", "GET, POST", "", "Origin"}
		}
		if diff := cmp.Diff(want, got); diff != "" || (status == 204) != allowed || !allowed && code != invalid {
			t.Errorf("preflight from %s: %d %s %s", origin, status, code, diff)
		}
		token := f.sign(f.header(), f.claims(w.Clock.Now()))
		status, code, _ = send(w, "GET", target, "", "Origin", origin, "Authorization", "Bearer "+token)
		if (status == 200) != allowed || !allowed && code != invalid {
			t.Errorf("call from %s: %d %s", origin, status, code)
		}
		if !allowed {
			if status, _ := bearing(w, token); status != 200 {
				t.Errorf("%s spent the token", origin)
			}
		}
	}
	wrong := f.sign(f.header(), with(f.claims(w.Clock.Now()), "iss", "http://localhost:5173"))
	if status, code, _ := send(w, "GET", target, "", "Origin", "http://localhost:5173", "Authorization", "Bearer "+wrong); status != 401 || code != invalid {
		t.Errorf("an allowed origin is no issuer: %d %s", status, code)
	}
}

func TestConfigIsChecked(t *testing.T) {
	base, err := url.Parse("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	host := capability.Host{DB: databasetest.Memory(t), Now: time.Now, Environment: "test", BaseURL: base}
	origins := func(list ...string) controlplane.Config { return controlplane.Config{AllowedOrigins: list} }
	bad := map[string]controlplane.Config{
		"*":                            origins("*"),
		"null":                         origins("null"),
		"empty":                        origins(""),
		"path":                         origins("https://a.example/"),
		"query":                        origins("https://a.example?x"),
		"user":                         origins("https://u@a.example"),
		"fragment":                     origins("https://a.example#x"),
		"upper case":                   origins("https://A.example"),
		"scheme case":                  origins("HTTPS://a.example"),
		"own port":                     origins("https://a.example:443"),
		"own port, http":               origins("http://a.example:80"),
		"empty port":                   origins("https://a.example:"),
		"no scheme":                    origins("a.example"),
		"file":                         origins("file://a.example"),
		"wildcard":                     origins("https://*.a.example"),
		"space":                        origins("https://a.example "),
		"not ASCII":                    origins("https://bücher.example"),
		"second is bad":                origins("https://a.example", "*"),
		"age -1":                       {CORSMaxAgeSeconds: new(-1)},
		"age 7201":                     {CORSMaxAgeSeconds: new(7201)},
		"backend":                      {ReplayBackend: "redis"},
		"kv not atomic":                {ReplayBackend: controlplane.KV, KV: eventual{nil}},
		"kv without use":               {KV: eventual{nil}},
		"bootstrap":                    {Bootstrap: "x"},
		"bootstrap empty":              {Bootstrap: "{}"},
		"bootstrap with a private key": {Bootstrap: `{"issuer":"https://a.example","publicKey":{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","d":"x"}}`},
	}
	for name, cfg := range bad {
		_, err := controlplane.New(host, cfg, controlplane.Peers{})
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Capability != "control-plane" || fault.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, cfg := range map[string]controlplane.Config{
		"default": {}, "age 0": {CORSMaxAgeSeconds: new(0)}, "age 7200": {CORSMaxAgeSeconds: new(7200)},
		"origins": origins("https://a.example", "http://localhost:5173", "https://a.example:8443", "http://[::1]:3000", "https://xn--bcher-kva.example"),
		"kv":      {ReplayBackend: controlplane.KV},
	} {
		if _, err := controlplane.New(host, cfg, controlplane.Peers{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// eventual is a store whose put-if-absent is not atomic.
type eventual struct{ kv.Store }

func (eventual) Atomic() bool { return false }

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		cp, err := controlplane.New(h, controlplane.Config{BasePath: basePath}, controlplane.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return cp.Capability(), nil
	})
}
