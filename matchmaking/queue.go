package matchmaking

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

const (
	// matchLifetime is how long a match can be read after it was made.
	matchLifetime = 10 * time.Minute
	// ticketMemory is how long a player's last match is remembered.
	ticketMemory = 24 * time.Hour
	// seenEvery is the precision of the time of a player's last request.
	seenEvery = 10 * time.Second
	// backfillLifetime is how long an offer of free seats lasts unless it is repeated.
	backfillLifetime = 10 * time.Minute
)

// The states of a player in a queue.
const (
	Waiting = "waiting"
	// Forming means that a match was made and its session is being created.
	Forming = "forming"
	Matched = "matched"
	// Failed means that the session of the match could not be created, because of this player or one
	// of the same party, or for a reason that concerns no player. The common reason is a stake that
	// the player does not cover; others are that the player was disabled and, for offered seats, has
	// too many seats. The event match_failed of the presence socket has the code.
	Failed = "failed"
)

// player is a row of matchmaking_ticket.
type player struct {
	game, userID, ticketID string
	party                  int64
	region, state          string
	skill                  float64
	skillAt                int64
	enqueuedAt, seenAt     int64
	matchID                string
	matchedAt              int64
	rowid                  int64 // of a waiting player on SQLite, else 0
}

// Enqueue adds a player to a queue. A player who is waiting already, or has just been matched,
// keeps the ticket, unless the session of the match is over or the player has left it. The region ""
// is the game's first. Refuses with matchmaking/game_not_found, kit/invalid_request for an unknown
// region, and kit/rate_limited if the user has as many seats as one user can have.
func (m *Matchmaking) Enqueue(ctx context.Context, game, region, userID string) (Queued, error) {
	return m.enqueue(ctx, game, region, []string{userID})
}

// EnqueueParty adds players who wait together: they are matched into one match or none. When one of
// them leaves, all do. A party is matched by the mean of its skills. Refuses as
// [Matchmaking.Enqueue] does, and with matchmaking/already_queued if one of them has another
// ticket.
func (m *Matchmaking) EnqueueParty(ctx context.Context, game, region string, userIDs ...string) (Queued, error) {
	return m.enqueue(ctx, game, region, userIDs)
}

func (m *Matchmaking) enqueue(ctx context.Context, game, region string, userIDs []string) (Queued, error) {
	g, err := m.game(game)
	if err != nil {
		return Queued{}, err
	}
	if region == "" {
		region = g.Regions[0]
	}
	if !slices.Contains(g.Regions, region) {
		return Queued{}, capability.ErrInvalidRequest.Saying("region is none of this game.")
	}
	party, err := checkParty(g, userIDs)
	if err != nil {
		return Queued{}, err
	}
	if m.hasSessions(g) {
		for _, userID := range party {
			if err := m.peers.Multiplayer.CheckSeats(ctx, userID); err != nil {
				return Queued{}, err
			}
		}
	}
	skills, err := m.skills(ctx, g, party)
	if err != nil {
		return Queued{}, err
	}
	now := m.now(ctx)
	fresh := make([]player, len(party))
	ticketID := id.New(m.host.DB.Now(ctx))
	for i, userID := range party {
		fresh[i] = player{
			game: game, userID: userID, ticketID: ticketID, party: int64(len(party)), region: region,
			skill: skills[i], skillAt: now, enqueuedAt: now, seenAt: now,
		}
	}
	var result Queued
	err = m.host.DB.InTx(ctx, func(ctx context.Context) error {
		for { // repeated if a concurrent request of a player without a ticket committed first
			rows, err := m.store.lockPlayers(ctx, g.Key, party)
			if err != nil {
				return err
			}
			held, q, err := m.holding(ctx, g, party, rows)
			if err != nil {
				return err
			}
			if held {
				result = q
				return nil
			}
			written, err := m.write(ctx, fresh, rows)
			if err != nil {
				return err
			}
			if written {
				result = m.waiting(g, fresh[0], now)
				return m.scheduleSweep(ctx, g)
			}
		}
	})
	if err != nil {
		return Queued{}, err
	}
	return result, nil
}

// holding returns the state of the players if one of their rows holds them, and refuses if the
// whole party does not share that ticket. A match holds nobody who has no seat in its session any
// more.
func (m *Matchmaking) holding(ctx context.Context, g *Game, party []string, rows []player) (held bool, q Queued, err error) {
	for _, row := range rows {
		held, q, err = m.standing(ctx, g, row)
		if err == nil && held && q.SessionID != "" && m.hasSessions(g) {
			held, _, err = m.peers.Multiplayer.Seated(ctx, q.SessionID, row.userID)
		}
		if err != nil {
			return false, Queued{}, err
		}
		if held {
			if len(party) > 1 && (len(rows) < len(party) || int(row.party) != len(party) || !same(rows)) {
				return false, Queued{}, ErrAlreadyQueued
			}
			return true, q, nil
		}
	}
	return false, Queued{}, nil
}

// write replaces the rows of the players by a new ticket; it returns false if a player without a
// party has got another ticket since.
func (m *Matchmaking) write(ctx context.Context, fresh, rows []player) (bool, error) {
	had := make(map[string]string, len(rows))
	for _, p := range rows {
		had[p.userID] = p.ticketID
	}
	for _, p := range fresh {
		written, err := m.store.enqueue(ctx, p, had[p.userID])
		switch {
		case err != nil:
			return false, err
		case !written && len(fresh) > 1:
			return false, ErrAlreadyQueued
		case !written:
			return false, nil
		}
	}
	return true, nil
}

// checkParty returns the players in the order in which rows are locked.
func checkParty(g *Game, userIDs []string) ([]string, error) {
	party := slices.Clone(userIDs)
	slices.Sort(party)
	if len(party) == 0 || len(party) > g.Players || len(slices.Compact(slices.Clone(party))) != len(party) {
		return nil, capability.ErrInvalidRequest.Saying("A party is 1 to %d different players.", g.Players)
	}
	for _, userID := range party {
		if err := capability.CheckUserID(userID); err != nil {
			return nil, err
		}
	}
	return party, nil
}

// same reports whether all rows belong to one ticket.
func same(rows []player) bool {
	return !slices.ContainsFunc(rows, func(p player) bool { return p.ticketID != rows[0].ticketID })
}

// standing returns the state of a player, and whether the ticket holds them: it does while it is
// waiting, while the match is forming, and for one sweep after that, so that a repeated request
// finds the match whose response was lost.
func (m *Matchmaking) standing(ctx context.Context, g *Game, p player) (held bool, q Queued, err error) {
	now := m.now(ctx)
	switch p.state {
	case "waiting":
		return true, m.waiting(g, p, now), nil
	case "left":
		return false, Queued{}, nil
	}
	q = m.waiting(g, p, p.matchedAt)
	q.State, q.MatchID = Failed, p.matchID
	match, found, err := m.store.match(ctx, p.matchID)
	if err != nil {
		return false, Queued{}, err
	}
	if found {
		q.State, q.SessionID = match.State, match.SessionID
	}
	held = q.State == Forming || q.State == Matched && now-p.matchedAt < g.Queue.sweep().Milliseconds()
	return held, q, nil
}

// waiting returns the state of a waiting ticket at an instant.
func (m *Matchmaking) waiting(g *Game, p player, at int64) Queued {
	q := Queued{State: Waiting, Region: p.region, WaitedMs: max(at-p.enqueuedAt, 0)}
	if band := g.Queue.band(time.Duration(q.WaitedMs) * time.Millisecond); m.bySkill(g) && !math.IsInf(band, 1) {
		q.Band = &band
	}
	return q
}

// Status returns the state of a player, and counts as a sign of life: a ticket expires after a
// minute, or MaxWaitSeconds if that is longer, if its player neither requests the status nor has a
// presence socket. A match can be read for ten minutes, even if its session is over by then. Refuses
// with matchmaking/game_not_found and matchmaking/not_queued.
func (m *Matchmaking) Status(ctx context.Context, game, userID string) (Queued, error) {
	g, err := m.game(game)
	if err != nil {
		return Queued{}, err
	}
	if err := capability.CheckUserID(userID); err != nil {
		return Queued{}, err
	}
	p, found, err := m.store.player(ctx, game, userID)
	if err != nil {
		return Queued{}, err
	}
	now := m.now(ctx)
	if !found || p.state == "left" || p.state == "matched" && now-p.matchedAt >= matchLifetime.Milliseconds() {
		return Queued{}, ErrNotQueued
	}
	_, q, err := m.standing(ctx, g, p)
	if err != nil || q.State != Waiting || now-p.seenAt < seenEvery.Milliseconds() {
		return q, err
	}
	return q, m.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := m.store.seen(ctx, p, m.now(ctx)); err != nil {
			return err
		}
		return m.scheduleSweep(ctx, g) // in case the last sweep died with its node
	})
}

// Leave removes a player, and the player's party, from a queue. Refuses with
// matchmaking/game_not_found and matchmaking/not_queued; a match that was made cannot be left here.
func (m *Matchmaking) Leave(ctx context.Context, game, userID string) error {
	if _, err := m.game(game); err != nil {
		return err
	}
	if err := capability.CheckUserID(userID); err != nil {
		return err
	}
	left, err := m.store.leave(ctx, game, userID)
	if err == nil && !left {
		err = ErrNotQueued
	}
	return err
}

// Match returns a match for ten minutes after it was made; ok is false if there is none.
func (m *Matchmaking) Match(ctx context.Context, matchID string) (match Match, ok bool, err error) {
	return m.store.match(ctx, matchID)
}

// Offer puts free seats into the queue: waiting players get them before a match of their own. A
// repeated offer replaces the first one. It lasts ten minutes; zero seats withdraw it. Refuses with
// matchmaking/game_not_found, matchmaking/no_sessions and kit/invalid_request.
func (m *Matchmaking) Offer(ctx context.Context, b Backfill) error {
	g, err := m.sessionGame(b.GameKey)
	if err != nil {
		return err
	}
	if b.Region == "" {
		b.Region = g.Regions[0]
	}
	if !slices.Contains(g.Regions, b.Region) || b.Seats < 0 || b.Seats > MaxPlayers || math.IsNaN(b.Skill) || math.IsInf(b.Skill, 0) {
		return capability.ErrInvalidRequest.Saying("Free seats are 0 to %d, in a region of the game.", MaxPlayers)
	}
	if err := capability.CheckText("sessionId", b.SessionID, 1, maxName); err != nil {
		return err
	}
	if b.Seats == 0 {
		return m.store.withdraw(ctx, b.SessionID)
	}
	return m.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := m.now(ctx)
		if err := m.store.offer(ctx, b, now, now+backfillLifetime.Milliseconds()); err != nil {
			return err
		}
		return m.scheduleSweep(ctx, g)
	})
}

// bySkill reports whether players of the game are matched by skill.
func (m *Matchmaking) bySkill(g *Game) bool { return m.peers.Rating != nil && g.SkillPool != "" }

// skills returns the skills that the players are matched by.
func (m *Matchmaking) skills(ctx context.Context, g *Game, userIDs []string) ([]float64, error) {
	skills := make([]float64, len(userIDs))
	if !m.bySkill(g) {
		return skills, nil
	}
	for i, userID := range userIDs {
		skill, err := m.peers.Rating.Skill(ctx, g.SkillPool, userID)
		if err != nil {
			return nil, fmt.Errorf("matchmaking: the skill of a player: %w", err)
		}
		skills[i] = skill
	}
	return skills, nil
}
