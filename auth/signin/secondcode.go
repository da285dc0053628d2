package signin

import (
	"context"
	"slices"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/factor"
	"github.com/kitbackend/kit/capability"
)

// letterSecondFactor asks for a code that is mailed as a second factor.
const letterSecondFactor = letterCode + "second-factor"

// enableMailed enables mailed codes as a second factor, at once, because the address was proved
// before. Refuses with EMAIL_NOT_VERIFIED, and with OTP_NOT_CONFIGURED for a user without a
// password, whose first factor would be the mailbox too.
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
	err = l.withSession(c.Context(), session, func(ctx context.Context) error {
		if err := l.factors.EnableMails(ctx, user.ID); err != nil {
			return err
		}
		return l.factorChanged(ctx, user, session.ID, "auth/two_factor_enabled", "codes by mail were added as a second factor")
	})
	return enabling{Method: factor.MethodMailed}, err
}

// sendSecondCode mails a code to a user who has proved the first factor.
func (l *library) sendSecondCode(c *call) (any, error) {
	_, p, err := c.proof()
	if err != nil {
		return nil, err
	}
	if err := l.mayMail(c, p); err != nil {
		return nil, err
	}
	return ok, c.mail(c.Context(), mailsOther, p.user.Email, true, letter{
		Kind: letterSecondFactor, Address: p.user.Email, UserID: p.user.ID, Waiting: p.subject(),
	})
}

// mayMail refuses with OTP_NOT_CONFIGURED if a mailed code is no second factor.
func (l *library) mayMail(c *call, p prover) error {
	state, _, err := l.factors.State(c.Context(), p.user.ID)
	if err != nil {
		return err
	}
	first := ""
	if p.waiting != nil {
		first = p.waiting.Method
	}
	if !p.user.EmailVerified || !slices.Contains(state.Methods(first), factor.MethodMailed) {
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
	err = l.prove(c, p, func(ctx context.Context, _ factor.State) (*capability.Error, error) {
		return l.factors.TakeMailed(ctx, p.subject(), in.Code)
	})
	if err != nil {
		return nil, err
	}
	return l.proved(c, p, factor.MethodMailed, in.TrustDevice)
}
