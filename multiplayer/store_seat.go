package multiplayer

import (
	"context"

	"github.com/kitbackend/kit/database"
)

// lockUser has the transactions that give one user a seat follow each other.
// SQLite has one writer.
func (s store) lockUser(ctx context.Context, userID string) error {
	if s.db.Dialect() == database.SQLite {
		return nil
	}
	_, err := s.db.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, "multiplayer "+userID)
	return err
}

var setSeats = `INSERT INTO multiplayer_seat (user_id, session_id, live) SELECT v.value, $2, $3
	FROM /*pg jsonb_array_elements_text($1::jsonb) AS v (value) --*/ json_each($1) AS v
	WHERE true ON CONFLICT (user_id, session_id) DO UPDATE SET live = excluded.live`

// setSeats notes that users have a seat, or no longer do.
func (s store) setSeats(ctx context.Context, sessionID string, users []string, live bool) error {
	if len(users) == 0 {
		return nil
	}
	_, err := s.db.Exec(ctx, setSeats, database.List(users), sessionID, live)
	return err
}

// seat returns whether a user's seat in a session is live; found is false for a
// user who never had one.
func (s store) seat(ctx context.Context, sessionID, userID string) (live, found bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (live bool, err error) { return live, row.Scan(&live) },
		`SELECT live FROM multiplayer_seat WHERE user_id = $2 AND session_id = $1`, sessionID, userID)
}

// countSeats counts a user's seats in sessions that are not over, up to a limit.
func (s store) countSeats(ctx context.Context, userID string, limit int) (n int, err error) {
	n, _, err = database.Get(ctx, s.db, func(row database.Scanner) (n int, err error) { return n, row.Scan(&n) },
		`SELECT count(*) FROM (SELECT 1 FROM multiplayer_seat AS s JOIN multiplayer_session AS m ON m.id = s.session_id
			WHERE s.user_id = $1 AND s.live AND m.ended_at = 0 LIMIT $2) AS seats`, userID, limit)
	return n, err
}

// running lists the sessions below an id that are not over and in which a user
// has a seat, the newest first.
func (s store) running(ctx context.Context, userID, below string, limit int) ([]*session, error) {
	return database.All(ctx, s.db, scanSession, `SELECT `+columns+` FROM multiplayer_session AS m
		JOIN multiplayer_seat AS s ON m.id = s.session_id
		WHERE s.user_id = $1 AND s.live AND s.session_id < $2 AND m.ended_at = 0 ORDER BY s.session_id DESC LIMIT $3`,
		userID, below, limit)
}
