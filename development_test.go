package kit_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
)

func TestDevelopmentSecret(t *testing.T) {
	k := kittest.New(t, kit.WithEnvironment(capability.Development), kit.WithDevelopmentSecret("open sesame"),
		kit.WithEmail(email.Config{}), kit.WithAuth(auth.Config{}))
	get := func(path, secret string) int {
		r := httptest.NewRequest("GET", "http://localhost:8080"+path, nil)
		r.RemoteAddr = "127.0.0.1:50000"
		r.Header.Set(capability.DevelopmentHeader, secret)
		rec := httptest.NewRecorder()
		k.ServeHTTP(rec, r)
		return rec.Code
	}
	for _, path := range []string{"/__kit/dev-login?user=ada", "/__kit/mailbox?"} {
		for i, got := range []int{get(path, ""), get(path+"&secret=wrong", ""), get(path+"&secret=open+sesame", ""), get(path, "open sesame")} {
			if want := []int{404, 404, 200, 200}[i]; got != want {
				t.Errorf("%s, case %d: %d, want %d", path, i, got, want)
			}
		}
	}
}

// What remains open is said at start, once, and only where it is.
func TestDevelopmentIsAnnounced(t *testing.T) {
	for name, c := range map[string]struct {
		environment, secret string
		want                int
	}{"open": {capability.Development, "", 1}, "secret": {capability.Development, "open sesame", 0}, "elsewhere": {"sandbox", "", 0}} {
		var log strings.Builder
		opts := []kit.Option{kit.WithEnvironment(c.environment), kit.WithAuth(auth.Config{}), kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil)))}
		if c.secret != "" {
			opts = append(opts, kit.WithDevelopmentSecret(c.secret))
		}
		k, err := kit.New(opts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "WithDevelopmentSecret"); n != c.want {
			t.Errorf("%s: said %d times, want %d: %s", name, n, c.want, &log)
		}
	}
}
