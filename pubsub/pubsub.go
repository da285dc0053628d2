// Package pubsub carries hints between the parts of a kit and between its nodes: "read this again".
// A hint may be lost, so the rows in the database are authoritative, and a caller that needs
// certainty also reads them from time to time.
//
// The guarantees, the same on both drivers:
//   - A hint published inside a transaction is sent after its commit; that of a transaction that is
//     rolled back is never sent.
//   - A subscription receives each hint of its topic at most once, and those of one publisher in
//     the order of publishing. The node of the publisher receives it too.
//   - If hints are lost on the way to a running node, each of its affected subscriptions receives a
//     nil payload in their place and reads its rows again. A node that dies loses its unsent hints;
//     other nodes are not notified.
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

// The largest topic and payload of a hint, in bytes. With the envelope they stay below the limit of
// PostgreSQL, 8,000 bytes. Send ids, not contents.
const (
	MaxTopic   = 128
	MaxPayload = 4096
)

// maxWaiting is the number of hints that are queued for a slow subscription.
const maxWaiting = 1024

// The errors of Publish.
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

// NewMemory returns a bus in one process.
func NewMemory() *Bus {
	return &Bus{log: slog.Default(), topics: map[string]map[*subscription]struct{}{}}
}

// Publish sends a hint after the commit of the transaction in ctx, or immediately if there is none.
// It copies the payload; a nil payload is received as an empty one. It refuses with [ErrTopic],
// [ErrPayload] and [ErrClosed].
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

// Subscribe calls fn for every hint of the topic, one at a time, until cancel is called; a call in
// progress may still finish afterwards. A nil payload means that hints may have been missed: after
// every connection to PostgreSQL, the first included, and after fn has fallen more than 1,024 hints
// behind and the oldest were dropped. fn shares the payload with other subscriptions and must not
// change it. A panic in fn is logged.
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

// Close ends all subscriptions and sends the hints that other nodes have not received yet. It gives
// up if the database does not respond within five seconds. Close the bus before its database.
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

// missed notifies every subscription that hints may have been lost.
func (b *Bus) missed() {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, subscriptions := range b.topics {
		for s := range subscriptions {
			s.push(nil)
		}
	}
}

// subscription runs fn in a goroutine that exists while hints are waiting.
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
	if len(s.waiting) == maxWaiting { // merge the two oldest into one nil
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
