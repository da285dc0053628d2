package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

func (l *library) resetRoutes() []route {
	return []route{
		post("/request-password-reset", rateSend, l.requestReset).sends(sendsLink),
		get("/reset-password/:token", rateLink, l.getReset).opened().reads(callbackParam),
		post("/reset-password/:token", rateSignIn, l.postReset).opened(),
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

// getReset leads from the mail to the form for a new password, without using the token up: that of
// the application, to which it redirects, or its own where the request named none.
func (l *library) getReset(c *call) (any, error) {
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	k, err := l.peek(c.Context(), c.param("token"), kindReset)
	switch {
	case err != nil:
		return c.fail(asInvalid(err), callback)
	case callback != "":
		return c.redirect(withQuery(callback, "token", c.param("token")))
	case c.fromScript():
		return nil, errInvalidToken.Saying("callbackURL is required")
	}
	return c.page(http.StatusOK, l.resetPage("For the account of "+mask(k.subject)+". All its sessions end.", ""))
}

// resetPage is the form for a new password, after a refusal with its code.
func (l *library) resetPage(text, code string) page {
	return page{
		Title: "Choose a new password", Text: text, Password: fmt.Sprintf("New password, at least %d characters", l.cfg.MinPassword),
		Button: "Set password", Code: code, Failed: code != "",
	}
}

// postReset takes the form of getReset's own page.
func (l *library) postReset(c *call) (any, error) {
	var in newPasswordBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	err := l.reset(c.Context(), c.param("token"), in.NewPassword)
	switch {
	case c.fromScript():
		return ok, err
	case errors.Is(err, errInvalidToken) || err != nil && !isOwn(err):
		return c.fail(err, "")
	case err != nil:
		refusal := auth.LibraryRefusal(err)
		return c.page(refusal.Status, l.resetPage(refusal.Message, refusal.Code))
	}
	return c.page(http.StatusOK, page{Title: "Your password is set", Text: "Sign in with it."})
}

type newPasswordBody struct {
	NewPassword string `json:"newPassword"`
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
	if err := l.reset(c.Context(), in.Token, in.NewPassword); err != nil {
		return nil, err
	}
	return ok, nil
}

// reset sets the password of the user to whom a link was mailed, and uses the link up.
func (l *library) reset(ctx context.Context, token, password string) error {
	if _, err := l.peek(ctx, token, kindReset); err != nil {
		return asInvalid(err) // before the cost of a hash
	}
	hash, err := l.newPassword(ctx, password)
	if err != nil {
		return err
	}
	return l.host.DB.InTx(ctx, func(ctx context.Context) error {
		k, err := l.take(ctx, token, kindReset)
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
