package payments_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/payments"
)

// reconcileRows is how many purchases TestReconcileTakesLittleMemory looks at.
var reconcileRows = flag.Int("payments.rows", 600, "purchases of a reconcile run whose memory is measured")

// TestReconcileTakesLittleMemory: a run asks the rail for every purchase once and
// keeps none of them, however many there are.
func TestReconcileTakesLittleMemory(t *testing.T) {
	const bound = 16 << 20
	f := newFake()
	var asked, most atomic.Int64
	var base int64
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	f.onFetch = func(ref payments.Ref) payments.Observation {
		if n := asked.Add(1); n%int64(max(*reconcileRows/5, 1)) == 0 {
			most.Store(max(most.Load(), live()-base))
		}
		return sub(ref.TransactionID, 1, payments.Lifecycle{ProductID: "com.pro", State: payments.StateActive, WillRenew: true, AccessUntil: 1 << 50})
	}
	s := openConfig(t, f, func(*payments.Config) {})
	seedPurchases(t, s.Payments().Capability().Database, *reconcileRows)
	base = live()
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
	if err != nil || run.Status != payments.RunSucceeded || run.Checked != int64(*reconcileRows) || asked.Load() != run.Checked {
		t.Fatalf("%+v after %d questions, %v", run, asked.Load(), err)
	}
	if most.Load() > bound {
		t.Errorf("a run of %d purchases holds %d MB, want at most %d", *reconcileRows, most.Load()>>20, bound>>20)
	}
	t.Logf("%d purchases, at most %d KB more", *reconcileRows, most.Load()>>10)
	if again, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil || again.Checked != 0 {
		t.Errorf("a run after it checked %d, want none within a day: %v", again.Checked, err)
	}
}

// TestReconcileAfterTheClockWasSetBack: a rail is asked for a window that begins
// before it ends, and a run of the time that was not goes on no longer.
func TestReconcileAfterTheClockWasSetBack(t *testing.T) {
	var last payments.Window
	s := openWith(t, func(c *payments.Config) {
		c.Rails[0].History = func(_ context.Context, _ payments.Access, w payments.Window) (payments.HistoryPage, error) {
			last = w
			return payments.HistoryPage{}, nil
		}
	})
	reconcile := func() {
		t.Helper()
		if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	if _, err := s.Payments().Capability().Database.Exec(t.Context(), `INSERT INTO payments_run (id, started_by, started_at, heartbeat_at, status, checked, changed, failed, rails)
		VALUES ('killed', 'schedule', $1, $1, 'running', 0, 0, 0, '[]')`, int64(s.in(0))); err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(-48 * hour)
	reconcile()
	if last.Since != s.in(-hour) || last.Until != s.in(0) {
		t.Errorf("the rail is asked for %s to %s", last.Since.Time(), last.Until.Time())
	}
}

// TestHistoryWhoseCursorIsForgotten: a rail that no longer takes the cursor of
// an unfinished window is asked for all of it, until now.
func TestHistoryWhoseCursorIsForgotten(t *testing.T) {
	type reply struct {
		next string
		err  error
	}
	expired := errors.New("400: this cursor has expired")
	replies := []reply{
		{"page-2", nil}, {"", payments.Transient(errDown, 0)}, // the first night stops after a page
		{"", expired}, {"", expired}, // the window cannot be read again yet
		{"", expired}, {"", nil},
	}
	var asked []payments.Window
	s := openWith(t, func(c *payments.Config) {
		c.Rails[0].History = func(_ context.Context, _ payments.Access, w payments.Window) (payments.HistoryPage, error) {
			asked = append(asked, w)
			r := replies[len(asked)-1]
			return payments.HistoryPage{Next: r.next}, r.err
		}
	})
	since := s.in(day - 72*hour)
	for _, want := range []payments.RunStatus{payments.RunPartial, payments.RunPartial, payments.RunSucceeded} {
		s.Clock.Advance(day)
		if run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil || run.Status != want {
			t.Fatalf("%+v, %v, want %s", run, err, want)
		}
	}
	if last := asked[len(asked)-1]; len(asked) != len(replies) || last.Cursor != "" || last.Since != since || last.Until != s.in(0) {
		t.Errorf("asked %d times, at last for %s to %s at %q", len(asked), last.Since.Time(), last.Until.Time(), last.Cursor)
	}
}

// seedPurchases inserts subscriptions that nobody has looked at.
func seedPurchases(t testing.TB, db *database.DB, n int) {
	t.Helper()
	for from := 0; from < n; from += 10_000 { // a statement has ten seconds
		if _, err := db.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
			INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id, facts,
				status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at)
			SELECT 'p' || CAST(i AS TEXT), 'ios_store', 't' || CAST(i AS TEXT), 'sandbox', 'pro', 'com.pro', 'subscription', 'user', 'u' || CAST(i AS TEXT), '{}',
				'active', TRUE, '', 'normal', TRUE, 'purchased', 0, 1, 'none', 0, 0, 0 FROM n`, from, min(from+10_000, n)); err != nil {
			t.Fatal(err)
		}
	}
}
