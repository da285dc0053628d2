package ledger_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

// TestBatchWithBadCalls runs good and bad calls in one batch: each gets its own
// result.
func TestBatchWithBadCalls(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { batchWithBadCalls(t, open(t, db)) })
}

func batchWithBadCalls(t *testing.T, l *ledger.Ledger) {
	batch := []call{
		{op: "debit", user: "ada", currency: "coins", amount: 1, ref: "early"},
		{op: "credit", user: "ada", currency: "coins", amount: 10, ref: "start"},
		{op: "credit", user: "ada", currency: "coins", amount: 10, ref: "start"},
		{op: "credit", user: "ada", currency: "coins", amount: 11, ref: "start"},
		{op: "credit", user: "ada", currency: "coins", amount: -1, ref: "bad"},
		{op: "hold", user: "ada", currency: "coins", amount: 6, ref: "hold"},
		{op: "transfer", user: "ada", to: "bob", currency: "coins", amount: 5, ref: "much"},
		{op: "transfer", user: "ada", to: "bob", currency: "coins", amount: 4, ref: "move"},
		{op: "capture", ref: "hold", amount: 2},
		{op: "release", ref: "hold"},
		{op: "debit", user: "bob", currency: "coins", amount: 4, ref: "spend"},
	}
	m, got, run := newModel(), make([]result, len(batch)), make([]func(), len(batch))
	var want []result
	for i, c := range batch {
		want = append(want, m.do(c))
		run[i] = func() { got[i] = c.do(t.Context(), l) }
	}
	l.Gather(run...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	balanceIs(t, l, "ada", 4, 0)
	balanceIs(t, l, "bob", 0, 0)
	addsUp(t, l)
}

// TestBatchMeetsAnotherNode lets a second node open the same account under the
// same ref, and take another ref, while a batch waits: the batch is refused by
// the database and its calls are done one by one.
func TestBatchMeetsAnotherNode(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	l, other := open(t, dbs[0]), open(t, dbs[1])
	shared := call{op: "credit", user: "new", currency: "coins", amount: 5, ref: "shared"}
	batch := []call{
		{op: "credit", user: "ada", currency: "coins", amount: 1, ref: "neighbour"},
		shared,
		{op: "credit", user: "bob", currency: "coins", amount: 1, ref: "taken"},
		{op: "debit", user: "ada", currency: "coins", amount: 2, ref: "much"},
	}
	got, run := make([]result, len(batch)), make([]func(), len(batch))
	for i, c := range batch {
		run[i] = func() { got[i] = c.do(t.Context(), l) }
	}
	meanwhile(t, dbs[1], func(ctx context.Context) {
		shared.do(ctx, other)
		call{op: "credit", user: "eve", currency: "coins", amount: 5, ref: "taken"}.do(ctx, other)
	}, func() { l.Gather(run...) })
	if got[0].Code != "" || got[0].Replayed || got[1].Code != "" || !got[1].Replayed || got[2].Code != ledger.ErrRefConflict.Code ||
		got[3].Code != ledger.ErrInsufficientFunds.Code {
		t.Errorf("%+v", got)
	}
	balanceIs(t, l, "new", 5, 0)
	balanceIs(t, l, "ada", 1, 0)
	addsUp(t, l)
}

// TestRefTakenMeanwhile lets a second node take a ref for another account
// inside a caller's transaction, which is lost with a ref conflict.
func TestRefTakenMeanwhile(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	l, other := open(t, dbs[0]), open(t, dbs[1])
	var got result
	var end error
	meanwhile(t, dbs[1], func(ctx context.Context) {
		call{op: "credit", user: "eve", currency: "coins", amount: 5, ref: "taken"}.do(ctx, other)
	}, func() {
		end = dbs[0].InTx(t.Context(), func(ctx context.Context) error {
			got = call{op: "credit", user: "ada", currency: "coins", amount: 5, ref: "taken"}.do(ctx, l)
			return nil
		})
	})
	if got.Code != ledger.ErrRefConflict.Code || end == nil {
		t.Errorf("%+v, %v", got, end)
	}
	if _, err := l.Balance(t.Context(), "ada", "coins"); !errors.Is(err, ledger.ErrAccountNotFound) {
		t.Error(err)
	}
	addsUp(t, l)
}

// meanwhile runs first in a transaction, which ends when then waits for it.
func meanwhile(t *testing.T, db *database.DB, first func(context.Context), then func()) {
	t.Helper()
	ended := make(chan bool, 1)
	if err := db.InTx(t.Context(), func(ctx context.Context) error {
		first(ctx)
		go func() {
			then()
			ended <- true
		}()
		return databasetest.Waits(ctx, db, ended)
	}); err != nil {
		t.Fatal(err)
	}
	<-ended
}

// TestBatchWithoutOne takes back the operation of a caller that goes away
// before it has begun.
func TestBatchWithoutOne(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		var kept result
		l.Gather(
			func() {
				kept = call{op: "credit", user: "ada", currency: "coins", amount: 1, ref: "kept"}.do(t.Context(), l)
			},
			func() {
				defer close(left)
				if _, err := l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: "given up"}); !errors.Is(err, context.Canceled) {
					t.Errorf("a caller that left: %v", err)
				}
			},
			func() { cancel(); <-left },
		)
		if kept.Code != "" {
			t.Error(kept.Code)
		}
		balanceIs(t, l, "ada", 1, 0)
	})
}

// TestBatchAbandoned lets a leader panic: the panic is its own, those it led
// hear of it, nothing was done, and the next call works.
func TestBatchAbandoned(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		var broken atomic.Bool
		db.UseClock(func() time.Time {
			if broken.Load() {
				panic("the clock is broken")
			}
			return now
		})
		broken.Store(true)
		credit := func(ref string) call {
			return call{op: "credit", user: "ada", currency: "coins", amount: 1, ref: ref}
		}
		var led result
		var caught any
		l.Gather(
			func() {
				defer func() { caught = recover() }()
				credit("leader").do(t.Context(), l)
			},
			func() { led = credit("led").do(t.Context(), l) },
		)
		broken.Store(false)
		if caught == nil || led.Code == "" {
			t.Errorf("%v, %+v", caught, led)
		}
		if r := credit("next").do(t.Context(), l); r.Code != "" {
			t.Error(r.Code)
		}
		balanceIs(t, l, "ada", 1, 0)
		addsUp(t, l)
	})
}

// TestStaffBatchIsOnTheTrail runs staff operations and others in one batch: of
// each that was done by staff there is one event, of its own request; refused and
// replayed ones leave none.
func TestStaffBatchIsOnTheTrail(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l, trail := openAudited(t, db)
		staff := func(who string, move func(context.Context, ledger.Entry) (ledger.Transaction, error), ref string, amount int64) func() {
			info := &capability.RequestInfo{RequestID: who, Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: who}}
			return func() {
				t1, err := move(capability.WithRequestInfo(t.Context(), info), ledger.Entry{UserID: "ada", Currency: "coins", Amount: amount, Ref: ref})
				if done := err == nil && !t1.Replayed; done != info.Recorded() {
					t.Errorf("%s by %s: done %v, recorded %v", ref, who, done, info.Recorded())
				}
			}
		}
		l.Gather(
			staff("eve", l.StaffCredit, "first", 10),
			staff("bob", l.StaffCredit, "first", 10),
			staff("bob", l.StaffDebit, "much", 11),
			func() {
				_, _ = l.Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: "silent"})
			},
			staff("bob", l.StaffDebit, "second", 11),
		)
		var got []string
		for _, e := range must(trail.ListEvents(t.Context(), audit.Filter{}, capability.NewPage(10, "")))(t).Items {
			got = append(got, e.Action+" "+e.Actor.ID+" "+e.RequestID+" "+e.Subject.ID+" "+string(e.Detail))
		}
		slices.Sort(got)
		want := []string{
			`ledger/credited eve eve ada {"currency":"coins","amount":10,"ref":"first"}`,
			`ledger/debited bob bob ada {"currency":"coins","amount":11,"ref":"second"}`,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		balanceIs(t, l, "ada", 0, 0)
	})
}
