package kv

import (
	"context"
	"embed"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
)

// A write deletes at most sweepLimit expired entries, at most once in sweepEvery or, while more
// remain, with each write.
const (
	sweepEvery = time.Second
	sweepLimit = 100
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the schema of [NewSQL].
func Migrations() database.Migrations {
	return database.Migrations{Name: "kv", FS: migrations}
}

// SQL is a store in a database. Inside a transaction of that database its operations commit with
// it.
type SQL struct {
	db      *database.DB
	sweptAt atomic.Int64 // milliseconds
}

// NewSQL returns a store in a database that has [Migrations].
func NewSQL(db *database.DB) *SQL { return &SQL{db: db} }

// Get returns the value.
func (s *SQL) Get(ctx context.Context, key string) ([]byte, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (value []byte, err error) {
		err = row.Scan(&value)
		return value, err
	}, `SELECT value FROM kv_entry WHERE key = $1 AND expires_at > $2`, key, s.db.Now(ctx).UnixMilli())
}

// Put stores the value. It refuses with [ErrKey], [ErrValue] and [ErrTTL].
func (s *SQL) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := s.insert(ctx, key, value, ttl, `INSERT INTO kv_entry (key, value, expires_at) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at`)
	return err
}

// PutIfAbsent stores the value if the key has none. It refuses with [ErrKey], [ErrValue] and
// [ErrTTL].
func (s *SQL) PutIfAbsent(ctx context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	return s.insert(ctx, key, value, ttl, `INSERT INTO kv_entry (key, value, expires_at) VALUES ($1, $2, $3)
		ON CONFLICT (key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
		WHERE kv_entry.expires_at <= $4`, s.db.Now(ctx).UnixMilli())
}

func (s *SQL) insert(ctx context.Context, key string, value []byte, ttl time.Duration, query string, more ...any) (bool, error) {
	if err := check(key, value, ttl); err != nil {
		return false, err
	}
	if value == nil {
		value = []byte{}
	}
	now := s.db.Now(ctx)
	args := append([]any{key, value, now.Add(ttl).UnixMilli()}, more...)
	n, err := s.db.Exec(ctx, query, args...)
	if err == nil {
		s.sweep(ctx, now)
	}
	return n == 1, err
}

// Delete removes the key.
func (s *SQL) Delete(ctx context.Context, key string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM kv_entry WHERE key = $1`, key)
	return err
}

// Atomic returns true: the primary key decides.
func (s *SQL) Atomic() bool { return true }

// sweep deletes some expired entries, but not inside a transaction of the caller. Its errors are
// ignored because nothing depends on it.
func (s *SQL) sweep(ctx context.Context, now time.Time) {
	last := s.sweptAt.Load()
	if now.Sub(time.UnixMilli(last)).Abs() < sweepEvery || s.db.InTransaction(ctx) || !s.sweptAt.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	n, _ := s.db.Exec(ctx, `DELETE FROM kv_entry WHERE key IN (
		SELECT key FROM kv_entry WHERE expires_at <= $1 LIMIT $2 `+database.SkipLocked+`)`, now.UnixMilli(), sweepLimit)
	if n >= sweepLimit {
		s.sweptAt.Store(last)
	}
}
