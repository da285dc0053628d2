// Package wait waits until a time has passed or a context ends, and reads and writes Retry-After.
package wait

import (
	"context"
	"time"
)

// For waits for d, or returns the error of the context when that ends first.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
