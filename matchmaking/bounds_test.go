package matchmaking_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// TestRoomsAreBoundedAtOnce checks that concurrent requests open at most ten rooms.
func TestRoomsAreBoundedAtOnce(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		var opened atomic.Int64
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				switch _, err := r.OpenRoom(ctx, "duel", "host"); {
				case err == nil:
					opened.Add(1)
				case !errors.Is(err, matchmaking.ErrLimitReached):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if opened.Load() != 10 {
			t.Errorf("%d rooms were opened, want 10", opened.Load())
		}
	})
}

// TestInviterIsNotBroughtBack checks that accepting an invite does not seat an inviter at a table
// they have left.
func TestInviterIsNotBroughtBack(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("host", "b", "c")
		first, err := r.SendInvite(ctx, "table", "host", toUser("b"))
		r.ok(err)
		first, err = r.AcceptInvite(ctx, first.ID, "b")
		r.ok(err)
		second, err := r.SendInvite(ctx, "table", "host", toUser("c"))
		r.ok(err)
		r.ok(r.Multiplayer().Leave(ctx, first.SessionID, "host"))
		second, err = r.AcceptInvite(ctx, second.ID, "c")
		r.ok(err)
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.Multiplayer().View(ctx, first.SessionID, "host")))
		if first.SessionID == second.SessionID {
			t.Error("the invitee is at the table that the inviter has left")
		}
	})
}

// TestAcceptingTakesNoMoneyOfTheInviter checks that accepting takes no money from the inviter and
// does not disclose their balance; the game begins when they join.
func TestAcceptingTakesNoMoneyOfTheInviter(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		for user, amount := range map[string]int64{"ada": 3, "bob": 100} {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: amount, Ref: "gift/" + user})))
		}
		held := func(user string, want int64) {
			t.Helper()
			b, err := r.Ledger().Balance(ctx, user, "coins")
			r.ok(err)
			if b.Held != want {
				t.Errorf("of %s %d are held, want %d", user, b.Held, want)
			}
		}
		v, err := r.SendInvite(ctx, "staked", "ada", toUser("bob"))
		r.ok(err)
		v, err = r.AcceptInvite(ctx, v.ID, "bob")
		r.ok(err) // the refusal would disclose that ada has 3 of 10
		held("ada", 0)
		view, err := r.Multiplayer().View(ctx, v.SessionID, "bob")
		r.ok(err)
		if diff := cmp.Diff([]string{"bob"}, view.Players); diff != "" || view.Phase != multiplayer.PhaseOpen {
			t.Error(view.Phase, diff)
		}
		r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 7, Ref: "more"})))
		view, err = r.Multiplayer().Join(ctx, v.SessionID, "ada")
		r.ok(err)
		if view.Phase != multiplayer.PhaseActive {
			t.Errorf("the session is %s with both", view.Phase)
		}
		held("ada", 10)
		held("bob", 10)
	})
}

// TestStrangersLeaveRoom checks that strangers cannot use up a user's received invites: two of them
// leave room for others, and all of them for friends.
func TestStrangersLeaveRoom(t *testing.T) {
	many := games()[:0]
	for i := range 60 {
		many = append(many, matchmaking.Game{Key: fmt.Sprint("game-", i), Players: 2,
			Snapshot: &multiplayer.Game{Kind: "duel", Rules: duelRules{}}})
	}
	each(t, matchmaking.Config{Games: many}, func(t *testing.T, r *rig) {
		r.befriend("ada", "friend")
		for _, stranger := range []string{"eve", "mallory"} {
			for i := range 5 {
				r.ok(errorOf(r.SendInvite(ctx, fmt.Sprint("game-", i), stranger, toUser("ada"))))
			}
			r.refuses(matchmaking.ErrLimitReached, errorOf(r.SendInvite(ctx, "game-5", stranger, toUser("ada"))))
		}
		for i := range 90 {
			r.ok(errorOf(r.SendInvite(ctx, "game-0", fmt.Sprint("sock-", i), toUser("ada"))))
		}
		r.refuses(matchmaking.ErrLimitReached, errorOf(r.SendInvite(ctx, "game-0", "one more", toUser("ada"))))
		r.ok(errorOf(r.SendInvite(ctx, "game-0", "friend", toUser("ada"))))
	})
}

// TestAllInvitesOnConnect checks that a new socket receives all pending invites, however many.
func TestAllInvitesOnConnect(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	r.users("ada")
	for i := range 100 {
		r.ok(errorOf(r.SendInvite(ctx, "duel", fmt.Sprint("from-", i), toUser("ada"))))
	}
	e, _ := r.listen(r.serve(), "ada")
	told := map[string]bool{}
	for range 100 {
		told[e.next("invite").From] = true
	}
	if len(told) != 100 {
		t.Errorf("told of %d invites, want 100", len(told))
	}
	e.silent()
}

// TestLongSweep checks that a sweep that takes longer than its slot is not deposed by the next one
// of the same node.
func TestLongSweep(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for round := range 4 {
			users := ids(fmt.Sprint("round-", round), 4)
			for _, user := range users {
				r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
			}
			slow, ok, err := r.Lead(ctx, "table")
			r.ok(err)
			if !ok || slow.Matches() != 2 {
				t.Fatalf("leads %v with %d matches, want 2", ok, slow.Matches())
			}
			r.step(5 * time.Second) // the next sweep, before this one has claimed
			r.step(5 * time.Second)
			r.ok(slow.Claim(ctx))
			r.RunJobs()
			r.allMatched("table", users)
		}
	})
}

// TestFailedSweepGivesItsLeaseBack checks that a sweep that fails releases its lease, so that the
// next one need not wait for it.
func TestFailedSweepGivesItsLeaseBack(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	for _, user := range []string{"a", "b"} {
		r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
	}
	r.ok(errorOf(r.Database().Exec(ctx, `ALTER TABLE matchmaking_backfill RENAME TO away`)))
	if err := r.RunSweep(ctx, "table"); err == nil {
		t.Fatal("the sweep did not fail")
	}
	r.ok(errorOf(r.Database().Exec(ctx, `ALTER TABLE away RENAME TO matchmaking_backfill`)))
	r.ok(r.RunSweep(ctx, "table"))
	if q := r.status("table", "a")[0]; q.State != matchmaking.Forming {
		t.Errorf("got %+v, want forming", q)
	}
}

// TestTicketCommitsDuringItsSweep checks that a ticket that commits while the sweep of its slot
// runs is swept by the next one.
func TestTicketCommitsDuringItsSweep(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	r, other := both[0], both[1]
	r.ok(errorOf(r.Enqueue(ctx, "table", "eu", "early"))) // schedules the sweep of this slot
	r.ok(r.Leave(ctx, "table", "early"))
	r.ok(r.Database().InTx(ctx, func(ctx context.Context) error {
		for _, user := range []string{"a", "b"} {
			if _, err := r.Enqueue(ctx, "table", "eu", user); err != nil {
				return err
			}
		}
		other.step(5 * time.Second) // finds nobody
		return nil
	}))
	other.step(5 * time.Second)
	other.RunJobs()
	r.allMatched("table", []string{"a", "b"})
}

// TestSnapshotForPlayers checks that the game of a session can depend on its players.
func TestSnapshotForPlayers(t *testing.T) {
	cfg := games()
	cfg[0].SnapshotFor = func(_ context.Context, base multiplayer.Game, players []string) (multiplayer.Game, error) {
		if players[0] == "broke" {
			return base, errors.New("no game for this one")
		}
		base.Rules = duelRules{Stake: int64(len(players))}
		return base, nil
	}
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		r.users("host", "guest")
		for _, user := range []string{"host", "guest"} {
			r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: user, Currency: "coins", Amount: 5, Ref: "gift/" + user})))
		}
		room, err := r.OpenRoom(ctx, "duel", "host")
		r.ok(err)
		r.ok(errorOf(r.JoinRoom(ctx, room.Code, "guest")))
		b, err := r.Ledger().Balance(ctx, "guest", "coins")
		r.ok(err)
		if b.Held != 1 { // created when the host was alone
			t.Errorf("%d are held, want 1", b.Held)
		}
		if _, err := r.OpenRoom(ctx, "duel", "broke"); err == nil {
			t.Error("a room without a snapshot was opened")
		}
		shown, err := json.Marshal(r.Matchmaking.Capability().Config[0].Value)
		if err != nil || len(shown) == 0 {
			t.Errorf("%s %v", shown, err)
		}
	})
}
