package jobs

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

// State is the state of a job.
type State string

// The states. A job that is available waits for its time, for a worker or for a repetition; the last three are final.
const (
	StateAvailable State = "available"
	StateRunning   State = "running"
	StateCompleted State = "completed"
	StateDiscarded State = "discarded" // attempts spent, or a permanent error
	StateCancelled State = "cancelled" // by Cancel or CancelAlarm, or replaced by an alarm while it ran and then not done
)

// Status is what the queue knows of a job.
type Status struct {
	ID          string
	Binding     string
	Key         string
	State       State
	Attempt     int // runs so far, the one under way included
	MaxAttempts int
	RunAt       time.Time // when it is or was due
	CreatedAt   time.Time
	FinishedAt  time.Time // zero unless final
	LastError   string    // of the last failed run, at most 1 KiB
}

// Job returns the status of a job; ok is false when it never was or has been swept: completed and cancelled jobs after
// a day, discarded ones after 14.
func (q *Queue) Job(ctx context.Context, id string) (status Status, ok bool, err error) {
	return database.Get(ctx, q.db, scanStatus, `SELECT `+statusColumns+` FROM kit_job WHERE id = $1`, id)
}

const statusColumns = `id, binding, key, state, attempt, max_attempts, run_at, created_at, finished_at, last_error`

func scanStatus(s database.Scanner) (v Status, err error) {
	var runAt, createdAt, finishedAt int64
	err = s.Scan(&v.ID, &v.Binding, &v.Key, &v.State, &v.Attempt, &v.MaxAttempts, &runAt, &createdAt, &finishedAt, &v.LastError)
	v.RunAt, v.CreatedAt = time.UnixMilli(runAt).UTC(), time.UnixMilli(createdAt).UTC()
	if finishedAt > 0 {
		v.FinishedAt = time.UnixMilli(finishedAt).UTC()
	}
	return v, err
}

// Filter selects jobs; zero fields select all.
type Filter struct {
	Binding string
	State   State
}

// maxListed bounds one page of List.
const maxListed = 200

// List returns jobs, newest first: at most limit of those with an id below one, "" for the newest; a limit outside of
// 1 to 200 becomes 200. It is for operators: where few jobs match it reads many.
func (q *Queue) List(ctx context.Context, f Filter, below string, limit int) ([]Status, error) {
	if limit < 1 || limit > maxListed {
		limit = maxListed
	}
	return database.All(ctx, q.db, scanStatus, `SELECT `+statusColumns+` FROM kit_job
		WHERE (CAST($1 AS TEXT) = '' OR binding = $1) AND (CAST($2 AS TEXT) = '' OR state = $2) AND (CAST($3 AS TEXT) = '' OR id < $3)
		ORDER BY id DESC LIMIT $4`, f.Binding, string(f.State), below, limit)
}

// Retry makes a job due now and counts its attempts anew: one that was discarded or cancelled, or one that waits. ok is
// false for any other, and for one whose key a newer job holds. It joins the transaction in ctx.
func (q *Queue) Retry(ctx context.Context, id string) (ok bool, err error) {
	now := q.now().UnixMilli()
	n, err := q.db.Exec(ctx, `UPDATE kit_job SET state = 'available', holds_key = key <> '', run_at = $2, attempt = 0,
			finished_at = 0
		WHERE id = $1 AND state IN ('available', 'discarded', 'cancelled') AND NOT EXISTS (SELECT 1 FROM kit_job AS other
			WHERE other.binding = kit_job.binding AND other.key = kit_job.key AND other.holds_key AND other.id <> kit_job.id)`, id, now)
	if ok = n == 1; ok {
		q.wake(ctx, now)
	}
	return ok, err
}

// Stats counts the jobs of all bindings.
type Stats struct {
	Available, Running, Completed, Discarded, Cancelled int64
	// Leased counts the running jobs whose lease has not expired, which shows that some node works.
	Leased int64
	// Lag is how long the job that is due longest has waited for a worker, 0 when none is due; jobs of bindings that
	// this queue does not know are left out.
	Lag time.Duration
}

// Stats counts the jobs; its cost grows with their number.
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	var stats Stats
	counts := map[State]*int64{StateAvailable: &stats.Available, StateRunning: &stats.Running, StateCompleted: &stats.Completed,
		StateDiscarded: &stats.Discarded, StateCancelled: &stats.Cancelled}
	_, err := database.All(ctx, q.db, func(s database.Scanner) (state State, err error) {
		var n int64
		if err = s.Scan(&state, &n); err == nil {
			*counts[state] = n
		}
		return state, err
	}, `SELECT 'available', count(*) FROM kit_job WHERE state = 'available'
		UNION ALL SELECT 'running', count(*) FROM kit_job WHERE state = 'running'
		UNION ALL SELECT state, count(*) FROM kit_job WHERE finished_at > 0 GROUP BY state`)
	if err != nil {
		return Stats{}, err
	}
	stats.Lag, stats.Leased, err = q.Lag(ctx)
	return stats, err
}

// Lag returns the two of the [Stats] that tell whether any node works: how long the job that is due
// longest has waited, and how many jobs are leased. Its cost does not grow with the number of jobs.
func (q *Queue) Lag(ctx context.Context) (lag time.Duration, leased int64, err error) {
	now := q.now()
	due, err := q.due(ctx, q.names())
	if err != nil {
		return 0, 0, err
	}
	if len(due) > 0 {
		lag = max(now.Sub(time.UnixMilli(due[0].runAt)), 0)
	}
	leased, err = q.leased(ctx, now.UnixMilli())
	return lag, leased, err
}
