package signin

import (
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/auth/signin/passkey"
	"github.com/kitbackend/kit/capability"
)

// document is what documents say of a row; the tests hold each response to it.
type document struct {
	summary string
	takes   any   // a value of the type of the body
	returns []any // values of the types of the bodies with status 200
	refuses []*capability.Error
}

func returns(values ...any) []any { return values }

func refuses(lists ...any) (all []*capability.Error) {
	for _, list := range lists {
		switch list := list.(type) {
		case *capability.Error:
			all = append(all, list)
		case []*capability.Error:
			all = append(all, list...)
		}
	}
	return all
}

// described returns the row with what documents say of it.
func (r route) described() auth.LibraryRoute {
	row, d := r.LibraryRoute, documents[r.Method+" "+r.Path]
	row.Summary, row.Takes, row.Returns, row.Refusals = d.summary, d.takes, d.returns, d.refuses
	if !safeMethod(r.Method) {
		row.Refusals = refuses(row.Refusals, fromPages)
	}
	if d.takes != nil {
		row.Refusals = refuses(row.Refusals, errMalformed, errUnsupportedMediaType)
	}
	return row
}

// The refusals of several rows.
var (
	fromPages    = refuses(errMissingOrigin, errInvalidOrigin, errCrossSiteNavigation)
	whenSignedIn = refuses(errUnauthorized)
	whenFresh    = refuses(errUnauthorized, errSessionNotFresh)
	ofEntry      = refuses(errBanned, errEmailNotVerified, errUnauthorized)
	ofPassword   = refuses(errCredentialNotFound, errInvalidPassword)
	ofChoice     = refuses(errPasswordTooShort, errPasswordTooLong, errPasswordCompromised)
	ofMail       = refuses(errMailUnavailable)
	ofTargets    = refuses(errInvalidCallbackURL, errInvalidNewUser, errInvalidErrorCallback)
	ofNames      = refuses(errUsernameTooShort, errUsernameTooLong, errInvalidUsername)
	ofLookUps    = refuses(unprocessable(errUsernameTooShort), unprocessable(errUsernameTooLong), unprocessable(errInvalidUsername))
	ofCodes      = refuses(errNotFound, errInvalidEmail, mailcode.ErrInvalid, mailcode.ErrExpired, mailcode.ErrTooManyAttempts)
	ofSentCodes  = refuses(errNotFound, errInvalidEmail, errMailUnavailable)
	ofChanges    = refuses(whenFresh, ofPassword, errChangeEmailDisabled, errEmailSame)
	ofFactors    = refuses(factor.ErrInvalidCode, factor.ErrInvalidBackupCode, factor.ErrTOTPNotEnabled, factor.ErrBackupCodesNotEnabled, factor.ErrLocked)
	ofSettings   = refuses(whenFresh, ofPassword, ofFactors)
	ofProofs     = refuses(ofEntry, factor.ErrChallengeOver, factor.ErrTooManyAttempts, factor.ErrLocked, factor.ErrNotEnabled)
	ofTokens     = refuses(errUnauthorized, errAccountNotFound, errProviderNotSupported)
	ofLinks      = refuses(errInvalidToken, errTokenExpired)
	ofMagicLinks = refuses(ofTargets, errNotFound, errInvalidToken, errSignUpDisabled, ofEntry)
	ofAddresses  = refuses(errInvalidCallbackURL, unauthorized(errInvalidToken), errTokenExpired, errUnauthorized, errUserExists, errInvalidUser, errMailUnavailable)
	ofDeletion   = refuses(errInvalidCallbackURL, errNotFound, errUnauthorized, ofLinks)
	ofProviders  = refuses(errProviderNotFound, errIDTokenNotSupported, unauthorized(errInvalidToken), errUserEmailNotFound, errSocialAlreadyLinked)
)

func unauthorized(e *capability.Error) *capability.Error {
	return withStatus(e, http.StatusUnauthorized)
}

func unprocessable(e *capability.Error) *capability.Error {
	return withStatus(e, http.StatusUnprocessableEntity)
}

// documents has an entry for each row. VALIDATION_ERROR, TOO_MANY_REQUESTS, INTERNAL_SERVER_ERROR,
// SERVICE_UNAVAILABLE and PAYLOAD_TOO_LARGE, which any row can refuse with, are not listed.
var documents = map[string]document{
	"GET /ok":    {"Reports that the library serves.", nil, returns(map[string]bool{}), nil},
	"GET /error": {"The page for a link or provider that was refused.", nil, nil, nil},

	"POST /sign-up/email": {"Creates a user with a password and, unless the address must be proved first, signs in.", signUpBody{}, returns(signedUp{}, challenged{}),
		refuses(errSignUpDisabled, errUserExists, errFieldNotAllowed, errInvalidCallbackURL, errMailUnavailable, ofNames, errUsernameTaken, ofChoice, ofEntry)},
	"POST /sign-in/email": {"Signs in by address and password; a second factor may be asked for.", signInEmailBody{}, returns(signedIn{}, challenged{}),
		refuses(errPasswordDisabled, errInvalidEmail, errInvalidEmailPassword, errInvalidCallbackURL, errMailUnavailable, ofEntry)},
	"POST /change-password": {"Changes the password.", changePasswordBody{}, returns(signedUp{}), refuses(whenFresh, ofPassword, ofChoice)},
	"POST /verify-password": {"Confirms the session by the password.", verifyPasswordBody{}, returns(done{}), refuses(whenSignedIn, ofPassword)},

	"POST /send-verification-email": {"Mails a link that proves an address.", sendVerificationBody{}, returns(done{}),
		refuses(errInvalidCallbackURL, errEmailMismatch, errEmailVerified, errUnauthorized, ofMail)},
	"GET /verify-email":  {"Shows the button of a link that proves an address; for a script it proves the address.", nil, returns(verified{}), ofAddresses},
	"POST /verify-email": {"Proves an address by the token of a link.", nil, returns(verified{}), ofAddresses},

	"POST /request-password-reset": {"Mails a link to set a new password.", requestResetBody{}, returns(resetRequested{}),
		refuses(errPasswordDisabled, errInvalidRedirectURL, ofMail)},
	"GET /reset-password/:token":  {"Leads from the mail to the form of the application, or shows one.", nil, nil, refuses(errInvalidCallbackURL, errInvalidToken)},
	"POST /reset-password/:token": {"Takes the form that the link shows.", newPasswordBody{}, returns(done{}), refuses(errInvalidToken, ofChoice)},
	"POST /reset-password":        {"Sets a new password by the token of a mail, and ends all sessions.", resetPasswordBody{}, returns(done{}), refuses(errInvalidToken, ofChoice)},

	"POST /update-user": {"Changes name, picture, user name and the application's fields.", updateUserBody{}, returns(done{}),
		refuses(whenSignedIn, errEmailUnchangeable, errFieldNotAllowed, errNoFields, ofNames, errUsernameTaken)},
	"POST /change-email":         {"Mails a link that changes the address.", changeEmailBody{}, returns(done{}), refuses(ofChanges, errInvalidCallbackURL, ofMail)},
	"POST /delete-user":          {"Deletes the caller, or mails a link that does.", deleteUserBody{}, returns(deleted{}), refuses(ofDeletion, whenFresh, ofPassword, errSessionExpired, ofMail)},
	"GET /delete-user/callback":  {"Shows the button of a link that deletes the account.", nil, returns(deleted{}), ofDeletion},
	"POST /delete-user/callback": {"Deletes the account by the token of a link.", nil, returns(deleted{}), ofDeletion},
	"GET /list-accounts":         {"Lists how the caller can sign in.", nil, returns([]wireAccount{}), whenSignedIn},
	"POST /unlink-account":       {"Removes one way to sign in.", unlinkBody{}, returns(done{}), refuses(whenFresh, ofPassword, errLastAccount, errAccountNotFound)},

	"POST /sign-in/social": {"Begins a sign-in by a provider, or signs in by its ID token.", socialBody{}, returns(authorizeResponse{}, signedIn{}, challenged{}),
		refuses(ofTargets, ofProviders, errOAuthLink, errSignUpDisabled, ofEntry)},
	"POST /link-social": {"Begins to link an account of a provider, or links it by its ID token.", socialBody{}, returns(authorizeResponse{}, linked{}),
		refuses(whenFresh, ofTargets, ofProviders, errLinkingNotAllowed, errDifferentEmails)},
	"POST /one-tap/callback": {"Signs in by the ID token of Google One Tap.", oneTapBody{}, returns(signedIn{}, challenged{}),
		refuses(errInvalidCallbackURL, ofProviders, errOAuthLink, errSignUpDisabled, ofEntry)},
	"GET /callback/:id":      {"Where a provider sends the browser back.", nil, nil, nil},
	"POST /callback/:id":     {"Where a provider's page posts the browser back.", nil, nil, refuses(errMalformed, errUnsupportedMediaType)},
	"POST /get-access-token": {"Returns the provider's access token of an account.", accountChoice{}, returns(accessToken{}), refuses(ofTokens, errFailedToGetAccess)},
	"POST /refresh-token":    {"Renews the provider's tokens of an account.", accountChoice{}, returns(refreshedToken{}), refuses(ofTokens, errRefreshTokenNotFound, errFailedToRefreshAccess)},
	"GET /account-info":      {"Returns what the provider says of the user of an account.", nil, nil, refuses(ofTokens, errFailedToGetAccess, errFailedToGetUserInfo)},

	"GET /get-session":                      {"Returns the session and its user, or null.", nil, returns(sessionAndUser{}, nil), whenSignedIn},
	"POST /get-session":                     {"Returns the session and its user, or null.", nil, returns(sessionAndUser{}, nil), whenSignedIn},
	"GET /list-sessions":                    {"Lists the sessions of the caller.", nil, returns([]wireSession{}), whenFresh},
	"POST /revoke-session":                  {"Ends a session of the caller.", revokeSessionBody{}, returns(done{}), whenSignedIn},
	"POST /revoke-sessions":                 {"Ends all sessions of the caller.", nil, returns(done{}), whenSignedIn},
	"POST /revoke-other-sessions":           {"Ends the other sessions of the caller.", nil, returns(done{}), whenSignedIn},
	"POST /update-session":                  {"Refuses: sessions have no fields of the application.", map[string]any{}, nil, refuses(whenSignedIn, errFieldNotAllowed, errNoFields)},
	"POST /sign-out":                        {"Ends the session, and all sessions of this browser.", nil, returns(succeeded{}), whenSignedIn},
	"GET /token":                            {"Exchanges a cookie or session token for an access token.", nil, returns(onlyToken{}), whenSignedIn},
	"GET /jwks":                             {"Returns the keys that verify access tokens.", nil, nil, nil},
	"GET /.well-known/openid-configuration": {"Returns the metadata for verifiers of access tokens.", nil, returns(discovery{}), nil},

	"POST /sign-in/magic-link": {"Mails a link that signs in.", magicLinkBody{}, returns(done{}), refuses(ofTargets, errNotFound, ofMail)},
	"GET /magic-link/verify":   {"Signs in by a link, or shows the button that does.", nil, returns(magicSignedIn{}, challenged{}), ofMagicLinks},
	"POST /magic-link/verify":  {"Signs in by the token of a link.", nil, returns(magicSignedIn{}, challenged{}), ofMagicLinks},

	"POST /email-otp/send-verification-otp":  {"Mails a code.", codeBody{}, returns(succeeded{}), refuses(ofSentCodes, errPasswordDisabled)},
	"POST /email-otp/check-verification-otp": {"Checks a code without using it up.", codeBody{}, returns(succeeded{}), ofCodes},
	"POST /email-otp/verify-email":           {"Proves an address by a code.", codeBody{}, returns(codeVerified{}), refuses(ofCodes, errUserNotFound)},
	"POST /sign-in/email-otp":                {"Signs in by a code, as a new user if the address has none.", codeBody{}, returns(signedUp{}, challenged{}), refuses(ofCodes, ofEntry)},
	"POST /email-otp/request-password-reset": {"Mails a code to set a new password.", codeBody{}, returns(succeeded{}), refuses(ofSentCodes, errPasswordDisabled)},
	"POST /forget-password/email-otp":        {"Mails a code to set a new password.", codeBody{}, returns(succeeded{}), refuses(ofSentCodes, errPasswordDisabled)},
	"POST /email-otp/reset-password":         {"Sets a new password by a code.", codeBody{}, returns(succeeded{}), refuses(ofCodes, errPasswordDisabled, errUserNotFound, ofChoice)},
	"POST /email-otp/request-email-change":   {"Mails a code that changes the address.", codeBody{}, returns(succeeded{}), refuses(ofSentCodes, ofChanges)},
	"POST /email-otp/change-email":           {"Changes the address by a code.", codeBody{}, returns(succeeded{}), refuses(ofCodes, ofChanges, errUserExists)},

	"POST /sign-in/username": {"Signs in by user name and password.", signInUsernameBody{}, returns(signedIn{}, challenged{}),
		refuses(errPasswordDisabled, errInvalidUsernamePassword, errInvalidCallbackURL, errMailUnavailable, ofLookUps, ofEntry)},
	"POST /is-username-available":             {"Reports whether a user name is free.", usernameBody{}, returns(available{}), ofLookUps},
	"POST /sign-in/anonymous":                 {"Creates a user without address or password, and signs in.", struct{}{}, returns(signedUp{}), refuses(errAnonymousTwice, errUnauthorized)},
	"POST /delete-anonymous-user":             {"Deletes the caller, who is anonymous.", nil, returns(succeeded{}), refuses(whenFresh, errNotAnonymous)},
	"GET /one-time-token/generate":            {"Returns a token that signs in another client.", nil, returns(onlyToken{}), whenFresh},
	"POST /one-time-token/verify":             {"Signs in by a token of another client.", oneTimeBody{}, returns(sessionAndUser{}), refuses(errInvalidToken, ofEntry)},
	"GET /multi-session/list-device-sessions": {"Lists the sessions of this browser.", nil, returns([]sessionAndUser{}), nil},
	"POST /multi-session/set-active":          {"Makes another session of this browser the active one.", chosenBody{}, returns(sessionAndUser{}), refuses(errInvalidSessionToken)},
	"POST /multi-session/revoke":              {"Ends a session of this browser.", chosenBody{}, returns(done{}), refuses(errInvalidSessionToken)},

	"POST /two-factor/enable":                {"Enables a second factor.", enableBody{}, returns(enabling{}), refuses(ofSettings, errEmailNotVerified, errOTPNotConfigured)},
	"POST /two-factor/disable":               {"Disables the second factor.", enableBody{}, returns(done{}), ofSettings},
	"POST /two-factor/get-totp-uri":          {"Shows the secret of the authenticator again.", enableBody{}, returns(shownURI{}), ofSettings},
	"POST /two-factor/generate-backup-codes": {"Replaces the backup codes.", enableBody{}, returns(newCodes{}), refuses(ofSettings, factor.ErrNotEnabled)},
	"POST /two-factor/verify-totp":           {"Takes a code of the authenticator as the second factor.", proof{}, returns(signedIn{}, tokenAndUser{}), refuses(ofProofs, factor.ErrInvalidCode, factor.ErrTOTPNotEnabled)},
	"POST /two-factor/send-otp":              {"Mails a code that is a second factor.", proof{}, returns(done{}), refuses(factor.ErrChallengeOver, errOTPNotConfigured, ofMail)},
	"POST /two-factor/verify-otp":            {"Takes a mailed code as the second factor.", proof{}, returns(signedIn{}, tokenAndUser{}), refuses(ofProofs, factor.ErrInvalidCode, factor.ErrCodeExpired, errOTPNotConfigured)},
	"POST /two-factor/verify-backup-code":    {"Takes a backup code as the second factor.", backupCodeBody{}, returns(signedIn{}, tokenAndUser{}, onlyUser{}), refuses(ofProofs, factor.ErrInvalidBackupCode, factor.ErrBackupCodesNotEnabled)},

	"GET /passkey/generate-register-options": {"Returns the options to make a passkey.", nil, nil, refuses(whenFresh, passkey.ErrNotAvailable, passkey.ErrTooMany)},
	"POST /passkey/verify-registration": {"Stores the passkey that the authenticator made.", passkeyBody{}, returns(wirePasskey{}),
		refuses(whenFresh, passkey.ErrChallengeNotFound, passkey.ErrNotAllowed, passkey.ErrRegistrationFailed, passkey.ErrRegistered, passkey.ErrTooMany)},
	"GET /passkey/generate-authenticate-options": {"Returns the options to sign in by a passkey.", nil, nil, refuses(passkey.ErrNotAvailable)},
	"POST /passkey/verify-authentication": {"Signs in by a passkey.", passkeyBody{}, returns(passkeySignedIn{}),
		refuses(passkey.ErrChallengeNotFound, passkey.ErrUnknown, passkey.ErrAuthenticationFailed, ofEntry)},
	"GET /passkey/list-user-passkeys": {"Lists the passkeys of the caller.", nil, returns([]wirePasskey{}), whenSignedIn},
	"POST /passkey/update-passkey":    {"Renames a passkey.", passkeyPatch{}, returns(onlyPasskey{}), refuses(whenSignedIn, passkey.ErrNotFound)},
	"POST /passkey/delete-passkey":    {"Removes a passkey.", passkeyPatch{}, returns(done{}), refuses(whenFresh, passkey.ErrNotFound)},
}
