package signin

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/auth"
)

const anonymousName = "Anonymous"

func (l *library) anonymousRoutes() []route {
	if !l.cfg.Anonymous {
		return nil
	}
	return []route{
		l.joins(post("/sign-in/anonymous", rateSignIn, l.signInAnonymous)),
		post("/delete-anonymous-user", rateWrite, l.deleteAnonymous),
	}
}

func (l *library) signInAnonymous(c *call) (any, error) {
	if err := c.decode(&struct{}{}); err != nil {
		return nil, err
	}
	_, again, err := c.anonymous()
	if err != nil {
		return nil, err
	}
	if again {
		return nil, errAnonymousTwice
	}
	if err := c.allowed(l.auth.AllowAccount("sign-up", c.network())); err != nil {
		return nil, err
	}
	if err := c.allowed(l.auth.AllowAccount("sign-up-network", c.widely())); err != nil {
		return nil, err
	}
	user, err := l.auth.CreateUser(c.Context(), auth.NewUser{Name: anonymousName, Anonymous: true})
	if err != nil {
		return nil, err
	}
	e, err := l.enter(c, user, "anon", true, nil)
	if err != nil {
		return nil, err
	}
	return l.signUpResponse(c, e)
}

func (l *library) deleteAnonymous(c *call) (any, error) {
	user, session, err := c.user()
	switch {
	case err != nil:
		return nil, err
	case !user.Anonymous:
		return nil, errNotAnonymous
	case session.Proof == auth.ProofAccessToken && !c.isFresh(session):
		return nil, errSessionNotFresh
	}
	return success, l.removeUser(c, session, func(ctx context.Context) error {
		_, still, err := l.stillAnonymous(ctx, user.ID)
		if err == nil && !still {
			err = errNotAnonymous
		}
		return err
	})
}

// anonymous returns the caller if they are an anonymous user. Refuses one whose access token has
// expired with UNAUTHORIZED.
func (c *call) anonymous() (auth.User, bool, error) {
	session, ok, err := c.maybeSession()
	lapsed := false
	if err == nil && !ok {
		session, lapsed, err = c.l.auth.Lapsed(c.r)
	}
	if err != nil || !ok && !lapsed {
		return auth.User{}, false, err
	}
	user, err := c.l.auth.User(c.Context(), session.UserID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return auth.User{}, false, nil
	}
	if err == nil && lapsed && user.Anonymous {
		err = errUnauthorized // as a visitor they would lose what they own
	}
	return user, err == nil && user.Anonymous && !lapsed, err
}

// stillAnonymous locks and reads a user who was anonymous: of two requests that upgrade one, the
// second finds the user changed or deleted.
func (l *library) stillAnonymous(ctx context.Context, userID string) (auth.User, bool, error) {
	user, err := l.lockedUser(ctx, userID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return auth.User{}, false, nil
	}
	return user, err == nil && user.Anonymous, err
}

// upgrade lets the application move what a guest owns to the user they have just proved to be, and
// deletes the guest, whom all capabilities erase. It runs in the transaction of the sign-in, so that
// one that is refused leaves the guest.
func (l *library) upgrade(ctx context.Context, guestID string, user auth.User) error {
	guest, ok, err := l.stillAnonymous(ctx, guestID)
	if err != nil || !ok {
		return err
	}
	if l.cfg.OnUpgrade != nil {
		if err := l.cfg.OnUpgrade(ctx, guest, user); err != nil {
			return err
		}
	}
	return l.auth.DeleteAccount(ctx, guest.ID)
}
