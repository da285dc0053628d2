package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/database"
)

const (
	// pollSQLite and pollPostgres bound how long a job waits whose hint was lost.
	pollSQLite   = time.Second
	pollPostgres = 5 * time.Second
	// rescueEvery is how often a node looks for expired leases.
	rescueEvery = 10 * time.Second
	// minWait keeps a job that is due but locked by a transaction from spinning the loop.
	minWait  = 10 * time.Millisecond
	maxClaim = 256
	// maxUnsettled is how many runs may have returned without their outcome being recorded.
	maxUnsettled = 1000
	// unwind is how long a cancelled run may take to return.
	unwind = 5 * time.Second
)

// Run runs jobs until ctx ends. Then it takes no more, waits SoftStop for the runs under way,
// cancels the others and gives them five seconds to return; jobs not done by then go back with
// their attempt refunded. It returns nil, or an error when this queue already runs or its database
// is closed. Other errors of the database are logged and tried again.
func (q *Queue) Run(ctx context.Context) (fault error) {
	if !q.running.CompareAndSwap(false, true) {
		return errors.New("jobs: already running")
	}
	c := newCrew(ctx, q)
	defer q.bus.Subscribe(topic, func([]byte) { signal(q.again) })()
	var rescueAt time.Time
	for tell := true; ctx.Err() == nil; {
		q.planned.Store(math.MaxInt64) // an Enqueue from here on wakes the loop
		if now := q.now(); !now.Before(rescueAt) || rescueAt.Sub(now) > rescueEvery {
			q.rescueExpired(ctx)
			rescueAt = now.Add(rescueEvery)
		}
		next, err := q.fetch(ctx, c)
		if errors.Is(err, database.ErrClosed) {
			fault = err
			break
		}
		if err != nil && ctx.Err() == nil {
			q.log.ErrorContext(ctx, "jobs: cannot fetch", "error", err)
		}
		if tell && c.isFull() {
			q.tellOthers()
		}
		q.planned.Store(next.UnixMilli())
		tell = q.wait(ctx, next)
	}
	q.running.Store(false)
	c.stop()
	if fault == nil {
		q.tellOthers() // about jobs given back
	}
	return fault
}

// RunDue runs the jobs that are due by the queue's clock, ticks of schedules and expired leases
// included, one after the other in the calling goroutine, until nothing is due. It returns the
// number of runs. It is for tests with a clock of their own; the end of ctx stops it as it stops
// Run.
func (q *Queue) RunDue(ctx context.Context) (int, error) {
	names := q.seal()
	for n := 0; ; n++ {
		if _, err := q.tick(ctx); err != nil {
			return n, err
		}
		if _, err := q.rescue(ctx, q.now().UnixMilli()); err != nil {
			return n, err
		}
		r, err := q.takeFirst(ctx, names)
		if err != nil || r == nil {
			return n, err
		}
		q.execute(ctx, r, func() {})
	}
}

// takeFirst claims the job that has been due longest and is not locked, nil when there is none.
func (q *Queue) takeFirst(ctx context.Context, names []string) (*run, error) {
	due, err := q.due(ctx, names)
	now := q.now().UnixMilli()
	for _, d := range due {
		if d.runAt > now {
			break
		}
		runs, err := q.take(ctx, d.name, 1)
		if err != nil {
			return nil, err
		}
		if len(runs) > 0 {
			return runs[0], nil
		}
	}
	return nil, err
}

func (q *Queue) rescueExpired(ctx context.Context) {
	n, err := q.rescue(ctx, q.now().UnixMilli())
	if n > 0 {
		q.log.WarnContext(ctx, "jobs: leases expired", "jobs", n)
	}
	if err != nil && ctx.Err() == nil {
		q.log.ErrorContext(ctx, "jobs: cannot rescue", "error", err)
	}
}

// take claims up to limit due jobs of a binding. The end of ctx does not cut it short: nobody would know what it took.
func (q *Queue) take(ctx context.Context, name string, limit int) ([]*run, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
	defer cancel()
	binding, _ := q.binding(name)
	now, token := q.now(), rand.Text()
	until := now.Add(lease)
	claimed, err := q.claim(ctx, name, limit, token, now.UnixMilli(), until.UnixMilli())
	if err != nil {
		return nil, err
	}
	slices.SortFunc(claimed, func(a, b claimedJob) int {
		return cmp.Or(cmp.Compare(a.runAt, b.runAt), strings.Compare(a.ID, b.ID))
	})
	runs := make([]*run, len(claimed))
	for i, job := range claimed {
		runs[i] = &run{claimedJob: job, queue: q, binding: binding, token: token, leaseUntil: until}
	}
	return runs, nil
}

// fetch hands due jobs to the crew until nothing is due or no worker is free. It returns when to look again at the
// latest.
func (q *Queue) fetch(ctx context.Context, c *crew) (next time.Time, err error) {
	next = q.now().Add(q.poll())
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	tick, err := q.tick(ctx)
	if err != nil {
		return next, err
	}
	sooner(tick)
	for {
		c.begin()
		due, err := q.due(ctx, c.names)
		if err != nil {
			return next, err
		}
		now, started, locked := q.now(), false, false
		for _, d := range due {
			if runAt := time.UnixMilli(d.runAt); runAt.After(now) {
				sooner(runAt)
				break
			}
			binding, _ := q.binding(d.name)
			room := c.room(binding)
			if room == 0 {
				continue
			}
			runs, err := q.take(ctx, d.name, room)
			if err != nil {
				return next, err
			}
			c.start(runs)
			started = started || len(runs) > 0
			locked = locked || len(runs) == 0
		}
		if started {
			runtime.Gosched() // lets short runs return, so that the next claim is for more than one
			continue
		}
		if locked {
			sooner(now)
		}
		return next, nil
	}
}

func (q *Queue) poll() time.Duration {
	if q.db.Dialect() == database.SQLite {
		return pollSQLite
	}
	return pollPostgres
}

// wait returns when there is reason to look, and whether other nodes do not know of it.
func (q *Queue) wait(ctx context.Context, next time.Time) (tell bool) {
	timer := time.NewTimer(min(max(next.Sub(q.now()), minWait), q.poll()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-q.again:
		return false
	case <-q.news:
		return true
	case <-timer.C:
		return true
	}
}

// crew is the workers of one Run.
type crew struct {
	queue  *Queue
	names  []string
	ctx    context.Context // ends when runs are cancelled
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	runs    map[*run]struct{}
	busy    map[string]int // workers by binding
	settles int            // runs that have returned and are not recorded yet
	full    bool           // some due job found no worker
	ahead   ahead
}

func newCrew(ctx context.Context, q *Queue) *crew {
	c := &crew{queue: q, names: q.seal(), runs: map[*run]struct{}{}, busy: map[string]int{}}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.ahead.took = map[string]time.Duration{}
	return c
}

// begin starts a look at what is due.
func (c *crew) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.full = false
}

// room returns how many jobs of the binding can be claimed: for free workers within its share of them, and ahead.
func (c *crew) room(b Binding) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	room := c.roomFor(b)
	c.full = c.full || room == 0
	return room
}

func (c *crew) roomFor(b Binding) int {
	free := c.free(b.Name)
	return max(min(free+c.ahead.room(b, c.share(), free), maxClaim, maxUnsettled-c.settles), 0)
}

// share is how many workers a binding takes at most.
func (c *crew) share() int { return c.queue.workers - c.queue.workers/4 }

// free returns how many workers a binding can have now.
func (c *crew) free(name string) int {
	return min(c.queue.workers-len(c.runs), c.share()-c.busy[name])
}

func (c *crew) isFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.full
}

// start gives claimed jobs to workers, and keeps those for later that find none free.
func (c *crew) start(runs []*run) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range runs {
		if c.free(r.Binding) == 0 {
			c.ahead.add(runs[i:])
			time.AfterFunc(aheadWait, func() { c.giveBack(aheadWait) })
			return
		}
		c.begins(r)
	}
}

func (c *crew) begins(r *run) {
	c.runs[r] = struct{}{}
	c.busy[r.Binding]++
	c.work.Go(func() {
		began := time.Now()
		c.queue.execute(c.ctx, r, func() { c.returned(r, time.Since(began)) })
		c.settled()
	})
}

// returned gives the worker of a run that has returned to the next, and lets the loop look for more where a lack of
// workers had stopped it.
func (c *crew) returned(r *run, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.runs, r)
	c.busy[r.Binding]--
	c.settles++
	c.ahead.learn(r.Binding, took)
	if next := c.ahead.take(func(name string) bool { return c.free(name) > 0 }); next != nil {
		c.begins(next)
	}
	if len(c.runs) < c.queue.workers || c.roomFor(r.binding) > 0 {
		c.more()
	}
}

// settled counts an outcome that is recorded.
func (c *crew) settled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settles--; c.settles == maxUnsettled-1 {
		c.more()
	}
}

func (c *crew) more() {
	if c.full {
		signal(c.queue.again)
	}
}

// giveBack puts jobs back that were claimed as long ago and found no worker, and tells the other nodes of them.
func (c *crew) giveBack(waited time.Duration) {
	c.mu.Lock()
	runs := c.ahead.drop(waited)
	c.mu.Unlock()
	if len(runs) == 0 {
		return
	}
	c.queue.giveBack(c.ctx, runs)
	c.queue.tellOthers()
}

// stop gives back what has not begun, waits for the runs, then cancels them, then gives up their jobs.
func (c *crew) stop() {
	defer c.cancel()
	c.giveBack(0)
	done := make(chan struct{})
	go func() {
		c.work.Wait()
		close(done)
	}()
	if within(done, c.queue.softStop) {
		return
	}
	c.cancel()
	if within(done, unwind) {
		return
	}
	c.mu.Lock()
	stuck := make([]*run, 0, len(c.runs))
	for r := range c.runs {
		stuck = append(stuck, r)
	}
	c.mu.Unlock()
	for _, r := range stuck {
		c.queue.log.Error("jobs: run does not return", "binding", r.Binding, "job", r.ID)
		if _, err := c.queue.record(c.ctx, r, c.queue.judge(r, c.ctx.Err(), 0, true)); err != nil {
			c.queue.log.Error("jobs: job not given back", "job", r.ID, "error", err)
		}
	}
}

func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
