package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/leaderboard"
)

// read is a read with its result.
type read struct {
	name   string
	ask    func(ctx context.Context) (any, error)
	result any
	err    error
}

// TestSharedReads checks that reads that share a statement return what each returns alone, as in a
// transaction: of present, hidden and absent players, of one requested twice with different
// numbers, of pages, and of open, closed and unknown windows.
func TestSharedReads(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for range 2 { // a week each
			for i := range 12 {
				n.submit(t, "weekly", fmt.Sprintf("p%02d", i), int64(i/3))
			}
			if _, err := n.SetHidden(t.Context(), "weekly", "p05", leaderboard.Player, true); err != nil {
				t.Fatal(err)
			}
			n.clock.advance(7 * 24 * time.Hour)
		}
		n.clock.advance(-7 * 24 * time.Hour)
		infos, err := n.Boards(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(infos, func(i leaderboard.Info) bool { return i.Key == "weekly" })
		first, err := n.ListTop(t.Context(), leaderboard.View{Board: "weekly"}, capability.NewPage(4, ""))
		if err != nil || first.NextCursor == nil || len(infos[i].Closed) != 1 {
			t.Fatal(first, err, infos)
		}
		var players, pages []*read
		for _, window := range []string{"", infos[i].Closed[0], "19991227T0000Z"} {
			v := leaderboard.View{Board: "weekly", Window: window}
			for _, user := range []string{"p00", "p05", "p11", "nobody", "p05", "p06"} {
				players = append(players, &read{name: "me " + user + " " + window,
					ask: func(ctx context.Context) (any, error) { return n.Me(ctx, v, user) }})
				for _, limit := range []int{5, 200, 1} {
					players = append(players, &read{name: fmt.Sprint("around ", user, limit, window),
						ask: func(ctx context.Context) (any, error) { return n.Around(ctx, v, user, limit) }})
				}
			}
			for _, page := range []capability.Page{capability.NewPage(4, ""), capability.NewPage(4, ""), capability.NewPage(5, ""),
				capability.NewPage(4, *first.NextCursor), capability.NewPage(4, ""), capability.NewPage(200, *first.NextCursor)} {
				pages = append(pages, &read{name: fmt.Sprint("top ", page, window),
					ask: func(ctx context.Context) (any, error) { return n.ListTop(ctx, v, page) }})
			}
		}
		calls := func(reads []*read) (calls []func()) {
			for _, r := range reads {
				calls = append(calls, func() { r.result, r.err = r.ask(t.Context()) })
			}
			return calls
		}
		shared := n.GatherReads("weekly", calls(players), calls(pages))
		want := 0
		if n.db.Dialect() == database.PostgreSQL { // of the open window all players, and the first pages
			want = len(players)/3 + 4
		}
		if shared != want {
			t.Errorf("%d reads share, not %d", shared, want)
		}
		for _, r := range append(players, pages...) {
			err := n.db.InTx(t.Context(), func(ctx context.Context) error {
				alone, err := r.ask(ctx)
				if diff := gocmp.Diff(alone, r.result); diff != "" || !errors.Is(r.err, err) {
					t.Errorf("%s: %v instead of %v %s", r.name, r.err, err, diff)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// TestReadsFollowWrites checks that a player reads every submission of its own from then on, under
// concurrent reads and writes.
func TestReadsFollowWrites(t *testing.T) {
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		many(16, func(i int) {
			n, user := nodes[i%len(nodes)], fmt.Sprintf("u%02d", i)
			for step := range int64(20) {
				score := 100*step + int64(i)
				if _, err := n.Submit(t.Context(), leaderboard.Submission{Board: "arcade", UserID: user, Score: score}); err != nil {
					t.Error(err)
				}
				me, err := n.Me(t.Context(), arcade, user)
				if err != nil || me.Entry.Score != score {
					t.Errorf("%s: %v %+v after %d", user, err, me, score)
				}
				around, err := n.Around(t.Context(), arcade, user, 5)
				if !slices.ContainsFunc(around.Items, func(r leaderboard.Ranked) bool { return r.UserID == user && r.Score == score }) {
					t.Errorf("%s: %v %+v after %d", user, err, around, score)
				}
				top, err := n.ListTop(t.Context(), arcade, capability.NewPage(16, ""))
				if !slices.ContainsFunc(top.Items, func(r leaderboard.Ranked) bool { return r.UserID == user && r.Score == score }) {
					t.Errorf("%s: %v %+v after %d", user, err, top, score)
				}
			}
		})
	})
}

// TestWrongRange checks that a wrong count of a range makes ranks inexact until it is repaired, but
// that no read fails.
func TestWrongRange(t *testing.T) {
	config := leaderboard.SmallRanges(config, 4)
	eachWith(t, config, func(t *testing.T, n *node) {
		n.load(t, arcade, make([]int64, 40)...)
		for _, count := range []int64{-3, 0, 9000} {
			n.tamper(t, arcade, `UPDATE leaderboard_range SET n = $2 WHERE window_id = $1`, count)
			if _, err := n.Me(t.Context(), arcade, "u0020"); err != nil {
				t.Errorf("%d: %v", count, err)
			}
			if _, err := n.Around(t.Context(), arcade, "u0020", 5); err != nil {
				t.Errorf("%d: %v", count, err)
			}
			if _, err := n.Segment(t.Context(), arcade, "u0020"); err != nil {
				t.Errorf("%d: %v", count, err)
			}
			if _, err := n.Rebuild(t.Context(), arcade); err != nil {
				t.Error(err)
			}
			n.addsUp(t)
		}
	})
}

// TestLargePage checks that a page has at most capability.MaxLimit entries, and a cursor if there
// are more.
func TestLargePage(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.load(t, arcade, make([]int64, capability.MaxLimit+1)...)
		page, err := n.ListTop(t.Context(), arcade, capability.Page{Limit: 1000})
		if err != nil || len(page.Items) != capability.MaxLimit || page.NextCursor == nil {
			t.Errorf("%v %d %v", err, len(page.Items), page.NextCursor)
		}
	})
}
