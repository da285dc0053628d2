// Package kv stores small values under keys until they expire, such as the ids of used tokens and
// room codes.
//
// An expired entry is never returned. If [Store.Atomic] reports true, exactly one of any number of
// concurrent calls of [Store.PutIfAbsent] with one key succeeds, across all nodes. [NewSQL] stores
// entries in the database of the kit and takes part in its transactions; [NewMemory] is for tests
// and single processes.
package kv

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The largest key and value, in bytes.
const (
	MaxKey   = 256
	MaxValue = 64 << 10
)

// The errors of a store for an entry that is out of bounds.
var (
	ErrKey   = fmt.Errorf("kv: a key has 1 to %d bytes", MaxKey)
	ErrValue = fmt.Errorf("kv: a value has at most %d bytes", MaxValue)
	ErrTTL   = errors.New("kv: an entry lives for at least a millisecond")
)

// Store is a key-value namespace. It is safe for concurrent use. Applications may supply their own
// implementation; kvtest.Run tests it against the rules.
type Store interface {
	// Get returns the value of a key; ok is false if there is none.
	Get(ctx context.Context, key string) (value []byte, ok bool, err error)
	// Put sets the value of a key for ttl, at least a millisecond, in whole milliseconds. It
	// refuses with [ErrKey], [ErrValue] and [ErrTTL].
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// PutIfAbsent sets the value of a key that has none and reports whether it did. It refuses as
	// Put does.
	PutIfAbsent(ctx context.Context, key string, value []byte, ttl time.Duration) (stored bool, err error)
	// Delete removes a key; removing an absent key is not an error.
	Delete(ctx context.Context, key string) error
	// Atomic reports whether only one of concurrent calls of PutIfAbsent succeeds across all nodes.
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
