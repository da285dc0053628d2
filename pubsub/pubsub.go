// Package pubsub carries hints between the parts of a kit and between its nodes: "look again at this". A hint may be
// lost, so the rows in the database are the truth and a caller that needs certainty also reads them now and then.
//
// The promises, the same on both drivers:
//   - A hint published inside a transaction leaves after its commit, one of a rolled-back transaction never.
//   - A subscription gets each hint of its topic at most once, those of one publisher in the
//     order of publishing; the publisher's own node gets it too.
//   - Where hints were lost on the way to a living node, each of its subscriptions concerned gets
//     a nil payload in their place and reads its rows again. A node that dies takes its unsent
//     hints with it; nobody is told.
//   - Publishing never waits for a subscriber or for the network.
package pubsub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"unicode/utf8"

	"github.com/kitbackend/kit/database"
)

// The bounds of a hint in bytes, far enough below what PostgreSQL sends (8,000) for the envelope around it. Send ids,
// not bodies.
const (
	MaxTopic   = 128
	MaxPayload = 4096
)

// maxWaiting is the number of hints a subscription keeps for a slow function.
const maxWaiting = 1024

// Errors of Publish.
var (
	ErrTopic   = fmt.Errorf("pubsub: a topic is 1 to %d bytes of UTF-8", MaxTopic)
	ErrPayload = fmt.Errorf("pubsub: a payload is at most %d bytes", MaxPayload)
	ErrClosed  = errors.New("pubsub: closed")
)

// Bus carries hints. It is safe for concurrent use.
type Bus struct {
	log  *slog.Logger
	link *link // to the other nodes; nil in one process

	mu     sync.RWMutex
	topics map[string]map[*subscription]struct{}
	closed bool
}

// NewMemory returns a bus for one process.
func NewMemory() *Bus {
	return &Bus{log: slog.Default(), topics: map[string]map[*subscription]struct{}{}}
}

// Publish sends a hint: after the commit of the transaction in ctx, or now when there is none. It copies the payload,
// and a nil one arrives empty. It refuses with [ErrTopic], [ErrPayload] and [ErrClosed].
func (b *Bus) Publish(ctx context.Context, topic string, payload []byte) error {
	if len(topic) == 0 || len(topic) > MaxTopic || !utf8.ValidString(topic) {
		return ErrTopic
	}
	if len(payload) > MaxPayload {
		return ErrPayload
	}
	b.mu.RLock()
	closed := b.closed
	b.mu.RUnlock()
	if closed {
		return ErrClosed
	}
	payload = append([]byte{}, payload...)
	database.AfterCommit(ctx, func() {
		b.deliver(topic, payload)
		if b.link != nil {
			b.link.publish(topic, payload)
		}
	})
	return nil
}

// Subscribe calls fn for every hint of the topic, one at a time, until cancel is called; a call under way may then
// still finish. A nil payload means that hints may have been missed: after every connect to PostgreSQL, the first
// included, and when fn fell more than 1,024 hints behind and the oldest were dropped. fn shares the payload with
// other subscriptions and must not change it. A panic in fn is logged.
func (b *Bus) Subscribe(topic string, fn func(payload []byte)) (cancel func()) {
	s := &subscription{fn: fn, log: b.log}
	b.mu.Lock()
	if b.topics[topic] == nil {
		b.topics[topic] = map[*subscription]struct{}{}
	}
	b.topics[topic][s] = struct{}{}
	b.mu.Unlock()
	if b.link != nil {
		b.link.listen(b)
	}
	return func() {
		b.mu.Lock()
		delete(b.topics[topic], s)
		if len(b.topics[topic]) == 0 {
			delete(b.topics, topic)
		}
		b.mu.Unlock()
		s.end()
	}
}

// Close ends all subscriptions and sends the other nodes what they have not got yet, giving up when the database does
// not respond within five seconds. Close the bus before its database.
func (b *Bus) Close() error {
	b.mu.Lock()
	b.closed = true
	topics := b.topics
	b.topics = map[string]map[*subscription]struct{}{}
	b.mu.Unlock()
	for _, subscriptions := range topics {
		for s := range subscriptions {
			s.end()
		}
	}
	if b.link != nil {
		b.link.close()
	}
	return nil
}

func (b *Bus) deliver(topic string, payload []byte) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for s := range b.topics[topic] {
		s.push(payload)
	}
}

// missed tells every subscription that hints may have been lost.
func (b *Bus) missed() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, subscriptions := range b.topics {
		for s := range subscriptions {
			s.push(nil)
		}
	}
}

// subscription runs fn in a goroutine that lives while hints are waiting.
type subscription struct {
	fn  func([]byte)
	log *slog.Logger

	mu      sync.Mutex
	waiting [][]byte
	active  bool
	ended   bool
}

func (s *subscription) push(payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if len(s.waiting) == maxWaiting { // the two oldest become one nil
		s.waiting = s.waiting[1:]
		s.waiting[0] = nil
	}
	s.waiting = append(s.waiting, payload)
	if !s.active {
		s.active = true
		go s.drain()
	}
}

func (s *subscription) drain() {
	for {
		s.mu.Lock()
		if len(s.waiting) == 0 {
			s.waiting, s.active = nil, false
			s.mu.Unlock()
			return
		}
		payload := s.waiting[0]
		s.waiting = s.waiting[1:]
		s.mu.Unlock()
		s.call(payload)
	}
}

func (s *subscription) call(payload []byte) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("pubsub: a subscriber panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	s.fn(payload)
}

func (s *subscription) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.waiting = true, nil
}
