package jobs_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
)

func eachBench(b *testing.B, fn func(b *testing.B, db *database.DB)) {
	b.Run("memory", func(b *testing.B) {
		db, err := database.OpenMemory()
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = db.Close() })
		fn(b, db)
	})
	b.Run("file", func(b *testing.B) { fn(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) { fn(b, databasetest.Postgres(b)) })
}

// BenchmarkEnqueueToDone measures from the call of Enqueue, in a transaction of its own, to the recorded completion.
func BenchmarkEnqueueToDone(b *testing.B) {
	eachBench(b, func(b *testing.B, db *database.DB) {
		if err := db.Migrate(b.Context(), jobs.Migrations()); err != nil {
			b.Fatal(err)
		}
		done := make(chan time.Time, 1)
		q := node(b, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(ctx context.Context, _ jobs.Job) error {
			err := db.InTx(ctx, jobs.Complete)
			done <- time.Now()
			return err
		}})
		stop := run(b, q)
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			enqueue(b, q, "A", nil)
			took = append(took, (<-done).Sub(began))
		}
		stop()
		slices.Sort(took)
		for _, p := range []int{50, 99} {
			b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
		}
	})
}

// BenchmarkThroughput enqueues from eight or 64 callers and works with sixteen workers at the same time.
func BenchmarkThroughput(b *testing.B) {
	eachBench(b, func(b *testing.B, db *database.DB) {
		if err := db.Migrate(b.Context(), jobs.Migrations()); err != nil {
			b.Fatal(err)
		}
		for _, callers := range []int{8, 64} {
			b.Run(fmt.Sprint(callers), func(b *testing.B) { throughput(b, db, callers) })
		}
	})
}

func throughput(b *testing.B, db *database.DB, callers int) {
	var left sync.WaitGroup
	q := node(b, db, jobs.Options{}, jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
		left.Done()
		return nil
	}})
	stop := run(b, q)
	left.Add(b.N)
	b.ResetTimer()
	var group sync.WaitGroup
	for c := range callers {
		group.Go(func() {
			for i := c; i < b.N; i += callers {
				if _, err := q.Enqueue(context.Background(), "A", nil); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
	left.Wait()
	stop() // which waits for the completions
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
