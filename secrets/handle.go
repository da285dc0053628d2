package secrets

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/pubsub"
)

const (
	// CacheFor bounds how long a node uses a version after another node has replaced it; a
	// notification usually shortens it to much less.
	CacheFor = 30 * time.Second
	// retryAfter is how long after a failure of the provider the last version read, or the failure
	// if none was read, is returned without another attempt.
	retryAfter = 5 * time.Second
	// readWithin bounds one refresh, independent of the context of the caller.
	readWithin = 10 * time.Second
	topic      = "secrets/version"
)

// Data is a version of a secret.
type Data struct {
	version   int64
	createdAt time.Time
	blocks    Blocks
}

// Version returns the number of the version, from 1.
func (d Data) Version() int64 { return d.version }

// Block returns a block if it is complete. Its optional fields may be empty.
func (d Data) Block(name string) (Fields, bool) {
	fields, ok := d.blocks[name]
	return fields, ok
}

// Handle reads one secret. It is safe for concurrent use.
type Handle struct {
	secrets *Secrets
	secret  Secret

	known   atomic.Pointer[known]
	hinted  atomic.Bool
	warned  atomic.Bool
	reading sync.Mutex
}

// known is the cached result of a read and its time; err is the error of the last read if none has
// succeeded yet.
type known struct {
	current, previous Data
	at                time.Time
	err               error
}

// Get returns the current version, at most [CacheFor] old; while the provider fails, it returns the
// last version read. Call it for every use and do not store the result. It refuses with
// secrets/not_found if there is no version, with secrets/invalid_value if a read-only provider
// contains invalid values, and with kit/unavailable if the provider fails and nothing has been read
// yet.
func (h *Handle) Get(ctx context.Context) (Data, error) {
	k, err := h.load(ctx)
	switch {
	case err != nil:
		return Data{}, err
	case k.current.version == 0:
		h.warnOnce(ctx)
		return Data{}, ErrNotFound
	}
	return k.current, nil
}

// warnOnce logs that the secret is used and has no version: its user may only wait and try again.
func (h *Handle) warnOnce(ctx context.Context) {
	if !h.warned.Swap(true) {
		h.secrets.host.Log.WarnContext(ctx, "secrets: a secret is used and has no values: give them with Secrets.Rotate or over the control plane",
			slog.String("secret", h.secret.Name))
	}
}

// Previous returns the previous version during the overlap of the secret, to verify what was signed
// just before a rotation. There is none if it does not open with the master keys.
func (h *Handle) Previous(ctx context.Context) (data Data, ok bool, err error) {
	k, err := h.load(ctx)
	if err != nil || k.previous.version == 0 {
		return Data{}, false, err
	}
	since := h.secrets.host.Now().Sub(k.current.createdAt)
	if k.current.createdAt.IsZero() || since >= h.secret.overlap() {
		return Data{}, false, nil
	}
	return k.previous, true, nil
}

func (h *Handle) load(ctx context.Context) (*known, error) {
	k := h.known.Load()
	if h.fresh(k) {
		return k, k.err
	}
	within := h.secrets.host.DB.InTransaction(ctx)
	if !h.reading.TryLock() { // another goroutine is reading
		switch {
		case k != nil:
			return k, k.err
		case within: // the other goroutine may be waiting for this transaction
			k, err := h.read(ctx)
			return k, unavailable(err)
		}
		h.reading.Lock()
	}
	defer h.reading.Unlock()
	if k = h.known.Load(); h.fresh(k) {
		return k, k.err
	}
	h.secrets.news.listen()
	hinted := h.hinted.Swap(false)
	fresh, err := h.read(ctx)
	again := h.secrets.host.Now().Add(retryAfter - CacheFor) // a failure may have taken a long time
	switch {
	case err == nil && within:
		if hinted { // not cached, because it may never be committed
			h.hinted.Store(true)
		}
		return fresh, nil
	case err == nil:
		h.known.Store(fresh)
		return fresh, nil
	case k == nil || k.err != nil:
		err = unavailable(err)
		if errors.Is(err, capability.ErrUnavailable) && !within { // the transaction may be the cause
			h.known.Store(&known{at: again, err: err})
		}
		return nil, err
	}
	h.secrets.host.Log.WarnContext(ctx, "secrets: working with the last version read",
		slog.String("secret", h.secret.Name), slog.Int64("version", k.current.version), slog.Any("error", err))
	last := *k
	last.at = again
	h.known.Store(&last)
	return &last, nil
}

func (h *Handle) fresh(k *known) bool {
	if k == nil || h.hinted.Load() {
		return false
	}
	age := h.secrets.host.Now().Sub(k.at)
	return 0 <= age && age < CacheFor
}

// read reads the newest version and the previous one from the provider.
func (h *Handle) read(ctx context.Context) (k *known, err error) {
	k = &known{at: h.secrets.host.Now()}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readWithin)
	defer cancel()
	if k.current, err = h.secrets.read(ctx, h.secret, 0); err != nil || k.current.version < 2 {
		return k, err
	}
	k.previous, err = h.secrets.read(ctx, h.secret, k.current.version-1)
	if errors.Is(err, seal.ErrNotOpened) { // the current version may have replaced it for that reason
		err = nil
	}
	return k, err
}

// read returns the complete blocks of a version; version 0 if it does not exist.
func (s *Secrets) read(ctx context.Context, secret Secret, version int64) (Data, error) {
	stored, err := s.provider.Read(ctx, secret.Name, version)
	if err != nil || stored.Payload.Empty() {
		return Data{}, err
	}
	blocks, _, err := decode(stored.Payload)
	if err != nil {
		return Data{}, err
	}
	whole, halves := secret.complete(blocks)
	if len(halves) > 0 {
		s.host.Log.WarnContext(ctx, "secrets: blocks are not complete and count as absent",
			slog.String("secret", secret.Name), slog.Any("blocks", halves))
	}
	if s.provider.ReadOnly() { // they were not checked when they were written
		if err := secret.permit(whole); err != nil {
			return Data{}, err
		}
	}
	return Data{stored.Version, stored.CreatedAt, whole}, nil
}

// hint makes the handle of a name read again; nil means all names.
func (s *Secrets) hint(name []byte) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.handles {
		if name == nil || h.secret.Name == string(name) {
			h.hinted.Store(true)
		}
	}
}

// changed notifies every node of a new version when ctx's transaction commits: this node before the
// commit returns, the others by a message.
func (s *Secrets) changed(ctx context.Context, name string) {
	database.AfterCommit(ctx, func() { s.hint([]byte(name)) })
	if err := s.host.PubSub.Publish(ctx, topic, []byte(name)); err != nil {
		s.host.Log.WarnContext(ctx, "secrets: other nodes not told", slog.String("secret", name), slog.Any("error", err))
	}
}

// listener subscribes on the first read, because New does no I/O.
type listener struct {
	bus  *pubsub.Bus
	tell func([]byte)

	mu     sync.Mutex
	cancel func()
	closed bool
}

func (l *listener) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil && !l.closed {
		l.cancel = l.bus.Subscribe(topic, l.tell)
	}
}

func (l *listener) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed = true; l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
}
