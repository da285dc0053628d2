package signin

import (
	"context"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
)

// spend takes an event: it moves the instant until which a quota is spent, unless that would be
// more than a period ahead. Rows that a clock ahead of this one wrote count as unspent.
func (s store) spend(ctx context.Context, hash []byte, now time.Time, limit auth.RateLimit) (spent bool, err error) {
	step := (limit.Per / time.Duration(limit.Events)).Milliseconds()
	n, err := s.db.Exec(ctx, `INSERT INTO signin_quota (hash, spent_until) VALUES ($1, $2)
		ON CONFLICT (hash) DO UPDATE SET spent_until = $3 + (CASE WHEN signin_quota.spent_until BETWEEN $4 AND $5 THEN signin_quota.spent_until ELSE $4 END)
		WHERE $3 + (CASE WHEN signin_quota.spent_until BETWEEN $4 AND $5 THEN signin_quota.spent_until ELSE $4 END) <= $6`,
		hash, now.UnixMilli()+step, step, now.UnixMilli(), now.Add(limit.Per).UnixMilli()+step, now.Add(limit.Per).UnixMilli())
	return n == 1, err
}

// overspend takes an event that is due later.
func (s store) overspend(ctx context.Context, hash []byte, now time.Time, limit auth.RateLimit) error {
	step := (limit.Per / time.Duration(limit.Events)).Milliseconds()
	_, err := s.db.Exec(ctx, `UPDATE signin_quota SET spent_until = spent_until + $2 WHERE hash = $1 AND spent_until <= $3`,
		hash, step, now.Add(limit.Per).UnixMilli())
	return err
}

// spentUntil is the zero time for a quota of which nothing was spent.
func (s store) spentUntil(ctx context.Context, hash []byte) (time.Time, error) {
	until, _, err := database.Get(ctx, s.db, scanInt, `SELECT spent_until FROM signin_quota WHERE hash = $1`, hash)
	return time.UnixMilli(until), err
}
