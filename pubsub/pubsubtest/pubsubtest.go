// Package pubsubtest is the test suite of the drivers of package pubsub.
package pubsubtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/pubsub"
)

// Open returns two nodes of one deployment, or the same bus twice for a driver of one process, and
// the database of the transactions of the first node. Both nodes are connected, so that no further
// nil payload arrives.
type Open func(t *testing.T) (a, b *pubsub.Bus, db *database.DB)

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Run("every subscription of the topic gets each hint once and in order", func(t *testing.T) {
		a, b, _ := open(t)
		inboxes := []*Inbox{Subscribe(t, a, "topic"), Subscribe(t, a, "topic"), Subscribe(t, b, "topic"), Subscribe(t, b, "topic")}
		other := Subscribe(t, b, "other")
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
			publish(t, a, "topic", want[i])
		}
		publish(t, a, "other", "end")
		for _, inbox := range inboxes {
			inbox.Want(t, want...)
		}
		other.Want(t, "end")
	})
	t.Run("equal hints are not folded", func(t *testing.T) {
		a, b, _ := open(t)
		inbox := Subscribe(t, b, "topic")
		for range 5 {
			publish(t, a, "topic", "same")
		}
		publish(t, a, "topic", "end")
		inbox.Want(t, "same", "same", "same", "same", "same", "end")
	})
	t.Run("hints leave after the commit", func(t *testing.T) {
		a, b, db := open(t)
		ctx := t.Context()
		if _, err := db.Exec(ctx, `CREATE TABLE pubsub_fact (id TEXT NOT NULL PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		seen := make(chan bool, 2)
		for _, bus := range []*pubsub.Bus{a, b} {
			t.Cleanup(bus.Subscribe("topic", func([]byte) {
				var id string
				err := db.QueryRow(context.WithoutCancel(ctx), `SELECT id FROM pubsub_fact`).Scan(&id)
				seen <- err == nil
			}))
		}
		if err := db.InTx(ctx, func(ctx context.Context) error {
			if err := a.Publish(ctx, "topic", nil); err != nil {
				return err
			}
			_, err := db.Exec(ctx, `INSERT INTO pubsub_fact (id) VALUES ('1')`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		for range cap(seen) {
			if !receive(t, seen) {
				t.Error("a hint came before its row")
			}
		}
	})
	t.Run("a rolled back transaction publishes nothing", func(t *testing.T) {
		a, b, db := open(t)
		here, there := Subscribe(t, a, "topic"), Subscribe(t, b, "topic")
		refused := errors.New("refused")
		if err := db.InTx(t.Context(), func(ctx context.Context) error {
			publishIn(ctx, t, a, "topic", "rolled back")
			return refused
		}); !errors.Is(err, refused) {
			t.Fatal(err)
		}
		if err := db.InTx(t.Context(), func(ctx context.Context) error {
			publishIn(ctx, t, a, "topic", "committed")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		here.Want(t, "committed")
		there.Want(t, "committed")
	})
	t.Run("payloads are bytes, copied, and never nil", func(t *testing.T) {
		a, b, _ := open(t)
		inboxes := []*Inbox{Subscribe(t, a, "topic"), Subscribe(t, b, "topic")}
		every := make([]byte, 256)
		for i := range every {
			every[i] = byte(i)
		}
		largest := bytes.Repeat([]byte{255}, pubsub.MaxPayload)
		reused := []byte("before")
		for _, payload := range [][]byte{every, largest, reused, nil, {}} {
			if err := a.Publish(t.Context(), "topic", payload); err != nil {
				t.Fatal(err)
			}
		}
		copy(reused, "after!")
		for _, inbox := range inboxes {
			inbox.Want(t, string(every), string(largest), "before", "", "")
		}
	})
	t.Run("topics are any UTF-8", func(t *testing.T) {
		a, b, _ := open(t)
		for _, topic := range []string{"a", "jeu/é/<\x01>", "quote'\"\\", strings.Repeat("<", pubsub.MaxTopic)} {
			inbox := Subscribe(t, b, topic)
			publish(t, a, topic, strings.Repeat("x", pubsub.MaxPayload))
			inbox.Want(t, strings.Repeat("x", pubsub.MaxPayload))
		}
	})
	t.Run("bounds", func(t *testing.T) {
		a, _, _ := open(t)
		for _, topic := range []string{"", strings.Repeat("x", pubsub.MaxTopic+1), "\xff"} {
			if err := a.Publish(t.Context(), topic, nil); !errors.Is(err, pubsub.ErrTopic) {
				t.Errorf("topic %.10q: %v", topic, err)
			}
		}
		if err := a.Publish(t.Context(), "topic", make([]byte, pubsub.MaxPayload+1)); !errors.Is(err, pubsub.ErrPayload) {
			t.Errorf("payload: %v", err)
		}
	})
	t.Run("cancel ends one subscription", func(t *testing.T) {
		a, b, _ := open(t)
		stays := Subscribe(t, b, "topic")
		cancel := b.Subscribe("topic", func([]byte) { t.Error("called after cancel") })
		cancel()
		cancel()
		publish(t, a, "topic", "1")
		stays.Want(t, "1")
	})
	t.Run("a subscriber may cancel itself, publish and subscribe", func(t *testing.T) {
		a, b, _ := open(t)
		next := Subscribe(t, a, "next")
		var cancel func()
		ready := make(chan struct{})
		cancel = b.Subscribe("topic", func([]byte) {
			<-ready
			cancel()
			b.Subscribe("unused", func([]byte) {})()
			if err := b.Publish(context.Background(), "next", []byte("1")); err != nil {
				t.Error(err)
			}
		})
		close(ready)
		publish(t, a, "topic", "1")
		next.Want(t, "1")
	})
	t.Run("a slow subscriber blocks nobody and loses the oldest", func(t *testing.T) {
		a, _, _ := open(t)
		const hints = 3000
		hold, first := make(chan struct{}), make(chan bool, 1)
		var got []string
		done := make(chan bool, 1)
		t.Cleanup(a.Subscribe("topic", func(payload []byte) {
			if len(got) == 0 {
				first <- true
				<-hold
			}
			got = append(got, text(payload))
			if string(payload) == fmt.Sprint(hints-1) {
				done <- true
			}
		}))
		quick := Subscribe(t, a, "topic")
		var want []string
		for i := range hints {
			want = append(want, fmt.Sprint(i))
			publish(t, a, "topic", want[i])
			if i == 0 {
				receive(t, first)
			}
			quick.Want(t, want[i])
		}
		close(hold)
		receive(t, done)
		const kept = 1023
		if diff := cmp.Diff(append([]string{"0", missed}, want[hints-kept:]...), got); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("a panic ends neither the subscription nor the process", func(t *testing.T) {
		a, b, _ := open(t)
		var calls int
		done := make(chan bool, 1)
		t.Cleanup(b.Subscribe("topic", func([]byte) {
			if calls++; calls == 1 {
				panic("first")
			}
			done <- true
		}))
		publish(t, a, "topic", "1")
		publish(t, a, "topic", "2")
		receive(t, done)
	})
	t.Run("many publishers, both ways", func(t *testing.T) {
		a, b, _ := open(t)
		const publishers, hints = 8, 100
		inboxes := []*Inbox{Subscribe(t, a, "topic"), Subscribe(t, b, "topic")}
		var wg sync.WaitGroup
		for p := range publishers {
			wg.Go(func() {
				bus := []*pubsub.Bus{a, b}[p%2]
				for i := range hints {
					publish(t, bus, "topic", fmt.Sprintf("%d %d", p, i))
				}
			})
		}
		wg.Wait()
		for _, inbox := range inboxes {
			last := map[int]int{}
			for range publishers * hints {
				var p, i int
				if hint := inbox.Next(t); hint == missed {
					t.Fatal("hints lost")
				} else if _, err := fmt.Sscan(hint, &p, &i); err != nil {
					t.Fatal(err)
				}
				if last[p] != i {
					t.Fatalf("publisher %d: hint %d came instead of %d", p, i, last[p])
				}
				last[p]++
			}
		}
	})
	t.Run("close sends what was published and ends the subscriptions", func(t *testing.T) {
		a, b, _ := open(t)
		inbox := Subscribe(t, b, "topic")
		publish(t, a, "topic", "last")
		for range 2 {
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if a != b {
			inbox.Want(t, "last")
			a.Subscribe("topic", func([]byte) { t.Error("called after Close") })
			publish(t, b, "topic", "too late")
			inbox.Want(t, "too late")
		}
		if err := a.Publish(t.Context(), "topic", nil); !errors.Is(err, pubsub.ErrClosed) {
			t.Errorf("Publish: %v", err)
		}
	})
}

// missed represents the nil payload.
const missed = "hints may have been missed"

func text(payload []byte) string {
	if payload == nil {
		return missed
	}
	return string(payload)
}

// Inbox collects the hints of a subscription.
type Inbox struct{ hints chan string }

// Subscribe collects the hints of a topic until the test ends.
func Subscribe(t *testing.T, b *pubsub.Bus, topic string) *Inbox {
	t.Helper()
	inbox := &Inbox{make(chan string, 10000)}
	t.Cleanup(b.Subscribe(topic, func(payload []byte) { inbox.hints <- text(payload) }))
	return inbox
}

// Next waits for a hint.
func (i *Inbox) Next(t *testing.T) string {
	t.Helper()
	return receive(t, i.hints)
}

// Want waits for these hints and fails the test if others arrive in between.
func (i *Inbox) Want(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := i.Next(t); got != w {
			t.Fatalf("got %.40q, want %.40q", got, w)
		}
	}
}

// WantMissed waits for the nil payload.
func (i *Inbox) WantMissed(t *testing.T) {
	t.Helper()
	i.Want(t, missed)
}

func publish(t *testing.T, b *pubsub.Bus, topic, payload string) {
	t.Helper()
	publishIn(t.Context(), t, b, topic, payload)
}

func publishIn(ctx context.Context, t *testing.T, b *pubsub.Bus, topic, payload string) {
	t.Helper()
	if err := b.Publish(ctx, topic, []byte(payload)); err != nil {
		t.Error(err)
	}
}

// receive fails the test instead of hanging.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
