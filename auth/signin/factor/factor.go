// Package factor manages second factors: the codes of an authenticator application (TOTP), backup
// codes, codes in a mail, and browsers that are trusted for a while. Package signin calls it,
// handles sessions, cookies and mails, and decides who may change the factors of a user.
//
// What it promises:
//   - A code of an authenticator counts once, and one step of the clock early or late. A new
//     secret replaces the one before with its first right code.
//   - Backup codes are ten, of 50 bits each, used up one by one and kept as keyed hashes.
//   - A sign-in that waits for its second factor accepts five tries in ten minutes, and ends with
//     the first right one. Of concurrent right tries one succeeds.
//   - Ten wrong proofs in a row lock the second factor for a quarter of an hour: those
//     of sign-ins, which cost the first factor, apart from those in sessions.
//   - The trust in a browser is renewed with each sign-in: a copied token is valid until it or
//     the original is used.
//
// Secrets are sealed for their user, tokens are stored as hashes. Methods that change a user join
// the transaction in ctx, in which the caller has locked the user's row.
package factor

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth/signin/mailcode"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/seal"
)

// Factors manages the second factors of all users. It is safe for concurrent use.
type Factors struct {
	store  store
	codes  *mailcode.Codes
	sealer capability.Sealer
}

// New returns the factors in a database; the migrations of signin make their tables.
func New(db *database.DB, sealer capability.Sealer) *Factors {
	return &Factors{store: store{db}, codes: mailcode.New(db), sealer: sealer}
}

// State returns the second factor of a user. For a user who never began to set one up, found is
// false and s is zero.
func (f *Factors) State(ctx context.Context, userID string) (s State, found bool, err error) {
	return f.store.state(ctx, userID)
}

// EnableMails enables mailed codes as a second factor of a user.
func (f *Factors) EnableMails(ctx context.Context, userID string) error {
	if err := f.store.ensure(ctx, userID); err != nil {
		return err
	}
	return f.store.enableMails(ctx, userID)
}

// Remove removes the second factor of a user with its backup codes, waiting sign-ins and trusted
// browsers.
func (f *Factors) Remove(ctx context.Context, userID string) (had bool, err error) {
	return f.store.remove(ctx, userID)
}

// RemoveSince removes the second factor of a user if it was set at an instant or later.
func (f *Factors) RemoveSince(ctx context.Context, userID string, since time.Time) error {
	return f.store.removeSince(ctx, userID, since)
}

// Distrust removes the sign-ins of a user that wait for a second factor, and the trust in their
// browsers.
func (f *Factors) Distrust(ctx context.Context, userID string) error {
	return f.store.removeChallenges(ctx, userID)
}

// Sweep removes at most limit expired sign-ins; more reports that there may be others.
func (f *Factors) Sweep(ctx context.Context, limit int64) (more bool, err error) {
	n, err := f.store.sweep(ctx, f.store.db.Now(ctx), limit)
	return n == limit, err
}

var sealedColumns = []seal.Column[string]{
	{Table: "signin_two_factor", Key: "user_id", Column: "totp", Context: totpContext},
	{Table: "signin_two_factor", Key: "user_id", Column: "totp_pending", Context: totpContext},
	{Table: "signin_two_factor", Key: "user_id", Column: "backup_key", Context: backupContext},
}

// Rewrap wraps the sealed values with the first master key and returns how many it changed.
func (f *Factors) Rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range sealedColumns {
		n, err := column.Rewrap(ctx, f.store.db, f.sealer)
		if changed += n; err != nil {
			return changed, err
		}
	}
	return changed, nil
}
