package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

// passkey is a row of signin_passkey.
type passkey struct {
	id           string
	userID       string
	credentialID []byte
	publicKey    []byte
	name         string
	counter      int64
	aaguid       string
	transports   string
	// eligible means that the key may be synchronised, backedUp that it is.
	eligible, backedUp bool
	createdAt          time.Time
	usedAt             int64
}

const passkeyColumns = `id, user_id, credential_id, public_key, name, counter, aaguid, transports, backup_eligible, backed_up, created_at, used_at`

func scanPasskey(row database.Scanner) (p passkey, err error) {
	var created int64
	err = row.Scan(&p.id, &p.userID, &p.credentialID, &p.publicKey, &p.name, &p.counter, &p.aaguid, &p.transports,
		&p.eligible, &p.backedUp, &created, &p.usedAt)
	p.createdAt = time.UnixMilli(created).UTC()
	return p, err
}

func (s store) passkeys(ctx context.Context, userID string) ([]passkey, error) {
	return database.All(ctx, s.db, scanPasskey, `SELECT `+passkeyColumns+` FROM signin_passkey
		WHERE user_id = $1 ORDER BY created_at, id`, userID)
}

func (s store) passkeyOf(ctx context.Context, credentialID []byte) (p passkey, found bool, err error) {
	return database.Get(ctx, s.db, scanPasskey, `SELECT `+passkeyColumns+` FROM signin_passkey WHERE credential_id = $1`, credentialID)
}

// insertPasskey returns false when there is one of this credential.
func (s store) insertPasskey(ctx context.Context, p passkey) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO signin_passkey (`+passkeyColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, 0) ON CONFLICT DO NOTHING`,
		p.id, p.userID, p.credentialID, p.publicKey, p.name, p.counter, p.aaguid, p.transports, p.eligible, p.backedUp,
		p.createdAt.UnixMilli())
	return n == 1, err
}

func (s store) countPasskeys(ctx context.Context, userID string) (n int64, err error) {
	n, _, err = database.Get(ctx, s.db, scanInt, `SELECT COUNT(*) FROM signin_passkey WHERE user_id = $1`, userID)
	return n, err
}

// usePasskey never lowers the counter.
func (s store) usePasskey(ctx context.Context, id string, counter int64, backedUp bool, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_passkey SET counter = CASE WHEN counter < $2 THEN $2 ELSE counter END,
		backed_up = $3, used_at = $4 WHERE id = $1`, id, counter, backedUp, now.UnixMilli())
	return err
}

func (s store) renamePasskey(ctx context.Context, userID, id, name string) (p passkey, found bool, err error) {
	return database.Get(ctx, s.db, scanPasskey, `UPDATE signin_passkey SET name = $3 WHERE id = $2 AND user_id = $1
		RETURNING `+passkeyColumns, userID, id, name)
}

func (s store) deletePasskey(ctx context.Context, userID, id string) (deleted bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_passkey WHERE id = $2 AND user_id = $1`, userID, id)
	return n == 1, err
}

func (s store) deletePasskeys(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_passkey WHERE user_id = $1`, userID)
	return err
}

// insertCeremony also sweeps some of those that are over.
func (s store) insertCeremony(ctx context.Context, hash []byte, kind, userID string, now, expiresAt time.Time) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_ceremony WHERE hash IN (
		SELECT hash FROM signin_ceremony WHERE expires_at <= $1 ORDER BY expires_at, hash LIMIT $2)`,
		now.UnixMilli(), statesSwept); err != nil {
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
