package kit

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/refusal"
)

// Identify is middleware for the application's own routes. It adds the request information that the
// kit's routes have to the context, so that operations which the handler calls are recorded under
// the id, the client address (behind trusted proxies too) and the caller of the request. The caller
// is the user that [auth.Auth.Current] returns; an invalid credential counts as none, and the
// handler has to refuse it. [capability.RequestInfoOf] reads the information. Requests that reach
// the kit through Identify get information of their own.
func (k *Kit) Identify(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if capability.RequestInfoOf(r.Context()) != nil || k.serves(r) {
			next.ServeHTTP(w, r)
			return
		}
		r, info := k.mount.Identify(r)
		w.Header().Set("X-Request-Id", info.RequestID)
		if k.Auth() != nil {
			_, _, _ = k.Auth().Current(r) // notes the caller itself
		}
		next.ServeHTTP(w, r)
	})
}

// Refuse responds to a request for a route of the application's own as the kit's routes do: with the
// status, code, message and details of the [capability.Error] in err, the id of the request behind
// [Kit.Identify], WWW-Authenticate and Retry-After. The error of an [http.MaxBytesReader] is refused as
// kit/body_too_large with its limit; another error, or nil, is logged and sent as kit/internal, without
// its text. Nothing may have been written to w.
func (k *Kit) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	refusal.Write(k.log, w, r, err)
}
