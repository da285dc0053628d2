package signin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/auth"
)

// oneTimeTTL is how long a one-time token is valid.
const oneTimeTTL = 3 * time.Minute

// methodOneTime is among the amr values of a session that a one-time token made.
const methodOneTime = "ott"

func (l *library) oneTimeTokenRoutes() []route {
	if !l.cfg.OneTimeTokens {
		return nil
	}
	return []route{
		get("/one-time-token/generate", rateRead, l.generateOneTime),
		post("/one-time-token/verify", rateSignIn, l.verifyOneTime),
	}
}

// generateOneTime makes a token for another client of the same user. The sign-in of that client
// counts as fresh, so the session here must be fresh, and must not itself come from a one-time
// token. The token is valid as long as this session is.
func (l *library) generateOneTime(c *call) (any, error) {
	session, err := c.fresh()
	if err != nil {
		return nil, err
	}
	if slices.Contains(session.Methods, methodOneTime) {
		return nil, errSessionNotFresh
	}
	var token string
	err = l.host.DB.InTx(c.Context(), func(ctx context.Context) (err error) {
		token, err = l.issue(ctx, kindOneTime, session.UserID, session.UserID, session.ID, oneTimeTTL)
		return err
	})
	return onlyToken{token}, err
}

type oneTimeBody struct {
	Token string `json:"token"`
}

// verifyOneTime signs in the caller who brings the token, in a new session.
func (l *library) verifyOneTime(c *call) (any, error) {
	var in oneTimeBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	var user auth.User
	var from auth.Session
	err := l.host.DB.InTx(c.Context(), func(ctx context.Context) error {
		k, err := l.take(ctx, in.Token, kindOneTime)
		if err != nil {
			return asInvalid(err)
		}
		var sessionID string
		if err := json.Unmarshal([]byte(k.data), &sessionID); err != nil {
			return err
		}
		if from, err = l.auth.Session(ctx, sessionID); err != nil {
			if errors.Is(err, auth.ErrSessionNotFound) {
				err = errInvalidToken
			}
			return err
		}
		if user, err = l.auth.User(ctx, from.UserID); err != nil {
			return err
		}
		return l.using(ctx, in.Token, kindOneTime, user.ID, c.browserHash())
	})
	if errors.Is(err, errInvalidToken) {
		return l.oneTimeAgain(c, in.Token, err)
	}
	if err != nil {
		return nil, err
	}
	e, err := l.admit(c, user, strings.Join(append(from.Methods, methodOneTime), " "), true, !from.FactorAt.IsZero(), l.stillIn(from))
	if err != nil {
		return nil, l.unsettled(c, in.Token, err)
	}
	if err := l.settleEntry(c, in.Token, kindOneTime, e, ""); err != nil {
		return nil, err
	}
	return l.showBoth(c, e.in.Session, e.user)
}

// oneTimeAgain repeats the response for the browser that has just used the token.
func (l *library) oneTimeAgain(c *call, token string, refusal error) (any, error) {
	u, own, ok, err := l.again(c, token, kindOneTime, c.browserHash())
	if err != nil || !ok || u.sessionID == "" {
		return nil, cmp.Or(err, refusal)
	}
	e, ok, err := l.enteredAgain(c, u, own, methodOneTime)
	if err != nil || !ok {
		return nil, cmp.Or(err, refusal)
	}
	return l.showBoth(c, e.in.Session, e.user)
}
