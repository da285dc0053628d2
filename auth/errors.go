package auth

import "github.com/kitbackend/kit/capability"

// The refusals of auth, beside the general ones of the guards.
var (
	ErrUserNotFound    = capability.NewError(404, "auth/user_not_found", "There is no such user.")
	ErrSessionNotFound = capability.NewError(404, "auth/session_not_found", "There is no such session.")
	ErrDeviceNotFound  = capability.NewError(404, "auth/device_not_found", "There is no such device.")
	ErrUserDisabled    = capability.NewError(403, "auth/user_disabled", "This user may not sign in.")
	ErrEmailTaken      = capability.NewError(409, "auth/email_taken", "Another user has this e-mail address.")
	ErrUsernameTaken   = capability.NewError(409, "auth/username_taken", "Another user has this name.")
	// ErrRefreshInvalid covers every refresh token that is not good: malformed,
	// forged, or of a session that has ended.
	ErrRefreshInvalid = capability.NewError(401, "auth/refresh_invalid", "The refresh token is not good. Sign in again.")
	// ErrRefreshReused means that somebody else has used the token: the session
	// has ended.
	ErrRefreshReused   = capability.NewError(401, "auth/refresh_reused", "The refresh token was used before, so its session has ended. Sign in again.")
	ErrMailUnavailable = capability.NewError(503, "auth/mail_unavailable", "Mail cannot be sent: nothing that sends it is composed.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrUserNotFound, ErrSessionNotFound, ErrDeviceNotFound, ErrUserDisabled, ErrEmailTaken, ErrUsernameTaken,
		ErrRefreshInvalid, ErrRefreshReused, ErrMailUnavailable,
	}
}
