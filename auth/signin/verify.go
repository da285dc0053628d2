package signin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/auth/signin/internal/opaque"
	"github.com/kitbackend/kit/capability"
)

func (l *library) verifyRoutes() []route {
	return []route{
		post("/send-verification-email", rateSend, l.sendVerification).sends(sendsLink),
		get("/verify-email", rateLink, l.getVerifyEmail).opened().reads(tokenParam, callbackParam),
		post("/verify-email", rateLink, l.postVerifyEmail).opened().reads(tokenParam, callbackParam),
	}
}

type sendVerificationBody struct {
	Email       string `json:"email"`
	CallbackURL string `json:"callbackURL,omitempty"`
}

func (l *library) sendVerification(c *call) (any, error) {
	var in sendVerificationBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	to, err := addressAt("email", in.Email)
	if err != nil {
		return nil, err
	}
	callback, err := l.target(in.CallbackURL, errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	session, signedIn, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	if signedIn { // a signed-in user may be told what is wrong
		user, err := l.auth.User(c.Context(), session.UserID)
		switch {
		case err != nil:
			return nil, err
		case user.Email != to:
			return nil, errEmailMismatch
		case user.EmailVerified:
			return nil, errEmailVerified
		}
	}
	return ok, c.mail(c.Context(), mailsOther, to, signedIn, letter{Kind: kindVerify, Address: to, targets: targets{Callback: callback}})
}

// done is better-auth's response to a success without data.
type done struct {
	Status bool `json:"status"`
}

var ok = done{true}

// verified is better-auth's response to a proved address.
type verified struct {
	Status bool      `json:"status"`
	User   *wireUser `json:"user"`
}

// getVerifyEmail shows the button that proves the address. better-auth's client
// asks as a script and proves at once.
func (l *library) getVerifyEmail(c *call) (any, error) {
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	if c.fromScript() {
		if c.query("token") == "" {
			return nil, errValidation.Saying("[query.token] is missing")
		}
		return l.verifyEmail(c, callback)
	}
	k, err := l.peek(c.Context(), c.query("token"), kindVerify, kindChange)
	if err != nil {
		return c.fail(unverifiable(err), callback)
	}
	text := "Confirm that " + mask(k.subject) + " is yours, if it was you who asked for this."
	if k.kind == kindChange { // of an account that may be another's
		asked, err := readLetter(k)
		if err != nil {
			return c.fail(err, callback)
		}
		return c.page(200, l.stepPage(k, asked, callback))
	}
	return c.page(200, page{Title: "Confirm your address", Text: text, Button: "Confirm", targets: []string{callback}})
}

// readLetter reads the letter that requested a link.
func readLetter(k link) (asked letter, err error) {
	if err := json.Unmarshal([]byte(k.data), &asked); err != nil {
		return asked, errInvalidToken.Because(err)
	}
	return asked, nil
}

func (l *library) postVerifyEmail(c *call) (any, error) {
	callback, err := l.target(c.query("callbackURL"), errInvalidCallbackURL)
	if err != nil {
		return nil, err
	}
	return l.verifyEmail(c, callback)
}

// unverifiable returns INVALID_TOKEN with the status of this route.
func unverifiable(err error) error {
	if errors.Is(err, errInvalidToken) {
		return withStatus(errInvalidToken, http.StatusUnauthorized).Because(err)
	}
	return err
}

// verifyEmail proves an address by a link. It signs nobody in. A link that only verifies is valid
// until it expires; a second use changes nothing.
func (l *library) verifyEmail(c *call, callback string) (any, error) {
	session, signedIn, err := c.maybeSession()
	if err != nil {
		return nil, err
	}
	var user auth.User
	var changed bool
	var asked letter
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		k, err := l.peek(ctx, c.query("token"), kindVerify, kindChange)
		if err == nil && k.kind == kindChange {
			k, err = l.take(ctx, c.query("token"), kindChange)
		}
		if err != nil {
			return err
		}
		if user, err = l.auth.User(ctx, k.userID); err != nil {
			return notFoundAs(err, errInvalidToken)
		}
		if changed = k.kind == kindChange; changed {
			if asked, err = readLetter(k); err != nil {
				return err
			}
			if err := checkChanger(session, signedIn, user, asked); err != nil {
				return err
			}
			if user, err = l.changeStep(ctx, user, k, asked); err != nil {
				return err
			}
			return l.settle(ctx, used{hash: opaque.Hash(c.query("token")), kind: kindChange, userID: user.ID, target: asked.Step})
		}
		if user.Email != k.subject {
			return errInvalidToken
		}
		user, err = l.verifyAddress(ctx, user)
		return err
	})
	if errors.Is(err, errInvalidToken) {
		return l.verifiedAgain(c, callback, session, err)
	}
	if err != nil {
		return c.fail(unverifiable(err), callback)
	}
	return l.verifiedReply(c, callback, user, asked, changed)
}

// verifiedAgain repeats the response to a link of a change that was used a few seconds ago. It
// changes nothing, and shows the user to that user alone.
func (l *library) verifiedAgain(c *call, callback string, session auth.Session, refusal error) (any, error) {
	u, found, err := l.justUsed(c.Context(), c.query("token"), kindChange)
	if err != nil {
		return nil, err
	}
	if !found {
		return c.fail(unverifiable(refusal), callback)
	}
	user, own := auth.User{}, session.UserID == u.userID
	if own {
		if user, err = l.auth.User(c.Context(), u.userID); err != nil {
			return c.fail(unverifiable(notFoundAs(err, errInvalidToken)), callback)
		}
	}
	return l.verifiedReply(c, callback, user, letter{Step: u.target}, own)
}

// verifiedReply returns the response to a link that proved an address; show includes the user for a
// script.
func (l *library) verifiedReply(c *call, callback string, user auth.User, asked letter, show bool) (any, error) {
	if callback != "" {
		return c.redirect(callback)
	}
	if !c.fromScript() {
		return c.donePage(stepDone(asked))
	}
	if !show {
		return verified{Status: true}, nil
	}
	wire, err := l.wire(c.Context(), user)
	return verified{Status: true, User: &wire}, err
}

// verifyAddress records that a user has proved the address of the sign-up. It runs in a
// transaction.
func (l *library) verifyAddress(ctx context.Context, user auth.User) (auth.User, error) {
	if user.EmailVerified {
		return user, nil
	}
	yes := true
	user, err := l.auth.UpdateUser(ctx, user.ID, auth.UserPatch{EmailVerified: &yes})
	if err != nil {
		return user, err
	}
	if err := l.store.deleteNewcomer(ctx, user.ID); err != nil {
		return user, err
	}
	return user, l.auth.Record(ctx, "auth/email_verified", user.ID, nil)
}

// notFoundAs returns refusal in place of the error for a user who no longer exists.
func notFoundAs(err error, refusal *capability.Error) error {
	if errors.Is(err, auth.ErrUserNotFound) {
		return refusal
	}
	return err
}
