package multiplayer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/internal/strictjson"
)

// Definition describes a game model with the configuration C and the state S, both of which encode
// as JSON. The functions are pure: the same arguments give the same bytes, whenever and wherever
// they are called. The [Context] carries everything a game needs, including time and randomness,
// and the returned [Effect] values describe all side effects. The functions do no I/O, keep nothing
// between calls, start no goroutines and do not depend on the iteration order of a map; package
// modeltest checks this.
//
// A state is stored as JSON: whatever does not encode is lost between two actions. [Define] makes a
// [Model] from a definition.
type Definition[C, S any] struct {
	// Kind is the name for [Game].Kind: 1 to 64 letters, digits, hyphens and underscores. A model
	// whose states or rules change while sessions are under way needs a new kind.
	Kind string
	// MinPlayers is 2 by default, MaxPlayers [MaxSeats].
	MinPlayers, MaxPlayers int
	// Config and State are the JSON Schemas (2020-12) of C and S, by default inferred from the
	// types. Rules are checked against Config when a session is created and when it is read; a
	// state is checked against State when it is read and, unless the type ensures it, before it is
	// stored.
	Config, State *jsonschema.Schema
	// Init returns the first state, once the session has its players.
	Init func(c Context[C]) (S, []Effect, error)
	// Apply returns the state after a move. It may change the state it was given. An error refuses
	// the move, see [Illegal]; then nothing is stored.
	Apply func(c Context[C], s S, m Move) (S, []Effect, error)
	// IsComplete reports whether the game is over. It is called after every transition; a complete
	// game is resolved at once.
	IsComplete func(c Context[C], s S) bool
	// Resolve returns the outcome of a game that is complete or, in table mode, was closed.
	Resolve func(c Context[C], s S) Outcome
	// Redact returns what a player may see of a state: anything that encodes as JSON. revealed
	// reports that the session is over, so that nothing needs to be hidden any more. It may change
	// the state it was given.
	Redact func(c Context[C], s S, viewer string, revealed bool) any
	// OnJoin and OnLeave, in table mode, return the state after a player took or left a seat:
	// c.Players includes the player who joined and not the one who left.
	OnJoin, OnLeave func(c Context[C], s S, userID string) (S, []Effect, error)
	// OnTimeout, optional, returns the state after the time for a turn has passed, such as one in
	// which the player whose turn it was has lost. If the game is not complete then, it continues
	// with the full time for the next turn. Without OnTimeout, or if it returns an error, the
	// session is abandoned.
	OnTimeout func(c Context[C], s S) (S, []Effect, error)
}

// Context is the input of a model's functions.
type Context[C any] struct {
	SessionID string
	// Config holds the game's rules as of the creation of the session.
	Config C
	// Players are the user ids in the order they joined, which is turn order.
	Players []string
	// Now is the time of the transition in UTC, in whole milliseconds, never before the time of the
	// previous one. For Redact it is the time of the last transition.
	Now time.Time
	// Random is the session's stream. Only Init, Apply, OnJoin, OnLeave and
	// OnTimeout may draw from it.
	Random *Random
}

// Ref returns the ref of an effect: the session's id, a slash, and a name that is unique in the
// session, such as "stake/" and the player. The ref must have at most 200 bytes and no "#".
// Replaying the session gives the same refs, so money moves once.
func (c Context[C]) Ref(name string) string { return c.SessionID + "/" + name }

// Move is an action as passed to the model.
type Move struct {
	// UserID is the player who acts, one of [Context].Players.
	UserID string
	// Data is the JSON as received from the client.
	Data json.RawMessage
}

// Decode decodes the data strictly into the pointer. Its error is meant to be returned by Apply.
func (m Move) Decode(into any) error {
	if err := strictjson.Decode(m.Data, into); err != nil {
		return ErrInvalidMove.Saying("%s", err.Error())
	}
	return nil
}

// Illegal returns the error with which a model refuses a move and tells the player why:
// multiplayer/invalid_move. The text is sent to that player, so it must not contain anything hidden
// from them. A model returns [ErrInvalidTransition] to refuse a move that is legal at another time.
// The text of any other error is neither sent nor logged, as it may contain anything.
func Illegal(format string, args ...any) error { return ErrInvalidMove.Saying(format, args...) }

// Outcome is how a game ended.
type Outcome struct {
	// Ranks maps user ids to finishing places: 1 wins, ties share a place.
	// Without ranks and teams nobody is rated and nobody gets points.
	Ranks map[string]int
	// Teams is given instead of Ranks for games between teams.
	Teams []Team
	// Effects are the payouts.
	Effects []Effect
	// Detail is JSON of at most [MaxState] bytes for the result, visible to every player; nil is
	// left out.
	Detail any
}

// Model is a game that sessions can play; see [Define].
type Model struct {
	kind     string
	min, max int
	// table reports whether players can join and leave, timeout whether the model handles a passed
	// deadline.
	table, timeout bool

	fault  error
	engine engine
}

// engine is a model with its types erased. States and rules are JSON.
type engine interface {
	checkRules(rules json.RawMessage) error
	checkState(state json.RawMessage) error
	play(in input, kind stepKind, m Move) (played, error)
	redact(in input, viewer string, revealed bool) (json.RawMessage, error)
	reencode(in input) (json.RawMessage, error)
}

// input is the input of an engine.
type input struct {
	sessionID string
	rules     json.RawMessage
	players   []string
	now       time.Time
	seed      []byte
	cursor    int64
	state     json.RawMessage
	decoded   *atomic.Value // caches the decoded state; may be nil
}

// played is the result of one call of a model.
type played struct {
	state   json.RawMessage
	cursor  int64
	effects []Effect
	outcome *outcome // set if the game is over
}

// outcome is an Outcome with its detail encoded.
type outcome struct {
	ranks  map[string]int
	teams  []Team
	detail json.RawMessage
}

// Define makes a model for [Config].Models. Faults of the definition are reported at assembly.
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
		sure:    d.State == nil && stateErr == nil && encodesAsTyped(reflect.TypeFor[S]()),
		configs: copierOf(reflect.TypeFor[C]()), states: copierOf(reflect.TypeFor[S]())}
	return m
}
