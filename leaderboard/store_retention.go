package leaderboard

import (
	"context"

	"github.com/kitbackend/kit/database"
)

func (s store) halfSwept(ctx context.Context, board string) ([]int64, error) {
	return database.All(ctx, s.db, scanInt, `SELECT opened_at FROM leaderboard_window
		WHERE board = $1 AND swept ORDER BY opened_at DESC LIMIT $2`, board, sweepChunk)
}

// windowsBefore returns when the windows opened before an instant, the newest first, without the
// first few. If the stored schedule is not the board's, the computed ends would be wrong, so it
// returns none.
func (s store) windowsBefore(ctx context.Context, b *board, before int64, without int) ([]int64, error) {
	return database.All(ctx, s.db, scanInt, `SELECT opened_at FROM leaderboard_window
		WHERE board = $1 AND opened_at < $2 AND NOT swept
			AND EXISTS (SELECT 1 FROM leaderboard_board WHERE key = $1 AND schedule = $5)
		ORDER BY opened_at DESC LIMIT $3 OFFSET $4`, b.Key, before, sweepChunk, without, b.definition().Window)
}

// markSwept makes a window unknown to callers; ok is false if there is none.
func (s store) markSwept(ctx context.Context, board string, openedAt int64) (id int64, ok bool, err error) {
	return database.Get(ctx, s.db, scanInt, `UPDATE leaderboard_window SET swept = TRUE
		WHERE board = $1 AND opened_at = $2 RETURNING id`, board, openedAt)
}

// windowChunks are the statements that delete the rows of a window, $2 at a time.
var windowChunks = []string{
	`DELETE FROM leaderboard_entry WHERE window_id = $1 AND user_id IN
		(SELECT user_id FROM leaderboard_entry WHERE window_id = $1 LIMIT $2)`,
	`DELETE FROM leaderboard_count WHERE window_id = $1 AND (level, bucket) IN
		(SELECT level, bucket FROM leaderboard_count WHERE window_id = $1 LIMIT $2)`,
	`DELETE FROM leaderboard_range WHERE window_id = $1 AND (key, achieved_at, user_id) IN
		(SELECT key, achieved_at, user_id FROM leaderboard_range WHERE window_id = $1 LIMIT $2)`,
}

// removeChunk runs one of windowChunks, and returns the number of deleted rows.
func (s store) removeChunk(ctx context.Context, chunk string, window int64) (deleted int64, err error) {
	return s.db.Exec(ctx, chunk, window, sweepChunk)
}

// forgetWindow deletes a window without rows.
func (s store) forgetWindow(ctx context.Context, id int64) error {
	_, err := s.db.Exec(ctx, `DELETE FROM leaderboard_window WHERE id = $1`, id)
	return err
}
