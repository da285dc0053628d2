package leaderboard

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/kitbackend/kit/jobs"
)

// late is for how long after its end submissions may still enter a window, from transactions under
// way and nodes whose clocks are behind.
const late = 10 * time.Minute

// rankLock is the name of the lock that prevents concurrent walks.
const rankLock = "rank"

var errLockLost = errors.New("leaderboard: the lock of the walk was taken over as stale")

func (l *Leaderboard) rankBinding() jobs.Binding {
	return jobs.Binding{Name: "LEADERBOARD_RANK", Schedule: l.cfg.Rank.Materialize, Timeout: longTime,
		Run: func(ctx context.Context, _ jobs.Job) error { return l.materialize(ctx) }}
}

// materialize stores the ranks of all windows in which they may have changed since the last walk.
// While another walk is running, it does nothing.
func (l *Leaderboard) materialize(ctx context.Context) (err error) {
	token := rand.Text()
	taken, err := l.store.takeLock(ctx, rankLock, token, l.cfg.LockStale)
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

// rankWindow ranks the entries of a window in order.
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
		at, ranked = next, ranked+l.store.sizes.walk
		if err := l.pace(ctx, began); err != nil {
			return err
		}
	}
	return nil
}
