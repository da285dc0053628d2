package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
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

// Complete marks the job of ctx as done in the transaction of ctx, which must be one of the queue's database: the
// effects of a Run that are written in the same transaction happen exactly once, whatever dies when. It returns
// [ErrLeaseLost] when the job is no longer this run's; return that error from the transaction. After the commit the
// outcome of Run changes nothing.
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
	ours, err := r.queue.finish(ctx, r.ID, r.token, StateCompleted, "", r.queue.now().UnixMilli())
	if err != nil {
		return err
	}
	if !ours {
		return ErrLeaseLost
	}
	database.AfterCommit(ctx, func() { r.completed.Store(true) })
	return nil
}

// execute runs a claimed job and records the outcome. The end of ctx means that the node stops.
func (q *Queue) execute(ctx context.Context, r *run) {
	runCtx, lose := context.WithCancelCause(context.WithValue(ctx, runKey{}, r))
	defer lose(nil)
	runCtx, cancel := context.WithTimeoutCause(runCtx, r.binding.Timeout, fmt.Errorf("jobs: timed out after %s", r.binding.Timeout))
	defer cancel()
	go q.keep(runCtx, r, lose)

	end := q.observe(&runCtx, r)
	pause, err := q.call(runCtx, r)
	end(err)
	log := q.log.With("binding", r.Binding, "job", r.ID, "attempt", r.Attempt)
	if r.completed.Load() {
		if err != nil {
			log.WarnContext(ctx, "jobs: error after Complete", "error", err)
		}
		return
	}
	if cause := context.Cause(runCtx); err != nil && cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	v := q.judge(r, err, pause, ctx.Err() != nil)
	if err != nil {
		log.Log(ctx, v.level, "jobs: not done", "error", err, "state", v.state)
	}
	ours, err := q.settle(ctx, r, v)
	if err == nil && !ours {
		err = ErrLeaseLost
	}
	if err != nil {
		log.ErrorContext(ctx, "jobs: outcome not recorded", "error", err)
	}
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

// keep renews the lease until the run ends or is cancelled, and cancels a run whose lease is lost.
func (q *Queue) keep(ctx context.Context, r *run, lose context.CancelCauseFunc) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	until := r.leaseUntil
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		wanted := q.now().Add(lease)
		tryCtx, cancel := context.WithTimeout(ctx, statementTimeout)
		ours, err := q.extend(tryCtx, r.ID, r.token, wanted.UnixMilli())
		cancel()
		switch {
		case err == nil && ours:
			until = wanted
		case r.completed.Load():
			return
		case err == nil || !q.now().Before(until):
			lose(ErrLeaseLost)
			return
		}
	}
}

// verdict is what becomes of a job after a run.
type verdict struct {
	state  State
	runAt  time.Time // of a job that becomes available again
	refund int       // attempts given back
	reason string
	level  slog.Level
}

// judge turns the outcome of a run into a verdict. A node that stops gives everything back that is not done.
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
	for try := 1; ; try++ {
		ours, err = q.record(ctx, r, v)
		if err == nil || errors.Is(err, database.ErrClosed) || try == settleTries {
			return ours, err
		}
		<-time.After(settlePause)
	}
}

func (q *Queue) record(ctx context.Context, r *run, v verdict) (ours bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	now := q.now().UnixMilli()
	if v.state == StateAvailable {
		return q.release(ctx, r.ID, r.token, v.runAt.UnixMilli(), v.refund, v.reason, now)
	}
	return q.finish(ctx, r.ID, r.token, v.state, v.reason, now)
}
