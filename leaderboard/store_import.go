package leaderboard

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/database"
)

// copyIn writes entries without updating the counts.
func (s store) copyIn(ctx context.Context, v view, rows [][6]any) error {
	if err := s.prepare(ctx, v.board, v.openedAt); err != nil {
		return err
	}
	window, _, err := s.windowID(ctx, v.Key, v.openedAt)
	if err != nil {
		return err
	}
	if err := s.markRanked(ctx, window, 0); err != nil {
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
		FROM `+database.Text(`json_each($3)`, `jsonb_array_elements($3::jsonb)`)+`
		WHERE true`+onEntry, window, v.Key, string(list))
	return err
}
