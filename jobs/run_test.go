package jobs_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// counter counts the runs of every job.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
	left sync.WaitGroup
}

func newCounter(n int) *counter {
	c := &counter{runs: map[string]int{}}
	c.left.Add(n)
	return c
}

func (c *counter) Run(_ context.Context, job jobs.Job) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs[job.ID]++; c.runs[job.ID] == 1 {
		c.left.Done()
	}
	return nil
}

func (c *counter) want(t *testing.T, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.runs) != n {
		t.Errorf("%d jobs ran, not %d", len(c.runs), n)
	}
	for id, runs := range c.runs {
		if runs != 1 {
			t.Errorf("job %s ran %d times", id, runs)
		}
	}
}

func TestEightClaimersShareWithoutDuplicates(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		const n = 160
		c := newCounter(n)
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: c.Run})
		for range n {
			enqueue(t, q, "A", nil)
		}
		var wg sync.WaitGroup
		var claimed atomic.Int64
		for range 8 {
			wg.Go(func() {
				runs, err := q.RunDue(context.Background())
				if err != nil {
					t.Error(err)
				}
				claimed.Add(int64(runs))
			})
		}
		wg.Wait()
		c.want(t, n)
		equal(t, claimed.Load(), int64(n))
	})
}

func TestFourNodesShareWithoutDuplicates(t *testing.T) {
	const n = 1000
	dbs := databasetest.Shared(t, 4)
	clock := newClock()
	c := newCounter(n)
	binding := jobs.Binding{Name: "A", Run: c.Run}
	nodes := []*jobs.Queue{open(t, dbs[0], clock, binding)}
	for _, db := range dbs[1:] {
		nodes = append(nodes, node(t, db, jobs.Options{Now: clock.Now}, binding))
	}
	for _, q := range nodes {
		run(t, q)
	}
	var wg sync.WaitGroup
	for _, q := range nodes {
		wg.Go(func() {
			for range n / 4 {
				enqueue(t, q, "A", nil)
			}
		})
	}
	wg.Wait()
	c.left.Wait()
	c.want(t, n)
}

// A node that is not running its queue wakes one that is, over the bus.
func TestNodesWakeEachOther(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	if err := dbs[0].Migrate(t.Context(), jobs.Migrations()); err != nil {
		t.Fatal(err)
	}
	ran := make(chan string, 1)
	binding := jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
		ran <- job.ID
		return nil
	}}
	var nodes []*jobs.Queue
	for _, db := range dbs {
		bus := pubsub.NewPostgres(db, discard)
		t.Cleanup(func() { _ = bus.Close() })
		listening := make(chan bool, 8)
		bus.Subscribe("connected", func([]byte) { listening <- true })
		receive(t, listening)
		q := jobs.New(db, bus, jobs.Options{Log: discard})
		if err := q.Register(binding); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, q)
	}
	run(t, nodes[1])
	for range 5 {
		began := time.Now()
		id := enqueue(t, nodes[0], "A", nil)
		equal(t, receive(t, ran), id)
		t.Logf("other node ran it after %s", time.Since(began))
	}
}

// A node without a free worker, or that does not run its queue, has another one do the work at once.
func TestNodesHelpEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		bus := pubsub.NewMemory()
		var ran []string
		var begin time.Time
		nodeOf := func(name string, workers int) *jobs.Queue {
			q := jobs.New(db, bus, jobs.Options{Log: discard, Workers: workers})
			if err := q.Register(jobs.Binding{Name: "SLOW", Run: func(context.Context, jobs.Job) error {
				ran = append(ran, "slow on "+name)
				pass(20 * time.Second)
				return nil
			}}, jobs.Binding{Name: "QUICK", Run: func(_ context.Context, job jobs.Job) error {
				ran = append(ran, fmt.Sprintf("%s after %s on %s", job.Payload, time.Since(begin), name))
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
			return q
		}
		begin = time.Now()
		idle, busy, free := nodeOf("idle", 1), nodeOf("busy", 1), nodeOf("free", 4)
		stopBusy := runInBubble(t, busy)
		enqueue(t, busy, "SLOW", nil)
		synctest.Wait()
		stopFree := runInBubble(t, free)
		for i, q := range []*jobs.Queue{idle, busy, free} {
			pass(100 * time.Millisecond)
			enqueue(t, q, "QUICK", i)
			synctest.Wait()
		}
		stopFree()
		stopBusy()
		equal(t, ran, []string{"slow on busy", "0 after 100ms on free", "1 after 200ms on free", "2 after 300ms on free"})
	})
}

// What a stopping node gives back another one takes at once.
func TestStopHandsOver(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		bus := pubsub.NewMemory()
		begin := time.Now()
		var ran []string
		binding := func(name string) jobs.Binding {
			return jobs.Binding{Name: "A", Run: func(ctx context.Context, _ jobs.Job) error {
				ran = append(ran, fmt.Sprint(name, " after ", time.Since(begin)))
				if name == "first" {
					<-ctx.Done()
				}
				return ctx.Err()
			}}
		}
		nodeOf := func(name string) *jobs.Queue {
			q := jobs.New(db, bus, jobs.Options{Log: discard, SoftStop: 500 * time.Millisecond})
			if err := q.Register(binding(name)); err != nil {
				t.Fatal(err)
			}
			return q
		}
		first, second := nodeOf("first"), nodeOf("second")
		stopFirst := runInBubble(t, first)
		enqueue(t, first, "A", nil)
		pass(300 * time.Millisecond)
		stopSecond := runInBubble(t, second)
		stopFirst()
		synctest.Wait()
		equal(t, ran, []string{"first after 0s", "second after 800ms"})
		stopSecond()
	})
}

// inBubble runs fn in virtual time, with a migrated database in memory.
func inBubble(t *testing.T, fn func(t *testing.T, db *database.DB)) {
	synctest.Test(t, func(t *testing.T) {
		db, err := database.OpenMemory()
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
			t.Fatal(err)
		}
		fn(t, db)
	})
}

// pass lets time pass; in a bubble that takes none.
func pass(d time.Duration) { <-time.After(d) }

// runInBubble runs the queue until stop is called.
func runInBubble(t *testing.T, q *jobs.Queue) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- q.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestRunIsOnTime(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		var ran []string
		begin := time.Now() // midnight
		note := func(_ context.Context, job jobs.Job) error {
			ran = append(ran, fmt.Sprint(job.Binding, " ", time.Since(begin).Truncate(20*time.Millisecond)))
			return nil
		}
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: note}, jobs.Binding{Name: "TICK", Schedule: "*/5 * * * *", Run: note})
		stop := runInBubble(t, q)
		enqueue(t, q, "A", nil, jobs.At(begin.Add(7*time.Minute+300*time.Millisecond)))
		enqueue(t, q, "A", nil)
		setAlarm(t, q, begin.Add(30*time.Second), nil)
		pass(10 * time.Second)
		setAlarm(t, q, begin.Add(10*time.Second+100*time.Millisecond), nil)
		pass(10 * time.Minute)
		stop()
		equal(t, ran, []string{"A 0s", "A 10.1s", "TICK 5m0s", "A 7m0.3s", "TICK 10m0s"})
	})
}

func TestRunTwiceIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		q := node(t, db, jobs.Options{})
		stop := runInBubble(t, q)
		if err := q.Run(t.Context()); err == nil {
			t.Error("ran twice")
		}
		stop()
		runInBubble(t, q)()
	})
}

func TestStop(t *testing.T) {
	for _, c := range []struct {
		name    string
		run     func(context.Context, jobs.Job) error
		took    time.Duration
		state   jobs.State
		attempt int
	}{
		{"waits for runs", func(ctx context.Context, _ jobs.Job) error {
			pass(20 * time.Second)
			return ctx.Err()
		}, 20 * time.Second, jobs.StateCompleted, 1},
		{"gives back what fails when cancelled", func(ctx context.Context, _ jobs.Job) error {
			<-ctx.Done()
			return ctx.Err()
		}, 25 * time.Second, jobs.StateAvailable, 0},
		{"takes no error for final then", func(ctx context.Context, _ jobs.Job) error {
			<-ctx.Done()
			return jobs.Permanent(ctx.Err())
		}, 25 * time.Second, jobs.StateAvailable, 0},
		{"records what is done when cancelled", func(ctx context.Context, _ jobs.Job) error {
			<-ctx.Done()
			return nil
		}, 25 * time.Second, jobs.StateCompleted, 1},
		{"gives up on runs that do not return", func(context.Context, jobs.Job) error {
			pass(time.Minute)
			return nil
		}, 30 * time.Second, jobs.StateAvailable, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, db *database.DB) {
				q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: c.run})
				stop := runInBubble(t, q)
				id := enqueue(t, q, "A", nil)
				synctest.Wait()
				equal(t, status(t, q, id).State, jobs.StateRunning)
				began := time.Now()
				stop()
				equal(t, time.Since(began), c.took)
				equal(t, status(t, q, id).State, c.state)
				equal(t, status(t, q, id).Attempt, c.attempt)
				pass(2 * time.Minute) // what returns too late counts for nothing
				equal(t, status(t, q, id).State, c.state)
			})
		})
	}
}

// Stopping works the same on every database.
func TestStopOnEveryDatabase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
			t.Fatal(err)
		}
		began := make(chan bool)
		q := node(t, db, jobs.Options{SoftStop: time.Millisecond}, jobs.Binding{Name: "A", Run: func(ctx context.Context, _ jobs.Job) error {
			began <- true
			<-ctx.Done()
			return ctx.Err()
		}})
		stop := run(t, q)
		id := enqueue(t, q, "A", nil)
		receive(t, began)
		stop()
		if got := status(t, q, id); got.State != jobs.StateAvailable || got.Attempt != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// A slow binding leaves workers to the others.
func TestSlowBindingLeavesRoom(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
			t.Fatal(err)
		}
		slow, quick, hold := make(chan bool, 100), make(chan bool, 100), make(chan struct{})
		q := node(t, db, jobs.Options{Workers: 8},
			jobs.Binding{Name: "SLOW", Run: func(context.Context, jobs.Job) error {
				slow <- true
				<-hold
				return nil
			}},
			jobs.Binding{Name: "QUICK", Run: func(context.Context, jobs.Job) error {
				quick <- true
				return nil
			}})
		for range 20 {
			enqueue(t, q, "SLOW", nil)
		}
		stop := run(t, q)
		for range 6 {
			receive(t, slow)
		}
		for range 20 {
			enqueue(t, q, "QUICK", nil)
		}
		for range 20 {
			receive(t, quick)
		}
		equal(t, len(slow), 0)
		close(hold)
		for range 14 {
			receive(t, slow)
		}
		stop()
	})
}

// Jobs of bindings that a node does not know are left to nodes that do.
func TestUnknownBindingsAreLeft(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := newClock()
		l := &log{}
		newer := open(t, db, c, jobs.Binding{Name: "NEW", Run: l.Run})
		older := node(t, db, jobs.Options{Now: c.Now})
		id := enqueue(t, newer, "NEW", nil)
		runDue(t, older)
		equal(t, status(t, older, id).Attempt, 0)
		runDue(t, newer)
		equal(t, status(t, older, id).State, jobs.StateCompleted)
	})
}
