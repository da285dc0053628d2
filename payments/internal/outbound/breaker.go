package outbound

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

const (
	// failuresToOpen is how many calls in a row fail before the breaker opens.
	failuresToOpen = 5
	// openFor is how long it stays open first; it doubles up to maxOpen while
	// the call that probes the rail fails too.
	openFor = 5 * time.Second
	maxOpen = time.Minute
)

// breaker stops calls to a rail that keeps failing, and lets one at a time through once the pause
// is over. If such a probe does not return, the next one may probe after another pause.
type breaker struct {
	mu       sync.Mutex
	failures int
	pause    time.Duration
	until    time.Time
}

// enter returns how long calls are still refused; 0 lets this one through. More than a pause can
// remain only if the clock was set back.
func (b *breaker) enter(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < failuresToOpen {
		return 0
	}
	if left := b.until.Sub(now); left > 0 && left <= b.pause {
		return left
	}
	b.until = now.Add(b.pause) // this call is the probe
	return 0
}

func (b *breaker) succeed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures, b.pause, b.until = 0, 0, time.Time{}
}

// leave ends a call without a result: the next one may probe.
func (b *breaker) leave() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures >= failuresToOpen {
		b.until = time.Time{}
	}
}

func (b *breaker) fail(now time.Time, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var failed *Unavailable
	if errors.As(err, &failed) && failed.Status == http.StatusTooManyRequests {
		if failed.RetryAfter > MaxWait { // the rail is well and has said until when to wait
			b.failures, b.pause, b.until = failuresToOpen, failed.RetryAfter, now.Add(failed.RetryAfter)
		}
		return
	}
	b.failures++
	if b.failures < failuresToOpen {
		return
	}
	b.pause = min(max(2*b.pause, openFor), maxOpen)
	b.until = now.Add(b.pause)
}
