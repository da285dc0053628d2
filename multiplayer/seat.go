package multiplayer

import (
	"context"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/optional"
)

// seat records who has a seat after a batch, and refuses a player who joins with more seats than a
// user can have.
func (m *Multiplayer) seat(ctx context.Context, b *batch, after *session) error {
	came, left := minus(after.players, b.before.players), minus(b.before.players, after.players)
	if b.steps[0].kind == stepJoin && len(came) > 0 {
		if err := m.store.lockUser(ctx, came[0]); err != nil {
			return err
		}
		if err := m.CheckSeats(ctx, came[0]); err != nil {
			return err
		}
	}
	if after.phase.Terminal() {
		return m.store.setSeats(ctx, after.id, slices.Concat(left, after.players), false)
	}
	if err := m.store.setSeats(ctx, after.id, came, true); err != nil {
		return err
	}
	return m.store.setSeats(ctx, after.id, left, false)
}

// minus returns the elements of one list that are not in another.
func minus(list, other []string) []string {
	if slices.Equal(list, other) {
		return nil
	}
	there := make(map[string]bool, len(other))
	for _, id := range other {
		there[id] = true
	}
	return slices.DeleteFunc(slices.Clone(list), func(id string) bool { return there[id] })
}

// mayCreate refuses a creator with too many sessions. It locks the user, so that concurrent
// requests cannot exceed the limit.
func (m *Multiplayer) mayCreate(ctx context.Context, userID string) error {
	if err := m.store.lockUser(ctx, userID); err != nil {
		return err
	}
	waiting, err := m.store.waiting(ctx, userID)
	if err != nil {
		return err
	}
	if waiting >= MaxOpen {
		return capability.ErrRateLimited.Saying("At most %d of your sessions wait for players at a time.", MaxOpen)
	}
	return m.CheckSeats(ctx, userID)
}

// CheckSeats refuses, with kit/rate_limited, a user who has a seat in [MaxSeated] sessions that are
// not over. It is for capabilities that start sessions on a user's request.
func (m *Multiplayer) CheckSeats(ctx context.Context, userID string) error {
	seats, err := m.store.countSeats(ctx, userID, MaxSeated)
	if err != nil {
		return err
	}
	if seats >= MaxSeated {
		return capability.ErrRateLimited.Saying("A player has a seat in at most %d sessions at a time.", MaxSeated)
	}
	return nil
}

// Seated reports whether a user has a seat in a session that is not over, or had one.
func (m *Multiplayer) Seated(ctx context.Context, sessionID, userID string) (seated, left bool, err error) {
	live, found, err := m.store.seat(ctx, sessionID, userID)
	return live, found && !live, err
}

// ListRunning lists the sessions that are not over and in which a user has a seat, the newest
// first, so that a match can be continued on another device. Refuses with kit/invalid_request.
func (m *Multiplayer) ListRunning(ctx context.Context, userID string, page capability.Page) (capability.Items[Session], error) {
	var none capability.Items[Session]
	if err := capability.CheckUserID(userID); err != nil {
		return none, err
	}
	page = page.Bounded()
	below := "~" // greater than every id
	if _, err := page.After(&below); err != nil {
		return none, err
	}
	running, err := m.store.running(ctx, userID, below, page.Limit+1)
	if err != nil {
		return none, err
	}
	list := make([]Session, len(running))
	for i, s := range running {
		list[i] = s.summary()
	}
	return capability.Paged(page, list, func(s Session) []any { return []any{s.ID} }), nil
}

// summary returns what every player of a session may know about it.
func (s *session) summary() Session {
	out := Session{ID: s.id, Game: s.game.Key, Phase: s.phase, Version: s.version, Players: slices.Clone(s.players), Seats: s.game.Players}
	if s.phase == PhaseActive {
		out.TurnDeadline = optional.Time(s.deadline)
	}
	return out
}
