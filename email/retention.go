package email

import (
	"context"
	"time"

	"github.com/kitbackend/kit/jobs"
)

const (
	keepIdempotency = 30 * day
	keepMailbox     = 7 * day
	sweepChunk      = 500
)

// runSweep deletes expired records, a chunk per transaction.
func (e *Email) runSweep(ctx context.Context, _ jobs.Job) error {
	now := e.host.Now()
	for _, sweep := range []struct {
		chunk  func(ctx context.Context, before time.Time, limit int) (int64, error)
		before time.Time
	}{
		{e.store.sweepMessages, now.Add(-e.cfg.Retention.Bodies)},
		{e.store.sweepKeys, now.Add(-keepIdempotency)},
		{e.store.sweepJobs, now.Add(-e.cfg.Retention.Jobs)},
		{e.store.sweepSuppressions, now},
		{e.mailbox.Sweep, now.Add(-keepMailbox)},
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
	return nil
}
