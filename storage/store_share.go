package storage

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

func (s store) countShares(ctx context.Context, object string, now int64) (n int, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM storage_share WHERE object_id = $1 AND expires_at > $2`, object, now).Scan(&n)
	return n, err
}

func (s store) insertShare(ctx context.Context, share Share) error {
	_, err := s.db.Exec(ctx, `INSERT INTO storage_share (id, object_id, token_hash, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)`,
		share.ID, share.ObjectID, tokenHash(share.Token), share.CreatedAt.UnixMilli(), share.ExpiresAt.UnixMilli())
	return err
}

func scanShare(row database.Scanner) (share Share, err error) {
	var created, expires int64
	err = row.Scan(&share.ID, &share.ObjectID, &created, &expires)
	share.CreatedAt, share.ExpiresAt = capability.Millis(created), capability.Millis(expires)
	return share, err
}

func (s store) shares(ctx context.Context, object string, now int64) ([]Share, error) {
	return database.All(ctx, s.db, scanShare, `SELECT id, object_id, created_at, expires_at FROM storage_share
		WHERE object_id = $1 AND expires_at > $2 ORDER BY id LIMIT $3`, object, now, MaxShares)
}

func (s store) shareBy(ctx context.Context, hash []byte, id string) (Share, bool, error) {
	return database.Get(ctx, s.db, scanShare, `SELECT id, object_id, created_at, expires_at FROM storage_share
		WHERE token_hash = $1 OR id = $2`, hash, id)
}

func (s store) removeShare(ctx context.Context, id string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM storage_share WHERE id = $1`, id)
	return err
}

// removeOldShares removes shares that expired before an instant.
func (s store) removeOldShares(ctx context.Context, before int64, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM storage_share WHERE id IN (SELECT id FROM storage_share WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`, before, limit)
}
