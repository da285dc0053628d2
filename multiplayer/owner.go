package multiplayer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

// Bounds of the cache of a node.
const (
	maxWaiting = 64               // callers of one session
	maxBatch   = 32               // steps that share a transaction
	idleTime   = 60 * time.Second // after which a session is removed from the cache
	maxWarm    = 20_000           // sessions, without those under way
	maxStates  = maxWarm << 10    // bytes of JSON of their states; decoded too, they were measured at 14 times as many
)

// owners caches the sessions of this node. It saves reads and queues the callers of a session, no
// more: every write checks the version in the database, so a node with an old version starts over.
type owners struct {
	m *Multiplayer

	mu    sync.Mutex // locked before the mutex of an owner
	warm  map[string]*owner
	swept time.Time

	states atomic.Int64 // bytes of JSON of the cached states

	gate   sync.Mutex // locked after both
	closed bool
	busy   sync.WaitGroup // callers
}

// owner is one cached session, whose callers take turns.
type owner struct {
	m     *Multiplayer
	id    string
	queue queue.Queue[step, Ack]

	mu     sync.Mutex
	used   time.Time
	latest *session // the newest version known here
	gone   bool     // removed from the cache: callers under way keep nothing here

	loading sync.Mutex
}

// call is a step with a waiting caller.
type call = queue.Call[step, Ack]

func newOwners(m *Multiplayer) *owners { return &owners{m: m, warm: make(map[string]*owner)} }

// of returns the owner of a session, which it adds to the cache if necessary.
func (o *owners) of(id string) *owner {
	now := o.m.now()
	o.mu.Lock()
	defer o.mu.Unlock()
	if idle := now.Sub(o.swept); idle >= idleTime/2 || idle < 0 || o.crowded() {
		o.sweep(now)
	}
	own := o.warm[id]
	if own == nil {
		own = &owner{m: o.m, id: id, queue: queue.Queue[step, Ack]{Size: maxBatch, MaxWaiting: maxWaiting}}
		own.queue.Run = own.round
		o.warm[id] = own
	}
	own.touch(now)
	return own
}

// existing returns the owner of a session that exists, so that invented ids take no place in the
// cache.
func (o *owners) existing(ctx context.Context, id string) (*owner, error) {
	o.mu.Lock()
	_, cached := o.warm[id]
	o.mu.Unlock()
	if !cached {
		version, err := o.m.store.version(ctx, id)
		if err == nil && version == 0 {
			err = ErrSessionNotFound
		}
		if err != nil {
			return nil, err
		}
	}
	return o.of(id), nil
}

// sweep removes the idle sessions from the cache or, when it is full, all sessions that are not
// under way.
func (o *owners) sweep(now time.Time) {
	o.swept = now
	crowded := o.crowded()
	for id, own := range o.warm {
		if own.leave(now, crowded) {
			delete(o.warm, id)
		}
	}
}

func (o *owners) crowded() bool { return len(o.warm) >= maxWarm || o.states.Load() > maxStates }

func (o *owners) forget(id string) {
	o.mu.Lock()
	own := o.warm[id]
	o.mu.Unlock()
	if own != nil {
		own.keep(nil)
	}
}

// close refuses new callers and waits for those under way.
func (o *owners) close(ctx context.Context) error {
	o.gate.Lock()
	o.closed = true
	o.gate.Unlock()
	finished := make(chan struct{})
	go func() {
		o.busy.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin registers a caller; it returns false once the owners are closed.
func (o *owners) begin() bool {
	o.gate.Lock()
	defer o.gate.Unlock()
	if !o.closed {
		o.busy.Add(1)
	}
	return !o.closed
}

func (o *owner) touch(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.used = now
}

// leave drops the cached version of an idle session, or returns false.
func (o *owner) leave(now time.Time, crowded bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.queue.Busy() || !crowded && now.Sub(o.used) < idleTime {
		return false
	}
	o.set(nil)
	o.gone = true
	return true
}

// known returns the newest cached version, or nil.
func (o *owner) known() *session {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.latest
}

// keep caches a version unless a newer one is cached; nil clears the cache.
func (o *owner) keep(s *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.gone && (s == nil || o.latest == nil || s.version > o.latest.version) {
		o.set(s)
	}
}

func (o *owner) set(s *session) {
	o.m.owners.states.Add(s.size() - o.latest.size())
	o.latest = s
}

// at returns the session at this version or a newer one. If it is not cached, one of the concurrent
// callers reads it.
func (o *owner) at(ctx context.Context, version int64) (*session, error) {
	if s := o.known(); s != nil && s.version >= version {
		return s, nil
	}
	o.loading.Lock()
	defer o.loading.Unlock()
	if s := o.known(); s != nil && s.version >= version {
		return s, nil
	}
	return o.load(ctx)
}

func (o *owner) load(ctx context.Context) (*session, error) {
	s, err := o.m.load(ctx, o.id, o.m.store.load)
	if err != nil {
		return nil, err
	}
	o.keep(s)
	return s, nil
}

// do applies a step to the session.
func (o *owner) do(ctx context.Context, st step) (Ack, error) {
	if !o.m.owners.begin() {
		return Ack{}, database.ErrClosed
	}
	defer o.m.owners.busy.Done()
	ack, err := o.queue.Do(ctx, st)
	if errors.Is(err, queue.ErrFull) {
		err = capability.ErrRateLimited.Saying("Too many players act in this session at once.")
	}
	return ack, err
}

// round decides the first of the calls, as many as share a transaction, and returns how many they
// were.
func (o *owner) round(ctx context.Context, calls []*call) int {
	b, err := o.attempt(ctx, calls)
	if err != nil {
		for _, c := range calls[b.sure:b.taken] {
			c.Out, c.Err = Ack{}, err
		}
	}
	return b.taken
}

// attempt tries until no other node changes the session meanwhile. An error concerns the calls that
// the batch took, except the first sure ones.
func (o *owner) attempt(ctx context.Context, calls []*call) (b *batch, err error) {
	b = &batch{taken: 1}
	defer func() {
		if p := recover(); p != nil { // of a model, which is not the fault of the caller that leads the batch
			o.m.log.Error("multiplayer: panic", slog.String("session", o.id), slog.String("stack", string(callers())))
			b, err = &batch{taken: 1}, errPanicked
		}
	}()
	lookUp := false
	for try := range maxTries {
		if try < optimisticTries {
			b, err = o.try(ctx, calls, lookUp)
		} else {
			b, err = o.locked(ctx, calls)
		}
		if err == nil {
			return b, nil
		}
		o.keep(nil)
		switch {
		case errors.Is(err, errStale):
		case !lookUp && (errors.Is(err, errDoubtful) || idTaken(err)):
			lookUp = true
		default:
			return b, err
		}
	}
	b.sure = 0
	return b, errBusy
}

// try decides calls on the cached version and writes the result. It looks up action ids only if
// lookUp is set: the log refuses a repeated id anyway.
func (o *owner) try(ctx context.Context, calls []*call, lookUp bool) (*batch, error) {
	s, err := o.at(ctx, 1)
	var known []logged
	if err == nil && lookUp {
		known, err = o.m.known(ctx, o.id, calls)
	}
	if err != nil {
		return &batch{taken: 1}, err
	}
	b := o.m.plan(s, calls, known)
	switch {
	case !lookUp && b.doubtful(calls):
		return b, errDoubtful
	case len(b.steps) == 0:
		b.sure = 0
		return b, o.confirm(ctx, s)
	}
	after, err := o.m.commit(ctx, b)
	if err != nil {
		return b, err
	}
	o.keep(after)
	o.m.hub.told(o.id, after.version)
	o.m.announce(ctx, after)
	return b, nil
}

// locked decides calls on the newest version with its row locked, for a session that other nodes
// change often.
func (o *owner) locked(ctx context.Context, calls []*call) (b *batch, err error) {
	var after *session
	err = o.m.host.DB.InTx(ctx, func(ctx context.Context) error {
		b = &batch{taken: 1}
		s, err := o.m.load(ctx, o.id, o.m.store.lock)
		if err != nil {
			return err
		}
		known, err := o.m.known(ctx, o.id, calls)
		if err != nil {
			return err
		}
		if b = o.m.plan(s, calls, known); len(b.steps) == 0 {
			b.sure, after = 0, s
			return nil
		}
		after, err = o.m.commit(ctx, b)
		return err
	})
	if err != nil {
		if b == nil {
			b = &batch{taken: 1}
		}
		return b, err
	}
	o.keep(after)
	if len(b.steps) > 0 {
		o.m.hub.told(o.id, after.version)
		o.m.announce(ctx, after)
	}
	return b, nil
}

// confirm returns errStale unless the session has the newest version. A batch without steps needs
// this check, because no write makes it.
func (o *owner) confirm(ctx context.Context, s *session) error {
	newest, err := o.m.store.version(ctx, o.id)
	if err == nil && newest != s.version {
		err = errStale
	}
	return err
}

func idTaken(err error) bool {
	var refused *database.ConstraintError
	return errors.As(err, &refused) && refused.Kind == database.Unique
}
