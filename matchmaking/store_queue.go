package matchmaking

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bulk"
)

const playerColumns = `game, user_id, ticket_id, party, region, state, skill, skill_at, enqueued_at, seen_at, match_id, matched_at`

func scanPlayer(row database.Scanner) (p player, err error) {
	return p, row.Scan(&p.game, &p.userID, &p.ticketID, &p.party, &p.region, &p.state, &p.skill, &p.skillAt,
		&p.enqueuedAt, &p.seenAt, &p.matchID, &p.matchedAt)
}

func (s store) player(ctx context.Context, game, userID string) (player, bool, error) {
	return database.Get(ctx, s.db, scanPlayer, `SELECT `+playerColumns+` FROM matchmaking_ticket WHERE game = $1 AND user_id = $2`, game, userID)
}

var lockPlayers = `SELECT ` + playerColumns + ` FROM matchmaking_ticket WHERE game = $1 AND user_id ` + database.InList(2) +
	` ORDER BY user_id ` + database.ForUpdate

// lockPlayers locks and returns the existing rows of the players.
func (s store) lockPlayers(ctx context.Context, game string, userIDs []string) ([]player, error) {
	return database.All(ctx, s.db, scanPlayer, lockPlayers, game, database.List(userIDs))
}

// enqueue writes the row of a new ticket, which replaces the ticket had, "" for none. It returns
// false if the player has another one by now. The last match is kept, to avoid a rematch.
func (s store) enqueue(ctx context.Context, p player, had string) (written bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO matchmaking_ticket (`+playerColumns+`)
		VALUES ($1, $2, $3, $4, $5, 'waiting', $6, $7, $8, $9, '', 0)
		ON CONFLICT (game, user_id) DO UPDATE SET ticket_id = excluded.ticket_id, party = excluded.party,
			region = excluded.region, state = 'waiting', skill = excluded.skill, skill_at = excluded.skill_at,
			enqueued_at = excluded.enqueued_at, seen_at = excluded.seen_at
		WHERE matchmaking_ticket.ticket_id = $10`,
		p.game, p.userID, p.ticketID, p.party, p.region, p.skill, p.skillAt, p.enqueuedAt, p.seenAt, had)
	return n == 1, err
}

// seen records a sign of life for a whole ticket.
func (s store) seen(ctx context.Context, p player, now int64) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_ticket SET seen_at = $4
		WHERE game = $1 AND user_id = $2 AND ticket_id = $3 AND state = 'waiting'`, p.game, p.userID, p.ticketID, now)
	return err
}

// leave removes a waiting player and the player's party.
func (s store) leave(ctx context.Context, game, userID string) (left bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE matchmaking_ticket SET state = 'left' WHERE game = $1 AND state = 'waiting' AND (enqueued_at, ticket_id) =
		(SELECT t.enqueued_at, t.ticket_id FROM matchmaking_ticket AS t WHERE t.game = $1 AND t.user_id = $2 AND t.state = 'waiting')`,
		game, userID)
	return n > 0, err
}

const selectMatch = `SELECT id, game, region, players, backfill, state, session_id FROM matchmaking_match WHERE id = $1`

// match returns a match with the states of the API.
func (s store) match(ctx context.Context, matchID string) (Match, bool, error) {
	match, _, found, err := s.readMatch(ctx, selectMatch, matchID)
	return match, found, err
}

// lockMatch also returns the session of the offered seats that the match takes, if any.
func (s store) lockMatch(ctx context.Context, matchID string) (match Match, backfill string, found bool, err error) {
	return s.readMatch(ctx, selectMatch+` `+database.ForUpdate, matchID)
}

func (s store) readMatch(ctx context.Context, query, matchID string) (match Match, backfill string, found bool, err error) {
	match, found, err = database.Get(ctx, s.db, func(row database.Scanner) (m Match, err error) {
		var players string
		if err = row.Scan(&m.ID, &m.GameKey, &m.Region, &players, &backfill, &m.State, &m.SessionID); err != nil {
			return m, err
		}
		if m.State == "formed" {
			m.State = Matched
		}
		return m, json.Unmarshal([]byte(players), &m.Players)
	}, query, matchID)
	return match, backfill, found, err
}

// offer puts the free seats of a session into the queue, or changes their number. The waiting time
// starts anew if it replaces an offer that has ended.
func (s store) offer(ctx context.Context, b Backfill, now, until int64) error {
	_, err := s.db.Exec(ctx, `INSERT INTO matchmaking_backfill (session_id, game, region, seats, skill, enqueued_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (session_id) DO UPDATE SET game = excluded.game, region = excluded.region, seats = excluded.seats,
			skill = excluded.skill, expires_at = excluded.expires_at,
			enqueued_at = CASE WHEN matchmaking_backfill.expires_at > $6 THEN matchmaking_backfill.enqueued_at ELSE $6 END`,
		b.SessionID, b.GameKey, b.Region, b.Seats, b.Skill, now, until)
	return err
}

func (s store) withdraw(ctx context.Context, sessionID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM matchmaking_backfill WHERE session_id = $1`, sessionID)
	return err
}

var waitingPlayers = `SELECT user_id, ticket_id, party, region, skill, skill_at, enqueued_at, seen_at, match_id, ` +
	database.Text(`rowid`, `0`) + ` FROM matchmaking_ticket
	WHERE game = $1 AND state = 'waiting' ORDER BY enqueued_at, ticket_id LIMIT $2`

// waitingPlayers lists a queue, the longest waiting first, the players of a ticket next to each
// other. It reads only the columns that a sweep needs; rowid is what SQLite finds a row by fastest.
func (s store) waitingPlayers(ctx context.Context, game string, limit int) ([]player, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (p player, err error) {
		p.game = game
		return p, row.Scan(&p.userID, &p.ticketID, &p.party, &p.region, &p.skill, &p.skillAt, &p.enqueuedAt, &p.seenAt, &p.matchID, &p.rowid)
	}, waitingPlayers, game, limit)
}

// offers lists the free seats of a game as tickets.
func (s store) offers(ctx context.Context, game string, now int64, limit int) ([]ticket, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (t ticket, err error) {
		err = row.Scan(&t.session, &t.region, &t.size, &t.skill, &t.since)
		t.id = t.session
		return t, err
	}, `SELECT session_id, region, seats, skill, enqueued_at FROM matchmaking_backfill
		WHERE game = $1 AND expires_at > $2 ORDER BY enqueued_at LIMIT $3`, game, now, limit)
}

// blockedPairs returns the pairs of players that must not meet: all, or, where there are many, those who wait.
func (s store) blockedPairs(ctx context.Context, game string) (map[[2]string]bool, error) {
	pairs, err := s.pairs(ctx, someBlocked)
	if err == nil && len(pairs) == fewBlocked {
		pairs, err = s.pairs(ctx, waitingBlocked, game)
	}
	blocked := make(map[[2]string]bool, len(pairs))
	for _, pair := range pairs {
		blocked[pair] = true
	}
	return blocked, err
}

func (s store) pairs(ctx context.Context, query string, args ...any) ([][2]string, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (pair [2]string, err error) {
		return pair, row.Scan(&pair[0], &pair[1])
	}, query, args...)
}

// fewBlocked is how many pairs are read faster than the friends of all who wait.
const fewBlocked = 1000

var someBlocked = fmt.Sprintf(`SELECT low, high FROM matchmaking_friend WHERE low_blocks OR high_blocks LIMIT %d`, fewBlocked)

// SQLite keeps the order of a CROSS JOIN.
const waitingBlocked = `SELECT f.low, f.high FROM matchmaking_ticket AS a CROSS JOIN matchmaking_friend AS f CROSS JOIN matchmaking_ticket AS b
	WHERE a.game = $1 AND a.state = 'waiting' AND f.low = a.user_id AND (f.low_blocks OR f.high_blocks)
		AND b.game = $1 AND b.user_id = f.high AND b.state = 'waiting'`

// rejuvenate resets the times of tickets that were written by a clock that was ahead: until the
// clock caught up they would neither widen nor expire. These are the tickets seen after the given
// instant; enqueued_at is checked separately, because a party shares it.
func (s store) rejuvenate(ctx context.Context, game string, after, now int64) (n int64, err error) {
	return s.db.Exec(ctx, `UPDATE matchmaking_ticket SET seen_at = $3, enqueued_at = CASE WHEN enqueued_at > $2 THEN $3 ELSE enqueued_at END
		WHERE game = $1 AND state = 'waiting' AND seen_at > $2`, game, after, now)
}

// expire removes the tickets without a sign of life since an instant whose players have no presence
// socket.
func (s store) expire(ctx context.Context, game string, before, now int64) (n int64, err error) {
	return s.db.Exec(ctx, `UPDATE matchmaking_ticket SET state = 'left' WHERE game = $1 AND state = 'waiting' AND ticket_id IN (
		SELECT t.ticket_id FROM matchmaking_ticket AS t WHERE t.game = $1 AND t.state = 'waiting' AND t.seen_at < $2 AND NOT EXISTS (
			SELECT 1 FROM matchmaking_presence AS p JOIN matchmaking_node AS n ON n.id = p.node_id
			WHERE p.user_id = t.user_id AND n.lease_until > $3))`, game, before, now)
}

// setSkill stores a skill that was read again.
func (s store) setSkill(ctx context.Context, p player) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_ticket SET skill = $3, skill_at = $4 WHERE game = $1 AND user_id = $2`,
		p.game, p.userID, p.skill, p.skillAt)
	return err
}

// isWaiting reports whether there is anything to sweep.
func (s store) isWaiting(ctx context.Context, game string) (bool, error) {
	n, err := s.count(ctx, `SELECT (SELECT count(*) FROM (SELECT 1 FROM matchmaking_ticket WHERE game = $1 AND state = 'waiting' LIMIT 1) AS t)
		+ (SELECT count(*) FROM (SELECT 1 FROM matchmaking_match WHERE game = $1 AND state = 'forming' LIMIT 1) AS m)`, game)
	return n > 0, err
}

// lead takes the lease of a game for a node and returns its epoch, or 0 if a sweep of this or
// another node has it. A lease that ends later than possible was written before the clock went
// back.
func (s store) lead(ctx context.Context, game, nodeID string, now, until int64) (epoch int64, err error) {
	if _, err := s.db.Exec(ctx, `INSERT INTO matchmaking_sweeper (game, node_id, epoch, lease_until) VALUES ($1, '', 0, 0)
		ON CONFLICT DO NOTHING`, game); err != nil {
		return 0, err
	}
	n, _, err := database.Get(ctx, s.db, scanCount, `UPDATE matchmaking_sweeper SET node_id = $2, epoch = epoch + 1, lease_until = $4
		WHERE game = $1 AND (lease_until <= $3 OR lease_until > $4 + ($4 - $3)) RETURNING epoch`, game, nodeID, now, until)
	return n, err
}

// holds reports whether a lease still has this epoch, and locks it until the transaction ends.
func (s store) holds(ctx context.Context, game string, epoch int64) (bool, error) {
	_, found, err := database.Get(ctx, s.db, scanCount, `SELECT epoch FROM matchmaking_sweeper
		WHERE game = $1 AND epoch = $2 `+database.ForUpdate, game, epoch)
	return found, err
}

// renew extends a lease that is still held.
func (s store) renew(ctx context.Context, game string, epoch, until int64) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_sweeper SET lease_until = $3
		WHERE game = $1 AND epoch = $2 AND lease_until > 0 AND lease_until < $3`, game, epoch, until)
	return err
}

func (s store) release(ctx context.Context, game string, epoch int64) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_sweeper SET lease_until = 0 WHERE game = $1 AND epoch = $2`, game, epoch)
	return err
}

// claim is one player's place in a match.
type claim struct {
	match, user, ticket string
	rowid               int64
}

// found is a match as written.
type found struct {
	id, region, players, backfill string // the players a JSON list
}

// claim takes players out of the queue who still wait with this ticket, and returns their number:
// one by one on SQLite, which is fastest there, by the number of the row instead of its key, and by
// one statement on PostgreSQL, to save round trips.
func (s store) claim(ctx context.Context, game string, claims []claim, now int64) (n int64, err error) {
	if s.db.Dialect() == database.PostgreSQL {
		users, tickets, matches := make([]string, len(claims)), make([]string, len(claims)), make([]string, len(claims))
		for i, c := range claims {
			users[i], tickets[i], matches[i] = c.user, c.ticket, c.match
		}
		return s.db.Exec(ctx, `UPDATE matchmaking_ticket SET state = 'matched', match_id = v.m, matched_at = $2
			FROM unnest($3::text[], $4::text[], $5::text[]) AS v (u, t, m)
			WHERE game = $1 AND user_id = v.u AND ticket_id = v.t AND state = 'waiting'`, game, now, users, tickets, matches)
	}
	for _, c := range claims {
		rows, err := s.db.Exec(ctx, `UPDATE matchmaking_ticket SET state = 'matched', match_id = $4, matched_at = $5
			WHERE rowid = $1 AND user_id = $2 AND ticket_id = $3 AND state = 'waiting'`, c.rowid, c.user, c.ticket, c.match, now)
		if err != nil {
			return 0, err
		}
		n += rows
	}
	return n, nil
}

var countClaimed = `SELECT match_id, count(*) FROM matchmaking_ticket WHERE game = $1 AND state = 'matched'
	AND user_id ` + database.InList(2) + ` GROUP BY match_id`

// claimed counts these players by match.
func (s store) claimed(ctx context.Context, game string, users []string) (map[string]int, error) {
	type count struct {
		id string
		n  int
	}
	counts, err := database.All(ctx, s.db, func(row database.Scanner) (c count, err error) {
		return c, row.Scan(&c.id, &c.n)
	}, countClaimed, game, database.List(users))
	m := make(map[string]int, len(counts))
	for _, c := range counts {
		m[c.id] = c.n
	}
	return m, err
}

var putBack = `UPDATE matchmaking_ticket SET state = 'waiting', match_id = '', matched_at = 0
	WHERE game = $1 AND state = 'matched' AND match_id = $2 AND user_id ` + database.InList(3) + `
	AND ticket_id NOT IN (SELECT t.ticket_id FROM matchmaking_ticket AS t WHERE t.game = $1 AND t.user_id = $4)`

// putBack lets the players of a failed match wait again, except those who share a ticket with the
// player at fault, if there is one.
func (s store) putBack(ctx context.Context, game, matchID string, users []string, fault string) error {
	_, err := s.db.Exec(ctx, putBack, game, matchID, database.List(users), fault)
	return err
}

// leftIn returns those of the players who still have the ticket of a match.
func (s store) leftIn(ctx context.Context, game, matchID string, users []string) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT user_id FROM matchmaking_ticket
		WHERE game = $1 AND state = 'matched' AND match_id = $2 AND user_id `+database.InList(3), game, matchID, database.List(users))
}

var insertMatches = bulk.New("matchmaking_match", []string{"id TEXT", "game TEXT", "region TEXT", "players TEXT",
	"backfill TEXT", "state TEXT", "session_id TEXT", "created_at BIGINT", "tried_at BIGINT"}, "")

func (s store) insertMatches(ctx context.Context, game string, matches []found, now int64) error {
	rows := make([][]any, len(matches))
	for i, m := range matches {
		rows[i] = []any{m.id, game, m.region, m.players, m.backfill, "forming", "", now, now}
	}
	_, err := insertMatches.Write(ctx, s.db, rows)
	return err
}

// takeSeats reduces an offer by the seats of a match; it returns false if the offer is not large
// enough any more. An offer that is used up keeps its expiry as a negative number, so that
// giveSeats can restore it.
func (s store) takeSeats(ctx context.Context, sessionID string, n int) (bool, error) {
	rows, err := s.db.Exec(ctx, `UPDATE matchmaking_backfill SET expires_at = -expires_at
		WHERE session_id = $1 AND seats = $2 AND expires_at > 0`, sessionID, n)
	if err != nil || rows == 1 {
		return rows == 1, err
	}
	rows, err = s.db.Exec(ctx, `UPDATE matchmaking_backfill SET seats = seats - $2
		WHERE session_id = $1 AND seats > $2 AND expires_at > 0`, sessionID, n)
	return rows == 1, err
}

// giveSeats reverts takeSeats.
func (s store) giveSeats(ctx context.Context, sessionID string, n int) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_backfill SET seats = CASE WHEN expires_at > 0 THEN seats ELSE 0 END + $2,
		expires_at = abs(expires_at) WHERE session_id = $1`, sessionID, n)
	return err
}

// stale lists the matches that no job has tried to form since an instant, and marks them as tried
// now.
func (s store) stale(ctx context.Context, game string, before, now int64, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `UPDATE matchmaking_match SET tried_at = $3 WHERE id IN (
		SELECT id FROM matchmaking_match WHERE game = $1 AND state = 'forming' AND tried_at <= $2 ORDER BY tried_at LIMIT $4
		 `+database.SkipLocked+`) RETURNING id`, game, before, now, limit)
}

// settleMatch ends the forming of a match; it does nothing if that has ended.
func (s store) settleMatch(ctx context.Context, matchID, state, sessionID string) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_match SET state = $2, session_id = $3 WHERE id = $1 AND state = 'forming'`, matchID, state, sessionID)
	return err
}

func (s store) countWaiting(ctx context.Context) (int64, error) {
	return s.count(ctx, `SELECT count(*) FROM matchmaking_ticket WHERE state = 'waiting'`)
}

func (s store) countForming(ctx context.Context) (int64, error) {
	return s.count(ctx, `SELECT count(*) FROM matchmaking_match WHERE state = 'forming'`)
}
