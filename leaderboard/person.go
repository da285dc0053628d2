package leaderboard

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// record is an exported entry.
type record struct {
	Board string `json:"board"`
	// Window is empty on a board without windows.
	Window       string           `json:"window,omitempty"`
	Score        int64            `json:"score"`
	AchievedAt   capability.Time  `json:"achievedAt"`
	Hidden       bool             `json:"hidden"`
	Attempts     int64            `json:"attempts,omitempty"`
	LastActiveAt *capability.Time `json:"lastActiveAt,omitempty"`
}

// concealment is the export record of a board on which the user is hidden, by either of the two.
type concealment struct {
	Board  string `json:"board"`
	Hidden bool   `json:"hidden"`
}

// export emits a user's entries in every stored window, and the boards on which the user is hidden.
func (l *Leaderboard) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	boards, err := l.store.boardsOf(ctx)
	if err != nil {
		return err
	}
	for _, board := range boards {
		entries, err := l.store.entriesOfUser(ctx, board, person.ID)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := emit("entry", e); err != nil {
				return err
			}
		}
		hidden, err := l.store.isHidden(ctx, board, person.ID)
		if err != nil {
			return err
		}
		if hidden {
			if err := emit("hidden", concealment{board, true}); err != nil {
				return err
			}
		}
	}
	return nil
}

// erase removes a user's entries board by board, each together with its counts.
func (l *Leaderboard) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	out := capability.Erasure{Kept: []capability.Kept{{
		What: "the bounds of ranges of equal scores",
		Why:  "they divide crowded scores by user id, which is a pseudonym, and go with the window",
	}}}
	boards, err := l.store.boardsOf(ctx)
	if err != nil {
		return out, err
	}
	for _, board := range boards {
		var n int64
		err := l.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			n, err = l.store.eraseUser(ctx, board, person.ID)
			return err
		})
		if err != nil {
			return out, err
		}
		out.Removed += n
	}
	return out, nil
}
