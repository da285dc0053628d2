package signin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
)

// slots bounds concurrent work, with a queue. Clients that their account knows have a quarter of
// the queue and every second free slot for themselves; the others share the rest fairly by their
// networks (/24 and /48): networks take turns, and a full queue drops the last ticket of the
// longest line.
type slots struct {
	patience time.Duration

	mu      sync.Mutex
	free    int
	queue   int // places in all
	waiting int
	known   line
	lines   map[string]*line
	ring    []*line // those that are not empty, the next one first
	knownIs bool    // next
}

// line is a queue of tickets, the first one first.
type line struct {
	network string
	tickets []*ticket
}

// ticket is a caller that waits; ready is closed once it is admitted or refused.
type ticket struct {
	ready   chan struct{}
	refused bool
}

func newSlots(free, queue int, patience time.Duration) *slots {
	return &slots{free: free, queue: queue, patience: patience, lines: make(map[string]*line)}
}

type knownClientKey struct{}

// knownClient marks work for a client that its account knows.
func knownClient(ctx context.Context) context.Context {
	return context.WithValue(ctx, knownClientKey{}, true)
}

// acquire waits for a slot, which release gives back. Refuses with
// kit/unavailable.
func (s *slots) acquire(ctx context.Context) error {
	known, _ := ctx.Value(knownClientKey{}).(bool)
	network := ""
	if info := capability.RequestInfoOf(ctx); info != nil {
		network = rate.NetworkKey(info.IP)
	}
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	mine, ok := s.join(known, network)
	s.mu.Unlock()
	if !ok {
		return errHashingBusy
	}
	return s.await(ctx, mine)
}

func (s *slots) await(ctx context.Context, mine *ticket) error {
	patience := time.NewTimer(s.patience)
	defer patience.Stop()
	var gaveUp error
	select {
	case <-mine.ready:
	case <-patience.C:
		gaveUp = errHashingBusy
	case <-ctx.Done():
		gaveUp = capability.ErrUnavailable.Because(ctx.Err())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case mine.refused:
		return errHashingBusy
	case gaveUp == nil:
		return nil
	case !s.drop(mine): // admitted meanwhile
		s.next()
	}
	return gaveUp
}

// join adds a ticket to its line; it returns false if there is no room.
func (s *slots) join(known bool, network string) (*ticket, bool) {
	mine := &ticket{ready: make(chan struct{})}
	if known {
		if s.waiting >= s.queue {
			return nil, false
		}
		s.known.tickets = append(s.known.tickets, mine)
		s.waiting++
		return mine, true
	}
	own := s.lines[network]
	if s.waiting-len(s.known.tickets) >= s.queue-s.queue/4 || s.waiting >= s.queue {
		longest := slices.MaxFunc(append(s.ring[:len(s.ring):len(s.ring)], &line{}), func(a, b *line) int { return len(a.tickets) - len(b.tickets) })
		if length := len(longest.tickets); length < 2 || own != nil && length <= len(own.tickets)+1 {
			return nil, false
		}
		s.refuseLast(longest)
	}
	if own == nil {
		own = &line{network: network}
		s.lines[network] = own
		s.ring = append(s.ring, own)
	}
	own.tickets = append(own.tickets, mine)
	s.waiting++
	return mine, true
}

func (s *slots) refuseLast(l *line) {
	last := l.tickets[len(l.tickets)-1]
	l.tickets = l.tickets[:len(l.tickets)-1]
	s.waiting--
	last.refused = true
	close(last.ready)
}

// drop removes a ticket from its line; it returns false if it is in none.
func (s *slots) drop(mine *ticket) bool {
	for _, l := range append([]*line{&s.known}, s.ring...) {
		if i := slices.Index(l.tickets, mine); i >= 0 {
			l.tickets = slices.Delete(l.tickets, i, i+1)
			s.waiting--
			s.forget(l)
			return true
		}
	}
	return false
}

// forget removes a line that is empty.
func (s *slots) forget(l *line) {
	if len(l.tickets) > 0 || l == &s.known {
		return
	}
	delete(s.lines, l.network)
	s.ring = slices.DeleteFunc(s.ring, func(other *line) bool { return other == l })
}

func (s *slots) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next()
}

// next passes a slot to the next ticket, or frees it.
func (s *slots) next() {
	from := &s.known
	switch {
	case s.waiting == 0:
		s.free++
		return
	case len(s.ring) > 0 && (len(s.known.tickets) == 0 || !s.knownIs):
		from = s.ring[0]
		s.ring = append(s.ring[1:], from)
	}
	s.knownIs = from != &s.known
	first := from.tickets[0]
	from.tickets = from.tickets[1:]
	s.waiting--
	s.forget(from)
	close(first.ready)
}
