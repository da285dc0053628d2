package multiplayer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/internal/strictjson"
)

// Definition describes a game model with the configuration C and the state S,
// both of which encode as JSON. The functions are pure: the same arguments give
// the same bytes, whenever and wherever they are called. The [Context]
// brings everything a game needs, time and randomness included, and [Effect]
// values carry out everything it wants done. They do no I/O, keep nothing between calls,
// start no goroutines and range over no map where the order matters; package
// modeltest finds out.
//
// A state lives as its JSON: what does not encode is lost between two actions.
// [Define] makes a [Model] of a definition.
type Definition[C, S any] struct {
	// Kind is what [Game].Kind names: 1 to 64 letters, digits, hyphens and
	// underscores. A model whose states or rules of play change while sessions
	// are under way needs a new one.
	Kind string
	// MinPlayers is 2 by default, MaxPlayers [MaxSeats].
	MinPlayers, MaxPlayers int
	// Config and State are the JSON Schemas (2020-12) of C and S, by default
	// those that follow from the types. Rules are held to Config when a session
	// is created; a state is held to State when it is read and, where that does not
	// follow from the type, before it is stored.
	Config, State *jsonschema.Schema
	// Init returns the first state, once the players are there.
	Init func(c Context[C]) (S, []Effect, error)
	// Apply returns the state after a move. It may change the one it got. Its
	// error refuses the move, see [Illegal]; nothing is persisted then.
	Apply func(c Context[C], s S, m Move) (S, []Effect, error)
	// IsComplete reports whether the game is over. It is asked after every
	// transition, and a complete game is resolved at once.
	IsComplete func(c Context[C], s S) bool
	// Resolve returns how the game ended: a complete one or, in table mode, one
	// that is closed.
	Resolve func(c Context[C], s S) Outcome
	// Redact returns what a player may see of a state: anything that encodes as
	// JSON. revealed reports that the session is over and nothing needs to be
	// hidden any more. It may change the state it got.
	Redact func(c Context[C], s S, viewer string, revealed bool) any
	// OnJoin and OnLeave, in table mode, return the state after a player took or
	// left a seat: c.Players includes the one who joined and not the one who left.
	OnJoin, OnLeave func(c Context[C], s S, userID string) (S, []Effect, error)
	// OnTimeout, optional, returns the state after the time for a turn has passed,
	// such as one in which the player whose turn it was has lost. A game that is
	// not complete then goes on, with the full time for the next turn. Without it,
	// and after its error, the session is abandoned.
	OnTimeout func(c Context[C], s S) (S, []Effect, error)
}

// Context is what a model may know.
type Context[C any] struct {
	SessionID string
	// Config are the game's rules as they were when the session was created.
	Config C
	// Players are the user ids in the order they joined, which is turn order.
	Players []string
	// Now is the time of the transition in UTC, whole milliseconds, never before
	// that of the one before. For Redact it is that of the last transition.
	Now time.Time
	// Random is the session's stream. Only Init, Apply, OnJoin, OnLeave and
	// OnTimeout may draw from it.
	Random *Random
}

// Ref makes the ref of an effect: the session's id, a slash, and a name that is
// unique in the session, such as "stake/" and the player. All in all it is at
// most 200 bytes without "#". Playing the same session again makes the same
// refs, so money moves once.
func (c Context[C]) Ref(name string) string { return c.SessionID + "/" + name }

// Move is an action as the model gets it.
type Move struct {
	// UserID is the player who acts, one of [Context].Players.
	UserID string
	// Data is the JSON that the client sent, untouched.
	Data json.RawMessage
}

// Decode reads the data strictly into the pointer. Its error is one for Apply
// to return.
func (m Move) Decode(into any) error {
	if err := strictjson.Decode(m.Data, into); err != nil {
		return ErrInvalidMove.Saying("%s", err.Error())
	}
	return nil
}

// Illegal is the error by which a model refuses a move and tells the player
// why: multiplayer/invalid_move. The text goes to that player, so it holds
// nothing that is hidden from them. A model that returns
// [ErrInvalidTransition] refuses what is legal at another time. The text of any
// other error is neither sent nor logged, as it may hold anything.
func Illegal(format string, args ...any) error { return ErrInvalidMove.Saying(format, args...) }

// Outcome is how a game ended.
type Outcome struct {
	// Ranks maps user ids to finishing places: 1 wins, ties share a place.
	// Without ranks and teams nobody is rated and nobody gets points.
	Ranks map[string]int
	// Teams is given instead of Ranks for games between teams.
	Teams []Team
	// Effects pay out.
	Effects []Effect
	// Detail is JSON of at most [MaxState] bytes for the result, which everybody
	// sees; nil is left out.
	Detail any
}

// Model is a game that sessions can play; see [Define].
type Model struct {
	kind     string
	min, max int
	// table says whether players can come and go, timeout whether the model says
	// what a passed deadline means.
	table, timeout bool

	fault  error
	engine engine
}

// engine plays a model whose types it hides. States and rules are JSON.
type engine interface {
	checkRules(rules json.RawMessage) error
	checkState(state json.RawMessage) error
	play(in input, kind stepKind, m Move) (played, error)
	redact(in input, viewer string, revealed bool) (json.RawMessage, error)
	reencode(in input) (json.RawMessage, error)
}

// input is what an engine plays on.
type input struct {
	sessionID string
	rules     json.RawMessage
	players   []string
	now       time.Time
	seed      []byte
	cursor    int64
	state     json.RawMessage
}

// played is what a model made of its input.
type played struct {
	state   json.RawMessage
	cursor  int64
	effects []Effect
	outcome *outcome // of a game that is over
}

// outcome is an Outcome with its detail encoded.
type outcome struct {
	ranks  map[string]int
	teams  []Team
	detail json.RawMessage
}

// Define makes a model for [Config].Models. Faults of the definition
// are reported at assembly.
func Define[C, S any](d Definition[C, S]) Model {
	m := Model{kind: d.Kind, min: cmp.Or(d.MinPlayers, 2), max: cmp.Or(d.MaxPlayers, MaxSeats), table: d.OnJoin != nil && d.OnLeave != nil,
		timeout: d.OnTimeout != nil}
	rules, rulesErr := schemaOf[C](d.Config)
	state, stateErr := schemaOf[S](d.State)
	switch {
	case !validName(d.Kind):
		m.fault = errors.New("the kind is not 1 to 64 letters, digits, hyphens and underscores")
	case m.min < 1 || m.max < m.min || m.max > MaxSeats:
		m.fault = fmt.Errorf("the player counts %d to %d are not within 1 to %d", m.min, m.max, MaxSeats)
	case d.Init == nil || d.Apply == nil || d.IsComplete == nil || d.Resolve == nil || d.Redact == nil:
		m.fault = errors.New("one of Init, Apply, IsComplete, Resolve and Redact is missing")
	case (d.OnJoin == nil) != (d.OnLeave == nil):
		m.fault = errors.New("of OnJoin and OnLeave one is missing")
	case rulesErr != nil:
		m.fault = fmt.Errorf("the schema of the config: %w", rulesErr)
	case stateErr != nil:
		m.fault = fmt.Errorf("the schema of the state: %w", stateErr)
	}
	m.engine = &typed[C, S]{Definition: d, rules: rules, state: state,
		sure: d.State == nil && stateErr == nil && encodesAsTyped(reflect.TypeFor[S]()), flat: isFlat(reflect.TypeFor[C]())}
	return m
}
