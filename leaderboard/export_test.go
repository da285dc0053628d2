package leaderboard

import (
	"testing"

	"github.com/kitbackend/kit/internal/queue/queuetest"
)

// SmallRanges makes buckets of more than n entries be cut into ranges at once,
// for one test.
func SmallRanges(t testing.TB, n int64) {
	size, every := maxRange, tendEvery
	maxRange, tendEvery = n, 1
	t.Cleanup(func() { maxRange, tendEvery = size, every })
}

// KnowLittle lets a node keep only n entries of a board at hand, for one test.
func KnowLittle(t testing.TB, n int) {
	most := maxKnown
	maxKnown = n
	t.Cleanup(func() { maxKnown = most })
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
