package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// Reply is the response of the library to [Auth.Call].
type Reply struct {
	Status int
	// Code and Message are those of the refusal, empty if there was none.
	Code, Message string
	Header        http.Header
	Body          json.RawMessage
}

// Refused reports whether the library refused.
func (r Reply) Refused() bool { return r.Status >= http.StatusBadRequest }

// Call calls one of the library's routes in process, such as "/sign-in/email", with a body that
// encodes to JSON, for forms that the application shows itself. r is the request with the form: the
// call has its cookies, address and headers, and the same origin checks and limits as over HTTP.
// Cookies that the library sets are set on w. The error reports a body that cannot be encoded; a
// refusal of the library is returned as a Reply.
func (a *Auth) Call(w http.ResponseWriter, r *http.Request, path string, body any) (Reply, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		return Reply{}, fmt.Errorf("auth: encoding the body of %s: %w", path, err)
	}
	ctx := r.Context()
	if capability.RequestInfoOf(ctx) == nil {
		ip, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			ip = r.RemoteAddr
		}
		ctx = capability.WithRequestInfo(ctx, &capability.RequestInfo{Method: r.Method, IP: ip, UserAgent: r.UserAgent()})
	}
	inner := r.Clone(ctx)
	inner.Method, inner.ContentLength = http.MethodPost, int64(len(raw))
	inner.URL.Path, inner.URL.RawPath, inner.URL.RawQuery = a.cfg.BasePath+path, "", ""
	inner.Header.Set("Content-Type", "application/json")
	inner.Header.Set("Accept", "application/json")
	if inner.Header.Get("Sec-Fetch-Mode") == "navigate" { // the form's page navigates, the call does not
		inner.Header.Set("Sec-Fetch-Mode", "cors")
		inner.Header.Set("Sec-Fetch-Dest", "empty")
	}
	inner.Body = http.NoBody
	response := httptest.NewRecorder()
	refused := a.serveLibrary(response, inner, func() ([]byte, error) { return raw, nil })
	for _, cookie := range response.Header()["Set-Cookie"] {
		w.Header().Add("Set-Cookie", cookie)
	}
	if refused != nil {
		refusal := LibraryRefusal(refused)
		return Reply{Status: refusal.Status, Code: refusal.Code, Message: refusal.Message, Header: response.Header()}, nil
	}
	reply := Reply{Status: response.Code, Header: response.Header(), Body: bytes.Clone(response.Body.Bytes())}
	if reply.Refused() && strings.HasPrefix(response.Header().Get("Content-Type"), "application/json") {
		var refusal struct{ Code, Message string }
		if json.Unmarshal(reply.Body, &refusal) == nil {
			reply.Code, reply.Message = refusal.Code, refusal.Message
		}
	}
	return reply, nil
}
