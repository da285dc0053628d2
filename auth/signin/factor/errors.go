package factor

import (
	"net/http"

	"github.com/kitbackend/kit/capability"
)

// The refusals, with the codes of better-auth.
var (
	ErrTOTPNotEnabled        = capability.NewError(http.StatusBadRequest, "TOTP_NOT_ENABLED", "TOTP not enabled")
	ErrNotEnabled            = capability.NewError(http.StatusBadRequest, "TWO_FACTOR_NOT_ENABLED", "Two factor isn't enabled")
	ErrBackupCodesNotEnabled = capability.NewError(http.StatusBadRequest, "BACKUP_CODES_NOT_ENABLED", "Backup codes aren't enabled")
	ErrInvalidCode           = capability.NewError(http.StatusUnauthorized, "INVALID_CODE", "Invalid code")
	ErrInvalidBackupCode     = capability.NewError(http.StatusUnauthorized, "INVALID_BACKUP_CODE", "Invalid backup code")
	// ErrCodeExpired refuses a mailed code that has expired.
	ErrCodeExpired = capability.NewError(http.StatusBadRequest, "OTP_HAS_EXPIRED", "OTP has expired")
	// ErrChallengeOver refuses a proof for a sign-in that no longer waits for one.
	ErrChallengeOver   = capability.NewError(http.StatusUnauthorized, "INVALID_TWO_FACTOR_COOKIE", "Invalid two factor cookie")
	ErrTooManyAttempts = capability.NewError(http.StatusBadRequest, "TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE", "Too many attempts. Please request a new code.")
	ErrLocked          = capability.NewError(http.StatusTooManyRequests, "ACCOUNT_TEMPORARILY_LOCKED", "Too many failed verification attempts. Please try again later.")
)
