package events

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
)

// lifePage is how many messages an export or an erasure processes at a time.
const lifePage = 200

// of returns the subjects of a person.
func of(person capability.Person) []string {
	list := []string{person.ID}
	for _, address := range person.Emails {
		list = append(list, byMail(address))
	}
	return list
}

// exported is a message in an export.
type exported struct {
	ID string `json:"id"`
	Message
}

// export emits the messages about a person; of a match only the person's own part.
func (e *Events) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	return e.each(ctx, person, func(list []message) error {
		for _, m := range list {
			data, _, err := split(m, person.ID)
			if err != nil {
				return err
			}
			m.Data = data
			if err := emit("message", exported{m.id, m.Message}); err != nil {
				return err
			}
		}
		return nil
	})
}

// erase removes the messages about a person. A match is kept without the person; a
// user.deleted that is still to be delivered is kept until then.
func (e *Events) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	var done capability.Erasure
	err := e.each(ctx, person, func(list []message) error {
		var removed int64
		waits := false
		err := e.host.DB.InTx(ctx, func(ctx context.Context) error {
			removed, waits = 0, false
			for _, m := range list {
				gone, err := e.eraseOne(ctx, person, m)
				if err != nil {
					return err
				}
				if removed++; !gone {
					removed, waits = removed-1, true
				}
			}
			return nil
		})
		done.Removed += removed
		if waits {
			done.Kept = []capability.Kept{{What: "the message user.deleted", Why: "other services are still to be told; it goes once they are"}}
		}
		return err
	})
	return done, err
}

func (e *Events) eraseOne(ctx context.Context, person capability.Person, m message) (gone bool, err error) {
	if m.Type == typeUserDeleted {
		if err := e.store.removeTold(ctx, m.id); err != nil {
			return false, err
		}
		waits, err := e.store.exists(ctx, m.id)
		return !waits, err
	}
	// The erasure of another player may have changed the message since it was read.
	m, found, err := e.store.lock(ctx, m.id)
	if err != nil || !found {
		return true, err
	}
	_, others, err := split(m, person.ID)
	if err != nil {
		return false, err
	}
	if others == nil {
		return true, e.store.remove(ctx, []string{m.id})
	}
	return true, e.store.replace(ctx, m.id, string(others), person.ID)
}

// split separates a message's data into the part about the user and the part about others, each nil
// if empty.
func split(m message, userID string) (own, others json.RawMessage, err error) {
	switch m.Type {
	case typeMatchStarted:
		return divide(m.Data, func(match hooks.MatchStarted) (own, others hooks.MatchStarted, shared bool) {
			own, others = match, match
			own.Players = []string{userID}
			others.Players = slices.DeleteFunc(slices.Clone(match.Players), func(id string) bool { return id == userID })
			return own, others, len(others.Players) > 0
		})
	case typeMatchEnded:
		return divide(m.Data, func(match hooks.MatchEnded) (own, others hooks.MatchEnded, shared bool) {
			own, others = match, match
			own.Ranks = map[string]int{userID: match.Ranks[userID]}
			others.Ranks = maps.Clone(match.Ranks)
			delete(others.Ranks, userID)
			return own, others, len(others.Ranks) > 0
		})
	default:
		return m.Data, nil, nil
	}
}

// divide separates an event by f, whose last result reports whether others are in it.
func divide[T any](data json.RawMessage, f func(T) (own, others T, shared bool)) (own, others json.RawMessage, err error) {
	var event T
	if err := json.Unmarshal(data, &event); err != nil {
		return nil, nil, err
	}
	mine, theirs, shared := f(event)
	if own, err = json.Marshal(mine); err == nil && shared {
		others, err = json.Marshal(theirs)
	}
	return own, others, err
}

// each calls f with the messages about a person, page by page, each message once for each of its
// subjects.
func (e *Events) each(ctx context.Context, person capability.Person, f func([]message) error) error {
	for _, subject := range of(person) {
		for after := ""; ; {
			list, err := e.store.about(ctx, subject, after, lifePage)
			if err != nil {
				return err
			}
			if len(list) > 0 {
				if err := f(list); err != nil {
					return err
				}
				after = list[len(list)-1].id
			}
			if len(list) < lifePage {
				break
			}
		}
	}
	return nil
}
