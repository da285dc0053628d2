package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

// call is one operation as data. Two equal calls state the same facts.
type call struct {
	op             string // credit, debit, transfer, hold, capture or release
	user, to       string
	currency       string
	amount         int64
	ref            string
	memo, relation string
}

// result is what a call returns: transactions, a hold, or the code of a refusal.
type result struct {
	Rows     []ledger.Transaction
	Hold     ledger.Hold
	Replayed bool
	Code     string
}

func (c call) do(ctx context.Context, l *ledger.Ledger) result {
	entry := ledger.Entry{UserID: c.user, Currency: c.currency, Amount: c.amount, Ref: c.ref, Memo: c.memo, RelatedRef: c.relation}
	var r result
	var err error
	one := func(t ledger.Transaction, failed error) {
		r.Rows, r.Replayed, err = []ledger.Transaction{t}, t.Replayed, failed
	}
	hold := func(h ledger.Hold, failed error) { r.Hold, r.Replayed, err = h, h.Replayed, failed }
	switch c.op {
	case "credit":
		one(l.Credit(ctx, entry))
	case "debit":
		one(l.Debit(ctx, entry))
	case "transfer":
		var both ledger.Transfer
		both, err = l.Transfer(ctx, ledger.TransferEntry{From: c.user, To: c.to, Currency: c.currency, Amount: c.amount, Ref: c.ref, Memo: c.memo})
		r.Rows, r.Replayed = []ledger.Transaction{both.Out, both.In}, both.Replayed
	case "hold":
		hold(l.Hold(ctx, entry))
	case "capture":
		hold(l.Capture(ctx, c.ref, ledger.CaptureOptions{Amount: c.amount, Memo: c.memo}))
	case "release":
		hold(l.Release(ctx, c.ref))
	}
	if err != nil {
		return refused(err)
	}
	return r
}

// refused is the result of a refusal; what is no refusal shows in full.
func refused(err error) result {
	var refusal *capability.Error
	if errors.As(err, &refusal) {
		return result{Code: refusal.Code}
	}
	return result{Code: err.Error()}
}

// model is the ledger in a few lines: what every call must return.
type model struct {
	accounts map[ledger.AccountKey][]ledger.Transaction
	holds    map[string]ledger.Hold
	done     map[string]call
	first    map[string]result
}

func newModel() *model {
	return &model{map[ledger.AccountKey][]ledger.Transaction{}, map[string]ledger.Hold{}, map[string]call{}, map[string]result{}}
}

func (m *model) do(c call) result {
	settles := c.op == "capture" || c.op == "release"
	switch {
	case !settles && c.currency != "coins" && c.currency != "gems":
		return refused(ledger.ErrCurrencyNotFound)
	case c.op == "transfer" && c.user == c.to, c.ref == "", strings.Contains(c.ref, "#"):
		return refused(capability.ErrInvalidRequest)
	case !(settles && c.amount == 0) && (c.amount < 1 || c.amount > 1<<53-1):
		return refused(ledger.ErrInvalidAmount)
	case settles:
		return m.settle(c)
	}
	if before, ok := m.done[c.ref]; ok {
		if before != c {
			return refused(ledger.ErrRefConflict)
		}
		return again(m.first[c.ref])
	}
	payer, payee := ledger.AccountKey{UserID: c.user, Currency: c.currency}, ledger.AccountKey{UserID: c.to, Currency: c.currency}
	if c.op == "credit" {
		payee = payer
	} else if rows := m.accounts[payer]; len(rows) == 0 {
		return refused(ledger.ErrAccountNotFound)
	} else if last := rows[len(rows)-1]; last.BalanceAfter-last.HeldAfter < c.amount {
		return refused(ledger.ErrInsufficientFunds)
	}
	if rows := m.accounts[payee]; c.op != "debit" && c.op != "hold" && len(rows) > 0 && rows[len(rows)-1].BalanceAfter > 1<<53-1-c.amount {
		return refused(ledger.ErrInvalidAmount)
	}
	var r result
	switch c.op {
	case "credit":
		r.Rows = m.add(payee, c.ref, ledger.KindCredit, c.amount, c.amount, 0, c.relation, c.memo)
	case "debit":
		r.Rows = m.add(payer, c.ref, ledger.KindDebit, c.amount, -c.amount, 0, c.relation, c.memo)
	case "transfer":
		r.Rows = append(m.add(payer, c.ref, ledger.KindTransferOut, c.amount, -c.amount, 0, c.ref+"#in", c.memo),
			m.add(payee, c.ref+"#in", ledger.KindTransferIn, c.amount, c.amount, 0, c.ref, c.memo)...)
	case "hold":
		m.add(payer, c.ref, ledger.KindHold, c.amount, 0, c.amount, c.relation, c.memo)
		r.Hold = ledger.Hold{Ref: c.ref, UserID: c.user, Currency: c.currency, Amount: c.amount, Status: ledger.HoldOpen, CreatedAt: capability.Time{Time: now}}
		m.holds[c.ref] = r.Hold
	}
	m.done[c.ref], m.first[c.ref] = c, r
	return r
}

func (m *model) settle(c call) result {
	h, ok := m.holds[c.ref]
	switch {
	case !ok:
		return refused(ledger.ErrHoldNotFound)
	case h.Status != ledger.HoldOpen:
		return refused(ledger.ErrHoldNotOpen)
	case c.amount > h.Amount:
		return refused(ledger.ErrInvalidAmount)
	}
	h.Status, h.SettledAt = ledger.HoldReleased, capability.Time{Time: now}
	if c.op == "capture" {
		h.Status, h.Captured = ledger.HoldCaptured, c.amount
		if c.amount == 0 {
			h.Captured = h.Amount
		}
		m.add(ledger.AccountKey{UserID: h.UserID, Currency: h.Currency}, c.ref+"#capture", ledger.KindCapture, h.Captured, -h.Captured, -h.Captured, c.ref, c.memo)
	}
	if rest := h.Amount - h.Captured; rest > 0 {
		m.add(ledger.AccountKey{UserID: h.UserID, Currency: h.Currency}, c.ref+"#release", ledger.KindRelease, rest, 0, -rest, c.ref, "")
	}
	m.holds[c.ref] = h
	return result{Hold: h}
}

func (m *model) add(key ledger.AccountKey, ref string, kind ledger.Kind, amount, balance, held int64, related, memo string) []ledger.Transaction {
	rows := m.accounts[key]
	var last ledger.Transaction
	if len(rows) > 0 {
		last = rows[len(rows)-1]
	}
	row := ledger.Transaction{Ref: ref, UserID: key.UserID, Currency: key.Currency, Sequence: last.Sequence + 1, Kind: kind,
		Amount: amount, BalanceAfter: last.BalanceAfter + balance, HeldAfter: last.HeldAfter + held, RelatedRef: related,
		Memo: memo, CreatedAt: capability.Time{Time: now}}
	m.accounts[key] = append(rows, row)
	return []ledger.Transaction{row}
}

// again is a first result as a replay shows it.
func again(r result) result {
	r.Rows, r.Replayed = slices.Clone(r.Rows), true
	for i := range r.Rows {
		r.Rows[i].Replayed = true
	}
	if r.Hold.Ref != "" {
		r.Hold.Replayed = true
	}
	return r
}

// world keeps one run apart from the others on the same ledger.
type world struct{ prefix string }

var worlds int

func newWorld() world {
	worlds++
	return world{fmt.Sprintf("w%d-", worlds)}
}

// in moves a call into the world; empty and reserved names stay what they are.
func (w world) in(c call) call {
	c.user = w.prefix + c.user
	if c.op == "transfer" {
		c.to = w.prefix + c.to
	}
	if c.ref != "" {
		c.ref = w.prefix + c.ref
	}
	return c
}

// calls draws operations on few accounts and refs, so that they meet.
var calls = rapid.Custom(func(t *rapid.T) call {
	c := call{
		op:       rapid.SampledFrom([]string{"credit", "credit", "debit", "transfer", "hold", "capture", "release"}).Draw(t, "op"),
		user:     rapid.SampledFrom([]string{"ada", "bob", "eve"}).Draw(t, "user"),
		currency: rapid.SampledFrom([]string{"coins", "coins", "coins", "gems", "gold"}).Draw(t, "currency"),
		ref:      rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "1#in", ""}).Draw(t, "ref"),
		memo:     rapid.SampledFrom([]string{"", "", "", "m"}).Draw(t, "memo"),
		amount: rapid.SampledFrom([]int64{1, 2, 3, 5, 10, 10, 100, 0, -1, 1<<53 - 1, 1<<53 - 2, 1 << 53,
			math.MaxInt64, math.MinInt64}).Draw(t, "amount"),
	}
	switch c.op {
	case "transfer":
		c.to = rapid.SampledFrom([]string{"ada", "bob", "eve"}).Draw(t, "to")
	case "capture":
		return call{op: c.op, ref: c.ref, amount: c.amount, memo: c.memo}
	case "release":
		return call{op: c.op, ref: c.ref}
	default:
		c.relation = rapid.SampledFrom([]string{"", "", "1"}).Draw(t, "relation")
	}
	return c
})

var errUndo = errors.New("undo")

// TestModel holds every result and the whole state to the model's, for calls
// on their own, several in one transaction, and ones that are rolled back.
func TestModel(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		rapid.Check(t, func(t *rapid.T) {
			ctx, w, m := context.Background(), newWorld(), newModel()
			for range rapid.IntRange(1, 15).Draw(t, "transactions") {
				together := rapid.SliceOfN(calls, 1, 4).Draw(t, "calls")
				switch rapid.SampledFrom([]string{"apart", "together", "undone"}).Draw(t, "how") {
				case "apart":
					for _, c := range together {
						c = w.in(c)
						if diff := cmp.Diff(m.do(c), c.do(ctx, l)); diff != "" {
							t.Fatalf("%+v: %s", c, diff)
						}
					}
				case "together":
					want, got := results(ctx, t, db, l, w, m, together, nil)
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("%+v: %s", together, diff)
					}
				case "undone":
					results(ctx, t, db, l, w, nil, together, errUndo)
				}
			}
			sameState(t, l, w, m)
		})
		addsUp(t, l)
	})
}

// results runs calls in one transaction, on the ledger and on the model.
func results(ctx context.Context, t *rapid.T, db *database.DB, l *ledger.Ledger, w world, m *model, together []call, end error) (want, got []result) {
	if m != nil {
		for _, c := range together {
			want = append(want, m.do(w.in(c)))
		}
	}
	err := db.InTx(ctx, func(ctx context.Context) error {
		got = nil
		for _, c := range together {
			got = append(got, w.in(c).do(ctx, l))
		}
		return end
	})
	if !errors.Is(err, end) {
		t.Fatal(err)
	}
	return want, got
}

func sameState(t rapid.TB, l *ledger.Ledger, w world, m *model) {
	for _, user := range []string{"ada", "bob", "eve"} {
		for _, currency := range []string{"coins", "gems"} {
			key := ledger.AccountKey{UserID: w.prefix + user, Currency: currency}
			rows, err := l.ListTransactions(context.Background(), key.UserID, key.Currency, capability.NewPage(capability.MaxLimit, ""))
			if errors.Is(err, ledger.ErrAccountNotFound) {
				err = nil
			}
			if err != nil {
				t.Fatal(err)
			}
			slices.Reverse(rows.Items)
			if diff := cmp.Diff(m.accounts[key], rows.Items); diff != "" && len(m.accounts[key])+len(rows.Items) > 0 {
				t.Fatalf("%v: %s", key, diff)
			}
			balances, err := l.Balances(context.Background(), key)
			if err != nil {
				t.Fatal(err)
			}
			want := ledger.Balance{Currency: currency}
			if n := len(m.accounts[key]); n > 0 {
				last := m.accounts[key][n-1]
				want.Balance, want.Held, want.Available = last.BalanceAfter, last.HeldAfter, last.BalanceAfter-last.HeldAfter
			}
			if diff := cmp.Diff(want, balances[0]); diff != "" {
				t.Fatalf("%v: %s", key, diff)
			}
		}
	}
}

// TestReplay repeats whatever was accepted, in any order, and changes nothing.
func TestReplay(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		rapid.Check(t, func(t *rapid.T) {
			ctx, w, m := context.Background(), newWorld(), newModel()
			var accepted []call
			first := make(map[call]result)
			for _, c := range rapid.SliceOfN(calls, 1, 30).Draw(t, "calls") {
				c = w.in(c)
				m.do(c)
				if r := c.do(ctx, l); r.Code == "" && !r.Replayed {
					accepted, first[c] = append(accepted, c), r
				}
			}
			for _, c := range rapid.Permutation(accepted).Draw(t, "again") {
				want := again(first[c])
				if c.op == "capture" || c.op == "release" {
					want = refused(ledger.ErrHoldNotOpen)
				}
				if diff := cmp.Diff(want, c.do(ctx, l)); diff != "" {
					t.Fatalf("%+v: %s", c, diff)
				}
			}
			sameState(t, l, w, m)
		})
		addsUp(t, l)
	})
}

// TestBatch runs calls in batches: the same results and the same state come out
// as from the model, and so as from calls alone.
func TestBatch(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		rapid.Check(t, func(t *rapid.T) {
			ctx, w, m := context.Background(), newWorld(), newModel()
			for range rapid.IntRange(1, 4).Draw(t, "batches") {
				batch := rapid.SliceOfN(calls, 1, 20).Draw(t, "calls")
				got, run := make([]result, len(batch)), make([]func(), len(batch))
				var want []result
				for i, c := range batch {
					c = w.in(c)
					want = append(want, m.do(c))
					run[i] = func() { got[i] = c.do(ctx, l) }
				}
				l.Gather(run...)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%+v: %s", batch, diff)
				}
			}
			sameState(t, l, w, m)
		})
		addsUp(t, l)
	})
}
