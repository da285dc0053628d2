package auth

import (
	"net/http"
	"testing"

	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/budget"
)

// FuzzCookie reads any Cookie header: a session secret has its size and one
// spelling, and two of them are none.
func FuzzCookie(f *testing.F) {
	c := &keyClock{}
	a := openInternal(f, databasetest.Memory(f), c.Now)
	name := a.SessionCookieName()
	f.Add(name + "=" + encoding.EncodeToString(make([]byte, secretSize)))
	f.Add(name + "=a; " + name + "=b")
	f.Add(`a="b; ;=;` + name)
	f.Fuzz(func(t *testing.T, header string) {
		r := &http.Request{Header: http.Header{"Cookie": {header}}}
		budget.Hold(t, len(header), func() {
			secret, given := a.secret(r)
			if !given {
				return
			}
			if value, _ := a.cookieValue(r, sessionCookie); len(secret) != secretSize || len(r.CookiesNamed(name)) != 1 || encoding.EncodeToString(secret) != value {
				t.Fatalf("%q is taken for the secret %x", header, secret)
			}
		})
	})
}
