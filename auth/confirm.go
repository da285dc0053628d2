package auth

import (
	"context"
	"sync"
	"time"
)

const (
	// maxConfirming bounds the confirmations under way; one beyond it is made with the next token
	// of its session.
	maxConfirming  = 64
	confirmTimeout = 5 * time.Second
)

// confirmer records that clients have received their rotated tokens. It works in
// the background: the requests that prove the receipt do not wait for the write.
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
		_ = c.store.confirmRefresh(ctx, sessionID, counter) // unconfirmed, a lost response can still be repaired
	}()
}

// close takes all slots: it waits for the confirmations under way and prevents further ones.
func (c confirmer) close() {
	c.once.Do(func() {
		for range cap(c.slots) {
			c.slots <- struct{}{}
		}
	})
}
