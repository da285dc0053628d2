package multiplayer

import (
	"context"
	"log/slog"
	"time"
)

// sweepChunk bounds the sessions of one statement of a sweep.
const sweepChunk = 100

// sweep ends the turns whose alarms were lost and removes the sessions that ended before the
// retention time.
func (m *Multiplayer) sweep(ctx context.Context) error {
	now := m.now()
	if err := m.sweepOverdue(ctx, now); err != nil {
		return err
	}
	for {
		n, err := m.store.remove(ctx, now.Add(-m.cfg.Retention))
		if err != nil || n == 0 {
			return err
		}
	}
}

func (m *Multiplayer) sweepOverdue(ctx context.Context, now time.Time) error {
	for after := ""; ; {
		ids, err := m.store.overdue(ctx, now.Add(-overdueAfter), after)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := m.end(ctx, id, now.UnixMilli()); err != nil {
				m.log.Warn("multiplayer: a session was not abandoned", slog.String("session", id), slog.Any("error", err))
			}
		}
		after = ids[len(ids)-1]
	}
}
