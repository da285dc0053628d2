package controlplane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/pubsub"
)

// readEvery bounds how long a change of the register takes to reach a node that missed its
// notification.
const readEvery = time.Second

// topic is the topic of notifications that a register changed, in any environment.
const topic = "controlplane/register"

// snapshot is the immutable register as of one read.
type snapshot struct {
	connection *connection // nil when the environment has none
	live       []Key       // oldest first
	readAt     time.Time
	changes    uint64 // changes known when it was read
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

// register caches the connection and its live keys, so that only a valid signature costs a database
// query. The first call after a second or a notification reads the rows again: at most one read a
// second without changes, no matter who calls.
type register struct {
	read func(context.Context) (*snapshot, error)
	now  func() time.Time
	bus  *pubsub.Bus

	last    atomic.Pointer[snapshot]
	changes atomic.Uint64

	mu       sync.Mutex // guards the fields below
	failure  error
	failedAt time.Time
	cancel   func() // ends the subscription
	closed   bool
}

// current returns a register that is at most a second old, or an error, because an outdated
// register must not admit anybody.
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
	changes := r.changes.Load() // before the read, so that a notification during the read counts
	s, err := r.read(ctx)
	if err != nil {
		if ctx.Err() == nil { // the cancellation of a caller is not a failure of the database
			r.failure, r.failedAt = err, now
		}
		return nil, err
	}
	s.readAt, s.changes = now, changes
	r.failure = nil
	r.last.Store(s)
	return s, nil
}

// fresh returns the snapshot if it is up to date, else nil.
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

// forget makes the next call read the rows again.
func (r *register) forget() { r.changes.Add(1) }

// listen subscribes to the notifications of other nodes, once.
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
