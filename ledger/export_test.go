package ledger

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Gather makes calls queue up in their order and runs them as one batch.
func (l *Ledger) Gather(calls ...func()) {
	b := l.batcher
	b.mu.Lock()
	b.leading = b.leaders() // as if all were busy
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
	b.mu.Lock()
	b.leading = 1
	b.mu.Unlock()
	b.handOver()
	group.Wait()
}

// Rules lists the names of the rules that Verify holds the ledger to.
func Rules() (names []string) {
	for _, rule := range rules {
		names = append(names, rule.name)
	}
	return names
}
