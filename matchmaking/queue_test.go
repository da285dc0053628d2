package matchmaking_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

var ctx = context.Background()

// status returns the states of players, in order.
func (r *rig) status(game string, userIDs ...string) []matchmaking.Queued {
	r.t.Helper()
	var list []matchmaking.Queued
	for _, userID := range userIDs {
		q, err := r.Status(ctx, game, userID)
		r.ok(err)
		list = append(list, q)
	}
	return list
}

func band(width float64) *float64 { return &width }

// TestQueue follows two players from the queue into a session: the band widens, the sweep matches,
// the job creates the session, and the match can be read for ten minutes.
func TestQueue(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		r.rate("ada", 10) // about 130 above
		q, err := r.Enqueue(ctx, "duel", "", "ada")
		r.ok(err)
		if diff := cmp.Diff(matchmaking.Queued{State: "waiting", Region: "default", Band: band(50)}, q); diff != "" {
			t.Error(diff)
		}
		r.ok(errorOf(r.Enqueue(ctx, "duel", "default", "bob")))
		r.step(5 * time.Second)
		again, err := r.Enqueue(ctx, "duel", "", "ada")
		r.ok(err)
		if diff := cmp.Diff(matchmaking.Queued{State: "waiting", Region: "default", Band: band(100), WaitedMs: 5000}, again); diff != "" {
			t.Error(diff)
		}
		r.step(5 * time.Second)
		matched := r.status("duel", "ada", "bob")
		session := matched[0].SessionID
		want := matchmaking.Queued{State: "matched", Region: "default", Band: band(150), WaitedMs: 10_000, SessionID: session, MatchID: session}
		if diff := cmp.Diff([]matchmaking.Queued{want, want}, matched); diff != "" || session == "" {
			t.Fatal(diff, session)
		}
		view, err := r.Multiplayer().View(ctx, session, "bob")
		r.ok(err)
		match, found, err := r.Match(ctx, session)
		r.ok(err)
		if diff := cmp.Diff(view.Players, match.Players); diff != "" || !found || len(match.Players) != 2 || view.Phase != multiplayer.PhaseActive {
			t.Errorf("%s, found %v, %s", diff, found, view.Phase)
		}

		// If the response was lost: for one sweep the same request finds the match.
		again, err = r.Enqueue(ctx, "duel", "", "ada")
		r.ok(err)
		if diff := cmp.Diff(want, again); diff != "" {
			t.Error(diff)
		}
		r.refuses(matchmaking.ErrNotQueued, r.Leave(ctx, "duel", "ada"))
		r.step(10 * time.Minute)
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "duel", "ada")))
	})
}

// TestEndedMatchHoldsNoTicket checks that players whose match has just ended, or who have left their
// table, wait for another match, and that a player who still plays gets the match that they are in.
func TestEndedMatchHoldsNoTicket(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		ada, bob := r.User("ada"), r.User("bob")
		enqueue := func(client *kittest.Client) (q matchmaking.Queued) {
			t.Helper()
			client.Post("/matchmaking/games/table/queue", nil).Want(202, "").JSON(&q)
			return q
		}
		matched := func() (session string) {
			t.Helper()
			for _, client := range []*kittest.Client{ada, bob} {
				if q := enqueue(client); q.State != matchmaking.Waiting || q.SessionID != "" {
					t.Fatalf("%+v, want waiting", q)
				}
			}
			r.step(5 * time.Second)
			first, second := enqueue(ada), enqueue(bob)
			if first.State != matchmaking.Matched || first.SessionID == "" || second.SessionID != first.SessionID {
				t.Fatalf("%+v, %+v, want a match", first, second)
			}
			return "/multiplayer/sessions/" + first.SessionID
		}
		ada.Post(matched()+"/action", "{}").Want(200, "") // which ends it
		session := matched()
		ada.Post(session+"/leave", nil).Want(204, "")
		if q := enqueue(ada); q.State != matchmaking.Waiting {
			t.Errorf("the player who has left: %+v", q)
		}
		if q := enqueue(bob); "/multiplayer/sessions/"+q.SessionID != session {
			t.Errorf("the player who stays: %+v", q)
		}
	})
}

func TestQueueRefusals(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	r.refuses(matchmaking.ErrGameNotFound, errorOf(r.Enqueue(ctx, "chess", "", "ada")))
	r.refuses(matchmaking.ErrGameNotFound, errorOf(r.Status(ctx, "chess", "ada")))
	r.refuses(matchmaking.ErrGameNotFound, r.Leave(ctx, "chess", "ada"))
	r.refuses(matchmaking.ErrNotQueued, r.Leave(ctx, "duel", "ada"))
	r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "duel", "ada")))
	r.refuses(capability.ErrInvalidRequest, errorOf(r.Enqueue(ctx, "table", "asia", "ada")))
	r.refuses(capability.ErrInvalidRequest, errorOf(r.Enqueue(ctx, "table", "", "")))
	r.refuses(capability.ErrInvalidRequest, errorOf(r.EnqueueParty(ctx, "table", "", "a", "b", "c")))
	r.refuses(capability.ErrInvalidRequest, errorOf(r.EnqueueParty(ctx, "table", "", "a", "a")))
	r.refuses(matchmaking.ErrNoSessions, r.Offer(ctx, matchmaking.Backfill{GameKey: "alone", SessionID: "s", Seats: 1}))
	r.refuses(matchmaking.ErrGameNotFound, r.Offer(ctx, matchmaking.Backfill{GameKey: "chess"}))
	r.refuses(capability.ErrInvalidRequest, r.Offer(ctx, matchmaking.Backfill{GameKey: "table", SessionID: "s", Seats: -1}))
}

// TestQueueRegions checks that regions are separate queues.
func TestQueueRegions(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for user, region := range map[string]string{"a": "eu", "b": "us", "c": "us"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", region, user)))
		}
		r.step(5 * time.Second)
		var states []string
		for _, q := range r.status("table", "a", "b", "c") {
			states = append(states, q.Region+" "+q.State)
		}
		if diff := cmp.Diff([]string{"eu waiting", "us matched", "us matched"}, states); diff != "" {
			t.Error(diff)
		}
	})
}

// TestQueueLiveness checks that a ticket ends when its player leaves, or has given no sign of life
// for a minute.
func TestQueueLiveness(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"asks", "silent", "leaves"} {
			r.ok(errorOf(r.Enqueue(ctx, "four", "", user)))
		}
		r.ok(r.Leave(ctx, "four", "leaves"))
		for range 13 {
			r.step(5 * time.Second)
			r.ok(errorOf(r.Status(ctx, "four", "asks")))
		}
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "four", "silent")))
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "four", "leaves")))
		// A player who has gone is not matched; another one can be.
		for _, user := range []string{"x", "y"} {
			r.ok(errorOf(r.Enqueue(ctx, "four", "", user)))
		}
		r.step(5 * time.Second)
		for _, q := range r.status("four", "asks", "x", "y") {
			if q.State != matchmaking.Waiting {
				t.Errorf("got %+v, want waiting", q)
			}
		}
	})
}

// TestQueueAvoids checks that players of whom one blocks the other are never matched, and that the
// last opponent is matched only if there is no other.
func TestQueueAvoids(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("a", "b", "c")
		r.ok(r.Block(ctx, "b", "a"))
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
		}
		for range 12 { // also past the maximum
			r.step(5 * time.Second)
		}
		for _, q := range r.status("duel", "a", "b") {
			if q.State != matchmaking.Waiting {
				t.Fatalf("got %+v, want waiting", q)
			}
		}
		r.ok(r.Unblock(ctx, "b", "a"))
		r.step(5 * time.Second)
		first := r.status("duel", "a", "b")
		if first[0].SessionID == "" || first[0].SessionID != first[1].SessionID {
			t.Fatalf("got %+v, want a match", first)
		}
		r.step(5 * time.Second)
		for _, user := range []string{"a", "b", "c"} {
			r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
		}
		r.step(5 * time.Second)
		second := r.status("duel", "a", "b", "c")
		if second[0].SessionID != "" && second[0].SessionID == second[1].SessionID || second[2].State != matchmaking.Matched {
			t.Errorf("got %+v, want c against one of the two", second)
		}
	})
}

// TestManyBlocksKeepPlayersApart checks that players of whom one blocks the other are not matched
// where more pairs are blocked than a sweep reads, whichever of the two blocks.
func TestManyBlocksKeepPlayersApart(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		r.bonds("aaa", "none", 1000) // read before the pair of ada and bob
		for _, pair := range [][2]string{{"ada", "bob"}, {"bob", "ada"}} {
			r.ok(r.Block(ctx, pair[0], pair[1]))
			for _, user := range pair {
				r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
			}
			for range 4 {
				r.step(5 * time.Second)
			}
			for _, q := range r.status("duel", "ada", "bob") {
				if q.State != matchmaking.Waiting {
					t.Fatalf("%s blocks %s: got %+v, want waiting", pair[0], pair[1], q)
				}
			}
			r.ok(r.Unblock(ctx, pair[0], pair[1]))
		}
		r.step(5 * time.Second)
		if q := r.status("duel", "ada", "bob"); q[0].SessionID == "" || q[0].SessionID != q[1].SessionID {
			t.Errorf("nobody blocks: got %+v, want a match", q)
		}
	})
}

// TestQueueReadsSkillAgain checks that the skill of a ticket is read again when it is a minute old.
func TestQueueReadsSkillAgain(t *testing.T) {
	cfg := games()
	cfg[0].Queue = matchmaking.Queue{InitialBand: new(50.0)}
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		r.rate("ada", 10)
		for _, user := range []string{"ada", "bob"} {
			r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
		}
		r.rate("bob", 10)
		for range 13 {
			if state := r.status("duel", "ada")[0].State; state != matchmaking.Waiting {
				t.Fatalf("%s before the skill was read again", state)
			}
			r.ok(errorOf(r.Status(ctx, "duel", "bob")))
			r.step(5 * time.Second)
		}
		for _, q := range r.status("duel", "ada", "bob") {
			if q.State != matchmaking.Matched {
				t.Errorf("got %+v, want a match", q)
			}
		}
	})
}

// TestParty checks that a party gets into one match, and leaves together.
func TestParty(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "c", "a", "b")))
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "a", "b", "c")))
		r.ok(errorOf(r.Enqueue(ctx, "four", "", "b"))) // keeps the ticket of the party
		r.refuses(matchmaking.ErrAlreadyQueued, errorOf(r.EnqueueParty(ctx, "four", "", "a", "b")))
		r.refuses(matchmaking.ErrAlreadyQueued, errorOf(r.EnqueueParty(ctx, "four", "", "c", "d")))
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "x", "y")))
		r.step(5 * time.Second)
		for _, q := range r.status("four", "a", "x") {
			if q.State != matchmaking.Waiting {
				t.Fatalf("three and two do not make four: %+v", q)
			}
		}
		r.ok(r.Leave(ctx, "four", "y"))
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "four", "x")))
		r.ok(errorOf(r.Enqueue(ctx, "four", "", "x")))
		r.step(5 * time.Second)
		match, _, err := r.Match(ctx, r.status("four", "x")[0].MatchID)
		r.ok(err)
		slices.Sort(match.Players)
		if diff := cmp.Diff([]string{"a", "b", "c", "x"}, match.Players); diff != "" {
			t.Error(diff)
		}
	})
}

// TestBackfill checks that waiting players get the free seats of a table before a match of their
// own.
func TestBackfill(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		game := *games()[3].Snapshot
		game.Key = "table"
		table, err := r.Multiplayer().Start(ctx, multiplayer.Start{Game: game, Players: []string{"p1", "p2"}})
		r.ok(err)
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "table", SessionID: table.ID, Seats: 3}))
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "", user)))
		}
		r.step(5 * time.Second)
		for _, q := range r.status("table", "a", "b") {
			if q.SessionID != table.ID || q.MatchID == table.ID {
				t.Fatalf("got %+v, want the table %s", q, table.ID)
			}
		}
		free, _, err := r.Multiplayer().Seats(ctx, table.ID)
		r.ok(err)
		if free != 2 {
			t.Errorf("%d seats are free, want 2", free)
		}
		// One seat is left of the offer; the players without a seat make a match.
		for _, user := range []string{"c", "d", "e"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "", user)))
		}
		r.step(5 * time.Second)
		sessions := map[string]int{}
		for _, q := range r.status("table", "c", "d", "e") {
			sessions[q.SessionID]++
		}
		if sessions[table.ID] != 1 || len(sessions) != 2 {
			t.Errorf("got %v, want one at the table and a match of two", sessions)
		}
		// If the seats are gone, the player waits again and keeps the waiting time.
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "table", SessionID: "gone", Seats: 1}))
		r.ok(errorOf(r.Enqueue(ctx, "table", "", "f")))
		r.step(5 * time.Second)
		want := []matchmaking.Queued{{State: "waiting", Region: "eu", WaitedMs: 5000}}
		if diff := cmp.Diff(want, r.status("table", "f")); diff != "" {
			t.Error(diff)
		}
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "table", SessionID: table.ID, Seats: 1}))
		r.ok(r.Offer(ctx, matchmaking.Backfill{GameKey: "table", SessionID: table.ID}))
		r.step(5 * time.Second)
		if q := r.status("table", "f")[0]; q.State != matchmaking.Waiting {
			t.Errorf("got %+v after the offer was taken back", q)
		}
	})
}

// TestUncoveredStake checks that a match whose stake one player does not cover fails for that
// player; the other one waits again and keeps the waiting time.
func TestUncoveredStake(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"rich", "too"} {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 100, Ref: "gift-" + user})))
		}
		for _, user := range []string{"rich", "poor"} {
			r.ok(errorOf(r.Enqueue(ctx, "staked", "", user)))
		}
		r.step(5 * time.Second)
		want := []matchmaking.Queued{
			{State: "waiting", Region: "default", WaitedMs: 5000},
			{State: "failed", Region: "default", WaitedMs: 5000},
		}
		if diff := cmp.Diff(want, r.status("staked", "rich", "poor"), cmpopts.IgnoreFields(matchmaking.Queued{}, "MatchID")); diff != "" {
			t.Error(diff)
		}
		r.ok(errorOf(r.Enqueue(ctx, "staked", "", "too")))
		r.step(5 * time.Second)
		matched := r.status("staked", "rich", "too")
		if matched[0].SessionID == "" || matched[0].SessionID != matched[1].SessionID {
			t.Errorf("got %+v, want a match", matched)
		}
		balance, err := r.Ledger().Balance(ctx, "rich", "coins")
		r.ok(err)
		if balance.Held != 10 {
			t.Errorf("%d coins are held, want 10", balance.Held)
		}
	})
}

// TestQueueAfterClockWentBack checks that a ticket that was written before the clock went back
// counts as written now: it widens, and expires with a player who has gone.
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

// TestPartyAfterClockWentBack checks that a party stays one ticket, whichever of its players was
// seen by the clock that was ahead.
func TestPartyAfterClockWentBack(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "ada", "bob")))
		r.Clock.Advance(11 * time.Second)
		r.status("four", "ada") // bob has not requested the status since
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
