// Package jobs runs durable work: jobs are rows of the database, enqueued in the transaction of the
// change that causes them, and run by every node that calls [Queue.Run].
//
// The promises:
//   - A job enqueued in a transaction exists when it commits and never when it does not.
//     Acknowledged jobs survive whatever acknowledged rows survive.
//   - A job runs at least once. Work that is written in the queue's database takes effect exactly
//     once when its transaction calls [Complete]; everything else has to be idempotent.
//   - One node at a time runs a job, under a lease of 60 seconds that it renews every 20. A node
//     that dies or is cut off loses the lease, another takes over, and what the first one reports
//     later is not recorded. Nodes need clocks that agree within half a minute.
//   - A failed run is repeated after a growing pause until MaxAttempts are spent, then the job is discarded.
//   - Schedules are read in UTC and need no leader: each tick becomes one job over all nodes.
//     Ticks missed while no node ran become one job, for the latest. When a run takes longer than
//     the interval, two ticks run at the same time.
//   - A clock that jumps back by less than an interval repeats no tick. After a clock that was
//     further ahead a schedule resumes by itself, within an interval and an hour at most, and
//     logs that; ticks since then may run again.
//   - One binding takes at most three quarters of a node's workers, so a slow one does not hold
//     up the others. A worker is free when its run returns; the outcome is recorded with others,
//     a thousand of which may wait.
//   - A node claims jobs ahead of its workers while their runs are short: as many as take 25 ms,
//     128 at most. One that still waits after 100 ms is given back, attempt and all, and other
//     nodes are told.
//
// Capabilities declare bindings and enqueue; the kit registers the bindings and calls Run.
package jobs

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/cron"
	"github.com/kitbackend/kit/pubsub"
)

const (
	defaultWorkers     = 32
	defaultSoftStop    = 25 * time.Second
	defaultMaxAttempts = 10
	defaultTimeout     = 5 * time.Minute
)

//go:embed migrations/*.sql
var migrations embed.FS

// Migrations returns the tables kit_job and kit_cron.
func Migrations() database.Migrations {
	return database.Migrations{Name: "jobs", FS: migrations}
}

// Options adjusts [New].
type Options struct {
	// Log gets failed runs and lost leases; nil means slog.Default().
	Log *slog.Logger
	// Now is the clock of due times, leases and ticks; nil means time.Now.
	Now func() time.Time
	// Workers is the number of jobs that Run runs at the same time; 0 means 32.
	Workers int
	// SoftStop is how long Run, once told to stop, waits for runs under way before it cancels them; 0 means 25 seconds.
	SoftStop time.Duration
}

// Queue runs durable jobs. It is safe for concurrent use.
type Queue struct {
	db       *database.DB
	bus      *pubsub.Bus
	log      *slog.Logger
	now      func() time.Time
	workers  int
	softStop time.Duration
	born     time.Time

	telemetry telemetry
	batches   batches

	mu       sync.RWMutex
	bindings map[string]Binding
	sealed   bool // Run or RunDue was called

	ticking sync.Mutex
	timers  []*timer // of scheduled bindings

	running atomic.Bool
	planned atomic.Int64  // when Run looks next, unix ms
	news    chan struct{} // jobs which other nodes have not been told about
	again   chan struct{} // any other reason to look
}

// New returns a queue on the tables of db. It does no I/O. The bus wakes the queues of other nodes; nil means that there
// are none.
func New(db *database.DB, bus *pubsub.Bus, opts Options) *Queue {
	if bus == nil {
		bus = pubsub.NewMemory()
	}
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Workers <= 0 {
		opts.Workers = defaultWorkers
	}
	if opts.SoftStop <= 0 {
		opts.SoftStop = defaultSoftStop
	}
	q := &Queue{
		db: db, bus: bus, log: opts.Log, now: opts.Now, workers: opts.Workers, softStop: opts.SoftStop, born: opts.Now(),
		telemetry: newTelemetry(),
		bindings:  map[string]Binding{}, news: make(chan struct{}, 1), again: make(chan struct{}, 1),
	}
	q.startBatches()
	if err := q.Register(q.sweepBinding()); err != nil {
		panic(err) // a constant
	}
	return q
}

// Register adds bindings, before the first Run or RunDue. Names are unique and match ^[A-Z][A-Z0-9_]{0,63}$. Every
// fault is reported, a [*Fault] each, and then none of the bindings is added.
func (q *Queue) Register(bindings ...Binding) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sealed {
		return errors.New("jobs: Register after Run")
	}
	added, timers, faults := maps.Clone(q.bindings), slices.Clone(q.timers), []error{}
	for _, b := range bindings {
		for _, fault := range b.Faults() {
			faults = append(faults, fault)
		}
		if _, ok := added[b.Name]; ok {
			faults = append(faults, &Fault{b.Name, "has the name of another", "give each its own"})
		}
		if b.Schedule != "" {
			schedule, _ := cron.Parse(b.Schedule)
			timers = append(timers, &timer{binding: b.Name, schedule: schedule})
		}
		added[b.Name] = b.withDefaults()
	}
	if len(faults) > 0 {
		return errors.Join(faults...)
	}
	q.bindings, q.timers = added, timers
	return nil
}

func (b Binding) withDefaults() Binding {
	if b.MaxAttempts == 0 {
		b.MaxAttempts = defaultMaxAttempts
	}
	if b.Timeout == 0 {
		b.Timeout = defaultTimeout
	}
	if b.Backoff == nil {
		b.Backoff = defaultBackoff
	}
	b.timedOut = fmt.Errorf("jobs: timed out after %s", b.Timeout)
	return b
}

// Has reports whether the binding is registered.
func (q *Queue) Has(binding string) bool {
	_, ok := q.binding(binding)
	return ok
}

func (q *Queue) binding(name string) (Binding, bool) {
	q.mu.RLock()
	defer q.mu.RUnlock()
	b, ok := q.bindings[name]
	return b, ok
}

// names returns the names of the bindings, sorted.
func (q *Queue) names() []string {
	q.mu.RLock()
	defer q.mu.RUnlock()
	return slices.Sorted(maps.Keys(q.bindings))
}

// seal ends registration.
func (q *Queue) seal() []string {
	q.mu.Lock()
	q.sealed = true
	q.mu.Unlock()
	return q.names()
}

// wake makes a queue look for a job that is due at runAt, once the transaction in ctx has been
// committed. A node that runs looks itself, and wakes the others only when it has no free worker.
func (q *Queue) wake(ctx context.Context, runAt int64) {
	database.AfterCommit(ctx, func() {
		switch {
		case !q.running.Load():
			q.tellOthers()
		case runAt < q.planned.Load():
			signal(q.news)
		}
	})
}

// topic is where queues without a free worker ask the others for help.
const topic = "kit/jobs"

func (q *Queue) tellOthers() {
	if err := q.bus.Publish(context.Background(), topic, nil); err != nil {
		q.log.Warn("jobs: other nodes not told", "error", err)
	}
}

// signal wakes the reader of c; one signal waiting is enough.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
