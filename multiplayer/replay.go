package multiplayer

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// checkStored validates a stored session against the schemas of its model.
func (m *Multiplayer) checkStored(s *session) error {
	model, ok := m.models[s.game.Kind]
	if !ok {
		return fmt.Errorf("multiplayer: session %s is played by the model %q, which is not defined", s.id, s.game.Kind)
	}
	if err := model.engine.checkRules(s.input().rules); err != nil {
		return fmt.Errorf("multiplayer: session %s: the rules are not of their schema: %w", s.id, err)
	}
	if s.state == nil {
		return nil
	}
	err := model.engine.checkState(s.state)
	m.blame(s, err)
	return err
}

// replayChunk is how many steps of a log are read at once.
const replayChunk = 500

// Replay replays the log of a session and compares the result with the stored session, byte by
// byte: the state, the phase, the players, the draws, the deadline and the effects. It returns the
// number of steps, and an error that names the first difference but contains nothing of the state.
// A session that is over and that had a seat of a user who was erased has no log to replay.
// Refuses with multiplayer/session_not_found.
func (m *Multiplayer) Replay(ctx context.Context, sessionID string) (steps int64, err error) {
	stored, err := m.load(ctx, sessionID, m.store.load)
	if err == nil {
		err = stored.broken
	}
	if err != nil {
		return 0, err
	}
	s := &session{id: stored.id, game: stored.game, seed: stored.seed, left: []string{}}
	var effects []Effect
	for s.version < stored.version {
		list, err := m.store.log(ctx, sessionID, s.version, replayChunk)
		if err != nil {
			return s.version, err
		}
		if len(list) == 0 {
			return s.version, fmt.Errorf("multiplayer: session %s: the log ends at version %d of %d", sessionID, s.version, stored.version)
		}
		for _, l := range list[:min(int64(len(list)), stored.version-s.version)] {
			next, more, err := m.advance(s, l.step)
			if err != nil {
				return s.version, fmt.Errorf("multiplayer: session %s: the step to version %d is not accepted again: %w", sessionID, l.version, err)
			}
			if next.version != l.version {
				return s.version, fmt.Errorf("multiplayer: session %s: the log has no step to version %d", sessionID, s.version+1)
			}
			s, effects = next, append(effects, more...)
		}
	}
	if what := s.difference(stored); what != "" {
		return s.version, fmt.Errorf("multiplayer: session %s: played again it has %s", sessionID, what)
	}
	return s.version, m.compareEffects(ctx, s, effects)
}

// difference names the first part of the session that differs from the stored one, or returns "".
func (s *session) difference(stored *session) string {
	switch {
	case !bytes.Equal(s.state, stored.state):
		return "another state"
	case s.phase != stored.phase:
		return "another phase"
	case !slices.Equal(s.players, stored.players) || !slices.Equal(s.left, stored.left):
		return "other players"
	case s.cursor != stored.cursor:
		return "another cursor"
	case s.deadline != stored.deadline || s.updatedAt != stored.updatedAt:
		return "other times"
	}
	return ""
}

// compareEffects compares the effects of a replay with those that were settled. At the end of a
// session open holds were also released.
func (m *Multiplayer) compareEffects(ctx context.Context, s *session, effects []Effect) error {
	settled, err := m.store.effects(ctx, s.id)
	if err != nil {
		return err
	}
	byRef := func(a, b Effect) int {
		return cmp.Or(strings.Compare(a.Ref, b.Ref), strings.Compare(a.part(), b.part()))
	}
	slices.SortStableFunc(effects, byRef)
	effects = slices.CompactFunc(effects, func(a, b Effect) bool { return byRef(a, b) == 0 })
	for _, e := range settled {
		i, ok := slices.BinarySearchFunc(effects, e, byRef)
		if ok && effects[i] != e || !ok && (e != Release(e.Ref) || !s.phase.Terminal()) {
			return fmt.Errorf("multiplayer: session %s: played again it has another effect %q", s.id, e.Ref)
		}
		if ok {
			effects = slices.Delete(effects, i, i+1)
		}
	}
	if len(effects) > 0 {
		return fmt.Errorf("multiplayer: session %s: the effect %q was not settled", s.id, effects[0].Ref)
	}
	return nil
}
