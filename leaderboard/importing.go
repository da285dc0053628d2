package leaderboard

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/kitbackend/kit/capability"
)

const importChunk = 1000 // entries a transaction

// Import copies entries from elsewhere into a window of a board: UserID, Score,
// AchievedAt, Attempts and LastActiveAt of each, in place of the player's entry
// if there is one. It works in chunks, each durable by itself, and counts at
// the end, as [Leaderboard.Rebuild] does; until then ranks do not know of what
// was copied. After a failure it may simply run again. Bounds of the board do
// not apply, those of [Submission] do. Refuses with leaderboard/board_not_found
// for a window that could not be, and as [Leaderboard.Submit] does.
func (l *Leaderboard) Import(ctx context.Context, in View, entries iter.Seq[Entry]) (Report, error) {
	v, err := l.view(ctx, in)
	if err == nil && v.closed && v.openedAt != v.schedule.Latest(capability.Millis(v.openedAt).Time).UnixMilli() {
		err = ErrBoardNotFound
	}
	if err != nil {
		return Report{}, err
	}
	rows := make([][6]any, 0, importChunk)
	flush := func() error {
		err := l.host.DB.InTx(ctx, func(ctx context.Context) error { return l.store.copyIn(ctx, v, rows) })
		rows = rows[:0]
		return err
	}
	for e := range entries {
		if err := checkUser(e.UserID); err != nil {
			return Report{}, err
		}
		if !inRange(e.Score) {
			return Report{}, ErrScoreRejected
		}
		key, active := v.sign()*e.Score, int64(0)
		if !e.LastActiveAt.IsZero() {
			active = e.LastActiveAt.UnixMilli()
		}
		rows = append(rows, [6]any{e.UserID, key, bucketOf(key), e.AchievedAt.UnixMilli(), e.Attempts, active})
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

// copyIn writes entries without counting them.
func (s store) copyIn(ctx context.Context, v view, rows [][6]any) error {
	if err := s.prepare(ctx, v.board, v.openedAt); err != nil {
		return err
	}
	window, _, err := s.windowID(ctx, v.Key, v.openedAt)
	if err != nil {
		return err
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `INSERT INTO leaderboard_entry
			(window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank)
		SELECT $1, value->>0, CAST(value->>1 AS BIGINT), CAST(value->>2 AS BIGINT), CAST(value->>3 AS BIGINT),
			COALESCE((SELECT h.hidden FROM leaderboard_hidden h WHERE h.board = $2 AND h.user_id = value->>0), 0),
			CAST(value->>4 AS BIGINT), CAST(value->>5 AS BIGINT), 0
		FROM /*pg jsonb_array_elements($3::jsonb) --*/ json_each($3)
		WHERE true`+onEntry, window, v.Key, string(list))
	return err
}
