package auth

import (
	"net/http"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// The refusals of auth, in addition to the general ones of the guards.
var (
	ErrUserNotFound    = capability.NewError(404, "auth/user_not_found", "There is no such user.")
	ErrSessionNotFound = capability.NewError(404, "auth/session_not_found", "There is no such session.")
	ErrDeviceNotFound  = capability.NewError(404, "auth/device_not_found", "There is no such device.")
	ErrUserDisabled    = capability.NewError(403, "auth/user_disabled", "This user may not sign in.")
	ErrEmailTaken      = capability.NewError(409, "auth/email_taken", "Another user has this e-mail address.")
	ErrUsernameTaken   = capability.NewError(409, "auth/username_taken", "Another user has this name.")
	// ErrRefreshInvalid refuses every invalid refresh token: malformed, forged, or of a session
	// that has ended.
	ErrRefreshInvalid = capability.NewError(401, "auth/refresh_invalid", "The refresh token is not good. Sign in again.")
	// ErrRefreshReused means that another party has used the token, and that the session was ended
	// for it.
	ErrRefreshReused   = capability.NewError(401, "auth/refresh_reused", "The refresh token was used before, so its session has ended. Sign in again.")
	ErrMailUnavailable = capability.NewError(503, "auth/mail_unavailable", "Mail cannot be sent: nothing that sends it is composed.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrUserNotFound, ErrSessionNotFound, ErrDeviceNotFound, ErrUserDisabled, ErrEmailTaken, ErrUsernameTaken,
		ErrRefreshInvalid, ErrRefreshReused, ErrMailUnavailable,
	}
}

// The refusals of a library's routes that do not depend on the library, with the
// codes that clients of better-auth know.
var (
	errValidation         = capability.NewError(400, "VALIDATION_ERROR", "The request is not of the form this route takes.")
	errUnauthorized       = capability.NewError(401, "UNAUTHORIZED", "Sign in first.")
	errBanned             = capability.NewError(403, "BANNED_USER", "This account is disabled.")
	errForeignPage        = capability.NewError(403, "INVALID_ORIGIN", "Invalid origin")
	errNotFound           = capability.NewError(404, "NOT_FOUND", "There is nothing at this path.")
	errMethodNotAllowed   = capability.NewError(405, "METHOD_NOT_ALLOWED", "The path exists, with other methods.")
	errPayloadTooLarge    = capability.NewError(413, "PAYLOAD_TOO_LARGE", "The request body is over the limit.")
	errMediaType          = capability.NewError(415, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json.")
	errTooManyRequests    = capability.NewError(429, "TOO_MANY_REQUESTS", "Too many requests. Wait and try again.")
	errInternal           = capability.NewError(500, "INTERNAL_SERVER_ERROR", "Something went wrong here. It was logged under the request id.")
	errServiceUnavailable = capability.NewError(503, "SERVICE_UNAVAILABLE", "The service cannot respond right now. Try again.")
	errMailNotEnabled     = capability.NewError(503, "VERIFICATION_EMAIL_NOT_ENABLED", "Mail cannot be sent from here.")

	errHumanityMissing     = capability.NewError(400, "MISSING_RESPONSE", "Missing CAPTCHA response")
	errHumanityFailed      = capability.NewError(403, "VERIFICATION_FAILED", "Captcha verification failed")
	errHumanityUnavailable = capability.NewError(503, "SERVICE_UNAVAILABLE", "The check cannot respond right now. Try again.")
)

// libraryWords maps codes of the kit to the refusals of a library's routes.
var libraryWords = map[string]*capability.Error{
	capability.ErrInvalidRequest.Code:       errValidation,
	capability.ErrUnauthenticated.Code:      errUnauthorized,
	capability.ErrCSRF.Code:                 errForeignPage,
	capability.ErrNotFound.Code:             errNotFound,
	capability.ErrMethodNotAllowed.Code:     errMethodNotAllowed,
	capability.ErrBodyTooLarge.Code:         errPayloadTooLarge,
	capability.ErrUnsupportedMediaType.Code: errMediaType,
	capability.ErrRateLimited.Code:          errTooManyRequests,
	capability.ErrUnavailable.Code:          errServiceUnavailable,
	ErrUserDisabled.Code:                    errBanned,
	ErrUserNotFound.Code:                    errUnauthorized,
	ErrMailUnavailable.Code:                 errMailNotEnabled,
}

// LibraryRefusal returns the refusal of a library's routes for err. A [capability.Error] whose code
// has no slash, such as INVALID_EMAIL_OR_PASSWORD, stays as it is; the general refusals of the kit
// get the codes of better-auth, kit/invalid_request becoming VALIDATION_ERROR; anything else is
// INTERNAL_SERVER_ERROR with err as its cause.
func LibraryRefusal(err error) *capability.Error {
	refusal := capability.AsError(err)
	if !strings.Contains(refusal.Code, "/") {
		return refusal
	}
	word, known := libraryWords[refusal.Code]
	switch {
	case !known:
		return errInternal.Because(err)
	case word == errValidation, word == errPayloadTooLarge:
		return word.Saying("%s", refusal.Message).With(refusal.Details).Because(err)
	default:
		return word.Because(err)
	}
}

// libraryRefusalBody returns the body of a refusal of the library's row, those of the kit's checks
// included, for clients that read code and those that read error.code. A management path that is no
// row is refused as the kit's other unknown paths are.
func libraryRefusalBody(h http.Header, err *capability.Error, requestID string) any {
	if capability.ErrNotFound.Is(err) {
		return nil
	}
	type word struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	type fields struct {
		word
		RequestID string `json:"requestId,omitempty"`
		Details   any    `json:"details,omitempty"`
	}
	if wait := h.Get("Retry-After"); wait != "" {
		h.Set("X-Retry-After", wait)
	}
	refusal := LibraryRefusal(err)
	given := word{refusal.Code, refusal.Message}
	return struct {
		word
		Error fields `json:"error"`
	}{given, fields{given, requestID, refusal.Details}}
}
