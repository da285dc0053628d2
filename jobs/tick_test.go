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
		c.Advance(-3 * 24 * time.Hour)
		again := node(t, db, jobs.Options{Now: c.Now}, binding)
		for range 6 {
			runDue(t, q)
			runDue(t, again)
			c.Advance(12 * time.Hour)
		}
		equal(t, l.ticks(), []string{})
		c.Advance(24 * time.Hour)
		runDue(t, again)
		equal(t, l.ticks(), []string{"2026-11-28T03:00:00Z"})
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
