package signin

import (
	"context"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

func (l *library) resetRoutes() []route {
	return []route{
		post("/request-password-reset", rateSend, l.requestReset).sends(sendsLink),
		get("/reset-password/:token", rateLink, l.getReset).opened().reads(callbackParam),
		post("/reset-password", rateSignIn, l.resetPassword).reads(capability.Param{Name: "token", Summary: "The token of the link, unless the body has it."}),
	}
}

type resetRequested struct {
	Status  bool   `json:"status"`
	Message string `json:"message"`
}

type requestResetBody struct {
	Email      string `json:"email"`
	RedirectTo string `json:"redirectTo,omitempty"`
}

func (l *library) requestReset(c *call) (any, error) {
	var in requestResetBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if l.cfg.DisablePasswords {
		return nil, errPasswordDisabled
	}
	to, err := addressAt("email", in.Email)
	if err != nil {
		return nil, err
	}
	callback, err := l.target(in.RedirectTo, errInvalidRedirectURL)
	if err != nil {
		return nil, err
	}
	return resetRequested{true, "If this email exists in our system, check your email for the reset link"},
		c.mailTo(c.Context(), mailsIn, letter{Kind: kindReset, Address: to, targets: targets{Callback: callback}})
}

// getReset redirects from the mail to the application's form, with the token, without using it up.
func (l *library) getReset(c *call) (any, error) {
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	if _, err := l.peek(c.Context(), c.param("token"), kindReset); err != nil {
		return c.fail(asInvalid(err), callback)
	}
	if callback == "" {
		return c.fail(errInvalidToken.Saying("callbackURL is required"), "")
	}
	return c.redirect(withQuery(callback, "token", c.param("token")))
}

type resetPasswordBody struct {
	NewPassword string `json:"newPassword"`
	Token       string `json:"token,omitempty"`
}

func (l *library) resetPassword(c *call) (any, error) {
	var in resetPasswordBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("newPassword"); err != nil {
		return nil, err
	}
	if in.Token == "" {
		in.Token = c.query("token")
	}
	if _, err := l.peek(c.Context(), in.Token, kindReset); err != nil {
		return nil, asInvalid(err) // before the cost of a hash
	}
	hash, err := l.newPassword(c.Context(), in.NewPassword)
	if err != nil {
		return nil, err
	}
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		k, err := l.take(ctx, in.Token, kindReset)
		if err != nil {
			return asInvalid(err)
		}
		user, err := l.auth.User(ctx, k.userID)
		if err != nil {
			return notFoundAs(err, errInvalidToken)
		}
		if user.Email != k.subject {
			return errInvalidToken
		}
		return l.setPassword(ctx, user, hash)
	})
	if err != nil {
		return nil, err
	}
	return ok, nil
}

// setPassword sets the password of a user who has proved the address, and ends all sessions and the
// other links that could set one. It runs in a transaction.
func (l *library) setPassword(ctx context.Context, user auth.User, hash string) error {
	user, err := l.reclaim(ctx, user)
	if err != nil {
		return err
	}
	now := l.host.DB.Now(ctx)
	if err := l.store.setPassword(ctx, id.New(now), user.ID, hash, now); err != nil {
		return err
	}
	if err := l.store.deleteLinksTo(ctx, kindReset, user.Email); err != nil {
		return err
	}
	if err := l.codes.Remove(ctx, mailcode.Key{Kind: codeForget, Subject: user.Email}); err != nil {
		return err
	}
	if err := l.distrust(ctx, user.ID); err != nil {
		return err
	}
	if _, err = l.auth.RevokeUser(ctx, user.ID); err != nil {
		return err
	}
	return l.passwordChanged(ctx, user)
}

// asInvalid returns INVALID_TOKEN for whatever is wrong with a token.
func asInvalid(err error) error {
	if isOwn(err) {
		return errInvalidToken.Because(err)
	}
	return err
}
