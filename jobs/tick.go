package jobs

import (
	"context"
	"time"

	"github.com/kitbackend/kit/internal/cron"
)

// timer is the schedule of a binding.
type timer struct {
	binding  string
	schedule cron.Schedule
	next     time.Time // when this node looks again
}

// tick enqueues the ticks that are due and returns when the next one is, zero without schedules.
func (q *Queue) tick(ctx context.Context) (next time.Time, err error) {
	q.ticking.Lock()
	defer q.ticking.Unlock()
	for _, t := range q.timers {
		if now := q.now(); !t.next.After(now) {
			if err := q.advance(ctx, t, now); err != nil {
				return time.Time{}, err
			}
			t.next = t.schedule.Next(now)
		}
		if next.IsZero() || t.next.Before(next) {
			next = t.next
		}
	}
	return next, nil
}

// advance enqueues the latest tick of a schedule unless some node already has.
func (q *Queue) advance(ctx context.Context, t *timer, now time.Time) error {
	tick := t.schedule.Latest(now)
	return q.db.InTx(ctx, func(ctx context.Context) error {
		moved, err := q.moveTick(ctx, t.binding, q.born.UnixMilli(), tick.UnixMilli())
		if err != nil {
			return err
		}
		if !moved {
			return q.checkClock(ctx, t.binding, now)
		}
		r, err := q.newRow(t.binding, nil)
		if err != nil {
			return err
		}
		r.Key, r.runAt = tick.Format(time.RFC3339), tick.UnixMilli()
		_, err = q.insert(ctx, r)
		return err
	})
}

// checkClock warns when a schedule stands still because some clock was once far ahead.
func (q *Queue) checkClock(ctx context.Context, binding string, now time.Time) error {
	last, err := q.lastTick(ctx, binding)
	if err == nil && last.Sub(now) > time.Minute {
		q.log.WarnContext(ctx, "jobs: no ticks before the clock has passed the last one", "binding", binding, "last", last, "now", now)
	}
	return err
}
