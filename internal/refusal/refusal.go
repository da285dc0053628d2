// Package refusal writes refusals as all routes send them.
package refusal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/wait"
)

// body is the shape of every refusal.
type body struct {
	Error fields `json:"error"`
}

type fields struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	RequestID string `json:"requestId,omitempty"`
	Details   any    `json:"details,omitempty"`
}

// Body returns the JSON of a refusal, without details that do not encode.
func Body(refusal *capability.Error, requestID string) []byte {
	b := body{fields{refusal.Code, refusal.Message, requestID, refusal.Details}}
	buf := new(bytes.Buffer)
	if Encode(buf, b) != nil {
		b.Error.Details = nil
		buf.Reset()
		_ = Encode(buf, b)
	}
	return buf.Bytes()
}

// Encode writes a value as the JSON of a response.
func Encode(buf *bytes.Buffer, value any) error {
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Header sets WWW-Authenticate of a 401 and Retry-After of a 429 and a 503. A Retry-After that is
// set stays unless the refusal says a wait of its own.
func Header(h http.Header, refusal *capability.Error) {
	switch refusal.Status {
	case http.StatusUnauthorized:
		h.Set("WWW-Authenticate", challenge(refusal))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if d := wait.Of(refusal); d > 0 || h.Get("Retry-After") == "" {
			wait.Tell(h, d)
		}
	}
}

// challenge returns the WWW-Authenticate of a 401 (RFC 6750); it never says which step failed.
func challenge(refusal *capability.Error) string {
	if refusal.Is(capability.ErrInvalidCredential) {
		return `Bearer error="invalid_token"`
	}
	return "Bearer"
}

// Left reports whether an error comes from a client that disconnected: no failure of the kit.
func Left(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) && ctx.Err() != nil
}

// errNil is logged for a caller that refuses without an error.
var errNil = errors.New("refused a nil error")

// Write responds to a request of the application's own routes. A body over the limit of an
// [http.MaxBytesReader] is refused as kit/body_too_large. Another error that is no refusal, or is nil,
// is sent as kit/internal and logged.
func Write(log *slog.Logger, w http.ResponseWriter, r *http.Request, err error) {
	if err == nil || capability.AsError(err) == nil { // the latter of a nil *capability.Error
		err = errNil
	}
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		err = capability.BodyOver(tooLarge.Limit).Because(err)
	}
	refusal, requestID := capability.AsError(err), ""
	if info := capability.RequestInfoOf(r.Context()); info != nil {
		requestID = info.RequestID
	}
	if refusal.Status >= http.StatusInternalServerError && !Left(r.Context(), err) {
		log.ErrorContext(r.Context(), "failed", slog.String("requestId", requestID), slog.String("path", r.URL.Path),
			slog.String("code", refusal.Code), slog.String("error", err.Error()))
	}
	h := w.Header()
	Header(h, refusal)
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(refusal.Status)
	_, _ = w.Write(Body(refusal, requestID)) // the client has disconnected
}
