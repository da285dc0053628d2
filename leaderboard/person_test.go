package leaderboard_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/leaderboard"
)

// TestErase checks that a user's entries are removed from every window, also hidden ones, and that
// the ranks and counts of the others are right.
func TestErase(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx := t.Context()
		for i, user := range []string{"ada", "bob", "cid"} {
			n.submit(t, "arcade", user, int64(100-i))
			n.submit(t, "weekly", user, int64(i))
			n.submit(t, "laps", user, int64(i))
		}
		n.clock.advance(7 * 24 * time.Hour)
		n.submit(t, "weekly", "ada", 7)
		if _, err := n.SetHidden(ctx, "laps", "ada", leaderboard.Player, true); err != nil {
			t.Fatal(err)
		}
		c := n.Capability()
		exported := func(user string) map[string]int {
			t.Helper()
			kinds := map[string]int{}
			if err := c.Export(ctx, capability.Person{ID: user}, func(kind string, record any) error {
				_, err := json.Marshal(record)
				kinds[kind]++
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return kinds
		}
		if diff := cmp.Diff(map[string]int{"entry": 4, "hidden": 1}, exported("ada")); diff != "" {
			t.Error(diff)
		}
		for round, want := range []int64{5, 0} {
			out, err := c.Erase(ctx, capability.Person{ID: "ada"})
			if err != nil || out.Removed != want {
				t.Errorf("erasure %d removed %d rows, %v; want %d", round, out.Removed, err, want)
			}
		}
		if kinds := exported("ada"); len(kinds) != 0 {
			t.Errorf("after the erasure there is %v", kinds)
		}
		n.wantTop(t, leaderboard.View{Board: "arcade"}, "bob:99", "cid:98")
		n.wantTop(t, leaderboard.View{Board: "laps"}, "bob:1", "cid:2")
		me, err := n.Me(ctx, leaderboard.View{Board: "arcade"}, "cid")
		if err != nil || me.Rank != 2 || me.Total != 2 {
			t.Errorf("%+v %v, want rank 2 of 2", me, err)
		}
		n.addsUp(t)
	})
}

// TestEraseFromRanges erases a user with a crowded score, whose counts are in ranges.
func TestEraseFromRanges(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for i := range 40 {
			n.submit(t, "arcade", fmt.Sprintf("u%02d", i), 7)
		}
		for i := 0; i < 40; i += 3 {
			if _, err := n.Capability().Erase(t.Context(), capability.Person{ID: fmt.Sprintf("u%02d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		if top, err := n.ListTop(t.Context(), leaderboard.View{Board: "arcade"}, capability.Page{}); err != nil || len(top.Items) != 26 {
			t.Errorf("%d entries, %v; want 26", len(top.Items), err)
		}
		n.addsUp(t)
	})
}
