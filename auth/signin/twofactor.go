package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
)

// How a second factor was proved, as amr values.
const (
	methodTOTP   = "totp"
	methodMailed = "otp"
	methodBackup = "backup"
)

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
	Password string `json:"password"`
	Method   string `json:"method"`
	Issuer   string `json:"issuer"`
	// Code is one of the second factor that is on, in place of one given before
	// in this session.
	Code string `json:"code"`
}

// enabling is the response to enabling a second factor. An authenticator's counts
// once a code of it was right.
type enabling struct {
	Method      string   `json:"method"`
	TOTPURI     string   `json:"totpURI,omitempty"`
	BackupCodes []string `json:"backupCodes,omitempty"`
}

func (l *library) enableTwoFactor(c *call) (any, error) {
	var in enableBody
	user, session, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	switch in.Method {
	case "", methodTOTP:
		return l.enableTOTP(c, user, in.Issuer)
	case methodMailed:
		return l.enableMailed(c, user, session)
	default:
		return nil, errValidation.Saying("method is totp or otp.")
	}
}

// disableTwoFactor ends the other sessions too: how the user proves himself has
// changed.
func (l *library) disableTwoFactor(c *call) (any, error) {
	var in enableBody
	user, session, err := c.confirmed(&in)
	if err != nil {
		return nil, err
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		if err := l.store.lockUser(ctx, user.ID); err != nil {
			return err
		}
		had, err := l.store.deleteTwoFactor(ctx, user.ID)
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

// factorChanged ends the other sessions of a user whose second factor changed,
// and tells him. It joins the transaction in ctx.
func (l *library) factorChanged(ctx context.Context, user auth.User, keep, action, what string) error {
	if _, err := l.auth.RevokeOthers(ctx, user.ID, keep); err != nil {
		return err
	}
	if err := l.auth.Record(ctx, action, user.ID, nil); err != nil {
		return err
	}
	return l.tell(ctx, user, what)
}

// twoFactorEnabled reports whether a user is asked for a second factor.
func (l *library) twoFactorEnabled(ctx context.Context, userID string) (bool, error) {
	factor, _, err := l.store.twoFactor(ctx, userID)
	return factor.enabled, err
}

// forgetFactors removes second factor and passkeys of a user. It joins the
// transaction in ctx.
func (l *library) forgetFactors(ctx context.Context, userID string) error {
	if _, err := l.store.deleteTwoFactor(ctx, userID); err != nil {
		return err
	}
	return l.passkeys.RemoveAll(ctx, userID)
}

// forgetSince removes the ways in of a user that were set at an instant or later. It
// joins the transaction in ctx.
func (l *library) forgetSince(ctx context.Context, userID string, since time.Time) error {
	if err := l.store.forgetSince(ctx, userID, since); err != nil {
		return err
	}
	return l.passkeys.RemoveSince(ctx, userID, since)
}

// distrust ends what a changed password must not outlive: sign-ins that wait for
// a second factor, and browsers that are not asked for one. It joins the
// transaction in ctx.
func (l *library) distrust(ctx context.Context, userID string) error {
	if err := l.store.lockUser(ctx, userID); err != nil {
		return err
	}
	return l.store.deleteChallenges(ctx, userID)
}
