package mailcode

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

// The refusals, with the codes of better-auth.
var (
	ErrInvalid         = capability.NewError(http.StatusBadRequest, "INVALID_OTP", "Invalid OTP")
	ErrExpired         = capability.NewError(http.StatusBadRequest, "OTP_EXPIRED", "OTP expired")
	ErrTooManyAttempts = capability.NewError(http.StatusForbidden, "TOO_MANY_ATTEMPTS", "Too many attempts")
)
