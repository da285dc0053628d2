package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// roomRecord is an exported room.
type roomRecord struct {
	SessionID string `json:"sessionId"`
	GameKey   string `json:"gameKey"`
	// Host reports whether the user opened the room.
	Host      bool            `json:"host"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

// ticketRecord is an exported ticket.
type ticketRecord struct {
	GameKey    string          `json:"gameKey"`
	Region     string          `json:"region"`
	State      string          `json:"state"`
	EnqueuedAt capability.Time `json:"enqueuedAt"`
}

// roomsOf lists the rooms that a user opened or joined.
func (s store) roomsOf(ctx context.Context, userID string) ([]roomRecord, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r roomRecord, err error) {
		var expires int64
		err = row.Scan(&r.SessionID, &r.GameKey, &r.Host, &expires)
		r.ExpiresAt = capability.Millis(expires)
		return r, err
	}, `SELECT session_id, game, TRUE, expires_at FROM matchmaking_room WHERE host = $1
		UNION ALL SELECT r.session_id, r.game, FALSE, r.expires_at FROM matchmaking_guest AS g
			JOIN matchmaking_room AS r ON r.session_id = g.session_id WHERE g.user_id = $1
		ORDER BY session_id`, userID)
}

// games lists the games that have tickets, by index seeks from one game to the next.
func (s store) games(ctx context.Context) ([]string, error) {
	return database.All(ctx, s.db, scanText, `WITH RECURSIVE held (game) AS (
		SELECT MIN(game) FROM matchmaking_ticket
		UNION ALL SELECT (SELECT MIN(t.game) FROM matchmaking_ticket AS t WHERE t.game > held.game) FROM held WHERE held.game IS NOT NULL)
		SELECT game FROM held WHERE game IS NOT NULL`)
}

func (s store) ticketsOf(ctx context.Context, userID string) ([]ticketRecord, error) {
	games, err := s.games(ctx)
	if err != nil {
		return nil, err
	}
	return database.All(ctx, s.db, func(row database.Scanner) (t ticketRecord, err error) {
		var at int64
		err = row.Scan(&t.GameKey, &t.Region, &t.State, &at)
		t.EnqueuedAt = capability.Millis(at)
		return t, err
	}, `SELECT game, region, state, enqueued_at FROM matchmaking_ticket WHERE user_id = $1 AND game `+database.InList(2)+` ORDER BY game`,
		userID, database.List(games))
}

// matchesOf returns the matches that have claimed a ticket of the user; lock may be
// [database.ForUpdate].
func (s store) matchesOf(ctx context.Context, userID, lock string) (matches []string, err error) {
	games, err := s.games(ctx)
	if err != nil {
		return nil, err
	}
	places, err := database.All(ctx, s.db, scanPlayer, `SELECT `+playerColumns+` FROM matchmaking_ticket
		WHERE user_id = $1 AND game `+database.InList(2)+` ORDER BY game `+lock, userID, database.List(games))
	for _, p := range places {
		if p.state == "matched" {
			matches = append(matches, p.matchID)
		}
	}
	return matches, err
}

// erase removes all rows about a user and returns their number.
func (s store) erase(ctx context.Context, userID string) (removed int64, err error) {
	games, err := s.games(ctx)
	if err != nil {
		return 0, err
	}
	for _, game := range games { // the whole party leaves the queue
		if _, err := s.leave(ctx, game, userID); err != nil {
			return 0, err
		}
		n, err := s.db.Exec(ctx, `DELETE FROM matchmaking_ticket WHERE game = $1 AND user_id = $2`, game, userID)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	for _, query := range []string{
		`DELETE FROM matchmaking_guest WHERE user_id = $1`,
		`DELETE FROM matchmaking_room WHERE host = $1`,
		`DELETE FROM matchmaking_invite WHERE inviter = $1`,
		`DELETE FROM matchmaking_invite WHERE invitee = $1`,
		`DELETE FROM matchmaking_friend WHERE low = $1`,
		`DELETE FROM matchmaking_friend WHERE high = $1`,
		`DELETE FROM matchmaking_presence WHERE user_id = $1`,
	} {
		n, err := s.db.Exec(ctx, query, userID)
		if err != nil {
			return 0, err
		}
		removed += n
	}
	return removed, nil
}
