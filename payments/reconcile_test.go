package payments_test

import (
	"context"
	"errors"
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/ledger"
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
	if last.Since != s.in(-24*hour) || last.Until != s.in(0) {
		t.Errorf("the rail is asked for %s to %s", last.Since.Time(), last.Until.Time())
	}
}

// TestHistoryMissesNothingOnceTheClockIsRight: what happened while the clock was ahead,
// and since, is read once it is right, by however much it was ahead and for how long.
func TestHistoryMissesNothingOnceTheClockIsRight(t *testing.T) {
	for name, c := range map[string]struct {
		ahead         time.Duration
		first, cursor bool // whether the rail was read for the first time then, and to its end
		nights        int
	}{
		"by two days":                      {48 * hour, false, false, 1},
		"by two days, the first time":      {48 * hour, true, false, 1},
		"by a week, the first time":        {7 * day, true, false, 1},
		"by a year":                        {365 * day, false, false, 1},
		"by a year, the first time":        {365 * day, true, false, 1},
		"by a year, three nights":          {365 * day, false, false, 3},
		"by a year, not read to the end":   {365 * day, false, true, 1},
		"by two days, not read to the end": {48 * hour, false, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []payments.Window
			next := ""
			s := openWith(t, func(c *payments.Config) {
				c.Rails[0].History = func(_ context.Context, _ payments.Access, w payments.Window) (payments.HistoryPage, error) {
					if asked = append(asked, w); w.Cursor != "" && next != "" {
						return payments.HistoryPage{}, payments.Transient(errDown, 0)
					}
					return payments.HistoryPage{Next: next}, nil
				}
			})
			reconcile := func() {
				t.Helper()
				if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil {
					t.Fatal(err)
				}
			}
			if !c.first {
				reconcile()
			}
			s.Clock.Advance(c.ahead)
			begun := s.in(-c.ahead)
			if c.cursor {
				next = "page-2"
			}
			for range c.nights {
				reconcile()
				s.Clock.Advance(day)
			}
			next = ""
			s.Clock.Advance(-c.ahead)
			reconcile()
			if last := asked[len(asked)-1]; last.Cursor != "" || last.Since > begun || last.Until != s.in(0) || last.Since < s.in(-31*day) {
				t.Errorf("asked for %s to %s at %q, want all since %s", last.Since.Time(), last.Until.Time(), last.Cursor, begun.Time())
			}
			s.Clock.Advance(day)
			reconcile()
			if last := asked[len(asked)-1]; last.Since != s.in(-25*hour) {
				t.Errorf("the night after the rail is asked from %s on", last.Since.Time())
			}
		})
	}
}

// TestWhatWaitsAfterTheClockWasSetBack: what was put off, or looked at, in a time that
// was not is the next run's.
func TestWhatWaitsAfterTheClockWasSetBack(t *testing.T) {
	s := open(t)
	year := 365 * day
	o := s.pro(ios, "t1", "ada")
	o.Lifecycle.AccessUntil = s.in(3 * year)
	coins := sub("k1", 1, payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive})
	coins.AccountToken, coins.Charges = s.token("ada"), []payments.Charge{{ID: "k1", AmountMinor: 1, Settled: true}}
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{o, coins}})
	s.spend("ada", 100)
	s.Clock.Advance(year)
	s.set(o)
	if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil {
		t.Fatal(err)
	}
	coins.Version, coins.Refunds = 2, []payments.Refund{{ID: "r", ChargeID: "k1", Full: true}}
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{coins}})
	s.fail = payments.Transient(errDown, 0)
	late := message{ID: "d3", Observations: []payments.Observation{s.pro(ios, "t2", "bob")}}
	s.post(ios, late).Want(503, "payments/rail_unavailable")
	s.fail = nil
	s.Clock.Advance(-year)
	s.earn("ada", 100)
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
	if err != nil || run.Rails[0].Recovered != 1 || run.Checked != 2 || s.coins("ada") != 0 {
		t.Errorf("%+v, %v, %d coins are left of what is owed", run, err, s.coins("ada"))
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

// breakFor lets a hook refuse what changes for users whose ids begin alike, until it
// is repaired.
func (s *shop) breakFor(users string) (repair func()) {
	broken := true
	s.Hooks().EntitlementsChanged.In(func(_ context.Context, e hooks.EntitlementsChanged) error {
		if broken && strings.HasPrefix(e.SubjectID, users) {
			return errDown
		}
		return nil
	})
	return func() { broken = false }
}

// TestWebhookThatCannotBeWrittenWaitsInTheInbox: what a hook refuses is tried
// again, and keeps no others from it.
func TestWebhookThatCannotBeWrittenWaitsInTheInbox(t *testing.T) {
	s := open(t)
	repair := s.breakFor("ada")
	for _, id := range []string{"d1", "d2", "d3", "d4"} {
		s.set(s.pro(android, id, "ada"))
		s.post(android, message{ID: id, Observations: s.state[id]}).Want(500, "kit/internal")
	}
	s.set(s.pro(android, "t5", "bob"))
	s.fail = payments.Transient(errDown, 0)
	s.post(android, message{ID: "d5", Observations: s.state["t5"]}).Want(503, "payments/rail_unavailable")
	s.fail = nil
	if n := s.health("failedWebhooks"); n != int64(5) {
		t.Fatalf("%v webhooks wait, want all five", n)
	}
	reconcile := func(status payments.RunStatus, recovered int64) {
		t.Helper()
		s.Clock.Advance(day)
		run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: android})
		if err != nil || run.Status != status || run.Rails[0].Recovered != recovered {
			t.Errorf("%+v, %v", run, err)
		}
	}
	reconcile(payments.RunPartial, 1)
	s.wantEntitled("bob", "pro", true)
	repair()
	reconcile(payments.RunSucceeded, 4)
	s.wantEntitled("ada", "pro", true)
	if n := s.health("failedWebhooks"); n != int64(0) {
		t.Errorf("%v webhooks wait after all", n)
	}
}

// TestRefusalOfAHookIsNoneOfTheStore: what a hook refuses is to be delivered again, whatever it is
// refused with, and the store is not told why.
func TestRefusalOfAHookIsNoneOfTheStore(t *testing.T) {
	s := open(t)
	s.Hooks().EntitlementsChanged.In(func(ctx context.Context, e hooks.EntitlementsChanged) error {
		_, err := s.Ledger().Debit(ctx, ledger.Entry{UserID: e.SubjectID, Currency: "coins", Amount: 1, Ref: "fee"})
		return err
	})
	s.post(ios, message{ID: "d1", Observations: []payments.Observation{s.pro(ios, "t1", "ada")}}).Want(503, "kit/unavailable")
	if n := s.health("failedWebhooks"); n != int64(1) {
		t.Errorf("%v webhooks wait, want the one", n)
	}
}

// TestHistoryThatCannotBeWrittenIsReadAgain: what a hook refuses keeps nothing
// else in the history from being read, and is read again by the next run.
func TestHistoryThatCannotBeWrittenIsReadAgain(t *testing.T) {
	pages := make(map[string]payments.HistoryPage)
	var asked []payments.Window
	s := openWith(t, func(c *payments.Config) {
		c.Rails[0].History = func(_ context.Context, _ payments.Access, w payments.Window) (payments.HistoryPage, error) {
			asked = append(asked, w)
			return pages[w.Cursor], nil
		}
	})
	repair := s.breakFor("ada")
	pages[""] = payments.HistoryPage{Observations: []payments.Observation{s.pro(ios, "t1", "ada"), s.pro(ios, "t2", "bob")}, Next: "more"}
	for _, o := range pages[""].Observations {
		s.set(o)
	}
	s.set(s.pro(ios, "t3", "eve"))
	pages["more"] = payments.HistoryPage{Observations: s.state["t3"]}
	for _, want := range []struct {
		status payments.RunStatus
		since  payments.Instant
	}{
		{payments.RunPartial, s.in(day - 72*hour)}, {payments.RunPartial, s.in(day - 72*hour)},
		{payments.RunSucceeded, s.in(day - 72*hour)}, {payments.RunSucceeded, s.in(3*day - hour)},
	} {
		if len(asked) == 4 {
			repair()
		}
		s.Clock.Advance(day)
		run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
		if first := asked[len(asked)-2]; err != nil || run.Status != want.status || first.Since != want.since || first.Until != s.in(0) {
			t.Errorf("%s for %s to %s, %v", run.Status, first.Since.Time(), first.Until.Time(), err)
		}
		s.wantEntitled("bob", "pro", true)
		s.wantEntitled("eve", "pro", true)
	}
	s.wantEntitled("ada", "pro", true)
}

// TestAcknowledgementsThatFailKeepNoOthers: what a store does not take for one
// purchase it takes for others, which it would refund without.
func TestAcknowledgementsThatFailKeepNoOthers(t *testing.T) {
	acked := make(map[string]bool)
	down := true
	s := openWith(t, func(c *payments.Config) {
		c.Rails[0].Acknowledge = func(_ context.Context, _ payments.Access, ref payments.Ref) error {
			if down || ref.TransactionID[0] == 'x' {
				return errors.New("400")
			}
			acked[ref.TransactionID] = true
			return nil
		}
	})
	for _, tx := range []string{"x1", "x2", "a1", "x3", "x4", "x5", "a2"} {
		o := sub(tx, 1, payments.Lifecycle{ProductID: "com.map", State: payments.StateActive})
		o.AccountToken, o.NeedsAcknowledge = s.token("ada"), true
		s.deliver(ios, message{ID: tx, Observations: []payments.Observation{o}})
	}
	down = false
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
	if err != nil || run.Status != payments.RunPartial || run.Failed != 5 || !acked["a1"] || !acked["a2"] {
		t.Errorf("%+v, %v, acknowledged %v", run, err, acked)
	}
	if left := s.health("unacknowledged"); left != int64(5) {
		t.Errorf("%v are not acknowledged, want 5", left)
	}
}

// TestPurchasesThatCannotBeWrittenKeepNoOthersUnchecked: what a hook refuses of
// some says nothing about the rail.
func TestPurchasesThatCannotBeWrittenKeepNoOthersUnchecked(t *testing.T) {
	s := open(t)
	for _, user := range []string{"ada1", "ada2", "ada3", "ada4", "bob"} {
		o := s.pro(ios, user, user)
		s.deliver(ios, message{ID: user, Observations: []payments.Observation{o}})
		o.Version, o.Lifecycle = 2, &payments.Lifecycle{ProductID: "com.pro", State: payments.StateHold}
		s.set(o)
	}
	s.breakFor("ada")
	s.Clock.Advance(day)
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
	if err != nil || run.Status != payments.RunPartial || run.Failed != 4 || run.Rails[0].Code != "" {
		t.Errorf("%+v, %v", run, err)
	}
	s.wantStatus(ios, "bob", payments.StatusOnHold)
}

// TestRenewalWhoseWebhookWasLost: before a purchase that was to be renewed is
// written as over, its rail is asked; one that is down for long keeps no end from
// being told.
func TestRenewalWhoseWebhookWasLost(t *testing.T) {
	for name, look := range map[string]func(*shop) error{
		"lapse": func(s *shop) error { return s.Payments().Lapse() },
		"reconcile": func(s *shop) error {
			_, err := s.Payments().Reconcile(s.t.Context(), payments.ReconcileRequest{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			var told []string
			s.Hooks().EntitlementsChanged.After(func(_ context.Context, e hooks.EntitlementsChanged) {
				if len(e.Revoked) > 0 {
					told = append(told, e.SubjectID)
				}
			})
			for _, user := range []string{"ada", "bob", "eve"} {
				s.deliver(ios, message{ID: user, Observations: []payments.Observation{s.pro(ios, user, user)}})
			}
			renewed := s.pro(ios, "ada", "ada")
			renewed.Version, renewed.Lifecycle.AccessUntil = 2, s.in(60*day)
			s.set(renewed)
			s.set(s.pro(ios, "bob", "bob")) // nothing new, and of eve's the rail knows nothing
			s.Clock.Advance(31 * day)
			s.fail = payments.Transient(errDown, 0)
			_ = look(s)
			if s.wantStatus(ios, "ada", payments.StatusExpired); len(told) > 0 {
				t.Errorf("told of %v while the rail is down", told)
			}
			s.fail = nil
			if err := look(s); err != nil || !slices.Equal(told, []string{"bob", "eve"}) {
				t.Errorf("told of %v, %v", told, err)
			}
			s.wantEntitled("ada", "pro", true)
			s.wantStatus(ios, "ada", payments.StatusActive)
			s.fail = payments.Transient(errDown, 0)
			s.Clock.Advance(33 * day)
			if _ = look(s); !slices.Contains(told, "ada") {
				t.Errorf("told of %v once the rail is down for three days", told)
			}
		})
	}
}

// TestRenewalAfterARefund: a subscription whose newest period was refunded may be renewed. If the
// webhook of that is lost, reconcile gives the payer what they paid for; it asks for sixty days after
// the end of the refunded period.
func TestRenewalAfterARefund(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		s := openWith(t, func(c *payments.Config) { c.Products[0].Credit = &payments.Credit{Currency: "coins", Amount: 100} }, kit.WithDatabase(db))
		refunded := s.pro(android, "ada", "ada")
		first := payments.Charge{ID: "first", At: s.in(0), Settled: true, AmountMinor: 100}
		refunded.Charges, refunded.Refunds = []payments.Charge{first}, []payments.Refund{{ID: "r", ChargeID: "first", Full: true}}
		s.deliver(android, message{ID: "d1", Observations: []payments.Observation{refunded}})
		s.wantStatus(android, "ada", payments.StatusRefunded)
		s.Clock.Advance(80 * day)
		renewed := s.pro(android, "ada", "ada")
		renewed.Version, renewed.Lifecycle.AccessUntil = 2, s.in(30*day)
		renewed.Charges = []payments.Charge{{ID: "second", At: s.in(0), Settled: true, AmountMinor: 100}}
		s.set(renewed)
		reconcile := func() {
			if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		reconcile()
		s.wantStatus(android, "ada", payments.StatusActive)
		s.wantEntitled("ada", "pro", true)
		if got := s.coins("ada"); got != 100 {
			t.Errorf("%d coins, want those of the second period", got)
		}
		gone := s.pro(android, "bob", "bob")
		gone.Charges, gone.Refunds = []payments.Charge{{ID: "b", Settled: true}}, []payments.Refund{{ID: "r", ChargeID: "b", Full: true}}
		s.deliver(android, message{ID: "d2", Observations: []payments.Observation{gone}})
		s.Clock.Advance(95 * day)
		calls := s.calls
		if reconcile(); s.calls != calls {
			t.Errorf("%d calls, want none for a subscription that was refunded long ago", s.calls-calls)
		}
	})
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
