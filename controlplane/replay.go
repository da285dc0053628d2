package controlplane

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/kv"
)

// A spent id is stored for remember after the last instant its token could verify, so that it is
// still found if the clock is set back a little.
const (
	remember   = 300 * time.Second
	pruneEvery = time.Second
	pruneLimit = 100
)

// replaySet stores the spent token ids.
type replaySet interface {
	// claim spends an id and reports whether it was unspent; the set may forget it after until.
	// After an error the state of the id is unknown.
	claim(ctx context.Context, jti string, until time.Time) (bool, error)
}

// spentRows is a replay set in a table, keyed by the id alone.
type spentRows struct {
	store store
	now   func() time.Time
	// prunedAt is the time of the last prune of this node, and prunedTo the latest expiry of an id
	// that it has pruned, in milliseconds.
	prunedAt, prunedTo atomic.Int64
}

func (s *spentRows) claim(ctx context.Context, jti string, until time.Time) (bool, error) {
	if until.UnixMilli() <= s.prunedTo.Load() {
		return false, nil // the clock was set back to before an expiry that was pruned
	}
	won, err := s.store.claim(ctx, jti, until)
	if err == nil && won {
		s.prune(ctx)
	}
	return won, err
}

// prune deletes a bounded number of ids at most once a second, or with each claim while there are
// more. It may fail: a later claim retries.
func (s *spentRows) prune(ctx context.Context) {
	now, last := s.now(), s.prunedAt.Load()
	if now.Sub(time.UnixMilli(last)).Abs() < pruneEvery || s.store.db.InTransaction(ctx) || !s.prunedAt.CompareAndSwap(last, now.UnixMilli()) {
		return
	}
	pruned, latest, err := s.store.prune(ctx, now, pruneLimit)
	if err == nil && latest > s.prunedTo.Load() {
		s.prunedTo.Store(latest)
	}
	if pruned >= pruneLimit {
		s.prunedAt.Store(last)
	}
}

// spentEntries is a replay set in a key-value store.
type spentEntries struct {
	entries kv.Store
	now     func() time.Time
}

const entryPrefix = "controlplane:spent:"

func (s spentEntries) claim(ctx context.Context, jti string, until time.Time) (bool, error) {
	return s.entries.PutIfAbsent(ctx, entryPrefix+jti, nil, until.Sub(s.now()))
}

func newReplaySet(cfg Config, db *database.DB, now func() time.Time) replaySet {
	switch {
	case cfg.ReplayBackend == D1:
		return &spentRows{store: store{db}, now: now}
	case cfg.KV == nil:
		return spentEntries{kv.NewSQL(db), now}
	default:
		return spentEntries{cfg.KV, now}
	}
}
