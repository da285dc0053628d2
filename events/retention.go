package events

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

const sweepChunk = 500

// runSweep deletes expired messages, one chunk in each transaction.
func (e *Events) runSweep(ctx context.Context, _ jobs.Job) error {
	before := e.host.Now().Add(-e.cfg.Retention)
	for {
		n := 0
		err := e.host.DB.InTx(ctx, func(ctx context.Context) error {
			ids, err := e.store.before(ctx, before, sweepChunk)
			if n = len(ids); err != nil || n == 0 {
				return err
			}
			return e.store.remove(ctx, ids)
		})
		if err != nil || n < sweepChunk {
			return err
		}
	}
}
