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
		if _, err := q.EnqueueAll(t.Context(), "WORK", make([]any, 6000)); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(t.Context(), `UPDATE kit_job SET state = 'completed', finished_at = $1
			WHERE id IN (SELECT id FROM kit_job ORDER BY id LIMIT 3000)`, start.UnixMilli()); err != nil {
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
