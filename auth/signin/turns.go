package signin

import (
	"context"
	"sync"
)

// turns serializes callers by key. The zero value is ready for use. It holds only keys in use.
type turns struct {
	mu   sync.Mutex
	held map[string]*turn
}

type turn struct {
	taken chan struct{}
	want  int
}

// turn waits until the caller holds the key; release releases it.
func (t *turns) turn(ctx context.Context, key string) (release func(), err error) {
	t.mu.Lock()
	if t.held == nil {
		t.held = make(map[string]*turn)
	}
	mine := t.held[key]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		t.held[key] = mine
	}
	mine.want++
	t.mu.Unlock()
	select {
	case mine.taken <- struct{}{}:
		return func() { <-mine.taken; t.leave(key, mine) }, nil
	case <-ctx.Done():
		t.leave(key, mine)
		return nil, ctx.Err()
	}
}

func (t *turns) leave(key string, mine *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if mine.want--; mine.want == 0 {
		delete(t.held, key)
	}
}
