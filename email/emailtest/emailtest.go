// Package emailtest is the suite that every transport of email passes.
package emailtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/email"
)

// Provider is a transport together with a far end that the test controls.
type Provider struct {
	Transport email.Transport
	// Accepted lists the messages that the far end has taken, byte by byte as it
	// got them.
	Accepted func() [][]byte
	// Refuse makes the far end refuse what comes next, for good with
	// [email.FailurePermanent] or for now with [email.FailureTemporary]; "" accepts again.
	Refuse func(kind email.FailureKind)
	// Stop ends the far end: nothing listens there any more.
	Stop func()
}

// patience bounds each delivery.
const patience = 30 * time.Second

// Run holds a transport to the rules of [email.Transport]. Each call of open
// makes one, and a far end that has taken nothing.
func Run(t *testing.T, open func(t *testing.T) Provider) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, Provider){
		"every byte arrives": bytesArrive, "many at once": together, "refusals": refusals,
		"nobody listens": stopped, "cancelled": cancelled, "close": closes,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func envelope(id, body string) email.Envelope {
	head := "From: hello@acme.example\r\nTo: ada@example.com\r\nSubject: " + id + "\r\nMessage-ID: <" + id + "@acme.example>\r\n" +
		"Date: Sat, 21 Nov 2026 12:00:00 +0000\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=us-ascii\r\n\r\n"
	return email.Envelope{JobID: id, From: "hello@acme.example", To: "ada@example.com", Message: []byte(head + body)}
}

func deliver(t *testing.T, p Provider, m email.Envelope) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := p.Transport.Deliver(ctx, m)
	return err
}

// bytesArrive: lines that begin with a dot, long lines and empty ones.
func bytesArrive(t *testing.T, p Provider) {
	bodies := []string{
		"Hello.\r\n", ".\r\n..\r\n.hidden\r\n", "\r\n\r\n\r\n", strings.Repeat("x", 900) + "\r\n", strings.Repeat("line\r\n", 20_000),
	}
	for i, body := range bodies {
		m := envelope(fmt.Sprintf("m%d", i), body)
		if err := deliver(t, p, m); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		accepted := p.Accepted()
		if len(accepted) != i+1 {
			t.Fatalf("message %d: the far end has %d messages, want %d", i, len(accepted), i+1)
		}
		if got := accepted[i]; !bytes.Equal(bytes.TrimRight(got, "\r\n"), bytes.TrimRight(m.Message, "\r\n")) {
			t.Errorf("message %d arrived as %d bytes, want %d: %.200q", i, len(got), len(m.Message), got)
		}
	}
}

func together(t *testing.T, p Provider) {
	const messages = 24
	var wg sync.WaitGroup
	for i := range messages {
		wg.Go(func() {
			if err := deliver(t, p, envelope(fmt.Sprintf("m%d", i), "Hello.\r\n")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	seen := make(map[string]bool)
	for _, message := range p.Accepted() {
		_, id, _ := bytes.Cut(message, []byte("Message-ID: "))
		line, _, _ := bytes.Cut(id, []byte("\r\n"))
		seen[string(line)] = true
	}
	if len(seen) != messages || len(p.Accepted()) != messages {
		t.Errorf("%d messages arrived, %d of them different; want %d", len(p.Accepted()), len(seen), messages)
	}
}

// refusals are failures of their kind, and the transport works on after them.
func refusals(t *testing.T, p Provider) {
	for _, kind := range []email.FailureKind{email.FailurePermanent, email.FailureTemporary} {
		p.Refuse(kind)
		err := deliver(t, p, envelope("refused", "Hello.\r\n"))
		if f := new(email.Failure); !errors.As(err, &f) || f.Kind != kind {
			t.Errorf("refused as %s: %v", kind, err)
		}
		p.Refuse("")
		if err := deliver(t, p, envelope("after", "Hello.\r\n")); err != nil {
			t.Errorf("after a refusal as %s: %v", kind, err)
		}
	}
	if n := len(p.Accepted()); n != 2 {
		t.Errorf("the far end has %d messages, want the 2 it accepted", n)
	}
}

// stopped is a failure after which another provider may try.
func stopped(t *testing.T, p Provider) {
	p.Stop()
	err := deliver(t, p, envelope("nobody", "Hello.\r\n"))
	if f := new(email.Failure); !errors.As(err, &f) || f.Kind != email.FailureUnreachable {
		t.Errorf("nobody listens: %v, want a failure of kind unreachable", err)
	}
}

func cancelled(t *testing.T, p Provider) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Transport.Deliver(ctx, envelope("cancelled", "Hello.\r\n")); err == nil {
		t.Error("delivered after the caller had gone")
	}
	if n := len(p.Accepted()); n != 0 {
		t.Errorf("the far end has %d messages of a caller that had gone", n)
	}
}

// closes twice without harm, where there is anything to close.
func closes(t *testing.T, p Provider) {
	if err := deliver(t, p, envelope("before", "Hello.\r\n")); err != nil {
		t.Fatal(err)
	}
	if closer, ok := p.Transport.(interface{ Close() error }); ok {
		for range 2 {
			if err := closer.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	}
}
