package kv

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Memory is a store in the memory of one process.
type Memory struct {
	now     func() time.Time
	mu      sync.Mutex
	entries map[string]entry
	swept   time.Time
}

type entry struct {
	value   []byte
	expires time.Time
}

// NewMemory returns an empty store that reads the time from now.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, entries: make(map[string]entry)}
}

// Get returns a copy of the value.
func (m *Memory) Get(_ context.Context, key string) ([]byte, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ok := m.live(key)
	return bytes.Clone(e.value), ok, nil
}

// Put stores a copy of the value. It refuses with [ErrKey], [ErrValue] and [ErrTTL].
func (m *Memory) Put(_ context.Context, key string, value []byte, ttl time.Duration) error {
	if err := check(key, value, ttl); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, value, ttl)
	return nil
}

// PutIfAbsent stores a copy of the value if the key has none. It refuses with [ErrKey], [ErrValue]
// and [ErrTTL].
func (m *Memory) PutIfAbsent(_ context.Context, key string, value []byte, ttl time.Duration) (bool, error) {
	if err := check(key, value, ttl); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, taken := m.live(key); taken {
		return false, nil
	}
	m.put(key, value, ttl)
	return true, nil
}

// Delete removes the key.
func (m *Memory) Delete(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.entries, key)
	return nil
}

// Atomic returns true: there is one process.
func (m *Memory) Atomic() bool { return true }

func (m *Memory) live(key string) (entry, bool) {
	e, ok := m.entries[key]
	if !ok || !m.now().Before(e.expires) {
		return entry{}, false
	}
	return e, true
}

func (m *Memory) put(key string, value []byte, ttl time.Duration) {
	now := m.now()
	if now.Sub(m.swept).Abs() >= sweepEvery {
		m.swept = now
		for old, e := range m.entries {
			if !now.Before(e.expires) {
				delete(m.entries, old)
			}
		}
	}
	m.entries[key] = entry{bytes.Clone(value), now.Add(ttl)}
}
