package multiplayer

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// lockUser serializes the transactions that give one user a seat.
func (s store) lockUser(ctx context.Context, userID string) error {
	return s.db.Lock(ctx, "multiplayer "+userID)
}

var setSeats = `INSERT INTO multiplayer_seat (user_id, session_id, live) SELECT v.value, $2, $3
	FROM ` + database.Text(`json_each($1) AS v`, `jsonb_array_elements_text($1::jsonb) AS v (value)`) + `
	WHERE true ON CONFLICT (user_id, session_id) DO UPDATE SET live = excluded.live`

// setSeats records whether users have a seat or no longer do.
func (s store) setSeats(ctx context.Context, sessionID string, users []string, live bool) error {
	if len(users) == 0 {
		return nil
	}
	_, err := s.db.Exec(ctx, setSeats, database.List(users), sessionID, live)
	return err
}

// seat reports whether a user's seat in a session is live; found is false for a user who never had
// one.
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

// sessionsOf lists the sessions after an id in which a user has or had a seat.
func (s store) sessionsOf(ctx context.Context, userID, after string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT session_id FROM multiplayer_seat WHERE user_id = $1 AND session_id > $2
		ORDER BY session_id LIMIT $3`, userID, after, limit)
}

// actionsOf lists a user's actions in a session after a version.
func (s store) actionsOf(ctx context.Context, id, userID string, after int64, limit int) ([]actionRecord, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (a actionRecord, err error) {
		var at int64
		var data string
		err = row.Scan(&a.Version, &a.Kind, &data, &at)
		a.SessionID, a.At = id, capability.Millis(at)
		if data != "" {
			a.Data = json.RawMessage(data)
		}
		return a, err
	}, `SELECT version, kind, data, at FROM multiplayer_action WHERE session_id = $1 AND actor = $2 AND version > $3
		ORDER BY version LIMIT $4`, id, userID, after, limit)
}

// strip leaves of a session that is over who played and how it ended. The version changes, so that
// no node serves the state that it has cached.
var strip = `UPDATE multiplayer_session SET state = NULL, creator = '', former = '[]', version = version + 1 WHERE id ` + database.InList(1)

// forget removes a user's seats in sessions that are over, or that the user has left, and strips the
// sessions that are over. It returns the number of seats removed and sessions stripped.
func (s store) forget(ctx context.Context, userID string, ids []string) (removed int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		over, err := database.All(ctx, s.db, scanText, `SELECT id FROM multiplayer_session WHERE ended_at > 0 AND id `+database.InList(1)+
			` ORDER BY id `+database.ForUpdate, database.List(ids))
		if err != nil {
			return err
		}
		if err := s.withoutLogs(ctx, over, strip); err != nil {
			return err
		}
		seats, err := s.db.Exec(ctx, `DELETE FROM multiplayer_seat WHERE user_id = $1 AND NOT live AND session_id `+database.InList(2),
			userID, database.List(ids))
		removed = seats + int64(len(over))
		return err
	})
	return removed, err
}

// running lists the sessions below an id that are not over and in which a user
// has a seat, the newest first.
func (s store) running(ctx context.Context, userID, below string, limit int) ([]*session, error) {
	return database.All(ctx, s.db, scanSession, `SELECT `+columns+` FROM multiplayer_session AS m
		JOIN multiplayer_seat AS s ON m.id = s.session_id
		WHERE s.user_id = $1 AND s.live AND s.session_id < $2 AND m.ended_at = 0 ORDER BY s.session_id DESC LIMIT $3`,
		userID, below, limit)
}
