package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/leaderboard"
)

// written is boards whose ranks are stored each hour.
var written = leaderboard.Config{
	Rank: leaderboard.Rank{Materialize: "0 * * * *"},
	Boards: []leaderboard.Board{
		{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
		{Key: "daily", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationLatest, Window: "0 0 * * *"},
	},
}

const walk = "LEADERBOARD_RANK"

// interrupted returns a second leaderboard of a node, which calls fn before each chunk of a long
// job, from 1.
func (n *node) interrupted(t testing.TB, cfg leaderboard.Config, fn func(chunk int)) *node {
	t.Helper()
	looks := 0 // reads of the clock: a chunk makes one before and one after
	host := capability.Host{DB: n.db, Environment: "test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
		if looks++; looks%2 == 1 {
			fn(looks/2 + 1)
		}
		return n.clock.Now()
	}}
	l, err := leaderboard.New(host, cfg, leaderboard.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	return &node{Leaderboard: l, db: n.db, clock: n.clock}
}

// pair runs fn with two nodes of one deployment.
func pair(t *testing.T, cfg leaderboard.Config, fn func(t *testing.T, a, b *node)) {
	two := func(t *testing.T, x, y *database.DB) {
		at := newClock()
		a := open(t, x, cfg, at)
		b, err := build(y, cfg, at)
		if err != nil {
			t.Fatal(err)
		}
		fn(t, a, b)
	}
	t.Run("memory", func(t *testing.T) { db := databasetest.Memory(t); two(t, db, db) })
	t.Run("file", func(t *testing.T) { db := databasetest.File(t); two(t, db, db) })
	if os.Getenv("KIT_TEST_POSTGRES") != "" {
		t.Run("postgres", func(t *testing.T) { dbs := databasetest.Shared(t, 2); two(t, dbs[0], dbs[1]) })
	}
}

// wantRanks compares the ranks that players read, as "ada:1".
func (n *node) wantRanks(t testing.TB, v leaderboard.View, want ...string) {
	t.Helper()
	var got []string
	for _, w := range want {
		user, _, _ := strings.Cut(w, ":")
		me, err := n.Me(context.Background(), v, user)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(user, ":", me.Rank))
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("%v: %s", v, diff)
	}
}

// misranked counts the visible entries of a window whose stored rank is wrong.
func (n *node) misranked(t testing.TB, v leaderboard.View) int64 {
	t.Helper()
	return n.tally(t, `SELECT COUNT(*) FROM (
		SELECT rank, ROW_NUMBER() OVER (ORDER BY key, achieved_at, user_id) AS place FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0) AS e WHERE rank <> place`, n.windowOf(t, v))
}

// locks counts the walks under way.
func (n *node) locks(t testing.TB) int64 {
	t.Helper()
	return n.tally(t, `SELECT COUNT(*) FROM leaderboard_lock`)
}

// TestMaterialized checks that reads return the ranks of the last walk, whatever has changed since.
func TestMaterialized(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		n.submit(t, "arcade", "bob", 7)
		n.submit(t, "arcade", "ada", 7)
		n.submit(t, "arcade", "cyd", 9)
		n.wantRanks(t, arcade, "cyd:0", "bob:0", "ada:0")
		if me, err := n.Me(t.Context(), arcade, "cyd"); err != nil || me.Total != 3 || me.Percentile != 0 {
			t.Errorf("%v %+v", err, me)
		}
		n.clock.advance(time.Hour)
		n.runDue(t)
		n.wantRanks(t, arcade, "cyd:1", "bob:2", "ada:3")

		n.submit(t, "arcade", "ada", 10)
		n.submit(t, "arcade", "dan", 8)
		n.wantRanks(t, arcade, "cyd:1", "bob:2", "ada:3", "dan:0")
		n.wantTop(t, arcade, "ada:10", "cyd:9", "dan:8", "bob:7") // with live ranks
		if me, err := n.Me(t.Context(), arcade, "cyd"); err != nil || me.Total != 4 || me.Percentile != 75 {
			t.Errorf("%v %+v", err, me)
		}
		for name, read := range map[string]func() (leaderboard.Neighbours, error){
			"around": func() (leaderboard.Neighbours, error) { return n.Around(t.Context(), arcade, "dan", 9) },
			"segment": func() (leaderboard.Neighbours, error) {
				return n.Segment(t.Context(), arcade, "bob", "dan", "ada", "cyd")
			},
		} {
			got, err := read()
			var shown []string
			for _, r := range got.Items {
				shown = append(shown, fmt.Sprint(r.UserID, ":", r.Rank))
			}
			if diff := gocmp.Diff([]string{"ada:3", "cyd:1", "dan:0", "bob:2"}, shown); err != nil || diff != "" {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		}
		n.clock.advance(time.Hour)
		n.runDue(t)
		n.wantRanks(t, arcade, "ada:1", "cyd:2", "dan:3", "bob:4")
		n.addsUp(t)

		// Live ranks are available at any time, if the configuration changes.
		live := written
		live.Rank = leaderboard.Rank{}
		other, err := build(db, live, n.clock)
		if err != nil {
			t.Fatal(err)
		}
		n.submit(t, "arcade", "eve", 20)
		other.wantRanks(t, arcade, "eve:1", "ada:2", "cyd:3", "dan:4", "bob:5")
	})
}

// TestMaterializedHidden checks that walks skip hidden players, and that their old ranks do not
// reappear.
func TestMaterializedHidden(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		hide := func(user string, hidden bool) {
			t.Helper()
			if _, err := n.SetHidden(t.Context(), "arcade", user, leaderboard.Player, hidden); err != nil {
				t.Fatal(err)
			}
		}
		walks := func() {
			t.Helper()
			if err := n.run(t, walk, ""); err != nil {
				t.Fatal(err)
			}
		}
		for i, user := range []string{"ada", "bob", "cyd"} {
			n.submit(t, "arcade", user, int64(10-i))
		}
		walks()
		hide("ada", true)
		n.wantRanks(t, arcade, "ada:1", "bob:2", "cyd:3") // the rank of ada is live
		hide("ada", false)
		n.wantRanks(t, arcade, "ada:1", "bob:2", "cyd:3")
		hide("ada", true)
		walks()
		n.wantRanks(t, arcade, "ada:1", "bob:1", "cyd:2")
		hide("ada", false)
		n.wantRanks(t, arcade, "ada:0", "bob:1", "cyd:2")
		walks()
		n.wantRanks(t, arcade, "ada:1", "bob:2", "cyd:3")
		if err := n.Remove(t.Context(), arcade, "ada"); err != nil {
			t.Fatal(err)
		}
		n.submit(t, "arcade", "ada", 10)
		n.wantRanks(t, arcade, "ada:0", "bob:2", "cyd:3")
	})
}

// TestWalkChunks walks boards of one chunk, just over one, and several.
func TestWalkChunks(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	for _, size := range []int{1, 99, 100, 101, 250} {
		databasetest.Each(t, func(t *testing.T, db *database.DB) {
			n := open(t, db, written, newClock())
			scores := make([]int64, size)
			for i := range scores {
				scores[i] = int64(i % 50)
			}
			n.load(t, arcade, scores...)
			if wrong := n.misranked(t, arcade); wrong != int64(size) {
				t.Errorf("%d entries of %d without a rank before the walk", wrong, size)
			}
			chunks := 0
			if err := n.interrupted(t, written, func(int) { chunks++ }).run(t, walk, ""); err != nil {
				t.Fatal(err)
			}
			if wrong := n.misranked(t, arcade); wrong != 0 || chunks != size/100+1 || n.locks(t) != 0 {
				t.Errorf("%d wrong after %d chunks, %d locks", wrong, chunks, n.locks(t))
			}
		})
	}
}

// TestWalkBesideWriters walks while others submit, hide and remove; a later walk without writers
// ranks all entries correctly.
func TestWalkBesideWriters(t *testing.T) {
	config := leaderboard.SmallWalks(config, 100)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		scores := make([]int64, 250)
		for i := range scores {
			scores[i] = int64(i % 10)
		}
		nodes[0].load(t, arcade, scores...)
		cfg := config
		cfg.Rank = written.Rank
		walker := nodes[0].interrupted(t, cfg, func(int) {})
		ctx, stop := context.WithCancel(t.Context())
		many(17, func(i int) {
			if i > 0 {
				churn(ctx, t, nodes[i%len(nodes)], i)
				return
			}
			defer stop()
			for range 2 {
				if err := walker.run(t, walk, ""); err != nil {
					t.Error(err)
				}
			}
		})
		nodes[0].addsUp(t)
		if err := walker.run(t, walk, ""); err != nil {
			t.Fatal(err)
		}
		if wrong := nodes[0].misranked(t, arcade); wrong != 0 {
			t.Errorf("%d entries have a wrong rank", wrong)
		}
	})
}

// TestWalkPace checks that a walk pauses after each chunk as long as the chunk took.
func TestWalkPace(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	synctest.Test(t, func(t *testing.T) {
		at := newClock()
		n := open(t, databasetest.Memory(t), written, at)
		n.load(t, arcade, make([]int64, 250)...)
		host := capability.Host{DB: n.db, Environment: "test", Log: slog.New(slog.DiscardHandler), Now: func() time.Time {
			at.advance(3 * time.Second) // the duration of a chunk
			return at.Now()
		}}
		l, err := leaderboard.New(host, written, leaderboard.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := (&node{Leaderboard: l}).run(t, walk, ""); err != nil {
			t.Error(err)
		}
		if paused := time.Since(began); paused != 3*3*time.Second {
			t.Errorf("paused %v over three chunks", paused)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if err := (&node{Leaderboard: l}).runUntil(ctx, t, walk, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("stopped in a pause: %v", err)
		}
		if paused := time.Since(began); paused != (9+4)*time.Second {
			t.Errorf("stopped after %v", paused)
		}
	})
}

// TestWalkLock checks that only one walk runs at a time on two nodes: the other does nothing.
func TestWalkLock(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	pair(t, written, func(t *testing.T, a, b *node) {
		a.load(t, arcade, make([]int64, 250)...)
		tries := 0
		walker := a.interrupted(t, written, func(chunk int) {
			if chunk == 1 {
				return
			}
			tries++
			// Each chunk is a sign of life, so that even a slow walk keeps its lock.
			a.clock.advance(time.Hour - time.Millisecond)
			if err := b.run(t, walk, ""); err != nil {
				t.Error(err)
			}
			if wrong := b.misranked(t, arcade); wrong != int64(250-100*(chunk-1)) {
				t.Errorf("%d without a rank before chunk %d", wrong, chunk)
			}
		})
		if err := walker.run(t, walk, ""); err != nil {
			t.Error(err)
		}
		if wrong := a.misranked(t, arcade); wrong != 0 || tries != 2 || a.locks(t) != 0 {
			t.Errorf("%d wrong, %d tries, %d locks", wrong, tries, a.locks(t))
		}
	})
}

// TestWalkStale checks that another walk takes over the lock of one that has given no sign of life
// for the configured time, and finishes the work; the first one stops if it resumes.
func TestWalkStale(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	for name, c := range map[string]struct {
		stale time.Duration
		env   string
		cfg   time.Duration
	}{
		"by default":    {time.Hour, "", 0},
		"environment":   {1500 * time.Millisecond, "1500", 0},
		"configuration": {time.Minute, "1500", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LEADERBOARD_LOCK_STALE_MS", c.env)
			cfg := written
			cfg.LockStale = c.cfg
			pair(t, cfg, func(t *testing.T, a, b *node) {
				a.load(t, arcade, make([]int64, 250)...)
				dead := a.interrupted(t, cfg, func(chunk int) {
					if chunk == 1 {
						return
					}
					a.clock.advance(c.stale - time.Millisecond)
					if err := b.run(t, walk, ""); err != nil || b.misranked(t, arcade) != 150 {
						t.Errorf("taken too early: %v, %d wrong", err, b.misranked(t, arcade))
					}
					a.clock.advance(time.Millisecond)
					if err := b.run(t, walk, ""); err != nil || b.misranked(t, arcade) != 0 {
						t.Errorf("not finished: %v, %d wrong", err, b.misranked(t, arcade))
					}
					b.tamper(t, arcade, `UPDATE leaderboard_entry SET rank = 7 WHERE window_id = $1`)
				})
				if err := dead.run(t, walk, ""); err == nil || !strings.Contains(err.Error(), "taken over") {
					t.Errorf("went on without its lock: %v", err)
				}
				if wrong := a.misranked(t, arcade); wrong != 249 {
					t.Errorf("wrote without its lock: %d wrong", wrong)
				}
			})
		})
	}
}

// TestWalkTaken checks that a walk that has lost its lock does not release the lock of its new
// holder.
func TestWalkTaken(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	pair(t, written, func(t *testing.T, a, b *node) {
		a.load(t, arcade, make([]int64, 250)...)
		first := a.interrupted(t, written, func(chunk int) {
			if chunk != 2 {
				return
			}
			a.clock.advance(time.Hour)
			// As if another walk had just taken it.
			if _, err := a.db.Exec(t.Context(), `UPDATE leaderboard_lock SET token = 'second'`); err != nil {
				t.Error(err)
			}
		})
		if err := first.run(t, walk, ""); err == nil || a.locks(t) != 1 {
			t.Errorf("%v, %d locks", err, a.locks(t))
		}
		a.clock.advance(time.Hour)
		if err := b.run(t, walk, ""); err != nil || a.misranked(t, arcade) != 0 || a.locks(t) != 0 {
			t.Errorf("%v, %d wrong, %d locks", err, a.misranked(t, arcade), a.locks(t))
		}
	})
}

// TestWalkStopped checks that the lock is released at once when its node stops.
func TestWalkStopped(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	pair(t, written, func(t *testing.T, a, b *node) {
		a.load(t, arcade, make([]int64, 250)...)
		ctx, stop := context.WithCancel(t.Context())
		walker := a.interrupted(t, written, func(chunk int) {
			if chunk == 2 {
				stop()
			}
		})
		if err := walker.runUntil(ctx, t, walk, ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if wrong := a.misranked(t, arcade); wrong != 150 || a.locks(t) != 0 {
			t.Errorf("%d wrong, %d locks", wrong, a.locks(t))
		}
		a.clock.advance(time.Hour)
		b.runDue(t)
		if wrong := b.misranked(t, arcade); wrong != 0 {
			t.Errorf("%d wrong after the next", wrong)
		}
	})
}

// TestWalkFinal checks that a closed window is walked for as long as late submissions are possible,
// and then never again, so that its ranks stay.
func TestWalkFinal(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		closed := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		n.submit(t, "daily", "bob", 5)
		n.clock.advance(11 * time.Hour)
		n.runDue(t)
		n.submit(t, "daily", "ada", 4)
		n.wantRanks(t, closed, "ada:0", "bob:1")
		n.clock.advance(time.Hour)
		n.submit(t, "daily", "cyd", 1) // enters the next window
		n.runDue(t)
		n.wantRanks(t, closed, "ada:1", "bob:2")
		n.clock.advance(-time.Minute) // the clock of another node
		n.submit(t, "daily", "eve", 9)
		n.wantRanks(t, closed, "eve:0")
		n.clock.advance(time.Hour + time.Minute)
		n.runDue(t)
		n.wantRanks(t, closed, "ada:1", "bob:2", "eve:3")
		n.tamper(t, closed, `UPDATE leaderboard_entry SET rank = 7 WHERE window_id = $1 AND user_id = 'bob'`)
		n.clock.advance(time.Hour)
		n.runDue(t)
		n.wantRanks(t, closed, "ada:1", "bob:7") // unchanged

		// An imported entry has no rank until the next walk.
		if err := n.bring(t, closed, entryOf("dan", 3, 1)); err != nil {
			t.Fatal(err)
		}
		n.wantRanks(t, closed, "dan:0")
		n.clock.advance(time.Hour)
		n.runDue(t)
		n.wantRanks(t, closed, "dan:1", "ada:2", "bob:3")
	})
}

// TestWalkOvertaken checks that a closed window is walked again if it changed behind the walk.
func TestWalkOvertaken(t *testing.T) {
	written := leaderboard.SmallWalks(written, 100)
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		closed := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		n.load(t, closed, make([]int64, 150)...)
		n.clock.advance(48 * time.Hour)
		walker := n.interrupted(t, written, func(chunk int) {
			if chunk != 2 {
				return
			}
			first, err := n.ListTop(t.Context(), closed, capability.NewPage(1, ""))
			if err == nil {
				err = n.Remove(t.Context(), closed, first.Items[0].UserID)
			}
			if err != nil {
				t.Error(err)
			}
		})
		if err := walker.run(t, walk, ""); err != nil {
			t.Fatal(err)
		}
		if wrong := n.misranked(t, closed); wrong == 0 {
			t.Error("the walk was not overtaken")
		}
		if err := n.run(t, walk, ""); err != nil {
			t.Fatal(err)
		}
		if wrong := n.misranked(t, closed); wrong != 0 {
			t.Errorf("%d ranks are wrong", wrong)
		}
	})
}

// TestWalkClosedChanges checks that a closed window is walked again after a player was hidden,
// shown or removed.
func TestWalkClosedChanges(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		closed := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		for i, user := range []string{"ada", "bob", "cyd", "dan"} {
			n.submit(t, "daily", user, int64(i))
		}
		n.clock.advance(24 * time.Hour)
		n.runDue(t)
		n.wantRanks(t, closed, "ada:1", "bob:2", "cyd:3", "dan:4")
		for _, hidden := range []bool{true, false} {
			if _, err := n.SetHidden(t.Context(), "daily", "ada", leaderboard.Player, hidden); err != nil {
				t.Fatal(err)
			}
			n.clock.advance(time.Hour)
			n.runDue(t)
			if hidden {
				n.wantRanks(t, closed, "bob:1", "cyd:2", "dan:3")
			}
		}
		n.wantRanks(t, closed, "ada:1", "bob:2", "cyd:3", "dan:4")
		if err := n.Remove(t.Context(), closed, "bob"); err != nil {
			t.Fatal(err)
		}
		n.clock.advance(time.Hour)
		n.runDue(t)
		n.wantRanks(t, closed, "ada:1", "cyd:2", "dan:3")
	})
}

// TestWalkClockAhead walks while the clock is a day ahead. When the clock is right again the open
// window is walked as before, and a lock from the future does not count.
func TestWalkClockAhead(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, written, newClock())
		v := leaderboard.View{Board: "daily"}
		n.submit(t, "daily", "bob", 5)
		n.clock.advance(48 * time.Hour)
		if err := n.run(t, walk, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := n.db.Exec(t.Context(), `INSERT INTO leaderboard_lock (name, token, renewed_at) VALUES ('rank', 'dead', $1)`,
			n.clock.Now().UnixMilli()); err != nil {
			t.Fatal(err)
		}
		n.clock.advance(-48 * time.Hour)
		n.submit(t, "daily", "ada", 4)
		n.wantRanks(t, v, "ada:0", "bob:1")
		if err := n.run(t, walk, ""); err != nil {
			t.Fatal(err)
		}
		n.wantRanks(t, v, "ada:1", "bob:2")
	})
}
