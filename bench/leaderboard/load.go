package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/leaderboard"
)

// fillBig imports entries into the board "big": they are copied into the table, and the counts are
// computed afterwards, chunk by chunk.
func fillBig(ctx context.Context, b *bench, n int) (scores []int64, err error) {
	began := time.Now()
	copied := began
	rng := rand.New(rand.NewPCG(1, 2))
	scores = make([]int64, n)
	report, err := b.Import(ctx, leaderboard.View{Board: "big"}, func(yield func(leaderboard.Entry) bool) {
		for i := range scores {
			scores[i] = scoreOf(rng)
			e := leaderboard.Entry{UserID: userID(i), Score: scores[i], AchievedAt: capability.Millis(1_750_000_000_000 + rng.Int64N(1e9))}
			if !yield(e) {
				return
			}
		}
		copied = time.Now()
	})
	if err != nil {
		return nil, err
	}
	if report.Entries != int64(n) {
		return nil, fmt.Errorf("%d entries instead of %d", report.Entries, n)
	}
	log.Printf("%d entries copied in %v, counted in %v with pauses: %d buckets", n,
		copied.Sub(began).Round(time.Millisecond), time.Since(copied).Round(time.Millisecond), report.Repaired)
	return scores, nil
}
