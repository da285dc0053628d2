// Package queuetest makes batches of known calls.
package queuetest

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Gather makes calls queue up in their order and lets them run as one batch. A call may also return
// without entering the queue.
func Gather(q interface {
	Hold() func()
	Waiting() int
}, calls ...func()) {
	release := q.Hold()
	var group sync.WaitGroup
	var ended atomic.Int64
	for i, call := range calls {
		group.Go(func() {
			defer ended.Add(1)
			call()
		})
		for q.Waiting()+int(ended.Load()) <= i {
			runtime.Gosched()
		}
	}
	release()
	group.Wait()
}
