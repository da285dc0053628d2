package jobs

import (
	"context"
	"encoding/json"
	"time"
)

// Binding names a kind of job and says how it runs. The specification's
// bindings (PAYMENTS_RECONCILE, STORAGE_SWEEP, ...) are names of bindings.
type Binding struct {
	// Name is unique in the kit: upper case letters, digits and underscores.
	Name string
	// Schedule is a five-field cron expression in UTC; empty for jobs that are
	// only enqueued.
	Schedule string
	// MaxAttempts bounds the runs that end in an error; 0 means 10.
	MaxAttempts int
	// Timeout bounds one run; 0 means 5 minutes.
	Timeout time.Duration
	// Backoff says how long to wait after a failed attempt (1, 2, ...); nil
	// means min(1h, 2^attempt s) with 20 % jitter.
	Backoff func(attempt int) time.Duration
	// Run does the work. It may run more than once for one job (a node that
	// died after the work and before the acknowledgement), so it is idempotent.
	Run func(ctx context.Context, job Job) error
}

// Job is one run of a binding.
type Job struct {
	ID      string
	Binding string
	// Key is the unique key it was enqueued under; for a scheduled tick the
	// instant of the tick.
	Key     string
	Payload json.RawMessage
	// Attempt counts from 1.
	Attempt int
}
