package ledger

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/database"
)

const (
	batchSize = 256              // operations in one transaction at most
	batchTime = 30 * time.Second // for one of them
)

// batcher shares transactions between concurrent callers. The first caller
// leads: it runs its operation at once, together with those that queued up
// while the transaction before was written, and hands the lead to the next in
// the queue. Nothing waits for a batch to fill, and there is no goroutine
// beside the callers'.
//
// A batch reads and writes an account once for all its operations. On PostgreSQL
// they also do not wait for each other's commits.
type batcher struct {
	store   store
	mu      sync.Mutex
	leading int
	queue   []*call
}

// call is an operation whose caller waits.
type call struct {
	op  *operation
	out outcome
	err error
	// turn says, once, that the caller leads (true) or that it is served.
	turn chan bool
}

// errAbandoned is for those whose leader did not come back.
var errAbandoned = errors.New("ledger: the shared transaction was abandoned")

// leaders is how many may lead at once.
func (b *batcher) leaders() int {
	if b.store.db.Dialect() == database.PostgreSQL {
		return 2 // one decides while the other commits
	}
	return 1
}

// do brings an operation to its outcome. A caller that goes away takes back an
// operation that has not begun.
func (b *batcher) do(ctx context.Context, op *operation) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	c := &call{op: op, turn: make(chan bool, 1)}
	lead := b.enter(c)
	if !lead {
		select {
		case lead = <-c.turn:
		case <-ctx.Done():
			if b.withdraw(c) {
				return outcome{}, ctx.Err()
			}
			lead = <-c.turn
		}
	}
	if lead {
		b.lead(ctx, c)
	}
	return c.out, c.err
}

// enter lets a caller lead, or puts it into the queue.
func (b *batcher) enter(c *call) (lead bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.leading < b.leaders() {
		b.leading++
		return true
	}
	b.queue = append(b.queue, c)
	return false
}

func (b *batcher) withdraw(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, c)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// lead runs the caller's operation with those that wait.
func (b *batcher) lead(ctx context.Context, c *call) {
	b.gather()
	b.mu.Lock()
	n := min(len(b.queue), batchSize-1)
	calls := append([]*call{c}, b.queue[:n]...)
	b.queue = b.queue[n:]
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchTime)
	defer cancel()
	returned := false
	defer func() {
		for _, served := range calls[1:] {
			if !returned { // a panic, which stays the leader's
				served.out, served.err = outcome{}, errAbandoned
			}
			served.turn <- false
		}
		b.handOver()
	}()
	b.run(ctx, calls)
	returned = true
}

// gather lets callers that were just served come to the queue again, so that a
// batch is all of them, not every second. It ends when nobody comes.
func (b *batcher) gather() {
	for before := -1; before < b.waiting(); {
		before = b.waiting()
		runtime.Gosched()
	}
}

func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// handOver gives the lead to the next in the queue.
func (b *batcher) handOver() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.leading--
		return
	}
	b.queue[0].turn <- true
	b.queue = b.queue[1:]
}

// run brings calls to their outcomes. What the database refuses as a whole,
// because another node opened an account or took a ref at the same instant, is
// done again one by one, so that no call fails for its neighbours.
func (b *batcher) run(ctx context.Context, calls []*call) {
	var err error
	alone := len(calls) == 1
	if !alone {
		err = b.store.db.InTx(ctx, func(ctx context.Context) error { return b.store.applyAll(ctx, calls) })
		var violation *database.ConstraintError
		alone = errors.As(err, &violation)
	}
	for _, c := range calls {
		switch {
		case alone:
			c.out, c.err = b.store.alone(ctx, c.op)
		case err != nil:
			c.out, c.err = outcome{}, err
		}
	}
}
