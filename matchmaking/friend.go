package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// Bounds of the friends of a user, and of the user's requests that wait for a decision.
const (
	maxFriends  = 1000
	maxRequests = 200
)

// bond is the relation between two users.
type bond struct {
	low, high             string
	state, requester      string
	lowBlocks, highBlocks bool
	since                 int64
}

// newBond returns the empty relation between two users.
func newBond(a, b string) bond {
	return bond{low: min(a, b), high: max(a, b), state: "none"}
}

func (b *bond) blocks(userID string) bool {
	return userID == b.low && b.lowBlocks || userID == b.high && b.highBlocks
}

func (b *bond) blocked() bool { return b.lowBlocks || b.highBlocks }

func (b *bond) set(state, requester string, now int64) {
	b.state, b.requester, b.since = state, requester, now
}

func (b *bond) other(userID string) string {
	if userID == b.low {
		return b.high
	}
	return b.low
}

// friend returns the bond as seen by one of the two.
func (b *bond) friend(userID string) Friend {
	f := Friend{UserID: b.other(userID), State: FriendAccepted, Since: capability.Millis(b.since)}
	if b.state == "requested" {
		f.State = FriendIncoming
		if b.requester == userID {
			f.State = FriendOutgoing
		}
	}
	return f
}

// change edits the bond of two users, with their row locked; an error of edit leaves it unchanged.
func (m *Matchmaking) change(ctx context.Context, userID, other string, edit func(context.Context, *bond) error) (b bond, err error) {
	for _, id := range []string{userID, other} {
		if err := capability.CheckUserID(id); err != nil {
			return b, err
		}
	}
	if userID == other {
		return b, capability.ErrInvalidRequest.Saying("This takes somebody else.")
	}
	err = m.host.DB.InTx(ctx, func(ctx context.Context) error {
		if b, err = m.store.lockBond(ctx, userID, other); err != nil {
			return err
		}
		if err := edit(ctx, &b); err != nil {
			return err
		}
		return m.store.saveBond(ctx, b)
	})
	return b, err
}

// RequestFriend sends a friend request to a user; if that user has sent one already, the two become
// friends. A repeated request changes nothing. Refuses with matchmaking/user_not_found,
// matchmaking/already_friends, matchmaking/limit_reached and kit/rate_limited.
func (m *Matchmaking) RequestFriend(ctx context.Context, userID, other string) (Friend, error) {
	if wait, ok := m.asks.Allow(userID); !ok {
		return Friend{}, tooOften(wait)
	}
	if err := m.exists(ctx, other); err != nil {
		return Friend{}, err
	}
	b, err := m.change(ctx, userID, other, func(ctx context.Context, b *bond) error {
		switch {
		case b.blocked():
			return ErrUserNotFound
		case b.state == "accepted":
			return ErrAlreadyFriends
		case b.state == "requested" && b.requester == userID:
			return nil
		case b.state == "requested":
			return m.befriend(ctx, b)
		}
		if err := m.store.lockUsers(ctx, userID); err != nil {
			return err
		}
		n, err := m.store.countRequests(ctx, userID)
		if err != nil {
			return err
		}
		if err := limited("friend requests", n, maxRequests); err != nil {
			return err
		}
		b.set("requested", userID, m.now(ctx))
		m.push(ctx, friendRequested{"friend_request", userID}, other)
		return nil
	})
	if err != nil {
		return Friend{}, err
	}
	return b.friend(userID), nil
}

// AcceptFriend accepts the request of a user. Refuses with matchmaking/friend_request_not_found,
// matchmaking/already_friends and matchmaking/limit_reached.
func (m *Matchmaking) AcceptFriend(ctx context.Context, userID, other string) (Friend, error) {
	b, err := m.change(ctx, userID, other, func(ctx context.Context, b *bond) error {
		switch {
		case b.state == "accepted":
			return ErrAlreadyFriends
		case b.state != "requested" || b.requester != other:
			return ErrFriendRequestNotFound
		}
		return m.befriend(ctx, b)
	})
	if err != nil {
		return Friend{}, err
	}
	return b.friend(userID), nil
}

// befriend turns a request into a friendship, and notifies each of the two if the other one is
// online.
func (m *Matchmaking) befriend(ctx context.Context, b *bond) error {
	if err := m.store.lockUsers(ctx, b.low, b.high); err != nil {
		return err
	}
	for _, userID := range []string{b.low, b.high} {
		n, err := m.store.countFriends(ctx, userID)
		if err != nil {
			return err
		}
		if err := limited("friends", n, maxFriends); err != nil {
			return err
		}
	}
	b.set("accepted", b.requester, m.now(ctx))
	return m.tellOnline(ctx, b, true)
}

// tellOnline notifies each of the two that the other one, if online, appears or disappears.
func (m *Matchmaking) tellOnline(ctx context.Context, b *bond, online bool) error {
	here, err := m.store.online(ctx, m.now(ctx), b.low, b.high)
	if err != nil {
		return err
	}
	for _, userID := range here {
		if online {
			m.push(ctx, friends([]string{userID}, nil), b.other(userID))
		} else {
			m.push(ctx, friends(nil, []string{userID}), b.other(userID))
		}
	}
	return nil
}

// DeclineFriend declines the request of a user. Refuses with
// matchmaking/friend_request_not_found.
func (m *Matchmaking) DeclineFriend(ctx context.Context, userID, other string) error {
	_, err := m.change(ctx, userID, other, func(ctx context.Context, b *bond) error {
		if b.state != "requested" || b.requester != other {
			return ErrFriendRequestNotFound
		}
		b.set("none", "", m.now(ctx))
		return nil
	})
	return err
}

// RemoveFriend ends a friendship, or withdraws a request. Refuses with matchmaking/user_not_found
// if there is neither.
func (m *Matchmaking) RemoveFriend(ctx context.Context, userID, other string) error {
	_, err := m.change(ctx, userID, other, func(ctx context.Context, b *bond) error {
		if b.state == "none" || b.state == "requested" && b.requester == other {
			return ErrUserNotFound
		}
		return m.part(ctx, b)
	})
	return err
}

// part ends the friendship or the request of two users.
func (m *Matchmaking) part(ctx context.Context, b *bond) error {
	friends := b.state == "accepted"
	b.set("none", "", m.now(ctx))
	if !friends {
		return nil
	}
	return m.tellOnline(ctx, b, false)
}

// ListFriends lists a user's friends and the requests from and to the user, by user id.
func (m *Matchmaking) ListFriends(ctx context.Context, userID string, page capability.Page) (capability.Items[Friend], error) {
	var none capability.Items[Friend]
	if err := capability.CheckUserID(userID); err != nil {
		return none, err
	}
	page = page.Bounded()
	after := ""
	if _, err := page.After(&after); err != nil {
		return none, err
	}
	bonds, err := m.store.bondsOf(ctx, userID, after, page.Limit+1)
	if err != nil {
		return none, err
	}
	var accepted []string
	list := make([]Friend, len(bonds))
	for i, b := range bonds {
		list[i] = b.friend(userID)
		if b.state == "accepted" {
			accepted = append(accepted, list[i].UserID)
		}
	}
	online, err := m.store.online(ctx, m.now(ctx), accepted...)
	if err != nil {
		return none, err
	}
	here := make(map[string]bool, len(online))
	for _, id := range online {
		here[id] = true
	}
	for i := range list {
		list[i].Online = here[list[i].UserID]
	}
	return capability.Paged(page, list, func(f Friend) []any { return []any{f.UserID} }), nil
}

// FriendsAmong returns which of the users have a friend among them, sorted. Rating calls it as its
// peer Friends.
func (m *Matchmaking) FriendsAmong(ctx context.Context, userIDs []string) ([]string, error) {
	return m.store.friendsAmong(ctx, userIDs)
}

// Block hides a user and another one from each other: their friendship ends, invites between them
// are removed, and neither can reach the other until [Matchmaking.Unblock]. A repeated block
// changes nothing.
func (m *Matchmaking) Block(ctx context.Context, userID, other string) error {
	return m.setBlock(ctx, userID, other, true)
}

// Unblock removes a block by the user. Without one it changes nothing.
func (m *Matchmaking) Unblock(ctx context.Context, userID, other string) error {
	return m.setBlock(ctx, userID, other, false)
}

func (m *Matchmaking) setBlock(ctx context.Context, userID, other string, on bool) error {
	_, err := m.change(ctx, userID, other, func(ctx context.Context, b *bond) error {
		if b.blocks(userID) == on {
			return nil
		}
		if userID == b.low {
			b.lowBlocks = on
		} else {
			b.highBlocks = on
		}
		action := "matchmaking/user_unblocked"
		if on {
			action = "matchmaking/user_blocked"
			if err := m.part(ctx, b); err != nil {
				return err
			}
			if err := m.store.deleteInvitesBetween(ctx, b.low, b.high); err != nil {
				return err
			}
		}
		return m.peers.Audit.Record(ctx, audit.Event{
			Action: action, Subject: audit.Target{Type: "user", ID: userID}, Targets: []audit.Target{{Type: "user", ID: other}},
		})
	})
	return err
}

// ListBlocked lists the users whom a user blocks, by user id.
func (m *Matchmaking) ListBlocked(ctx context.Context, userID string, page capability.Page) (capability.Items[string], error) {
	page = page.Bounded()
	after := ""
	if _, err := page.After(&after); err != nil {
		return capability.Items[string]{}, err
	}
	list, err := m.store.blockedBy(ctx, userID, after, page.Limit+1)
	if err != nil {
		return capability.Items[string]{}, err
	}
	return capability.Paged(page, list, func(id string) []any { return []any{id} }), nil
}
