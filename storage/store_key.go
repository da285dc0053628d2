package storage

import (
	"context"

	"github.com/kitbackend/kit/database"
)

type sealedKey struct {
	number int64
	sealed []byte
}

func (s store) signingKeys(ctx context.Context) ([]sealedKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k sealedKey, err error) {
		return k, row.Scan(&k.number, &k.sealed)
	}, `SELECT number, sealed FROM storage_signing_key ORDER BY number`)
}

// insertKey adds a key, unless another node has added it.
func (s store) insertKey(ctx context.Context, k sealedKey) error {
	_, err := s.db.Exec(ctx, `INSERT INTO storage_signing_key (number, sealed, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		k.number, k.sealed, s.db.Now(ctx).UnixMilli())
	return err
}

func (s store) replaceKey(ctx context.Context, k sealedKey, sealed []byte) (rows int64, err error) {
	return s.db.Exec(ctx, `UPDATE storage_signing_key SET sealed = $3 WHERE number = $1 AND sealed = $2`, k.number, k.sealed, sealed)
}
