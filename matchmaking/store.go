package matchmaking

import (
	"context"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// store is the SQL of matchmaking: rooms, invites and friends here, the queue and presence in files
// of their own. Instants are unix milliseconds.
type store struct{ db *database.DB }

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }
func scanCount(row database.Scanner) (n int64, err error)    { return n, row.Scan(&n) }

// count returns the result of a counting query.
func (s store) count(ctx context.Context, query string, args ...any) (int64, error) {
	n, _, err := database.Get(ctx, s.db, scanCount, query, args...)
	return n, err
}

// lockUsers serializes the transactions that check the limits of a user.
func (s store) lockUsers(ctx context.Context, userIDs ...string) error {
	slices.Sort(userIDs)
	for _, id := range userIDs {
		if err := s.db.Lock(ctx, "matchmaking "+id); err != nil {
			return err
		}
	}
	return nil
}

// room is a row of matchmaking_room.
type room struct {
	sessionID, game, host string
	usesLeft, expiresAt   int64
}

func (s store) insertRoom(ctx context.Context, r room) error {
	_, err := s.db.Exec(ctx, `INSERT INTO matchmaking_room (session_id, game, host, uses_left, expires_at)
		VALUES ($1, $2, $3, $4, $5)`, r.sessionID, r.game, r.host, r.usesLeft, r.expiresAt)
	return err
}

func (s store) countRooms(ctx context.Context, host string, now int64) (int64, error) {
	return s.count(ctx, `SELECT count(*) FROM matchmaking_room WHERE host = $1 AND expires_at > $2`, host, now)
}

// lockRoom returns a room with a valid code, with its row locked.
func (s store) lockRoom(ctx context.Context, sessionID string, now int64) (room, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (r room, err error) {
		return r, row.Scan(&r.sessionID, &r.game, &r.host, &r.usesLeft, &r.expiresAt)
	}, `SELECT session_id, game, host, uses_left, expires_at FROM matchmaking_room
		WHERE session_id = $1 AND expires_at > $2 `+database.ForUpdate, sessionID, now)
}

func (s store) insertGuest(ctx context.Context, sessionID, userID string) (first bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO matchmaking_guest (session_id, user_id) VALUES ($1, $2) ON CONFLICT DO NOTHING`, sessionID, userID)
	return n == 1, err
}

func (s store) setUsesLeft(ctx context.Context, sessionID string, n int64) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_room SET uses_left = $2 WHERE session_id = $1`, sessionID, n)
	return err
}

const inviteColumns = `id, game, inviter, invitee, state, session_id, created_at, expires_at`

func scanInvite(row database.Scanner) (v Invite, err error) {
	var created, expires int64
	err = row.Scan(&v.ID, &v.GameKey, &v.From, &v.To, &v.State, &v.SessionID, &created, &expires)
	v.CreatedAt, v.ExpiresAt = capability.Millis(created), capability.Millis(expires)
	return v, err
}

// waitingInvite returns the pending invite of the same two for the same game. It removes one that
// has expired.
func (s store) waitingInvite(ctx context.Context, v Invite) (Invite, bool, error) {
	if _, err := s.db.Exec(ctx, `DELETE FROM matchmaking_invite
		WHERE inviter = $1 AND invitee = $2 AND game = $3 AND state = 'pending' AND expires_at <= $4`,
		v.From, v.To, v.GameKey, v.CreatedAt.UnixMilli()); err != nil {
		return Invite{}, false, err
	}
	return database.Get(ctx, s.db, scanInvite, `SELECT `+inviteColumns+` FROM matchmaking_invite
		WHERE inviter = $1 AND invitee = $2 AND game = $3 AND state = 'pending'`, v.From, v.To, v.GameKey)
}

func (s store) insertInvite(ctx context.Context, v Invite) (added bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO matchmaking_invite (`+inviteColumns+`) VALUES ($1, $2, $3, $4, $5, '', $6, $7)
		ON CONFLICT (inviter, invitee, game) WHERE state = 'pending' DO NOTHING`,
		v.ID, v.GameKey, v.From, v.To, v.State, v.CreatedAt.UnixMilli(), v.ExpiresAt.UnixMilli())
	return n == 1, err
}

// sentInvites counts the pending invites of a user, and those of them to one other user.
func (s store) sentInvites(ctx context.Context, from, to string, now int64) (sent, here int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*), COALESCE(sum(CASE WHEN invitee = $2 THEN 1 ELSE 0 END), 0) FROM matchmaking_invite
		WHERE inviter = $1 AND state = 'pending' AND expires_at > $3`, from, to, now).Scan(&sent, &here)
	return sent, here, err
}

// receivedInvites counts the pending invites to a user, from friends or from others.
func (s store) receivedInvites(ctx context.Context, to string, friends bool, now int64) (int64, error) {
	return s.count(ctx, `SELECT count(*) FROM matchmaking_invite AS v WHERE v.invitee = $1 AND v.state = 'pending' AND v.expires_at > $2
		AND EXISTS (SELECT 1 FROM matchmaking_friend AS f WHERE f.state = 'accepted'
			AND (f.low = v.invitee AND f.high = v.inviter OR f.high = v.invitee AND f.low = v.inviter)) = $3`, to, now, friends)
}

// invitesOf lists a user's invites with ids below one, newest first.
func (s store) invitesOf(ctx context.Context, userID, below string, now int64, limit int) ([]Invite, error) {
	return database.All(ctx, s.db, scanInvite, `
		SELECT `+inviteColumns+` FROM matchmaking_invite WHERE invitee = $1 AND id < $2 AND expires_at > $3
		UNION ALL
		SELECT `+inviteColumns+` FROM matchmaking_invite WHERE inviter = $1 AND id < $2 AND expires_at > $3
		ORDER BY id DESC LIMIT $4`, userID, below, now, limit)
}

var selectWaiting = `SELECT ` + inviteColumns + ` FROM matchmaking_invite
	WHERE state = 'pending' AND expires_at > $2 AND invitee ` + database.InList(1) + ` ORDER BY id`

// invitesFor returns the pending invites to each of the users, oldest first.
func (s store) invitesFor(ctx context.Context, now int64, users []string) (map[string][]Invite, error) {
	list, err := database.All(ctx, s.db, scanInvite, selectWaiting, database.List(users), now)
	waiting := make(map[string][]Invite)
	for _, v := range list {
		waiting[v.To] = append(waiting[v.To], v)
	}
	return waiting, err
}

// lockInvite returns an invite with all invites of its inviter locked.
func (s store) lockInvite(ctx context.Context, inviteID string) (Invite, bool, error) {
	list, err := database.All(ctx, s.db, scanInvite, `SELECT `+inviteColumns+` FROM matchmaking_invite
		WHERE inviter = (SELECT inviter FROM matchmaking_invite WHERE id = $1) ORDER BY id `+database.ForUpdate, inviteID)
	for _, v := range list {
		if v.ID == inviteID {
			return v, true, nil
		}
	}
	return Invite{}, false, err
}

// lastSession returns the last session that was created for an accepted invite of the same user for
// the same game, unless somebody was invited to it whom the invitee blocks, or who blocks the
// invitee.
func (s store) lastSession(ctx context.Context, v Invite) (string, bool, error) {
	return database.Get(ctx, s.db, scanText, `SELECT v.session_id FROM matchmaking_invite AS v
		WHERE v.inviter = $1 AND v.game = $2 AND v.state = 'accepted' AND NOT EXISTS (
			SELECT 1 FROM matchmaking_invite AS other JOIN matchmaking_friend AS f
				ON f.low = other.invitee AND f.high = $3 OR f.low = $3 AND f.high = other.invitee
			WHERE other.inviter = $1 AND other.session_id = v.session_id AND (f.low_blocks OR f.high_blocks))
		ORDER BY v.id DESC LIMIT 1`, v.From, v.GameKey, v.To)
}

func (s store) acceptInvite(ctx context.Context, v Invite) error {
	_, err := s.db.Exec(ctx, `UPDATE matchmaking_invite SET state = 'accepted', session_id = $2 WHERE id = $1`, v.ID, v.SessionID)
	return err
}

func (s store) deleteInvite(ctx context.Context, inviteID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM matchmaking_invite WHERE id = $1`, inviteID)
	return err
}

func (s store) deleteInvitesBetween(ctx context.Context, a, b string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM matchmaking_invite
		WHERE state = 'pending' AND (inviter = $1 AND invitee = $2 OR inviter = $2 AND invitee = $1)`, a, b)
	return err
}

const bondColumns = `low, high, state, requester, low_blocks, high_blocks, since`

func scanBond(row database.Scanner) (b bond, err error) {
	return b, row.Scan(&b.low, &b.high, &b.state, &b.requester, &b.lowBlocks, &b.highBlocks, &b.since)
}

// lockBond locks the row of two users, which it creates if necessary.
func (s store) lockBond(ctx context.Context, x, y string) (bond, error) {
	nothing := newBond(x, y)
	for {
		if _, err := s.db.Exec(ctx, `INSERT INTO matchmaking_friend (`+bondColumns+`) VALUES ($1, $2, 'none', '', FALSE, FALSE, 0)
			ON CONFLICT DO NOTHING`, nothing.low, nothing.high); err != nil {
			return nothing, err
		}
		b, found, err := database.Get(ctx, s.db, scanBond, `SELECT `+bondColumns+` FROM matchmaking_friend
			WHERE low = $1 AND high = $2 `+database.ForUpdate, nothing.low, nothing.high)
		if err != nil || found { // otherwise it was removed in between
			return b, err
		}
	}
}

// saveBond writes a locked row, or removes it if it is empty.
func (s store) saveBond(ctx context.Context, b bond) (err error) {
	if b.state == "none" && !b.blocked() {
		_, err = s.db.Exec(ctx, `DELETE FROM matchmaking_friend WHERE low = $1 AND high = $2`, b.low, b.high)
		return err
	}
	_, err = s.db.Exec(ctx, `UPDATE matchmaking_friend SET state = $3, requester = $4, low_blocks = $5, high_blocks = $6, since = $7
		WHERE low = $1 AND high = $2`, b.low, b.high, b.state, b.requester, b.lowBlocks, b.highBlocks, b.since)
	return err
}

// bondsOf lists the friendships and requests of a user by the other user's id.
func (s store) bondsOf(ctx context.Context, userID, after string, limit int) ([]bond, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (b bond, err error) {
		var other string
		return b, row.Scan(&b.low, &b.high, &b.state, &b.requester, &b.lowBlocks, &b.highBlocks, &b.since, &other)
	}, `
		SELECT `+bondColumns+`, high AS other FROM matchmaking_friend WHERE low = $1 AND high > $2 AND state <> 'none'
		UNION ALL
		SELECT `+bondColumns+`, low AS other FROM matchmaking_friend WHERE high = $1 AND low > $2 AND state <> 'none'
		ORDER BY other LIMIT $3`, userID, after, limit)
}

func (s store) countFriends(ctx context.Context, userID string) (int64, error) {
	return s.count(ctx, `SELECT (SELECT count(*) FROM matchmaking_friend WHERE low = $1 AND state = 'accepted')
		+ (SELECT count(*) FROM matchmaking_friend WHERE high = $1 AND state = 'accepted')`, userID)
}

// countRequests counts the open requests by a user.
func (s store) countRequests(ctx context.Context, userID string) (int64, error) {
	const waiting = ` AND state = 'requested' AND requester = $1)`
	return s.count(ctx, `SELECT (SELECT count(*) FROM matchmaking_friend WHERE low = $1`+waiting+`
		+ (SELECT count(*) FROM matchmaking_friend WHERE high = $1`+waiting, userID)
}

func (s store) friendsAmong(ctx context.Context, userIDs []string) ([]string, error) {
	const pairs = ` FROM matchmaking_friend WHERE state = 'accepted' AND low `
	among := database.InList(1) + ` AND high ` + database.InList(1)
	return database.All(ctx, s.db, scanText, `SELECT low AS id`+pairs+among+` UNION SELECT high AS id`+pairs+among+` ORDER BY id`,
		database.List(userIDs))
}

func (s store) blockedBy(ctx context.Context, userID, after string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `
		SELECT high AS other FROM matchmaking_friend WHERE low = $1 AND high > $2 AND low_blocks
		UNION ALL
		SELECT low AS other FROM matchmaking_friend WHERE high = $1 AND low > $2 AND high_blocks
		ORDER BY other LIMIT $3`, userID, after, limit)
}

// clean removes expired rooms, invites, offers and old matches. Tickets are kept for a day, because
// of their last match.
func (s store) clean(ctx context.Context, now int64) error {
	for _, c := range []struct {
		query  string
		before int64
	}{
		{`DELETE FROM matchmaking_room WHERE session_id IN (
			SELECT session_id FROM matchmaking_room WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now},
		{`DELETE FROM matchmaking_invite WHERE id IN (
			SELECT id FROM matchmaking_invite WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now},
		{`DELETE FROM matchmaking_backfill WHERE session_id IN (
			SELECT session_id FROM matchmaking_backfill WHERE abs(expires_at) <= $1 LIMIT $2)`, now},
		{`DELETE FROM matchmaking_match WHERE id IN (
			SELECT id FROM matchmaking_match WHERE created_at <= $1 ORDER BY id LIMIT $2)`, now - matchLifetime.Milliseconds()},
		{`DELETE FROM matchmaking_ticket WHERE ticket_id IN (
			SELECT ticket_id FROM matchmaking_ticket WHERE state <> 'waiting' AND enqueued_at <= $1 LIMIT $2) AND state <> 'waiting'`,
			now - ticketMemory.Milliseconds()},
	} {
		if _, err := s.db.Exec(ctx, c.query, c.before, maxCleaned); err != nil {
			return err
		}
	}
	return nil
}
