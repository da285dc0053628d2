package multiplayer

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

// sweepChunk bounds what one statement of a sweep takes.
const sweepChunk = 100

// overdue returns sessions behind an id whose deadline passed before an
// instant, in order.
func (s store) overdue(ctx context.Context, before time.Time, after string) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT id FROM multiplayer_session
		WHERE phase IN ('open', 'active') AND deadline > 0 AND deadline < $1 AND id > $2 ORDER BY id LIMIT $3`,
		before.UnixMilli(), after, sweepChunk)
}

// removeSteps bounds the log that one transaction of a sweep deletes, unless a
// single session has more.
const removeSteps = 20_000

// remove deletes some sessions that ended before an instant, and returns how
// many; their results stay.
func (s store) remove(ctx context.Context, before time.Time) (n int, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		over, err := database.All(ctx, s.db, scanSession, `SELECT `+columns+` FROM multiplayer_session
			WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at, id LIMIT $2 /*pg FOR UPDATE SKIP LOCKED */`,
			before.UnixMilli(), sweepChunk)
		if err != nil {
			return err
		}
		var ids []string
		for steps := int64(0); len(ids) < len(over) && steps < removeSteps; {
			steps += over[len(ids)].version
			ids = append(ids, over[len(ids)].id)
		}
		n = len(ids)
		return s.removeSessions(ctx, ids)
	})
	return n, err
}

// removeSessions deletes sessions that are over, but not their results.
func (s store) removeSessions(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, query := range []string{
		`DELETE FROM multiplayer_action WHERE session_id ` + database.InList(1),
		`DELETE FROM multiplayer_effect WHERE session_id ` + database.InList(1),
		`DELETE FROM multiplayer_session WHERE id ` + database.InList(1),
	} {
		if _, err := s.db.Exec(ctx, query, database.List(ids)); err != nil {
			return err
		}
	}
	return nil
}
