package matchmaking_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

func (r *rig) onlineNow(userIDs ...string) []string {
	r.t.Helper()
	list, err := r.Online(ctx, userIDs...)
	r.ok(err)
	return append([]string{}, list...)
}

// TestPresence checks that a user receives the pending news on connect, and then the events.
func TestPresence(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		server := r.serve()
		r.befriend("ada", "bob")
		r.users("eve")
		v, err := r.SendInvite(ctx, "duel", "bob", toUser("ada"))
		r.ok(err)

		bob, first := r.listen(server, "bob")
		if diff := cmp.Diff([]string{}, first.Online); diff != "" {
			t.Error(diff)
		}
		ada, first := r.listen(server, "ada")
		if diff := cmp.Diff([]string{"bob"}, first.Online); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(frame{Type: "invite", InviteID: v.ID, GameKey: "duel", From: "bob"}, ada.next("invite")); diff != "" {
			t.Error(diff)
		}
		bob.hears([]string{"ada"}, nil)
		friends := must(r.ListFriends(ctx, "ada", page()))
		if len(friends.Items) != 1 || !friends.Items[0].Online {
			t.Errorf("got %+v, want bob online", friends.Items)
		}

		// A second device gets the same.
		phone, _ := r.listen(server, "ada")
		phone.next("invite")

		r.ok(errorOf(r.RequestFriend(ctx, "eve", "ada")))
		for _, device := range []*ear{ada, phone} {
			if f := device.next("friend_request"); f.From != "eve" {
				t.Errorf("got %+v", f)
			}
		}
		accepted, err := r.AcceptInvite(ctx, v.ID, "ada")
		r.ok(err)
		for _, device := range []*ear{ada, phone, bob} {
			if diff := cmp.Diff(frame{Type: "match_found", SessionID: accepted.SessionID, GameKey: "duel"}, device.next("match_found")); diff != "" {
				t.Error(diff)
			}
		}
		r.refused(ada)

		// The last device closes, and ten seconds later the user is offline.
		r.ok(phone.Close())
		r.ok(ada.Close())
		r.noticed("ada")
		for range 2 {
			if diff := cmp.Diff([]string{"ada"}, r.onlineNow("ada")); diff != "" {
				t.Error(diff)
			}
			r.Clock.Advance(5 * time.Second)
			r.Tick(ctx)
		}
		if diff := cmp.Diff([]string{}, r.onlineNow("ada")); diff != "" {
			t.Error(diff)
		}
		bob.hears(nil, []string{"ada"})
	})
}

// refused sends a frame that the socket does not know: identity and everything else come from the
// server.
func (r *rig) refused(e *ear) {
	r.t.Helper()
	r.ok(e.WriteMessage(1, []byte(`{"type":"hello","userId":"bob"}`)))
	if f := e.next("error"); f.Code != "kit/invalid_request" {
		r.t.Errorf("got %+v", f)
	}
}

// noticed waits until the node has seen the last socket of a user close.
func (r *rig) noticed(userID string) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !r.IsLeaving(userID); runtime.Gosched() {
		if time.Now().After(deadline) {
			r.t.Fatalf("the sockets of %s are still open", userID)
		}
	}
}

// TestPresenceDoesNotFlicker checks that a user who reconnects within ten seconds was never
// offline, and that friends are not notified of further devices of the user.
func TestPresenceDoesNotFlicker(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	server := r.serve()
	r.befriend("ada", "bob")
	bob, _ := r.listen(server, "bob")
	ada, _ := r.listen(server, "ada")
	bob.next("friends_online")
	phone, _ := r.listen(server, "ada")
	r.ok(phone.Close())
	bob.silent()
	r.ok(ada.Close())
	r.noticed("ada")
	r.Clock.Advance(9 * time.Second)
	r.Tick(ctx)
	back, _ := r.listen(server, "ada")
	r.Clock.Advance(3 * time.Second)
	r.Tick(ctx)
	bob.silent()
	back.silent()
	if diff := cmp.Diff([]string{"ada", "bob"}, r.onlineNow("ada", "bob", "eve")); diff != "" {
		t.Error(diff)
	}
}

// TestPresenceFollowsFriendship checks that users who become friends, or end a friendship, while
// both are online are notified.
func TestPresenceFollowsFriendship(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	server := r.serve()
	ada, _ := r.listen(server, "ada")
	bob, _ := r.listen(server, "bob")
	r.ok(errorOf(r.RequestFriend(ctx, "ada", "bob")))
	bob.next("friend_request")
	r.ok(errorOf(r.RequestFriend(ctx, "bob", "ada")))
	bob.hears([]string{"ada"}, nil)
	ada.hears([]string{"bob"}, nil)
	r.ok(r.Block(ctx, "ada", "bob"))
	bob.hears(nil, []string{"ada"})
	ada.hears(nil, []string{"bob"})
	// No push, no presence.
	r.refuses(matchmaking.ErrUserNotFound, errorOf(r.RequestFriend(ctx, "bob", "ada")))
	ada.silent()
	_, first := r.listen(server, "bob")
	if diff := cmp.Diff([]string{}, first.Online); diff != "" {
		t.Error(diff)
	}
}

// TestPresenceHearsOfMatch checks that the queue pushes a match to every player, and that a socket
// keeps a ticket alive.
func TestPresenceHearsOfMatch(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	server := r.serve()
	ada, _ := r.listen(server, "ada")
	bob, _ := r.listen(server, "bob")
	r.ok(errorOf(r.Enqueue(ctx, "table", "", "ada")))
	for range 20 {
		r.step(5 * time.Second)
		r.Tick(ctx)
	}
	r.ok(errorOf(r.Enqueue(ctx, "table", "", "bob")))
	r.step(5 * time.Second)
	session := r.status("table", "ada")[0].SessionID
	for _, e := range []*ear{ada, bob} {
		if diff := cmp.Diff(frame{Type: "match_found", SessionID: session, GameKey: "table"}, e.next("match_found")); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPresenceHearsOfAMatchThatFailed checks that a player because of whom a match failed, and all
// players of one that failed for another reason, get the code; a player who waits again gets nothing.
func TestPresenceHearsOfAMatchThatFailed(t *testing.T) {
	cfg := games()
	cfg[3].SnapshotFor = func(context.Context, multiplayer.Game, []string) (multiplayer.Game, error) {
		return multiplayer.Game{}, errors.New("no game for these")
	}
	r := newRig(t, matchmaking.Config{Games: cfg})
	server := r.serve()
	r.ok(errorOf(r.Ledger().Credit(ctx, ledger.Entry{UserID: "rich", Currency: "coins", Amount: 100, Ref: "gift"})))
	rich, _ := r.listen(server, "rich")
	poor, _ := r.listen(server, "poor")
	for _, user := range []string{"rich", "poor"} {
		r.ok(errorOf(r.Enqueue(ctx, "staked", "", user)))
	}
	r.step(5 * time.Second)
	if diff := cmp.Diff(frame{Type: "match_failed", GameKey: "staked", Code: "ledger/insufficient_funds"}, poor.next("match_failed")); diff != "" {
		t.Error(diff)
	}
	rich.silent()
	if state := r.status("staked", "rich")[0].State; state != matchmaking.Waiting {
		t.Errorf("the other player is %s, want waiting", state)
	}
	r.ok(r.Leave(ctx, "staked", "rich"))
	r.ok(errorOf(r.EnqueueParty(ctx, "staked", "", "rich", "poor")))
	r.step(5 * time.Second)
	if got := rich.next("match_failed"); got.Code != "" {
		t.Errorf("the player of the party who covers the stake got %+v, want no reason", got)
	}
	if got := poor.next("match_failed"); got.Code != "ledger/insufficient_funds" {
		t.Errorf("the other player of the party got %+v", got)
	}
	for _, user := range []string{"rich", "poor"} {
		r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
	}
	r.step(5 * time.Second)
	for _, e := range []*ear{rich, poor} {
		if diff := cmp.Diff(frame{Type: "match_failed", GameKey: "table", Code: "kit/internal"}, e.next("match_failed")); diff != "" {
			t.Error(diff)
		}
	}
}

// TestHookEndsAMatch checks that a refusal of a function of MatchStarted ends a match for all of its
// players, and that after another error the match is tried again.
func TestHookEndsAMatch(t *testing.T) {
	r := newRig(t, matchmaking.Config{Games: games()})
	var refuse error = capability.NewError(409, "arena/closed", "The arena is closed.")
	r.Hooks().MatchStarted.In(func(context.Context, hooks.MatchStarted) error { return refuse })
	server := r.serve()
	ada, _ := r.listen(server, "ada")
	bob, _ := r.listen(server, "bob")
	enqueue := func() {
		for _, user := range []string{"ada", "bob"} {
			r.ok(errorOf(r.Enqueue(ctx, "duel", "", user)))
		}
		r.step(5 * time.Second)
	}
	enqueue()
	for _, e := range []*ear{ada, bob} {
		if diff := cmp.Diff(frame{Type: "match_failed", GameKey: "duel", Code: "arena/closed"}, e.next("match_failed")); diff != "" {
			t.Error(diff)
		}
	}
	refuse = errors.New("not now")
	enqueue()
	if state := r.status("duel", "ada")[0].State; state != matchmaking.Forming {
		t.Errorf("the match is %s after an error, want forming", state)
	}
	refuse = nil
	r.step(time.Minute)
	session := r.status("duel", "ada")[0].SessionID
	if got := ada.next("match_found"); got.SessionID != session || session == "" {
		t.Errorf("told of %q, the session is %q", got.SessionID, session)
	}
}

// TestPresenceAfterLostEvents checks that after a loss of events every user is sent again who is
// online.
func TestPresenceAfterLostEvents(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	server := r.serve()
	r.befriend("ada", "bob")
	bob, _ := r.listen(server, "bob")
	r.listen(server, "ada")
	bob.next("friends_online")
	r.Lost()
	bob.hears([]string{"ada"}, nil)
}

// TestPresenceOnNodesAtOnce checks that friends are notified of a user who connects to two nodes at
// once.
func TestPresenceOnNodesAtOnce(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	here, there := both[0].serve(), both[1].serve()
	users := ids("friend", 20)
	for _, user := range users {
		both[0].befriend("ada", user)
	}
	ada, _ := both[0].listen(here, "ada")
	both[1].listen(there, "eve")
	for _, user := range users {
		var wg sync.WaitGroup
		wg.Go(func() { both[0].listen(here, user) })
		wg.Go(func() { both[1].listen(there, user) })
		wg.Wait()
		ada.hears([]string{user}, nil)
	}
}

// TestPresenceAfterClockWentBack checks that the users of a dead node go offline although the clock
// went back.
func TestPresenceAfterClockWentBack(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	both[0].listen(both[0].serve(), "ada")
	both[1].listen(both[1].serve(), "bob")
	both[1].Kill()
	both[0].Clock.Advance(-time.Hour)
	both[0].Tick(ctx)
	if diff := cmp.Diff([]string{"ada"}, both[0].onlineNow("ada", "bob")); diff != "" {
		t.Error(diff)
	}
}

// TestPresenceOverNodes checks that events reach other nodes, that a user on two nodes is online
// until the last socket has closed, and that the users of a dead node are offline when its lease
// has ended.
func TestPresenceOverNodes(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	one, two := both[0], both[1]
	here, there := one.serve(), two.serve()
	one.befriend("ada", "bob")
	ada, _ := one.listen(here, "ada")
	bob, first := two.listen(there, "bob")
	if diff := cmp.Diff([]string{"ada"}, first.Online); diff != "" {
		t.Error(diff)
	}
	ada.hears([]string{"bob"}, nil)

	one.users("eve")
	one.ok(errorOf(one.RequestFriend(ctx, "eve", "bob")))
	bob.find("friend_request", func(f frame) bool { return f.From == "eve" })

	// A second socket on the other node, which then closes: still online.
	second, _ := one.listen(here, "bob")
	one.ok(second.Close())
	one.noticed("bob")
	for range 12 {
		one.Clock.Advance(time.Second)
		one.Tick(ctx)
		two.Tick(ctx)
	}
	if diff := cmp.Diff([]string{"ada", "bob"}, one.onlineNow("ada", "bob")); diff != "" {
		t.Error(diff)
	}
	ada.silent()

	// The second node dies: it no longer ticks.
	two.Kill()
	for range 16 {
		one.Clock.Advance(time.Second)
		one.Tick(ctx)
	}
	if diff := cmp.Diff([]string{"ada"}, one.onlineNow("ada", "bob")); diff != "" {
		t.Error(diff)
	}
	ada.hears(nil, []string{"bob"})

	// It was only slow: its users are back, and their friends are notified.
	two.Tick(ctx)
	ada.hears([]string{"bob"}, nil)
	if diff := cmp.Diff([]string{"ada", "bob"}, one.onlineNow("ada", "bob")); diff != "" {
		t.Error(diff)
	}
}
