package leaderboard

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
)

// walkChunk is how many entries a transaction of the walk ranks.
var walkChunk int64 = 1000 // less in tests

// late is for how long after its end submissions may still come into a window,
// from transactions under way and nodes whose clocks are behind.
const late = 10 * time.Minute

// rankLock is the name of the lock that keeps a second walk away.
const rankLock = "rank"

var errLockLost = errors.New("leaderboard: the lock of the walk was taken over as stale")

func (l *Leaderboard) rankBinding() jobs.Binding {
	return jobs.Binding{Name: "LEADERBOARD_RANK", Schedule: l.cfg.Rank.Materialize, Timeout: longTime,
		Run: func(ctx context.Context, _ jobs.Job) error { return l.materialize(ctx) }}
}

// materialize writes down the ranks of all windows in which they may have
// changed since the last time. While another does it, it does nothing.
func (l *Leaderboard) materialize(ctx context.Context) (err error) {
	token := rand.Text()
	taken, err := l.store.takeLock(ctx, rankLock, token, l.stale)
	if err != nil || !taken {
		return err
	}
	defer func() { err = errors.Join(err, l.store.releaseLock(context.WithoutCancel(ctx), rankLock, token)) }()
	now := l.host.DB.Now(ctx).UnixMilli()
	for _, cfg := range l.cfg.Boards {
		b := l.boards[cfg.Key]
		windows, err := l.store.rankedWindows(ctx, b.Key)
		if err != nil {
			return err
		}
		for _, w := range windows {
			if b.schedule != nil && b.closesAt(w.openedAt).Add(late).UnixMilli() <= w.rankedAt && w.rankedAt <= now {
				continue // final, unless a clock was ahead
			}
			if err := l.rankWindow(ctx, b, w.id, token); err != nil {
				return err
			}
		}
	}
	return nil
}

// rankWindow walks through the entries of a window in order.
func (l *Leaderboard) rankWindow(ctx context.Context, b *board, window int64, token string) error {
	started := l.host.DB.Now(ctx).UnixMilli()
	at, ranked, more := place{key: -MaxScore - 1}, int64(0), true
	for more {
		began := l.host.Now()
		var next place
		err := l.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			if err = l.store.renewLock(ctx, rankLock, token); err != nil {
				return err
			}
			next, more, err = l.store.rankChunk(ctx, b.Key, window, at, ranked)
			if err == nil && ranked == 0 {
				err = l.store.markRanked(ctx, window, -started)
			}
			if err == nil && !more {
				err = l.store.endWalk(ctx, b.Key, window, started)
			}
			return err
		})
		if err != nil {
			return err
		}
		at, ranked = next, ranked+walkChunk
		if err := l.pace(ctx, began); err != nil {
			return err
		}
	}
	return nil
}

// rankChunk ranks the entries behind a place, of which there are ranked, and
// answers the last one; more is false at the end of the window.
func (s store) rankChunk(ctx context.Context, board string, window int64, after place, ranked int64) (last place, more bool, err error) {
	if _, err := s.lock(ctx, board); err != nil {
		return last, false, err
	}
	if _, kept, err := s.kept(ctx, window); err != nil || !kept {
		return last, false, err
	}
	last, more, err = database.Get(ctx, s.db, scanPlace, `SELECT key, achieved_at, user_id FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) > ($2, $3, $4)
		ORDER BY key, achieved_at, user_id LIMIT 1 OFFSET $5`,
		window, after.key, after.achievedAt, after.userID, walkChunk-1)
	if err != nil {
		return last, false, err
	}
	_, err = s.db.Exec(ctx, `UPDATE leaderboard_entry SET rank = chunk.rank FROM (
			SELECT e.user_id, $5 + ROW_NUMBER() OVER (ORDER BY e.key, e.achieved_at, e.user_id) AS rank FROM (
				SELECT key, achieved_at, user_id FROM leaderboard_entry
				WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) > ($2, $3, $4)
				ORDER BY key, achieved_at, user_id LIMIT $6) AS e) AS chunk
		WHERE leaderboard_entry.window_id = $1 AND leaderboard_entry.user_id = chunk.user_id
			AND leaderboard_entry.rank <> chunk.rank`,
		window, after.key, after.achievedAt, after.userID, ranked, walkChunk)
	return last, more, err
}

// endWalk notes that the entries of a window are ranked, unless some were removed
// or shown during the walk, and that hidden ones, which it has not seen, are not.
func (s store) endWalk(ctx context.Context, board string, window, started int64) error {
	if _, err := s.db.Exec(ctx, `UPDATE leaderboard_entry SET rank = 0 WHERE window_id = $1 AND hidden <> 0 AND rank <> 0
		AND user_id IN (SELECT user_id FROM leaderboard_hidden WHERE board = $2)`, window, board); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `UPDATE leaderboard_window SET ranked_at = $2 WHERE id = $1 AND ranked_at = $3`,
		window, started, -started)
	return err
}

// markRanked says how far the ranks of a window are written down: 0, after a
// change that submissions do not make, has the next walk go through it even if
// it is closed; the negative start is that of a walk under way.
func (s store) markRanked(ctx context.Context, window, at int64) error {
	_, err := s.db.Exec(ctx, `UPDATE leaderboard_window SET ranked_at = $2 WHERE id = $1 AND ranked_at <> $2`, window, at)
	return err
}

// rankedWindow is a window and when its ranks were last written down.
type rankedWindow struct{ id, openedAt, rankedAt int64 }

func (s store) rankedWindows(ctx context.Context, board string) ([]rankedWindow, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (w rankedWindow, err error) {
		err = row.Scan(&w.id, &w.openedAt, &w.rankedAt)
		return w, err
	}, `SELECT id, opened_at, ranked_at FROM leaderboard_window WHERE board = $1 AND NOT swept ORDER BY opened_at DESC`, board)
}

// takeLock takes a lock that nobody holds, or whose holder has not renewed it
// for as long as counts as dead, or renewed it that far ahead, by a wrong clock.
func (s store) takeLock(ctx context.Context, name, token string, stale time.Duration) (taken bool, err error) {
	now := s.db.Now(ctx)
	rows, err := s.db.Exec(ctx, `INSERT INTO leaderboard_lock (name, token, renewed_at) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET token = excluded.token, renewed_at = excluded.renewed_at
		WHERE leaderboard_lock.renewed_at <= $4 OR leaderboard_lock.renewed_at >= $5`,
		name, token, now.UnixMilli(), now.Add(-stale).UnixMilli(), now.Add(stale).UnixMilli())
	return rows == 1, err
}

func (s store) renewLock(ctx context.Context, name, token string) error {
	rows, err := s.db.Exec(ctx, `UPDATE leaderboard_lock SET renewed_at = $3 WHERE name = $1 AND token = $2`,
		name, token, s.db.Now(ctx).UnixMilli())
	if err == nil && rows == 0 {
		err = errLockLost
	}
	return err
}

func (s store) releaseLock(ctx context.Context, name, token string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM leaderboard_lock WHERE name = $1 AND token = $2`, name, token)
	return err
}
