package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

func setAlarm(t testing.TB, q *jobs.Queue, at time.Time, payload any) {
	t.Helper()
	if err := q.SetAlarm(t.Context(), "A", "k", at, payload); err != nil {
		t.Fatal(err)
	}
}

func cancelAlarm(t testing.TB, q *jobs.Queue) {
	t.Helper()
	if err := q.CancelAlarm(t.Context(), "A", "k"); err != nil {
		t.Fatal(err)
	}
}

func TestAlarmMovesAndCancels(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: l.Run})
		cancelAlarm(t, q) // nothing there
		setAlarm(t, q, start.Add(10*time.Second), "first")
		setAlarm(t, q, start.Add(20*time.Second), "later")
		c.Advance(10 * time.Second)
		runDue(t, q)
		equal(t, l.take(), []string{})
		setAlarm(t, q, start.Add(15*time.Second), "earlier")
		c.Advance(5 * time.Second)
		runDue(t, q)
		equal(t, l.take(), []string{`"earlier"`})

		setAlarm(t, q, start.Add(30*time.Second), "cancelled")
		cancelAlarm(t, q)
		c.Advance(time.Minute)
		runDue(t, q)
		equal(t, l.take(), []string{})
		stats, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, stats, jobs.Stats{Completed: 1, Cancelled: 1})
	})
}

func TestAlarmReplacesARepetition(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var seen []string
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
			seen = append(seen, fmt.Sprintf("%s %d", job.Payload, job.Attempt))
			return errors.New("failed")
		}})
		setAlarm(t, q, start, 1)
		runDue(t, q)
		setAlarm(t, q, start, 2)
		runDue(t, q)
		cancelAlarm(t, q)
		c.Advance(2 * time.Hour)
		runDue(t, q)
		equal(t, seen, []string{"1 1", "2 1"})
	})
}

// An alarm that is set or cancelled while the one before runs lets it end by itself, and its failure is not repeated.
func TestAlarmDuringARun(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for _, c := range []struct {
			name    string
			during  func(*testing.T, *jobs.Queue)
			outcome error
			seen    []string
			stats   jobs.Stats
		}{
			{"set, done", func(t *testing.T, q *jobs.Queue) { setAlarm(t, q, start.Add(time.Second), "new") }, nil,
				[]string{`"old"`, `"new"`}, jobs.Stats{Completed: 2}},
			{"set, failed", func(t *testing.T, q *jobs.Queue) { setAlarm(t, q, start.Add(time.Second), "new") }, errors.New("failed"),
				[]string{`"old"`, `"new"`}, jobs.Stats{Completed: 1, Cancelled: 1}},
			{"set, snoozed", func(t *testing.T, q *jobs.Queue) { setAlarm(t, q, start.Add(time.Second), "new") }, jobs.Snooze(time.Second),
				[]string{`"old"`, `"new"`}, jobs.Stats{Completed: 1, Cancelled: 1}},
			{"cancelled, done", cancelAlarmIn, nil, []string{`"old"`}, jobs.Stats{Completed: 1}},
			{"cancelled, failed", cancelAlarmIn, errors.New("failed"), []string{`"old"`}, jobs.Stats{Cancelled: 1}},
			{"set and cancelled, failed", func(t *testing.T, q *jobs.Queue) {
				setAlarm(t, q, start.Add(time.Second), "new")
				cancelAlarm(t, q)
			}, errors.New("failed"), []string{`"old"`}, jobs.Stats{Cancelled: 2}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
					t.Fatal(err)
				}
				if _, err := db.Exec(t.Context(), `DELETE FROM kit_job`); err != nil {
					t.Fatal(err)
				}
				var q *jobs.Queue
				var seen []string
				clock := newClock()
				q = node(t, db, jobs.Options{Now: clock.Now}, jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
					seen = append(seen, string(job.Payload))
					if len(seen) > 1 {
						return nil
					}
					c.during(t, q)
					return c.outcome
				}})
				setAlarm(t, q, start, "old")
				runDue(t, q)
				clock.Advance(10 * time.Minute)
				runDue(t, q)
				equal(t, seen, c.seen)
				stats, err := q.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				equal(t, stats, c.stats)
			})
		}
	})
}

func cancelAlarmIn(t *testing.T, q *jobs.Queue) { cancelAlarm(t, q) }

// Whatever order alarms are set, cancelled and run in, at most one waits, and the last one set is run in the end.
func TestAlarmRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var mu sync.Mutex
		ran := map[string]bool{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
			mu.Lock()
			defer mu.Unlock()
			ran[string(job.Payload)] = true
			return nil
		}})
		stop := run(t, q)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 20 {
					var err error
					if g == 0 {
						err = q.CancelAlarm(context.Background(), "A", "k")
					} else {
						err = q.SetAlarm(context.Background(), "A", "k", start, fmt.Sprint(g, " ", i))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		setAlarm(t, q, start.Add(time.Hour), "last")
		stop()
		stats, err := q.Stats(t.Context())
		if err != nil || stats.Available != 1 || stats.Running != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
		c.Advance(time.Hour)
		runDue(t, q)
		if !ran[`"last"`] {
			t.Error("the last alarm did not run")
		}
	})
}
