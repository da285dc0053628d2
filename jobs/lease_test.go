package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

// eachTwoNodes runs fn on what two nodes share: one SQLite database, or two connections to one PostgreSQL schema.
func eachTwoNodes(t *testing.T, fn func(t *testing.T, a, b *database.DB)) {
	t.Run("sqlite", func(t *testing.T) {
		db := databasetest.Memory(t)
		fn(t, db, db)
	})
	t.Run("postgres", func(t *testing.T) {
		dbs := databasetest.Shared(t, 2)
		fn(t, dbs[0], dbs[1])
	})
}

// A node that stops renewing its lease loses the job; what it reports later, in its own transaction or by returning,
// counts for nothing.
func TestAnotherNodeTakesOver(t *testing.T) {
	eachTwoNodes(t, func(t *testing.T, a, b *database.DB) {
		ctx := t.Context()
		c := newClock()
		began, hold := make(chan bool), make(chan error)
		var late error
		dead := open(t, a, c, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			began <- true
			outcome := <-hold
			late = a.InTx(ctx, func(ctx context.Context) error {
				if _, err := a.Exec(ctx, `INSERT INTO jobs_effect (job) VALUES ('late')`); err != nil {
					return err
				}
				return jobs.Complete(ctx)
			})
			return outcome
		}})
		if _, err := a.Exec(ctx, `CREATE TABLE jobs_effect (job TEXT NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		for _, outcome := range []error{nil, errors.New("failed"), jobs.Permanent(errors.New("failed"))} {
			var attempt int
			alive := node(t, b, jobs.Options{Now: c.Now}, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
				attempt = job.Attempt
				return nil
			}})
			id := enqueue(t, dead, "A", nil)
			done := make(chan error)
			go func() {
				_, err := dead.RunDue(context.Background())
				done <- err
			}()
			receive(t, began)

			c.Advance(59 * time.Second)
			runDue(t, alive)
			equal(t, attempt, 0)
			c.Advance(time.Second)
			runDue(t, alive)
			equal(t, attempt, 2)
			finished := status(t, alive, id)
			equal(t, finished.State, jobs.StateCompleted)

			hold <- outcome
			if err := receive(t, done); err != nil {
				t.Fatal(err)
			}
			if !errors.Is(late, jobs.ErrLeaseLost) {
				t.Errorf("Complete of the dead node: %v", late)
			}
			equal(t, status(t, alive, id), finished)
		}
		var effects int
		if err := a.QueryRow(ctx, `SELECT count(*) FROM jobs_effect`).Scan(&effects); err != nil || effects != 0 {
			t.Errorf("%d effects of the dead node, %v", effects, err)
		}
	})
}

// The same while the other node is still at work.
func TestLateReportDuringAnotherRun(t *testing.T) {
	eachTwoNodes(t, func(t *testing.T, a, b *database.DB) {
		c := newClock()
		began, done := make(chan bool), make(chan error)
		binding := func(hold chan error) jobs.Binding {
			return jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
				began <- true
				return <-hold
			}}
		}
		work := func(q *jobs.Queue) {
			_, err := q.RunDue(context.Background())
			done <- err
		}
		for _, outcome := range []error{nil, errors.New("failed"), jobs.Snooze(0), jobs.Cancel(errors.New("unwanted"))} {
			holdDead, holdAlive := make(chan error), make(chan error)
			dead := open(t, a, c, binding(holdDead))
			alive := node(t, b, jobs.Options{Now: c.Now}, binding(holdAlive))
			id := enqueue(t, dead, "A", nil)
			go work(dead)
			receive(t, began)
			c.Advance(time.Minute)
			go work(alive)
			receive(t, began)
			second := status(t, alive, id)
			equal(t, second.Attempt, 2)

			holdDead <- outcome
			if err := receive(t, done); err != nil {
				t.Fatal(err)
			}
			equal(t, status(t, alive, id), second)
			holdAlive <- nil
			if err := receive(t, done); err != nil {
				t.Fatal(err)
			}
			equal(t, status(t, alive, id).State, jobs.StateCompleted)
		}
	})
}

// claim leaves a job running under a lease that nobody renews.
func claim(t *testing.T, db *database.DB, id string) {
	t.Helper()
	if n, err := db.Exec(t.Context(), `UPDATE kit_job SET state = 'running', attempt = attempt + 1, lease_token = 'gone', lease_until = $2
		WHERE id = $1`, id, start.UnixMilli()); err != nil || n != 1 {
		t.Fatal(n, err)
	}
}

func TestExpiredLeases(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := &log{}
		q := open(t, db, newClock(), jobs.Binding{Name: "A", MaxAttempts: 2, Run: l.Run}, jobs.Binding{Name: "ONCE", MaxAttempts: 1, Run: l.Run})
		again := enqueue(t, q, "A", "again", jobs.Key("k1"))
		spent := enqueue(t, q, "ONCE", "spent", jobs.Key("k2"))
		replaced := enqueue(t, q, "A", "replaced", jobs.Key("k"))
		for _, id := range []string{again, spent, replaced} {
			claim(t, db, id)
		}
		setAlarm(t, q, start.Add(time.Hour), "new")
		runDue(t, q)
		equal(t, l.take(), []string{`"again"`})
		for id, want := range map[string]jobs.Status{
			again:    {State: jobs.StateCompleted, Attempt: 2},
			spent:    {State: jobs.StateDiscarded, Attempt: 1, LastError: "lease expired"},
			replaced: {State: jobs.StateCancelled, Attempt: 1, LastError: "lease expired"},
		} {
			got := status(t, q, id)
			equal(t, jobs.Status{State: got.State, Attempt: got.Attempt, LastError: got.LastError}, want)
		}
	})
}

func TestLongRunKeepsItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		runs := 0
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Timeout: time.Hour, Run: func(ctx context.Context, _ jobs.Job) error {
			runs++
			pass(10 * time.Minute)
			return ctx.Err()
		}})
		stop := runInBubble(t, q)
		id := enqueue(t, q, "A", nil)
		pass(11 * time.Minute)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
		equal(t, runs, 1)
		stop()
	})
}

// A run that ignores its timeout loses its lease, so that the job is not stuck with it.
func TestRunPastItsTimeoutLosesItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Timeout: time.Minute, Run: func(_ context.Context, job jobs.Job) error {
			if job.Attempt == 1 {
				pass(10 * time.Minute)
			}
			return nil
		}})
		stop := runInBubble(t, q)
		id := enqueue(t, q, "A", nil)
		pass(3 * time.Minute)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
		equal(t, status(t, q, id).Attempt, 2)
		pass(10 * time.Minute)
		stop()
	})
}

func TestLostLeaseCancelsTheRun(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		var cause error
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			if _, err := db.Exec(ctx, `UPDATE kit_job SET lease_token = 'of another node' WHERE id = $1`, job.ID); err != nil {
				t.Error(err)
			}
			began := time.Now()
			<-ctx.Done()
			cause = context.Cause(ctx)
			equal(t, time.Since(began), 20*time.Second)
			return ctx.Err()
		}})
		enqueue(t, q, "A", nil)
		runDue(t, q)
		if !errors.Is(cause, jobs.ErrLeaseLost) {
			t.Errorf("cause: %v", cause)
		}
	})
}

func TestRunMayGoOnAfterComplete(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		var after error
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(ctx context.Context, _ jobs.Job) error {
			if err := db.InTx(ctx, jobs.Complete); err != nil {
				return err
			}
			pass(2 * time.Minute)
			after = ctx.Err()
			return nil
		}})
		id := enqueue(t, q, "A", nil)
		runDue(t, q)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
		if after != nil {
			t.Error(after)
		}
	})
}

// A node cut off from the database takes its lease for lost when nobody else can tell it so.
func TestCutOffRunLosesItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		var cause error
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(ctx context.Context, job jobs.Job) error {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			began := time.Now()
			<-ctx.Done()
			cause = context.Cause(ctx)
			equal(t, time.Since(began), time.Minute)
			return ctx.Err()
		}})
		enqueue(t, q, "A", nil)
		if _, err := q.RunDue(t.Context()); !errors.Is(err, database.ErrClosed) {
			t.Error(err)
		}
		if !errors.Is(cause, jobs.ErrLeaseLost) {
			t.Errorf("cause: %v", cause)
		}
	})
}

// A short outage does not make finished work run again.
func TestOutcomeIsRecordedAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		exec := func(statement string) {
			if _, err := db.Exec(t.Context(), statement); err != nil {
				t.Error(err)
			}
		}
		q := node(t, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
			exec(`ALTER TABLE kit_job RENAME TO kit_job_away`)
			time.AfterFunc(2500*time.Millisecond, func() { exec(`ALTER TABLE kit_job_away RENAME TO kit_job`) })
			return nil
		}})
		id := enqueue(t, q, "A", nil)
		runDue(t, q)
		equal(t, status(t, q, id).State, jobs.StateCompleted)
		equal(t, status(t, q, id).Attempt, 1)
	})
}
