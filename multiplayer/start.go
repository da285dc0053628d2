package multiplayer

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

// Create opens a session of a configured game with its creator seated, and begins it if no more
// players are needed. Refuses with multiplayer/game_not_found, kit/rate_limited when [MaxOpen] of
// the user's sessions wait for players or the user has [MaxSeated] seats, and
// ledger/insufficient_funds.
func (m *Multiplayer) Create(ctx context.Context, game, userID string) (View, error) {
	g, err := m.Game(game)
	if err != nil {
		return View{}, err
	}
	if err := capability.CheckUserID(userID); err != nil {
		return View{}, err
	}
	s, err := m.begin(ctx, Start{Game: g, Players: []string{userID}, Open: true}, m.mayCreate)
	if err != nil {
		return View{}, err
	}
	return m.show(s, userID)
}

// Start creates a session with players, or returns the existing session of the id if it has a game
// of the same key, whatever its players. Refuses with kit/invalid_request, with
// kit/idempotency_conflict if the id was used for another game or its session has been removed, and
// with ledger/insufficient_funds, see [Uncovered]. It returns [ErrUnasked] if the beginning would
// take money from a player who has not asked for the session.
func (m *Multiplayer) Start(ctx context.Context, start Start) (Session, error) {
	s, err := m.begin(ctx, start, nil)
	if err != nil {
		return Session{}, err
	}
	return s.summary(), nil
}

// begin creates a session or returns the existing one. may, unless nil, is called in the
// transaction of a new session and can refuse its creator.
func (m *Multiplayer) begin(ctx context.Context, start Start, may func(context.Context, string) error) (*session, error) {
	game, err := m.Check(start.Game)
	if err != nil {
		return nil, capability.ErrInvalidRequest.Saying("%s", err.Error())
	}
	if err := m.checkStart(game, start); err != nil {
		return nil, err
	}
	now := m.host.DB.Now(ctx)
	if start.SessionID == "" {
		start.SessionID = id.New(now)
	} else if there, err := m.existing(ctx, start.SessionID, game); err != nil || there != nil {
		return there, err
	}
	until := now.Add(m.cfg.OpenTimeout)
	if !start.Until.IsZero() && start.Until.Before(until) {
		until = start.Until
	}
	data, err := json.Marshal(opening{Players: start.Players, Until: until.UnixMilli()})
	if err != nil {
		return nil, err
	}
	blank := &session{id: start.SessionID, game: game, seed: newSeed(), left: []string{}}
	st := step{kind: stepCreate, data: data, at: now.UnixMilli()}
	first, effects, err := m.advance(blank, st)
	if err != nil {
		return nil, err
	}
	if len(start.Unasked) > 0 && m.asks(first, effects, start.Unasked) {
		return nil, ErrUnasked
	}
	b := &batch{before: blank, after: first, steps: []step{st}, effects: effects}
	made, err := m.create(ctx, b, may)
	if made == nil && err == nil {
		return m.existing(ctx, start.SessionID, game)
	}
	return made, err
}

// asks reports whether the beginning of a session takes money from one of the players: by the
// effects of a session that has begun, or by those of a simulated beginning of an open one with
// strangers in the free seats.
func (m *Multiplayer) asks(s *session, effects []Effect, players []string) bool {
	if s.phase == PhaseOpen {
		model, full := m.models[s.game.Kind], *s
		full.phase, full.players, full.seed = PhaseActive, slices.Clone(s.players), newSeed()
		for n := len(full.players); n < s.game.needed(model); n++ {
			full.players = append(full.players, "stranger-"+id.New(m.now()))
		}
		t := transition{model: model, next: &full}
		if t.play(stepBegin, Move{}) != nil { // unknown, so assume that it does
			return true
		}
		effects = t.effects
	}
	return slices.ContainsFunc(effects, func(e Effect) bool { return e.takes() && slices.Contains(players, e.UserID) })
}

// create writes a new session; it returns nil if the id exists.
func (m *Multiplayer) create(ctx context.Context, b *batch, may func(context.Context, string) error) (*session, error) {
	after := *b.after
	after.alarm = after.deadline
	var inserted bool
	err := m.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		if may != nil {
			if err := may(ctx, after.creator); err != nil {
				return err
			}
		}
		if inserted, err = m.store.insert(ctx, &after); err != nil || !inserted {
			return err
		}
		return m.write(ctx, b, &after)
	})
	if err != nil || !inserted {
		return nil, err
	}
	if !m.host.DB.InTransaction(ctx) {
		m.owners.of(after.id).keep(&after)
	}
	return &after, nil
}

func (m *Multiplayer) checkStart(g Game, start Start) error {
	invalid := capability.ErrInvalidRequest
	needed := g.needed(m.models[g.Kind])
	switch n := len(start.Players); {
	case start.SessionID != "" && !validName(start.SessionID):
		return invalid.Saying("A session id is 1 to 64 letters, digits, hyphens and underscores.")
	case n == 0 || n > g.Players:
		return invalid.Saying("%s seats 1 to %d players.", g.Key, g.Players)
	case n < needed && !start.Open:
		return invalid.Saying("%s begins with %d players.", g.Key, needed)
	}
	seated := make(map[string]bool, len(start.Players))
	for _, player := range start.Players {
		if err := capability.CheckUserID(player); err != nil {
			return err
		}
		if seated[player] {
			return invalid.Saying("A player has one seat.")
		}
		seated[player] = true
	}
	return nil
}

// existing returns the session of an id, or nil. The id of a removed session stays taken: its refs
// have moved money and its result is kept.
func (m *Multiplayer) existing(ctx context.Context, id string, game Game) (*session, error) {
	s, err := m.store.load(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		r, _, err := m.store.result(ctx, id)
		if err == nil && r != nil {
			err = capability.ErrIdempotencyConflict.Saying("This session id was used for a session that is over.")
		}
		return nil, err
	case s.game.Key != game.Key:
		return nil, capability.ErrIdempotencyConflict.Saying("This session id was used for another game.")
	}
	return s, nil
}
