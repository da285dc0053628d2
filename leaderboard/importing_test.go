package leaderboard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/leaderboard"
)

// entryOf returns an entry to import.
func entryOf(user string, score, at int64) leaderboard.Entry {
	return leaderboard.Entry{UserID: user, Score: score, AchievedAt: capability.Millis(at)}
}

// bring imports entries and returns the error.
func (n *node) bring(t testing.TB, v leaderboard.View, entries ...leaderboard.Entry) error {
	t.Helper()
	_, err := n.Import(t.Context(), v, slices.Values(entries))
	return err
}

// TestImport imports entries into a board that has some, twice.
func TestImport(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.submit(t, "laps", "ada", 50)
		n.submit(t, "laps", "bob", 60)
		n.submit(t, "laps", "hid", 1)
		if _, err := n.SetHidden(t.Context(), "laps", "hid", leaderboard.Administrator, true); err != nil {
			t.Fatal(err)
		}
		if _, err := n.SetHidden(t.Context(), "laps", "bob", leaderboard.Player, true); err != nil {
			t.Fatal(err)
		}
		v := leaderboard.View{Board: "laps"}
		if err := n.Remove(t.Context(), v, "bob"); err != nil {
			t.Fatal(err)
		}
		cyd := entryOf("cyd", 55, 2000)
		cyd.Attempts, cyd.LastActiveAt = 7, capability.Millis(3000)
		entries := []leaderboard.Entry{entryOf("ada", 70, 1000), cyd, entryOf("hid", 2, 1000), entryOf("bob", 3, 0)}
		want := leaderboard.Report{Windows: 1, Entries: 2}
		for range 2 {
			report, err := n.Import(t.Context(), v, slices.Values(entries))
			report.Findings, report.Repaired = nil, 0
			if diff := gocmp.Diff(want, report); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
			// The imported score replaces the old one, though it is not better; both players stay
			// hidden.
			n.wantTop(t, v, "cyd:55", "ada:70")
			n.ranksCount(t, v)
			n.addsUp(t)
		}
		me, err := n.Me(t.Context(), v, "cyd")
		if diff := gocmp.Diff(leaderboard.Standing{Entry: cyd, Rank: 1, Total: 2, Percentile: 50}, me); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		for user, rank := range map[string]int64{"hid": 1, "bob": 1} {
			if me, err := n.Me(t.Context(), v, user); err != nil || !me.Entry.Hidden || me.Rank != rank || me.Total != 2 {
				t.Errorf("%s: %v %+v", user, err, me)
			}
		}
		// A submission continues from the imported entry.
		n.submit(t, "laps", "cyd", 54)
		if me, err := n.Me(t.Context(), v, "cyd"); err != nil || me.Entry.Score != 54 || me.Entry.Attempts != 8 {
			t.Errorf("%v %+v", err, me)
		}
		n.addsUp(t)
	})
}

// TestImportOnce imports a player twice: the last entry is kept, in one chunk and over two.
func TestImportOnce(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		if err := n.bring(t, arcade, entryOf("ada", 1, 5), entryOf("bob", 9, 5), entryOf("ada", 2, 6)); err != nil {
			t.Fatal(err)
		}
		n.wantTop(t, arcade, "bob:9", "ada:2")
		if err := n.bring(t, arcade); err != nil {
			t.Errorf("nothing to import: %v", err)
		}
		var entries []leaderboard.Entry
		for i := range int64(2100) {
			entries = append(entries, entryOf(fmt.Sprint("u", i%700), i, i))
		}
		if err := n.bring(t, arcade, entries...); err != nil {
			t.Fatal(err)
		}
		n.addsUp(t)
		if me, err := n.Me(t.Context(), arcade, "u699"); err != nil || me.Entry.Score != 2099 || me.Rank != 1 || me.Total != 702 {
			t.Errorf("%v %+v", err, me)
		}
	})
}

// TestImportWindows imports into windows: the open one, a closed one, and one without submissions.
func TestImportWindows(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.load(t, leaderboard.View{Board: "daily"}, 4, 3)
		n.load(t, leaderboard.View{Board: "daily", Window: "20261121T0000Z"}, 4, 5) // the same
		n.load(t, leaderboard.View{Board: "daily", Window: "20261120T0000Z"}, 1)
		n.load(t, leaderboard.View{Board: "daily", Window: "20240229T0000Z"}, 6)
		n.wantTop(t, leaderboard.View{Board: "daily"}, "u0000:4", "u0001:5")
		n.wantTop(t, leaderboard.View{Board: "daily", Window: "20261120T0000Z"}, "u0000:1")
		n.wantTop(t, leaderboard.View{Board: "daily", Window: "20240229T0000Z"}, "u0000:6")
		n.addsUp(t)
		infos, err := n.Boards(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]string{"20261120T0000Z", "20240229T0000Z"}, infos[5].Closed); diff != "" {
			t.Error(diff)
		}
	})
}

// TestImportRefuses covers every refusal; nothing of a refused chunk is stored.
func TestImportRefuses(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		good := entryOf("ada", 1, 1)
		for _, v := range []leaderboard.View{
			{Board: "nothing"},
			{Board: "arcade", Window: "20261121T0000Z"},
			{Board: "daily", Window: "20261121"},
			{Board: "daily", Window: "20261121T0001Z"},  // no window opens then
			{Board: "weekly", Window: "20261117T0000Z"}, // a Tuesday
			{Board: "daily", Window: "20261122T0000Z"},  // in the future
		} {
			wantErr(t, n.bring(t, v, good), leaderboard.ErrBoardNotFound)
		}
		for _, e := range []leaderboard.Entry{
			entryOf("", 1, 1), entryOf(strings.Repeat("x", 129), 1, 1), entryOf("a\x00b", 1, 1), entryOf("\xff", 1, 1),
			entryOf("bob", 1, -1), {UserID: "bob"}, entryOf("bob", 1, time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()),
			{UserID: "bob", AchievedAt: good.AchievedAt, LastActiveAt: capability.Millis(-1)},
			{UserID: "bob", AchievedAt: good.AchievedAt, Attempts: -1},
		} {
			wantErr(t, n.bring(t, arcade, good, e), capability.ErrInvalidRequest)
		}
		for _, score := range []int64{leaderboard.MaxScore + 1, -leaderboard.MaxScore - 1} {
			wantErr(t, n.bring(t, arcade, good, entryOf("bob", score, 1)), leaderboard.ErrScoreRejected)
		}
		if entries := n.tally(t, `SELECT COUNT(*) FROM leaderboard_entry`); entries != 0 {
			t.Errorf("%d entries", entries)
		}
		// The bounds of the board apply only to submissions.
		if err := n.bring(t, leaderboard.View{Board: "mood"}, entryOf("ada", 500, 1), entryOf("bob", leaderboard.MaxScore, 1)); err != nil {
			t.Error(err)
		}
		n.wantTop(t, leaderboard.View{Board: "mood"}, "bob:9007199254740991", "ada:500")
	})
}

// TestImportImmutable checks that entries under another definition are refused.
func TestImportImmutable(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := open(t, db, config, newClock())
		n.submit(t, "arcade", "ada", 1)
		other, err := build(db, leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "arcade", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationBest}}}, n.clock)
		if err != nil {
			t.Fatal(err)
		}
		wantErr(t, other.bring(t, arcade, entryOf("bob", 2, 1)), leaderboard.ErrBoardImmutable)
		n.wantTop(t, arcade, "ada:1")
		// Without an entry the definition can change.
		if err := n.Remove(t.Context(), arcade, "ada"); err != nil {
			t.Fatal(err)
		}
		if err := other.bring(t, arcade, entryOf("bob", 2, 1), entryOf("cyd", 3, 1)); err != nil {
			t.Error(err)
		}
		other.wantTop(t, arcade, "bob:2", "cyd:3")
		wantErr(t, n.bring(t, arcade, entryOf("ada", 2, 1)), leaderboard.ErrBoardImmutable)
		other.addsUp(t)
	})
}

// TestImportChunks checks that the chunks before a failure are durable, but not counted, and that
// Verify finds them; repeating the import completes it.
func TestImportChunks(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		var entries []leaderboard.Entry
		for i := range int64(2500) {
			entries = append(entries, entryOf(fmt.Sprintf("u%04d", i), i, i))
		}
		broken := slices.Clone(entries)
		broken[2200].Score = leaderboard.MaxScore + 1
		wantErr(t, n.bring(t, arcade, broken...), leaderboard.ErrScoreRejected)
		if entries := n.tally(t, `SELECT COUNT(*) FROM leaderboard_entry`); entries != 2000 {
			t.Errorf("%d entries", entries)
		}
		if report, err := n.Verify(t.Context()); err != nil || report.Err() == nil {
			t.Error("counted already", err)
		}
		n.submit(t, "arcade", "u0001", 5000)
		if err := n.bring(t, arcade, entries...); err != nil {
			t.Fatal(err)
		}
		n.addsUp(t)
		for _, i := range []int64{0, 1, 999, 1000, 2200, 2499} {
			if me, err := n.Me(t.Context(), arcade, fmt.Sprintf("u%04d", i)); err != nil || me.Rank != 2500-i || me.Total != 2500 {
				t.Errorf("%d: %v %+v", i, err, me)
			}
		}
	})
}

// TestImportBesideWriters imports while the same players submit.
func TestImportBesideWriters(t *testing.T) {
	config := leaderboard.SmallRanges(config, 8)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		many(17, func(i int) {
			n, rng := nodes[i%len(nodes)], rand.New(rand.NewPCG(uint64(i), 5))
			if i == 0 {
				n.load(t, arcade, slices.Repeat([]int64{1, 2, 2, 2, 3}, 500)...)
				return
			}
			for range 30 {
				user := fmt.Sprintf("u%04d", rng.IntN(40))
				_, err := n.Submit(t.Context(), leaderboard.Submission{Board: "arcade", UserID: user, Score: rng.Int64N(6)})
				if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
					t.Error(err)
				}
			}
		})
		n := nodes[0]
		n.addsUp(t)
		for i := range 50 {
			user := fmt.Sprintf("u%04d", i)
			me, err := n.Me(t.Context(), arcade, user)
			if counted := n.count(t, arcade, user); err != nil || counted != me.Rank || me.Total != 2500 {
				t.Errorf("%s: %v rank %d of %d, counted %d", user, err, me.Rank, me.Total, counted)
			}
		}
	})
}
