package signin

import (
	"cmp"
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/capability"
)

// maxIssuer bounds what an authenticator shows a secret under, in bytes.
const maxIssuer = 128

func (l *library) twoFactorRoutes() []route {
	return []route{
		post("/two-factor/enable", rateSignIn, l.enableTwoFactor),
		post("/two-factor/disable", rateSignIn, l.disableTwoFactor),
		post("/two-factor/get-totp-uri", rateSignIn, l.getTOTPURI),
		post("/two-factor/verify-totp", rateSignIn, l.verifyTOTP),
		post("/two-factor/send-otp", rateSend, l.sendSecondCode).sends(sendsCode),
		post("/two-factor/verify-otp", rateSignIn, l.verifySecondCode),
		post("/two-factor/generate-backup-codes", rateSignIn, l.generateBackupCodes),
		post("/two-factor/verify-backup-code", rateSignIn, l.verifyBackupCode),
	}
}

type enableBody struct {
	Password string        `json:"password,omitempty"`
	Method   factor.Method `json:"method,omitempty"`
	Issuer   string        `json:"issuer,omitempty"`
	// Code is a code of the current second factor; it is needed unless one was given recently in
	// this session.
	Code string `json:"code,omitempty"`
}

// enabling is the response to enabling a second factor. An authenticator's counts
// once a code of it was right.
type enabling struct {
	Method      factor.Method `json:"method"`
	TOTPURI     string        `json:"totpURI,omitempty"`
	BackupCodes []string      `json:"backupCodes,omitempty"`
}

func (l *library) enableTwoFactor(c *call) (any, error) {
	var in enableBody
	user, session, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	switch in.Method {
	case "", factor.MethodTOTP:
		return l.enableTOTP(c, user, session, in.Issuer)
	case factor.MethodMailed:
		return l.enableMailed(c, user, session)
	default:
		return nil, errValidation.Saying("method is totp or otp.")
	}
}

// enableTOTP gives a user a new secret and new backup codes.
func (l *library) enableTOTP(c *call, user auth.User, session auth.Session, issuer string) (any, error) {
	if len(issuer) > maxIssuer {
		return nil, errValidation.Saying("issuer has at most %d bytes.", maxIssuer)
	}
	var secret []byte
	var codes []string
	err := l.withSession(c.Context(), session, func(ctx context.Context) (err error) {
		secret, codes, err = l.factors.BeginTOTP(ctx, user.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return enabling{Method: factor.MethodTOTP, TOTPURI: l.totpURI(user, issuer, secret), BackupCodes: codes}, nil
}

func (l *library) totpURI(user auth.User, issuer string, secret []byte) string {
	return factor.URI(cmp.Or(issuer, l.auth.AppName()), cmp.Or(user.Email, user.Username, user.ID), secret)
}

// disableTwoFactor ends the other sessions too: how the user signs in has
// changed.
func (l *library) disableTwoFactor(c *call) (any, error) {
	var in enableBody
	user, session, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	err = l.withSession(c.Context(), session, func(ctx context.Context) error {
		had, err := l.factors.Remove(ctx, user.ID)
		if err != nil || !had {
			return err
		}
		return l.factorChanged(ctx, user, session.ID, "auth/two_factor_disabled", "the second factor was switched off")
	})
	if err != nil {
		return nil, err
	}
	c.setCookie(trustCookie, "", 0)
	return ok, nil
}

type shownURI struct {
	TOTPURI string `json:"totpURI"`
}

// getTOTPURI shows the secret again: the active one, or else the pending one.
func (l *library) getTOTPURI(c *call) (any, error) {
	var in enableBody
	user, _, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	secret, err := l.factors.Secret(c.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	return shownURI{l.totpURI(user, "", secret)}, nil
}

// verifyTOTP takes a code of the authenticator. The first one of a signed-in user makes the pending
// secret the active one.
func (l *library) verifyTOTP(c *call) (any, error) {
	in, p, err := c.proof()
	if err != nil {
		return nil, err
	}
	if err := c.needs("code"); err != nil {
		return nil, err
	}
	err = l.prove(c, p, func(ctx context.Context, state factor.State) (*capability.Error, error) {
		if p.waiting != nil || !state.HasPending() {
			return l.factors.TakeTOTP(ctx, state, in.Code)
		}
		if wrong, err := l.factors.ConfirmTOTP(ctx, state, in.Code); err != nil || wrong != nil {
			return wrong, err
		}
		return nil, l.factorChanged(ctx, p.user, p.session.ID, "auth/two_factor_enabled", "an authenticator application was added")
	})
	if err != nil {
		return nil, err
	}
	return l.proved(c, p, factor.MethodTOTP, in.TrustDevice)
}

// newCodes is better-auth's response to /two-factor/generate-backup-codes.
type newCodes struct {
	Status      bool     `json:"status"`
	BackupCodes []string `json:"backupCodes"`
}

func (l *library) generateBackupCodes(c *call) (any, error) {
	var in enableBody
	user, session, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	var codes []string
	err = l.withSession(c.Context(), session, func(ctx context.Context) (err error) {
		if codes, err = l.factors.ReplaceBackupCodes(ctx, user.ID); err != nil {
			return err
		}
		return l.auth.Record(ctx, "auth/backup_codes_replaced", user.ID, nil)
	})
	if err != nil {
		return nil, err
	}
	return newCodes{true, codes}, nil
}

type backupCodeBody struct {
	Code           string `json:"code"`
	TrustDevice    bool   `json:"trustDevice,omitempty"`
	TwoFactorToken string `json:"twoFactorToken,omitempty"`
	DisableSession bool   `json:"disableSession,omitempty"`
}

type onlyUser struct {
	User wireUser `json:"user"`
}

func (l *library) verifyBackupCode(c *call) (any, error) {
	var in backupCodeBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("code"); err != nil {
		return nil, err
	}
	p, err := c.prover(in.TwoFactorToken)
	if err != nil {
		return nil, err
	}
	err = l.prove(c, p, func(ctx context.Context, state factor.State) (*capability.Error, error) {
		return l.takeBackupCode(ctx, p.user, state, in.Code)
	})
	if err != nil {
		return nil, err
	}
	if in.DisableSession {
		user, err := l.wire(c.Context(), p.user)
		return onlyUser{user}, err
	}
	return l.proved(c, p, factor.MethodBackup, in.TrustDevice)
}

// takeBackupCode uses up a backup code, and informs its user.
func (l *library) takeBackupCode(ctx context.Context, user auth.User, state factor.State, code string) (*capability.Error, error) {
	if wrong, err := l.factors.TakeBackupCode(ctx, state, code); err != nil || wrong != nil {
		return wrong, err
	}
	if err := l.auth.Record(ctx, "auth/backup_code_used", user.ID, nil); err != nil {
		return nil, err
	}
	return nil, l.tell(ctx, user, "a backup code was used up")
}

// factorChanged ends the other sessions of a user whose second factor changed, and informs the
// user. It joins the transaction in ctx.
func (l *library) factorChanged(ctx context.Context, user auth.User, keep, action, what string) error {
	if _, err := l.auth.RevokeOthers(ctx, user.ID, keep); err != nil {
		return err
	}
	if err := l.auth.Record(ctx, action, user.ID, nil); err != nil {
		return err
	}
	return l.tell(ctx, user, what)
}

// tell mails a user what has changed about how they sign in. It joins the
// transaction in ctx.
func (l *library) tell(ctx context.Context, user auth.User, what string) error {
	if !user.EmailVerified {
		return nil
	}
	return l.send(ctx, letter{Kind: letterFactor, Address: user.Email, UserID: user.ID, Detail: what})
}

// twoFactorEnabled reports whether a user is asked for a second factor.
func (l *library) twoFactorEnabled(ctx context.Context, userID string) (bool, error) {
	state, _, err := l.factors.State(ctx, userID)
	return state.Enabled, err
}

// forgetFactors removes second factor and passkeys of a user. It joins the
// transaction in ctx.
func (l *library) forgetFactors(ctx context.Context, userID string) error {
	if _, err := l.factors.Remove(ctx, userID); err != nil {
		return err
	}
	return l.passkeys.RemoveAll(ctx, userID)
}

// forgetSince removes the ways to sign in that a user added at an instant or later. It joins the
// transaction in ctx.
func (l *library) forgetSince(ctx context.Context, userID string, since time.Time) error {
	for _, forget := range []func(context.Context, string, time.Time) error{
		l.store.forgetSince, l.passkeys.RemoveSince, l.factors.RemoveSince,
	} {
		if err := forget(ctx, userID, since); err != nil {
			return err
		}
	}
	return nil
}

// distrust ends what must not survive a change of password: sign-ins that wait for a second factor,
// and the trust in browsers. It joins the transaction in ctx.
func (l *library) distrust(ctx context.Context, userID string) error {
	if err := l.store.lockUser(ctx, userID); err != nil {
		return err
	}
	return l.factors.Distrust(ctx, userID)
}
