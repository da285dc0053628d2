package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processor"
	"github.com/kitbackend/kit/leaderboard"
)

// compareWrites submits new scores of random players: on SQLite also with a transaction for every
// call, on PostgreSQL also with a plain upsert into a table with the same index and without counts.
func compareWrites(ctx context.Context, b *bench) error {
	callers := 64
	if b.db.Dialect() == database.PostgreSQL {
		callers = 16
		if err := b.plainTable(ctx); err != nil {
			return err
		}
	}
	submit := func(board string) func(*rand.Rand) error {
		return func(rng *rand.Rand) error {
			_, err := b.Submit(ctx, leaderboard.Submission{Board: board, UserID: userID(rng.IntN(*players)), Score: 1 + rng.Int64N(100)})
			return err
		}
	}
	kinds := []load{{name: "submit, kit", call: submit("grouped")}}
	if b.db.Dialect() == database.SQLite {
		var one sync.Mutex
		single := submit("single")
		kinds = append(kinds, load{name: "submit, a transaction a call", call: func(rng *rand.Rand) error {
			one.Lock()
			defer one.Unlock()
			return single(rng)
		}})
	} else {
		kinds = append(kinds, load{name: "plain upsert a transaction", call: func(rng *rand.Rand) error { return b.plainUpsert(ctx, rng) }})
	}
	if err := b.fill(ctx, "grouped", "single"); err != nil {
		return err
	}
	for round := range 9 { // the first warms up
		for i := range kinds {
			rate, cpu, err := pressure(callers, kinds[i].call)
			if err != nil {
				return fmt.Errorf("%s: %w", kinds[i].name, err)
			}
			if round > 0 {
				kinds[i].rate, kinds[i].cpu = append(kinds[i].rate, rate), append(kinds[i].cpu, cpu)
			}
		}
	}
	fmt.Printf("\nwrites to %d players, %d callers, durable, %s\n", *players, callers, b.db.Dialect())
	means := make([]float64, len(kinds))
	for i, k := range kinds {
		for _, r := range k.rate {
			means[i] += r / float64(len(k.rate))
		}
		fmt.Printf("  %-30s %8.0f a second   rounds %.0f   own CPU %.0f us a call\n", k.name, means[i], k.rate, k.cpu)
	}
	fmt.Printf("  kit / other                    %.2f times\n", means[0]/means[1])
	report, err := b.Verify(ctx)
	if err == nil {
		err = report.Err()
	}
	return err
}

// load is one kind of call, with the calls per second of its rounds and the CPU time of this
// process that a call took in them, in microseconds.
type load struct {
	name      string
	call      func(*rand.Rand) error
	rate, cpu []float64
}

// pressure returns how many calls per second a number of callers make.
func pressure(callers int, call func(*rand.Rand) error) (rate, cpu float64, err error) {
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var group sync.WaitGroup
	began, used := time.Now(), processor.Spent()
	until := began.Add(time.Duration(*seconds * float64(time.Second)))
	for i := range callers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), uint64(began.UnixNano())))
			for time.Now().Before(until) {
				if err := call(rng); err != nil {
					failed.Store(&err)
					return
				}
				calls.Add(1)
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return 0, 0, *err
	}
	n := float64(calls.Load())
	return n / time.Since(began).Seconds(), micros(processor.Spent()-used) / n, nil
}

// fill gives every player a score on each board, and in the plain table.
func (b *bench) fill(ctx context.Context, boards ...string) error {
	began := time.Now()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, board := range boards {
		if _, err := b.Import(ctx, leaderboard.View{Board: board}, func(yield func(leaderboard.Entry) bool) {
			for i := range *players {
				e := leaderboard.Entry{UserID: userID(i), Score: scoreOf(rng), AchievedAt: capability.Millis(1_750_000_000_000)}
				if !yield(e) {
					return
				}
			}
		}); err != nil {
			return err
		}
	}
	if b.db.Dialect() == database.PostgreSQL {
		if _, err := b.db.Exec(ctx, `INSERT INTO bench_plain SELECT e.* FROM leaderboard_window w
			JOIN leaderboard_entry e ON e.window_id = w.id WHERE w.board = 'single'`); err != nil {
			return err
		}
	}
	log.Printf("%d players on %d boards in %v", *players, len(boards), time.Since(began).Round(time.Millisecond))
	return nil
}

// plainTable creates a copy of the table of entries and its indexes.
func (b *bench) plainTable(ctx context.Context) error {
	_, err := b.db.Exec(ctx, `CREATE TABLE bench_plain (LIKE leaderboard_entry INCLUDING ALL)`)
	return err
}

func (b *bench) plainUpsert(ctx context.Context, rng *rand.Rand) error {
	_, err := b.db.Exec(ctx, `INSERT INTO bench_plain
			(window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank)
		VALUES (1, $1, $2, $3, $4, 0, 0, 0, 0)
		ON CONFLICT (window_id, user_id) DO UPDATE SET key = bench_plain.key + excluded.key, bucket = excluded.bucket, achieved_at = excluded.achieved_at`,
		userID(rng.IntN(*players)), -1-rng.Int64N(100), int64(0), time.Now().UnixMilli())
	return err
}
