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

const batchSize = 256 // submissions in one transaction at most

// call is a submission whose caller waits.
type call = queue.Call[*operation, outcome]

// batcher shares transactions between concurrent callers of one board. The
// operations of a batch are decided one after the other in memory, by the same
// rules as alone, and each row is written once.
//
// On PostgreSQL, while nobody else changes the board, a batch is two statements:
// one that reads, and one that writes if the version of the board is still that
// which was read. Rows that earlier batches wrote need not be read again: the
// same condition proves that they are the newest. Otherwise a batch is a transaction that
// locks the board first.
type batcher struct {
	queue.Queue[*operation, outcome]
	store store
	board *board

	// The board after the last batch; only for the caller that leads.
	version  int64
	last     state            // without an entry
	openedAt int64            // of its window
	known    map[string]entry // by user id, nil while nothing is known
}

func newBatcher(s store, b *board) *batcher {
	batcher := &batcher{store: s, board: b}
	batcher.Run, batcher.Size = batcher.run, batchSize
	return batcher
}

// run brings calls to their outcomes. A refusal is that of one call; an error
// of the database, which no call by itself can cause, is everybody's.
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

// try is the way without a lock. It does nothing if somebody else has changed
// the board since the last batch, or does so now.
func (b *batcher) try(ctx context.Context, calls []*call) (done bool, err error) {
	batch := b.recall(ctx, calls)
	if batch != nil {
		batch.decide(calls)
	}
	if batch == nil || !batch.changed() { // only what is written is held to the version
		batch, err = b.load(ctx, calls)
		if err != nil || !batch.ready() || batch.version != b.version {
			return false, err
		}
		batch.decide(calls)
	}
	known := b.known
	b.known = nil // until it is sure what the batch has left
	if done, err = b.save(ctx, batch); done && err == nil {
		b.known = known
		b.remember(batch)
	}
	return done, err
}

// recall returns what calls meet if all of it is known, and otherwise nil.
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

// remember keeps what a batch has left.
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

// locked is the path with the board locked.
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

// batch is what the operations of some calls meet and change.
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

// decide brings calls to their outcomes, each on what those before it left.
func (b *batch) decide(calls []*call) {
	for _, c := range calls {
		st := b.entries[c.Op.userID]
		e, err := c.Op.apply(*st, b.now)
		if c.Err = err; err == nil {
			st.entry, c.Out = &e, outcome{b.window.id, e}
		}
	}
}
