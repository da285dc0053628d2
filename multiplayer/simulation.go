package multiplayer

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
)

// Simulation plays a model in memory by the rules of a session, without a database, a clock or
// money: for tests of models, see package modeltest, and for repeating a session whose seed is
// revealed. It is not safe for concurrent use.
type Simulation struct {
	model   Model
	session *session
	effects []Effect
}

// Simulate begins a session of a game with a seed of [SeedSize] bytes. With fewer players than the
// game needs, the session is open.
func Simulate(model Model, game Game, seed []byte, at time.Time, players ...string) (*Simulation, error) {
	faults := capability.Faults{Capability: Name}
	game.Leaderboard = nil // no board belongs to a simulation
	game, list := game.withDefaults().check(map[string]Model{model.kind: model}, Peers{})
	for _, f := range list {
		faults.AddFault(f)
	}
	if model.fault != nil {
		faults.Add("model", model.kind, model.fault.Error(), "correct its definition")
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	data, err := json.Marshal(opening{Players: players})
	if err != nil {
		return nil, err
	}
	s := &Simulation{model: model, session: &session{id: "simulation", game: game, seed: seed, left: []string{}}}
	return s, s.advance(step{kind: stepCreate, data: data, at: at.UnixMilli()})
}

// Clone returns an independent copy of the simulation.
func (s *Simulation) Clone() *Simulation {
	c := *s
	c.effects = slices.Clone(s.effects)
	return &c
}

// Act applies a player's action by the model. It refuses as [Multiplayer.Act] does; an error that
// is not a *capability.Error is a fault of the model.
func (s *Simulation) Act(userID string, data json.RawMessage, at time.Time) error {
	return s.advance(step{kind: stepAct, actor: userID, data: data, at: at.UnixMilli()})
}

// Join takes a seat, as [Multiplayer.Join] does.
func (s *Simulation) Join(userID string, at time.Time) error {
	return s.advance(step{kind: stepJoin, actor: userID, at: at.UnixMilli()})
}

// Leave gives up a seat, as [Multiplayer.Leave] does.
func (s *Simulation) Leave(userID string, at time.Time) error {
	return s.advance(step{kind: stepLeave, actor: userID, at: at.UnixMilli()})
}

// Close ends a table, as [Multiplayer.Close] does.
func (s *Simulation) Close(userID string, at time.Time) error {
	return s.advance(step{kind: stepClose, actor: userID, at: at.UnixMilli()})
}

func (s *Simulation) advance(st step) error {
	next, effects, err := s.session.advance(s.model, st)
	if err != nil {
		return err
	}
	s.session, s.effects = next, append(s.effects, effects...)
	return nil
}

// State returns the whole state as it would be stored, nil before the start.
func (s *Simulation) State() json.RawMessage { return slices.Clone(s.session.state) }

// Phase returns the phase of the session.
func (s *Simulation) Phase() Phase { return s.session.phase }

// Players returns the user ids in turn order.
func (s *Simulation) Players() []string { return slices.Clone(s.session.players) }

// Cursor returns the number of words drawn so far.
func (s *Simulation) Cursor() int64 { return s.session.cursor }

// Effects returns all effects declared so far.
func (s *Simulation) Effects() []Effect { return slices.Clone(s.effects) }

// View returns the session as a player sees it, like [Multiplayer.View].
func (s *Simulation) View(userID string) (View, error) { return s.session.view(s.model, userID) }

// Reencode returns the state decoded to the model's type and encoded again.
func (s *Simulation) Reencode() (json.RawMessage, error) {
	if s.session.state == nil {
		return nil, nil
	}
	return s.model.engine.reencode(s.session.input())
}
