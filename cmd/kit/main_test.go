package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/controlplane/controlplanetest"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
)

// invoke runs the command and returns its standard output.
func invoke(t *testing.T, stdin string, args ...string) (stdout string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	p := program{stdin: strings.NewReader(stdin), stdout: &out, stderr: &errs}
	err = p.run(t.Context(), args)
	return out.String(), err
}

// TestStory covers a connection from its first key to the routes of a running service.
func TestStory(t *testing.T) {
	var handler http.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler.ServeHTTP(w, r) }))
	defer server.Close()
	key := filepath.Join(t.TempDir(), "key.json")
	run := func(args ...string) string {
		t.Helper()
		out, err := invoke(t, "", args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	line := run("keygen", "-address", server.URL+"/control-plane", "-environment", "test", "-key", key)
	bootstrap := strings.Trim(strings.TrimPrefix(strings.TrimSpace(line), "KIT_CONTROL_PLANE_CONNECTION="), "'")
	clock := kittest.NewClock()
	clock.Advance(time.Since(clock.Now())) // the command uses the real clock
	handler = controlplanetest.New(t, databasetest.File(t), controlplanetest.Options{
		Config: controlplane.Config{Bootstrap: bootstrap}, BaseURL: server.URL, Clock: clock, Unconnected: true,
	})

	if out := run("call", "-key", key, "get", "/control-plane/ping"); !strings.Contains(out, `"environment": "test"`) {
		t.Error(out)
	}
	if _, err := invoke(t, "", "call", "-key", key, "GET", "/control-plane/manifest"); err == nil || !strings.Contains(err.Error(), `details {"scope":"manifest:read"}`) {
		t.Errorf("a call without its scope: %v", err)
	}
	if out := run("manifest", "-key", key); !strings.Contains(out, "control-plane 1.0.0 · 5 control-plane routes") || !strings.Contains(out, "corsMaxAgeSeconds = 600") {
		t.Error(out)
	}
	var m client.Manifest
	if err := json.Unmarshal([]byte(run("manifest", "-json", "-key", key)), &m); err != nil || m.Version != "1.2.3" {
		t.Error(m, err)
	}
	if out := run("routes", "-key", key); !strings.Contains(out, "POST  /control-plane/keys/:keyId/expire  keys:rotate") {
		t.Error(out)
	}
	var routes []client.Route
	if err := json.Unmarshal([]byte(run("routes", "-json", "-key", key)), &routes); err != nil || len(routes) < 5 {
		t.Error(routes, err)
	}

	address := server.URL + "/control-plane/keys"
	token := strings.TrimSpace(run("token", "-key", key, "-scope", "keys:rotate", "GET", address))
	r, err := http.NewRequestWithContext(t.Context(), "GET", address, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()

	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, []byte(`{}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{}`, "@" + file, "-"} {
		_, err := invoke(t, "{}", "call", "-key", key, "-scope", "keys:rotate", "POST", "/control-plane/keys", body)
		if err == nil || !strings.Contains(err.Error(), "kit/invalid_request") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	key := filepath.Join(dir, "key.json")
	if _, err := invoke(t, "", "keygen", "-address", "http://localhost/control-plane", "-environment", "test", "-key", key); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open.json")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(open, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"help requested":                {},
		"there is no command":           {"login"},
		"needs -address":                {"keygen"},
		"file exists":                   {"keygen", "-address", "http://localhost/control-plane", "-environment", "test", "-key", key},
		"neither https":                 {"keygen", "-address", "http://example.com", "-environment", "test", "-key", filepath.Join(dir, "new.json")},
		"no such file":                  {"manifest", "-key", filepath.Join(dir, "none.json")},
		"open to other users":           {"manifest", "-key", open},
		"needs a method and a path":     {"call", "-key", key},
		"needs a method and an address": {"token", "-key", key, "GET"},
		"flag provided but not defined": {"routes", "-verbose"},
	} {
		if _, err := invoke(t, "", args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
}
