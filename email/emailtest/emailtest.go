// Package emailtest is the test suite that every transport of email must pass.
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

// Provider is a transport with a server that the test controls.
type Provider struct {
	Transport email.Transport
	// Accepted lists the messages that the server has accepted, as received, byte for byte.
	Accepted func() [][]byte
	// Refuse makes the server refuse the next messages, permanently with [email.FailurePermanent]
	// or temporarily with [email.FailureTemporary]; "" accepts again.
	Refuse func(kind email.FailureKind)
	// Stop stops the server, so that connections are refused.
	Stop func()
}

// patience bounds each delivery.
const patience = 30 * time.Second

// Run checks that a transport keeps the rules of [email.Transport]. Each call of open returns a new
// transport, and a server that has accepted nothing.
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

// bytesArrive sends lines that begin with a dot, long lines and empty ones.
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

// refusals checks that refusals are failures of their kind, and that the transport works after
// them.
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

// stopped checks that an unreachable server is a failure after which another provider may be tried.
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

// closes checks that Close, if there is one, can be called twice.
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
