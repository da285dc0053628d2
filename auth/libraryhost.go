package auth

import (
	"cmp"
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// LibraryHost is the Auth that a [Library] works with. It adds operations which only the part that
// proves users may call, such as [LibraryHost.Enter].
type LibraryHost struct{ *Auth }

// AppName returns what the application is called in mails and by authenticators.
func (a *LibraryHost) AppName() string { return a.cfg.AppName }

// Draft returns the user that [Auth.CreateUser] would return, without creating one, so that the
// response to a sign-up need not reveal whether its address is taken. Refuses with
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

// DeleteAccount is [Auth.DeleteUser] for users who delete their account themselves: after the
// commit, the other capabilities of the kit erase what they hold about the user too.
func (a *LibraryHost) DeleteAccount(ctx context.Context, userID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if _, _, err := a.store.lockUser(ctx, userID); err != nil { // so that no address is proved meanwhile
			return err
		}
		addresses, err := a.Addresses(ctx, userID)
		if err != nil {
			return err
		}
		person := capability.Person{ID: userID, Emails: addresses}
		if a.library.Erase != nil { // now, as the account alone knows an address that was not proved
			if _, err := a.library.Erase(ctx, person); err != nil {
				return err
			}
		}
		if err := a.DeleteUser(ctx, userID); err != nil || a.peers.Erase == nil {
			return err
		}
		return a.peers.Erase(ctx, person)
	})
}

// Record writes an audit event about a user, such as "auth/passkey_added", whose actor is the
// caller of the request in ctx. It joins the transaction in ctx.
func (a *LibraryHost) Record(ctx context.Context, action, userID string, detail any) error {
	return a.record(ctx, action, userID, detail)
}
