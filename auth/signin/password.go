package signin

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

func (l *library) passwordRoutes() []route {
	return []route{
		l.joins(post("/sign-up/email", rateSignIn, l.signUp)),
		post("/sign-in/email", rateSignIn, l.signInEmail),
		post("/change-password", rateSignIn, l.changePassword),
		post("/verify-password", rateSignIn, l.verifyPassword),
	}
}

type signUpBody struct {
	Name     string `json:"name,omitempty"`
	Email    string `json:"email"`
	Password string `json:"password"`
	Image    string `json:"image,omitempty"`
	Username string `json:"username,omitempty"`
	// DisplayUsername is the user name as it is displayed.
	DisplayUsername string `json:"displayUsername,omitempty"`
	CallbackURL     string `json:"callbackURL,omitempty"`
	RememberMe      *bool  `json:"rememberMe,omitempty"`
}

// signedUp is better-auth's response to a sign-up; the token is null while the
// address is to be proved first.
type signedUp struct {
	Token        *string  `json:"token"`
	RefreshToken string   `json:"refreshToken,omitempty"`
	User         wireUser `json:"user"`
}

// signUp creates a user with a password. If addresses must be verified, a taken one gets the
// response of a free one, and its owner is informed by mail.
func (l *library) signUp(c *call) (any, error) {
	var in signUpBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("email", "password"); err != nil {
		return nil, err
	}
	n, hash, err := l.readSignUp(c, &in)
	if err != nil {
		return nil, err
	}
	draft, err := l.auth.Draft(c.Context(), n) // before anything about the address is looked at
	if err != nil {
		return nil, err
	}
	_, taken, err := l.auth.UserByEmail(c.Context(), n.Email)
	if err != nil {
		return nil, err
	}
	if taken {
		return l.signUpTaken(c, draft)
	}
	var user auth.User
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		if user, err = l.newUser(c.in(ctx), n); err != nil {
			return err
		}
		if err := l.store.setPassword(ctx, id.New(l.host.DB.Now(ctx)), user.ID, hash, l.host.DB.Now(ctx)); err != nil {
			return err
		}
		if l.cfg.RequireVerification {
			if err := l.store.insertNewcomer(ctx, user.ID, l.host.DB.Now(ctx)); err != nil {
				return err
			}
		}
		return l.welcome(ctx, c, letter{Kind: kindVerify, Address: n.Email, targets: targets{Callback: in.CallbackURL}})
	})
	switch {
	case errors.Is(err, auth.ErrEmailTaken): // by one who was faster
		return l.signUpTaken(c, draft)
	case errors.Is(err, auth.ErrUsernameTaken):
		return nil, errUsernameTaken
	case err != nil:
		return nil, err
	}
	if l.cfg.RequireVerification {
		return l.unverified(c, user)
	}
	e, err := l.enter(c, user, "pwd", in.RememberMe == nil || *in.RememberMe, nil)
	if err != nil {
		return nil, err
	}
	return l.signUpResponse(c, e)
}

// welcome mails to the address of a sign-up. If mail cannot be sent, a sign-up is refused only if
// its address must be proved.
func (l *library) welcome(ctx context.Context, c *call, m letter) error {
	if !l.auth.CanMail() && !l.cfg.RequireVerification {
		return nil
	}
	return c.mailTo(ctx, mailsOther, m)
}

// readSignUp checks a sign-up and hashes its password: for a taken address too,
// so that it takes as long.
func (l *library) readSignUp(c *call, in *signUpBody) (n auth.NewUser, hash string, err error) {
	if l.cfg.DisablePasswords || l.cfg.DisableSignUp {
		return n, "", errSignUpDisabled
	}
	n = auth.NewUser{Name: in.Name, Image: in.Image}
	if n.Email, err = addressAt("email", in.Email); err != nil {
		return n, "", err
	}
	if err := checkProfile(in.Name, in.Image); err != nil {
		return n, "", err
	}
	if in.CallbackURL, err = l.target(in.CallbackURL, errInvalidCallbackURL); err != nil {
		return n, "", err
	}
	if l.cfg.Usernames {
		if n.Username, err = l.freeUsername(c.Context(), in.Username); err != nil {
			return n, "", err
		}
		if n.DisplayUsername, err = displayUsername(in.DisplayUsername); err != nil {
			return n, "", err
		}
	}
	if n.Profile, err = c.fields(); err != nil {
		return n, "", err
	}
	if err := c.allowed(l.auth.AllowAccount("sign-up", c.network())); err != nil {
		return n, "", err
	}
	if err := c.allowed(l.auth.AllowAccount("sign-up-network", c.widely())); err != nil {
		return n, "", err
	}
	hash, err = l.newPassword(c.Context(), in.Password)
	return n, hash, err
}

// signUpTaken returns the response to the sign-up of an address that has an account; draft is the
// user that would have been created.
func (l *library) signUpTaken(c *call, draft auth.User) (any, error) {
	if !l.cfg.RequireVerification {
		return nil, errUserExists
	}
	if err := l.welcome(c.Context(), c, letter{Kind: letterSignUp, Address: draft.Email}); err != nil {
		return nil, err
	}
	return l.unverified(c, draft)
}

// unverified returns the response to a sign-up that has to be completed by mail.
func (l *library) unverified(c *call, user auth.User) (any, error) {
	wire, err := l.wire(c.Context(), user)
	return signedUp{User: wire}, err
}

func (l *library) signUpResponse(c *call, e entry) (any, error) {
	if e.challenged() {
		return e.challenge, nil
	}
	wire, err := l.wire(c.Context(), e.user)
	out := signedUp{Token: &e.in.AccessToken, User: wire}
	if e.native {
		out.RefreshToken = e.in.RefreshToken
	}
	return out, err
}

// passwordEntry is the part of a sign-in that is the same for an address and a user name.
type passwordEntry struct {
	password, callbackURL string
	rememberMe            *bool
}

// signInEmailBody is a sign-in by address.
type signInEmailBody struct {
	Email       string `json:"email"`
	Password    string `json:"password"`
	CallbackURL string `json:"callbackURL,omitempty"`
	RememberMe  *bool  `json:"rememberMe,omitempty"`
}

func (l *library) signInEmail(c *call) (any, error) {
	var in signInEmailBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("email", "password"); err != nil {
		return nil, err
	}
	if l.cfg.DisablePasswords {
		return nil, errPasswordDisabled
	}
	mail, err := address(in.Email)
	if err != nil {
		return nil, err
	}
	user, found, err := l.auth.UserByEmail(c.Context(), mail)
	if err != nil {
		return nil, err
	}
	return l.signInPassword(c, passwordEntry{in.Password, in.CallbackURL, in.RememberMe}, mail, user, found, errInvalidEmailPassword)
}

// signInPassword signs in a caller who knows the password of an account, which is named by its
// address or user name.
func (l *library) signInPassword(c *call, in passwordEntry, named string, user auth.User, found bool, refusal *capability.Error) (any, error) {
	target, err := l.target(in.callbackURL, errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	known, err := c.knownTo(user.ID)
	if err != nil {
		return nil, err
	}
	if err := c.mayGuess(named, known); err != nil {
		return nil, err
	}
	if known {
		c = c.in(knownClient(c.Context()))
	}
	hash, ok, err := l.checkPassword(c.Context(), user.ID, in.password)
	switch {
	case err != nil:
		return nil, err
	case !ok || !found:
		return nil, refusal
	case l.cfg.RequireVerification && !user.EmailVerified:
		return nil, l.resendVerification(c, user, target)
	}
	e, err := l.enter(c, user, "pwd", in.rememberMe == nil || *in.rememberMe, func(ctx context.Context) error {
		now, _, err := l.store.password(ctx, user.ID)
		if err == nil && now != hash {
			err = refusal
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return l.response(c, e, target)
}

// resendVerification refuses a user who knows the password but has not proved the address, and
// mails the link again.
func (l *library) resendVerification(c *call, user auth.User, target string) error {
	m := letter{Kind: kindVerify, Address: user.Email, targets: targets{Callback: target}}
	if err := c.mail(c.Context(), mailsOther, user.Email, true, m); err != nil {
		return err
	}
	return errEmailNotVerified
}

// checkPassword compares a password with that of a user and returns its hash. A user
// without one, or no user, costs the same. A hash of another kind or cost is made anew.
func (l *library) checkPassword(ctx context.Context, userID, password string) (hash string, ok bool, err error) {
	encoded, found, err := l.store.password(ctx, userID)
	if err != nil {
		return "", false, err
	}
	if len(password) > 4*MaxPasswordLength {
		password = ""
	}
	if !found {
		return "", false, l.hasher.dummy(ctx, password)
	}
	ok, rehash, err := l.hasher.verify(ctx, encoded, password)
	if err != nil || !ok || !rehash {
		return encoded, ok, err
	}
	fresh, err := l.hasher.hash(ctx, password)
	if err != nil {
		return "", false, err
	}
	replaced, err := l.store.replacePassword(ctx, userID, encoded, fresh, l.host.DB.Now(ctx))
	if err == nil && !replaced { // by another sign-in, or with another password
		return l.checkPassword(ctx, userID, password)
	}
	return fresh, err == nil, err
}

// newPassword checks a new password and hashes it. Refuses with
// PASSWORD_TOO_SHORT, PASSWORD_TOO_LONG and PASSWORD_COMPROMISED.
func (l *library) newPassword(ctx context.Context, password string) (hash string, err error) {
	if err := l.checkNewPassword(ctx, password); err != nil {
		return "", err
	}
	return l.hasher.hash(ctx, password)
}

func (l *library) checkNewPassword(ctx context.Context, password string) error {
	switch n := utf8.RuneCountInString(password); {
	case n < l.cfg.MinPassword:
		return errPasswordTooShort
	case n > l.cfg.MaxPassword:
		return errPasswordTooLong
	}
	if l.cfg.Breached == nil {
		return nil
	}
	breached, err := l.cfg.Breached(ctx, password)
	if err != nil { // accepted: otherwise nobody could sign up while the list is unavailable
		l.host.Log.WarnContext(ctx, "the check for leaked passwords failed", "error", err)
		return nil
	}
	if breached {
		return errPasswordCompromised
	}
	return nil
}

type changePasswordBody struct {
	CurrentPassword     string `json:"currentPassword"`
	NewPassword         string `json:"newPassword"`
	RevokeOtherSessions bool   `json:"revokeOtherSessions,omitempty"`
}

// changePassword ends the other sessions if the request asks for that, as in better-auth, or if
// Config.RevokeOnPasswordChange is set.
func (l *library) changePassword(c *call) (any, error) {
	var in changePasswordBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	user, session, err := c.user()
	if err != nil {
		return nil, err
	}
	if err := c.needs("newPassword"); err != nil {
		return nil, err
	}
	old, err := l.provePassword(c, user, in.CurrentPassword)
	if err != nil {
		return nil, err
	}
	if err := c.passwordSuffices(user, session); err != nil {
		return nil, err
	}
	hash, err := l.newPassword(c.Context(), in.NewPassword)
	if err != nil {
		return nil, err
	}
	err = l.withSession(c.Context(), session, func(ctx context.Context) error {
		replaced, err := l.store.replacePassword(ctx, user.ID, old, hash, l.host.DB.Now(ctx))
		if err == nil && !replaced {
			err = errInvalidPassword // another change was faster
		}
		if err != nil {
			return err
		}
		if err := l.store.deleteLinksTo(ctx, kindReset, user.Email); err != nil {
			return err
		}
		if err := l.distrust(ctx, user.ID); err != nil {
			return err
		}
		if in.RevokeOtherSessions || l.cfg.RevokeOnPasswordChange {
			if _, err = l.auth.RevokeOthers(ctx, user.ID, session.ID); err != nil {
				return err
			}
		}
		return l.passwordChanged(ctx, user)
	})
	if err != nil {
		return nil, err
	}
	wire, err := l.wire(c.Context(), user)
	if err != nil {
		return nil, err
	}
	out := signedUp{User: wire}
	if in.RevokeOtherSessions {
		token, err := l.auth.SessionAccessToken(c.Context(), session)
		if err != nil {
			return nil, err
		}
		out.Token = &token
	}
	return out, nil
}

// passwordChanged records a change and informs the user. It runs in a transaction.
func (l *library) passwordChanged(ctx context.Context, user auth.User) error {
	if err := l.auth.Record(ctx, "auth/password_changed", user.ID, nil); err != nil || user.Email == "" {
		return err
	}
	return l.send(ctx, letter{Kind: letterPassword, Address: user.Email, UserID: user.ID})
}

// provePassword has a signed-in user prove the password and returns its hash.
// Refuses with CREDENTIAL_ACCOUNT_NOT_FOUND, INVALID_PASSWORD and
// TOO_MANY_REQUESTS.
func (l *library) provePassword(c *call, user auth.User, password string) (hash string, err error) {
	if err := c.mayGuess(user.ID, false); err != nil {
		return "", err
	}
	if _, found, err := l.store.password(c.Context(), user.ID); err != nil || !found {
		return "", errOr(err, errCredentialNotFound)
	}
	hash, ok, err := l.checkPassword(knownClient(c.Context()), user.ID, password)
	if err != nil || !ok {
		return "", errOr(err, errInvalidPassword)
	}
	return hash, nil
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

type verifyPasswordBody struct {
	Password string `json:"password"`
}

// verifyPassword also makes the session fresh, see [call.confirm].
func (l *library) verifyPassword(c *call) (any, error) {
	var in verifyPasswordBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	user, session, err := c.user()
	if err != nil {
		return nil, err
	}
	if _, err := l.provePassword(c, user, in.Password); err != nil {
		return nil, err
	}
	return ok, c.confirm(session, false)
}
