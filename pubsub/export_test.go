package pubsub

import (
	"context"
	"errors"
	"sync/atomic"
)

// CountTransactions counts the NOTIFY transactions of a node from now on.
func CountTransactions(b *Bus) *atomic.Int64 {
	n, notify := new(atomic.Int64), b.link.notify
	b.link.notify = func(ctx context.Context, payloads []string) error {
		n.Add(1)
		return notify(ctx, payloads)
	}
	return n
}

// FailOnce makes the next NOTIFY transaction of a node fail.
func FailOnce(b *Bus) {
	notify := b.link.notify
	b.link.notify = func(context.Context, []string) error {
		b.link.notify = notify
		return errors.New("the connection is lost")
	}
}
