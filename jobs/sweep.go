package jobs

import (
	"context"
	"time"
)

const (
	keepCompleted = 24 * time.Hour // and cancelled
	keepDiscarded = 14 * 24 * time.Hour
	sweepChunk    = 1000
)

// sweepBinding deletes jobs that ended long ago, a chunk a transaction.
func (q *Queue) sweepBinding() Binding {
	return Binding{Name: "KIT_JOBS_SWEEP", Schedule: "23 * * * *", Run: func(ctx context.Context, _ Job) error {
		for state, keep := range map[State]time.Duration{StateCompleted: keepCompleted, StateCancelled: keepCompleted, StateDiscarded: keepDiscarded} {
			before := q.now().Add(-keep).UnixMilli()
			for {
				n, err := q.sweepEnded(ctx, state, before, sweepChunk)
				if err != nil {
					return err
				}
				if n < sweepChunk {
					break
				}
			}
		}
		return nil
	}}
}
