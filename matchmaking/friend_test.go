package matchmaking_test

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/matchmaking"
)

// friendsOf returns a user's list as "id state".
func (r *rig) friendsOf(userID string) []string {
	r.t.Helper()
	list := []string{}
	page := capability.NewPage(2, "")
	for {
		items, err := r.ListFriends(ctx, userID, page)
		r.ok(err)
		for _, f := range items.Items {
			list = append(list, f.UserID+" "+f.State)
		}
		if items.NextCursor == nil {
			return list
		}
		page = capability.NewPage(2, *items.NextCursor)
	}
}

func TestFriends(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("a", "b", "c", "d")
		for _, other := range []string{"a", "c", "d"} {
			f, err := r.RequestFriend(ctx, "b", other)
			r.ok(err)
			want := matchmaking.Friend{UserID: other, State: "outgoing", Since: capability.Millis(r.Clock.Now().UnixMilli())}
			if diff := cmp.Diff(want, f); diff != "" {
				t.Error(diff)
			}
		}
		r.ok(errorOf(r.RequestFriend(ctx, "b", "a"))) // again
		if diff := cmp.Diff([]string{"a outgoing", "c outgoing", "d outgoing"}, r.friendsOf("b")); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"b incoming"}, r.friendsOf("a")); diff != "" {
			t.Error(diff)
		}
		r.ok(errorOf(r.AcceptFriend(ctx, "a", "b")))
		f, err := r.RequestFriend(ctx, "c", "b") // the user with the request sends one, which accepts it
		r.ok(err)
		if f.State != matchmaking.FriendAccepted {
			t.Errorf("got %+v, want friends", f)
		}
		r.ok(r.DeclineFriend(ctx, "d", "b"))
		if diff := cmp.Diff([]string{"a accepted", "c accepted"}, r.friendsOf("b")); diff != "" {
			t.Error(diff)
		}
		among, err := r.FriendsAmong(ctx, []string{"d", "c", "b"})
		r.ok(err)
		if diff := cmp.Diff([]string{"b", "c"}, among); diff != "" {
			t.Error(diff)
		}
		r.ok(r.RemoveFriend(ctx, "c", "b"))
		r.ok(errorOf(r.RequestFriend(ctx, "d", "c")))
		r.ok(r.RemoveFriend(ctx, "d", "c")) // withdrawn
		if diff := cmp.Diff([]string{}, r.friendsOf("c")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestFriendRefusals(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("c", "d")
		r.befriend("a", "b")
		r.refuses(matchmaking.ErrAlreadyFriends, errorOf(r.RequestFriend(ctx, "a", "b")))
		r.refuses(matchmaking.ErrAlreadyFriends, errorOf(r.AcceptFriend(ctx, "a", "b")))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.RequestFriend(ctx, "a", "nobody")))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.RequestFriend(ctx, "a", "a")))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.RequestFriend(ctx, "a", "x\x00")))
		r.ok(errorOf(r.RequestFriend(ctx, "a", "c")))
		for _, other := range []string{"c", "d", "b"} { // the user's own request, none, a friend
			r.refuses(matchmaking.ErrFriendRequestNotFound, r.DeclineFriend(ctx, "a", other))
		}
		r.refuses(matchmaking.ErrFriendRequestNotFound, errorOf(r.AcceptFriend(ctx, "a", "c")))
		r.refuses(matchmaking.ErrFriendRequestNotFound, errorOf(r.AcceptFriend(ctx, "a", "d")))
		r.refuses(matchmaking.ErrUserNotFound, r.RemoveFriend(ctx, "c", "a")) // has to be declined instead
		r.refuses(matchmaking.ErrUserNotFound, r.RemoveFriend(ctx, "a", "d"))
	})
}

// TestFriendRequestsCross checks that two users who send each other a request at the same time
// become friends in any order.
func TestFriendRequestsCross(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for i := range 20 {
			pair := [2]string{ids("x", 20)[i], ids("y", 20)[i]}
			r.users(pair[0], pair[1])
			var wg sync.WaitGroup
			for from := range 2 {
				wg.Go(func() {
					if _, err := r.RequestFriend(ctx, pair[from], pair[1-from]); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if diff := cmp.Diff([]string{pair[1] + " accepted"}, r.friendsOf(pair[0])); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}

func TestFriendLimits(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	others := ids("other", 31)
	r.users(others...)
	for _, other := range others[:30] {
		r.ok(errorOf(r.RequestFriend(ctx, "ada", other)))
	}
	r.refuses(capability.ErrRateLimited, errorOf(r.RequestFriend(ctx, "ada", others[30])))
	r.Clock.Advance(2 * time.Minute)
	r.ok(errorOf(r.RequestFriend(ctx, "ada", others[30])))

	// 200 requests that are not accepted, 1,000 friends.
	r.bonds("bob", "requested", 200)
	err := errorOf(r.RequestFriend(ctx, "bob", "other-0000"))
	r.refuses(matchmaking.ErrLimitReached, err)
	if diff := cmp.Diff(matchmaking.Limit{Of: "friend requests", Max: 200}, capability.AsError(err).Details); diff != "" {
		t.Error(diff)
	}
	r.bonds("eve", "accepted", 1000)
	r.users("eve", "new")
	r.ok(errorOf(r.RequestFriend(ctx, "new", "eve")))
	r.refuses(matchmaking.ErrLimitReached, errorOf(r.AcceptFriend(ctx, "eve", "new")))
}

// TestBlock checks that neither of the two users finds the other after a block.
func TestBlock(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.befriend("a", "b")
		r.ok(errorOf(r.SendInvite(ctx, "duel", "a", matchmaking.Invitee{UserID: "b"})))
		for range 2 {
			r.ok(r.Block(ctx, "b", "a"))
		}
		if diff := cmp.Diff([]string{}, r.friendsOf("a")); diff != "" {
			t.Error(diff)
		}
		unknown := errorOf(r.RequestFriend(ctx, "a", "nobody"))
		blocked := errorOf(r.RequestFriend(ctx, "a", "b"))
		if diff := cmp.Diff(capability.AsError(unknown), capability.AsError(blocked), cmpopts.IgnoreUnexported(capability.Error{})); diff != "" {
			t.Errorf("being blocked can be told from nobody: %s", diff)
		}
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.RequestFriend(ctx, "b", "a")))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.SendInvite(ctx, "duel", "a", matchmaking.Invitee{UserID: "b"})))
		r.refuses(matchmaking.ErrInviteForbidden, errorOf(r.SendInvite(ctx, "duel", "b", matchmaking.Invitee{UserID: "a"})))
		invites, err := r.ListInvites(ctx, "b", capability.NewPage(10, ""))
		r.ok(err)
		if len(invites.Items) != 0 {
			t.Errorf("an invite outlived the block: %+v", invites.Items)
		}
		list, err := r.ListBlocked(ctx, "b", capability.NewPage(10, ""))
		r.ok(err)
		if diff := cmp.Diff([]string{"a"}, list.Items); diff != "" {
			t.Error(diff)
		}
		r.ok(r.Block(ctx, "a", "b"))
		r.ok(r.Unblock(ctx, "b", "a"))
		r.refuses(matchmaking.ErrUserNotFound, errorOf(r.RequestFriend(ctx, "b", "a"))) // still blocked by the other user
		for range 2 {
			r.ok(r.Unblock(ctx, "a", "b"))
		}
		r.ok(errorOf(r.RequestFriend(ctx, "b", "a")))
		r.refuses(capability.ErrInvalidRequest, r.Block(ctx, "a", "a"))
	})
}
