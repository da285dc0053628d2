package kit_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
)

// warned counts the warnings that hold a text.
func warned(log *bytes.Buffer, text string) int { return strings.Count(log.String(), text) }

func intoBuffer(log *bytes.Buffer) kit.Option {
	return kit.WithLogger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

func TestWarnsOnceOfRequestsThatComeTheWrongWay(t *testing.T) {
	var log bytes.Buffer
	k := kittest.New(t, append(everything(), intoBuffer(&log), kit.WithBaseURL("http://localhost:8080/api"))...)
	for range 2 {
		k.Anonymous().Get("/api/health").Want(200, "")
		k.Anonymous().Get("/api/nowhere/else").Want(404, "kit/not_found")
	}
	if log.Len() > 0 {
		t.Errorf("warned without a reason: %s", &log)
	}
	for range 2 {
		r := httptest.NewRequest("GET", "/backend/ledger/coins", nil)
		r.Header.Set("X-Forwarded-For", "192.0.2.7")
		k.ServeHTTP(httptest.NewRecorder(), r)
	}
	for _, text := range []string{"WithTrustedProxies", "prefix=/backend"} {
		if n := warned(&log, text); n != 1 {
			t.Errorf("%d warnings of %s, want 1:\n%s", n, text, &log)
		}
	}
}

// TestWarnsOnceOfATrustedOriginOnAnotherSite: its page signs in, and is signed out with the next
// call, because browsers keep no Lax cookie of another site.
func TestWarnsOnceOfATrustedOriginOnAnotherSite(t *testing.T) {
	const front = "http://127.0.0.1:5173"
	for name, c := range map[string]struct {
		cookies  auth.Cookies
		baseURL  string
		header   []string
		warnings int
	}{
		"another site":         {warnings: 1},
		"another port":         {header: []string{"Sec-Fetch-Site", "same-site"}},
		"an origin not listed": {header: []string{"Origin", "http://127.0.0.1:5174"}},
		"an access token":      {header: []string{"Authorization", "Bearer x"}},
		"SameSite=None":        {cookies: auth.Cookies{SameSite: http.SameSiteNoneMode}, baseURL: "https://api.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			k := kittest.New(t, intoBuffer(&log), kit.WithBaseURL(cmp.Or(c.baseURL, "http://localhost:8080")),
				kit.WithAuth(auth.Config{TrustedOrigins: []string{front}, Cookies: c.cookies}))
			page := k.Anonymous().With("Origin", front).With("Sec-Fetch-Site", "cross-site")
			if len(c.header) > 0 {
				page = page.With(c.header[0], c.header[1])
			}
			for _, path := range []string{"/auth/get-session", "/auth/devices", "/auth/devices"} {
				page.Get(path)
			}
			if n := warned(&log, "another site"); n != c.warnings {
				t.Errorf("%d warnings, want %d:\n%s", n, c.warnings, &log)
			}
		})
	}
}

func TestServeWarnsWhereTheDefaultBaseURLLeadsElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		options []kit.Option
		want    int
	}{
		"the default": {nil, 1},
		"a base URL":  {[]kit.Option{kit.WithBaseURL("http://localhost:5173")}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			k := kittest.New(t, append(c.options, intoBuffer(&log))...)
			ctx, stop := context.WithCancel(t.Context())
			stop()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err == nil {
				err = k.ServeListener(ctx, listener, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := warned(&log, "WithBaseURL"); n != c.want {
				t.Errorf("%d warnings, want %d:\n%s", n, c.want, &log)
			}
		})
	}
}

// masterKeys returns the option of the master keys with these letters as ids, the first one first.
func masterKeys(letters string) kit.Option {
	var keys []string
	for _, letter := range letters {
		keys = append(keys, string(letter)+":"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(letter)}, 32)))
	}
	return kit.WithMasterKeys(func(context.Context) (string, error) { return strings.Join(keys, ","), nil })
}

func TestWarnsOfOtherMasterKeysOnTheSameDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, step := range []struct {
			keys   string
			rewrap bool
			want   int
		}{
			{"a", false, 0}, {"b", false, 1},
			{"ba", false, 0}, {"b", false, 1}, {"a", false, 0}, // what was sealed under a is still under a
			{"ba", true, 0}, {"b", false, 0}, {"a", false, 1},
		} {
			var log bytes.Buffer
			k := kittest.New(t, append(everything(), kit.WithDatabase(db), masterKeys(step.keys), intoBuffer(&log))...)
			if n := warned(&log, "kit_master_key"); n != step.want {
				t.Errorf("keys %s: %d warnings, want %d", step.keys, n, step.want)
			}
			if step.rewrap {
				if _, err := k.Rewrap(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestProductionRefusesTheMasterKeysOfAnotherDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		start := func(keys string) error {
			k, err := kit.New(kit.WithEnvironment("production"), kit.WithBaseURL("https://app.example.com"), kit.WithDatabase(db),
				kit.WithSecrets(secrets.Config{}), masterKeys(keys), kit.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				return err
			}
			return k.Close(t.Context())
		}
		if err := start("a"); err != nil {
			t.Fatal(err)
		}
		fault := new(capability.Fault)
		if err := start("b"); !errors.As(err, &fault) || fault.Key != "KIT_MASTER_KEYS" || !strings.Contains(fault.Fix, "kit_master_key") {
			t.Errorf("other keys start with %v", err)
		}
		for _, keys := range []string{"ab", "ba", "a"} {
			if err := start(keys); err != nil {
				t.Errorf("keys %s: %v", keys, err)
			}
		}
		if _, err := db.Exec(t.Context(), "DELETE FROM kit_master_key"); err != nil {
			t.Fatal(err)
		}
		if err := start("b"); err != nil {
			t.Errorf("after the loss of a: %v", err)
		}
	})
}

func TestRefusedConfigurationOfEmailIsNoMissingMailer(t *testing.T) {
	var log bytes.Buffer
	_, err := kit.New(kit.WithDatabase(databasetest.Memory(t)), intoBuffer(&log),
		kit.WithEmail(email.Config{From: "nobody"}), kit.WithAuth(auth.Config{}))
	if err == nil {
		t.Fatal("a sender without a domain is accepted")
	}
	if n := warned(&log, "auth can send no mail"); n != 0 {
		t.Errorf("%d warnings that no email is composed, want 0:\n%s", n, &log)
	}
}
