package matchmaking

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/multiplayer"
)

// InviteLifetime is how long an invite can be accepted.
const InviteLifetime = time.Hour

// Bounds of the open invites of a user: sent to one other user, sent in all, and received. Received
// invites are counted separately for friends and for other users, so that strangers cannot take the
// places of friends.
const (
	maxSentToOne = 5
	maxSent      = 50
	maxReceived  = 100
)

// The states of an invite; one that was declined or has expired is removed.
const (
	InvitePending  = "pending"
	InviteAccepted = "accepted"
)

// SendInvite invites a user. If an invite from the same user to the other one for this game is
// pending, it returns that one. Refuses with matchmaking/game_not_found, matchmaking/no_sessions,
// matchmaking/user_not_found, matchmaking/invite_forbidden, matchmaking/limit_reached and
// kit/rate_limited.
func (m *Matchmaking) SendInvite(ctx context.Context, game, from string, to Invitee) (Invite, error) {
	if _, err := m.sessionGame(game); err != nil {
		return Invite{}, err
	}
	if err := capability.CheckUserID(from); err != nil {
		return Invite{}, err
	}
	if wait, ok := m.invites.Allow(from); !ok {
		return Invite{}, tooOften(wait)
	}
	invitee, err := m.find(ctx, to)
	if err != nil {
		return Invite{}, err
	}
	fresh := id.New(m.host.DB.Now(ctx))
	var v Invite
	// The bond of the two is locked, so that a block is committed before or after.
	_, err = m.change(ctx, from, invitee, func(ctx context.Context, b *bond) error {
		now := m.host.DB.Now(ctx)
		v = Invite{ID: fresh, GameKey: game, From: from, To: invitee, State: InvitePending,
			CreatedAt: capability.Millis(now.UnixMilli()), ExpiresAt: capability.Millis(now.Add(InviteLifetime).UnixMilli())}
		if err := b.mayInvite(from); err != nil {
			return err
		}
		waiting, found, err := m.store.waitingInvite(ctx, v)
		if err != nil {
			return err
		}
		if found {
			v = waiting
			return nil
		}
		if err := m.inviteLimits(ctx, v, b.state == "accepted"); err != nil {
			return err
		}
		added, err := m.store.insertInvite(ctx, v)
		if err != nil {
			return err
		}
		if !added { // a concurrent request of the same user committed first
			v, _, err = m.store.waitingInvite(ctx, v)
			return err
		}
		m.push(ctx, invited{"invite", v.ID, v.GameKey, v.From}, v.To)
		return nil
	})
	if err != nil {
		return Invite{}, err
	}
	return v, nil
}

// find returns the id of the invitee.
func (m *Matchmaking) find(ctx context.Context, to Invitee) (string, error) {
	switch {
	case (to.UserID == "") == (to.ScreenName == ""):
		return "", capability.ErrInvalidRequest.Saying("Say either userId or screenName.")
	case to.UserID != "":
		return to.UserID, m.exists(ctx, to.UserID)
	case m.peers.Auth == nil:
		return "", ErrUserNotFound
	}
	if err := capability.CheckText("screenName", to.ScreenName, 1, maxName); err != nil {
		return "", err
	}
	users, err := m.peers.Auth.UsersNamed(ctx, to.ScreenName, 2)
	if err != nil {
		return "", err
	}
	if len(users) != 1 {
		return "", ErrUserNotFound
	}
	return users[0].ID, nil
}

// mayInvite refuses invites between users of whom one blocks the other. Only the user who blocks
// learns the reason.
func (b *bond) mayInvite(from string) error {
	switch {
	case b.blocks(b.other(from)):
		return ErrUserNotFound
	case b.blocks(from):
		return ErrInviteForbidden
	}
	return nil
}

// inviteLimits refuses an invite beyond the limits. The users are locked, so that concurrent
// invites cannot exceed them.
func (m *Matchmaking) inviteLimits(ctx context.Context, v Invite, friends bool) error {
	if err := m.store.lockUsers(ctx, v.From, v.To); err != nil {
		return err
	}
	now := v.CreatedAt.UnixMilli()
	sent, here, err := m.store.sentInvites(ctx, v.From, v.To, now)
	if err != nil {
		return err
	}
	if err := limited("sent invites", sent, maxSent); err != nil {
		return err
	}
	if err := limited("sent invites to this user", here, maxSentToOne); err != nil {
		return err
	}
	received, err := m.store.receivedInvites(ctx, v.To, friends, now)
	if err != nil {
		return err
	}
	return limited("invites of this user", received, maxReceived)
}

// ListInvites lists the invites that a user received or sent and that have not expired, newest
// first.
func (m *Matchmaking) ListInvites(ctx context.Context, userID string, page capability.Page) (capability.Items[Invite], error) {
	var none capability.Items[Invite]
	if err := capability.CheckUserID(userID); err != nil {
		return none, err
	}
	page = page.Bounded()
	below := "~" // greater than every id
	if _, err := page.After(&below); err != nil {
		return none, err
	}
	list, err := m.store.invitesOf(ctx, userID, below, m.now(ctx), page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, list, func(v Invite) []any { return []any{v.ID} }), nil
}

// AcceptInvite brings the two together in a session, and returns the invite with its id; a repeated
// call returns the same. Players who accept invites of the same user to a game of more than two
// join one session while it has seats, except a player who blocks another invited player, or is
// blocked by one, who gets another session.
//
// It takes no money from the inviter, who has not confirmed a stake: if the beginning of the game
// would, the session is open with the invitee in it, and begins when the inviter joins it. Until a
// session begins its players can leave it, see [multiplayer.Multiplayer.Leave]. An inviter who has
// left a session is not brought back to it, and an invite of a disabled user counts as not found.
// Refuses with matchmaking/invite_not_found, matchmaking/invite_forbidden and, when the session
// cannot be created, as [multiplayer.Multiplayer.Start] does.
func (m *Matchmaking) AcceptInvite(ctx context.Context, inviteID, userID string) (Invite, error) {
	var v Invite
	fresh := id.New(m.host.DB.Now(ctx))
	err := m.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		if v, err = m.lockReceived(ctx, inviteID, userID); err != nil || v.State == InviteAccepted {
			return err
		}
		switch gone, err := m.disabled(ctx, v.From); {
		case err != nil:
			return err
		case gone != "":
			return ErrInviteNotFound
		}
		g, err := m.sessionGame(v.GameKey)
		if err != nil {
			return err
		}
		if v.SessionID, err = m.together(ctx, g, v, fresh); err != nil {
			return err
		}
		v.State = InviteAccepted
		if err := m.store.acceptInvite(ctx, v); err != nil {
			return err
		}
		m.push(ctx, matchFound{"match_found", v.SessionID, v.GameKey}, v.From, v.To)
		return nil
	})
	if err != nil {
		return Invite{}, err
	}
	return v, nil
}

// together seats the invitee in a session with the inviter, and returns its id.
func (m *Matchmaking) together(ctx context.Context, g *Game, v Invite, fresh string) (string, error) {
	earlier, found, err := m.store.lastSession(ctx, v)
	if err != nil {
		return "", err
	}
	if found {
		if found, err = m.hasSeats(ctx, earlier, v.From); err != nil {
			return "", err
		}
	}
	if found {
		return earlier, m.seat(ctx, earlier, v.To)
	}
	if err := m.peers.Multiplayer.CheckSeats(ctx, v.To); err != nil {
		return "", err
	}
	err = m.start(ctx, g, multiplayer.Start{SessionID: fresh, Players: []string{v.From, v.To}, Unasked: []string{v.From}})
	if errors.Is(err, multiplayer.ErrUnasked) {
		err = m.start(ctx, g, multiplayer.Start{SessionID: fresh, Players: []string{v.To}})
	}
	return fresh, err
}

// DeclineInvite removes an invite that the user has received. Refuses with
// matchmaking/invite_not_found and matchmaking/invite_forbidden.
func (m *Matchmaking) DeclineInvite(ctx context.Context, inviteID, userID string) error {
	return m.host.DB.InTx(ctx, func(ctx context.Context) error {
		v, err := m.lockReceived(ctx, inviteID, userID)
		if err != nil {
			return err
		}
		if v.State != InvitePending {
			return ErrInviteNotFound
		}
		return m.store.deleteInvite(ctx, v.ID)
	})
}

// lockReceived locks an invite that the user may accept or decline. The invites of one inviter are
// accepted one after the other, so that they find one session.
func (m *Matchmaking) lockReceived(ctx context.Context, inviteID, userID string) (Invite, error) {
	if err := capability.CheckText("id", inviteID, 1, maxName); err != nil {
		return Invite{}, err
	}
	v, found, err := m.store.lockInvite(ctx, inviteID)
	switch {
	case err != nil:
		return Invite{}, err
	case !found || v.ExpiresAt.UnixMilli() <= m.now(ctx):
		return Invite{}, ErrInviteNotFound
	case v.To != userID:
		return Invite{}, ErrInviteForbidden
	}
	return v, nil
}
