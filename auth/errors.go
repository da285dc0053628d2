package auth

import "github.com/kitbackend/kit/capability"

// The refusals of auth, beside the general ones of the guards.
var (
	ErrUserNotFound    = capability.NewError(404, "auth/user_not_found", "There is no such user.")
	ErrSessionNotFound = capability.NewError(404, "auth/session_not_found", "There is no such session.")
)

func refusals() []*capability.Error {
	return []*capability.Error{ErrUserNotFound, ErrSessionNotFound}
}
