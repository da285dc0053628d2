package auth

import (
	"cmp"
	"context"

	"github.com/kitbackend/kit/internal/id"
)

// LibraryHost is what a [Library] works with: the users and sessions that
// applications have too, and what only the part that proves who somebody is may
// do, such as [LibraryHost.Enter].
type LibraryHost struct{ *Auth }

// AppName returns what the application is called in mails and by authenticators.
func (a *LibraryHost) AppName() string { return a.cfg.AppName }

// Draft returns the user that [Auth.CreateUser] would return, and makes none: what
// becomes of a sign-up is not to tell whether its address is taken. Refuses with
// kit/invalid_request as CreateUser does.
func (a *LibraryHost) Draft(ctx context.Context, n NewUser) (User, error) {
	user, err := a.newUser(n)
	if err != nil {
		return User{}, err
	}
	now := a.host.DB.Now(ctx)
	user.ID, user.CreatedAt, user.UpdatedAt = cmp.Or(user.ID, id.New(now)), now, now
	return user, nil
}

// Record writes an event about a user, such as "auth/passkey_added", of the
// caller of the request in ctx. It joins the transaction in ctx.
func (a *LibraryHost) Record(ctx context.Context, action, userID string, detail any) error {
	return a.record(ctx, action, userID, detail)
}
