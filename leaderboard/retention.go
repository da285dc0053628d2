package leaderboard

import (
	"context"
	"time"

	"github.com/kitbackend/kit/internal/wait"
	"github.com/kitbackend/kit/jobs"
)

const (
	sweepSchedule = "11 * * * *"
	sweepChunk    = 1000 // rows per transaction, and windows per run
)

func (l *Leaderboard) sweepBinding() jobs.Binding {
	return jobs.Binding{Name: "LEADERBOARD_SWEEP", Schedule: sweepSchedule, Timeout: longTime,
		Run: func(ctx context.Context, _ jobs.Job) error { return l.sweep(ctx) }}
}

// sweeps reports whether any board has a retention.
func (c Config) sweeps() bool {
	for _, b := range c.Boards {
		if b.Retain != 0 || b.RetainDays != 0 {
			return true
		}
	}
	return false
}

// sweep deletes the closed windows that are past retention.
func (l *Leaderboard) sweep(ctx context.Context) error {
	for _, cfg := range l.cfg.Boards {
		due, err := l.due(ctx, l.boards[cfg.Key])
		if err != nil {
			return err
		}
		for _, openedAt := range due {
			if err := l.sweepWindow(ctx, cfg.Key, openedAt); err != nil {
				return err
			}
		}
	}
	return nil
}

// due returns the windows of a board that are to be deleted: those whose sweep was interrupted, and
// those past retention.
func (l *Leaderboard) due(ctx context.Context, b *board) (due []int64, err error) {
	if due, err = l.store.halfSwept(ctx, b.Key); err != nil {
		return nil, err
	}
	now := l.host.DB.Now(ctx)
	switch open := b.openedAt(now); {
	case b.Retain != 0:
		windows, err := l.store.windowsBefore(ctx, b, open, b.Retain)
		return append(due, windows...), err
	case b.RetainDays != 0:
		before := now.Add(-time.Duration(b.RetainDays) * 24 * time.Hour)
		windows, err := l.store.windowsBefore(ctx, b, min(open, before.UnixMilli()), 0)
		for _, openedAt := range windows {
			if !b.closesAt(openedAt).After(before) {
				due = append(due, openedAt)
			}
		}
		return due, err
	}
	return due, nil
}

// sweepWindow marks a window as swept, which makes it unknown to callers, then deletes its rows,
// chunk by chunk, and then the window. It continues an interrupted sweep, and does nothing if
// another node has finished it.
func (l *Leaderboard) sweepWindow(ctx context.Context, board string, openedAt int64) error {
	var id int64
	var ok bool
	err := l.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		if _, err = l.store.lock(ctx, board); err != nil {
			return err
		}
		id, ok, err = l.store.markSwept(ctx, board, openedAt)
		return err
	})
	if err != nil || !ok {
		return err
	}
	for _, chunk := range windowChunks {
		for rows := int64(sweepChunk); rows == sweepChunk; {
			began := l.host.Now()
			if rows, err = l.store.removeChunk(ctx, chunk, id); err != nil {
				return err
			}
			if err := l.pace(ctx, began); err != nil {
				return err
			}
		}
	}
	return l.store.forgetWindow(ctx, id)
}

// longTime is the timeout of a job that scans whole boards.
const longTime = 6 * time.Hour

// jobs returns the durable jobs that the configuration needs.
func (l *Leaderboard) jobs() []jobs.Binding {
	list := []jobs.Binding{l.verifyBinding()}
	if l.materialized() {
		list = append(list, l.rankBinding())
	}
	if l.cfg.sweeps() {
		list = append(list, l.sweepBinding())
	}
	return list
}

// pace waits, between two chunks of a long job, as long as the chunk took that began at the
// instant, so that the job uses at most half of the database's time.
func (l *Leaderboard) pace(ctx context.Context, began time.Time) error {
	return wait.For(ctx, l.host.Now().Sub(began))
}
