package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database/databasetest"
)

func generate(t *testing.T) client.Identity {
	t.Helper()
	i, err := client.Generate("https://example.com/control-plane", "test", "")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestClient goes through the life of a key with the client alone.
func TestClient(t *testing.T) {
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{BaseURL: "https://example.com/api"})
	ctx, first := t.Context(), w.Identity
	ping, err := w.Client(first).Ping(ctx)
	want := client.Ping{Environment: "test", ConnectionID: first.ConnectionID, KeyID: first.KeyID(), Version: "1.2.3"}
	if diff := cmp.Diff(want, ping); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	second := first.WithKey(generate(t).PrivateKey)
	if _, err := w.Client(first).Register(ctx, second.PrivateKey); err != nil {
		t.Fatal(err)
	}
	if k, err := w.Client(second).Expire(ctx, first.KeyID()); err != nil || k.Status != "expired" || k.ExpiredAt == nil {
		t.Fatal(k, err)
	}
	m, err := w.Client(second).Manifest(ctx, "keys:rotate")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range m.Capabilities {
		for _, r := range c.AdminRoutes {
			if r.Method != "GET" || strings.Contains(r.Path, ":") {
				continue
			}
			if err := w.Client(second).Call(ctx, r.Method, r.Path, nil, nil, r.Scope); err != nil {
				t.Errorf("%s as the manifest has it: %v", r.Path, err)
			}
		}
	}
	_, err = w.Client(first).Ping(ctx)
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Code != "controlplane/invalid_credential" || refusal.Status != 401 || refusal.RequestID == "" {
		t.Error(err)
	}
	if strings.Contains(fmt.Sprintf("%v %+v %#v", w.Client(first), w.Client(first), w.Client(first)), fmt.Sprintf("%v", first.PrivateKey.Seed()[:4])) {
		t.Error("a client prints its key")
	}
}

// TestClocksThatDiffer checks that backdated credentials work in spite of a difference between
// clocks.
func TestClocksThatDiffer(t *testing.T) {
	w := controlplanetest.New(t, databasetest.Memory(t), controlplanetest.Options{})
	for skew, want := range map[time.Duration]bool{0: true, 34 * time.Second: true, 60 * time.Second: false, -64 * time.Second: true, -66 * time.Second: false} {
		token, err := w.Identity.Token(w.Clock.Now().Add(skew), "GET", "https://example.com/control-plane/ping", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest("GET", "/control-plane/ping", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, r)
		if (rec.Code == 200) != want {
			t.Errorf("a clock off by %v: %d", skew, rec.Code)
		}
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.json")
	i := generate(t)
	if err := i.Create(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if got, err := client.Load(path); err != nil || !cmp.Equal(i, got) {
		t.Error(got, err)
	}
	if err := i.Create(path); !errors.Is(err, os.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o644, 0o610} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Load(path); !errors.Is(err, client.ErrExposed) {
			t.Errorf("%o: %v", mode, err)
		}
	}
}

func TestBrokenKeyFiles(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "whole.json")
	if err := generate(t).Create(whole); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	var stored struct{ PrivateKey struct{ X, D string } }
	if err := json.Unmarshal(text, &stored); err != nil {
		t.Fatal(err)
	}
	d, other := stored.PrivateKey.D, "A"
	if d[:1] == other {
		other = "B"
	}
	for name, content := range map[string]string{
		"empty":          "",
		"no JSON":        "secret " + d,
		"short d":        strings.ReplaceAll(string(text), d, d[:20]),
		"d of another":   strings.ReplaceAll(string(text), d, other+d[1:]),
		"x of another":   strings.ReplaceAll(string(text), stored.PrivateKey.X, "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"),
		"another's type": strings.ReplaceAll(string(text), "OKP", "RSA"),
	} {
		path := filepath.Join(t.TempDir(), "key.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Load(path); err == nil || strings.Contains(err.Error(), d[:20]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIdentityPrintsNoKey(t *testing.T) {
	i := generate(t)
	marshalled, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	shown := fmt.Sprintf("%v %+v %#v %s %v %s", i, i, i, i, struct{ I client.Identity }{i}, marshalled)
	for _, secret := range []string{fmt.Sprintf("%v", []byte(i.PrivateKey[:4]))[1:12], fmt.Sprintf("%x", i.PrivateKey[:8])} {
		if strings.Contains(shown, secret) {
			t.Error(shown)
		}
	}
}

// TestAddresses checks that a client sends credentials only to https, or to this machine.
func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://example.com/control-plane": true, "http://localhost:8080/control-plane": true,
		"http://127.0.0.1/control-plane": true, "http://[::1]:1/control-plane": true,
		"http://example.com/control-plane": false, "http://localhost.evil.example": false, "ftp://localhost": false, "": false,
	} {
		i := generate(t)
		i.Address = address
		if _, err := client.New(i); (err == nil) != ok {
			t.Errorf("%s: %v", address, err)
		}
	}
	c, err := client.New(generate(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"https://evil.example/x", "//evil.example/x", "http://example.com/x"} {
		if err := c.Call(t.Context(), "GET", path, nil, nil); err == nil || !strings.Contains(err.Error(), "no path of the service") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	followed := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			followed = true
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	i := generate(t)
	i.Address = server.URL + "/control-plane"
	c, err := client.New(i)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Ping(t.Context())
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Status != 307 || followed {
		t.Error(err, followed)
	}
}
