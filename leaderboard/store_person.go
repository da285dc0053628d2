package leaderboard

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
)

func scanString(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// boardsOf lists the boards that have a row, configured or not.
func (s store) boardsOf(ctx context.Context) ([]string, error) {
	return database.All(ctx, s.db, scanString, `SELECT key FROM leaderboard_board ORDER BY key`)
}

// entriesOfUser lists the entries of a user in the windows of a board.
func (s store) entriesOfUser(ctx context.Context, board, userID string) ([]record, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r record, err error) {
		var openedAt, sign, key, achievedAt, hidden, active int64
		err = row.Scan(&openedAt, &sign, &key, &achievedAt, &hidden, &r.Attempts, &active)
		r.Board, r.Score, r.AchievedAt, r.Hidden = board, sign*key, capability.Millis(achievedAt), hidden != 0
		if openedAt != 0 {
			r.Window = windowKey(openedAt)
		}
		r.LastActiveAt = optional.Time(active)
		return r, err
	}, `SELECT w.opened_at, w.sign, e.key, e.achieved_at, e.hidden, e.attempts, e.last_active_at FROM leaderboard_window w
		JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = $2 WHERE w.board = $1 ORDER BY w.id`, board, userID)
}

func (s store) isHidden(ctx context.Context, board, userID string) (bool, error) {
	_, hidden, err := database.Get(ctx, s.db, scanInt, `SELECT hidden FROM leaderboard_hidden WHERE board = $1 AND user_id = $2`, board, userID)
	return hidden, err
}

// eraseUser removes a user from every window of a board, and returns the number of rows.
func (s store) eraseUser(ctx context.Context, board, userID string) (n int64, err error) {
	if _, err := s.lock(ctx, board); err != nil {
		return 0, err
	}
	entries, err := database.All(ctx, s.db, scanWindowEntry, `SELECT `+windowEntryColumns+` FROM leaderboard_window w
		JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = $2 WHERE w.board = $1 ORDER BY w.id`, board, userID)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if err := s.removeEntry(ctx, e); err != nil {
			return 0, err
		}
	}
	hidden, err := s.db.Exec(ctx, `DELETE FROM leaderboard_hidden WHERE board = $1 AND user_id = $2`, board, userID)
	return int64(len(entries)) + hidden, err
}
