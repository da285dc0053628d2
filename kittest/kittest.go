// Package kittest gives an application's tests a whole backend in memory: a
// composed kit on a clock that stands still, signed-in users, a control-plane
// caller, and a small HTTP client. It needs no network and no server.
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
	// Clock is the only clock of the kit; it moves when the test says so.
	Clock    *Clock
	t        testing.TB
	identity client.Identity
}

// New composes a kit and closes it when the test ends. Without WithDatabase it
// runs on SQLite in memory, in the mode that runs every transaction twice, so
// that a callback which cannot be repeated fails at once. The kit's warnings and
// errors go to the test's output.
func New(t testing.TB, opts ...kit.Option) *Kit {
	t.Helper()
	k, err := Compose(t, opts...)
	if err != nil {
		t.Fatalf("kittest: %v", err)
	}
	return k
}

// Compose is New for tests of compositions that the kit refuses.
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

// warnings returns a logger of warnings and errors into the test's output.
func warnings(t testing.TB) *slog.Logger {
	out := &output{to: t.Output()}
	t.Cleanup(out.end)
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// output drops what is written once the test is over, which would panic.
type output struct {
	mu sync.Mutex
	to io.Writer // nil at the end
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

// RunJobs works until no job and no tick of a schedule is due at the clock's
// instant, and returns how many ran.
func (k *Kit) RunJobs() int {
	k.t.Helper()
	n, err := k.Jobs().RunDue(context.Background())
	if err != nil {
		k.t.Fatalf("kittest: jobs: %v", err)
	}
	return n
}

// LastMail runs the jobs and returns the last mail to an address. It needs
// email composed without a provider.
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

// Clock stands still until it is moved.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts a clock at noon UTC of a Saturday, 21 November 2026.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, time.November, 21, 12, 0, 0, 0, time.UTC)}
}

// Now returns the instant the clock stands at.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock; a negative duration moves it back.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}
