package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/leaderboard"
)

const sweep = "LEADERBOARD_SWEEP"

// set moves the clock to an instant.
func (c *clock) set(t testing.TB, instant string) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, instant)
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = at
}

// windows returns the keys of the windows of a board as clients read them, the open one first.
func (n *node) windows(t testing.TB, board string) []string {
	t.Helper()
	infos, err := n.Boards(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		if info.Key == board {
			return append([]string{info.Open}, info.Closed...)
		}
	}
	t.Fatalf("no board %s", board)
	return nil
}

func (n *node) wantWindows(t testing.TB, board string, want ...string) {
	t.Helper()
	if diff := gocmp.Diff(want, n.windows(t, board)); diff != "" {
		t.Errorf("windows of %s at %v: %s", board, n.clock.Now(), diff)
	}
}

// wantUnknown checks that every read and change of a window is refused.
func (n *node) wantUnknown(t testing.TB, v leaderboard.View, user string) {
	t.Helper()
	ctx := context.Background()
	_, me := n.Me(ctx, v, user)
	_, top := n.ListTop(ctx, v, capability.NewPage(10, ""))
	_, around := n.Around(ctx, v, user, 3)
	_, segment := n.Segment(ctx, v, user)
	_, rebuild := n.Rebuild(ctx, v)
	for _, err := range []error{me, top, around, segment, rebuild, n.Remove(ctx, v, user)} {
		wantErr(t, err, leaderboard.ErrBoardNotFound)
	}
}

// leftovers counts the rows of windows that no longer exist.
func (n *node) leftovers(t testing.TB) (rows int64) {
	t.Helper()
	for _, table := range []string{"leaderboard_entry", "leaderboard_count", "leaderboard_range"} {
		rows += n.tally(t, `SELECT COUNT(*) FROM `+table+` WHERE window_id NOT IN (SELECT id FROM leaderboard_window)`)
	}
	return rows
}

// TestWindows opens and closes windows at the instants of their schedules, in UTC and to the
// millisecond, wherever the clock is.
func TestWindows(t *testing.T) {
	schedules := map[string]string{"quarter": "*/15 * * * *", "day": "0 0 * * *", "week": "0 0 * * 1", "month": "30 6 1 * *", "leap": "0 12 29 2 *"}
	var cfg leaderboard.Config
	for key, window := range schedules {
		cfg.Boards = append(cfg.Boards, leaderboard.Board{Key: key, Window: window, Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum})
	}
	for _, c := range []struct{ board, opens, before, at string }{
		{"quarter", "2026-11-21T12:15:00Z", "20261121T1200Z", "20261121T1215Z"},
		{"day", "2026-11-22T00:00:00Z", "20261121T0000Z", "20261122T0000Z"},
		{"day", "2028-02-29T05:30:00+05:30", "20280228T0000Z", "20280229T0000Z"},
		{"day", "2026-12-31T19:00:00-05:00", "20261231T0000Z", "20270101T0000Z"},
		{"week", "2026-11-23T00:00:00Z", "20261116T0000Z", "20261123T0000Z"},
		{"month", "2026-12-01T06:30:00Z", "20261101T0630Z", "20261201T0630Z"},
		{"month", "2027-03-01T14:30:00+08:00", "20270201T0630Z", "20270301T0630Z"},
		{"leap", "2028-02-29T12:00:00Z", "20240229T1200Z", "20280229T1200Z"},
		{"leap", "2104-02-29T12:00:00Z", "20960229T1200Z", "21040229T1200Z"}, // none in 2100
	} {
		databasetest.Each(t, func(t *testing.T, db *database.DB) {
			n := open(t, db, cfg, newClock())
			n.clock.set(t, c.opens)
			opens := n.clock.Now()
			n.clock.advance(-time.Millisecond)
			n.wantWindows(t, c.board, c.before)
			n.submit(t, c.board, "ada", 1)
			n.clock.advance(opens.Sub(n.clock.Now()))
			n.submit(t, c.board, "ada", 2)
			n.wantWindows(t, c.board, c.at, c.before)
			n.wantTop(t, leaderboard.View{Board: c.board}, "ada:2")
			n.wantTop(t, leaderboard.View{Board: c.board, Window: c.at}, "ada:2")
			n.wantTop(t, leaderboard.View{Board: c.board, Window: c.before}, "ada:1")
		})
	}
}

// TestClosed reads a closed window repeatedly: nothing of it changes.
func TestClosed(t *testing.T) {
	config := leaderboard.SmallRanges(config, 4)
	eachWith(t, config, func(t *testing.T, n *node) {
		for i := range 30 {
			n.submit(t, "daily", fmt.Sprintf("u%04d", i), int64(i%3))
		}
		v := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		read := func() (results []any) {
			for i := range 30 {
				user := fmt.Sprintf("u%04d", i)
				me, err := n.Me(t.Context(), v, user)
				around, failed := n.Around(t.Context(), v, user, 5)
				if err != nil || failed != nil {
					t.Fatal(err, failed)
				}
				results = append(results, me, around)
			}
			segment, err := n.Segment(t.Context(), v, "u0003", "u0020", "u0010", "nobody")
			if err != nil {
				t.Fatal(err)
			}
			return append(results, segment, n.top(t, v))
		}
		open := read()
		for range 3 {
			n.clock.advance(24 * time.Hour)
			for i := range 10 {
				n.submit(t, "daily", fmt.Sprintf("u%04d", i), int64(9-i))
			}
			if diff := gocmp.Diff(open, read()); diff != "" {
				t.Error(diff)
			}
			n.ranksCount(t, v)
		}
		n.addsUp(t)
		for _, window := range []string{"20261120T0000Z", "20261125T0000Z", "20261121T0001Z", "20261121", "20261121T0000", "open", "20261121T0000Zx"} {
			n.wantUnknown(t, leaderboard.View{Board: "daily", Window: window}, "u0001")
		}
	})
}

// TestRetain checks that the configured number of closed windows is kept; windows without
// submissions do not count.
func TestRetain(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		weeks := []string{"20261116T0000Z", "20261123T0000Z", "20261130T0000Z", "20261207T0000Z", "20261221T0000Z"}
		for i, week := range weeks {
			if i == 4 {
				n.clock.advance(7 * 24 * time.Hour) // without submissions
			}
			n.submit(t, "weekly", "ada", int64(i))
			n.runDue(t)
			want := []string{week}
			for j := i - 1; j >= 0 && j >= i-2; j-- {
				want = append(want, weeks[j])
			}
			n.wantWindows(t, "weekly", want...)
			n.clock.advance(7 * 24 * time.Hour)
		}
		n.wantUnknown(t, leaderboard.View{Board: "weekly", Window: weeks[0]}, "ada")
		n.wantTop(t, leaderboard.View{Board: "weekly", Window: weeks[3]}, "ada:3")
		if windows := n.tally(t, `SELECT COUNT(*) FROM leaderboard_window`); windows != 3 || n.leftovers(t) != 0 {
			t.Errorf("%d windows, %d rows left over", windows, n.leftovers(t))
		}
		n.addsUp(t)
	})
}

// TestRetainDays checks that a window is kept for the configured days after its end, to the
// millisecond.
func TestRetainDays(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		v := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		n.submit(t, "daily", "ada", 1)
		n.clock.set(t, "2026-11-23T00:00:00Z")
		n.submit(t, "daily", "ada", 2)
		n.clock.set(t, "2026-11-24T23:59:59Z")
		n.clock.advance(999 * time.Millisecond)
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		n.wantTop(t, v, "ada:1")
		n.clock.advance(time.Millisecond)
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		n.wantUnknown(t, v, "ada")
		n.wantWindows(t, "daily", "20261125T0000Z", "20261123T0000Z")
		if n.leftovers(t) != 0 {
			t.Errorf("%d rows left over", n.leftovers(t))
		}
	})
}

// TestOpenIsKept checks that an open window longer than the retention is kept, and any window of a
// board without retention.
func TestOpenIsKept(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "days", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0 0 1 1 *", RetainDays: 1},
			{Key: "count", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0 0 1 1 *", Retain: 1},
			{Key: "all", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0 0 * * *"},
			{Key: "ever", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
		}}, newClock())
		boards := []string{"days", "count", "all", "ever"}
		for _, board := range boards {
			n.submit(t, board, "ada", 1)
		}
		n.clock.set(t, "2026-12-31T23:00:00Z")
		n.runDue(t)
		for _, board := range boards[:2] {
			n.wantTop(t, leaderboard.View{Board: board}, "ada:1")
		}
		n.wantTop(t, leaderboard.View{Board: "all", Window: "20261121T0000Z"}, "ada:1")
		n.wantTop(t, leaderboard.View{Board: "ever"}, "ada:1")
		n.clock.set(t, "2027-01-02T00:11:00Z")
		n.runDue(t)
		n.wantUnknown(t, leaderboard.View{Board: "days", Window: "20260101T0000Z"}, "ada")
		n.wantTop(t, leaderboard.View{Board: "count", Window: "20260101T0000Z"}, "ada:1")
		n.wantTop(t, leaderboard.View{Board: "all", Window: "20261121T0000Z"}, "ada:1")
	})
}

// twoDue gives a board two windows that are due for the sweep, of several chunks each, and an open
// one.
func twoDue(t *testing.T, n *node) (due []leaderboard.View) {
	t.Helper()
	scores := make([]int64, 1300)
	for i := range scores {
		scores[i] = int64(i % 400)
	}
	for range 2 {
		due = append(due, leaderboard.View{Board: "daily", Window: n.windows(t, "daily")[0]})
		n.load(t, leaderboard.View{Board: "daily"}, scores...)
		n.clock.advance(24 * time.Hour)
	}
	n.clock.advance(3 * 24 * time.Hour)
	n.submit(t, "daily", "ada", 1)
	if ranges := n.tally(t, `SELECT COUNT(*) FROM leaderboard_range`); ranges < 2001 {
		t.Errorf("only %d ranges", ranges)
	}
	return due
}

// TestSweepChunks sweeps in chunks. After the first chunk the window is unknown, and other calls
// continue; after an interruption, the next sweep completes it.
func TestSweepChunks(t *testing.T) {
	config := leaderboard.SmallRanges(config, 2)
	pair(t, config, func(t *testing.T, a, b *node) {
		due := twoDue(t, a)
		ctx, stop := context.WithCancel(t.Context())
		left := int64(2601)
		sweeper := a.interrupted(t, config, func(chunk int) {
			newest := due[1] // is swept first
			b.wantUnknown(t, newest, "u0001")
			_, err := b.Import(t.Context(), newest, func(yield func(leaderboard.Entry) bool) { yield(entryOf("bob", 1, 1)) })
			wantErr(t, err, leaderboard.ErrBoardNotFound)
			if _, err := b.SetHidden(t.Context(), "daily", "u0001", leaderboard.Player, chunk%2 == 0); err != nil {
				t.Error(err)
			}
			b.submit(t, "daily", "ada", int64(chunk))
			b.wantTop(t, leaderboard.View{Board: "daily"}, fmt.Sprint("ada:", chunk))
			before := left
			if left = a.tally(t, `SELECT COUNT(*) FROM leaderboard_entry`); before-left > 1000 {
				t.Errorf("%d entries in one chunk", before-left)
			}
			if chunk == 2 {
				stop()
			}
		})
		if err := sweeper.runUntil(ctx, t, sweep, ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if left != 1601 {
			t.Errorf("%d entries left", left)
		}
		if me, err := b.Me(t.Context(), due[0], "u0399"); err != nil || me.Rank != b.count(t, due[0], "u0399") {
			t.Errorf("the window whose turn has not come: %v %+v", err, me)
		}
		if err := b.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		if windows := a.tally(t, `SELECT COUNT(*) FROM leaderboard_window`); windows != 1 || a.leftovers(t) != 0 {
			t.Errorf("%d windows, %d rows left over", windows, a.leftovers(t))
		}
		a.addsUp(t)
	})
}

// TestSweepTogether lets two nodes sweep the same windows concurrently.
func TestSweepTogether(t *testing.T) {
	pair(t, config, func(t *testing.T, a, b *node) {
		for range 2 {
			a.submit(t, "daily", "ada", 1)
			a.clock.advance(24 * time.Hour)
		}
		a.clock.advance(72 * time.Hour)
		sweeper := a.interrupted(t, config, func(chunk int) {
			if chunk != 1 {
				return
			}
			if err := b.run(t, sweep, ""); err != nil {
				t.Error(err)
			}
			b.submit(t, "daily", "ada", 5)
		})
		if err := sweeper.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		a.wantWindows(t, "daily", "20261126T0000Z")
		a.wantTop(t, leaderboard.View{Board: "daily"}, "ada:5")
		if a.leftovers(t) != 0 {
			t.Errorf("%d rows left over", a.leftovers(t))
		}
	})
}

// TestSweptIDs checks that a new window gets a new id, not the id of a swept one, which another
// sweep may still be deleting.
func TestSweptIDs(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		var last int64
		for range 3 {
			n.submit(t, "daily", "ada", 1)
			id := n.windowOf(t, leaderboard.View{Board: "daily"})
			if id <= last {
				t.Errorf("window %d after %d", id, last)
			}
			last = id
			n.clock.advance(30 * 24 * time.Hour)
			if err := n.run(t, sweep, ""); err != nil {
				t.Error(err)
			}
		}
		if n.leftovers(t) != 0 {
			t.Errorf("%d rows left over", n.leftovers(t))
		}
	})
}

// TestSweepHalfDone checks that an interrupted sweep is completed, even if retention would keep the
// window by now.
func TestSweepHalfDone(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		weeks := []string{"20261116T0000Z", "20261123T0000Z", "20261130T0000Z"}
		for range weeks {
			n.submit(t, "weekly", "ada", 1)
			n.clock.advance(7 * 24 * time.Hour)
		}
		n.submit(t, "weekly", "ada", 1)
		n.tamper(t, leaderboard.View{Board: "weekly", Window: weeks[2]}, `UPDATE leaderboard_window SET swept = TRUE WHERE id = $1`)
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		n.wantWindows(t, "weekly", "20261207T0000Z", weeks[1], weeks[0])
		if windows := n.tally(t, `SELECT COUNT(*) FROM leaderboard_window`); windows != 3 || n.leftovers(t) != 0 {
			t.Errorf("%d windows, %d rows left over", windows, n.leftovers(t))
		}
	})
}

// TestSweepClockBack sweeps with a clock that is a month ahead: swept windows are lost, but the
// open window works once the clock is right again.
func TestSweepClockBack(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		v := leaderboard.View{Board: "daily"}
		n.submit(t, "daily", "ada", 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		n.clock.advance(30 * 24 * time.Hour)
		n.submit(t, "daily", "ada", 9)
		sweeper := n.interrupted(t, config, func(int) { stop() })
		if err := sweeper.runUntil(ctx, t, sweep, ""); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		n.clock.advance(-30 * 24 * time.Hour)

		// The window of today is half swept. Submissions to it are refused until the sweep is
		// complete.
		_, err := n.Submit(t.Context(), leaderboard.Submission{Board: "daily", UserID: "ada", Score: 1})
		wantErr(t, err, leaderboard.ErrBoardNotFound)
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		n.submit(t, "daily", "ada", 2)
		n.wantTop(t, v, "ada:2")
		n.wantWindows(t, "daily", "20261121T0000Z") // the future one is not closed yet
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		n.wantTop(t, v, "ada:2")
		n.clock.set(t, "2026-12-21T12:00:00Z")
		n.wantTop(t, v, "ada:9")
		n.addsUp(t)
	})
}

// TestSweepOtherDefinition checks that nothing is swept of a board whose stored definition differs
// from the configured one: the ends of its windows are not known.
func TestSweepOtherDefinition(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		board := leaderboard.Board{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}
		n := open(t, db, leaderboard.Config{Boards: []leaderboard.Board{board}}, newClock())
		n.submit(t, "arcade", "ada", 1)
		monthly := leaderboard.Board{Key: "monthly", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0 0 1 * *", Retain: 2}
		m, err := build(db, leaderboard.Config{Boards: []leaderboard.Board{monthly}}, n.clock)
		if err != nil {
			t.Fatal(err)
		}
		m.submit(t, "monthly", "ada", 1)

		board.Window, board.RetainDays = "0 0 * * *", 3
		monthly.Window, monthly.Retain, monthly.RetainDays = "0 0 * * *", 0, 3
		other, err := build(db, leaderboard.Config{Boards: []leaderboard.Board{board, monthly}}, n.clock)
		if err != nil {
			t.Fatal(err)
		}
		if err := other.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		for _, key := range []string{"arcade", "monthly"} {
			_, err := other.Submit(t.Context(), leaderboard.Submission{Board: key, UserID: "ada", Score: 2})
			wantErr(t, err, leaderboard.ErrBoardImmutable)
		}
		n.wantTop(t, arcade, "ada:1")
		m.wantTop(t, leaderboard.View{Board: "monthly"}, "ada:1")
	})
}

// TestSweepBesideWriters sweeps while 16 callers submit and days pass. A submission that takes
// longer than the board keeps its day is refused.
func TestSweepBesideWriters(t *testing.T) {
	config := leaderboard.SmallRanges(config, 4)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		ctx, stop := context.WithCancel(t.Context())
		many(17, func(i int) {
			n, rng := nodes[i%len(nodes)], rand.New(rand.NewPCG(uint64(i), 9))
			if i > 0 {
				for ctx.Err() == nil {
					began, user := n.clock.Now(), fmt.Sprintf("u%02d", rng.IntN(20))
					_, err := n.Submit(t.Context(), leaderboard.Submission{Board: "daily", UserID: user, Score: rng.Int64N(4)})
					late := n.clock.Now().Sub(began) > 3*24*time.Hour
					if err != nil && !(late && errors.Is(err, leaderboard.ErrBoardNotFound)) {
						t.Error(err)
						return
					}
				}
				return
			}
			defer stop()
			for range 12 {
				n.clock.advance(24 * time.Hour)
				if err := n.run(t, sweep, ""); err != nil {
					t.Error(err)
				}
			}
		})
		n := nodes[0]
		if err := n.run(t, sweep, ""); err != nil {
			t.Error(err)
		}
		if windows := n.windows(t, "daily"); len(windows) > 4 || n.leftovers(t) != 0 {
			t.Errorf("%v, %d rows left over", windows, n.leftovers(t))
		}
		n.addsUp(t)
	})
}
