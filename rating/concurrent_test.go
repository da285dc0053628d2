package rating_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/rating"
)

// TestRacing records outcomes of few players from 16 goroutines concurrently, including first
// games: none is lost or counted twice, and none fails.
func TestRacing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		open(t, db, config, rating.Peers{})
		race(t, db)
	})
}

// TestRacingTwoKits does the same from two nodes on one PostgreSQL database.
func TestRacingTwoKits(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	open(t, dbs[0], config, rating.Peers{})
	race(t, dbs...)
}

// TestNewcomers lets many concurrent games insert the first rows of their players.
func TestNewcomers(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		open(t, db, config, rating.Peers{})
		newcomers(t, db)
	})
}

// TestNewcomersTwoKits does the same from two nodes on one PostgreSQL database.
func TestNewcomersTwoKits(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	open(t, dbs[0], config, rating.Peers{})
	newcomers(t, dbs...)
}

func newcomers(t *testing.T, dbs ...*database.DB) {
	const goroutines, rounds = 16, 10
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			node, random := build(t, dbs[g%len(dbs)], config, rating.Peers{}), rand.New(rand.NewPCG(uint64(g), 6))
			for round := range rounds {
				ranks := make(map[string]int)
				for place, p := range random.Perm(10)[:8] {
					ranks[fmt.Sprint(round, " ", p)] = place + 1
				}
				if _, err := node.Record(t.Context(), "royale", rating.Outcome{Ranks: ranks}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := count1(t, dbs[0], `SELECT SUM(games_played) FROM rating_player`); n != 8*goroutines*rounds {
		t.Errorf("%d of %d games were kept", n, 8*goroutines*rounds)
	}
}

func race(t *testing.T, dbs ...*database.DB) {
	const goroutines, each = 16, 12
	nodes := make([]*rating.Rating, len(dbs))
	for i, db := range dbs {
		nodes[i] = build(t, db, config, rating.Peers{})
	}
	var games [10]atomic.Int64 // of each player
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			node, random := nodes[g%len(nodes)], rand.New(rand.NewPCG(uint64(g), 5))
			for range each {
				game, size := "chess", 2
				if random.IntN(2) == 0 {
					game, size = "race", 4
				}
				ranks := make(map[string]int)
				for i, p := range random.Perm(5)[:size] {
					if game == "race" {
						p += 5
					}
					ranks[fmt.Sprint(p)] = i + 1
					games[p].Add(1)
				}
				if _, err := node.Record(t.Context(), game, rating.Outcome{Ranks: ranks}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	sum, players := 0.0, 0
	for p := range games {
		game := "chess"
		if p >= 5 {
			game = "race"
		}
		got, err := nodes[0].Rating(t.Context(), game, fmt.Sprint(p))
		if err != nil {
			t.Fatal(err)
		}
		if got.GamesPlayed != games[p].Load() {
			t.Errorf("player %d played %d games, %d are kept", p, games[p].Load(), got.GamesPlayed)
		}
		if game == "chess" {
			sum, players = sum+*got.Skill, players+1
		}
	}
	if want := 1500 * float64(players); math.Abs(sum-want) > 1e-6 {
		t.Errorf("the ratings sum to %v, not %v", sum, want)
	}
}

// TestOneKey records one outcome under one key from many goroutines.
func TestOneKey(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		open(t, db, config, rating.Peers{})
		oneKey(t, db)
	})
}

// TestOneKeyTwoKits does the same from two nodes on one PostgreSQL database.
func TestOneKeyTwoKits(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	open(t, dbs[0], config, rating.Peers{})
	oneKey(t, dbs...)
}

func oneKey(t *testing.T, dbs ...*database.DB) {
	var first atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			node := build(t, dbs[g%len(dbs)], config, rating.Peers{})
			got, err := node.Record(context.Background(), "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}, Key: "one"})
			if err != nil {
				t.Error(err)
			} else if !got.Replayed {
				first.Add(1)
			}
			if len(got.Players) != 2 || *got.Players[0].After.Skill != 1516 {
				t.Errorf("got %+v", got)
			}
		})
	}
	wg.Wait()
	if first.Load() != 1 {
		t.Errorf("%d calls were the first", first.Load())
	}
	if n := count1(t, dbs[0], `SELECT SUM(games_played) FROM rating_player`); n != 2 {
		t.Errorf("%d games were counted", n)
	}
}

// TestOneAlgorithmAPool checks two configurations of one pool whose first outcomes are concurrent,
// in turn, or after one that was rolled back: one wins, and the other is refused from then on, also
// on a node that had checked before.
func TestOneAlgorithmAPool(t *testing.T) {
	pools := func(t *testing.T, dbs ...*database.DB) {
		open(t, dbs[0], config, rating.Peers{})
		for round := range 20 {
			key := fmt.Sprint("raced", round)
			var nodes []*rating.Rating
			for i, algorithm := range []string{"elo", "glicko"} {
				nodes = append(nodes, build(t, dbs[i%len(dbs)], rating.Config{Games: []rating.Game{{Key: key, Algorithm: algorithm, XP: xp}}}, rating.Peers{}))
			}
			changed := errors.New("changed my mind")
			if err := dbs[0].InTx(t.Context(), func(ctx context.Context) error {
				if _, err := nodes[0].Record(ctx, key, rating.Outcome{Ranks: map[string]int{"x": 1, "y": 2}}); err != nil {
					return err
				}
				return changed
			}); !errors.Is(err, changed) {
				t.Fatal(err)
			}
			var accepted [2]atomic.Int64
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					_, err := nodes[i%2].Record(t.Context(), key, rating.Outcome{Ranks: map[string]int{fmt.Sprint("a", i): 1, fmt.Sprint("b", i): 2}})
					switch {
					case err == nil:
						accepted[i%2].Add(1)
					case !errors.Is(err, rating.ErrOtherAlgorithm):
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if a, b := accepted[0].Load(), accepted[1].Load(); a+b != 4 || a != 0 && b != 0 {
				t.Errorf("%d and %d accepted", a, b)
			}
			if n := count1(t, dbs[0], `SELECT COUNT(DISTINCT algorithm) FROM rating_player WHERE pool = $1`, key); n != 1 {
				t.Errorf("%d algorithms in one pool", n)
			}
		}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) { pools(t, db) })
	t.Run("two nodes", func(t *testing.T) { pools(t, databasetest.Shared(t, 2)...) })
}

// TestOutcomeMeetsAnErasure checks that a player who is erased between the read of the rows and
// their locks starts anew, and that the other player's game counts.
func TestOutcomeMeetsAnErasure(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	r := open(t, dbs[0], config, rating.Peers{})
	erasing := build(t, dbs[1], config, rating.Peers{})
	outcome := rating.Outcome{Ranks: map[string]int{"ada": 2, "bob": 1}}
	record(t, r, "chess", outcome)
	var result rating.Result
	ended := make(chan error, 1)
	if err := dbs[1].InTx(t.Context(), func(ctx context.Context) error {
		if _, err := erasing.Capability().Erase(ctx, capability.Person{ID: "ada"}); err != nil {
			return err
		}
		go func() {
			var err error
			result, err = r.Record(t.Context(), "chess", outcome)
			ended <- err
		}()
		return databasetest.Waits(ctx, dbs[1], ended)
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if bob, ada := result.Players[0], result.Players[1]; bob.After.GamesPlayed != 2 || ada.Before.GamesPlayed != 0 || ada.After.GamesPlayed != 1 {
		t.Errorf("bob %+v, ada %+v", bob, ada)
	}
}
