package auth

import (
	"context"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
)

const (
	sweepChunk = 500
	// keepRetired is how long a retired signing key's row is kept.
	keepRetired = 7 * 24 * time.Hour
)

func (a *Auth) jobs() []jobs.Binding {
	return []jobs.Binding{{Name: "AUTH_SWEEP", Schedule: "23 3 * * *", Run: a.runSweep}}
}

// runSweep deletes what has ended, a chunk a statement.
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

// Rewrap wraps the signing and refresh keys, and what the library has sealed,
// with the first master key, so that older ones can be removed, and returns how
// many it changed. What opens with none of the master keys is left alone: it is
// good for nobody.
func (a *Auth) Rewrap(ctx context.Context) (changed int, err error) {
	for _, column := range sealedColumns {
		n, err := column.Rewrap(ctx, a.host.DB, a.sealer)
		if changed += n; err != nil {
			return changed, err
		}
	}
	if a.library.Rewrap == nil {
		return changed, nil
	}
	n, err := a.library.Rewrap(ctx)
	return changed + n, err
}

var sealedColumns = []seal.Column[string]{
	{Table: "auth_signing_key", Key: "id", Column: "sealed", Context: sealContext},
	{Table: "auth_session", Key: "id", Column: "refresh_key", Context: refreshContext},
}

func (a *Auth) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "users", Read: func(ctx context.Context) (any, error) { return a.store.count(ctx, `SELECT count(*) FROM auth_user`) }},
		{Key: "sessions", Read: func(ctx context.Context) (any, error) {
			return a.store.count(ctx, `SELECT count(*) FROM auth_session WHERE expires_at > $1`, a.host.Now().UnixMilli())
		}},
	}
}
