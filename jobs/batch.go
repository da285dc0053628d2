package jobs

import (
	"context"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

// batchSize is how many jobs share a statement and a commit at most.
const batchSize = 256

// batches let callers that come at the same time share a commit, on PostgreSQL one statement too.
//
// Only jobs without a key are added together: one with a key may have to wait for the transaction of the holder,
// and the others would wait with it. For the same reason outcomes pass over rows that others hold.
type batches struct {
	added   queue.Queue[*row, struct{}]
	settled queue.Queue[*outcome, bool]
}

func (q *Queue) startBatches() {
	leaders := queue.WriteLeaders(q.db)
	q.batches.added.Run, q.batches.added.Size, q.batches.added.Leaders = q.addBatch, batchSize, leaders
	q.batches.settled.Run, q.batches.settled.Size, q.batches.settled.Leaders = q.settleBatch, batchSize, leaders
	q.batches.settled.Time = statementTimeout
}

func (q *Queue) addBatch(ctx context.Context, calls []*queue.Call[*row, struct{}]) int {
	rows := make([]*row, len(calls))
	for i, c := range calls {
		rows[i] = c.Op
	}
	err := q.insertTogether(ctx, rows)
	for _, c := range calls {
		c.Err = err
	}
	return len(calls)
}

// insertTogether adds jobs without a key, all or none.
func (q *Queue) insertTogether(ctx context.Context, rows []*row) error {
	if len(rows) == 1 || q.db.Dialect() == database.PostgreSQL { // one statement
		_, err := q.insert(ctx, rows...)
		return err
	}
	return q.db.InTx(ctx, func(ctx context.Context) error {
		_, err := q.insert(ctx, rows...)
		return err
	})
}

// outcome is a verdict on its way to the database.
type outcome struct {
	verdict
	id, token string
	keyed     bool // others may hold its row
	now       int64
}

func (q *Queue) settleBatch(ctx context.Context, calls []*queue.Call[*outcome, bool]) int {
	if o := calls[0].Op; len(calls) == 1 && !o.keyed {
		calls[0].Out, calls[0].Err = q.settleOne(ctx, o)
		return 1
	}
	all := make([]*outcome, len(calls))
	for i, c := range calls {
		all[i] = c.Op
	}
	settled, err := q.settleAll(ctx, all)
	for _, c := range calls {
		c.Out, c.Err = settled[c.Op.id], err
	}
	return len(calls)
}
