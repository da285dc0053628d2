package vault_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/secrets/secretstest"
	"github.com/kitbackend/kit/secrets/vault"
)

const token = "hvs.canary-token"

// server implements the documented wire format of KV version 2 and of tokens:
// https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
type server struct {
	t *testing.T

	mu      sync.Mutex
	entries map[string][]version
	// override, when set, is sent instead.
	override func(w http.ResponseWriter, r *http.Request)
	// ttl of the token, in seconds, and how often it was renewed.
	ttl, renewals int
}

type version struct {
	Data    map[string]any
	created time.Time
	deleted bool
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Header.Get("X-Vault-Request") != "true" || r.Header.Get("X-Vault-Namespace") != "team" {
		s.t.Errorf("%s %s without the headers of the API: %v", r.Method, r.URL.Path, r.Header)
	}
	if s.override != nil && !strings.Contains(r.URL.Path, "/auth/") {
		s.override(w, r)
		return
	}
	if r.Header.Get("X-Vault-Token") != token {
		refuse(w, http.StatusForbidden, "permission denied")
		return
	}
	switch path := r.URL.Path; {
	case path == "/v1/auth/token/lookup-self":
		writeJSON(w, map[string]any{"data": map[string]any{"ttl": s.ttl, "renewable": s.ttl > 0}})
	case path == "/v1/auth/token/renew-self" && r.Method == http.MethodPost:
		s.renewals++
		writeJSON(w, map[string]any{"auth": map[string]any{"client_token": token, "lease_duration": s.ttl, "renewable": true}})
	case strings.HasPrefix(path, "/v1/secret/data/kit/"):
		s.data(w, r, strings.TrimPrefix(path, "/v1/secret/data/kit/"))
	case strings.HasPrefix(path, "/v1/secret/metadata/kit/") && r.Method == http.MethodDelete:
		delete(s.entries, strings.TrimPrefix(path, "/v1/secret/metadata/kit/"))
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusNotFound)
	}
}

func (s *server) data(w http.ResponseWriter, r *http.Request, name string) {
	list := s.entries[name]
	if r.Method == http.MethodGet {
		n := len(list)
		if text := r.URL.Query().Get("version"); text != "" {
			n, _ = strconv.Atoi(text)
		}
		if n < 1 || n > len(list) {
			refuse(w, http.StatusNotFound)
			return
		}
		v := list[n-1]
		metadata := map[string]any{"created_time": v.created.Format(time.RFC3339Nano), "custom_metadata": nil, "deletion_time": "", "destroyed": false, "version": n}
		if v.deleted {
			metadata["deletion_time"] = v.created.Format(time.RFC3339Nano)
			w.WriteHeader(http.StatusNotFound)
			writeJSON(w, map[string]any{"data": map[string]any{"data": nil, "metadata": metadata}})
			return
		}
		writeJSON(w, map[string]any{"request_id": "r", "data": map[string]any{"data": v.Data, "metadata": metadata}})
		return
	}
	var body struct {
		Options struct {
			CAS *int `json:"cas"`
		} `json:"options"`
		Data map[string]any `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || body.Data == nil || r.Method != http.MethodPost {
		refuse(w, http.StatusBadRequest, "no data provided")
		return
	}
	if body.Options.CAS == nil {
		refuse(w, http.StatusBadRequest, "check-and-set parameter required for this call")
		return
	}
	if *body.Options.CAS != len(list) {
		refuse(w, http.StatusBadRequest, "check-and-set parameter did not match the current version")
		return
	}
	s.entries[name] = append(list, version{Data: body.Data, created: time.Now().UTC()})
	writeJSON(w, map[string]any{"data": map[string]any{"created_time": time.Now().UTC().Format(time.RFC3339Nano), "version": len(list) + 1}})
}

func writeJSON(w http.ResponseWriter, body any) { _ = json.NewEncoder(w).Encode(body) }

func refuse(w http.ResponseWriter, status int, errs ...string) {
	w.WriteHeader(status)
	writeJSON(w, map[string]any{"errors": append([]string{}, errs...)})
}

func open(t *testing.T, handler http.Handler, change func(*vault.Config)) *vault.Vault {
	t.Helper()
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	cfg := vault.Config{Address: listening.URL, Token: secrets.NewValue(token), Namespace: "team", Log: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&cfg)
	}
	v, err := vault.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

func TestSuite(t *testing.T) {
	secretstest.Run(t, func(t *testing.T) secrets.Provider {
		return open(t, &server{t: t, entries: map[string][]version{}}, nil)
	})
}

func TestDeletedVersionIsAbsentAndWritable(t *testing.T) {
	s := &server{t: t, entries: map[string][]version{"a": {{Data: map[string]any{}, created: time.Now(), deleted: true}}}}
	v := open(t, s, nil)
	stored, err := v.Read(context.Background(), "a", 0)
	if err != nil || stored.Version != 1 || !stored.Payload.Empty() {
		t.Fatalf("version %d, %v", stored.Version, err)
	}
	if n, err := v.Write(context.Background(), "a", 1, secrets.NewValue(`{}`)); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
}

// TestRefusals checks that errors do not quote the response of a server, which may contain the
// token or the secret.
func TestRefusals(t *testing.T) {
	const canary = secretstest.Canary
	echo := func(status int) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			refuse(w, status, canary+token+string(body))
		}
	}
	moved := 0
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { moved++ }))
	defer elsewhere.Close()
	tests := map[string]struct {
		override func(http.ResponseWriter, *http.Request)
		want     string
	}{
		"bad request": {echo(400), "refused (400)"},
		"forbidden":   {echo(403), "permission denied (403)"},
		"throttled":   {echo(429), "refused (429)"},
		"standby":     {echo(473), "refused (473)"},
		"broken":      {echo(500), "refused (500)"},
		"sealed":      {echo(503), "sealed or down for maintenance (503)"},
		"no JSON":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, canary) }, "not of the form"},
		"other shape": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"data":"`+canary+`"}`) }, "not of the form"},
		"endless":     {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte(canary), 1<<17)) }, "over 1048576 bytes"},
		"another node": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/"+canary, http.StatusTemporaryRedirect)
		}, "sends elsewhere (307)"},
		"cut off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "cannot be reached"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := open(t, &server{t: t, override: tt.override}, nil)
			_, readErr := v.Read(context.Background(), "a", 0)
			_, writeErr := v.Write(context.Background(), "a", 0, secrets.NewValue(`{"b":{"f":"`+canary+`"}}`))
			for _, err := range []error{readErr, writeErr, v.Delete(context.Background(), "a")} {
				if err == nil {
					continue // a malformed response is allowed for a deletion
				}
				if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, canary) || strings.Contains(text, token) {
					t.Errorf("quotes: %s", text)
				}
				if !strings.Contains(err.Error(), tt.want) {
					t.Errorf("%v, want %s", err, tt.want)
				}
			}
			if readErr == nil || writeErr == nil {
				t.Errorf("no error: %v, %v", readErr, writeErr)
			}
		})
	}
	if moved > 0 {
		t.Error("followed a redirect with the token")
	}
}

func TestSlowServer(t *testing.T) {
	released := make(chan struct{})
	s := &server{t: t, override: func(http.ResponseWriter, *http.Request) { <-released }}
	v := open(t, s, func(cfg *vault.Config) { cfg.Timeout = 20 * time.Millisecond })
	_, err := v.Read(context.Background(), "a", 0)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Read(ctx, "a", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(released)
}

func TestConfiguration(t *testing.T) {
	for name, cfg := range map[string]vault.Config{
		"no address": {Token: secrets.NewValue(token)},
		"plain http": {Address: "http://vault.example.com", Token: secrets.NewValue(token)},
		"with user":  {Address: "https://u:" + secretstest.Canary + "@vault.example.com", Token: secrets.NewValue(token)},
		"no token":   {Address: "https://vault.example.com"},
	} {
		_, err := vault.New(cfg)
		if !errors.As(err, new(*capability.Fault)) || strings.Contains(err.Error(), secretstest.Canary) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// inProcess calls a handler without a network, so that the test can use a fake clock.
type inProcess struct{ handler http.Handler }

func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

func TestTokenIsRenewedAtTwoThirds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{t: t, entries: map[string][]version{}, ttl: 3600}
		v := openInProcess(t, s)
		defer v.Close()
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.renewals != want {
				t.Errorf("%d renewals, want %d", s.renewals, want)
			}
		}
		if _, err := v.Read(context.Background(), "a", 0); err != nil {
			t.Fatal(err)
		}
		<-time.After(39 * time.Minute)
		count(0)
		<-time.After(2 * time.Minute)
		count(1)
		<-time.After(40 * time.Minute)
		count(2)
		v.Close()
		<-time.After(3 * time.Hour)
		count(2)
	})
}

func openInProcess(t *testing.T, s *server) *vault.Vault {
	t.Helper()
	v, err := vault.New(vault.Config{Address: "http://127.0.0.1:8200", Token: secrets.NewValue(token), Namespace: "team",
		Transport: inProcess{s}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}
