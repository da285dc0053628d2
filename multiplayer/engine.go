package multiplayer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
)

// Bounds of the data of a session, in bytes of JSON.
const (
	// MaxState bounds a state, a player's view of it, and a result's detail.
	MaxState = 256 << 10
	// MaxAction bounds the data of an action.
	MaxAction = 16 << 10
)

// typed is the engine of a definition.
type typed[C, S any] struct {
	Definition[C, S]
	rules, state *jsonschema.Resolved
	// sure reports that every encoded S matches its schema, because the schema is inferred from the
	// type.
	sure bool
	// configs and states copy decoded rules and states. recent caches decoded rules.
	configs, states copier
	recent          [8]atomic.Pointer[decoded[C]]
}

// decoded is stored rules with their decoded form.
type decoded[C any] struct {
	raw   json.RawMessage
	rules C
}

var seedOfRecent = maphash.MakeSeed()

// fault is a fault of a model. Its text contains nothing of a state, because it is logged during
// the game.
type fault struct {
	kind, doing, what string
	stack             []byte
}

func (f *fault) Error() string {
	return fmt.Sprintf("multiplayer: model %s: %s %s", f.kind, f.doing, f.what)
}

func (t *typed[C, S]) fault(doing, what string) error {
	return &fault{kind: t.Kind, doing: doing, what: what}
}

func (t *typed[C, S]) checkRules(rules json.RawMessage) error { return hold(t.rules, rules) }

// checkState validates a state against its schema. The error does not say which rule is broken:
// that would quote the state.
func (t *typed[C, S]) checkState(state json.RawMessage) error {
	if hold(t.state, state) != nil {
		return t.fault("State", "is not of its schema")
	}
	return nil
}

// play runs the model's part of a transition, and resolves the game if it is complete.
func (t *typed[C, S]) play(in input, kind stepKind, m Move) (out played, err error) {
	defer t.catch(string(kind), &err)
	c, s, err := t.decode(in)
	if err != nil {
		return played{}, err
	}
	c.Random = NewRandom(in.seed, in.cursor)
	var effects []Effect
	switch kind {
	case stepBegin:
		s, effects, err = t.Init(c)
	case stepAct:
		s, effects, err = t.Apply(c, s, m)
	case stepJoin:
		s, effects, err = t.OnJoin(c, s, m.UserID)
	case stepLeave:
		s, effects, err = t.OnLeave(c, s, m.UserID)
	case stepExpire:
		s, effects, err = t.OnTimeout(c, s)
	default: // closing resolves the current state
	}
	if err != nil {
		return played{}, refusal(err)
	}
	out = played{cursor: c.Random.Cursor(), effects: effects}
	if out.state, err = t.encode(string(kind), s); err != nil {
		return played{}, err
	}
	if !t.sure {
		if err := t.checkState(out.state); err != nil {
			return played{}, err
		}
	}
	c.Random, c.Players = nil, slices.Clone(in.players)
	if kind == stepClose || t.IsComplete(c, s) {
		err = t.resolve(c, &out)
	}
	return out, err
}

// resolve ends the game, on the state as decoded from its stored form.
func (t *typed[C, S]) resolve(c Context[C], out *played) error {
	var s S
	if err := json.Unmarshal(out.state, &s); err != nil {
		return t.fault("State", "does not decode")
	}
	end := t.Resolve(c, s)
	out.effects = append(slices.Clip(out.effects), end.Effects...)
	out.outcome = &outcome{ranks: end.Ranks, teams: end.Teams}
	if end.Ranks != nil && end.Teams != nil {
		return t.fault("Resolve", "returns both ranks and teams")
	}
	if end.Detail == nil {
		return nil
	}
	detail, err := t.encode("Resolve", end.Detail)
	out.outcome.detail = detail
	return err
}

// redact returns the state as a viewer sees it.
func (t *typed[C, S]) redact(in input, viewer string, revealed bool) (view json.RawMessage, err error) {
	defer t.catch("Redact", &err)
	c, s, err := t.decode(in)
	if err != nil {
		return nil, err
	}
	return t.encode("Redact", t.Redact(c, s, viewer, revealed))
}

// reencode decodes a state and encodes it again, as happens between two actions.
func (t *typed[C, S]) reencode(in input) (json.RawMessage, error) {
	_, s, err := t.decode(in)
	if err != nil {
		return nil, err
	}
	return t.encode("State", s)
}

// decode returns arguments that the model may change.
func (t *typed[C, S]) decode(in input) (c Context[C], s S, err error) {
	c = Context[C]{SessionID: in.sessionID, Players: slices.Clone(in.players), Now: in.now}
	if c.Config, err = t.config(in.rules); err != nil {
		return c, s, err
	}
	s, err = t.decodeState(in)
	return c, s, err
}

// decodeState returns a state that the model may change. The first call for a state decodes it.
func (t *typed[C, S]) decodeState(in input) (S, error) {
	caches := in.decoded != nil && t.states.ok
	if caches {
		if known, ok := in.decoded.Load().(*S); ok {
			return fresh(t.states, *known), nil
		}
	}
	s := new(S)
	if in.state != nil && json.Unmarshal(in.state, s) != nil {
		return *s, t.fault("State", "does not decode")
	}
	if !caches {
		return *s, nil
	}
	in.decoded.Store(s)
	return fresh(t.states, *s), nil
}

// config decodes rules, or returns cached ones.
func (t *typed[C, S]) config(raw json.RawMessage) (C, error) {
	place := &t.recent[maphash.Bytes(seedOfRecent, raw)%uint64(len(t.recent))]
	if known := place.Load(); known != nil && bytes.Equal(known.raw, raw) {
		return fresh(t.configs, known.rules), nil
	}
	var rules C
	if json.Unmarshal(raw, &rules) != nil {
		return rules, t.fault("Config", "does not decode")
	}
	if !t.configs.ok {
		return rules, nil
	}
	place.Store(&decoded[C]{raw, rules})
	return fresh(t.configs, rules), nil
}

func (t *typed[C, S]) encode(doing string, value any) (json.RawMessage, error) {
	data, err := json.Marshal(value)
	switch {
	case err != nil:
		return nil, t.fault(doing, "returns a value that does not encode as JSON")
	case len(data) > MaxState:
		return nil, t.fault(doing, fmt.Sprintf("returns more than %d bytes", MaxState))
	}
	return data, nil
}

// catch turns a panic into a fault. The panic's value may be anything, a state included, so only
// the text of a runtime error is kept.
func (t *typed[C, S]) catch(doing string, err *error) {
	p := recover()
	if p == nil {
		return
	}
	what := "panicked"
	var own runtime.Error
	if e, ok := p.(error); ok && errors.As(e, &own) {
		what += ": " + own.Error()
	}
	*err = &fault{kind: t.Kind, doing: doing, what: what, stack: callers()}
}

// callers returns the stack of a panic without the arguments of its functions, which can be parts
// of a state.
func callers() []byte {
	var stack []byte
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		stack = fmt.Appendf(stack, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return stack
}

// refusal returns the error that a player receives for a model's error: a refusal that is meant for
// the player, without its cause and without the errors that wrap it, and otherwise only that the
// move is refused.
func refusal(err error) error {
	meant := capability.AsError(err)
	if meant.Is(ErrInvalidMove) || meant.Is(ErrInvalidTransition) {
		return meant.Because(nil)
	}
	return ErrInvalidMove
}
