package multiplayer

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"

	"github.com/kitbackend/kit/capability"
)

// exportChunk is how many sessions or actions an export reads at once.
const exportChunk = 200

// actionRecord is an action as it is exported.
type actionRecord struct {
	SessionID string          `json:"sessionId"`
	Version   int64           `json:"version"`
	Kind      string          `json:"kind"`
	Data      json.RawMessage `json:"data,omitempty"`
	At        capability.Time `json:"at"`
}

// export emits every session in which a user has or had a seat: the user's view of it unless it has
// been removed, the user's actions, and the result.
func (m *Multiplayer) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	for after := ""; ; {
		ids, err := m.store.sessionsOf(ctx, person.ID, after, exportChunk)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := m.exportSession(ctx, id, person.ID, emit); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

func (m *Multiplayer) exportSession(ctx context.Context, id, userID string, emit capability.Emit) error {
	view, err := m.View(ctx, id, userID)
	var refused *capability.Error
	switch {
	case err == nil:
		if err := emit("session", view); err != nil {
			return err
		}
	case errors.As(err, &refused) && refused.Status < http.StatusInternalServerError: // removed, or the user has left
	case ctx.Err() != nil:
		return err
	default: // the model is missing or at fault, so the state cannot be redacted for the user
		if err := emit("session", map[string]string{"id": id}); err != nil {
			return err
		}
	}
	for after := int64(0); ; {
		actions, err := m.store.actionsOf(ctx, id, userID, after, exportChunk)
		if err != nil {
			return err
		}
		for _, a := range actions {
			if err := emit("action", a); err != nil {
				return err
			}
			after = a.Version
		}
		if len(actions) < exportChunk {
			break
		}
	}
	result, _, err := m.store.result(ctx, id)
	if err != nil || result == nil {
		return err
	}
	return emit("result", result)
}

// erase ends what a user plays: a seat at a table, or in a session that waits for players, is given
// up; a match that has begun, and a table that has a stake of the user, are abandoned, and the holds
// are released. Then the states and logs of the sessions of the user that are over are removed before
// their time. The others can still read that the session is over and how it ended, and their sockets
// are told so.
func (m *Multiplayer) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	out := capability.Erasure{Kept: []capability.Kept{
		{What: "who played games that are over, and their results", Why: "they are the other players', too; the user id in them is a pseudonym"},
		{What: "what was done in sessions that go on", Why: "the other players play on; it is removed some time after the end, by retention"},
	}}
	for after := ""; ; {
		ids, err := m.store.sessionsOf(ctx, person.ID, after, exportChunk)
		if err != nil || len(ids) == 0 {
			return out, err
		}
		for _, id := range ids {
			if err := m.giveUp(ctx, id, person.ID); err != nil {
				return out, err
			}
		}
		n, err := m.store.forget(ctx, person.ID, ids)
		if err != nil {
			return out, err
		}
		for _, id := range ids {
			m.owners.forget(id)
		}
		out.Removed += n
		after = ids[len(ids)-1]
	}
}

// giveUp removes a user from a session that is not over, and abandons one that keeps a stake of the
// user: the ledger releases the stake, so that the game could not be paid out.
func (m *Multiplayer) giveUp(ctx context.Context, id, userID string) error {
	seated, _, err := m.Seated(ctx, id, userID)
	if err == nil && seated {
		err = m.Leave(ctx, id, userID)
	}
	switch {
	case err == nil, errors.Is(err, ErrNotAMember):
	case errors.Is(err, ErrSessionNotFound):
		return nil
	case isFinal(err): // a match that has begun, or a model that refuses to let players leave
		return ignoreMissing(m.Abandon(ctx, id))
	default:
		return err
	}
	holds, err := m.store.openHolds(ctx, id)
	if err == nil && slices.ContainsFunc(holds, func(e Effect) bool { return e.UserID == userID }) {
		err = ignoreMissing(m.Abandon(ctx, id))
	}
	return err
}
