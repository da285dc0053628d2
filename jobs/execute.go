package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
)

const (
	lease     = 60 * time.Second
	heartbeat = 20 * time.Second
	// settleTries at settlePause cover a short outage of the database, so that work done is not done again.
	settleTries = 5
	settlePause = time.Second
	// statementTimeout bounds a statement that a stop does not cut short.
	statementTimeout = 10 * time.Second
)

// run is one attempt at a job.
type run struct {
	claimedJob
	queue      *Queue
	binding    Binding
	token      string
	leaseUntil time.Time
	completed  atomic.Bool // by Complete, and committed
}

type runKey struct{}

// Complete marks the job of ctx as done in the transaction of ctx, which must be one of the queue's
// database: the effects of a Run that are written in the same transaction happen exactly once,
// whichever node dies when. It returns [ErrLeaseLost] when the job is no longer this run's; return
// that error from the transaction. After the commit the outcome of Run changes nothing.
//
//	Run: func(ctx context.Context, job jobs.Job) error {
//		return db.InTx(ctx, func(ctx context.Context) error {
//			if err := grant(ctx, job.Payload); err != nil {
//				return err
//			}
//			return jobs.Complete(ctx)
//		})
//	}
func Complete(ctx context.Context) error {
	r, ok := ctx.Value(runKey{}).(*run)
	if !ok {
		return errors.New("jobs: Complete outside a Run")
	}
	if !r.queue.db.InTransaction(ctx) {
		return errors.New("jobs: Complete outside a transaction of the queue's database")
	}
	ours, err := r.queue.finish(ctx, r.ID, r.token, r.queue.now().UnixMilli())
	if err != nil {
		return err
	}
	if !ours {
		return ErrLeaseLost
	}
	database.AfterCommit(ctx, func() { r.completed.Store(true) })
	return nil
}

// execute runs a claimed job, calls returned, and records the outcome. The end of ctx means that the node stops.
func (q *Queue) execute(ctx context.Context, r *run, returned func()) {
	if !q.now().Before(r.leaseUntil) { // the node stood still since the claim, and another may have the job
		returned()
		q.giveBack(ctx, []*run{r})
		return
	}
	runCtx, lose := context.WithCancelCause(context.WithValue(ctx, runKey{}, r))
	defer lose(nil)
	runCtx, cancel := context.WithTimeoutCause(runCtx, r.binding.Timeout, r.binding.timedOut)
	defer cancel()
	defer q.keep(runCtx, r, lose)()

	end := q.observe(&runCtx, r)
	pause, err := q.call(runCtx, r)
	end(err)
	returned()
	if r.completed.Load() {
		if err != nil {
			q.logOf(r).WarnContext(ctx, "jobs: error after Complete", "error", err)
		}
		return
	}
	if cause := context.Cause(runCtx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	v := q.judge(r, err, pause, ctx.Err() != nil)
	if err != nil {
		q.logOf(r).Log(ctx, v.level, "jobs: not done", "error", err, "state", v.state)
	}
	ours, err := q.settle(ctx, r, v)
	if err == nil && !ours {
		err = ErrLeaseLost
	}
	switch {
	case err != nil:
		q.logOf(r).ErrorContext(ctx, "jobs: outcome not recorded", "error", err)
	case v.state == StateAvailable && ctx.Err() == nil:
		q.wake(ctx, v.runAt.UnixMilli())
	}
}

func (q *Queue) logOf(r *run) *slog.Logger {
	return q.log.With("binding", r.Binding, "job", r.ID, "attempt", r.Attempt)
}

// call runs the binding, and on failure asks it for the pause before the next attempt; a panic is a failure.
func (q *Queue) call(ctx context.Context, r *run) (pause time.Duration, err error) {
	pause = defaultBackoff(r.Attempt)
	defer func() {
		if v := recover(); v != nil {
			q.log.ErrorContext(ctx, "jobs: panic", "binding", r.Binding, "job", r.ID, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	if err = r.binding.Run(ctx, r.Job); err != nil {
		pause = max(r.binding.Backoff(r.Attempt), 0)
	}
	return pause, err
}

// keep renews the lease until the run ends, by stop or by the end of ctx, and cancels a run whose lease is lost. It
// takes a timer, not a goroutine, as most runs end before it is due.
func (q *Queue) keep(ctx context.Context, r *run, lose context.CancelCauseFunc) (stop func()) {
	k := &keeper{queue: q, run: r, ctx: ctx, lose: lose, until: r.leaseUntil}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.timer = time.AfterFunc(heartbeat, k.beat)
	return func() { k.timer.Stop() }
}

// keeper renews the lease of a run.
type keeper struct {
	queue *Queue
	run   *run
	ctx   context.Context
	lose  context.CancelCauseFunc

	mu    sync.Mutex // held by beat, which makes the next one due
	timer *time.Timer
	until time.Time
}

func (k *keeper) beat() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	k.timer.Reset(heartbeat)
	wanted := k.queue.now().Add(lease)
	ctx, cancel := context.WithTimeout(k.ctx, statementTimeout)
	ours, err := k.queue.extend(ctx, k.run.ID, k.run.token, wanted.UnixMilli())
	cancel()
	switch {
	case err == nil && ours:
		k.until = wanted
	case k.run.completed.Load() || k.ctx.Err() != nil:
		k.timer.Stop()
	case err == nil || !k.queue.now().Before(k.until):
		k.timer.Stop()
		k.lose(ErrLeaseLost)
	}
}

// verdict is the state that a job gets after a run.
type verdict struct {
	state  State
	runAt  time.Time // of a job that becomes available again
	refund int       // attempts given back
	reason string
	level  slog.Level
}

// judge turns the outcome of a run into a verdict. A node that stops gives back every job that is
// not done.
func (q *Queue) judge(r *run, outcome error, pause time.Duration, stopped bool) verdict {
	if outcome == nil {
		return verdict{state: StateCompleted}
	}
	var (
		wait *snoozed
		over *cancelled
		lost *permanent
		text = reason(outcome)
	)
	switch {
	case stopped:
		return verdict{StateAvailable, time.UnixMilli(r.runAt), 1, "", slog.LevelInfo}
	case errors.As(outcome, &wait):
		return verdict{StateAvailable, q.now().Add(wait.d), 1, "", slog.LevelDebug}
	case errors.As(outcome, &over):
		return verdict{state: StateCancelled, reason: text, level: slog.LevelInfo}
	case errors.As(outcome, &lost) || r.Attempt >= r.maxAttempts:
		return verdict{state: StateDiscarded, reason: text, level: slog.LevelError}
	}
	return verdict{StateAvailable, q.now().Add(pause), 0, text, slog.LevelWarn}
}

// settle records a verdict, unless the lease was lost.
func (q *Queue) settle(ctx context.Context, r *run, v verdict) (ours bool, err error) {
	r.Payload = nil // may be large, and the database may take its time
	ours, err = q.batches.settled.Do(context.WithoutCancel(ctx), q.outcomeOf(r, v))
	for try := 1; (err != nil || !ours) && !errors.Is(err, database.ErrClosed); try++ {
		if ours, err = q.record(ctx, r, v); err == nil || try == settleTries {
			break
		}
		<-time.After(settlePause)
	}
	return ours, err
}

// record records a verdict by itself.
func (q *Queue) record(ctx context.Context, r *run, v verdict) (ours bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	return q.settleOne(ctx, q.outcomeOf(r, v))
}

func (q *Queue) outcomeOf(r *run, v verdict) *outcome {
	return &outcome{verdict: v, id: r.ID, token: r.token, keyed: r.Key != "", now: q.now().UnixMilli()}
}
