package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

// maxCleaned bounds the rows of each kind that one run removes.
const maxCleaned = 10_000

// runClean removes what has expired, and takes up what died with its node: the
// chain of sweeps of a game in which somebody waits, and users who seem online.
func (m *Matchmaking) runClean(ctx context.Context, _ jobs.Job) error {
	for _, g := range m.games {
		err := m.host.DB.InTx(ctx, func(ctx context.Context) error {
			waiting, err := m.store.isWaiting(ctx, g.Key)
			if err != nil || !waiting {
				return err
			}
			return m.scheduleSweep(ctx, g)
		})
		if err != nil {
			return err
		}
	}
	if err := m.buryNodes(ctx); err != nil {
		return err
	}
	return m.store.clean(ctx, m.now(ctx))
}

// clean removes expired rooms, invites, offers and old matches. Tickets are
// kept for a day, for their last match.
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
			SELECT session_id FROM matchmaking_backfill WHERE expires_at <= $1 LIMIT $2)`, now},
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
