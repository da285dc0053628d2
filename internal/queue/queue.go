// Package queue lets concurrent callers share work: one of them runs the operations of all in one
// database transaction.
package queue

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/database"
)

const (
	batchTime = 30 * time.Second // for a batch, unless it says

	// A leader waits for callers that were just served, and will probably call again, for an eighth
	// of the time that the last batch took, up to maxPatience or maxYields.
	patience    = 8
	maxPatience = 100 * time.Microsecond
	maxYields   = 2000
)

var (
	// ErrFull is returned to a caller when MaxWaiting others wait.
	ErrFull = errors.New("queue: too many callers wait")
	// ErrAbandoned is returned to the callers whose leader panicked.
	ErrAbandoned = errors.New("queue: the shared work was abandoned")
)

// Queue runs operations in batches. The first caller leads: it runs its own
// operation at once, together with those that queued up while the batch before
// was run, and hands the lead to the next in the queue. The queue has no goroutine of its own, and
// a panic occurs in that of the caller who leads. The zero value needs Run and Size.
type Queue[Op, Out any] struct {
	// Run runs the first calls, sets their outcomes, and returns how many it ran, at least one. The
	// others begin the next batch.
	Run func(ctx context.Context, calls []*Call[Op, Out]) int
	// Size is how many calls a batch has at most.
	Size int
	// Leaders returns how many batches may be run at once; nil means one.
	Leaders func() int
	// MaxWaiting bounds the queue; 0 means no bound.
	MaxWaiting int
	// Time bounds a batch; it defaults to 30 seconds.
	Time time.Duration
	// Reads says that operations only read, so that a canceled caller may return while another runs
	// its operation. The caller who leads stays.
	Reads bool

	mu       sync.Mutex
	leading  int
	queue    []*Call[Op, Out]
	expected int           // callers of the next batch
	patience time.Duration // of its leader
	closed   chan struct{} // nil while open; closed itself when nobody leads any more
}

// Call is an operation whose caller waits.
type Call[Op, Out any] struct {
	Op  Op
	Out Out
	Err error
	// turn receives one value: true if the caller leads, false once it is served.
	turn chan bool
	// gone says that the caller returned while its batch was run.
	gone bool
}

// Do runs an operation and returns its outcome. If ctx ends before the operation begins, it is
// withdrawn. Do returns [ErrFull], [ErrAbandoned], and [database.ErrClosed] after Close.
func (q *Queue[Op, Out]) Do(ctx context.Context, op Op) (out Out, err error) {
	if err := ctx.Err(); err != nil {
		return out, err
	}
	c := &Call[Op, Out]{Op: op, turn: make(chan bool, 1)}
	lead, err := q.enter(c)
	if err != nil {
		return out, err
	}
	if !lead {
		select {
		case lead = <-c.turn:
		case <-ctx.Done():
			if q.withdraw(c) {
				return out, ctx.Err()
			}
			lead = <-c.turn // at once where callers may go
		}
	}
	if lead {
		q.lead(ctx, c)
	}
	return c.Out, c.Err
}

// enter makes the caller the leader, or adds it to the queue.
func (q *Queue[Op, Out]) enter(c *Call[Op, Out]) (lead bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed != nil:
		return false, database.ErrClosed
	case q.leading < q.leaders():
		q.leading++
		return true, nil
	case q.MaxWaiting > 0 && len(q.queue) >= q.MaxWaiting:
		return false, ErrFull
	}
	q.queue = append(q.queue, c)
	return false, nil
}

// WriteLeaders returns the Leaders of a queue that writes to a database: on PostgreSQL a batch is
// prepared while the one before commits.
func WriteLeaders(db *database.DB) func() int {
	return func() int {
		if db.Dialect() == database.PostgreSQL {
			return 2
		}
		return 1
	}
}

func (q *Queue[Op, Out]) leaders() int {
	if q.Leaders == nil {
		return 1
	}
	return q.Leaders()
}

// withdraw removes a call from the queue, unless it has been run, its caller leads, or it is being
// run and must be waited for.
func (q *Queue[Op, Out]) withdraw(c *Call[Op, Out]) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.queue, c); i >= 0 {
		q.queue = slices.Delete(q.queue, i, i+1)
		return true
	}
	c.gone = q.Reads && len(c.turn) == 0
	return c.gone
}

// lead runs the caller's operation with those that wait.
func (q *Queue[Op, Out]) lead(ctx context.Context, c *Call[Op, Out]) {
	calls := q.gather(c)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cmp.Or(q.Time, batchTime))
	defer cancel()
	began, served := time.Now(), 0
	defer func() {
		if served == 0 {
			served = len(calls)
			for _, c := range calls[1:] {
				var none Out
				c.Out, c.Err = none, ErrAbandoned
			}
		}
		q.end(calls, served, time.Since(began))
	}()
	served = q.Run(ctx, calls)
}

// gather returns the batch of a leader. It gives callers that were just served time to call again,
// so that a batch holds all of them, not every second one.
func (q *Queue[Op, Out]) gather(c *Call[Op, Out]) []*Call[Op, Out] {
	q.mu.Lock()
	defer q.mu.Unlock()
	until := time.Now().Add(q.patience)
	for yields := 0; len(q.queue)+1 < q.expected && yields < maxYields && time.Now().Before(until); yields++ {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
	n := min(len(q.queue), q.Size-1)
	calls := append([]*Call[Op, Out]{c}, q.queue[:n]...)
	q.queue = slices.Delete(q.queue, 0, n)
	return calls
}

// end wakes the callers that are served and hands over the lead.
func (q *Queue[Op, Out]) end(calls []*Call[Op, Out], served int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	again := slices.DeleteFunc(calls[served:], func(c *Call[Op, Out]) bool { return c.gone })
	q.queue = slices.Insert(q.queue, 0, again...)
	q.expected = min(served+len(q.queue), q.Size)
	q.patience = min(took/patience, maxPatience)
	for _, c := range calls[1:served] {
		c.turn <- false
	}
	q.handOver()
}

// handOver gives the lead to the next in the queue.
func (q *Queue[Op, Out]) handOver() {
	if len(q.queue) > 0 {
		q.queue[0].turn <- true
		q.queue = slices.Delete(q.queue, 0, 1)
		return
	}
	q.leading--
	if q.leading == 0 && q.closed != nil {
		close(q.closed)
	}
}

// Close refuses new calls and lets those in the queue finish.
func (q *Queue[Op, Out]) Close(ctx context.Context) error {
	q.mu.Lock()
	if q.closed == nil {
		q.closed = make(chan struct{})
		if q.leading == 0 {
			close(q.closed)
		}
	}
	q.mu.Unlock()
	select {
	case <-q.closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Waiting returns how many callers neither lead nor are in a batch.
func (q *Queue[Op, Out]) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue)
}

// Busy reports whether a caller leads.
func (q *Queue[Op, Out]) Busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.leading > 0
}

// Hold makes calls queue up, as if the last batch were being run, until release
// is called. It is for tests, on a queue that is not busy.
func (q *Queue[Op, Out]) Hold() (release func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.leading = q.leaders()
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.leading = 1
		q.handOver()
	}
}
