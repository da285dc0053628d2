package auth

import "context"

// LibraryHost is what a [Library] works with: the users and sessions that
// applications have too, and what only the part that proves who somebody is may
// do, such as [LibraryHost.Enter].
type LibraryHost struct{ *Auth }

// AppName returns what the application is called in mails and by authenticators.
func (a *LibraryHost) AppName() string { return a.cfg.AppName }

// Record writes an event about a user, such as "auth/passkey_added", of the
// caller of the request in ctx. It joins the transaction in ctx.
func (a *LibraryHost) Record(ctx context.Context, action, userID string, detail any) error {
	return a.record(ctx, action, userID, detail)
}
