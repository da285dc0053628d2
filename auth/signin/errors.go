package signin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// Error is a refusal in the shape that better-auth's clients read: a code in
// upper case, the HTTP status that carries it, and a sentence for people.
type Error struct {
	Status  int
	Code    string
	Message string
	cause   error
}

func newError(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

func (e *Error) Error() string {
	if e.cause != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.cause)
	}
	return e.Code + ": " + e.Message
}

// Is compares codes, so that copies still match.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Code == e.Code
}

func (e *Error) Unwrap() error { return e.cause }

// because returns a copy with a cause: logged, never sent.
func (e *Error) because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// as returns a copy that another status carries: some codes have two.
func (e *Error) as(status int) *Error {
	c := *e
	c.Status = status
	return &c
}

// saying returns a copy with a more exact message: sent to the client.
func (e *Error) saying(format string, args ...any) *Error {
	c := *e
	c.Message = fmt.Sprintf(format, args...)
	return &c
}

// The refusals of every request.
var (
	errValidation           = newError(http.StatusBadRequest, "VALIDATION_ERROR", "The request is not of the form this route takes.")
	errUnauthorized         = newError(http.StatusUnauthorized, "UNAUTHORIZED", "Sign in first.")
	errNotFound             = newError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	errMethodNotAllowed     = newError(http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED", "The path exists, with other methods.")
	errUnsupportedMediaType = newError(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json.")
	errTooManyRequests      = newError(http.StatusTooManyRequests, "TOO_MANY_REQUESTS", "Too many requests. Wait and try again.")
	errUnavailable          = newError(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "The service cannot answer right now. Try again.")
	errInternal             = newError(http.StatusInternalServerError, "INTERNAL_SERVER_ERROR", "Something went wrong here. It was logged under the request id.")
	errSessionNotFresh      = newError(http.StatusForbidden, "SESSION_NOT_FRESH", "Session is not fresh")
	errSessionExpired       = newError(http.StatusBadRequest, "SESSION_EXPIRED", "Session expired. Re-authenticate to perform this action.")
	errBanned               = newError(http.StatusForbidden, "BANNED_USER", "This account is disabled.")
)

// The refusals of pages and redirect targets that are not the application's own.
var (
	errMissingOrigin         = newError(http.StatusForbidden, "MISSING_OR_NULL_ORIGIN", "Missing or null Origin")
	errInvalidOrigin         = newError(http.StatusForbidden, "INVALID_ORIGIN", "Invalid origin")
	errInvalidCallbackURL    = newError(http.StatusForbidden, "INVALID_CALLBACK_URL", "Invalid callbackURL")
	errInvalidRedirectURL    = newError(http.StatusForbidden, "INVALID_REDIRECT_URL", "Invalid redirectURL")
	errInvalidErrorCallback  = newError(http.StatusForbidden, "INVALID_ERROR_CALLBACK_URL", "Invalid errorCallbackURL")
	errInvalidNewUser        = newError(http.StatusForbidden, "INVALID_NEW_USER_CALLBACK_URL", "Invalid newUserCallbackURL")
	errCrossSiteNavigation   = newError(http.StatusForbidden, "CROSS_SITE_NAVIGATION_LOGIN_BLOCKED", "Cross-site navigation login blocked. This request appears to be a CSRF attack.")
	errMailUnavailable       = newError(http.StatusServiceUnavailable, "VERIFICATION_EMAIL_NOT_ENABLED", "Mail cannot be sent from here.")
	errAccountTemporarilyLck = newError(http.StatusTooManyRequests, "ACCOUNT_TEMPORARILY_LOCKED", "Too many failed verification attempts. Please try again later.")
)

// The refusals of accounts, passwords and addresses.
var (
	errUserNotFound         = newError(http.StatusBadRequest, "USER_NOT_FOUND", "User not found")
	errInvalidUser          = newError(http.StatusBadRequest, "INVALID_USER", "Invalid user")
	errInvalidEmail         = newError(http.StatusBadRequest, "INVALID_EMAIL", "Invalid email")
	errInvalidPassword      = newError(http.StatusBadRequest, "INVALID_PASSWORD", "Invalid password")
	errInvalidEmailPassword = newError(http.StatusUnauthorized, "INVALID_EMAIL_OR_PASSWORD", "Invalid email or password")
	errPasswordTooShort     = newError(http.StatusBadRequest, "PASSWORD_TOO_SHORT", "Password too short")
	errPasswordTooLong      = newError(http.StatusBadRequest, "PASSWORD_TOO_LONG", "Password too long")
	errPasswordCompromised  = newError(http.StatusBadRequest, "PASSWORD_COMPROMISED", "The password you entered has been compromised. Please choose a different password.")
	errUserExists           = newError(http.StatusUnprocessableEntity, "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL", "User already exists. Use another email.")
	errEmailNotVerified     = newError(http.StatusForbidden, "EMAIL_NOT_VERIFIED", "Email not verified")
	errEmailVerified        = newError(http.StatusBadRequest, "EMAIL_ALREADY_VERIFIED", "Email is already verified")
	errEmailMismatch        = newError(http.StatusBadRequest, "EMAIL_MISMATCH", "Email mismatch")
	errEmailUnchangeable    = newError(http.StatusBadRequest, "EMAIL_CAN_NOT_BE_UPDATED", "Email can not be updated")
	errEmailSame            = newError(http.StatusBadRequest, "EMAIL_IS_THE_SAME", "Email is the same")
	errChangeEmailDisabled  = newError(http.StatusBadRequest, "CHANGE_EMAIL_DISABLED", "Change email is disabled")
	errSignUpDisabled       = newError(http.StatusBadRequest, "EMAIL_PASSWORD_SIGN_UP_DISABLED", "Email and password sign up is not enabled")
	errPasswordDisabled     = newError(http.StatusBadRequest, "EMAIL_PASSWORD_DISABLED", "Email and password is not enabled")
	errCredentialNotFound   = newError(http.StatusBadRequest, "CREDENTIAL_ACCOUNT_NOT_FOUND", "Credential account not found")
	errAccountNotFound      = newError(http.StatusBadRequest, "ACCOUNT_NOT_FOUND", "Account not found")
	errLastAccount          = newError(http.StatusBadRequest, "FAILED_TO_UNLINK_LAST_ACCOUNT", "You can't unlink your last account")
	errFieldNotAllowed      = newError(http.StatusBadRequest, "FIELD_NOT_ALLOWED", "Field not allowed to be set")
	errNoFields             = newError(http.StatusBadRequest, "NO_FIELDS_TO_UPDATE", "No fields to update")
	errInvalidToken         = newError(http.StatusBadRequest, "INVALID_TOKEN", "Invalid token")
	errTokenExpired         = newError(http.StatusUnauthorized, "TOKEN_EXPIRED", "Token expired")
)

// The refusals of e-mail codes, user names, anonymous users and sessions of a browser.
var (
	errOTPExpired              = newError(http.StatusBadRequest, "OTP_EXPIRED", "OTP expired")
	errInvalidOTP              = newError(http.StatusBadRequest, "INVALID_OTP", "Invalid OTP")
	errTooManyAttempts         = newError(http.StatusForbidden, "TOO_MANY_ATTEMPTS", "Too many attempts")
	errInvalidUsernamePassword = newError(http.StatusUnauthorized, "INVALID_USERNAME_OR_PASSWORD", "Invalid username or password")
	errUsernameTaken           = newError(http.StatusBadRequest, "USERNAME_IS_ALREADY_TAKEN", "Username is already taken. Please try another.")
	errUsernameTooShort        = newError(http.StatusUnprocessableEntity, "USERNAME_TOO_SHORT", "Username is too short")
	errUsernameTooLong         = newError(http.StatusBadRequest, "USERNAME_TOO_LONG", "Username is too long")
	errInvalidUsername         = newError(http.StatusBadRequest, "INVALID_USERNAME", "Username is invalid")
	errAnonymousTwice          = newError(http.StatusBadRequest, "ANONYMOUS_USERS_CANNOT_SIGN_IN_AGAIN_ANONYMOUSLY", "Anonymous users cannot sign in again anonymously")
	errInvalidSessionToken     = newError(http.StatusUnauthorized, "INVALID_SESSION_TOKEN", "Invalid session token")
	errNotAnonymous            = newError(http.StatusForbidden, "USER_IS_NOT_ANONYMOUS", "User is not anonymous")
)

// The refusals of sign-in by other providers, and of linking them.
var (
	errProviderNotFound      = newError(http.StatusNotFound, "PROVIDER_NOT_FOUND", "Provider not found")
	errIDTokenNotSupported   = newError(http.StatusNotFound, "ID_TOKEN_NOT_SUPPORTED", "id_token not supported")
	errFailedToGetUserInfo   = newError(http.StatusUnauthorized, "FAILED_TO_GET_USER_INFO", "Failed to get user info")
	errUserEmailNotFound     = newError(http.StatusUnauthorized, "USER_EMAIL_NOT_FOUND", "User email not found")
	errSocialAlreadyLinked   = newError(http.StatusConflict, "SOCIAL_ACCOUNT_ALREADY_LINKED", "Social account already linked")
	errOAuthLink             = newError(http.StatusUnauthorized, "OAUTH_LINK_ERROR", "This sign-in could not be linked to the account.")
	errLinkingNotAllowed     = newError(http.StatusUnauthorized, "LINKING_NOT_ALLOWED", "Account linking is not allowed")
	errDifferentEmails       = newError(http.StatusUnauthorized, "LINKING_DIFFERENT_EMAILS_NOT_ALLOWED", "Linking an account of another email is not allowed")
	errProviderNotSupported  = newError(http.StatusBadRequest, "PROVIDER_NOT_SUPPORTED", "Provider is not supported")
	errRefreshTokenNotFound  = newError(http.StatusBadRequest, "REFRESH_TOKEN_NOT_FOUND", "Refresh token not found")
	errFailedToRefreshAccess = newError(http.StatusBadRequest, "FAILED_TO_REFRESH_ACCESS_TOKEN", "Failed to refresh access token")
	errFailedToGetAccess     = newError(http.StatusBadRequest, "FAILED_TO_GET_ACCESS_TOKEN", "Failed to get a valid access token")
)

// The refusals of second factors and passkeys.
var (
	errOTPHasExpired          = newError(http.StatusBadRequest, "OTP_HAS_EXPIRED", "OTP has expired")
	errOTPNotConfigured       = newError(http.StatusBadRequest, "OTP_NOT_CONFIGURED", "OTP is not available")
	errTOTPNotEnabled         = newError(http.StatusBadRequest, "TOTP_NOT_ENABLED", "TOTP not enabled")
	errTwoFactorNotEnabled    = newError(http.StatusBadRequest, "TWO_FACTOR_NOT_ENABLED", "Two factor isn't enabled")
	errBackupCodesNotEnabled  = newError(http.StatusBadRequest, "BACKUP_CODES_NOT_ENABLED", "Backup codes aren't enabled")
	errInvalidBackupCode      = newError(http.StatusUnauthorized, "INVALID_BACKUP_CODE", "Invalid backup code")
	errInvalidCode            = newError(http.StatusUnauthorized, "INVALID_CODE", "Invalid code")
	errRequestNewCode         = newError(http.StatusBadRequest, "TOO_MANY_ATTEMPTS_REQUEST_NEW_CODE", "Too many attempts. Please request a new code.")
	errInvalidTwoFactorCookie = newError(http.StatusUnauthorized, "INVALID_TWO_FACTOR_COOKIE", "Invalid two factor cookie")
	errChallengeNotFound      = newError(http.StatusBadRequest, "CHALLENGE_NOT_FOUND", "Challenge not found")
	errNotAllowedToRegister   = newError(http.StatusUnauthorized, "YOU_ARE_NOT_ALLOWED_TO_REGISTER_THIS_PASSKEY", "You are not allowed to register this passkey")
	errFailedToVerifyPasskey  = newError(http.StatusBadRequest, "FAILED_TO_VERIFY_REGISTRATION", "Failed to verify registration")
	errPreviouslyRegistered   = newError(http.StatusBadRequest, "PREVIOUSLY_REGISTERED", "Previously registered")
	errPasskeyNotFound        = newError(http.StatusNotFound, "PASSKEY_NOT_FOUND", "Passkey not found")
	errAuthenticationFailed   = newError(http.StatusUnauthorized, "AUTHENTICATION_FAILED", "Authentication failed")
	errTooManyPasskeys        = newError(http.StatusBadRequest, "TOO_MANY_PASSKEYS", "This account has as many passkeys as it may have")
)

// asError finds the refusal in err. Those of the kit are answered in this
// package's shape; anything else is INTERNAL_SERVER_ERROR with err as its cause.
func asError(err error) *Error {
	if own := (*Error)(nil); errors.As(err, &own) {
		return own
	}
	kits := (*capability.Error)(nil)
	switch {
	case errors.As(err, &kits) && kits.Is(capability.ErrInvalidRequest):
		return errValidation.saying("%s", kits.Message).because(err)
	case errors.Is(err, auth.ErrUserDisabled):
		return errBanned.because(err)
	case errors.Is(err, auth.ErrUserNotFound), errors.Is(err, capability.ErrUnauthenticated):
		return errUnauthorized.because(err)
	case errors.Is(err, auth.ErrMailUnavailable):
		return errMailUnavailable.because(err)
	case errors.Is(err, capability.ErrCSRF):
		return errInvalidOrigin.because(err)
	case errors.Is(err, capability.ErrUnavailable):
		return errUnavailable.because(err)
	default:
		return errInternal.because(err)
	}
}
