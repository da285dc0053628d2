package pubsub

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/kitbackend/kit/database"
)

const (
	// gather is how long a node collects hints for one transaction. NOTIFY takes a lock that
	// every commit with a notification needs, so a node takes it at most 500 times a second.
	gather     = 2 * time.Millisecond
	maxBatch   = 1000
	maxUnsent  = 8192
	retryAfter = time.Second
	sendWithin = 5 * time.Second
)

// NewPostgres returns a bus that connects all nodes whose db is the same database and schema on
// PostgreSQL. The first subscription opens a separate connection for LISTEN. Hints are sent in
// separate transactions, after those that published them.
func NewPostgres(db *database.DB, log *slog.Logger) *Bus {
	b := NewMemory()
	b.log = log
	l := &link{db: db, log: log, node: rand.Text()}
	l.notify = l.notifyAll
	l.ctx, l.stop = context.WithCancel(context.Background())
	b.link = l
	return b
}

// link connects a node with the others.
type link struct {
	db     *database.DB
	log    *slog.Logger
	node   string
	notify func(ctx context.Context, payloads []string) error // one transaction

	ctx  context.Context // ends at close
	stop context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	unsent    []envelope
	sent      int64 // envelopes numbered so far
	sending   bool
	listening bool
	closed    bool
}

// envelope is a hint in transit. Without a topic it means that hints of this node were lost.
type envelope struct {
	Node string `json:"n"`
	// Number keeps PostgreSQL from merging equal hints of one transaction.
	Number  int64  `json:"i"`
	Topic   string `json:"t,omitempty"`
	Payload []byte `json:"p"`
}

func (l *link) publish(topic string, payload []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	if len(l.unsent) == maxUnsent {
		l.forget()
	}
	l.add(topic, payload)
	if !l.sending {
		l.sending = true
		l.work.Go(l.send)
	}
}

func (l *link) add(topic string, payload []byte) {
	l.sent++
	l.unsent = append(l.unsent, envelope{l.node, l.sent, topic, payload})
}

// forget replaces the unsent hints by an envelope that says they are lost.
func (l *link) forget() {
	l.unsent = nil
	l.add("", nil)
}

// send runs while there is something to send.
func (l *link) send() {
	for {
		l.pause(gather)
		batch := l.take()
		if len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), sendWithin)
		err := l.notify(ctx, batch)
		cancel()
		if err == nil {
			continue
		}
		l.log.Warn("pubsub: hints to other nodes lost", "hints", len(batch), "error", err)
		if !l.lost() {
			return
		}
		l.pause(retryAfter)
	}
}

func (l *link) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(len(l.unsent), maxBatch)
	batch := make([]string, n)
	for i, e := range l.unsent[:n] {
		text, err := json.Marshal(e)
		if err != nil {
			panic(err) // strings, bytes and a number always encode
		}
		batch[i] = string(text)
	}
	l.unsent = l.unsent[n:]
	if n == 0 {
		l.unsent, l.sending = nil, false
	}
	return batch
}

// lost replaces the unsent hints and reports whether to try again, which it is unless the link is
// closed.
func (l *link) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget()
	l.sending = !l.closed
	return l.sending
}

func (l *link) pause(d time.Duration) {
	select {
	case <-l.ctx.Done():
	case <-time.After(d):
	}
}

// channel has a name for each schema, because channels belong to the whole database.
const channel = `(SELECT 'kit_' || left(encode(sha256(convert_to(coalesce(current_schema(), ''), 'UTF8')), 'hex'), 16))`

func (l *link) notifyAll(ctx context.Context, payloads []string) error {
	_, err := l.db.Exec(ctx, `SELECT pg_notify(`+channel+`, hint) FROM jsonb_array_elements_text($1::jsonb) AS hint`,
		database.List(payloads))
	return err
}

// listen starts receiving, unless it has started already.
func (l *link) listen(b *Bus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listening || l.closed {
		return
	}
	l.listening = true
	l.work.Go(func() {
		for l.ctx.Err() == nil {
			var name string
			err := l.db.QueryRow(l.ctx, `SELECT `+channel).Scan(&name)
			if err == nil {
				err = l.db.Listen(l.ctx, name, b.missed, func(payload string) { l.receive(b, payload) })
			}
			if l.ctx.Err() == nil {
				l.log.Warn("pubsub: not listening", "error", err)
				l.pause(retryAfter)
			}
		}
	})
}

func (l *link) receive(b *Bus, payload string) {
	var e envelope
	if err := json.Unmarshal([]byte(payload), &e); err != nil {
		l.log.Warn("pubsub: not a hint", "error", err)
		return
	}
	switch {
	case e.Node == l.node: // delivered when it was published
	case e.Topic == "":
		b.missed()
	default:
		b.deliver(e.Topic, append([]byte{}, e.Payload...))
	}
}

func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.work.Wait()
}
