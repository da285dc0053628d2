package passkey

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

const passkeyColumns = `id, user_id, credential_id, public_key, name, counter, aaguid, transports, backup_eligible, backed_up, created_at, used_at`

func scanPasskey(row database.Scanner) (p Passkey, err error) {
	var created, used int64
	err = row.Scan(&p.ID, &p.UserID, &p.CredentialID, &p.PublicKey, &p.Name, &p.Counter, &p.AAGUID, &p.Transports,
		&p.Eligible, &p.BackedUp, &created, &used)
	p.CreatedAt = time.UnixMilli(created).UTC()
	return p, err
}

func (s store) passkeys(ctx context.Context, userID string) ([]Passkey, error) {
	return database.All(ctx, s.db, scanPasskey, `SELECT `+passkeyColumns+` FROM signin_passkey
		WHERE user_id = $1 ORDER BY created_at, id`, userID)
}

func (s store) ofCredential(ctx context.Context, credentialID []byte) (p Passkey, found bool, err error) {
	return database.Get(ctx, s.db, scanPasskey, `SELECT `+passkeyColumns+` FROM signin_passkey WHERE credential_id = $1`, credentialID)
}

// insert returns false when there is one of this credential.
func (s store) insert(ctx context.Context, p Passkey) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO signin_passkey (`+passkeyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0) ON CONFLICT DO NOTHING`,
		p.ID, p.UserID, p.CredentialID, p.PublicKey, p.Name, p.Counter, p.AAGUID, p.Transports, p.Eligible, p.BackedUp,
		p.CreatedAt.UnixMilli())
	return n == 1, err
}

func (s store) count(ctx context.Context, userID string) (n int64, err error) {
	n, _, err = database.Get(ctx, s.db, scanInt, `SELECT COUNT(*) FROM signin_passkey WHERE user_id = $1`, userID)
	return n, err
}

// use never lowers the counter.
func (s store) use(ctx context.Context, id string, counter int64, backedUp bool, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_passkey SET counter = CASE WHEN counter < $2 THEN $2 ELSE counter END,
		backed_up = $3, used_at = $4 WHERE id = $1`, id, counter, backedUp, now.UnixMilli())
	return err
}

func (s store) rename(ctx context.Context, userID, id, name string) (p Passkey, found bool, err error) {
	return database.Get(ctx, s.db, scanPasskey, `UPDATE signin_passkey SET name = $3 WHERE id = $2 AND user_id = $1
		RETURNING `+passkeyColumns, userID, id, name)
}

func (s store) remove(ctx context.Context, userID, id string) (removed bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_passkey WHERE id = $2 AND user_id = $1`, userID, id)
	return n == 1, err
}

func (s store) removeAll(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_passkey WHERE user_id = $1`, userID)
	return err
}

// removeSince removes the passkeys that a user got at an instant or later.
func (s store) removeSince(ctx context.Context, userID string, since time.Time) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_passkey WHERE user_id = $1 AND created_at >= $2`, userID, since.UnixMilli())
	return err
}

// insertCeremony also sweeps some of those that are over.
func (s store) insertCeremony(ctx context.Context, hash []byte, kind, userID string, now, expiresAt time.Time) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_ceremony WHERE hash IN (
		SELECT hash FROM signin_ceremony WHERE expires_at <= $1 ORDER BY expires_at, hash LIMIT $2)`,
		now.UnixMilli(), ceremoniesSwept); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO signin_ceremony (hash, kind, user_id, expires_at) VALUES ($1, $2, $3, $4)`,
		hash, kind, userID, expiresAt.UnixMilli())
	return err
}

// takeCeremony uses a challenge up; of two that do, one wins.
func (s store) takeCeremony(ctx context.Context, hash []byte, kind string, now time.Time) (userID string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `DELETE FROM signin_ceremony WHERE hash = $1 AND kind = $2 AND expires_at > $3
		RETURNING user_id`, hash, kind, now.UnixMilli())
}

// trimCeremonies keeps the youngest of too many.
func (s store) trimCeremonies(ctx context.Context, keep int) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_ceremony WHERE expires_at <= (
		SELECT expires_at FROM signin_ceremony ORDER BY expires_at DESC LIMIT 1 OFFSET $1)`, keep)
	return err
}

// sweepCeremonies removes one batch of those that are over.
func (s store) sweepCeremonies(ctx context.Context, now time.Time, limit int64) (removed int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM signin_ceremony WHERE hash IN
		(SELECT hash FROM signin_ceremony WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now.UnixMilli(), limit)
}

func (s store) eraseCeremonies(ctx context.Context, userID string) (removed int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM signin_ceremony WHERE user_id = $1`, userID)
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

func scanInt(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) }
