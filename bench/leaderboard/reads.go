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

const rounds = 10

// compareReads reads ranks and top lists from the kit, with COUNT(*) and from Redis, in turns, so
// that other load of the machine affects all of them.
func compareReads(ctx context.Context, b *bench) error {
	scores, err := fillBig(ctx, b, *entries)
	if err != nil {
		return err
	}
	r, stop, err := startRedis()
	if err != nil {
		return err
	}
	defer stop()
	began := time.Now()
	if err := r.fill(scores); err != nil {
		return err
	}
	log.Printf("Redis filled in %v", time.Since(began).Round(time.Millisecond))

	view := leaderboard.View{Board: "big"}
	rng := rand.New(rand.NewPCG(3, 4))
	someone := func() string { return userID(rng.IntN(*entries)) }
	kinds := []struct {
		name string
		n    int
		call func(i int) error
		all  timings
	}{
		{name: "rank, kit", n: *samples / rounds, call: func(int) error { _, err := b.Me(ctx, view, someone()); return err }},
		{name: "rank, Redis", n: *samples / rounds, call: func(int) error { _, err := r.do("ZREVRANK", "big", someone()); return err }},
		{name: "entry, kit's database", n: *samples / rounds, call: func(int) error { return b.entry(ctx, someone()) }},
		{name: "rank, COUNT(*)", n: max(3, min(200, 200_000_000 / *entries)/rounds), call: func(int) error { return b.countRank(ctx, someone()) }},
		{name: "top 100, kit", n: *samples / rounds / 4, call: func(int) error {
			_, err := b.ListTop(ctx, view, capability.NewPage(100, ""))
			return err
		}},
		{name: "top 100, Redis", n: *samples / rounds / 4, call: func(int) error {
			_, err := r.do("ZREVRANGE", "big", "0", "99", "WITHSCORES")
			return err
		}},
		{name: "around 11, kit", n: *samples / rounds / 4, call: func(int) error { _, err := b.Around(ctx, view, someone(), 11); return err }},
	}
	for round := range rounds + 1 {
		for i := range kinds {
			k := &kinds[i]
			t, err := measure(k.n, k.call)
			if err != nil {
				return fmt.Errorf("%s: %w", k.name, err)
			}
			if round > 0 { // the first warms up
				k.all = append(k.all, t...)
			}
		}
	}
	if err := b.holds(ctx, someone); err != nil {
		return err
	}
	fmt.Printf("\nreads at %d entries, one caller, %s\n", *entries, b.db.Dialect())
	for _, k := range kinds {
		fmt.Printf("  %-24s %v\n", k.name, k.all)
	}
	ratio := func(x, y int) float64 { return float64(kinds[x].all.mean()) / float64(kinds[y].all.mean()) }
	fmt.Printf("  COUNT(*) / kit           %.0f times\n", ratio(3, 0))
	fmt.Printf("  kit / Redis, rank        %.2f times in the mean (%.2f at p50); of it the row itself %.2f\n", ratio(0, 1),
		float64(kinds[0].all.quantile(0.5))/float64(kinds[1].all.quantile(0.5)), ratio(2, 1))
	fmt.Printf("  kit / Redis, top 100     %.2f times in the mean\n", ratio(4, 5))
	return nil
}

// entry reads a row by its key, which is the minimum for any read of a rank.
func (b *bench) entry(ctx context.Context, user string) error {
	var key int64
	return b.db.QueryRow(ctx, `SELECT e.key FROM leaderboard_window w JOIN leaderboard_entry e ON e.window_id = w.id
		WHERE w.board = 'big' AND w.opened_at = 0 AND e.user_id = $1`, user).Scan(&key)
}

// countRank computes a rank by counting the entries ahead, on the order index.
func (b *bench) countRank(ctx context.Context, user string) error {
	_, err := b.counted(ctx, user)
	return err
}

func (b *bench) counted(ctx context.Context, user string) (rank int64, err error) {
	var window, key, at int64
	if err := b.db.QueryRow(ctx, `SELECT window_id, key, achieved_at FROM leaderboard_entry
		WHERE window_id = (SELECT id FROM leaderboard_window WHERE board = 'big') AND user_id = $1`, user).Scan(&window, &key, &at); err != nil {
		return 0, err
	}
	err = b.db.QueryRow(ctx, `SELECT 1 + COUNT(*) FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) < ($2, $3, $4)`, window, key, at, user).Scan(&rank)
	return rank, err
}

// holds compares some ranks with those that counting yields.
func (b *bench) holds(ctx context.Context, someone func() string) error {
	for range 20 {
		user := someone()
		s, err := b.Me(ctx, leaderboard.View{Board: "big"}, user)
		if err != nil {
			return err
		}
		counted, err := b.counted(ctx, user)
		if err != nil {
			return err
		}
		if s.Rank != counted || s.Total != int64(*entries) {
			return fmt.Errorf("%s: rank %d of %d, counted %d of %d", user, s.Rank, s.Total, counted, *entries)
		}
	}
	return nil
}
