package matchmaking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// TestMatchThatFailsTakesNoNeighbourAlong checks that a match whose session cannot be created fails
// alone, or is retried alone after a temporary error: the other matches of the job become sessions.
func TestMatchThatFailsTakesNoNeighbourAlong(t *testing.T) {
	for state, failure := range map[string]error{
		matchmaking.Failed:  errors.New("no game for these"),
		matchmaking.Forming: context.DeadlineExceeded,
	} {
		cfg := games()
		cfg[3].SnapshotFor = func(_ context.Context, base multiplayer.Game, players []string) (multiplayer.Game, error) {
			if slices.Contains(players, "bad") {
				return base, failure
			}
			return base, nil
		}
		each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
			for _, user := range []string{"a", "b", "bad", "luck"} {
				r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
			}
			for range 2 {
				r.step(5 * time.Second)
			}
			var states []string
			for _, q := range r.status("table", "a", "b", "bad", "luck") {
				states = append(states, q.State)
			}
			if diff := cmp.Diff([]string{matchmaking.Matched, matchmaking.Matched, state, state}, states); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDisabledPlayerIsNotMatched checks that a user who was disabled while waiting is not matched.
func TestDisabledPlayerIsNotMatched(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob", "cid")
		for _, user := range []string{"ada", "bob"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		r.ok(r.Auth().DisableUser(ctx, "ada"))
		r.step(5 * time.Second)
		running, err := r.Multiplayer().ListRunning(ctx, "bob", page())
		r.ok(err)
		if len(running.Items) > 0 {
			t.Fatalf("bob plays %+v against nobody", running.Items)
		}
		r.ok(errorOf(r.Enqueue(ctx, "table", "eu", "cid")))
		r.step(5 * time.Second)
		r.allMatched("table", []string{"bob", "cid"})
	})
}

// TestSeatsOutliveAPlayerAtFault checks that seats that a player cannot take are offered to the
// next one, and that only the player who does not cover the stake of a table, or has too many
// seats, is at fault.
func TestSeatsOutliveAPlayerAtFault(t *testing.T) {
	cfg := append(games(), matchmaking.Game{Key: "stakes", Players: 2,
		Snapshot: &multiplayer.Game{Kind: "duel", Mode: multiplayer.ModeTable, Players: 6, Rules: duelRules{10}}})
	give := func(r *rig, users ...string) {
		for _, user := range users {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 100, Ref: "gift/" + user})))
		}
	}
	table := func(r *rig, game string) string {
		snapshot := *cfg[slices.IndexFunc(cfg, func(g matchmaking.Game) bool { return g.Key == game })].Snapshot
		snapshot.Key = game
		s, err := r.Multiplayer().Start(ctx, multiplayer.Start{Game: snapshot, Players: []string{"p1", "p2"}})
		r.ok(err)
		return s.ID
	}
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		give(r, "p1", "p2", "rich")
		id := table(r, "stakes")
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "stakes", SessionID: id, Seats: 2}))
		for _, user := range []string{"poor", "rich"} {
			r.ok(errorOf(r.Enqueue(ctx, "stakes", "", user)))
		}
		r.ok(r.RunSweep(ctx, "stakes"))
		r.ok(r.Clean(ctx)) // while the match is forming
		for range 2 {
			r.step(5 * time.Second)
		}
		if q := r.status("stakes", "rich", "poor"); q[0].SessionID != id || q[1].State != matchmaking.Failed {
			t.Errorf("got %+v, want a seat at %s for one and a failure for the other", q, id)
		}

		id = table(r, "table")
		plain := *cfg[3].Snapshot
		plain.Key = "table"
		r.ok(errorOf(r.Enqueue(ctx, "table", "eu", "greedy")))
		for i := range multiplayer.MaxSeated {
			r.ok(errorOf(r.Multiplayer().Start(ctx, multiplayer.Start{Game: plain, Players: []string{"greedy", fmt.Sprint("p", i)}})))
		}
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "table", Region: "eu", SessionID: id, Seats: 1}))
		r.step(5 * time.Second)
		r.ok(errorOf(r.Enqueue(ctx, "table", "eu", "next")))
		r.step(5 * time.Second)
		if q := r.status("table", "next", "greedy"); q[0].SessionID != id || q[1].State != matchmaking.Failed {
			t.Errorf("got %+v, want a seat at %s for one and a failure for the other", q, id)
		}
	})
}

// TestOfferAfterAFullTableIsNew checks that an offer that follows one whose seats were all taken is
// new: its waiting time starts anew, so its band is as narrow as any other.
func TestOfferAfterAFullTableIsNew(t *testing.T) {
	cfg := append(games(), matchmaking.Game{Key: "ranked", Players: 2, SkillPool: "duel",
		Queue:    matchmaking.Queue{InitialBand: new(50.0), WidenPerSecond: 10, MaxWaitSeconds: 30},
		Snapshot: &multiplayer.Game{Kind: "duel", Mode: multiplayer.ModeTable, Players: 6, Rules: duelRules{}}})
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		r.rate("strong", 30)
		skill, err := r.Rating().Skill(ctx, "duel", "first")
		r.ok(err)
		plain := *cfg[len(cfg)-1].Snapshot
		plain.Key = "ranked"
		s, err := r.Multiplayer().Start(ctx, multiplayer.Start{Game: plain, Players: []string{"p1", "p2"}})
		r.ok(err)
		offer := func() {
			r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "ranked", SessionID: s.ID, Seats: 1, Skill: skill}))
		}
		offer()
		r.ok(errorOf(r.Enqueue(ctx, "ranked", "", "first")))
		r.step(5 * time.Second)
		if q := r.status("ranked", "first"); q[0].SessionID != s.ID {
			t.Fatalf("got %+v, want the offered seat", q[0])
		}
		r.Clock.Advance(time.Minute)
		r.ok(errorOf(r.Enqueue(ctx, "ranked", "", "strong")))
		offer()
		r.step(5 * time.Second)
		if q := r.status("ranked", "strong"); q[0].State != matchmaking.Waiting {
			t.Errorf("got %+v, want to wait for an opponent of this skill", q[0])
		}
	})
}
