package auth

import (
	"context"
	"sync"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// forgeries counts the forged proofs of each address. Over the limit proofs are refused unchecked,
// except those of sessions that this node has verified before, so that a flood does not lock out
// other users of the same address.
type forgeries struct {
	limiter *rate.Limiter // nil: off

	mu         sync.RWMutex
	young, old map[string]struct{}
}

// trustedKeys bounds each of the two generations of verified keys.
const trustedKeys = 1 << 15

// refuses reports whether a proof is to be refused unchecked.
func (f *forgeries) refuses(ctx context.Context, key string) bool {
	if f.limiter == nil || capability.RequestInfoOf(ctx) == nil {
		return false
	}
	return f.limiter.Wait(rate.AddressKey(ipOf(ctx))) > 0 && !f.trusts(key)
}

// found counts a forged proof.
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

// trust remembers the key of a verified proof.
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
