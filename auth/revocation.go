package auth

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/pubsub"
)

const (
	// pollEvery bounds how long a revocation takes to reach another node.
	pollEvery   = time.Second
	pollTimeout = 2 * time.Second
	pollLimit   = 1000
	pruneEvery  = time.Minute
	// revokedFor is how long a revocation is kept: the longest life of a token, and a day so that a
	// clock which jumps ahead and back does not make a revoked token valid.
	revokedFor = MaxAccessTokenTTL + leeway + 24*time.Hour
	// revocationTopic carries hints that there are new rows.
	revocationTopic = "auth/revocation"
)

// revoke ends the tokens of sessions from the commit of the transaction on.
func (a *Auth) revoke(ctx context.Context, sessions ...string) error {
	now := a.host.DB.Now(ctx)
	until := now.Add(revokedFor)
	if err := a.store.insertRevocations(ctx, sessions, now, until); err != nil {
		return err
	}
	database.AfterCommit(ctx, func() { a.revoked.add(sessions, until.UnixMilli()) })
	_ = a.host.PubSub.Publish(ctx, revocationTopic, nil) // a hint: other nodes poll without it
	return nil
}

// revocations are the ended sessions whose tokens may still be within their
// time. The rows are read again by the first request after a second or a hint,
// so an idle process reads nothing and nothing runs in the background.
type revocations struct {
	store store
	bus   *pubsub.Bus
	now   func() time.Time

	mu    sync.RWMutex
	until map[string]int64 // session id to milliseconds

	hints    atomic.Uint64
	polledAt atomic.Int64  // nanoseconds; the start of the last poll
	handled  atomic.Uint64 // the hints that came before it

	polling  sync.Mutex // guards what follows
	position int64
	failure  error // of the last poll
	failedAt time.Time
	prunedAt time.Time
	cancel   func() // ends the subscription
	closed   bool
}

// has reports whether a session has been revoked.
func (r *revocations) has(session string) bool {
	r.mu.RLock()
	_, revoked := r.until[session]
	r.mu.RUnlock()
	return revoked
}

func (r *revocations) add(sessions []string, until int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until == nil {
		r.until = make(map[string]int64)
	}
	for _, session := range sessions {
		r.until[session] = until
	}
}

// refresh makes sure that the rows were read within the last second and after
// the last hint. If they cannot be read, every token is refused. In a transaction it reads nothing,
// since rows read there may be rolled back: a proof within a transaction reads the row of the
// session itself.
func (r *revocations) refresh(ctx context.Context, now time.Time) error {
	if r.fresh(now) || r.store.db.InTransaction(ctx) {
		return nil
	}
	r.polling.Lock()
	defer r.polling.Unlock()
	now = r.now()
	if r.fresh(now) {
		return nil
	}
	if since := now.Sub(r.failedAt); r.failure != nil && 0 <= since && since < pollEvery {
		return r.failure // those who waited for a poll that failed do not try again one by one
	}
	r.listen()
	hints := r.hints.Load() // before reading: a hint that comes meanwhile counts
	if r.failure = r.poll(ctx, now); r.failure != nil {
		r.failedAt = r.now()
		r.polledAt.Store(0) // a clock that goes back does not make the last one new
		return r.failure
	}
	r.handled.Store(hints)
	r.polledAt.Store(now.UnixNano())
	return nil
}

func (r *revocations) fresh(now time.Time) bool {
	since := now.UnixNano() - r.polledAt.Load()
	return 0 <= since && since < int64(pollEvery) && r.hints.Load() == r.handled.Load()
}

// poll reads the rows after the last position. A canceled caller does not stop it, for others wait
// too.
func (r *revocations) poll(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pollTimeout)
	defer cancel()
	if now.Sub(r.prunedAt) >= pruneEvery {
		r.prune(now)
		r.prunedAt = now
	}
	for {
		rows, err := r.store.revocations(ctx, r.position, pollLimit)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r.add([]string{row.sessionID}, row.until)
			r.position = row.position
		}
		if len(rows) < pollLimit {
			return nil
		}
	}
}

// prune forgets revocations that are older than any valid token.
func (r *revocations) prune(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for session, until := range r.until {
		if until < now.UnixMilli() {
			delete(r.until, session)
		}
	}
}

// listen subscribes with the first poll: New does no I/O.
func (r *revocations) listen() {
	if r.cancel == nil && !r.closed {
		r.cancel = r.bus.Subscribe(revocationTopic, func([]byte) { r.hints.Add(1) })
	}
}

func (r *revocations) close() {
	r.polling.Lock()
	defer r.polling.Unlock()
	if r.closed = true; r.cancel != nil {
		r.cancel()
		r.cancel = nil
	}
}
