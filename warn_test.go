package kit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
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

func TestWarnsOfOtherMasterKeysOnTheSameDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		start := func(letters string) int {
			var log bytes.Buffer
			var keys []string
			for _, letter := range letters {
				keys = append(keys, string(letter)+":"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(letter)}, 32)))
			}
			source := func(context.Context) (string, error) { return strings.Join(keys, ","), nil }
			kittest.New(t, append(everything(), kit.WithDatabase(db), kit.WithMasterKeys(source), intoBuffer(&log))...)
			return warned(&log, "kit_master_key")
		}
		for _, step := range []struct {
			keys string
			want int
		}{{"a", 0}, {"b", 1}, {"ba", 0}, {"b", 0}, {"a", 1}} {
			if n := start(step.keys); n != step.want {
				t.Errorf("keys %s: %d warnings, want %d", step.keys, n, step.want)
			}
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
