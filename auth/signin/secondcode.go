package signin

import (
	"context"
	"errors"
	"slices"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
)

// kindSecondFactor is the kind of a code that is mailed as a second factor.
const kindSecondFactor = "second-factor"

// enableMailed makes a code by mail a second factor, at once: the address was
// proved before. Refuses with EMAIL_NOT_VERIFIED, and with OTP_NOT_CONFIGURED a
// user without a password, whose first factor would be his mailbox too.
func (l *library) enableMailed(c *call, user auth.User, session auth.Session) (any, error) {
	if !user.EmailVerified {
		return nil, errEmailNotVerified
	}
	_, has, err := l.store.password(c.Context(), user.ID)
	if err != nil {
		return nil, err
	}
	if !has || l.cfg.DisableCodes {
		return nil, errOTPNotConfigured
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		if err := l.store.lockUser(ctx, user.ID); err != nil {
			return err
		}
		if err := l.store.ensureTwoFactor(ctx, user.ID); err != nil {
			return err
		}
		if err := l.store.enableMails(ctx, user.ID); err != nil {
			return err
		}
		return l.factorChanged(ctx, user, session.ID, "auth/two_factor_enabled", "codes by mail were added as a second factor")
	})
	return enabling{Method: methodMailed}, err
}

// sendSecondCode mails a code to somebody who has proved his first factor.
func (l *library) sendSecondCode(c *call) (any, error) {
	_, p, err := c.proof()
	if err != nil {
		return nil, err
	}
	if err := l.mayMail(c, p); err != nil {
		return nil, err
	}
	return ok, c.mail(c.Context(), mailsOther, p.user.Email, true, letter{
		Kind: letterCode + kindSecondFactor, Address: p.user.Email, UserID: p.user.ID, Waiting: p.subject(),
	})
}

// mayMail refuses with OTP_NOT_CONFIGURED where a code by mail counts for nothing.
func (l *library) mayMail(c *call, p prover) error {
	factor, _, err := l.store.twoFactor(c.Context(), p.user.ID)
	if err != nil {
		return err
	}
	first := ""
	if p.waiting != nil {
		first = p.waiting.method
	}
	if !p.user.EmailVerified || !slices.Contains(factor.methods(first), methodMailed) {
		return errOTPNotConfigured
	}
	return nil
}

func (l *library) verifySecondCode(c *call) (any, error) {
	in, p, err := c.proof()
	if err != nil {
		return nil, err
	}
	if err := l.mayMail(c, p); err != nil {
		return nil, err
	}
	if err := c.needs("code"); err != nil {
		return nil, err
	}
	err = l.prove(c, p, func(ctx context.Context, _ twoFactor) (*capability.Error, error) {
		return l.takeMailed(ctx, p, in.Code)
	})
	if err != nil {
		return nil, err
	}
	return l.proved(c, p, methodMailed, in.TrustDevice)
}

// takeMailed uses up a mailed code.
func (l *library) takeMailed(ctx context.Context, p prover, digits string) (*capability.Error, error) {
	mailed, found, err := l.store.tryCode(ctx, kindSecondFactor, p.subject(), anywhere)
	if err != nil {
		return nil, err
	}
	switch refusal := l.judgeCode(ctx, mailed, found, digits); {
	case refusal == nil:
	case errors.Is(refusal, errTooManyAttempts):
		return errRequestNewCode, nil
	case !found || errors.Is(refusal, errOTPExpired):
		return errOTPHasExpired, nil
	default:
		return errInvalidCode, nil
	}
	taken, err := l.store.takeCode(ctx, mailed)
	if err != nil || !taken {
		return errInvalidCode, err
	}
	return nil, nil
}

// tell mails a user what has changed about how he signs in. It joins the
// transaction in ctx.
func (l *library) tell(ctx context.Context, user auth.User, what string) error {
	if !user.EmailVerified {
		return nil
	}
	return l.send(ctx, letter{Kind: letterFactor, Address: user.Email, UserID: user.ID, Detail: what})
}
