package capability

import (
	"errors"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database"
)

// Error is a refusal: a stable code of the form domain/reason, the HTTP status
// that carries it, and a sentence for people. In-process callers compare with
// errors.Is against the exported value of the capability; HTTP clients read
// error.code.
type Error struct {
	Code    string
	Status  int
	Message string
	// Details is an optional JSON value that helps the client to correct the call.
	Details any
	cause   error
}

// NewError declares a refusal.
func NewError(status int, code, message string) *Error {
	return &Error{Code: code, Status: status, Message: message}
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return e.Code + ": " + e.Message
}

// Is reports whether target has the same code, so that copies with details or a cause still match.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy with a cause: logged, never sent.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// With returns a copy with details: sent to the client.
func (e *Error) With(details any) *Error {
	c := *e
	c.Details = details
	return &c
}

// Saying returns a copy with a more exact message: sent to the client.
func (e *Error) Saying(format string, args ...any) *Error {
	c := *e
	c.Message = fmt.Sprintf(format, args...)
	return &c
}

// BodyLimit is the details of [ErrBodyTooLarge]: how many bytes a body, or a file, may have.
type BodyLimit struct {
	MaxBytes int64 `json:"maxBytes"`
}

// BodyOver returns [ErrBodyTooLarge] with the limit, in bytes.
func BodyOver(limit int64) *Error {
	return ErrBodyTooLarge.Saying("The request body has at most %d bytes.", limit).With(BodyLimit{limit})
}

// Waiting is implemented by details and causes of a refusal that say how long to wait; 0 means
// unknown. The kit sends the time in the header Retry-After.
type Waiting interface {
	Wait() time.Duration
}

// The general refusals of the kit. Every capability may return them.
var (
	ErrInvalidRequest       = NewError(400, "kit/invalid_request", "The request is not of the form this route takes.")
	ErrNotFound             = NewError(404, "kit/not_found", "There is nothing at this path.")
	ErrMethodNotAllowed     = NewError(405, "kit/method_not_allowed", "The path exists, with other methods.")
	ErrIdempotencyConflict  = NewError(409, "kit/idempotency_conflict", "This Idempotency-Key was used for another request.")
	ErrBodyTooLarge         = NewError(413, "kit/body_too_large", "The request body is over the limit.")
	ErrUnsupportedMediaType = NewError(415, "kit/unsupported_media_type", "The body must be application/json.")
	ErrRateLimited          = NewError(429, "kit/rate_limited", "Too many requests. Wait and try again.")
	ErrInternal             = NewError(500, "kit/internal", "Something went wrong here. It was logged under the request id.")
	ErrUnavailable          = NewError(503, "kit/unavailable", "The service cannot respond right now. Try again.")
	ErrInvalidSignature     = NewError(401, "kit/invalid_signature", "The signature of this request does not verify.")

	ErrUnauthenticated   = NewError(401, "auth/unauthenticated", "Sign in first.")
	ErrCSRF              = NewError(403, "auth/csrf", "The request did not prove that it comes from your own page.")
	ErrInsufficientScope = NewError(403, "auth/insufficient_scope", "The access token does not carry the scope this route needs.")

	ErrNotConnected      = NewError(403, "controlplane/not_connected", "No control-plane connection is registered for this environment.")
	ErrInvalidCredential = NewError(401, "controlplane/invalid_credential", "The control-plane credential does not verify.")
	ErrControlPlaneScope = NewError(403, "controlplane/insufficient_scope", "The credential does not carry the scope this route needs.")
)

// GeneralRefusals returns the refusals of the kit itself, which every capability may return.
func GeneralRefusals() []*Error {
	return []*Error{
		ErrInvalidRequest, ErrNotFound, ErrMethodNotAllowed, ErrIdempotencyConflict, ErrBodyTooLarge,
		ErrUnsupportedMediaType, ErrRateLimited, ErrInternal, ErrUnavailable, ErrInvalidSignature,
		ErrUnauthenticated, ErrCSRF, ErrInsufficientScope,
		ErrNotConnected, ErrInvalidCredential, ErrControlPlaneScope,
	}
}

// AsError returns the refusal in err. An error of a database that is unavailable, or whose reply
// was lost, becomes [ErrUnavailable], any other error [ErrInternal]; both have err as their cause.
func AsError(err error) *Error {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal
	}
	for _, passing := range []error{database.ErrUnavailable, database.ErrUnknownOutcome, database.ErrConflict, database.ErrClosed} {
		if errors.Is(err, passing) {
			return ErrUnavailable.Because(err)
		}
	}
	return ErrInternal.Because(err)
}
