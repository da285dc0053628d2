package kit_test

import (
	"net/http/httptest"
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
