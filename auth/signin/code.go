package signin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/mailcode"
)

// The purposes of a code, in better-auth's words.
const (
	codeSignIn = "sign-in"
	codeVerify = "email-verification"
	codeForget = "forget-password"
	codeChange = "change-email"
)

func (l *library) codeRoutes() []route {
	return []route{
		post("/email-otp/send-verification-otp", rateSend, l.sendCode).sends(sendsCode),
		post("/email-otp/check-verification-otp", rateSignIn, l.checkCode),
		post("/email-otp/verify-email", rateSignIn, l.verifyEmailByCode),
		post("/sign-in/email-otp", rateSignIn, l.signInByCode),
		post("/email-otp/request-password-reset", rateSend, l.requestResetCode).sends(sendsCode),
		post("/forget-password/email-otp", rateSend, l.requestResetCode).sends(sendsCode),
		post("/email-otp/reset-password", rateSignIn, l.resetByCode),
		post("/email-otp/request-email-change", rateSend, l.requestChangeCode).sends(sendsCode),
		post("/email-otp/change-email", rateSignIn, l.changeEmailByCode),
	}
}

type codeBody struct {
	Email    string `json:"email,omitempty"`
	NewEmail string `json:"newEmail,omitempty"`
	Type     string `json:"type,omitempty"`
	OTP      string `json:"otp,omitempty"`
	Name     string `json:"name,omitempty"`
	Image    string `json:"image,omitempty"`
	Password string `json:"password,omitempty"`
	// RememberMe is an addition of the kit: false ends the session with the browser.
	RememberMe *bool `json:"rememberMe,omitempty"`
}

// readCode reads the body and its address.
func (l *library) readCode(c *call) (in codeBody, err error) {
	if err := c.decode(&in); err != nil {
		return in, err
	}
	if l.cfg.DisableCodes {
		return in, errNotFound
	}
	if in.Email != "" || in.NewEmail == "" {
		if in.Email, err = address(in.Email); err != nil {
			return in, err
		}
	}
	if in.NewEmail != "" {
		in.NewEmail, err = address(in.NewEmail)
	}
	return in, err
}

// succeeded is done in the words of other routes.
type succeeded struct {
	Success bool `json:"success"`
}

var success = succeeded{true}

func (l *library) sendCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	if in.Type != codeSignIn && in.Type != codeVerify && in.Type != codeForget {
		return nil, invalidField("type", "is sign-in, email-verification or forget-password")
	}
	return l.mailCode(c, in.Type, in.Email)
}

func (l *library) requestResetCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	return l.mailCode(c, codeForget, in.Email)
}

func (l *library) mailCode(c *call, kind, to string) (any, error) {
	what := mailsIn
	switch {
	case kind == codeVerify:
		what = mailsOther
	case kind == codeForget && l.cfg.DisablePasswords:
		return nil, errPasswordDisabled
	}
	return success, c.mailTo(c.Context(), what, letter{Kind: letterCode + kind, Address: to, Browser: c.asks()})
}

// codeMail makes the code of a letter. An address that gets no mail has a code too, which nobody
// knows, so that guesses at it get the same response.
func (l *library) codeMail(ctx context.Context, mail auth.Mail, m letter, user auth.User, found bool) (auth.Mail, bool, error) {
	kind := strings.TrimPrefix(m.Kind, letterCode)
	subject, wanted := m.Address, found
	switch kind {
	case codeSignIn:
		mail.Kind, wanted = auth.MailSignInCode, found || !l.cfg.DisableSignUp
	case codeVerify:
		mail.Kind, wanted = auth.MailVerifyEmail, found && !user.EmailVerified
	case codeForget:
		mail.Kind = auth.MailResetPassword
	case codeChange:
		free, err := l.isFree(ctx, m.NewAddress)
		if err != nil {
			return mail, false, err
		}
		mail.Kind, mail.To = auth.MailChangeEmail, m.NewAddress
		subject, wanted = changeSubject(m.UserID, m.Address, m.Approved, m.NewAddress), found && free && user.EmailVerified == m.Approved
	}
	digits, err := l.codes.Issue(ctx, mailcode.Key{Kind: kind, Subject: subject}, m.Browser, l.cfg.CodeTTL)
	mail.Code, mail.ExpiresIn = digits, l.cfg.CodeTTL
	return mail, wanted, err
}

// secondCodeMail makes the code of a letter that is a second factor.
func (l *library) secondCodeMail(ctx context.Context, mail auth.Mail, m letter, found bool) (auth.Mail, bool, error) {
	digits, err := l.factors.IssueMailed(ctx, m.Waiting, l.cfg.CodeTTL)
	mail.Kind, mail.Code, mail.ExpiresIn = auth.MailSecondFactor, digits, l.cfg.CodeTTL
	return mail, found, err
}

// changeSubject returns the subject of a code to change an address. The code counts only while the
// user has the address they had when they requested it, and, if that was proved, only if it has
// approved.
func changeSubject(userID, from string, approved bool, to string) string {
	return fmt.Sprintf("%s %t %s %s", userID, approved, from, to)
}

// tryCodeOf is tryCode within the limits of an account.
func (l *library) tryCodeOf(c *call, kind, subject, digits string, then func(context.Context) error) error {
	if err := c.allowed(l.auth.AllowAccount("verify", subject+"\x00"+c.network())); err != nil {
		return err
	}
	user, _, err := l.auth.UserByEmail(c.Context(), subject)
	if err != nil {
		return err
	}
	known, err := c.knownTo(user.ID)
	if err != nil {
		return err
	}
	key := subject
	if known {
		key += "\x00" + c.place(known)
	}
	wait, err := l.exhausted(c.Context(), wrongCodesADay, "code", key)
	if err != nil || wait > 0 {
		return errOr(err, c.allowed(wait, false))
	}
	err = l.tryCode(c, kind, subject, digits, then)
	if !errors.Is(err, mailcode.ErrInvalid) {
		return err
	}
	if _, _, failed := l.spend(c.Context(), wrongCodesADay, "code", key); failed != nil {
		return failed
	}
	return err
}

// checkCode reports whether a code is right, without using it up.
func (l *library) checkCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	if in.Type != codeSignIn && in.Type != codeVerify && in.Type != codeForget {
		return nil, errValidation.Saying("type is sign-in, email-verification or forget-password.")
	}
	return success, l.tryCodeOf(c, in.Type, in.Email, in.OTP, nil)
}

// codeVerified is better-auth's response to a code that proved an address.
type codeVerified struct {
	Status bool     `json:"status"`
	Token  *string  `json:"token"`
	User   wireUser `json:"user"`
}

func (l *library) verifyEmailByCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	var user auth.User
	err = l.tryCodeOf(c, codeVerify, in.Email, in.OTP, func(ctx context.Context) error {
		known, found, err := l.auth.UserByEmail(ctx, in.Email)
		if err != nil || !found {
			return errOr(err, errUserNotFound)
		}
		user, err = l.verifyAddress(ctx, known)
		return err
	})
	if err != nil {
		return nil, err
	}
	wire, err := l.wire(c.Context(), user)
	return codeVerified{true, nil, wire}, err
}

func (l *library) signInByCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err == nil {
		err = c.needs("otp")
	}
	if err != nil {
		return nil, err
	}
	if err := checkProfile(in.Name, in.Image); err != nil {
		return nil, err
	}
	var user auth.User
	err = l.tryCodeOf(c, codeSignIn, in.Email, in.OTP, func(ctx context.Context) (err error) {
		user, _, err = l.userOfAddress(c.in(ctx), in.Email, auth.NewUser{Name: in.Name, Image: in.Image})
		return err
	})
	if errors.Is(err, errSignUpDisabled) {
		err = mailcode.ErrInvalid
	}
	if err != nil {
		return nil, err
	}
	e, err := l.enter(c, user, "otp", in.RememberMe == nil || *in.RememberMe, l.stillAt(user))
	if err != nil {
		return nil, err
	}
	return l.signUpResponse(c, e)
}

func (l *library) resetByCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	if l.cfg.DisablePasswords {
		return nil, errPasswordDisabled
	}
	if err := l.checkNewPassword(c.Context(), in.Password); err != nil {
		return nil, err
	}
	// The code is checked before the cost of a hash, and used up after.
	if err := l.tryCodeOf(c, codeForget, in.Email, in.OTP, nil); err != nil {
		return nil, err
	}
	hash, err := l.hasher.hash(c.Context(), in.Password)
	if err != nil {
		return nil, err
	}
	return success, l.tryCode(c, codeForget, in.Email, in.OTP, func(ctx context.Context) error {
		user, found, err := l.auth.UserByEmail(ctx, in.Email)
		if err != nil || !found {
			return errOr(err, errUserNotFound)
		}
		return l.setPassword(ctx, user, hash)
	})
}

func (l *library) requestChangeCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	user, err := l.changingUser(c, in)
	if err != nil {
		return nil, err
	}
	return success, l.askForChange(c, user, in.NewEmail, true, "")
}

// changingUser returns the caller if they may change their address to this one.
func (l *library) changingUser(c *call, in codeBody) (auth.User, error) {
	to := in.NewEmail
	user, err := c.freshUser(in.Password)
	switch {
	case err != nil:
		return user, err
	case to == "":
		return user, errInvalidEmail
	case user.Anonymous:
		return user, errChangeEmailDisabled
	case to == user.Email:
		return user, errEmailSame
	}
	return user, nil
}

func (l *library) changeEmailByCode(c *call) (any, error) {
	in, err := l.readCode(c)
	if err != nil {
		return nil, err
	}
	user, err := l.changingUser(c, in)
	if err != nil {
		return nil, err
	}
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	change := func(ctx context.Context) error {
		before, err := l.auth.User(ctx, user.ID)
		if err != nil {
			return err
		}
		if before.Email != user.Email || before.EmailVerified != user.EmailVerified {
			return mailcode.ErrInvalid // changed or proved another way meanwhile
		}
		yes := true
		if _, err := l.auth.UpdateUser(ctx, user.ID, auth.UserPatch{Email: &in.NewEmail, EmailVerified: &yes}); err != nil {
			return err
		}
		return l.emailChanged(ctx, before, in.NewEmail)
	}
	subject := changeSubject(user.ID, user.Email, user.EmailVerified, in.NewEmail)
	err = l.tryCodeOf(c, codeChange, subject, in.OTP, func(ctx context.Context) error { return l.withSession(ctx, session, change) })
	if errors.Is(err, auth.ErrEmailTaken) {
		err = errUserExists
	}
	return success, err
}
