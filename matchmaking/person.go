package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// blocked is the export record of a user who is blocked by the exported one.
type blocked struct {
	UserID string `json:"userId"`
}

// exportPage is how many rows of a list an export reads at once.
const exportPage = capability.MaxLimit

// export emits a user's friends, blocks, invites, rooms and places in queues.
func (m *Matchmaking) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	if err := exportList(ctx, person.ID, "friend", m.ListFriends, emit); err != nil {
		return err
	}
	err := exportList(ctx, person.ID, "blocked", func(ctx context.Context, userID string, page capability.Page) (out capability.Items[blocked], err error) {
		list, err := m.ListBlocked(ctx, userID, page)
		for _, id := range list.Items {
			out.Items = append(out.Items, blocked{id})
		}
		out.NextCursor = list.NextCursor
		return out, err
	}, emit)
	if err != nil {
		return err
	}
	if err := exportList(ctx, person.ID, "invite", m.ListInvites, emit); err != nil {
		return err
	}
	rooms, err := m.store.roomsOf(ctx, person.ID)
	if err != nil {
		return err
	}
	for _, r := range rooms {
		if err := emit("room", r); err != nil {
			return err
		}
	}
	tickets, err := m.store.ticketsOf(ctx, person.ID)
	if err != nil {
		return err
	}
	for _, t := range tickets {
		if err := emit("queue", t); err != nil {
			return err
		}
	}
	return nil
}

// exportList emits a whole list, page by page.
func exportList[T any](ctx context.Context, userID, kind string,
	list func(context.Context, string, capability.Page) (capability.Items[T], error), emit capability.Emit) error {
	page := capability.NewPage(exportPage, "")
	for {
		items, err := list(ctx, userID, page)
		if err != nil {
			return err
		}
		for _, item := range items.Items {
			if err := emit(kind, item); err != nil {
				return err
			}
		}
		if items.NextCursor == nil {
			return nil
		}
		page = capability.NewPage(exportPage, *items.NextCursor)
	}
}

// erase removes a user from queues, rooms, invites, friends and presence. The ticket of the user's
// party is removed, and a match that is forming with the user is dissolved; the session of a room
// belongs to multiplayer.
func (m *Matchmaking) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	out := capability.Erasure{Kept: []capability.Kept{{
		What: "matches found in the last 10 minutes",
		Why:  "the other players read them; they hold the user id and expire",
	}}}
	err := m.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		// A match is locked before its tickets. The second round locks the tickets, so that no
		// sweep takes one, and finds the matches made meanwhile.
		for _, lock := range []string{"", database.ForUpdate} {
			matches, err := m.store.matchesOf(ctx, person.ID, lock)
			if err != nil {
				return err
			}
			for _, matchID := range matches {
				if err := m.dissolve(ctx, matchID, person.ID, ErrUserNotFound); err != nil {
					return err
				}
			}
		}
		out.Removed, err = m.store.erase(ctx, person.ID)
		return err
	})
	return out, err
}
