package matchmaking_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// A match whose session cannot be made fails by itself, or waits by itself for what
// passes: those that the same job forms become sessions.
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

// Who is erased between the claim and the session gets no seat, and the others
// wait on with the time they have waited.
func TestErasedPlayerGetsNoSession(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"ada", "bob"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		sweep, _, err := r.Lead(ctx, "table")
		r.ok(err)
		r.ok(sweep.Claim(ctx))
		for _, c := range []capability.Capability{r.Matchmaking.Capability(), r.Multiplayer().Capability()} { // in the order of an erasure
			r.ok(errorOf(c.Erase(ctx, capability.Person{ID: "ada"})))
		}
		r.step(5 * time.Second)
		running, err := r.Multiplayer().ListRunning(ctx, "ada", page())
		r.ok(err)
		if len(running.Items) > 0 {
			t.Errorf("the erased user plays %+v", running.Items)
		}
		want := []matchmaking.Queued{{State: "waiting", Region: "eu", WaitedMs: 5000}}
		if diff := cmp.Diff(want, r.status("table", "bob")); diff != "" {
			t.Error(diff)
		}
	})
}

// A user who was disabled while waiting is matched with nobody.
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

// Nobody gets into a session with a user who was disabled after inviting.
func TestInviteOfADisabledUserIsGone(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		v, err := r.SendInvite(ctx, "table", "ada", toUser("bob"))
		r.ok(err)
		r.ok(r.Auth().DisableUser(ctx, "ada"))
		r.refuses(matchmaking.ErrInviteNotFound, errorOf(r.AcceptInvite(ctx, v.ID, "bob")))
		r.ok(r.Auth().EnableUser(ctx, "ada"))
		r.ok(errorOf(r.AcceptInvite(ctx, v.ID, "bob")))
	})
}

// Seats that a player cannot take are there for the next one: who does not cover
// the stake of a table, and who has too many seats, is at fault alone.
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
		r.ok(r.Clean(ctx)) // while the match forms
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

// However many a game takes, accepting takes no money of the inviter.
func TestInviterOfSeveralIsAskedForTheStake(t *testing.T) {
	cfg := append(games(), matchmaking.Game{Key: "trio", Players: 3, Snapshot: &multiplayer.Game{Kind: "duel", Rules: duelRules{10}}})
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		r.users("ada", "bob", "cid")
		for _, user := range []string{"ada", "bob", "cid"} {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 100, Ref: "gift/" + user})))
		}
		var session string
		for _, user := range []string{"bob", "cid"} {
			v, err := r.SendInvite(ctx, "trio", "ada", toUser(user))
			r.ok(err)
			v, err = r.AcceptInvite(ctx, v.ID, user)
			r.ok(err)
			if session != "" && v.SessionID != session {
				t.Errorf("%s is in another session", user)
			}
			session = v.SessionID
		}
		b, err := r.Ledger().Balance(ctx, "ada", "coins")
		r.ok(err)
		if b.Held != 0 {
			t.Errorf("of the inviter %d are held", b.Held)
		}
		view, err := r.Multiplayer().Join(ctx, session, "ada")
		r.ok(err)
		if view.Phase != multiplayer.PhaseActive {
			t.Errorf("the session is %s with all three", view.Phase)
		}
	})
}

// A ticket that was written before the clock went back is as old as one of now:
// it widens, and expires with a player who has gone.
func TestQueueAfterClockWentBack(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.rate("strong", 10)
		for _, user := range []string{"strong", "asks"} {
			r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
		}
		r.ok(errorOf(r.Enqueue(ctx, "four", "", "gone")))
		r.Clock.Advance(-time.Hour)
		r.ok(r.RunSweep(ctx, "duel"))
		r.ok(r.RunSweep(ctx, "four"))
		for range 2 {
			r.step(5 * time.Second)
		}
		r.allMatched("duel", []string{"strong", "asks"})
		for range 12 {
			r.step(5 * time.Second)
		}
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "four", "gone")))
	})
}

// Two of whom one blocks the other do not meet by the invites of a third.
func TestInvitesKeepTheBlockedApart(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("host", "ada", "bob", "eve")
		r.ok(r.Block(ctx, "ada", "eve"))
		accept := func(user string) string {
			t.Helper()
			v, err := r.SendInvite(ctx, "four", "host", toUser(user))
			r.ok(err)
			v, err = r.AcceptInvite(ctx, v.ID, user)
			r.ok(err)
			return v.SessionID
		}
		eve, ada, bob := accept("eve"), accept("ada"), accept("bob")
		if ada == eve {
			t.Error("ada is in a session with eve, whom she blocks")
		}
		if bob != ada {
			t.Error("bob, whom nobody blocks, is not in the session of the last invite")
		}
	})
}

// An offer that comes after its seats were all taken is a new one: it has not
// waited, so it does not reach further than any other.
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

// A party stays one ticket, whichever of its players was seen by the clock that
// was ahead.
func TestPartyAfterClockWentBack(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "ada", "bob")))
		r.Clock.Advance(11 * time.Second)
		r.status("four", "ada") // bob has not asked since
		r.Clock.Advance(-15 * time.Second)
		r.ok(r.RunSweep(ctx, "four"))
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "cid", "dan")))
		for range 2 {
			r.step(5 * time.Second)
		}
		for _, q := range r.status("four", "ada", "bob", "cid", "dan") {
			if q.State != matchmaking.Matched {
				t.Errorf("got %+v, want matched", q)
			}
		}
	})
}
