package jobs_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/jobs"
)

const crashVariable = "JOBS_TEST_CRASH"

// TestMain lets the test binary be the node that is killed.
func TestMain(m *testing.M) {
	if address := os.Getenv(crashVariable); address != "" {
		crash(address)
	}
	os.Exit(m.Run())
}

// effect is a binding whose work, a row for each run, is in one transaction with its completion.
func effect(db *database.DB) jobs.Binding {
	return jobs.Binding{Name: "EFFECT", Run: func(ctx context.Context, job jobs.Job) error {
		return db.InTx(ctx, func(ctx context.Context) error {
			if _, err := db.Exec(ctx, `INSERT INTO jobs_effect (job) VALUES ($1)`, job.ID); err != nil {
				return err
			}
			return jobs.Complete(ctx)
		})
	}}
}

// crash enqueues and works until it is killed, and prints the id of every enqueue that was acknowledged.
func crash(address string) {
	db, err := processtest.Open(address)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	q := jobs.New(db, nil, jobs.Options{Log: discard})
	if err := q.Register(effect(db)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() { _ = q.Run(context.Background()) }()
	for range 8 {
		go func() {
			for {
				id, err := q.Enqueue(context.Background(), "EFFECT", nil)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				fmt.Fprintln(os.Stdout, id)
			}
		}()
	}
	select {}
}

// Killed under load again and again, every acknowledged job is done in the end, and its effect is there exactly once.
func TestKilledNode(t *testing.T) { processtest.Each(t, killRepeatedly) }

func killRepeatedly(t *testing.T, address string) {
	ctx := t.Context()
	with := func(fn func(db *database.DB)) {
		db, err := processtest.Open(address)
		if err != nil {
			t.Fatal(err)
		}
		fn(db)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	with(func(db *database.DB) {
		if err := db.Migrate(ctx, jobs.Migrations()); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(ctx, `CREATE TABLE jobs_effect (job TEXT NOT NULL)`); err != nil {
			t.Fatal(err)
		}
	})
	var acknowledged []string
	for range 4 {
		acknowledged = append(acknowledged, processtest.Kill(t, processtest.Again(crashVariable, address), 100)...)
	}
	with(func(db *database.DB) {
		later := func() time.Time { return time.Now().Add(2 * time.Minute) } // the leases of the dead have expired
		q := node(t, db, jobs.Options{Now: later}, effect(db))
		runDue(t, q)
		for _, id := range acknowledged {
			if s, ok, err := q.Job(ctx, id); err != nil || !ok || s.State != jobs.StateCompleted {
				t.Errorf("job %s: %+v, %v, %v", id, s, ok, err)
			}
		}
		var done, effects, distinct int
		if err := db.QueryRow(ctx, `SELECT (SELECT count(*) FROM kit_job WHERE binding = 'EFFECT' AND state = 'completed'),
			(SELECT count(*) FROM jobs_effect), (SELECT count(DISTINCT job) FROM jobs_effect)`).Scan(&done, &effects, &distinct); err != nil {
			t.Fatal(err)
		}
		if done < len(acknowledged) || effects != done || distinct != done {
			t.Errorf("%d acknowledged, %d done, %d effects of %d jobs", len(acknowledged), done, effects, distinct)
		}
		t.Logf("%d acknowledged, %d done", len(acknowledged), done)
	})
}
