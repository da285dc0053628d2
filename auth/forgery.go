package auth

import (
	"context"
	"sync"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// forgeries counts, for each address, the proofs that turned out to be made up.
// Over the limit, proofs are refused unseen but for those of sessions that this
// node has seen proved before: neighbours of a flood do not suffer from it.
type forgeries struct {
	limiter *rate.Limiter // nil: off

	mu         sync.RWMutex
	young, old map[string]struct{}
}

// trustedKeys bounds each of the two generations of what was seen proved.
const trustedKeys = 1 << 15

// refuses reports whether a proof is not even to be looked at.
func (f *forgeries) refuses(ctx context.Context, key string) bool {
	if f.limiter == nil || capability.RequestInfoOf(ctx) == nil {
		return false
	}
	return f.limiter.Wait(rate.AddressKey(ipOf(ctx))) > 0 && !f.trusts(key)
}

// found counts a proof that was made up.
func (f *forgeries) found(ctx context.Context) {
	if f.limiter != nil && capability.RequestInfoOf(ctx) != nil {
		f.limiter.Allow(rate.AddressKey(ipOf(ctx)))
	}
}

func (f *forgeries) trusts(key string) bool {
	f.mu.RLock()
	defer f.mu.RUnlock()
	_, young := f.young[key]
	_, old := f.old[key]
	return young || old
}

// trust remembers what was proved.
func (f *forgeries) trust(key string) {
	f.mu.RLock()
	_, young := f.young[key]
	f.mu.RUnlock()
	if f.limiter == nil || young {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.young == nil || len(f.young) >= trustedKeys {
		f.young, f.old = make(map[string]struct{}), f.young
	}
	f.young[key] = struct{}{}
}
