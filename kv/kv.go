// Package kv keeps small values under keys until they expire: spent token ids,
// room codes.
//
// A store promises that an expired entry is never seen again, and that of any
// number of racing [Store.PutIfAbsent] of one key exactly one wins, on all
// nodes together, if and only if [Store.Atomic] says so. [NewSQL] keeps entries
// in the kit's database and joins its transactions; [NewMemory] is for tests
// and single processes.
package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of one entry, in bytes.
const (
	MaxKey   = 256
	MaxValue = 64 << 10
)

// The errors of a store for an entry it cannot hold.
var (
	ErrKey   = fmt.Errorf("kv: a key has 1 to %d bytes", MaxKey)
	ErrValue = fmt.Errorf("kv: a value has at most %d bytes", MaxValue)
	ErrTTL   = errors.New("kv: an entry lives for at least a millisecond")
)

// Store is a key-value namespace. It is safe for concurrent use. Applications
// may bring their own; kvtest.Run holds it to the rules.
type Store interface {
	// Get returns the value of a key; ok is false when there is none.
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	// Put sets the value of a key for ttl, in whole milliseconds.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// PutIfAbsent sets the value of a key that has none and reports whether it did.
	PutIfAbsent(ctx context.Context, key string, value []byte, ttl time.Duration) (stored bool, err error)
	// Delete removes a key; removing one that is absent is no error.
	Delete(ctx context.Context, key string) error
	// Atomic reports whether PutIfAbsent has one winner among all nodes.
	Atomic() bool
}

func check(key string, value []byte, ttl time.Duration) error {
	switch {
	case key == "" || len(key) > MaxKey:
		return ErrKey
	case len(value) > MaxValue:
		return ErrValue
	case ttl < time.Millisecond:
		return ErrTTL
	}
	return nil
}
