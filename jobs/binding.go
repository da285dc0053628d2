package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/kitbackend/kit/internal/cron"
	"github.com/kitbackend/kit/internal/strictjson"
)

// Binding names a kind of job and says how it runs. The specification's
// bindings (PAYMENTS_RECONCILE, STORAGE_SWEEP, ...) are names of bindings.
type Binding struct {
	// Name is unique in the kit: upper case letters, digits and underscores.
	Name string
	// Schedule is a five-field cron expression in UTC; empty for jobs that are
	// only enqueued.
	Schedule string
	// MaxAttempts bounds the runs that end in an error; 0 means 10. A node that
	// dies spends an attempt of each job that it has claimed; where there is only
	// one, jobs are claimed when a worker is free.
	MaxAttempts int
	// Timeout bounds one run; 0 means 5 minutes.
	Timeout time.Duration
	// Backoff says how long to wait after a failed attempt (1, 2, ...); nil
	// means min(1h, 2^attempt s) with 20 % jitter.
	Backoff func(attempt int) time.Duration
	// Run does the work. It may run more than once for one job (a node that
	// died after the work and before the acknowledgement), so it is idempotent.
	Run func(ctx context.Context, job Job) error
	// Dispatch allows outside callers that hold the dispatch key to start the binding; the zero
	// value allows none.
	Dispatch Dispatch

	timedOut error // the cause of a run that did
}

// Fault is one reason why a binding is refused.
type Fault struct {
	Binding string // its name
	Reason  string
	Fix     string // what to change
}

func (f *Fault) Error() string {
	return fmt.Sprintf("jobs: binding %.80q: %s (%s)", f.Binding, f.Reason, f.Fix)
}

var nameForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// Faults returns why [Queue.Register] would refuse the binding, whatever others there are.
func (b Binding) Faults() (list []*Fault) {
	add := func(reason, fix string) { list = append(list, &Fault{b.Name, reason, fix}) }
	if !nameForm.MatchString(b.Name) {
		add("has a name that is not one of a job", "use upper case letters, digits and underscores, at most 64, a letter first")
	}
	if b.Run == nil {
		add("has no Run", "give it a function that does the work")
	}
	if b.MaxAttempts < 0 || b.Timeout < 0 {
		add("has a negative MaxAttempts or Timeout", "use a positive one, or 0 for the default")
	}
	if _, err := cron.Parse(b.Schedule); err != nil && b.Schedule != "" {
		add("has no schedule that can be read: "+err.Error(), "write minute, hour, day of month, month and day of week in UTC, like 17 * * * *")
	}
	return list
}

// Dispatch says whether outside callers may start a binding, and with what
// payload. Only [Dispatchable] makes one that lets them.
type Dispatch struct {
	check func(payload json.RawMessage) error
}

// Dispatchable allows outside callers to start the binding with a payload that decodes strictly
// into T; an absent payload is null.
func Dispatchable[T any]() Dispatch {
	return Dispatch{check: func(payload json.RawMessage) error {
		if len(payload) == 0 || string(payload) == "null" {
			return nil
		}
		return strictjson.Decode(payload, new(T))
	}}
}

// Allowed reports whether outside callers may start the binding.
func (d Dispatch) Allowed() bool { return d.check != nil }

// Check returns an error that says, in a sentence for the caller, what is wrong with a payload.
func (d Dispatch) Check(payload json.RawMessage) error { return d.check(payload) }

// Dispatch returns whether and how outside callers may start a binding.
func (q *Queue) Dispatch(name string) Dispatch {
	b, _ := q.binding(name)
	return b.Dispatch
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
