package jobs_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

// Jobs enqueued at the same time by many callers are all there, each once, with what each caller gave.
func TestEnqueuedTogether(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: l.Run})
		const callers = 50
		ids := make([]string, callers)
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() { ids[i] = enqueue(t, q, "A", i) })
		}
		group.Wait()
		runDue(t, q)
		got := map[string]string{}
		for _, job := range l.runs {
			got[job.ID] = string(job.Payload)
		}
		for i, id := range ids {
			equal(t, got[id], strconv.Itoa(i))
		}
		equal(t, len(l.runs), callers)
	})
}

// A caller whose transaction holds a key makes those wait who want that key, and nobody else.
func TestHeldKeyHoldsUpNoOther(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	if len(dbs) < 2 {
		t.Skip("one node")
	}
	c := newClock()
	done := make(chan string, 10)
	binding := jobs.Binding{Name: "A", Run: func(_ context.Context, job jobs.Job) error {
		done <- string(job.Payload)
		return nil
	}}
	q, other := open(t, dbs[0], c, binding), node(t, dbs[1], jobs.Options{Now: c.Now}, binding)
	held, release := make(chan bool), make(chan bool)
	ended := make(chan error, 1)
	go func() {
		ended <- dbs[1].InTx(context.Background(), func(ctx context.Context) error {
			_, err := other.Enqueue(ctx, "A", "held", jobs.Key("k"))
			held <- true
			<-release
			return err
		})
	}()
	receive(t, held)
	waiting := make(chan error, 1)
	go func() {
		_, err := q.Enqueue(context.Background(), "A", "second", jobs.Key("k"))
		waiting <- err
	}()
	for range 5 {
		enqueue(t, q, "A", "free")
	}
	runDue(t, q)
	for range 5 {
		equal(t, receive(t, done), `"free"`)
	}
	close(release)
	if err := errors.Join(receive(t, ended), receive(t, waiting)); err != nil {
		t.Error(err)
	}
	runDue(t, q)
	equal(t, receive(t, done), `"held"`)
	equal(t, len(done), 0)
}

func TestEnqueueAll(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		l := &log{}
		c := newClock()
		q := open(t, db, c, jobs.Binding{Name: "A", Run: l.Run})
		payloads := make([]any, 2500) // more than one statement takes
		for i := range payloads {
			payloads[i] = i
		}
		ids, err := q.EnqueueAll(ctx, "A", payloads, jobs.At(start.Add(1)))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, len(slices.Compact(slices.Sorted(slices.Values(ids)))), len(payloads))
		if s, err := q.Stats(ctx); err != nil || s.Available != int64(len(payloads)) {
			t.Errorf("%+v, %v", s, err)
		}
		equal(t, status(t, q, ids[2499]).State, jobs.StateAvailable)

		failed := errors.New("rolled back")
		if err := db.InTx(ctx, func(ctx context.Context) error {
			if _, err := q.EnqueueAll(ctx, "A", payloads[:3]); err != nil {
				return err
			}
			return failed
		}); !errors.Is(err, failed) {
			t.Error(err)
		}
		if s, err := q.Stats(ctx); err != nil || s.Available != int64(len(payloads)) {
			t.Errorf("after a rollback: %+v, %v", s, err)
		}
		for want, call := range map[error]func() ([]string, error){
			jobs.ErrTooMany:        func() ([]string, error) { return q.EnqueueAll(ctx, "A", make([]any, jobs.MaxJobs+1)) },
			jobs.ErrInvalidKey:     func() ([]string, error) { return q.EnqueueAll(ctx, "A", payloads[:2], jobs.Key("k")) },
			jobs.ErrUnknownBinding: func() ([]string, error) { return q.EnqueueAll(ctx, "B", payloads[:2]) },
			jobs.ErrInvalidPayload: func() ([]string, error) { return q.EnqueueAll(ctx, "A", []any{1, func() {}}) },
		} {
			if _, err := call(); !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
		}
		if none, err := q.EnqueueAll(ctx, "A", nil); err != nil || len(none) != 0 {
			t.Errorf("%v, %v", none, err)
		}
	})
}

// Outcomes that come at the same time are each their own: some fail, some are repeated, one has lost its lease.
func TestSettledTogether(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		if err := db.Migrate(t.Context(), jobs.Migrations()); err != nil {
			t.Fatal(err)
		}
		const each = 4
		var ready sync.WaitGroup
		ready.Add(3 * each)
		together := func(outcome error) func(context.Context, jobs.Job) error {
			return func(context.Context, jobs.Job) error {
				ready.Done()
				ready.Wait()
				return outcome
			}
		}
		q := node(t, db, jobs.Options{Workers: 16}, jobs.Binding{Name: "DONE", Run: together(nil)},
			jobs.Binding{Name: "BAD", Run: together(jobs.Permanent(errors.New("bad")))},
			jobs.Binding{Name: "LOST", Run: func(ctx context.Context, job jobs.Job) error {
				_, err := db.Exec(context.WithoutCancel(ctx), `UPDATE kit_job SET lease_token = 'of another node' WHERE id = $1`, job.ID)
				return errors.Join(err, together(nil)(ctx, job))
			}})
		ids := map[string]jobs.State{}
		for range each {
			ids[enqueue(t, q, "DONE", nil, jobs.Key(""))] = jobs.StateCompleted
			ids[enqueue(t, q, "BAD", nil, jobs.Key(strconv.Itoa(len(ids))))] = jobs.StateDiscarded
			ids[enqueue(t, q, "LOST", nil)] = jobs.StateRunning
		}
		stop := run(t, q)
		ready.Wait()
		stop()
		for id, want := range ids {
			equal(t, status(t, q, id).State, want)
		}
	})
}
