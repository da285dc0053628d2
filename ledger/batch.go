package ledger

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // operations in one transaction at most

// call is an operation whose caller waits.
type call = queue.Call[*operation, outcome]

// newQueue shares transactions between concurrent callers. A batch reads and
// writes an account once for all its operations.
func newQueue(s store) *queue.Queue[*operation, outcome] {
	return &queue.Queue[*operation, outcome]{Run: s.run, Size: batchSize, Leaders: s.leaders}
}

// leaders is how many batches are under way at once.
func (s store) leaders() int {
	if s.db.Dialect() == database.PostgreSQL {
		return 2 // one decides while the other commits
	}
	return 1
}

// run brings calls to their outcomes. What the database refuses as a whole,
// because another node opened an account or took a ref at the same instant, is
// done again one by one, so that no call fails for its neighbours.
func (s store) run(ctx context.Context, calls []*call) int {
	var err error
	alone := len(calls) == 1
	if !alone {
		err = s.db.InTx(ctx, func(ctx context.Context) error { return s.applyAll(ctx, calls) })
		var violation *database.ConstraintError
		alone = errors.As(err, &violation)
	}
	for _, c := range calls {
		switch {
		case alone:
			c.Out, c.Err = s.alone(ctx, c.Op)
		case err != nil:
			c.Out, c.Err = outcome{}, err
		}
	}
	return len(calls)
}
