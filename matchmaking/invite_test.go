package matchmaking_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

func toUser(id string) matchmaking.Invitee   { return matchmaking.Invitee{UserID: id} }
func toName(name string) matchmaking.Invitee { return matchmaking.Invitee{ScreenName: name} }

// invites lists the invites that a user received and sent.
func (r *rig) invites(userID string) []matchmaking.Invite {
	r.t.Helper()
	list := []matchmaking.Invite{}
	page := capability.NewPage(1, "")
	for {
		items, err := r.ListInvites(ctx, userID, page)
		r.ok(err)
		list = append(list, items.Items...)
		if items.NextCursor == nil {
			return list
		}
		page = capability.NewPage(1, *items.NextCursor)
	}
}

func TestInvite(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada")
		r.named("bob", "Bobby")
		v, err := r.SendInvite(ctx, "duel", "ada", toName("Bobby"))
		r.ok(err)
		at := capability.Millis(r.Clock.Now().UnixMilli())
		want := matchmaking.Invite{ID: v.ID, GameKey: "duel", From: "ada", To: "bob", State: "pending", CreatedAt: at,
			ExpiresAt: capability.Millis(at.UnixMilli() + 3_600_000)}
		if diff := cmp.Diff(want, v); diff != "" {
			t.Error(diff)
		}
		again, err := r.SendInvite(ctx, "duel", "ada", toUser("bob"))
		r.ok(err)
		if diff := cmp.Diff(v, again); diff != "" {
			t.Errorf("a second invite: %s", diff)
		}
		for _, user := range []string{"ada", "bob"} {
			if diff := cmp.Diff([]matchmaking.Invite{v}, r.invites(user)); diff != "" {
				t.Error(diff)
			}
		}
		r.refuses(matchmaking.ErrInviteForbidden, errorOf(r.AcceptInvite(ctx, v.ID, "ada")))
		r.refuses(matchmaking.ErrInviteForbidden, r.DeclineInvite(ctx, v.ID, "eve"))
		accepted, err := r.AcceptInvite(ctx, v.ID, "bob")
		r.ok(err)
		view, err := r.Multiplayer().View(ctx, accepted.SessionID, "bob")
		r.ok(err)
		if diff := cmp.Diff([]string{"ada", "bob"}, view.Players); diff != "" || view.Phase != multiplayer.PhaseActive {
			t.Error(diff, view.Phase)
		}
		again, err = r.AcceptInvite(ctx, v.ID, "bob")
		r.ok(err)
		if diff := cmp.Diff(accepted, again); diff != "" {
			t.Error(diff)
		}
		r.refuses(matchmaking.ErrInviteNotFound, r.DeclineInvite(ctx, v.ID, "bob"))

		// A second invite of the same two, for another session.
		v, err = r.SendInvite(ctx, "duel", "ada", toUser("bob"))
		r.ok(err)
		second, err := r.AcceptInvite(ctx, v.ID, "bob")
		r.ok(err)
		if second.SessionID == accepted.SessionID {
			t.Error("a session that is full was used again")
		}
	})
}

// TestInviteEnds checks that an invite that was declined, or is an hour old, cannot be accepted.
func TestInviteEnds(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		v, err := r.SendInvite(ctx, "duel", "ada", toUser("bob"))
		r.ok(err)
		r.ok(r.DeclineInvite(ctx, v.ID, "bob"))
		r.refuses(matchmaking.ErrInviteNotFound, errorOf(r.AcceptInvite(ctx, v.ID, "bob")))
		v, err = r.SendInvite(ctx, "duel", "ada", toUser("bob"))
		r.ok(err)
		r.Clock.Advance(time.Hour)
		r.refuses(matchmaking.ErrInviteNotFound, errorOf(r.AcceptInvite(ctx, v.ID, "bob")))
		if diff := cmp.Diff([]matchmaking.Invite{}, r.invites("bob")); diff != "" {
			t.Error(diff)
		}
		fresh, err := r.SendInvite(ctx, "duel", "ada", toUser("bob"))
		r.ok(err)
		if fresh.ID == v.ID {
			t.Error("an expired invite was sent again")
		}
		r.Clock.Advance(time.Hour)
		r.ok(r.Clean(ctx))
	})
}

// TestInviteGroup checks that all players whom one player invites to a game of four play in one
// session, whether they accept concurrently or not.
func TestInviteGroup(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		guests := []string{"b", "c", "d", "e"}
		var sent []matchmaking.Invite
		r.users("host")
		r.users(guests...)
		for _, user := range guests {
			v, err := r.SendInvite(ctx, "four", "host", toUser(user))
			r.ok(err)
			sent = append(sent, v)
		}
		sessions := make([]string, len(guests))
		var wg sync.WaitGroup
		for i, v := range sent {
			wg.Go(func() {
				v, err := r.AcceptInvite(ctx, v.ID, v.To)
				if err != nil {
					t.Error(err)
				}
				sessions[i] = v.SessionID
			})
		}
		wg.Wait()
		n := map[string]int{}
		for _, id := range sessions {
			n[id]++
		}
		if len(n) != 2 || n[sessions[0]]*n[sessions[1]]*n[sessions[2]]*n[sessions[3]] != 27 {
			t.Errorf("got %v, want three next to the host and one in another session", n)
		}
	})
}

// TestInviteToFullTable checks that the two get a session of their own if the inviter has left and
// one seat is free.
func TestInviteToFullTable(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("host", "b", "c")
		first, err := r.SendInvite(ctx, "table", "host", toUser("b"))
		r.ok(err)
		first, err = r.AcceptInvite(ctx, first.ID, "b")
		r.ok(err)
		for _, user := range []string{"d", "e", "f", "g"} {
			r.ok(errorOf(r.Multiplayer().Join(ctx, first.SessionID, user)))
		}
		r.ok(r.Multiplayer().Leave(ctx, first.SessionID, "host"))
		second, err := r.SendInvite(ctx, "table", "host", toUser("c"))
		r.ok(err)
		second, err = r.AcceptInvite(ctx, second.ID, "c")
		r.ok(err)
		if second.SessionID == first.SessionID {
			t.Error("both are in the session that had one seat")
		}
	})
}

// TestInviteMeetsBlock checks that a block removes an invite that is sent concurrently.
func TestInviteMeetsBlock(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob")
		for range 40 {
			var wg sync.WaitGroup
			wg.Go(func() { _, _ = r.SendInvite(ctx, "duel", "ada", toUser("bob")) })
			wg.Go(func() { r.ok(r.Block(ctx, "bob", "ada")) })
			wg.Wait()
			if list := r.invites("bob"); len(list) > 0 {
				t.Fatalf("bob, who blocks ada, has %v", list)
			}
			r.ok(r.Unblock(ctx, "bob", "ada"))
			r.Clock.Advance(time.Minute)
		}
	})
}

func TestInviteRefusals(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada")
		r.named("sam", "Sam")
		r.named("sam2", "Sam")
		r.refuses(matchmaking.ErrGameNotFound, errorOf(r.SendInvite(ctx, "chess", "ada", toUser("sam"))))
		r.refuses(matchmaking.ErrNoSessions, errorOf(r.SendInvite(ctx, "alone", "ada", toUser("sam"))))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.SendInvite(ctx, "duel", "ada", toUser("nobody"))))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.SendInvite(ctx, "duel", "ada", toName("Nobody"))))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.SendInvite(ctx, "duel", "ada", toName("Sam"))))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.SendInvite(ctx, "duel", "ada", toUser("ada"))))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.SendInvite(ctx, "duel", "ada", matchmaking.Invitee{})))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.SendInvite(ctx, "duel", "ada", matchmaking.Invitee{UserID: "sam", ScreenName: "Sam"})))
		r.refuses(matchmaking.ErrInviteNotFound, errorOf(r.AcceptInvite(ctx, "nothing", "ada")))
		r.refuses(matchmaking.ErrInviteNotFound, r.DeclineInvite(ctx, "nothing", "ada"))
	})
}

func TestInviteLimits(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	others := ids("other", 51)
	r.users(others...)
	for i, other := range others[:50] {
		if i == 30 {
			r.refuses(capability.ErrRateLimited, errorOf(r.SendInvite(ctx, "duel", "ada", toUser(other))))
			r.Clock.Advance(time.Minute)
		}
		r.ok(errorOf(r.SendInvite(ctx, "duel", "ada", toUser(other))))
	}
	r.refuses(matchmaking.ErrLimitReached, errorOf(r.SendInvite(ctx, "duel", "ada", toUser(others[50]))))
	for _, from := range ids("from", 100) {
		r.ok(errorOf(r.SendInvite(ctx, "duel", from, toUser(others[50]))))
	}
	r.refuses(matchmaking.ErrLimitReached, errorOf(r.SendInvite(ctx, "duel", "eve", toUser(others[50]))))
}

// TestInviteOfADisabledUserIsGone checks that nobody joins a session by the invite of a user who
// has been disabled since.
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

// TestInviterOfSeveralIsAskedForTheStake checks that accepting takes no money from the inviter,
// also in a game of more than two.
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

// TestPlayersOfAnInviteLeaveBeforeTheStart checks that the inviter and the invitee leave a session
// that waits for others, and that the next invite brings them into another one.
func TestPlayersOfAnInviteLeaveBeforeTheStart(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		host, bob := r.User("host"), r.User("bob")
		accept := func(game string) (session string) {
			var v matchmaking.Invite
			host.Post("/matchmaking/games/"+game+"/invites", matchmaking.Invitee{UserID: "bob"}).Want(201, "").JSON(&v)
			bob.Post("/matchmaking/invites/"+v.ID+"/accept", nil).Want(200, "").JSON(&v)
			return "/multiplayer/sessions/" + v.SessionID
		}
		first := accept("four")
		host.Post(first+"/leave", nil).Want(204, "")
		bob.Get(first).Want(200, "")
		second := accept("four")
		if second == first {
			t.Error("the inviter is back in the session that they have left")
		}
		bob.Post(first+"/leave", nil).Want(204, "")
		waiting := accept("staked")
		bob.Post(waiting+"/leave", nil).Want(204, "")
		host.Post(waiting+"/join", nil).Want(409, "multiplayer/invalid_transition")
	})
}

// TestInvitesKeepTheBlockedApart checks that two users of whom one blocks the other do not meet by
// the invites of a third user.
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
