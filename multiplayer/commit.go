package multiplayer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
)

// maxTries bounds how often a step is retried because the session has changed.
const maxTries = 5

// optimisticTries is how many of the tries take no lock.
const optimisticTries = 2

// errBusy is returned when another node changed the session during every try.
var errBusy = capability.ErrUnavailable.Saying("The session is changing too fast. Try again.")

// errDoubtful reports that the action ids must be looked up before the calls can be decided.
var errDoubtful = errors.New("multiplayer: an action may have been accepted before")

// errBroken is wrapped by the error of a session that cannot be played, see [session.broken].
var errBroken = errors.New("multiplayer: a session is broken")

var errPanicked = errors.New("multiplayer: a panic, logged with its stack")

// batch is the steps of one transaction: any number of plain ones or a single one with effects, a
// result or seats, so that a refusal of the ledger fails no other step.
type batch struct {
	before, after *session
	steps         []step
	effects       []Effect
	// taken is how many calls the batch decides; the outcomes of the first sure of them hold
	// whether or not it is committed.
	taken, sure int
	// alone reports that the only step writes more than rows of the session.
	alone bool
}

// heavy reports whether a step writes more than rows of the session: money, a result, or seats.
func heavy(before, after *session, effects []Effect) bool {
	return len(effects) > 0 || after.phase.Terminal() || !slices.Equal(before.players, after.players)
}

// plan decides calls one after the other, each on the state that the calls before it left, until
// one must be alone.
func (m *Multiplayer) plan(s *session, calls []*call, known []logged) *batch {
	b := &batch{before: s, after: s}
	for _, c := range calls {
		if len(b.steps) == 0 {
			b.sure = b.taken
		}
		if first, ok := accepted(known, c.Op); ok {
			c.Out, c.Err = first.replay(c.Op)
			b.taken++
			continue
		}
		after, effects, err := m.advance(b.after, c.Op)
		if err == nil && after != b.after {
			if b.alone = heavy(b.after, after, effects); b.alone && len(b.steps) > 0 {
				b.alone = false
				return b
			}
			b.steps = append(b.steps, c.Op)
			b.after, b.effects = after, effects
			known = append(known, logged{c.Op, after.version})
		}
		if c.Out, c.Err = (Ack{}), err; err == nil {
			c.Out = Ack{ID: c.Op.actionID, Version: b.after.version}
		}
		b.taken++
		if b.alone {
			return b
		}
	}
	return b
}

// doubtful reports whether a refused call may be a repetition of an action that was accepted
// before.
func (b *batch) doubtful(calls []*call) bool {
	return slices.ContainsFunc(calls[:b.taken], func(c *call) bool { return c.Err != nil && c.Op.actionID != "" })
}

// accepted finds the log row of a step's action id.
func accepted(known []logged, st step) (logged, bool) {
	if st.actionID == "" {
		return logged{}, false
	}
	for _, l := range known {
		if l.actor == st.actor && l.actionID == st.actionID {
			return l, true
		}
	}
	return logged{}, false
}

// replay returns the outcome of a step whose action id was used before: the first outcome if the
// data is the same, and a refusal otherwise.
func (l logged) replay(st step) (Ack, error) {
	if !bytes.Equal(l.data, st.data) {
		return Ack{}, capability.ErrIdempotencyConflict.Saying("This action id was used for another action.")
	}
	return Ack{ID: l.actionID, Version: l.version, Replayed: true}, nil
}

// known reads the log rows of those action ids of the calls that were accepted before.
func (m *Multiplayer) known(ctx context.Context, id string, calls []*call) ([]logged, error) {
	var ids []string
	for _, c := range calls {
		if c.Op.actionID != "" {
			ids = append(ids, c.Op.actionID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return m.store.known(ctx, id, ids)
}

// advance is [session.advance] with the session's model. It logs a fault of the model, which is
// returned as kit/internal.
func (m *Multiplayer) advance(s *session, st step) (*session, []Effect, error) {
	if s.broken != nil && !st.kind.ends() {
		return nil, nil, fmt.Errorf("%w: %w", errBroken, s.broken)
	}
	after, effects, err := s.advance(m.models[s.game.Kind], st)
	m.blame(s, err)
	return after, effects, err
}

// blame logs a fault of a model with its stack.
func (m *Multiplayer) blame(s *session, err error) {
	if err == nil {
		return // as nearly always, and f would be allocated
	}
	var f *fault
	if errors.As(err, &f) {
		m.log.Error("multiplayer: a model is at fault", slog.String("session", s.id), slog.Int64("version", s.version),
			slog.String("fault", f.Error()), slog.String("stack", string(f.stack)))
	}
}

// commit writes a batch in one transaction, or returns errStale if the session was changed in the
// meantime.
func (m *Multiplayer) commit(ctx context.Context, b *batch) (*session, error) {
	after := *b.after
	if late := after.deadline != 0 && (after.alarm == 0 || after.alarm > after.deadline); late {
		after.alarm = after.deadline
	}
	if m.plain(ctx, b, &after) {
		_, err := m.moves.Do(ctx, move{b.before, &after, b.steps})
		return &after, err
	}
	err := m.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := m.store.update(ctx, b.before, &after); err != nil {
			return err
		}
		return m.write(ctx, b, &after)
	})
	return &after, err
}

// plain reports whether a batch consists of moves of a game that continues. Those share a
// transaction with the moves of other sessions.
func (m *Multiplayer) plain(ctx context.Context, b *batch, after *session) bool {
	return !m.host.DB.InTransaction(ctx) && !b.alone && after.alarm == b.before.alarm && after.state != nil &&
		after.phase == b.before.phase
}

// write writes everything but the session's own row.
func (m *Multiplayer) write(ctx context.Context, b *batch, after *session) error {
	if err := m.store.append(ctx, after.id, b.before.version+1, b.steps); err != nil {
		return err
	}
	if after.alarm != b.before.alarm {
		if err := m.setAlarm(ctx, after); err != nil {
			return err
		}
	}
	if err := m.seat(ctx, b, after); err != nil {
		return err
	}
	if err := m.settle(ctx, after, b.steps[0].actor, b.effects); err != nil {
		return err
	}
	if b.before.state == nil && after.state != nil {
		if err := m.host.Hooks.MatchStarted.Fire(ctx, hooks.MatchStarted{
			SessionID: after.id, Game: after.game.Key, Players: slices.Clone(after.players)}); err != nil {
			return err
		}
	}
	if !after.phase.Terminal() {
		return nil
	}
	result, err := m.conclude(ctx, after)
	if err == nil {
		after.result = result
	}
	return err
}
