package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

// TestLagCostsTheSameHoweverManyJobsThereAre: readiness probes ask for it, and one that takes long fails.
func TestLagCostsTheSameHoweverManyJobsThereAre(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		c := &clock{now: start}
		q := open(t, db, c, jobs.Binding{Name: "WORK", Run: func(context.Context, jobs.Job) error { return nil }})
		if _, err := q.EnqueueAll(t.Context(), "WORK", make([]any, 3000)); err != nil {
			t.Fatal(err)
		}
		// Rows of their own: an update would leave dead ones in the index for as long as other tests have snapshots.
		if _, err := db.Exec(t.Context(), `INSERT INTO kit_job
				(id, binding, key, holds_key, payload, state, run_at, attempt, max_attempts, created_at, finished_at)
			SELECT 'done-' || id, binding, key, holds_key, payload, 'completed', run_at, 1, max_attempts, created_at, CAST($1 AS BIGINT)
			FROM kit_job`, start.UnixMilli()); err != nil {
			t.Fatal(err)
		}
		c.Advance(time.Minute)
		if lag, leased, err := q.Lag(t.Context()); lag != time.Minute || leased != 0 || err != nil {
			t.Errorf("lag %v, %d leased: %v", lag, leased, err)
		}
		databasetest.Seeks(t, db, "n first_job", jobs.DueBindings, database.List([]string{"KIT_JOBS_SWEEP", "WORK"}))
		databasetest.Seeks(t, db, "", jobs.LeasedJobs, start.UnixMilli(), start.Add(time.Hour).UnixMilli())
	})
}
