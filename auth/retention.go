package auth

import (
	"context"
	"time"

	"github.com/kitbackend/kit/jobs"
)

const (
	sweepChunk = 500
	// keepRetired is how long a retired signing key's row is kept.
	keepRetired = 7 * 24 * time.Hour
)

// runSweep deletes expired rows, one chunk for each statement.
func (a *Auth) runSweep(ctx context.Context, _ jobs.Job) error {
	now := a.host.Now()
	for _, sweep := range []struct {
		chunk  func(ctx context.Context, before time.Time, limit int) (int64, error)
		before time.Time
	}{
		{a.store.sweepSessions, now},
		{a.store.sweepDevices, now.Add(-time.Hour)}, // not one whose first session is being made
	} {
		for {
			n, err := sweep.chunk(ctx, sweep.before, sweepChunk)
			if err != nil {
				return err
			}
			if n < sweepChunk {
				break
			}
		}
	}
	return a.keys.sweep(ctx, now)
}

// sweep deletes the rows of keys that were retired long ago.
func (k *keyring) sweep(ctx context.Context, now time.Time) error {
	all, _, err := k.load(ctx)
	if err != nil {
		return err
	}
	for i, key := range all {
		if all.retired(i, now.Add(-keepRetired)) {
			if err := k.store.deleteSigningKey(ctx, key.id); err != nil {
				return err
			}
		}
	}
	return nil
}
