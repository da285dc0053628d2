package leaderboard

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// SmallRanges makes buckets of more than n entries be cut into ranges at once,
// for one test.
func SmallRanges(t testing.TB, n int64) {
	size, every := maxRange, tendEvery
	maxRange, tendEvery = n, 1
	t.Cleanup(func() { maxRange, tendEvery = size, every })
}

// BucketOf and FirstKey are the arithmetic of the count table.
var (
	BucketOf = bucketOf
	FirstKey = firstKey
)

// Gather makes calls to a board queue up in their order and runs them as one batch.
func (l *Leaderboard) Gather(board string, calls ...func()) {
	b := l.batchers[board]
	b.mu.Lock()
	b.writing = true // as if the last batch were being written
	b.mu.Unlock()
	var group sync.WaitGroup
	var ended atomic.Int64
	for i, call := range calls {
		group.Go(func() {
			call()
			ended.Add(1)
		})
		for b.waiting()+int(ended.Load()) <= i {
			runtime.Gosched()
		}
	}
	b.write()
	group.Wait()
}
