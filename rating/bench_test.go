package rating_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/rating"
)

const callers = 64

// benchmark runs on a file, whose commits are durable, and on PostgreSQL.
func benchmark(b *testing.B, run func(b *testing.B, r *rating.Rating)) {
	b.Run("file", func(b *testing.B) { run(b, open(b, databasetest.File(b), config, rating.Peers{})) })
	b.Run("postgres", func(b *testing.B) { run(b, open(b, databasetest.Postgres(b), config, rating.Peers{})) })
}

// outcomesOf records games of random players out of 10,000 from 64 goroutines.
func outcomesOf(b *testing.B, r *rating.Rating, game string, size int, key func(n int64) string) {
	var calls atomic.Int64
	b.SetParallelism(callers / 2)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			ranks := make(map[string]int, size)
			for len(ranks) < size {
				ranks[fmt.Sprintf("user-%022d", rand.IntN(10_000))] = len(ranks) + 1
			}
			place := 0
			for id := range ranks {
				place++
				ranks[id] = place
			}
			if _, err := r.Record(context.Background(), game, rating.Outcome{Ranks: ranks, Key: key(calls.Add(1))}); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "outcomes/s")
}

func without(int64) string { return "" }

func BenchmarkRecord2(b *testing.B) {
	for _, game := range []string{"chess", "go"} {
		b.Run(game, func(b *testing.B) {
			benchmark(b, func(b *testing.B, r *rating.Rating) { outcomesOf(b, r, game, 2, without) })
		})
	}
	b.Run("keyed", func(b *testing.B) {
		benchmark(b, func(b *testing.B, r *rating.Rating) {
			outcomesOf(b, r, "chess", 2, func(n int64) string { return fmt.Sprint("session ", n) })
		})
	})
}

func BenchmarkRecord8(b *testing.B) {
	benchmark(b, func(b *testing.B, r *rating.Rating) { outcomesOf(b, r, "royale", 8, without) })
}

func BenchmarkRating(b *testing.B) {
	benchmark(b, func(b *testing.B, r *rating.Rating) {
		for i := 0; i < 1000; i += 2 {
			record(b, r, "chess", rating.Outcome{Ranks: map[string]int{fmt.Sprint(i): 1, fmt.Sprint(i + 1): 2}})
		}
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := r.Rating(context.Background(), "chess", fmt.Sprint(rand.IntN(1000))); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reads/s")
	})
}

// BenchmarkUpdate rates without a database, including decoding, checking and encoding.
func BenchmarkUpdate(b *testing.B) {
	for _, c := range []struct {
		id   string
		size int
	}{{"elo", 2}, {"glicko", 2}, {"trueskill", 2}, {"trueskill", 8}, {"trueskill", 64}, {"openskill", 2}, {"openskill", 8}, {"openskill", 64}} {
		b.Run(fmt.Sprint(c.id, c.size), func(b *testing.B) {
			r := bind(b, c.id, nil)
			sides := make([]rating.Side[string], c.size)
			for i := range sides {
				sides[i] = rating.Side[string]{Place: i + 1, Players: []string{r.Initial().State}}
			}
			for b.Loop() {
				if _, err := r.Update(sides); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHealth reads the distribution of a pool of 100,000.
func BenchmarkHealth(b *testing.B) {
	run := func(b *testing.B, db *database.DB) {
		r := open(b, db, config, rating.Peers{})
		err := db.InTx(b.Context(), func(ctx context.Context) error {
			for i := range 100_000 {
				if _, err := db.Exec(ctx, `INSERT INTO rating_player VALUES ('chess', $1, 'elo', '{"rating":1500}', $2, 0, 1, 0)`,
					fmt.Sprint(i), 1500+200*rand.NormFloat64()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		health := r.Capability().Health[0].Read
		for b.Loop() {
			if _, err := health(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("file", func(b *testing.B) { run(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) { run(b, databasetest.Postgres(b)) })
}
