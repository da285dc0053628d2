package jobs_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

// ticks returns the instants that ran since the last call.
func (l *log) ticks() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := []string{}
	for _, job := range l.runs {
		keys = append(keys, job.Key)
	}
	l.runs = nil
	return keys
}

func TestTicks(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		c := newClock()
		binding := jobs.Binding{Name: "A", Schedule: "0 3 * * *", Run: l.Run}
		q := open(t, db, c, binding)
		runDue(t, q)
		equal(t, l.ticks(), []string{}) // not the one before its time
		c.Advance(16*time.Hour + 30*time.Minute - time.Millisecond)
		runDue(t, q)
		equal(t, l.ticks(), []string{})
		c.Advance(time.Millisecond)
		runDue(t, q)
		runDue(t, q)
		equal(t, l.ticks(), []string{"2026-11-22T03:00:00Z"})

		// A node that comes back after five days runs the latest tick, once.
		c.Advance(5*24*time.Hour + time.Hour)
		back := node(t, db, jobs.Options{Now: c.Now}, binding)
		runDue(t, back)
		runDue(t, q)
		equal(t, l.ticks(), []string{"2026-11-27T03:00:00Z"})

		// A clock that jumps back repeats nothing, in this process or another.
		c.Advance(-2 * time.Hour)
		again := node(t, db, jobs.Options{Now: c.Now}, binding)
		for range 4 {
			runDue(t, q)
			runDue(t, again)
			c.Advance(6 * time.Hour)
		}
		equal(t, l.ticks(), []string{})
		c.Advance(6 * time.Hour)
		runDue(t, again)
		equal(t, l.ticks(), []string{"2026-11-28T03:00:00Z"})
	})
}

// A clock that was a year ahead stops no schedule: once it is right again, the schedule goes on within an interval and
// an hour at most, in the process that saw it and in one that starts.
func TestSchedulesOutliveAClockThatWasAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, restarted := range []bool{false, true} {
			l := &log{}
			c := newClock()
			if restarted {
				c.Advance(4 * 24 * time.Hour)
			}
			hourly := jobs.Binding{Name: "HOURLY", Schedule: "0 * * * *", Run: l.Run}
			daily := jobs.Binding{Name: "DAILY", Schedule: "0 3 * * *", Run: l.Run}
			q := open(t, db, c, hourly, daily)
			runDue(t, q)
			c.Advance(year)
			runDue(t, q)
			c.Advance(-year)
			l.ticks()
			if restarted {
				q = node(t, db, jobs.Options{Now: c.Now}, hourly, daily)
			}
			day := c.Now().Format("2006-01-02T")
			runDue(t, q)
			equal(t, l.ticks(), []string{})
			c.Advance(time.Hour) // 11:30
			runDue(t, q)
			equal(t, l.ticks(), []string{day + "11:00:00Z"})
			c.Advance(time.Hour)
			runDue(t, q)
			equal(t, l.ticks(), []string{day + "12:00:00Z"})
			c.Advance(15 * time.Hour)
			day = c.Now().Format("2006-01-02T")
			runDue(t, q)
			equal(t, l.ticks(), []string{day + "03:00:00Z", day + "03:00:00Z"})
		}
	})
}

// A node whose clock is ahead and that goes on moving a schedule is not fought with: each tick runs once.
func TestNodeAheadKeepsTheSchedule(t *testing.T) {
	db := databasetest.Memory(t)
	l := &log{}
	right, ahead := newClock(), newClock()
	ahead.Advance(10 * time.Minute)
	binding := jobs.Binding{Name: "A", Schedule: "* * * * *", Run: l.Run}
	late, early := open(t, db, right, binding), node(t, db, jobs.Options{Now: ahead.Now}, binding)
	for range 10 {
		right.Advance(time.Minute)
		ahead.Advance(time.Minute)
		runDue(t, early)
		runDue(t, late)
	}
	if got := l.ticks(); len(got) != 10 {
		t.Errorf("%d ticks ran in 10 minutes: %v", len(got), got)
	}
}

// A job whose node had a clock that was ahead, and died, is taken over all the same.
func TestLeaseFromTheFutureEnds(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: l.Run})
		if _, err := q.Enqueue(t.Context(), "A", nil); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `UPDATE kit_job SET state = 'running', attempt = 1, lease_token = 'dead', lease_until = $1`,
			c.Now().Add(365*24*time.Hour).UnixMilli()); err != nil {
			t.Fatal(err)
		}
		runDue(t, q)
		if n := len(l.ticks()); n != 1 {
			t.Errorf("the job ran %d times, want once", n)
		}
	})
}

// A schedule counts from the making of the queue, so a test that moves the clock before its first RunDue sees the tick.
func TestTicksCountFromNew(t *testing.T) {
	l := &log{}
	c := newClock()
	q := open(t, databasetest.Memory(t), c, jobs.Binding{Name: "A", Schedule: "* * * * *", Run: l.Run})
	c.Advance(90 * time.Second)
	runDue(t, q)
	equal(t, l.ticks(), []string{"2026-11-21T10:31:00Z"})
}

func TestTicksAtMonthEnds(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Schedule: "0 0 31 * *", Run: l.Run})
		for range 26 {
			runDue(t, q)
			c.Advance(7 * 24 * time.Hour)
		}
		equal(t, l.ticks(), []string{"2026-12-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-03-31T00:00:00Z"})
	})
}

func TestTickOnceOverFourNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 4)
	l := &log{}
	c := newClock()
	binding := jobs.Binding{Name: "A", Schedule: "* * * * *", Run: l.Run}
	nodes := []*jobs.Queue{open(t, dbs[0], c, binding)}
	for _, db := range dbs[1:] {
		nodes = append(nodes, node(t, db, jobs.Options{Now: c.Now}, binding))
	}
	var want []string
	for range 30 {
		c.Advance(time.Minute)
		want = append(want, c.Now().Format(time.RFC3339))
		var wg sync.WaitGroup
		for _, q := range nodes {
			wg.Go(func() {
				if _, err := q.RunDue(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	equal(t, l.ticks(), want)
}
