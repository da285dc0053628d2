package storage

import (
	"context"

	"github.com/kitbackend/kit/database"
)

var knownKeysSQL = `SELECT object_key FROM storage_object WHERE object_key ` + database.InList(1) + `
	UNION SELECT object_key FROM storage_garbage WHERE object_key ` + database.InList(1) + ` ORDER BY 1`

// knownKeys returns the keys which have a row, in order.
func (s store) knownKeys(ctx context.Context, keys []string) ([]string, error) {
	return database.All(ctx, s.db, scanText, knownKeysSQL, database.List(keys))
}

// readyBetween lists complete objects by key, after one key and up to another.
func (s store) readyBetween(ctx context.Context, after, until string, before int64, limit int) ([]Object, error) {
	return database.All(ctx, s.db, scanObject, `SELECT `+columns+` FROM storage_object
		WHERE object_key > $1 AND object_key <= $2 AND state = 'ready' AND completed_at < $3 ORDER BY object_key LIMIT $4`, after, until, before, limit)
}

// bucketID returns the ID of the bucket that belongs to this database.
func (s store) bucketID(ctx context.Context, fresh string) (id string, claimed bool, err error) {
	if _, err := s.db.Exec(ctx, `INSERT INTO storage_bucket (one, id, claimed) VALUES (1, $1, FALSE) ON CONFLICT DO NOTHING`, fresh); err != nil {
		return "", false, err
	}
	err = s.db.QueryRow(ctx, `SELECT id, claimed FROM storage_bucket`).Scan(&id, &claimed)
	return id, claimed, err
}

func (s store) claimBucket(ctx context.Context) error {
	_, err := s.db.Exec(ctx, `UPDATE storage_bucket SET claimed = TRUE`)
	return err
}
