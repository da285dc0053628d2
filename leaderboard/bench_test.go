package leaderboard_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/leaderboard"
)

const benchPlayers = 20_000

// eachBench runs fn with a board of benchPlayers on each database.
func eachBench(b *testing.B, fn func(b *testing.B, n *node, rng *rand.Rand)) {
	for name, db := range map[string]func(testing.TB) *database.DB{
		"sqlite":   func(t testing.TB) *database.DB { return databasetest.File(t) },
		"postgres": func(t testing.TB) *database.DB { return databasetest.Postgres(t) },
	} {
		b.Run(name, func(b *testing.B) {
			n := open(b, db(b), config, newClock())
			rng := rand.New(rand.NewPCG(1, 2))
			if _, err := n.Import(b.Context(), leaderboard.View{Board: "arcade"}, func(yield func(leaderboard.Entry) bool) {
				for i := range benchPlayers {
					if !yield(leaderboard.Entry{UserID: player(i), Score: benchScore(rng), AchievedAt: capability.Time{Time: n.clock.Now()}}) {
						return
					}
				}
			}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.ResetTimer()
			fn(b, n, rng)
		})
	}
}

func player(i int) string { return fmt.Sprintf("player-%06d", i) }

func benchScore(rng *rand.Rand) int64 { return int64(math.Exp(rng.NormFloat64()*1.5 + 9)) }

func BenchmarkMe(b *testing.B) {
	eachBench(b, func(b *testing.B, n *node, rng *rand.Rand) {
		for b.Loop() {
			if _, err := n.Me(context.Background(), leaderboard.View{Board: "arcade"}, player(rng.IntN(benchPlayers))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkTop100(b *testing.B) {
	eachBench(b, func(b *testing.B, n *node, rng *rand.Rand) {
		for b.Loop() {
			if _, err := n.ListTop(context.Background(), leaderboard.View{Board: "arcade"}, capability.NewPage(100, "")); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAround(b *testing.B) {
	eachBench(b, func(b *testing.B, n *node, rng *rand.Rand) {
		for b.Loop() {
			if _, err := n.Around(context.Background(), leaderboard.View{Board: "arcade"}, player(rng.IntN(benchPlayers)), 11); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkSegment(b *testing.B) {
	eachBench(b, func(b *testing.B, n *node, rng *rand.Rand) {
		friends := make([]string, leaderboard.MaxSegment)
		for b.Loop() {
			for i := range friends {
				friends[i] = player(rng.IntN(benchPlayers))
			}
			if _, err := n.Segment(context.Background(), leaderboard.View{Board: "arcade"}, friends...); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkSubmit measures concurrent callers, which share commits.
func BenchmarkSubmit(b *testing.B) {
	eachBench(b, func(b *testing.B, n *node, _ *rand.Rand) {
		b.SetParallelism(8)
		b.RunParallel(func(pb *testing.PB) {
			rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
			for pb.Next() {
				if _, err := n.Submit(context.Background(), leaderboard.Submission{
					Board: "xp", UserID: player(rng.IntN(benchPlayers)), Score: 1 + rng.Int64N(100)}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
