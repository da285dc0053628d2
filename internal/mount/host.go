package mount

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Identify puts into the context of requests that other handlers serve what the
// kit's own carry: id, client address and user agent.
func (m *Mount) Identify(r *http.Request) (*http.Request, *capability.RequestInfo) {
	info := &capability.RequestInfo{
		RequestID: m.requestID(r, time.Now()),
		Method:    r.Method,
		Route:     r.Pattern,
		IP:        m.clientIP(r),
		UserAgent: clip(r.UserAgent(), maxAgent),
	}
	return r.WithContext(capability.WithRequestInfo(r.Context(), info)), info
}
