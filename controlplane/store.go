package controlplane

import (
	"context"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane/internal/wire"
	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

// connection is the connection of one environment.
type connection struct {
	environment, id, issuer, via string
	createdAt                    time.Time
}

func (s store) connection(ctx context.Context, environment string) (connection, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (c connection, err error) {
		var at int64
		err = row.Scan(&c.environment, &c.id, &c.issuer, &at, &c.via)
		c.createdAt = time.UnixMilli(at).UTC()
		return c, err
	}, `SELECT environment, id, issuer, created_at, created_via FROM controlplane_connection WHERE environment = $1`, environment)
}

// insertConnection reports whether the environment had no connection.
func (s store) insertConnection(ctx context.Context, c connection) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO controlplane_connection (environment, id, issuer, created_at, created_via)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (environment) DO NOTHING`, c.environment, c.id, c.issuer, c.createdAt.UnixMilli(), c.via)
	return n == 1, err
}

func (s store) updateConnection(ctx context.Context, c connection) error {
	_, err := s.db.Exec(ctx, `UPDATE controlplane_connection SET id = $2, issuer = $3, created_at = $4, created_via = $5
		WHERE environment = $1`, c.environment, c.id, c.issuer, c.createdAt.UnixMilli(), c.via)
	return err
}

const keyColumns = `id, public_key, status, replaces, created_at, superseded_at, expired_at`

func scanKey(row database.Scanner) (k Key, err error) {
	var x, replaces string
	var created int64
	var superseded, expired *int64
	if err := row.Scan(&k.ID, &x, &k.Status, &replaces, &created, &superseded, &expired); err != nil {
		return Key{}, err
	}
	k.PublicKey = wire.JWK{KeyType: "OKP", Curve: "Ed25519", X: x}
	if replaces != "" {
		k.Replaces = &replaces
	}
	k.CreatedAt, k.SupersededAt, k.ExpiredAt = capability.Millis(created), instant(superseded), instant(expired)
	k.public, err = k.PublicKey.Public()
	return k, err
}

func instant(ms *int64) *capability.Time {
	if ms == nil {
		return nil
	}
	return new(capability.Millis(*ms))
}

// liveKeys returns the keys that verify, oldest first; there are at most maxLive.
func (s store) liveKeys(ctx context.Context, connectionID string) ([]Key, error) {
	return database.All(ctx, s.db, scanKey, `SELECT `+keyColumns+` FROM controlplane_key
		WHERE connection_id = $1 AND status <> 'expired' ORDER BY created_at, id`, connectionID)
}

func (s store) key(ctx context.Context, connectionID, id string) (Key, bool, error) {
	return database.Get(ctx, s.db, scanKey, `SELECT `+keyColumns+` FROM controlplane_key
		WHERE connection_id = $1 AND id = $2`, connectionID, id)
}

func (s store) successor(ctx context.Context, connectionID, id string) (Key, bool, error) {
	return database.Get(ctx, s.db, scanKey, `SELECT `+keyColumns+` FROM controlplane_key
		WHERE connection_id = $1 AND replaces = $2`, connectionID, id)
}

// insertKey reports whether the key was inserted: the connection never had a key with this id, nor
// another successor of the key it replaces.
func (s store) insertKey(ctx context.Context, connectionID string, k Key, replaces string) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO controlplane_key (connection_id, id, public_key, status, replaces, created_at)
		VALUES ($1, $2, $3, 'active', $4, $5) ON CONFLICT DO NOTHING`,
		connectionID, k.ID, k.PublicKey.X, replaces, k.CreatedAt.UnixMilli())
	return n == 1, err
}

// supersede marks a key as superseded and reports whether it was the active one.
func (s store) supersede(ctx context.Context, connectionID, id string, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE controlplane_key SET status = 'superseded', superseded_at = $3
		WHERE connection_id = $1 AND id = $2 AND status = 'active'`, connectionID, id, now.UnixMilli())
	return n == 1, err
}

// expire expires a key and reports whether it was superseded.
func (s store) expire(ctx context.Context, connectionID, id string, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE controlplane_key SET status = 'expired', expired_at = $3
		WHERE connection_id = $1 AND id = $2 AND status = 'superseded'`, connectionID, id, now.UnixMilli())
	return n == 1, err
}

// expireAll expires every live key and returns their ids in order.
func (s store) expireAll(ctx context.Context, connectionID string, now time.Time) ([]string, error) {
	ids, err := database.All(ctx, s.db, func(row database.Scanner) (id string, err error) {
		return id, row.Scan(&id)
	}, `UPDATE controlplane_key SET status = 'expired', expired_at = $2
		WHERE connection_id = $1 AND status <> 'expired' RETURNING id`, connectionID, now.UnixMilli())
	slices.Sort(ids)
	return ids, err
}

// claim inserts a token id and reports whether it was unspent.
func (s store) claim(ctx context.Context, jti string, until time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO controlplane_spent (jti, expires_at) VALUES ($1, $2)
		ON CONFLICT (jti) DO NOTHING`, jti, until.UnixMilli())
	return n == 1, err
}

// prune deletes up to limit expired token ids, the oldest first, and returns how many and the
// latest of their expiries, 0 if there were none.
func (s store) prune(ctx context.Context, before time.Time, limit int) (pruned int, latest int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		ends, err := database.All(ctx, s.db, func(row database.Scanner) (end int64, err error) {
			err = row.Scan(&end)
			return end, err
		}, `DELETE FROM controlplane_spent WHERE jti IN (
			SELECT jti FROM controlplane_spent WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 `+database.SkipLocked+`)
			RETURNING expires_at`, before.UnixMilli(), limit)
		pruned, latest = len(ends), slices.Max(append(ends, 0))
		return err
	})
	return pruned, latest, err
}
