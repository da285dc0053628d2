package databasetest

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/database"
)

// Waits returns once another transaction waits for a lock that the transaction of ctx holds, on PostgreSQL: a test begins
// the other one in a goroutine that sends on ended, a channel with a place for it, and goes on when their order is
// certain. It fails when the other one has ended without waiting.
func Waits[T any](ctx context.Context, db *database.DB, ended <-chan T) error {
	for waiting := false; !waiting; {
		if len(ended) > 0 {
			return errors.New("the other transaction ended without waiting for this one")
		}
		if err := db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))`).
			Scan(&waiting); err != nil {
			return err
		}
	}
	return nil
}
