package auth

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

func (s store) insertUser(ctx context.Context, user, family string, now time.Time) (created bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO auth_user (id, token_family, created_at) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO NOTHING`, user, family, now.UnixMilli())
	return n == 1, err
}

func (s store) tokenFamily(ctx context.Context, user string) (family string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `SELECT token_family FROM auth_user WHERE id = $1`, user)
}

func (s store) setTokenFamily(ctx context.Context, user, family string) error {
	_, err := s.db.Exec(ctx, `UPDATE auth_user SET token_family = $2 WHERE id = $1`, user, family)
	return err
}

// insertSession answers false when there is no such user.
func (s store) insertSession(ctx context.Context, session Session, hash []byte) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO auth_session (id, secret_hash, user_id, created_at, expires_at)
		SELECT $1, $2, id, $4, $5 FROM auth_user WHERE id = $3`,
		session.ID, hash, session.UserID, session.CreatedAt.UnixMilli(), session.ExpiresAt.UnixMilli())
	return n == 1, err
}

func (s store) deleteExpiredSessions(ctx context.Context, user string, now time.Time) error {
	_, err := s.db.Exec(ctx, `DELETE FROM auth_session WHERE user_id = $1 AND expires_at <= $2`, user, now.UnixMilli())
	return err
}

// liveSession finds a session by the hash of its cookie.
func (s store) liveSession(ctx context.Context, hash []byte, now time.Time) (session Session, found bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (session Session, err error) {
		return session, row.Scan(&session.ID, &session.UserID)
	}, `SELECT id, user_id FROM auth_session WHERE secret_hash = $1 AND expires_at > $2`, hash, now.UnixMilli())
}

func (s store) deleteSession(ctx context.Context, session string) (user string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `DELETE FROM auth_session WHERE id = $1 RETURNING user_id`, session)
}

func (s store) deleteSessions(ctx context.Context, user string) (ids []string, err error) {
	return database.All(ctx, s.db, scanText, `DELETE FROM auth_session WHERE user_id = $1 RETURNING id`, user)
}

// sealedKey is a row of auth_signing_key.
type sealedKey struct {
	id     string
	sealed []byte
}

// signingKeys lists the keys.
func (s store) signingKeys(ctx context.Context) ([]sealedKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k sealedKey, err error) {
		return k, row.Scan(&k.id, &k.sealed)
	}, `SELECT id, sealed FROM auth_signing_key ORDER BY id`)
}

func (s store) insertSigningKey(ctx context.Context, k sealedKey, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO auth_signing_key (id, sealed, created_at) VALUES ($1, $2, $3)`,
		k.id, k.sealed, now.UnixMilli())
	return err
}

// revocation is a row of auth_revocation; until is in milliseconds.
type revocation struct {
	position  int64
	sessionID string
	until     int64
}

// insertRevocations also forgets what no token can outlive.
func (s store) insertRevocations(ctx context.Context, sessions []string, now, until time.Time) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM auth_revocation WHERE until < $1`, now.UnixMilli()); err != nil {
		return err
	}
	var last int64
	if err := s.db.QueryRow(ctx, `UPDATE auth_revocation_head SET position = position + $1 WHERE id = 1 RETURNING position`,
		len(sessions)).Scan(&last); err != nil {
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

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }
