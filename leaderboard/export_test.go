package leaderboard

import (
	"cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue/queuetest"
)

// SmallRanges returns a configuration in which buckets of more than n entries are divided into
// ranges at once.
func SmallRanges(c Config, n int64) Config {
	c.sizes = cmp.Or(c.sizes, usual)
	c.sizes.ranged, c.sizes.relieve = n, 1
	return c
}

// KnowLittle returns a configuration in which a node caches n entries of a board.
func KnowLittle(c Config, n int) Config {
	c.sizes = cmp.Or(c.sizes, usual)
	c.sizes.known = n
	return c
}

// SmallWalks returns a configuration in which a walk works in chunks of n entries.
func SmallWalks(c Config, n int64) Config {
	c.sizes = cmp.Or(c.sizes, usual)
	c.sizes.walk = n
	return c
}

// BucketOf and FirstKey are the arithmetic of the count table.
var (
	BucketOf = bucketOf
	FirstKey = firstKey
)

// Gather makes calls to a board queue up in their order and runs them as one batch.
func (l *Leaderboard) Gather(board string, calls ...func()) {
	queuetest.Gather(l.batchers[board], calls...)
}

// Reads returns the statements that read about a player at a place, with their arguments after the
// board and the opening of its window.
func Reads(d database.Dialect, userID string, key, achievedAt int64) map[string][]any {
	reads := map[string][]any{
		"me":      {standingSQL, false, userID},
		"around":  {aroundSQL, false, userID, 10},
		"segment": {segmentSQL, false, database.List([]string{userID})},
		"top":     {plainList.top, 10},
		"page":    {plainList.page, 10, key, achievedAt, userID, bucketOf(key)},
	}
	if d == database.PostgreSQL {
		reads["me"] = []any{standingManySQL, false, []string{userID}, []int64{0}}
		reads["around"] = []any{aroundManySQL, false, []string{userID}, []int64{10}}
	}
	return reads
}

// GatherReads makes reads of a board queue up in their order and runs them as one batch of each
// kind. It returns how many were queued.
func (l *Leaderboard) GatherReads(board string, players, pages []func()) (shared int) {
	r := l.readers[board]
	queuetest.Gather(watched{&r.players, &shared}, players...)
	queuetest.Gather(watched{&r.pages, &shared}, pages...)
	return shared
}

// watched counts the callers that wait when a queue is released.
type watched struct {
	queue interface {
		Hold() func()
		Waiting() int
	}
	waited *int
}

func (w watched) Waiting() int { return w.queue.Waiting() }

func (w watched) Hold() func() {
	release := w.queue.Hold()
	return func() {
		*w.waited += w.Waiting()
		release()
	}
}
