package multiplayer

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/optional"
)

// session is everything about a session at one version. It is immutable: transitions make new ones.
type session struct {
	id      string
	game    Game
	creator string
	phase   Phase
	version int64
	players []string
	left    []string // former players, the last maxLeft of them
	seed    []byte
	cursor  int64
	state   json.RawMessage // nil before the start
	decoded *atomic.Value   // of the model's engine: the decoded state; nil before the start
	result  *Result         // nil until it is terminal

	deadline  int64 // unix ms, 0 for none; meaningless once terminal
	alarm     int64 // the latest time at which a job checks the deadline; 0 for never
	createdAt int64
	updatedAt int64

	// broken is why the session cannot be played: the stored data does not match the schemas of its
	// model, or the model is no longer defined. It can still be abandoned.
	broken error
}

// stepKind is the kind of a transition.
type stepKind string

const (
	stepCreate stepKind = "create"
	stepJoin   stepKind = "join"
	stepAct    stepKind = "act"
	stepLeave  stepKind = "leave"
	stepClose  stepKind = "close"
	stepExpire stepKind = "expire"
	// stepAbandon is expire, possibly before the deadline, without the model.
	stepAbandon stepKind = "abandon"
	stepBegin   stepKind = "begin" // a part of create and join, never in the log
)

// moves reports whether the step is a move of the game, which sets a new deadline.
func (k stepKind) moves() bool { return k == stepAct || k == stepExpire }

// ends reports whether the step ends a turn or a session without an actor.
func (k stepKind) ends() bool { return k == stepExpire || k == stepAbandon }

// step is an operation on a session and, once it is accepted, a row of its log: the log, the seed
// and the game determine everything about the session.
type step struct {
	kind     stepKind
	actor    string // empty for create, expire and abandon
	actionID string
	expect   int64
	data     json.RawMessage // of create an opening
	at       int64           // unix ms
}

// maxLog bounds the transitions of a session; leaving, closing and the deadline are allowed beyond
// it.
const maxLog = 100_000

var errTooLong = ErrInvalidTransition.Saying("The session has gone on for too long.")

// maxLeft bounds how many former players of a table may read its result.
const maxLeft = MaxSeats

// opening is the data of a create step.
type opening struct {
	Players []string `json:"players"`
	// Until is when a session that has not begun is abandoned, unix ms.
	Until int64 `json:"until"`
}

// advance returns the session after a step, and the effects of the step. It returns the session
// itself if there was nothing to do. It is pure: the same arguments give the same bytes.
func (s *session) advance(model Model, st step) (*session, []Effect, error) {
	next := *s
	next.players, next.left = slices.Clone(s.players), slices.Clone(s.left)
	next.version++
	next.updatedAt = max(st.at, s.updatedAt) // a clock may jump back
	t := transition{model: model, next: &next}
	if err := t.take(s, st); err != nil {
		return nil, nil, err
	}
	if t.idle {
		return s, nil, nil
	}
	if err := checkEffects(s.id, t.effects); err != nil {
		return nil, nil, &fault{kind: s.game.Kind, doing: string(st.kind), what: err.Error()}
	}
	switch {
	case next.phase == PhaseActive && s.phase == PhaseActive && !st.kind.moves(): // joining or leaving does not postpone the deadline
	case next.phase == PhaseActive && next.game.TurnTimeout > 0:
		next.deadline = next.updatedAt + next.game.TurnTimeout.Milliseconds()
	case next.phase != PhaseOpen:
		next.deadline = 0
	}
	return &next, t.effects, nil
}

// transition is one step under way.
type transition struct {
	model   Model
	next    *session
	effects []Effect
	idle    bool
}

func (t *transition) take(s *session, st step) error {
	over := s.phase.Terminal()
	switch {
	case st.kind.ends():
		if t.idle = over || st.kind == stepExpire && !s.overdue(st.at); !t.idle {
			t.expire(s, st)
		}
		return nil
	case st.kind == stepCreate:
		return t.create(st)
	case st.kind != stepJoin && !slices.Contains(s.players, st.actor):
		return ErrNotAMember
	case over:
		return ErrInvalidTransition.Saying("The session is over.")
	case st.kind == stepJoin:
		return t.join(s, st)
	case st.expect != 0 && st.expect != s.version:
		return ErrInvalidTransition.Saying("The session has changed.").With(Stale{Version: s.version})
	case s.phase == PhaseActive && s.overdue(st.at):
		return ErrInvalidTransition.Saying("The time for this turn is over.")
	case st.kind == stepAct:
		return t.act(s, st)
	case s.game.Mode == ModeMatch && s.phase != PhaseOpen:
		return ErrInvalidTransition.Saying("A match is played to its end.")
	case st.kind == stepLeave:
		return t.leave(st)
	default:
		return t.close(st)
	}
}

// expire lets the model handle the passed deadline if it can, and otherwise abandons the session. A
// fault of the model does not keep a session from ending.
func (t *transition) expire(s *session, st step) {
	if st.kind == stepExpire && s.phase == PhaseActive && s.broken == nil && t.model.timeout && s.version < maxLog {
		if t.play(stepExpire, Move{}) == nil {
			return
		}
	}
	t.effects = nil
	t.end(PhaseAbandoned, &outcome{})
}

func (t *transition) create(st step) error {
	t.next.phase = PhaseOpen
	t.next.createdAt = t.next.updatedAt
	var o opening
	if err := json.Unmarshal(st.data, &o); err != nil {
		return err
	}
	t.next.creator, t.next.players, t.next.deadline = o.Players[0], o.Players, o.Until
	return t.beginIfReady()
}

func (t *transition) join(s *session, st step) error {
	switch seated := slices.Contains(s.players, st.actor); {
	case seated:
		t.idle = true
		return nil
	case len(s.players) >= s.game.Players:
		return ErrSessionFull
	case s.overdue(st.at):
		return ErrInvalidTransition.Saying("The session's time is over.")
	case s.version >= maxLog:
		return errTooLong
	}
	t.next.players = append(t.next.players, st.actor)
	t.next.left = without(t.next.left, st.actor)
	if t.next.phase == PhaseOpen {
		return t.beginIfReady()
	}
	return t.play(stepJoin, Move{UserID: st.actor})
}

// beginIfReady starts the game with the full roster of a match, or with as many players as a
// table's model needs.
func (t *transition) beginIfReady() error {
	if len(t.next.players) < t.next.game.needed(t.model) {
		return nil
	}
	t.next.phase = PhaseActive
	return t.play(stepBegin, Move{})
}

func (t *transition) act(s *session, st step) error {
	switch {
	case s.phase != PhaseActive:
		return ErrInvalidTransition.Saying("The session waits for players.")
	case s.version >= maxLog:
		return errTooLong
	}
	return t.play(stepAct, Move{UserID: st.actor, Data: slices.Clone(st.data)})
}

func (t *transition) leave(st step) error {
	t.next.players = without(t.next.players, st.actor)
	t.next.left = append(t.next.left, st.actor)
	t.next.left = t.next.left[max(0, len(t.next.left)-maxLeft):]
	if t.next.phase == PhaseOpen {
		if len(t.next.players) == 0 {
			t.end(PhaseAbandoned, &outcome{})
		}
		return nil
	}
	if err := t.play(stepLeave, Move{UserID: st.actor}); err != nil {
		return err
	}
	if len(t.next.players) == 0 && !t.next.phase.Terminal() {
		return t.play(stepClose, Move{})
	}
	return nil
}

// without removes a player from a list, which it changes in place.
func without(ids []string, id string) []string {
	return slices.DeleteFunc(ids, func(other string) bool { return other == id })
}

// close ends a table, or a session that has not begun. Only its opener may; once the opener has
// left, nobody can.
func (t *transition) close(st step) error {
	if t.next.creator != st.actor {
		return ErrInvalidTransition.Saying("Only the player who opened the session closes it.")
	}
	if t.next.phase == PhaseOpen {
		t.end(PhaseAbandoned, &outcome{})
		return nil
	}
	return t.play(stepClose, Move{UserID: st.actor})
}

// play runs the model on the state.
func (t *transition) play(kind stepKind, m Move) error {
	out, err := t.model.engine.play(t.next.input(), kind, m)
	if err != nil {
		return err
	}
	t.next.state, t.next.decoded, t.next.cursor = out.state, new(atomic.Value), out.cursor
	t.effects = append(t.effects, out.effects...)
	if out.outcome != nil {
		t.end(PhaseResolved, out.outcome)
	}
	return nil
}

func (s *session) input() input {
	return input{
		sessionID: s.id, rules: s.game.Rules.(json.RawMessage), players: s.players,
		now: time.UnixMilli(s.updatedAt).UTC(), seed: s.seed, cursor: s.cursor, state: s.state, decoded: s.decoded,
	}
}

// size returns the bytes of JSON that the cache counts; 0 for nil.
func (s *session) size() int64 {
	if s == nil {
		return 0
	}
	return int64(len(s.state))
}

// overdue reports whether the deadline has passed. Once it has, no action can postpone it until the
// session is abandoned or the model has handled it.
func (s *session) overdue(at int64) bool { return s.deadline != 0 && at >= s.deadline }

// endedAt is when a terminal session ended, 0 before.
func (s *session) endedAt() int64 {
	if s.phase.Terminal() {
		return s.updatedAt
	}
	return 0
}

func (t *transition) end(phase Phase, o *outcome) {
	s := t.next
	s.phase = phase
	s.result = &Result{
		SessionID: s.id, Game: s.game.Key, Phase: phase, Players: s.players,
		Ranks: o.ranks, Teams: o.teams, Detail: o.detail,
		EndedAt: capability.Millis(s.updatedAt), Fairness: s.fairness(),
	}
}

// fairness returns the fairness data, which includes the seed once the session is terminal.
func (s *session) fairness() Fairness {
	f := Fairness{Algorithm: Algorithm, SeedHash: SeedHash(s.seed), Cursor: s.cursor}
	if s.phase.Terminal() {
		seed := hex.EncodeToString(s.seed)
		f.Seed = &seed
	}
	return f
}

// view returns the session as a player sees it. Refuses with multiplayer/not_a_member.
func (s *session) view(model Model, userID string) (View, error) {
	if !slices.Contains(s.players, userID) {
		return View{}, ErrNotAMember
	}
	v := View{
		ID: s.id, Game: s.game.Key, Kind: s.game.Kind, Mode: s.game.Mode,
		Phase: s.phase, Version: s.version, Players: slices.Clone(s.players), Seats: s.game.Players, You: userID,
		Fairness: s.fairness(), Result: s.result,
	}
	if s.phase == PhaseActive {
		v.TurnDeadline = optional.Time(s.deadline)
	}
	if s.state == nil {
		return v, nil
	}
	var err error
	v.State, err = model.engine.redact(s.input(), userID, s.phase.Terminal())
	return v, err
}
