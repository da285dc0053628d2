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
// with the first master key, so that older ones can be removed, and answers how
// many it changed. What opens with none of the master keys is left alone: it is
// good for nobody.
func (a *Auth) Rewrap(ctx context.Context) (changed int, err error) {
	if changed, err = a.rewrapKeys(ctx); err != nil || a.library.Rewrap == nil {
		return changed, err
	}
	n, err := a.library.Rewrap(ctx)
	return changed + n, err
}

func (a *Auth) rewrapKeys(ctx context.Context) (changed int, err error) {
	rows, err := a.store.signingKeys(ctx)
	if err != nil {
		return 0, err
	}
	if changed, err = rewrap(ctx, a.peers.Keys, rows, sealContext, a.store.replaceSigningKey); err != nil {
		return changed, err
	}
	for after := ""; ; after = rows[len(rows)-1].id {
		if rows, err = a.store.refreshKeys(ctx, after, sweepChunk); err != nil || len(rows) == 0 {
			return changed, err
		}
		n, err := rewrap(ctx, a.peers.Keys, rows, refreshContext, a.store.replaceRefreshKey)
		changed += n
		if err != nil {
			return changed, err
		}
	}
}

func rewrap(ctx context.Context, keys *seal.Keys, rows []sealedKey, sealedFor func(id string) string,
	replace func(ctx context.Context, id string, before, after []byte) (bool, error),
) (changed int, err error) {
	for _, row := range rows {
		sealed, different, err := keys.Rewrap(sealedFor(row.id), row.sealed)
		if err != nil || !different {
			continue
		}
		replaced, err := replace(ctx, row.id, row.sealed, sealed)
		if err != nil {
			return changed, err
		}
		if replaced {
			changed++
		}
	}
	return changed, nil
}

func (a *Auth) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "users", Read: func(ctx context.Context) (any, error) { return a.store.count(ctx, `SELECT count(*) FROM auth_user`) }},
		{Key: "sessions", Read: func(ctx context.Context) (any, error) {
			return a.store.count(ctx, `SELECT count(*) FROM auth_session WHERE expires_at > $1`, a.host.Now().UnixMilli())
		}},
	}
}
