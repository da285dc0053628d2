package passkey

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

// The refusals, with the codes of better-auth where it has one.
var (
	// ErrNotAvailable refuses passkeys where the site is at an IP address: browsers
	// bind them to host names.
	ErrNotAvailable       = capability.NewError(http.StatusBadRequest, "PASSKEYS_NOT_AVAILABLE", "Passkeys need a site with a host name.")
	ErrChallengeNotFound  = capability.NewError(http.StatusBadRequest, "CHALLENGE_NOT_FOUND", "Challenge not found")
	ErrNotAllowed         = capability.NewError(http.StatusUnauthorized, "YOU_ARE_NOT_ALLOWED_TO_REGISTER_THIS_PASSKEY", "You are not allowed to register this passkey")
	ErrRegistrationFailed = capability.NewError(http.StatusBadRequest, "FAILED_TO_VERIFY_REGISTRATION", "Failed to verify registration")
	ErrRegistered         = capability.NewError(http.StatusBadRequest, "PREVIOUSLY_REGISTERED", "Previously registered")
	ErrTooMany            = capability.NewError(http.StatusBadRequest, "TOO_MANY_PASSKEYS", "This account has as many passkeys as it may have")
	ErrNotFound           = capability.NewError(http.StatusNotFound, "PASSKEY_NOT_FOUND", "Passkey not found")
	// ErrUnknown is [ErrNotFound] with the status of a sign-in.
	ErrUnknown              = capability.NewError(http.StatusUnauthorized, "PASSKEY_NOT_FOUND", "Passkey not found")
	ErrAuthenticationFailed = capability.NewError(http.StatusUnauthorized, "AUTHENTICATION_FAILED", "Authentication failed")
)
