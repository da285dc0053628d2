package leaderboard

import (
	"context"
	"iter"
	"maps"
	"slices"

	"github.com/kitbackend/kit/capability"
)

const importChunk = 1000 // entries per transaction

// Import copies entries into a window of a board: UserID, Score, AchievedAt, Attempts and
// LastActiveAt of each, replacing the player's entry if there is one; of two entries of a player
// the later one is kept. It works in chunks, each durable by itself, and updates the counts at the
// end, as [Leaderboard.Rebuild] does; until then ranks do not include the copied entries. After a
// failure the whole import can be repeated. The bounds of the board do not apply, those of
// [Submission] do; instants are of the years 1970 to 9999. Refuses with leaderboard/board_not_found
// for a window that cannot have existed, with kit/invalid_request, and as [Leaderboard.Submit]
// does.
func (l *Leaderboard) Import(ctx context.Context, in View, entries iter.Seq[Entry]) (Report, error) {
	v, err := l.view(ctx, in)
	if err == nil && v.closed && (v.openedAt > l.host.DB.Now(ctx).UnixMilli() ||
		v.openedAt != v.board.openedAt(capability.Millis(v.openedAt).Time)) {
		err = ErrBoardNotFound
	}
	if err != nil {
		return Report{}, err
	}
	rows := make(map[string][6]any, importChunk) // by user id
	flush := func() error {
		err := l.host.DB.InTx(ctx, func(ctx context.Context) error {
			return l.store.copyIn(ctx, v, slices.AppendSeq([][6]any{}, maps.Values(rows)))
		})
		clear(rows)
		return err
	}
	for e := range entries {
		if err := checkEntry(e); err != nil {
			return Report{}, err
		}
		key, active := v.sign()*e.Score, int64(0)
		if !e.LastActiveAt.IsZero() {
			active = e.LastActiveAt.UnixMilli()
		}
		rows[e.UserID] = [6]any{e.UserID, key, bucketOf(key), e.AchievedAt.UnixMilli(), e.Attempts, active}
		if len(rows) == importChunk {
			if err := flush(); err != nil {
				return Report{}, err
			}
		}
	}
	if err := flush(); err != nil {
		return Report{}, err
	}
	return l.Rebuild(ctx, in)
}

// checkEntry checks the bounds of an imported entry. A place before 1970 would be before the first
// range of its bucket.
func checkEntry(e Entry) error {
	if err := capability.CheckUserID(e.UserID); err != nil {
		return err
	}
	switch {
	case !inRange(e.Score):
		return ErrScoreRejected
	case !datable(e.AchievedAt):
		return capability.ErrInvalidRequest.Saying("achievedAt is an instant of the years 1970 to 9999.")
	case !e.LastActiveAt.IsZero() && !datable(e.LastActiveAt):
		return capability.ErrInvalidRequest.Saying("lastActiveAt is an instant of the years 1970 to 9999.")
	case e.Attempts < 0:
		return capability.ErrInvalidRequest.Saying("attempts is not negative.")
	}
	return nil
}

func datable(t capability.Time) bool {
	year := t.UTC().Year()
	return 1970 <= year && year <= 9999
}
