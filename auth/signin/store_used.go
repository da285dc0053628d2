package signin

import (
	"context"
	"database/sql"
	"time"

	"github.com/kitbackend/kit/database"
)

// used is a row of signin_used. While it is not settled the call that uses the
// link is still under way.
type used struct {
	hash              []byte
	kind              string
	userID, sessionID string
	browser           []byte
	target            string
	settled           bool
	expiresAt         time.Time
}

// putUsed replaces the row of the link.
func (s store) putUsed(ctx context.Context, u used) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_used (hash, kind, user_id, session_id, browser_hash, target, settled, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
		ON CONFLICT (hash) DO UPDATE SET user_id = excluded.user_id, session_id = excluded.session_id,
			target = excluded.target, settled = excluded.settled, expires_at = excluded.expires_at`,
		u.hash, u.kind, sql.NullString{String: u.userID, Valid: u.userID != ""},
		sql.NullString{String: u.sessionID, Valid: u.sessionID != ""}, u.browser, u.target, u.settled, u.expiresAt.UnixMilli())
	return err
}

func (s store) used(ctx context.Context, hash []byte, kind string) (used, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (u used, err error) {
		var user, session sql.NullString
		var expires int64
		err = row.Scan(&user, &session, &u.browser, &u.target, &u.settled, &expires)
		u.hash, u.kind, u.userID, u.sessionID, u.expiresAt = hash, kind, user.String, session.String, time.UnixMilli(expires)
		return u, err
	}, `SELECT user_id, session_id, browser_hash, target, settled, expires_at FROM signin_used WHERE hash = $1 AND kind = $2`, hash, kind)
}

func (s store) deleteUsed(ctx context.Context, hash []byte) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_used WHERE hash = $1`, hash)
	return err
}
