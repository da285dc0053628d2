package signin

import (
	"errors"
	"net/http"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// withStatus returns a copy with another status: some codes have two.
func withStatus(e *capability.Error, status int) *capability.Error {
	c := *e
	c.Status = status
	return &c
}

// isOwn reports whether err is a refusal of this package, not of the kit.
func isOwn(err error) bool {
	var refusal *capability.Error
	return errors.As(err, &refusal) && !strings.Contains(refusal.Code, "/")
}

// The refusals of every request.
var (
	errValidation           = capability.NewError(http.StatusBadRequest, "VALIDATION_ERROR", "The request is not of the form this route takes.")
	errMalformed            = capability.NewError(http.StatusBadRequest, "BAD_REQUEST", "The body is not JSON.")
	errUnauthorized         = capability.NewError(http.StatusUnauthorized, "UNAUTHORIZED", "Sign in first.")
	errNotFound             = capability.NewError(http.StatusNotFound, "NOT_FOUND", "There is nothing at this path.")
	errUnsupportedMediaType = capability.NewError(http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "The body must be application/json.")
	errTooManyRequests      = capability.NewError(http.StatusTooManyRequests, "TOO_MANY_REQUESTS", "Too many requests. Wait and try again.")
	errUnavailable          = capability.NewError(http.StatusServiceUnavailable, "SERVICE_UNAVAILABLE", "The service cannot respond right now. Try again.")
	errSessionNotFresh      = capability.NewError(http.StatusForbidden, "SESSION_NOT_FRESH", "Session is not fresh")
	errSessionExpired       = capability.NewError(http.StatusBadRequest, "SESSION_EXPIRED", "Session expired. Re-authenticate to perform this action.")
	errBanned               = capability.NewError(http.StatusForbidden, "BANNED_USER", "This account is disabled.")
)

// The refusals of pages and redirect targets that are not the application's own.
var (
	errMissingOrigin        = capability.NewError(http.StatusForbidden, "MISSING_OR_NULL_ORIGIN", "Missing or null Origin")
	errInvalidOrigin        = capability.NewError(http.StatusForbidden, "INVALID_ORIGIN", "Invalid origin")
	errInvalidCallbackURL   = capability.NewError(http.StatusForbidden, "INVALID_CALLBACK_URL", "Invalid callbackURL")
	errInvalidRedirectURL   = capability.NewError(http.StatusForbidden, "INVALID_REDIRECT_URL", "Invalid redirectURL")
	errInvalidErrorCallback = capability.NewError(http.StatusForbidden, "INVALID_ERROR_CALLBACK_URL", "Invalid errorCallbackURL")
	errInvalidNewUser       = capability.NewError(http.StatusForbidden, "INVALID_NEW_USER_CALLBACK_URL", "Invalid newUserCallbackURL")
	errCrossSiteNavigation  = capability.NewError(http.StatusForbidden, "CROSS_SITE_NAVIGATION_LOGIN_BLOCKED", "Cross-site navigation login blocked. This request appears to be a CSRF attack.")
	errMailUnavailable      = capability.NewError(http.StatusServiceUnavailable, "VERIFICATION_EMAIL_NOT_ENABLED", "Mail cannot be sent from here.")
)

// The refusals of accounts, passwords and addresses.
var (
	errUserNotFound         = capability.NewError(http.StatusBadRequest, "USER_NOT_FOUND", "User not found")
	errInvalidUser          = capability.NewError(http.StatusBadRequest, "INVALID_USER", "Invalid user")
	errInvalidEmail         = capability.NewError(http.StatusBadRequest, "INVALID_EMAIL", "Invalid email")
	errInvalidPassword      = capability.NewError(http.StatusBadRequest, "INVALID_PASSWORD", "Invalid password")
	errInvalidEmailPassword = capability.NewError(http.StatusUnauthorized, "INVALID_EMAIL_OR_PASSWORD", "Invalid email or password")
	errPasswordTooShort     = capability.NewError(http.StatusBadRequest, "PASSWORD_TOO_SHORT", "Password too short")
	errPasswordTooLong      = capability.NewError(http.StatusBadRequest, "PASSWORD_TOO_LONG", "Password too long")
	errPasswordCompromised  = capability.NewError(http.StatusBadRequest, "PASSWORD_COMPROMISED", "The password you entered has been compromised. Please choose a different password.")
	errUserExists           = capability.NewError(http.StatusUnprocessableEntity, "USER_ALREADY_EXISTS_USE_ANOTHER_EMAIL", "User already exists. Use another email.")
	errEmailNotVerified     = capability.NewError(http.StatusForbidden, "EMAIL_NOT_VERIFIED", "Email not verified")
	errEmailVerified        = capability.NewError(http.StatusBadRequest, "EMAIL_ALREADY_VERIFIED", "Email is already verified")
	errEmailMismatch        = capability.NewError(http.StatusBadRequest, "EMAIL_MISMATCH", "Email mismatch")
	errEmailUnchangeable    = capability.NewError(http.StatusBadRequest, "EMAIL_CAN_NOT_BE_UPDATED", "Email can not be updated")
	errEmailSame            = capability.NewError(http.StatusBadRequest, "EMAIL_IS_THE_SAME", "Email is the same")
	errChangeEmailDisabled  = capability.NewError(http.StatusBadRequest, "CHANGE_EMAIL_DISABLED", "Change email is disabled")
	errSignUpDisabled       = capability.NewError(http.StatusBadRequest, "EMAIL_PASSWORD_SIGN_UP_DISABLED", "Email and password sign up is not enabled")
	errPasswordDisabled     = capability.NewError(http.StatusBadRequest, "EMAIL_PASSWORD_DISABLED", "Email and password is not enabled")
	errCredentialNotFound   = capability.NewError(http.StatusBadRequest, "CREDENTIAL_ACCOUNT_NOT_FOUND", "Credential account not found")
	errAccountNotFound      = capability.NewError(http.StatusBadRequest, "ACCOUNT_NOT_FOUND", "Account not found")
	errLastAccount          = capability.NewError(http.StatusBadRequest, "FAILED_TO_UNLINK_LAST_ACCOUNT", "You can't unlink your last account")
	errFieldNotAllowed      = capability.NewError(http.StatusBadRequest, "FIELD_NOT_ALLOWED", "Field not allowed to be set")
	errNoFields             = capability.NewError(http.StatusBadRequest, "NO_FIELDS_TO_UPDATE", "No fields to update")
	errInvalidToken         = capability.NewError(http.StatusBadRequest, "INVALID_TOKEN", "Invalid token")
	errTokenExpired         = capability.NewError(http.StatusUnauthorized, "TOKEN_EXPIRED", "Token expired")
)

// The refusals of user names, anonymous users and sessions of a browser.
var (
	errInvalidUsernamePassword = capability.NewError(http.StatusUnauthorized, "INVALID_USERNAME_OR_PASSWORD", "Invalid username or password")
	errUsernameTaken           = capability.NewError(http.StatusBadRequest, "USERNAME_IS_ALREADY_TAKEN", "Username is already taken. Please try another.")
	errUsernameTooShort        = capability.NewError(http.StatusBadRequest, "USERNAME_TOO_SHORT", "Username is too short")
	errUsernameTooLong         = capability.NewError(http.StatusBadRequest, "USERNAME_TOO_LONG", "Username is too long")
	errInvalidUsername         = capability.NewError(http.StatusBadRequest, "INVALID_USERNAME", "Username is invalid")
	errAnonymousTwice          = capability.NewError(http.StatusBadRequest, "ANONYMOUS_USERS_CANNOT_SIGN_IN_AGAIN_ANONYMOUSLY", "Anonymous users cannot sign in again anonymously")
	errInvalidSessionToken     = capability.NewError(http.StatusUnauthorized, "INVALID_SESSION_TOKEN", "Invalid session token")
	errNotAnonymous            = capability.NewError(http.StatusForbidden, "USER_IS_NOT_ANONYMOUS", "User is not anonymous")
)

// The refusals of sign-in by other providers, and of linking them.
var (
	errProviderNotFound      = capability.NewError(http.StatusNotFound, "PROVIDER_NOT_FOUND", "Provider not found")
	errIDTokenNotSupported   = capability.NewError(http.StatusNotFound, "ID_TOKEN_NOT_SUPPORTED", "id_token not supported")
	errFailedToGetUserInfo   = capability.NewError(http.StatusUnauthorized, "FAILED_TO_GET_USER_INFO", "Failed to get user info")
	errUserEmailNotFound     = capability.NewError(http.StatusUnauthorized, "USER_EMAIL_NOT_FOUND", "User email not found")
	errSocialAlreadyLinked   = capability.NewError(http.StatusConflict, "SOCIAL_ACCOUNT_ALREADY_LINKED", "Social account already linked")
	errOAuthLink             = capability.NewError(http.StatusUnauthorized, "OAUTH_LINK_ERROR", "This sign-in could not be linked to the account.")
	errLinkingNotAllowed     = capability.NewError(http.StatusUnauthorized, "LINKING_NOT_ALLOWED", "Account linking is not allowed")
	errDifferentEmails       = capability.NewError(http.StatusUnauthorized, "LINKING_DIFFERENT_EMAILS_NOT_ALLOWED", "Linking an account of another email is not allowed")
	errProviderNotSupported  = capability.NewError(http.StatusBadRequest, "PROVIDER_NOT_SUPPORTED", "Provider is not supported")
	errRefreshTokenNotFound  = capability.NewError(http.StatusBadRequest, "REFRESH_TOKEN_NOT_FOUND", "Refresh token not found")
	errFailedToRefreshAccess = capability.NewError(http.StatusBadRequest, "FAILED_TO_REFRESH_ACCESS_TOKEN", "Failed to refresh access token")
	errFailedToGetAccess     = capability.NewError(http.StatusBadRequest, "FAILED_TO_GET_ACCESS_TOKEN", "Failed to get a valid access token")
)

// errOTPNotConfigured refuses mailed codes where they are no second factor; their other refusals
// are those of package factor.
var errOTPNotConfigured = capability.NewError(http.StatusBadRequest, "OTP_NOT_CONFIGURED", "OTP is not available")
