// Package bearer reads the bearer token of a request.
package bearer

import (
	"net/http"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// Token reads the token of the Authorization header; given is false without one and for another
// scheme. It refuses with auth/unauthenticated if there are two headers.
func Token(r *http.Request) (token string, given bool, err error) {
	headers := r.Header["Authorization"]
	if len(headers) > 1 {
		return "", false, capability.ErrUnauthenticated.Saying("Send one Authorization header.")
	}
	if len(headers) == 0 {
		return "", false, nil
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	return token, strings.EqualFold(scheme, "Bearer"), nil
}
