package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

func raw(text string) json.RawMessage { return json.RawMessage(text) }

// attempts is a binding that writes down its attempts and returns what it is told.
func attempts(seen *[]int, outcome func(attempt int) error) func(context.Context, jobs.Job) error {
	return func(_ context.Context, job jobs.Job) error {
		*seen = append(*seen, job.Attempt)
		return outcome(job.Attempt)
	}
}

func TestFailuresBackOffAndAreDiscarded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var seen []int
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", MaxAttempts: 3,
			Backoff: func(attempt int) time.Duration { return time.Duration(attempt) * time.Minute },
			Run:     attempts(&seen, func(attempt int) error { return fmt.Errorf("failed %d", attempt) })})
		id := enqueue(t, q, "A", nil, jobs.Key("k"))
		want := jobs.Status{ID: id, Binding: "A", Key: "k", MaxAttempts: 3, CreatedAt: start}
		for attempt, state := range []jobs.State{jobs.StateAvailable, jobs.StateAvailable, jobs.StateDiscarded} {
			attempt++
			runDue(t, q)
			want.State, want.Attempt, want.LastError, want.RunAt = state, attempt, fmt.Sprint("failed ", attempt), c.Now()
			pause := time.Duration(attempt) * time.Minute
			if state == jobs.StateDiscarded {
				want.FinishedAt = c.Now()
			} else {
				want.RunAt = c.Now().Add(pause)
			}
			equal(t, status(t, q, id), want)
			c.Advance(pause - time.Millisecond)
			runDue(t, q) // too early
			equal(t, len(seen), attempt)
			c.Advance(time.Millisecond)
		}
		if again := enqueue(t, q, "A", nil, jobs.Key("k")); again == id {
			t.Error("a discarded job holds its key")
		}
	})
}

func TestDefaultBackoff(t *testing.T) {
	var seen []int
	c := newClock()
	q := open(t, databasetest.Memory(t), c, jobs.Binding{Name: "A", MaxAttempts: 100,
		Run: attempts(&seen, func(int) error { return errors.New("failed") })})
	id := enqueue(t, q, "A", nil)
	for attempt := 1; attempt < 20; attempt++ {
		before := c.Now()
		runDue(t, q)
		want := min(time.Hour, time.Second<<min(attempt, 20))
		pause := status(t, q, id).RunAt.Sub(before)
		if pause < want*4/5-time.Millisecond || pause > want*6/5 {
			t.Fatalf("attempt %d: pause of %s, want %s give or take a fifth", attempt, pause, want)
		}
		c.Advance(pause)
	}
}

func TestSnoozeSpendsNoAttempt(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var seen []int
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", MaxAttempts: 1, Run: attempts(&seen, func(int) error {
			if len(seen) == 4 {
				return nil
			}
			return fmt.Errorf("wrapped: %w", jobs.Snooze(time.Minute))
		})})
		id := enqueue(t, q, "A", nil)
		for range 4 {
			runDue(t, q)
			runDue(t, q) // not yet
			c.Advance(time.Minute)
		}
		equal(t, seen, []int{1, 1, 1, 1})
		equal(t, status(t, q, id).State, jobs.StateCompleted)
	})
}

// A job that becomes available again soon does not wait until the queue looks the next time, a second later.
func TestSnoozedJobRunsWhenItIsDue(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
			pass(20 * time.Millisecond) // during which the queue looks, and plans to wait
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Since(began)); len(at) == 10 {
				return nil
			}
			return jobs.Snooze(100 * time.Millisecond)
		}})
		stop := runInBubble(t, q)
		enqueue(t, q, "A", nil)
		pass(20 * time.Second)
		stop()
		if len(at) != 10 || at[9] > 1500*time.Millisecond {
			t.Errorf("runs at %v, want ten within a second and a half", at)
		}
	})
}

func TestSnoozeForNothingEnds(t *testing.T) {
	var seen []int
	q := open(t, databasetest.Memory(t), newClock(), jobs.Binding{Name: "A", Run: attempts(&seen, func(int) error { return jobs.Snooze(-1) })})
	enqueue(t, q, "A", nil)
	runDue(t, q)
	equal(t, seen, []int{1})
}

func TestCancelAndPermanent(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		cause := errors.New("cause")
		for state, outcome := range map[jobs.State]error{jobs.StateCancelled: jobs.Cancel(cause), jobs.StateDiscarded: jobs.Permanent(cause)} {
			if !errors.Is(outcome, cause) {
				t.Errorf("%s hides its cause", state)
			}
			var seen []int
			c := newClock()
			q := open(t, db, c, jobs.Binding{Name: "A", Run: attempts(&seen, func(int) error { return outcome })})
			id := enqueue(t, q, "A", nil)
			runDue(t, q)
			got := status(t, q, id)
			if got.State != state || !got.FinishedAt.Equal(start) || !strings.Contains(got.LastError, "cause") {
				t.Errorf("%+v", got)
			}
			c.Advance(2 * time.Hour)
			runDue(t, q)
			equal(t, seen, []int{1})
		}
	})
}

func TestPanicIsAFailure(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var seen []int
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: attempts(&seen, func(attempt int) error {
			if attempt == 1 {
				panic("broken")
			}
			return nil
		})})
		id := enqueue(t, q, "A", nil)
		runDue(t, q)
		if got := status(t, q, id); got.State != jobs.StateAvailable || got.LastError != "panic: broken" {
			t.Errorf("%+v", got)
		}
		c.Advance(time.Minute)
		runDue(t, q)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
	})
}

func TestPanicOfBackoffIsAFailure(t *testing.T) {
	q := open(t, databasetest.Memory(t), newClock(), jobs.Binding{Name: "A",
		Run:     func(context.Context, jobs.Job) error { return errors.New("failed") },
		Backoff: func(int) time.Duration { panic("broken") }})
	id := enqueue(t, q, "A", nil)
	runDue(t, q)
	if got := status(t, q, id); got.State != jobs.StateAvailable || got.LastError != "panic: broken" || !got.RunAt.After(start) {
		t.Errorf("%+v", got)
	}
}

func TestLastErrorIsBoundedText(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
			return errors.New("\x00\xff" + strings.Repeat("ü", 2000))
		}})
		id := enqueue(t, q, "A", nil)
		runDue(t, q)
		equal(t, status(t, q, id).LastError, strings.Repeat("ü", 511))
	})
}

func TestTimeout(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Timeout: time.Millisecond, Run: func(ctx context.Context, _ jobs.Job) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		id := enqueue(t, q, "A", nil)
		runDue(t, q)
		if got := status(t, q, id); got.State != jobs.StateAvailable || got.Attempt != 1 || !strings.Contains(got.LastError, "timed out after 1ms") {
			t.Errorf("%+v", got)
		}
	})
}

func TestComplete(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		if _, err := db.Exec(ctx, `CREATE TABLE jobs_effect (job TEXT NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		c := newClock()
		failed := errors.New("failed")
		q := open(t, db, c, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			return errors.Join(db.InTx(ctx, func(ctx context.Context) error {
				if _, err := db.Exec(ctx, `INSERT INTO jobs_effect (job) VALUES ($1)`, job.ID); err != nil {
					return err
				}
				if err := jobs.Complete(ctx); err != nil {
					return err
				}
				if job.Attempt == 1 {
					return failed // takes the effect and the completion back
				}
				return nil
			}), errors.New("an error after the commit changes nothing"))
		}})
		id := enqueue(t, q, "A", nil, jobs.Key("k"))
		effects := func() (n int) {
			if err := db.QueryRow(ctx, `SELECT count(*) FROM jobs_effect`).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		runDue(t, q)
		equal(t, effects(), 0)
		equal(t, status(t, q, id).State, jobs.StateAvailable)
		c.Advance(time.Minute)
		runDue(t, q)
		equal(t, effects(), 1)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
		equal(t, status(t, q, id).Attempt, 2)
	})
}

func TestCompleteRefuses(t *testing.T) {
	db, other := databasetest.Memory(t), databasetest.Memory(t)
	var outside, elsewhere error
	q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: func(ctx context.Context, _ jobs.Job) error {
		outside = jobs.Complete(ctx)
		elsewhere = other.InTx(ctx, jobs.Complete)
		return nil
	}})
	enqueue(t, q, "A", nil)
	runDue(t, q)
	if outside == nil || elsewhere == nil {
		t.Errorf("outside a transaction: %v; in another database's: %v", outside, elsewhere)
	}
	if err := db.InTx(t.Context(), jobs.Complete); err == nil {
		t.Error("completed outside a Run")
	}
}
