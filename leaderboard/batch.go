package leaderboard

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // most submissions in one transaction

// call is a submission with a waiting caller.
type call = queue.Call[*operation, outcome]

// batcher shares transactions between concurrent callers of one board. The operations of a batch
// are decided one after the other in memory, by the same rules as a single one, and each row is
// written once.
//
// On PostgreSQL, while nobody else changes the board, a batch is two statements: one that reads,
// and one that writes if the version of the board is still the one that was read. Rows that earlier
// batches wrote are cached and need not be read: the same condition proves that they are the
// newest. Otherwise a batch is a transaction that locks the board first.
type batcher struct {
	queue.Queue[*operation, outcome]
	store store
	board *board

	// The state of the board after the last batch; used only by the caller that leads.
	version  int64
	last     state            // without an entry
	openedAt int64            // of its window
	known    map[string]entry // by user id, nil if nothing is known
}

func newBatcher(s store, b *board) *batcher {
	batcher := &batcher{store: s, board: b}
	batcher.Run, batcher.Size = batcher.run, batchSize
	return batcher
}

// run sets the outcomes of calls. A refusal concerns one call; an error of the database, which no
// single call can cause, fails all of them.
func (b *batcher) run(ctx context.Context, calls []*call) int {
	done, err := false, error(nil)
	if b.store.db.Dialect() == database.PostgreSQL {
		done, err = b.try(ctx, calls)
	}
	if err == nil && !done {
		err = b.locked(ctx, calls)
	}
	for _, c := range calls {
		if err != nil {
			c.Out, c.Err = outcome{}, err
		}
	}
	return len(calls)
}

// try decides calls without a lock. It does nothing if the board has been changed since the last
// batch, or is changed concurrently.
func (b *batcher) try(ctx context.Context, calls []*call) (done bool, err error) {
	batch := b.recall(ctx, calls)
	if batch != nil {
		batch.decide(calls)
	}
	if batch == nil || !batch.changed() { // only a write checks the version
		batch, err = b.load(ctx, calls)
		if err != nil || !batch.ready() || batch.version != b.version {
			return false, err
		}
		batch.decide(calls)
	}
	known := b.known
	b.known = nil // until the result of the batch is certain
	if done, err = b.save(ctx, batch); done && err == nil {
		b.known = known
		b.remember(batch)
	}
	return done, err
}

// recall returns the batch of calls if the entries of all of them are known, and otherwise nil.
func (b *batcher) recall(ctx context.Context, calls []*call) *batch {
	now := b.store.db.Now(ctx)
	if b.known == nil || b.openedAt != b.board.openedAt(now) {
		return nil
	}
	batch := newBatch(calls, now, b.openedAt)
	batch.state, batch.version = b.last, b.version
	for user := range batch.entries {
		e, ok := b.known[user]
		if !ok {
			return nil
		}
		st := batch.state
		st.userID, st.entry, st.hidden = user, &e, e.hidden
		batch.entries[user], batch.was[user] = &st, &e
	}
	return batch
}

// remember caches the results of a batch.
func (b *batcher) remember(batch *batch) {
	if b.known == nil || b.openedAt != batch.openedAt || len(b.known)+len(batch.entries) > b.store.sizes.known {
		b.known = make(map[string]entry)
	}
	b.last, b.openedAt = batch.state, batch.openedAt
	for user, st := range batch.entries {
		if st.entry != nil {
			b.known[user] = *st.entry
		}
	}
}

// locked decides calls with the board locked.
func (b *batcher) locked(ctx context.Context, calls []*call) error {
	b.known = nil
	return b.store.db.InTx(ctx, func(ctx context.Context) error {
		batch := &batch{}
		locked, err := b.store.lock(ctx, b.board.Key)
		if err == nil && locked {
			batch, err = b.load(ctx, calls)
		}
		if err == nil && !batch.ready() {
			if err = b.store.prepare(ctx, b.board, b.board.openedAt(b.store.db.Now(ctx))); err == nil {
				batch, err = b.load(ctx, calls)
			}
		}
		var refusal *capability.Error
		switch {
		case errors.As(err, &refusal):
			for _, c := range calls {
				c.Err = refusal
			}
			return nil
		case err != nil:
			return err
		}
		batch.decide(calls)
		done, err := b.save(ctx, batch)
		if err == nil && !done {
			err = fmt.Errorf("leaderboard: board %q has changed in spite of its lock", b.board.Key)
		}
		return err
	})
}

// batch is the state and the changes of the operations of some calls.
type batch struct {
	state    // without an entry
	now      int64
	openedAt int64
	entries  map[string]*state // by user id
	was      map[string]*entry // as stored before
}

func newBatch(calls []*call, now time.Time, openedAt int64) *batch {
	b := &batch{now: now.UnixMilli(), openedAt: openedAt,
		entries: make(map[string]*state, len(calls)), was: make(map[string]*entry, len(calls))}
	for _, c := range calls {
		b.entries[c.Op.userID] = nil
	}
	return b
}

// changed reports whether there is something to write.
func (b *batch) changed() bool {
	for user, st := range b.entries {
		if st.differs(b.was[user]) {
			return true
		}
	}
	return false
}

// decide sets the outcomes of calls, each on the state that the calls before it left.
func (b *batch) decide(calls []*call) {
	for _, c := range calls {
		st := b.entries[c.Op.userID]
		e, err := c.Op.apply(*st, b.now)
		if c.Err = err; err == nil {
			st.entry, c.Out = &e, outcome{b.window.id, e}
		}
	}
}
