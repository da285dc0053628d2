package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	random "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/leaderboard"
)

// many runs fn in n goroutines, i from 0.
func many(n int, fn func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { fn(i) })
	}
	group.Wait()
}

// everywhere runs fn with one node on each SQLite database, and with two nodes on a PostgreSQL
// database of their own, whose count of deadlocks must stay 0.
func everywhere(t *testing.T, config leaderboard.Config, fn func(t *testing.T, nodes ...*node)) {
	t.Run("memory", func(t *testing.T) { fn(t, open(t, databasetest.Memory(t), config, newClock())) })
	t.Run("file", func(t *testing.T) { fn(t, open(t, databasetest.File(t), config, newClock())) })
	t.Run("two nodes", func(t *testing.T) {
		address, deadlocks := processtest.Database(t)
		at := newClock()
		t.Run("run", func(t *testing.T) {
			var nodes []*node
			for range 2 {
				db, err := postgres.Open(t.Context(), address)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = db.Close() })
				nodes = append(nodes, open(t, db, config, at))
			}
			fn(t, nodes...)
		})
		if n := deadlocks(); n != 0 {
			t.Errorf("%d deadlocks", n)
		}
	})
}

// TestWriters lets 16 callers submit, hide, show and remove concurrently, alone and inside
// transactions, and then checks the counts.
func TestWriters(t *testing.T) {
	config := leaderboard.KnowLittle(leaderboard.SmallRanges(config, 8), 20)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		ctx := t.Context()
		const steps, crowd = 40, 30
		many(16, func(i int) {
			n, rng := nodes[i%len(nodes)], random.New(random.NewPCG(uint64(i), 7))
			for range steps {
				board := []string{"arcade", "laps", "xp", "weekly"}[rng.IntN(4)]
				user := fmt.Sprintf("u%02d", rng.IntN(crowd))
				var err error
				switch rng.IntN(10) {
				case 0:
					_, err = n.SetHidden(ctx, board, user, leaderboard.Player, rng.IntN(2) == 0)
				case 1:
					err = n.Remove(ctx, leaderboard.View{Board: board}, user)
				case 2:
					err = n.db.InTx(ctx, func(ctx context.Context) error {
						for range 3 {
							if _, err := n.Submit(ctx, leaderboard.Submission{Board: board, UserID: user, Score: int64(rng.IntN(5))}); err != nil {
								return err
							}
						}
						return nil
					})
				default:
					_, err = n.Submit(ctx, leaderboard.Submission{Board: board, UserID: user, Score: int64(rng.IntN(5))})
				}
				if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
					t.Error(err)
				}
			}
		})
		n := nodes[0]
		n.addsUp(t)
		infos, err := n.Boards(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, board := range []string{"arcade", "laps", "xp", "weekly"} {
			v := leaderboard.View{Board: board}
			counted := v
			for _, info := range infos {
				if info.Key == board {
					counted.Window = info.Open
				}
			}
			for i := range crowd {
				user := fmt.Sprintf("u%02d", i)
				me, err := n.Me(ctx, v, user)
				if errors.Is(err, leaderboard.ErrEntryNotFound) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if counted := n.count(t, counted, user); counted != me.Rank {
					t.Errorf("%s %s: rank %d, counted %d", board, user, me.Rank, counted)
				}
			}
		}
	})
}

// TestFirst lets many callers make the first submission of a player, on a board without
// submissions, at the same instant.
func TestFirst(t *testing.T) {
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		ctx := t.Context()
		many(16, func(i int) {
			n := nodes[i%len(nodes)]
			submit := func(ctx context.Context) error {
				_, err := n.Submit(ctx, leaderboard.Submission{Board: "xp", UserID: "ada", Score: 1})
				return err
			}
			var err error
			if i%4 < 2 {
				err = submit(ctx)
			} else {
				err = n.db.InTx(ctx, submit)
			}
			if err != nil {
				t.Error(err)
			}
		})
		for _, n := range nodes {
			n.wantTop(t, leaderboard.View{Board: "xp"}, "ada:16")
			n.addsUp(t)
		}
	})
}

// TestDefinitionRace lets two configurations of one board submit first concurrently: the first one
// defines the board, the other is refused from then on.
func TestDefinitionRace(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		at := newClock()
		open(t, db, config, at)
		for round := range 20 {
			key := fmt.Sprint("raced-", round)
			var nodes []*node
			for _, direction := range []leaderboard.Direction{leaderboard.DirectionAscending, leaderboard.DirectionDescending} {
				n, err := build(db, leaderboard.Config{Boards: []leaderboard.Board{
					{Key: key, Direction: direction, Aggregation: leaderboard.AggregationBest}}}, at)
				if err != nil {
					t.Fatal(err)
				}
				nodes = append(nodes, n)
			}
			var accepted [2]atomic.Int64
			many(8, func(i int) {
				_, err := nodes[i%2].Submit(t.Context(), leaderboard.Submission{Board: key, UserID: fmt.Sprint("u", i), Score: 1})
				switch {
				case err == nil:
					accepted[i%2].Add(1)
				case !errors.Is(err, leaderboard.ErrBoardImmutable):
					t.Error(err)
				}
			})
			a, b := accepted[0].Load(), accepted[1].Load()
			if a+b != 4 || a != 0 && b != 0 {
				t.Errorf("%d and %d accepted", a, b)
			}
			for _, n := range nodes {
				n.addsUp(t)
			}
		}
	})
}

// TestBatch compares a batch with the same submissions one by one.
func TestBatch(t *testing.T) {
	databasetest.Each(t, batch)
}

func batch(t *testing.T, db *database.DB) {
	fewer(t)
	at := newClock()
	open(t, db, config, at)
	rapid.Check(t, func(t *rapid.T) {
		cfg, models := newWorld()
		n, err := build(db, leaderboard.SmallRanges(cfg, 3), at)
		if err != nil {
			t.Fatal(err)
		}
		m := rapid.SampledFrom(models).Draw(t, "board")
		for range rapid.IntRange(1, 4).Draw(t, "batches") {
			var calls []func()
			for range rapid.IntRange(1, 8).Draw(t, "calls") {
				user, score := rapid.SampledFrom(players).Draw(t, "user"), rapid.SampledFrom(scores).Draw(t, "score")
				want := m.submit(user, score, at.Now())
				wantEntry := m.windows[m.open(at.Now())][user]
				calls = append(calls, func() {
					e, err := n.Submit(context.Background(), leaderboard.Submission{Board: m.Key, UserID: user, Score: score})
					if !errors.Is(err, want) {
						t.Errorf("got %v, want %v", err, want)
					}
					if diff := gocmp.Diff(wantEntry, e); err == nil && diff != "" {
						t.Errorf("%s %d: %s", user, score, diff)
					}
				})
			}
			n.Gather(m.Key, calls...)
			if rapid.Bool().Draw(t, "hide") {
				step(context.Background(), t, n, m)
			}
			same(t, n, m)
		}
	})
}

// TestKnown checks that the cached entries of a node are not used after another node has changed
// the board.
func TestKnown(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	at := newClock()
	a := open(t, dbs[0], config, at)
	b, err := build(dbs[1], config, at)
	if err != nil {
		t.Fatal(err)
	}
	submit := func(n *node, board, user string, score, want int64) {
		t.Helper()
		e, err := n.Submit(t.Context(), leaderboard.Submission{Board: board, UserID: user, Score: score})
		if err != nil || e.Score != want {
			t.Errorf("%s %s %d: %d, %v, want %d", board, user, score, e.Score, err, want)
		}
	}
	arcade := leaderboard.View{Board: "arcade"}
	// The first submission locks, the second reads, the third uses the cache.
	know := func() {
		t.Helper()
		for i := range int64(3) {
			submit(a, "arcade", "ada", 10+i, 10+i)
			submit(a, "daily", "ada", 5, 5)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	know()
	submit(a, "arcade", "ada", 1, 12) // nothing to write
	submit(b, "arcade", "ada", 30, 30)
	submit(a, "arcade", "ada", 1, 30)
	submit(a, "arcade", "ada", 20, 30)

	must(b.Remove(t.Context(), arcade, "ada"))
	submit(a, "arcade", "ada", 1, 1)
	know()
	must(b.Remove(t.Context(), arcade, "ada"))
	submit(a, "arcade", "ada", 2, 2)

	know()
	_, err = b.SetHidden(t.Context(), "arcade", "ada", leaderboard.Player, true)
	must(err)
	submit(a, "arcade", "ada", 40, 40)
	a.wantTop(t, arcade)
	_, err = b.SetHidden(t.Context(), "arcade", "ada", leaderboard.Player, false)
	must(err)
	submit(a, "arcade", "ada", 3, 40)
	a.wantTop(t, arcade, "ada:40")

	changed := errors.New("changed my mind")
	if err := b.db.InTx(t.Context(), func(ctx context.Context) error {
		if _, err := b.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: "ada", Score: 90}); err != nil {
			return err
		}
		return changed
	}); !errors.Is(err, changed) {
		t.Error(err)
	}
	submit(a, "arcade", "ada", 41, 41)

	at.advance(24 * time.Hour) // opens a new window of "daily"
	submit(a, "daily", "ada", 1, 1)
	at.advance(-24 * time.Hour)
	submit(a, "daily", "ada", 7, 7)
	a.wantTop(t, leaderboard.View{Board: "daily"}, "ada:7")
	a.wantTop(t, leaderboard.View{Board: "daily", Window: "20261122T0000Z"}, "ada:1")
	a.addsUp(t)
}

// TestBatchGivesUp checks that a queued submission is dropped when its caller cancels or the
// leaderboard is closed.
func TestBatchGivesUp(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { batchGivesUp(t, open(t, db, config, newClock())) })
}

func batchGivesUp(t *testing.T, n *node) {
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	n.Gather("xp",
		func() {
			if _, err := n.Submit(t.Context(), leaderboard.Submission{Board: "xp", UserID: "ada", Score: 1}); err != nil {
				t.Error(err)
			}
		},
		func() {
			_, err := n.Submit(ctx, leaderboard.Submission{Board: "xp", UserID: "bob", Score: 1})
			wantErr(t, err, context.Canceled)
			close(left)
		},
		func() {
			cancel()
			<-left
		},
	)
	n.wantTop(t, leaderboard.View{Board: "xp"}, "ada:1")
	_, err := n.Submit(ctx, leaderboard.Submission{Board: "xp", UserID: "bob", Score: 1})
	wantErr(t, err, context.Canceled)
	if err := n.Capability().Close(t.Context()); err != nil {
		t.Error(err)
	}
	_, err = n.Submit(t.Context(), leaderboard.Submission{Board: "xp", UserID: "bob", Score: 1})
	wantErr(t, err, database.ErrClosed)
}
