// Package secretstest is the conformance suite of secrets providers.
package secretstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/kitbackend/kit/secrets"
)

// Canary is in every value that the suite stores; it must never be in an error.
const Canary = "canary-6f1c2d"

// Run tests a writable provider against the rules of [secrets.Provider]. Each call of open returns
// an empty one.
func Run(t *testing.T, open func(t *testing.T) secrets.Provider) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, secrets.Provider){
		"absent": absent, "versions": versions, "conflict": conflict, "racing writers": racing,
		"delete": deletes, "names apart": apart, "largest payload": largest, "cancelled": cancelled,
	} {
		t.Run(name, func(t *testing.T) {
			p := open(t)
			if p.Name() == "" || p.ReadOnly() {
				t.Error("no name, or read only")
			}
			test(t, p)
		})
	}
}

// RunReadOnly tests a read-only provider against the rules; open returns one that contains the
// payload under the name, and nothing else.
func RunReadOnly(t *testing.T, open func(t *testing.T, name string, payload secrets.Value) secrets.Provider) {
	t.Helper()
	p := open(t, "first-secret", payload("a"))
	ctx := context.Background()
	if !p.ReadOnly() {
		t.Error("not read only")
	}
	stored := read(t, p, "first-secret", 0)
	if stored.Version < 1 || !stored.Payload.Equal(payload("a")) {
		t.Errorf("version %d, not what was given", stored.Version)
	}
	if again := read(t, p, "first-secret", stored.Version); !again.Payload.Equal(payload("a")) {
		t.Error("the newest version is not there under its number")
	}
	for _, name := range []string{"other-secret", "first-secret.pending"} {
		if stored := read(t, p, name, 0); stored.Version != 0 || !stored.Payload.Empty() {
			t.Errorf("%s: version %d out of nowhere", name, stored.Version)
		}
	}
	if _, err := p.Write(ctx, "first-secret", stored.Version, payload("b")); !errors.Is(err, secrets.ErrReadOnly) {
		t.Errorf("write: %v", err)
	}
	if err := p.Delete(ctx, "first-secret"); !errors.Is(err, secrets.ErrReadOnly) {
		t.Errorf("delete: %v", err)
	}
}

// payload returns blocks whose values contain the canary.
func payload(mark string) secrets.Value {
	return secrets.NewValue(fmt.Sprintf(`{"block":{"field":"%s-%s"}}`, Canary, mark))
}

// clean fails the test if an error quotes a stored value.
func clean(t *testing.T, err error) {
	t.Helper()
	if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), Canary) {
		t.Errorf("the error quotes the secret: %v", err)
	}
}

func read(t *testing.T, p secrets.Provider, name string, version int64) secrets.Stored {
	t.Helper()
	stored, err := p.Read(context.Background(), name, version)
	clean(t, err)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return stored
}

func write(t *testing.T, p secrets.Provider, name string, after int64, payload secrets.Value) int64 {
	t.Helper()
	version, err := p.Write(context.Background(), name, after, payload)
	clean(t, err)
	if err != nil {
		t.Fatalf("write %s after %d: %v", name, after, err)
	}
	return version
}

func absent(t *testing.T, p secrets.Provider) {
	for _, version := range []int64{0, 1, 7} {
		if stored := read(t, p, "first-secret", version); !stored.Payload.Empty() || stored.Version != version {
			t.Errorf("version %d: %d", version, stored.Version)
		}
	}
}

func versions(t *testing.T, p secrets.Provider) {
	last := int64(0)
	for _, mark := range []string{"a", "b", "c"} {
		version := write(t, p, "first-secret", last, payload(mark))
		if version <= last {
			t.Fatalf("version %d after %d", version, last)
		}
		newest := read(t, p, "first-secret", 0)
		if newest.Version != version || !newest.Payload.Equal(payload(mark)) {
			t.Errorf("the newest is version %d, want %d", newest.Version, version)
		}
		if newest.CreatedAt.IsZero() {
			t.Error("no time")
		}
		last = version
	}
	if before := read(t, p, "first-secret", last-1); !before.Payload.Equal(payload("b")) {
		t.Error("the version before is gone")
	}
	if next := read(t, p, "first-secret", last+1); !next.Payload.Empty() {
		t.Error("a version that was never written")
	}
}

func conflict(t *testing.T, p secrets.Provider) {
	last := write(t, p, "first-secret", 0, payload("a"))
	for _, after := range []int64{0, last + 1, last + 100} {
		_, err := p.Write(context.Background(), "first-secret", after, payload("b"))
		clean(t, err)
		if !errors.Is(err, secrets.ErrVersionConflict) {
			t.Errorf("write after %d: %v", after, err)
		}
	}
	if _, err := p.Write(context.Background(), "other-secret", 5, payload("b")); !errors.Is(err, secrets.ErrVersionConflict) {
		t.Errorf("write after 5 of nothing: %v", err)
	}
	if stored := read(t, p, "first-secret", 0); stored.Version != last || !stored.Payload.Equal(payload("a")) {
		t.Error("a refused write changed something")
	}
}

func racing(t *testing.T, p secrets.Provider) {
	const writers = 8
	var mu sync.Mutex
	var won []string
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			mark := fmt.Sprint(i)
			_, err := p.Write(context.Background(), "first-secret", 0, payload(mark))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				won = append(won, mark)
			case !errors.Is(err, secrets.ErrVersionConflict):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(won) != 1 || !read(t, p, "first-secret", 0).Payload.Equal(payload(won[0])) {
		t.Errorf("won: %v", won)
	}
}

func deletes(t *testing.T, p secrets.Provider) {
	last := write(t, p, "first-secret", 0, payload("a"))
	write(t, p, "first-secret", last, payload("b"))
	for range 2 { // the second time there is nothing to delete
		if err := p.Delete(context.Background(), "first-secret"); err != nil {
			t.Fatal(err)
		}
	}
	if stored := read(t, p, "first-secret", 0); !stored.Payload.Empty() {
		t.Error("still there")
	}
	stored := read(t, p, "first-secret", 0)
	write(t, p, "first-secret", stored.Version, payload("c"))
}

func apart(t *testing.T, p secrets.Provider) {
	names := []string{"a", "a-b", "a.pending", strings.Repeat("n", 63)}
	for _, name := range names {
		write(t, p, name, 0, payload(name))
	}
	for _, name := range names {
		if !read(t, p, name, 0).Payload.Equal(payload(name)) {
			t.Errorf("%s holds another's payload", name)
		}
	}
}

func largest(t *testing.T, p secrets.Provider) {
	head, tail := `{"block":{"field":"`, `"}}`
	full := secrets.NewValue(head + strings.Repeat("x", secrets.MaxPayload-len(head)-len(tail)) + tail)
	write(t, p, "first-secret", 0, full)
	if !read(t, p, "first-secret", 0).Payload.Equal(full) {
		t.Error("not what was written")
	}
}

func cancelled(t *testing.T, p secrets.Provider) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Read(ctx, "first-secret", 0); err == nil {
		t.Error("read goes on")
	}
	_, err := p.Write(ctx, "first-secret", 0, payload("a"))
	clean(t, err)
	if err == nil {
		t.Error("write goes on")
	}
}
