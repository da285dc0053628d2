package secrets

import (
	"context"
	"sync"
	"time"
)

// Memory is a provider in the memory of the process, for tests.
type Memory struct {
	now func() time.Time

	mu       sync.Mutex
	versions map[string][]Stored
}

// NewMemory returns an empty provider that uses the clock now.
func NewMemory(now func() time.Time) *Memory {
	return &Memory{now: now, versions: make(map[string][]Stored)}
}

// Name returns "memory".
func (m *Memory) Name() string { return "memory" }

// ReadOnly returns false.
func (m *Memory) ReadOnly() bool { return false }

// Read returns a version.
func (m *Memory) Read(ctx context.Context, name string, version int64) (Stored, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.versions[name]
	if version == 0 {
		version = int64(len(list))
	}
	if version < 1 || version > int64(len(list)) {
		return Stored{Version: version}, ctx.Err()
	}
	return list[version-1], ctx.Err()
}

// Write adds a version.
func (m *Memory) Write(ctx context.Context, name string, after int64, payload Value) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if after != int64(len(m.versions[name])) {
		return 0, ErrVersionConflict
	}
	m.versions[name] = append(m.versions[name], Stored{Version: after + 1, CreatedAt: m.now(), Payload: payload})
	return after + 1, nil
}

// Delete removes all versions.
func (m *Memory) Delete(ctx context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.versions, name)
	return ctx.Err()
}
