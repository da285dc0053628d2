package multiplayer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/jobs"
)

// The jobs of multiplayer.
const (
	deadlineBinding = "MULTIPLAYER_DEADLINE"
	sweepBinding    = "MULTIPLAYER_SWEEP"
)

// overdueAfter is how long after a deadline the sweep ends a turn whose alarm is lost.
const overdueAfter = 5 * time.Minute

func (m *Multiplayer) jobs() []jobs.Binding {
	return []jobs.Binding{
		{
			Name: deadlineBinding, MaxAttempts: 1000,
			Backoff: func(attempt int) time.Duration { return min(time.Minute, time.Second<<min(attempt, 6)) },
			Run:     func(ctx context.Context, job jobs.Job) error { return m.expire(ctx, job.Key) },
		},
		{
			Name: sweepBinding, Schedule: "17 * * * *",
			Run: func(ctx context.Context, _ jobs.Job) error { return m.sweep(ctx) },
		},
	}
}

// setAlarm schedules a job for the session's deadline. A deadline moves with every action and the
// alarm does not: one that fires too early snoozes until the new deadline. So a job is written at
// most once for each time limit that passes, not once for each action.
func (m *Multiplayer) setAlarm(ctx context.Context, s *session) error {
	return m.host.Jobs.SetAlarm(ctx, deadlineBinding, s.id, time.UnixMilli(s.alarm), nil)
}

// expire ends the turn of a session whose deadline has passed. It can be called at any time: the
// session itself decides whether the deadline has passed.
func (m *Multiplayer) expire(ctx context.Context, id string) error {
	s, err := m.current(ctx, id)
	if err != nil || s.phase.Terminal() || s.deadline == 0 {
		return ignoreMissing(err)
	}
	now := m.now().UnixMilli()
	if now >= s.deadline {
		if err := m.end(ctx, id, now); err != nil {
			return err
		}
		if s, err = m.current(ctx, id); err != nil || s.phase.Terminal() || s.deadline == 0 {
			return err
		}
	}
	return jobs.Snooze(time.Duration(s.deadline-now) * time.Millisecond)
}

// end ends a turn whose time is over. If the ledger or the model refuses that, the session is
// abandoned.
func (m *Multiplayer) end(ctx context.Context, id string, now int64) error {
	_, err := m.do(ctx, id, step{kind: stepExpire, at: now})
	if isFinal(err) && !errors.Is(err, ErrSessionNotFound) {
		m.log.Warn("multiplayer: the end of a turn was refused, the session is abandoned", slog.String("session", id), slog.Any("error", err))
		_, err = m.do(ctx, id, step{kind: stepAbandon, at: now})
	}
	return err
}

// isFinal reports whether a step that is retried would fail again: the rules, the ledger or a fault
// of the model forbid it. Temporary refusals, such as too many callers of the session, are not
// final.
func isFinal(err error) bool {
	for _, own := range []error{errRefused, errSettled, errNoLedger, errBroken, errPanicked} {
		if errors.Is(err, own) {
			return true
		}
	}
	var refused *capability.Error
	var f *fault
	return errors.As(err, &f) || errors.As(err, &refused) && refused.Status < http.StatusInternalServerError &&
		!errors.Is(err, capability.ErrRateLimited)
}

// now returns the time in whole milliseconds, outside of every transaction.
func (m *Multiplayer) now() time.Time { return m.host.DB.Now(context.Background()) }
