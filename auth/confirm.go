package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// maxConfirming bounds the confirmations under way; beyond them one is left
	// to the next token of its session.
	maxConfirming  = 64
	confirmTimeout = 5 * time.Second
)

// confirmer notes that the answers of rotations have arrived, apart from the
// requests that show it, which do not wait for it.
type confirmer struct {
	store store
	slots chan struct{}
	once  *sync.Once // of close
}

func newConfirmer(store store) confirmer {
	return confirmer{store: store, slots: make(chan struct{}, maxConfirming), once: new(sync.Once)}
}

func (c confirmer) confirm(sessionID string, counter int64) {
	select {
	case c.slots <- struct{}{}:
	default:
		return
	}
	go func() {
		defer func() { <-c.slots }()
		ctx, cancel := context.WithTimeout(context.Background(), confirmTimeout)
		defer cancel()
		_ = c.store.confirmRefresh(ctx, sessionID, counter) // unconfirmed, a lost answer can still be repaired
	}()
}

// close takes all slots: it waits for what is under way, and nothing follows.
func (c confirmer) close() {
	c.once.Do(func() {
		for range cap(c.slots) {
			c.slots <- struct{}{}
		}
	})
}
