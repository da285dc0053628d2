// Package kittest provides a backend in memory for an application's tests: a composed kit with a
// clock that only the test moves, signed-in users, a control-plane caller, and a small HTTP client.
// It needs no network and no server.
package kittest

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/controlplane/client"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	_ "github.com/kitbackend/kit/internal/provoked" // records what the tests provoke
)

// Kit is a composed kit under test.
type Kit struct {
	*kit.Kit
	// Clock is the only clock of the kit; only the test moves it. With [kit.WithClock] the kit has the
	// clock given there, which several nodes or paytest's stores share, and this one moves nothing.
	Clock    *Clock
	t        testing.TB
	identity client.Identity
}

// New composes a kit and closes it when the test ends. Without WithDatabase it uses SQLite in
// memory, in the mode that runs every transaction twice, so that a function that cannot be repeated
// fails at once. Warnings and errors of the kit are written to the output of the test.
func New(t testing.TB, opts ...kit.Option) *Kit {
	t.Helper()
	k, err := Compose(t, opts...)
	if err != nil {
		t.Fatalf("kittest: %v", err)
	}
	return k
}

// Compose is [New] for tests of compositions that the kit refuses.
func Compose(t testing.TB, opts ...kit.Option) (*Kit, error) {
	t.Helper()
	db, err := database.OpenMemory(database.WithTestMode())
	if err != nil {
		t.Fatalf("kittest: %v", err)
	}
	t.Cleanup(func() { _ = db.Close() })
	tk := &Kit{Clock: NewClock(), t: t}
	defaults := []kit.Option{
		kit.WithDatabase(db),
		kit.WithClock(tk.Clock.Now),
		kit.WithEnvironment("test"),
		kit.WithLogger(warnings(t)),
	}
	tk.Kit, err = kit.New(append(defaults, opts...)...)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := tk.Close(context.Background()); err != nil {
			t.Errorf("kittest: close: %v", err)
		}
	})
	return tk, nil
}

// warnings returns a logger that writes warnings and errors to the output of the test.
func warnings(t testing.TB) *slog.Logger {
	out := &output{to: t.Output()}
	t.Cleanup(out.end)
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// output discards what is written after the end of the test, which would panic otherwise.
type output struct {
	mu sync.Mutex
	to io.Writer // nil after the end
}

func (o *output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.to == nil {
		return len(line), nil
	}
	return o.to.Write(line)
}

func (o *output) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.to = nil
}

// RunJobs runs jobs until no job and no tick of a schedule is due at the time of the clock, and
// returns how many ran.
func (k *Kit) RunJobs() int {
	k.t.Helper()
	n, err := k.Jobs().RunDue(context.Background())
	if err != nil {
		k.t.Fatalf("kittest: jobs: %v", err)
	}
	return n
}

// LastMail runs the jobs and returns the last mail to an address; it fails the test if there is
// none. It requires email to be composed without a provider.
func (k *Kit) LastMail(to string) email.Kept {
	k.t.Helper()
	k.RunJobs()
	mail, ok, err := k.Email().LastMail(context.Background(), to)
	k.must(err)
	if !ok {
		k.t.Fatalf("kittest: no mail to %s", to)
	}
	return mail
}

// Clock is a clock that stands still until it is moved.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock at noon UTC on Saturday, 21 November 2026.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)}
}

// Now returns the time of the clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward; a negative duration moves it back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
