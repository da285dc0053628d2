package signin

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
)

// ErrPasswordHash refuses an imported hash of an unknown form, or one that is too costly to check.
var ErrPasswordHash = errHashForm

// Imported is a user who comes from another system with a password.
type Imported struct {
	auth.NewUser
	// PasswordHash is argon2id, argon2i or scrypt as a PHC string, bcrypt, or better-auth's scrypt;
	// empty if the user has no password. At the user's next sign-in it is replaced by a hash of
	// this library's own.
	PasswordHash string
}

// ImportUser creates a user who signs in with their password of before; db is the binding of auth.
// It joins the transaction in ctx. Refuses with [ErrPasswordHash] and as [auth.Auth.CreateUser]
// does.
func ImportUser(ctx context.Context, db *database.DB, a *auth.Auth, in Imported) (user auth.User, err error) {
	err = db.InTx(ctx, func(ctx context.Context) error {
		if user, err = a.CreateUser(ctx, in.NewUser); err != nil || in.PasswordHash == "" {
			return err
		}
		return ImportPassword(ctx, db, user.ID, in.PasswordHash)
	})
	return user, err
}

// ImportPassword sets the password of a user by its hash, in place of any they have; db is the
// binding of auth. It joins the transaction in ctx. Refuses with [ErrPasswordHash]; without such a
// user it returns a [database.ConstraintError].
func ImportPassword(ctx context.Context, db *database.DB, userID, hash string) error {
	if _, err := parseHash(hash); err != nil {
		return err
	}
	now := db.Now(ctx)
	if err := (store{db}).setPassword(ctx, id.New(now), userID, hash, now); err != nil {
		return fmt.Errorf("signin: importing a password: %w", err)
	}
	return nil
}
