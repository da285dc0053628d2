package controlplane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/pubsub"
)

// readEvery bounds how long a change of the register takes to reach a node
// that missed its hint.
const readEvery = time.Second

// topic carries hints that a register changed, of whatever environment.
const topic = "controlplane/register"

// snapshot is the register as it was read at an instant; it does not change.
type snapshot struct {
	connection *connection // nil when the environment has none
	live       []Key       // oldest first
	readAt     time.Time
	changes    uint64 // known of when it was read
}

// key returns a live key, or nil.
func (s *snapshot) key(id string) *Key {
	for i := range s.live {
		if s.live[i].ID == id {
			return &s.live[i]
		}
	}
	return nil
}

// register keeps the connection and its live keys in memory, so that only a
// good signature costs a visit to the database. The rows are read again by the
// first call after a second or a hint: at most once a second, no matter who calls.
type register struct {
	read func(context.Context) (*snapshot, error)
	now  func() time.Time
	bus  *pubsub.Bus

	last    atomic.Pointer[snapshot]
	changes atomic.Uint64

	mu       sync.Mutex // guards what follows
	failure  error
	failedAt time.Time
	cancel   func() // ends the subscription
	closed   bool
}

// current returns the register of the last second, or fails: nobody passes by
// one that may be out of date.
func (r *register) current(ctx context.Context) (*snapshot, error) {
	if s := r.fresh(); s != nil {
		return s, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.fresh(); s != nil {
		return s, nil
	}
	now := r.now()
	if since := now.Sub(r.failedAt); r.failure != nil && 0 <= since && since < readEvery {
		return nil, r.failure
	}
	r.listen()
	changes := r.changes.Load() // before reading: a hint that comes meanwhile counts
	s, err := r.read(ctx)
	if err != nil {
		if ctx.Err() == nil { // a caller that went away says nothing about the database
			r.failure, r.failedAt = err, now
		}
		return nil, err
	}
	s.readAt, s.changes = now, changes
	r.failure = nil
	r.last.Store(s)
	return s, nil
}

// fresh returns the snapshot while it counts, else nil.
func (r *register) fresh() *snapshot {
	s := r.last.Load()
	if s == nil || s.changes != r.changes.Load() {
		return nil
	}
	if age := r.now().Sub(s.readAt); age < 0 || age >= readEvery {
		return nil
	}
	return s
}

// forget makes the next call read the rows.
func (r *register) forget() { r.changes.Add(1) }

// listen subscribes to the hints of other nodes, once.
func (r *register) listen() {
	if r.cancel == nil && !r.closed && r.bus != nil {
		r.cancel = r.bus.Subscribe(topic, func([]byte) { r.forget() })
	}
}

func (r *register) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
}
