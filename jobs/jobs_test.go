package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

// start is half past an hour: no tick of the queue's own sweep is near.
var start = time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)

var discard = slog.New(slog.DiscardHandler)

// clock is a clock that stands still until it is told to move.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: start} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// open returns a queue with the bindings on a migrated database.
func open(t testing.TB, db *database.DB, c *clock, bindings ...jobs.Binding) *jobs.Queue {
	t.Helper()
	if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
		t.Fatal(err)
	}
	return node(t, db, jobs.Options{Now: c.Now}, bindings...)
}

func node(t testing.TB, db *database.DB, opts jobs.Options, bindings ...jobs.Binding) *jobs.Queue {
	t.Helper()
	opts.Log = discard
	q := jobs.New(db, nil, opts)
	if err := q.Register(bindings...); err != nil {
		t.Fatal(err)
	}
	return q
}

// log is a binding that writes down what runs.
type log struct {
	mu   sync.Mutex
	runs []jobs.Job
}

func (l *log) Run(_ context.Context, job jobs.Job) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.runs = append(l.runs, job)
	return nil
}

// take returns the payloads that ran since the last call.
func (l *log) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	payloads := []string{}
	for _, job := range l.runs {
		payloads = append(payloads, string(job.Payload))
	}
	l.runs = nil
	return payloads
}

func runDue(t *testing.T, q *jobs.Queue) {
	t.Helper()
	if _, err := q.RunDue(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func enqueue(t testing.TB, q *jobs.Queue, binding string, payload any, opts ...jobs.EnqueueOption) string {
	t.Helper()
	id, err := q.Enqueue(t.Context(), binding, payload, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func status(t *testing.T, q *jobs.Queue, id string) jobs.Status {
	t.Helper()
	s, ok, err := q.Job(t.Context(), id)
	if err != nil || !ok {
		t.Fatalf("job %s: %v, %v", id, ok, err)
	}
	return s
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// receive fails the test where it would otherwise hang.
func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

func TestRegisterReportsEveryFault(t *testing.T) {
	q := jobs.New(databasetest.Memory(t), nil, jobs.Options{})
	run := func(context.Context, jobs.Job) error { return nil }
	err := q.Register(
		jobs.Binding{Name: "GOOD", Run: run},
		jobs.Binding{Name: "GOOD", Run: run},
		jobs.Binding{Name: "lower", Run: run},
		jobs.Binding{Name: "", Run: run},
		jobs.Binding{Name: strings.Repeat("A", 65), Run: run},
		jobs.Binding{Name: "KIT_JOBS_SWEEP", Run: run},
		jobs.Binding{Name: "NO_RUN"},
		jobs.Binding{Name: "NEGATIVE", Run: run, MaxAttempts: -1},
		jobs.Binding{Name: "TIMEZONE", Run: run, Schedule: "TZ=Europe/Berlin 0 0 * * *"},
		jobs.Binding{Name: "EVERY", Run: run, Schedule: "@every 1s"},
	)
	if err == nil {
		t.Fatal("registered")
	}
	if n := len(strings.Split(err.Error(), "\n")); n != 9 {
		t.Errorf("%d faults:\n%v", n, err)
	}
	if q.Has("GOOD") {
		t.Error("a binding was registered although others had faults")
	}
	if err := q.Register(jobs.Binding{Name: "GOOD", Run: run}); err != nil {
		t.Fatal(err)
	}
	if !q.Has("GOOD") || q.Has("OTHER") {
		t.Error("Has is wrong")
	}
}

func TestRegisterAfterRunIsRefused(t *testing.T) {
	q := open(t, databasetest.Memory(t), newClock())
	runDue(t, q)
	if err := q.Register(jobs.Binding{Name: "LATE", Run: (&log{}).Run}); err == nil {
		t.Error("registered")
	}
}

func TestEnqueueRefuses(t *testing.T) {
	q := open(t, databasetest.Memory(t), newClock(), jobs.Binding{Name: "A", Run: (&log{}).Run})
	ctx := t.Context()
	for name, c := range map[string]struct {
		binding string
		payload any
		key     string
		want    error
	}{
		"binding":         {"NOBODY", nil, "", jobs.ErrUnknownBinding},
		"long key":        {"A", nil, strings.Repeat("k", jobs.MaxKey+1), jobs.ErrInvalidKey},
		"NUL in key":      {"A", nil, "a\x00", jobs.ErrInvalidKey},
		"key not UTF-8":   {"A", nil, "\xff", jobs.ErrInvalidKey},
		"payload":         {"A", strings.Repeat("x", jobs.MaxPayload), "", jobs.ErrInvalidPayload},
		"no JSON":         {"A", func() {}, "", jobs.ErrInvalidPayload},
		"raw no JSON":     {"A", raw("{"), "", jobs.ErrInvalidPayload},
		"raw not UTF-8":   {"A", raw("\"\xff\""), "", jobs.ErrInvalidPayload},
		"largest payload": {"A", strings.Repeat("x", jobs.MaxPayload-2), strings.Repeat("k", jobs.MaxKey), nil},
	} {
		if _, err := q.Enqueue(ctx, c.binding, c.payload, jobs.Key(c.key)); !errors.Is(err, c.want) {
			t.Errorf("%s: Enqueue: %v", name, err)
		}
		if c.key == "" {
			c.key = "k"
		}
		if err := q.SetAlarm(ctx, c.binding, c.key, start, c.payload); !errors.Is(err, c.want) {
			t.Errorf("%s: SetAlarm: %v", name, err)
		}
	}
	if err := q.SetAlarm(ctx, "A", "", start, nil); !errors.Is(err, jobs.ErrInvalidKey) {
		t.Errorf("SetAlarm without key: %v", err)
	}
	if err := q.CancelAlarm(ctx, "NOBODY", "k"); !errors.Is(err, jobs.ErrUnknownBinding) {
		t.Errorf("CancelAlarm: %v", err)
	}
	if err := q.CancelAlarm(ctx, "A", "\xff"); !errors.Is(err, jobs.ErrInvalidKey) {
		t.Errorf("CancelAlarm: %v", err)
	}
}

func TestJobCarriesWhatWasEnqueued(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: l.Run, MaxAttempts: 3})
		first := enqueue(t, q, "A", map[string]any{"text": "ü\x00\"", "n": 1}, jobs.Key("k"))
		c.Advance(time.Millisecond)
		second := enqueue(t, q, "A", nil, jobs.At(time.Time{}))
		c.Advance(time.Minute)
		runDue(t, q)
		equal(t, l.runs, []jobs.Job{
			{ID: first, Binding: "A", Key: "k", Payload: raw(`{"n":1,"text":"ü\u0000\""}`), Attempt: 1},
			{ID: second, Binding: "A", Payload: raw(`null`), Attempt: 1},
		})
		equal(t, status(t, q, first), jobs.Status{ID: first, Binding: "A", Key: "k", State: jobs.StateCompleted, Attempt: 1, MaxAttempts: 3,
			RunAt: start, CreatedAt: start, FinishedAt: c.Now()})
		if _, ok, err := q.Job(t.Context(), "unknown"); ok || err != nil {
			t.Errorf("unknown job: %v, %v", ok, err)
		}
	})
}

func TestEnqueueFollowsTheTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: l.Run})
		refused := errors.New("refused")
		for _, outcome := range []error{refused, nil} {
			err := db.InTx(t.Context(), func(ctx context.Context) error {
				if _, err := q.Enqueue(ctx, "A", fmt.Sprint("enqueued ", outcome)); err != nil {
					return err
				}
				if err := q.SetAlarm(ctx, "A", "k", start.Add(-time.Second), fmt.Sprint("alarm ", outcome)); err != nil {
					return err
				}
				return outcome
			})
			if !errors.Is(err, outcome) {
				t.Fatal(err)
			}
		}
		runDue(t, q)
		equal(t, l.take(), []string{`"alarm \u003cnil\u003e"`, `"enqueued \u003cnil\u003e"`})
	})
}

// A running queue never sees a job before the rows that were written with it, and sees it without waiting for a poll.
func TestRunStartsAfterTheCommit(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if _, err := db.Exec(t.Context(), `CREATE TABLE jobs_fact (id TEXT NOT NULL PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		seen := make(chan error)
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			var id string
			seen <- db.QueryRow(ctx, `SELECT id FROM jobs_fact WHERE id = $1`, job.Key).Scan(&id)
			return nil
		}})
		stop := run(t, q)
		for i := range 20 {
			key := fmt.Sprint(i)
			if err := db.InTx(t.Context(), func(ctx context.Context) error {
				if _, err := q.Enqueue(ctx, "A", nil, jobs.Key(key)); err != nil {
					return err
				}
				_, err := db.Exec(ctx, `INSERT INTO jobs_fact (id) VALUES ($1)`, key)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if err := receive(t, seen); err != nil {
				t.Fatal(err)
			}
		}
		stop()
	})
}

// run runs the queue until stop is called or the test ends.
func run(t testing.TB, q *jobs.Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- q.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := receive(t, done); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func TestKeyIsUniqueWhileAvailableOrRunning(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var q *jobs.Queue
		var first, during string
		q = open(t, db, newClock(), jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
			if during == "" {
				during = enqueue(t, q, "A", "during", jobs.Key("k"))
			}
			return nil
		}}, jobs.Binding{Name: "B", Run: (&log{}).Run})
		first = enqueue(t, q, "A", "first", jobs.Key("k"))
		equal(t, enqueue(t, q, "A", "second", jobs.Key("k")), first)
		for _, other := range []string{
			enqueue(t, q, "A", "other key", jobs.Key("K")),
			enqueue(t, q, "A", "no key"),
			enqueue(t, q, "B", "other binding", jobs.Key("k")),
		} {
			if other == first {
				t.Error("shared an id")
			}
		}
		runDue(t, q)
		equal(t, during, first)
		if after := enqueue(t, q, "A", "after", jobs.Key("k")); after == first {
			t.Error("the key is held after the end")
		}
	})
}

func TestKeyRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: (&log{}).Run})
		ids := make([]string, 64)
		var wg sync.WaitGroup
		for i := range ids {
			wg.Go(func() {
				id, err := q.Enqueue(context.Background(), "A", i, jobs.Key("k"))
				if err != nil {
					t.Error(err)
				}
				ids[i] = id
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatal("more than one id")
			}
		}
		stats, err := q.Stats(t.Context())
		if err != nil || stats.Available != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// With workers finishing jobs while others enqueue under the same key, no two of a key ever run together.
func TestKeyRaceWithWorkers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var mu sync.Mutex
		running := map[string]bool{}
		var runs int
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
			mu.Lock()
			defer mu.Unlock()
			if runs++; running[job.Key] {
				t.Error("two jobs of a key run together")
			}
			running[job.Key] = true
			mu.Unlock()
			mu.Lock()
			running[job.Key] = false
			return nil
		}})
		stop := run(t, q)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 25 {
					if _, err := q.Enqueue(context.Background(), "A", i, jobs.Key(fmt.Sprint(g%2))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		stop()
		runDue(t, q)
		if runs == 0 {
			t.Error("nothing ran")
		}
	})
}

func TestStats(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := newClock()
		var q *jobs.Queue
		outcomes := map[string]error{"done": nil, "cancelled": jobs.Cancel(errors.New("not wanted")), "discarded": jobs.Permanent(errors.New("never"))}
		var running jobs.Stats
		q = open(t, db, c, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			var err error
			running, err = q.Stats(ctx)
			if err != nil {
				t.Error(err)
			}
			return outcomes[job.Key]
		}})
		for key := range outcomes {
			enqueue(t, q, "A", nil, jobs.Key(key))
		}
		enqueue(t, q, "A", nil, jobs.At(start.Add(time.Hour)))
		c.Advance(time.Minute)
		stats, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, stats, jobs.Stats{Available: 4, Lag: time.Minute})
		runDue(t, q)
		equal(t, running.Running, int64(1))
		if stats, err = q.Stats(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, stats, jobs.Stats{Available: 1, Completed: 1, Cancelled: 1, Discarded: 1})
	})
}

func TestSweep(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", MaxAttempts: 1, Run: func(_ context.Context, job jobs.Job) error {
			if job.Key == "discarded" {
				return errors.New("failed")
			}
			return nil
		}})
		ids := map[string]string{"discarded": enqueue(t, q, "A", nil, jobs.Key("discarded")), "completed": enqueue(t, q, "A", nil)}
		if err := q.SetAlarm(t.Context(), "A", "cancelled", start, nil); err != nil {
			t.Fatal(err)
		}
		ids["cancelled"] = enqueue(t, q, "A", nil, jobs.Key("cancelled")) // the alarm's
		if err := q.CancelAlarm(t.Context(), "A", "cancelled"); err != nil {
			t.Fatal(err)
		}
		ids["waiting"] = enqueue(t, q, "A", nil, jobs.At(start.AddDate(1, 0, 0)))
		if err := db.InTx(t.Context(), func(ctx context.Context) error { // more than two chunks
			_, err := db.Exec(ctx, `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500)
				INSERT INTO kit_job (id, binding, key, holds_key, payload, state, run_at, attempt, max_attempts, created_at, finished_at)
				SELECT 'old' || i, 'A', '', FALSE, 'null', 'completed', 0, 1, 1, 0, 1 FROM n`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		runDue(t, q)
		kept := func() (names []string) {
			for _, name := range []string{"cancelled", "completed", "discarded", "waiting"} {
				if _, ok, err := q.Job(t.Context(), ids[name]); err != nil {
					t.Fatal(err)
				} else if ok {
					names = append(names, name)
				}
			}
			return names
		}
		c.Advance(23 * time.Hour)
		runDue(t, q)
		equal(t, kept(), []string{"cancelled", "completed", "discarded", "waiting"})
		stats, err := q.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, stats, jobs.Stats{Available: 1, Completed: 2, Cancelled: 1, Discarded: 1}) // the sweep itself completed too
		c.Advance(2 * time.Hour)
		runDue(t, q)
		equal(t, kept(), []string{"discarded", "waiting"})
		c.Advance(14 * 24 * time.Hour)
		runDue(t, q)
		equal(t, kept(), []string{"waiting"})
	})
}
