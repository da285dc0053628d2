package secrets_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/secrets"
)

func TestHandles(t *testing.T) {
	p := &flaky{Provider: secrets.NewMemory(time.Now)}
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
	h := n.handle(payments.Name)
	ctx := context.Background()
	for range 2 {
		if _, err := h.Get(ctx); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("before the first version: %v", err)
		}
	}
	if got := strings.Count(n.log.String(), "a secret is used and has no values"); got != 1 {
		t.Errorf("%d warnings of a secret without values, want 1:\n%s", got, n.log)
	}
	n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
	if got := n.field(payments.Name, "paddle", "apiKey"); got != "p1" { // the clock stands still
		t.Errorf("the node that wrote p1 works with %q", got)
	}
	reads := p.reads
	for range 5 {
		n.advance(5 * time.Second)
		n.field(payments.Name, "paddle", "apiKey")
	}
	if p.reads != reads {
		t.Errorf("%d reads of the provider within the life of a version", p.reads-reads)
	}

	// Another node writes without a notification: this node caches the version for 30 seconds.
	if _, err := p.Write(ctx, payments.Name, 1, secrets.NewValue(`{"paddle":{"apiKey":"p2"},"stripe":{"secretKey":"half"},"other":{"a":"b"}}`)); err != nil {
		t.Fatal(err)
	}
	n.advance(secrets.CacheFor)
	if got := n.field(payments.Name, "paddle", "apiKey"); got != "p2" {
		t.Errorf("still %q", got)
	}
	data, err := h.Get(ctx)
	if _, half := data.Block("stripe"); half || err != nil || data.Version() != 2 {
		t.Errorf("a half block counts as present, %v", err)
	}
	before, ok, err := h.Previous(ctx)
	if fields, _ := before.Block("paddle"); !ok || err != nil || fields["apiKey"].Reveal() != "p1" {
		t.Errorf("the version before is not there: %v %v", ok, err)
	}

	p.err = errors.New("down")
	for range 10 {
		n.advance(time.Minute)
		if got := n.field(payments.Name, "paddle", "apiKey"); got != "p2" {
			t.Errorf("not the last good version: %q", got)
		}
	}
	failed := p.reads
	n.field(payments.Name, "paddle", "apiKey")
	if p.reads != failed {
		t.Error("asks a provider that has just failed")
	}
	other := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
	if _, err := other.handle(payments.Name).Get(ctx); !errors.Is(err, capability.ErrUnavailable) {
		t.Errorf("never read, and no error: %v", err)
	}
	p.err = nil
	n.advance(25 * time.Hour)
	if _, err := p.Write(ctx, payments.Name, 2, secrets.NewValue(`{"paddle":{"apiKey":"p3"}}`)); err != nil {
		t.Fatal(err)
	}
	if got := n.field(payments.Name, "paddle", "apiKey"); got != "p3" {
		t.Errorf("still %q after the provider came back", got)
	}
}

// TestProviderThatFailedIsAskedOnceForAll checks that concurrent callers do not each wait for the
// failure of a provider that has never been read.
func TestProviderThatFailedIsAskedOnceForAll(t *testing.T) {
	p := &flaky{Provider: secrets.NewMemory(time.Now), err: errors.New("no response in time")}
	n := newNode(t, databasetest.Memory(t), secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}})
	h, ctx := n.handle(payments.Name), context.Background()
	p.wait = func() { n.advance(10 * time.Second) }
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := h.Get(ctx); !errors.Is(err, capability.ErrUnavailable) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if p.reads != 1 {
		t.Errorf("%d reads of a provider that fails, want 1", p.reads)
	}
	p.err = nil
	n.advance(5 * time.Second)
	if _, err := h.Get(ctx); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("after the provider came back: %v", err)
	}
	p.err, p.reads = errors.New("no response in time"), 0
	n.advance(secrets.CacheFor)
	for range 8 {
		_, _ = h.Get(ctx)
	}
	if p.reads != 1 {
		t.Errorf("%d reads of a provider that fails again, want 1", p.reads)
	}
}

func TestPreviousEndsWithTheOverlap(t *testing.T) {
	n := newNode(t, databasetest.Memory(t), secrets.Config{Secrets: []secrets.Secret{payments}})
	n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
	n.rotate(payments.Name, blocks("paddle", "apiKey", "p2"))
	h := n.handle(payments.Name)
	n.advance(secrets.DefaultOverlap - time.Second)
	if _, ok, err := h.Previous(context.Background()); !ok || err != nil {
		t.Errorf("gone before its time: %v", err)
	}
	n.advance(time.Second)
	if _, ok, err := h.Previous(context.Background()); ok || err != nil {
		t.Errorf("still there after the overlap: %v", err)
	}
}

// flaky is a provider that counts reads and fails on demand.
type flaky struct {
	secrets.Provider
	mu    sync.Mutex
	reads int
	err   error
	wait  func() // how long a failure takes
}

func (f *flaky) Read(ctx context.Context, name string, version int64) (secrets.Stored, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if f.err != nil {
		if f.wait != nil {
			f.wait()
		}
		return secrets.Stored{}, f.err
	}
	return f.Provider.Read(ctx, name, version)
}

func TestAnotherNodeReadsAgain(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	cfg := secrets.Config{Secrets: []secrets.Secret{payments}}
	a, b := newNode(t, dbs[0], cfg), newNode(t, dbs[1], cfg)
	a.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
	if got := b.field(payments.Name, "paddle", "apiKey"); got != "p1" {
		t.Fatalf("got %q", got)
	}
	a.rotate(payments.Name, blocks("paddle", "apiKey", "p2"))
	b.advance(secrets.CacheFor) // these hosts have separate buses
	if got := b.field(payments.Name, "paddle", "apiKey"); got != "p2" {
		t.Errorf("got %q", got)
	}
}

// TestUncommittedVersionIsNotKept checks that a read in a transaction that is rolled back is not
// cached.
func TestUncommittedVersionIsNotKept(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
		h := n.handle(payments.Name)
		boom := errors.New("boom")
		err := db.InTx(context.Background(), func(ctx context.Context) error {
			if _, err := n.Rotate(ctx, payments.Name, blocks("paddle", "apiKey", "p1")); err != nil {
				return err
			}
			if data, err := h.Get(ctx); err != nil || data.Version() != 1 {
				t.Errorf("inside: version %d, %v", data.Version(), err)
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		if data, err := h.Get(context.Background()); !errors.Is(err, secrets.ErrNotFound) {
			t.Errorf("outside: version %d, %v", data.Version(), err)
		}
	})
}

func TestReadInATransactionLeavesTheHint(t *testing.T) {
	db := databasetest.Memory(t)
	n := newNode(t, db, secrets.Config{Secrets: []secrets.Secret{payments}})
	h := n.handle(payments.Name)
	ctx := context.Background()
	n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
	n.field(payments.Name, "paddle", "apiKey")
	n.rotate(payments.Name, blocks("paddle", "apiKey", "p2"))
	if err := db.InTx(ctx, func(ctx context.Context) error { _, err := h.Get(ctx); return err }); err != nil {
		t.Fatal(err)
	}
	n.advance(time.Second)
	if got := n.field(payments.Name, "paddle", "apiKey"); got != "p2" {
		t.Errorf("the node that rotated to p2 still works with %q", got)
	}
}

// announced is a provider that signals its reads.
type announced struct {
	secrets.Provider
	reads chan struct{}
}

func (a announced) Read(ctx context.Context, name string, version int64) (secrets.Stored, error) {
	select {
	case a.reads <- struct{}{}:
	default:
	}
	return a.Provider.Read(ctx, name, version)
}

// TestFirstReadInATransactionWaitsForNobody checks that a first read within a transaction does not
// wait for a read outside, which waits for the transaction if the database has one connection.
func TestFirstReadInATransactionWaitsForNobody(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		p := announced{secrets.NewSQL(db, masterKeys(t, "k")), make(chan struct{}, 1)}
		cfg := secrets.Config{Provider: p, Secrets: []secrets.Secret{payments}}
		n := newNode(t, db, cfg)
		n.rotate(payments.Name, blocks("paddle", "apiKey", "p1"))
		other, err := secrets.New(n.host, cfg, secrets.Peers{}) // has not read anything
		if err != nil {
			t.Fatal(err)
		}
		h, err := other.Handle(payments.Name)
		if err != nil {
			t.Fatal(err)
		}
		<-p.reads // the read of the rotation
		var wg sync.WaitGroup
		if err := db.InTx(context.Background(), func(ctx context.Context) error {
			done := make(chan struct{})
			wg.Go(func() {
				defer close(done)
				if _, err := h.Get(context.Background()); err != nil {
					t.Errorf("outside: %v", err)
				}
			})
			select {
			case <-p.reads:
			case <-done:
			}
			_, err := h.Get(ctx)
			return err
		}); err != nil {
			t.Errorf("inside: %v", err)
		}
		wg.Wait()
	})
}
