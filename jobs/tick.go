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
	looked   time.Time // when it last did

	ahead time.Time // the last tick, if it lies in the future
	since time.Time // when this node first saw it there
}

// maxDoubt bounds how long a tick from the future is waited on.
const maxDoubt = time.Hour

// due reports whether to look. After a clock has jumped back, next may be far away.
func (t *timer) due(now time.Time) bool { return !t.next.After(now) || now.Before(t.looked) }

// tick enqueues the ticks that are due and returns when the next one is, zero without schedules.
func (q *Queue) tick(ctx context.Context) (next time.Time, err error) {
	q.ticking.Lock()
	defer q.ticking.Unlock()
	for _, t := range q.timers {
		if now := q.now(); t.due(now) {
			if err := q.advance(ctx, t, now); err != nil {
				return time.Time{}, err
			}
			t.looked, t.next = now, t.schedule.Next(now)
			if end := t.since.Add(t.doubt(now)); !t.ahead.IsZero() && end.Before(t.next) {
				t.next = end
			}
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
	var last time.Time
	err := q.db.InTx(ctx, func(ctx context.Context) (err error) {
		moved, err := q.moveTick(ctx, t.binding, q.born.UnixMilli(), tick.UnixMilli())
		if err == nil && !moved {
			last, err = q.lastTick(ctx, t.binding)
		}
		if err != nil || !moved {
			return err
		}
		last = tick
		r, err := q.newRow(t.binding, nil)
		if err != nil {
			return err
		}
		r.Key, r.runAt = tick.Format(time.RFC3339), tick.UnixMilli()
		_, err = q.insert(ctx, &r)
		return err
	})
	if err != nil {
		return err
	}
	return q.doubt(ctx, t, last, now)
}

// doubt handles a schedule whose last tick is in the future: some clock was far ahead, and the
// schedule would stand still until then. Once no node has moved it on for the length of an
// interval, it resumes from the time at which this node first saw it.
func (q *Queue) doubt(ctx context.Context, t *timer, last, now time.Time) error {
	switch {
	case !last.After(t.schedule.Next(now)):
		t.ahead = time.Time{}
		return nil
	case !last.Equal(t.ahead) || now.Before(t.since):
		t.ahead, t.since = last, now
		q.log.WarnContext(ctx, "jobs: the last tick of a schedule is in the future, as after a clock that was ahead; "+
			"it goes on unless a node moves it", "binding", t.binding, "last", last, "now", now, "within", t.doubt(now))
		return nil
	case now.Sub(t.since) < t.doubt(now):
		return nil
	}
	since := t.schedule.Latest(t.since)
	moved, err := q.resetTick(ctx, t.binding, last.UnixMilli(), since.UnixMilli())
	if err != nil {
		return err
	}
	t.ahead = time.Time{}
	if moved {
		q.log.WarnContext(ctx, "jobs: a schedule goes on whose last tick was in the future", "binding", t.binding,
			"last", last, "from", since)
	}
	return q.advance(ctx, t, now)
}

// doubt returns how long a schedule waits on a last tick that is in the future.
func (t *timer) doubt(now time.Time) time.Duration {
	next := t.schedule.Next(now)
	return min(t.schedule.Next(next).Sub(next), maxDoubt)
}
