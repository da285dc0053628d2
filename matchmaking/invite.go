package matchmaking

import (
	"context"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// InviteLifetime is how long an invite can be accepted.
const InviteLifetime = time.Hour

// How many invites that nobody has answered a user may have sent, and have got.
const (
	maxSent     = 50
	maxReceived = 100
)

// The states of an invite; one that was declined or has expired is gone.
const (
	InvitePending  = "pending"
	InviteAccepted = "accepted"
)

// Invite asks one user into a game with another.
type Invite struct {
	ID      string `json:"id"`
	GameKey string `json:"gameKey"`
	From    string `json:"from"`
	To      string `json:"to"`
	State   string `json:"state"`
	// SessionID is set once the invite is accepted.
	SessionID string          `json:"sessionId,omitempty"`
	CreatedAt capability.Time `json:"createdAt"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

// Invitee names whom to invite, by one of the two.
type Invitee struct {
	UserID     string `json:"userId,omitempty"`
	ScreenName string `json:"screenName,omitempty"`
}

// SendInvite invites a user. While an invite of the two for this game waits, it
// answers that one. Refuses with matchmaking/game_not_found,
// matchmaking/no_sessions, matchmaking/user_not_found,
// matchmaking/invite_forbidden, matchmaking/limit_reached and kit/rate_limited.
func (m *Matchmaking) SendInvite(ctx context.Context, game, from string, to Invitee) (Invite, error) {
	if _, err := m.sessionGame(game); err != nil {
		return Invite{}, err
	}
	if err := checkText("userId", from); err != nil {
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
	// What stands between the two is locked: a block is there before or after.
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
		if err := m.inviteLimits(ctx, v); err != nil {
			return err
		}
		added, err := m.store.insertInvite(ctx, v)
		if err != nil {
			return err
		}
		if !added { // another request of the same user was a moment faster
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

// find returns the one user that is meant.
func (m *Matchmaking) find(ctx context.Context, to Invitee) (string, error) {
	switch {
	case (to.UserID == "") == (to.ScreenName == ""):
		return "", capability.ErrInvalidRequest.Saying("Say either userId or screenName.")
	case to.UserID != "":
		return to.UserID, m.exists(ctx, to.UserID)
	case m.peers.Auth == nil:
		return "", ErrUserNotFound
	}
	if err := checkText("screenName", to.ScreenName); err != nil {
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

// mayInvite refuses between users of whom one blocks the other, telling only
// the one who does.
func (b *bond) mayInvite(from string) error {
	switch {
	case b.blocks(b.other(from)):
		return ErrUserNotFound
	case b.blocks(from):
		return ErrInviteForbidden
	}
	return nil
}

func (m *Matchmaking) inviteLimits(ctx context.Context, v Invite) error {
	sent, received, err := m.store.countInvites(ctx, v.From, v.To, v.CreatedAt.UnixMilli())
	if err != nil {
		return err
	}
	if err := limited("sent invites", sent, maxSent); err != nil {
		return err
	}
	return limited("invites of this user", received, maxReceived)
}

// Invites lists the invites that a user got or sent and that have not expired,
// newest first.
func (m *Matchmaking) Invites(ctx context.Context, userID string, page capability.Page) (capability.Items[Invite], error) {
	var none capability.Items[Invite]
	if err := checkText("userId", userID); err != nil {
		return none, err
	}
	below := "~" // above every id
	if _, err := page.After(&below); err != nil {
		return none, err
	}
	list, err := m.store.invitesOf(ctx, userID, below, m.now(ctx), page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, list, func(v Invite) []any { return []any{v.ID} }), nil
}

// AcceptInvite brings the two together in a session, and returns the invite
// with its id; accepting again answers the same. Who invites several users to a
// game of more than two has them in one session while it has seats. Refuses
// with matchmaking/invite_not_found, matchmaking/invite_forbidden and, when the
// session cannot be created, as [multiplayer.Multiplayer.Start] does.
func (m *Matchmaking) AcceptInvite(ctx context.Context, inviteID, userID string) (Invite, error) {
	var v Invite
	fresh := id.New(m.host.DB.Now(ctx))
	err := m.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		if v, err = m.answerable(ctx, inviteID, userID); err != nil || v.State == InviteAccepted {
			return err
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

// together seats the invitee beside the inviter, and returns the session.
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
		for _, userID := range []string{v.From, v.To} { // the inviter may have left it
			if err := m.seat(ctx, earlier, userID); err != nil {
				return "", err
			}
		}
		return earlier, nil
	}
	return fresh, m.start(ctx, g, fresh, []string{v.From, v.To})
}

// DeclineInvite removes an invite that one has got. Refuses with
// matchmaking/invite_not_found and matchmaking/invite_forbidden.
func (m *Matchmaking) DeclineInvite(ctx context.Context, inviteID, userID string) error {
	return m.host.DB.InTx(ctx, func(ctx context.Context) error {
		v, err := m.answerable(ctx, inviteID, userID)
		if err != nil {
			return err
		}
		if v.State != InvitePending {
			return ErrInviteNotFound
		}
		return m.store.deleteInvite(ctx, v.ID)
	})
}

// answerable locks an invite that is the user's to return. All invites of one
// inviter are answered one after the other, so that they find one session.
func (m *Matchmaking) answerable(ctx context.Context, inviteID, userID string) (Invite, error) {
	if err := checkText("id", inviteID); err != nil {
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
