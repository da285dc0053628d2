package auth

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

// sealedKey is a row of auth_signing_key.
type sealedKey struct {
	id        string
	sealed    []byte
	createdAt int64
}

// signingKeys lists the keys in the order they were made.
func (s store) signingKeys(ctx context.Context) ([]sealedKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k sealedKey, err error) {
		return k, row.Scan(&k.id, &k.sealed, &k.createdAt)
	}, `SELECT id, sealed, created_at FROM auth_signing_key ORDER BY id`)
}

func (s store) insertSigningKey(ctx context.Context, k sealedKey) error {
	_, err := s.db.Exec(ctx, `INSERT INTO auth_signing_key (id, sealed, created_at) VALUES ($1, $2, $3)`, k.id, k.sealed, k.createdAt)
	return err
}

func (s store) deleteSigningKey(ctx context.Context, keyID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM auth_signing_key WHERE id = $1`, keyID)
	return err
}

// sweepSessions deletes sessions that have ended by themselves.
func (s store) sweepSessions(ctx context.Context, now time.Time, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM auth_session WHERE id IN (
		SELECT id FROM auth_session WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now.UnixMilli(), limit)
}

// sweepDevices deletes devices without a session that came before an instant.
func (s store) sweepDevices(ctx context.Context, before time.Time, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM auth_device WHERE id IN (
		SELECT id FROM auth_device WHERE created_at < $1
		AND NOT EXISTS (SELECT 1 FROM auth_session WHERE device_id = auth_device.id) ORDER BY id LIMIT $2)`, before.UnixMilli(), limit)
}

func (s store) countUsers(ctx context.Context) (n int64, err error) {
	return n, s.db.QueryRow(ctx, `SELECT count(*) FROM auth_user`).Scan(&n)
}

// countSessions counts those that have not ended.
func (s store) countSessions(ctx context.Context, now time.Time) (n int64, err error) {
	return n, s.db.QueryRow(ctx, `SELECT count(*) FROM auth_session WHERE expires_at > $1`, now.UnixMilli()).Scan(&n)
}

// revocation is a row of auth_revocation; until is in milliseconds.
type revocation struct {
	position  int64
	sessionID string
	until     int64
}

// insertRevocations inserts revocations and deletes those older than any valid token.
func (s store) insertRevocations(ctx context.Context, sessions []string, now, until time.Time) error {
	var last int64 // the lock first: two that forget the same rows do not meet
	if err := s.db.QueryRow(ctx, `UPDATE auth_revocation_head SET position = position + $1 WHERE id = 1 RETURNING position`,
		len(sessions)).Scan(&last); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM auth_revocation WHERE until < $1`, now.UnixMilli()); err != nil {
		return err
	}
	for i, session := range sessions {
		position := last - int64(len(sessions)) + int64(i) + 1
		if _, err := s.db.Exec(ctx, `INSERT INTO auth_revocation (position, session_id, until) VALUES ($1, $2, $3)`,
			position, session, until.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// revocations reads at most limit rows after a position.
func (s store) revocations(ctx context.Context, after int64, limit int) ([]revocation, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r revocation, err error) {
		return r, row.Scan(&r.position, &r.sessionID, &r.until)
	}, `SELECT position, session_id, until FROM auth_revocation WHERE position > $1 ORDER BY position LIMIT $2`, after, limit)
}
