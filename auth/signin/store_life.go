package signin

import (
	"context"
	"database/sql"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// insertLetter inserts a letter; it returns false if there is one with this id.
func (s store) insertLetter(ctx context.Context, id string, m letter, payload string, due time.Time) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO signin_letter (id, address, new_address, user_id, payload, due_at)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO NOTHING`,
		id, m.Address, m.NewAddress, sql.NullString{String: m.UserID, Valid: m.UserID != ""}, payload, due.UnixMilli())
	return n == 1, err
}

func (s store) letter(ctx context.Context, id string) (payload string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `SELECT payload FROM signin_letter WHERE id = $1`, id)
}

func (s store) deleteLetter(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_letter WHERE id = $1`, id)
	return err
}

// provedBefore lists the addresses that a user can have back: only one that was
// proved undoes a change.
func (s store) provedBefore(ctx context.Context, userID string) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT DISTINCT substr(subject, length($2) + 1) FROM signin_link
		WHERE user_id = $1 AND kind = $3 AND substr(subject, 1, length($2)) = $2`, userID, changeSubjectOf(stepUndo, ""), kindChange)
}

// eraseUser removes the rows that name a user without referring to auth_user.
func (s store) eraseUser(ctx context.Context, userID string) (removed int64, err error) {
	return s.deleteAll(ctx, userID, []string{
		`DELETE FROM signin_code WHERE kind = 'change-email' AND substr(subject, 1, length($1) + 1) = $1 || ' '`,
		`DELETE FROM signin_letter WHERE user_id = $1`,
		`DELETE FROM signin_link WHERE user_id = $1`,
	})
}

// eraseAddress removes the rows that are kept by an address.
func (s store) eraseAddress(ctx context.Context, address string) (removed int64, err error) {
	removed, err = s.deleteAll(ctx, address, []string{
		`DELETE FROM signin_letter WHERE address = $1 OR new_address = $1`,
		`DELETE FROM signin_link WHERE kind IN ('verify_email', 'change_email', 'reset_password', 'magic_link', 'delete_account')
			AND subject IN ($1, 'approve ' || $1, 'undo ' || $1)`,
		`DELETE FROM signin_code WHERE kind IN ('sign-in', 'email-verification', 'forget-password') AND subject = $1`,
	})
	return removed, err
}

func (s store) deleteAll(ctx context.Context, arg string, queries []string) (removed int64, err error) {
	for _, query := range queries {
		n, err := s.db.Exec(ctx, query, arg)
		if removed += n; err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// The records of an export.
type (
	exportedAccount struct {
		Provider  string          `json:"provider"`
		Issuer    string          `json:"issuer"`
		AccountID string          `json:"accountId"`
		Scopes    []string        `json:"scopes,omitempty"`
		CreatedAt capability.Time `json:"createdAt"`
	}
	exportedFactor struct {
		Enabled      bool `json:"enabled"`
		TOTP         bool `json:"totp"`
		CodesByMail  bool `json:"codesByMail"`
		BackupCodes  bool `json:"backupCodes"`
		FailedProofs int  `json:"failedProofs"`
	}
	exportedClient struct {
		SeenAt capability.Time `json:"seenAt"`
	}
	exportedLink struct {
		Kind      string          `json:"kind"`
		Subject   string          `json:"subject"`
		ExpiresAt capability.Time `json:"expiresAt"`
	}
	exportedTrust struct {
		ExpiresAt capability.Time `json:"expiresAt"`
	}
)

func scanTime(row database.Scanner) (at capability.Time, err error) {
	var ms int64
	err = row.Scan(&ms)
	return capability.Millis(ms), err
}

// knownClients lists when the clients that an account knows were seen.
func (s store) knownClients(ctx context.Context, userID string) ([]capability.Time, error) {
	return database.All(ctx, s.db, scanTime, `SELECT seen_at FROM signin_client WHERE user_id = $1 ORDER BY seen_at`, userID)
}

// linksOf lists the links that were made for a user.
func (s store) linksOf(ctx context.Context, userID string) ([]link, error) {
	return database.All(ctx, s.db, scanLink, `SELECT `+linkColumns+` FROM signin_link WHERE user_id = $1 ORDER BY created_at`, userID)
}
