package kit

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

// Identify is middleware for the application's own routes: it puts into the
// context of a request what the kit's routes have there, so that operations that
// the handler calls with it are recorded under the request's id, its client
// address, behind trusted proxies too, and its caller. The caller is whom
// [auth.Auth.Current] finds; a proof that is not good counts as none, and it is
// for the handler to refuse. [capability.RequestInfoOf] reads it. Requests that
// reach the kit through it get their own.
func (k *Kit) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if capability.RequestInfoOf(r.Context()) != nil || k.serves(r) {
			next.ServeHTTP(w, r)
			return
		}
		r, info := k.mount.Identify(r)
		w.Header().Set("X-Request-Id", info.RequestID)
		if k.auth != nil {
			_, _, _ = k.auth.Current(r) // notes the caller itself
		}
		next.ServeHTTP(w, r)
	})
}
