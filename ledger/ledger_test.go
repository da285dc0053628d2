package ledger_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var config = ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}, {Code: "gems", Decimals: 2}}}

// open makes a ledger on a database, its schema and an audit trail included.
func open(t testing.TB, db *database.DB) *ledger.Ledger {
	l, _ := openAudited(t, db)
	return l
}

func openAudited(t testing.TB, db *database.DB) (*ledger.Ledger, *audit.Audit) {
	t.Helper()
	db.UseClock(func() time.Time { return now })
	l, trail, err := build(db)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []capability.Capability{trail.Capability(), l.Capability()} {
		if err := db.Migrate(context.Background(), database.Migrations{Name: c.Name, FS: c.Migrations}); err != nil {
			t.Fatal(err)
		}
	}
	return l, trail
}

func build(db *database.DB) (*ledger.Ledger, *audit.Audit, error) {
	host := capability.Host{DB: db, Environment: "test", Now: func() time.Time { return now }}
	trail, err := audit.New(host, audit.Config{}, audit.Peers{})
	if err != nil {
		return nil, nil, err
	}
	l, err := ledger.New(host, config, ledger.Peers{Audit: trail})
	return l, trail, err
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		c := config
		c.BasePath = basePath
		l, err := ledger.New(h, c, ledger.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return l.Capability(), nil
	})
}

func TestConfigFaults(t *testing.T) {
	_, err := ledger.New(capability.Host{}, ledger.Config{Currencies: []ledger.Currency{
		{Code: "coins"}, {Code: "coins"}, {Code: "admin"}, {Code: "Coins"}, {Code: ""}, {Code: "a/b"},
		{Code: strings.Repeat("a", 33)}, {Code: "tokens", Decimals: 19}, {Code: "points", Decimals: -1},
	}}, ledger.Peers{})
	want := []string{
		"currencies[1].code", "currencies[2].code", "currencies[3].code", "currencies[4].code",
		"currencies[5].code", "currencies[6].code", "currencies[7].decimals", "currencies[8].decimals",
	}
	if diff := cmp.Diff(want, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
	_, err = ledger.New(capability.Host{}, ledger.Config{}, ledger.Peers{})
	if diff := cmp.Diff([]string{"currencies"}, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
}

func faultKeys(err error) (keys []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var fault *capability.Fault
		if errors.As(err, &fault) {
			keys = append(keys, fault.Key)
		}
	}
	return keys
}

// TestStory goes through a wager: money comes in, a part is reserved, a part
// of that is spent, the winner is paid.
func TestStory(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 100, Ref: "buy", Memo: "starter pack"}))(t)
		hold := must(l.Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 30, Ref: "stake"}))(t)
		if hold.Status != ledger.HoldOpen || !hold.SettledAt.IsZero() {
			t.Errorf("%+v", hold)
		}
		balanceIs(t, l, "ada", 100, 30)
		hold = must(l.Capture(ctx, "stake", ledger.CaptureOptions{Amount: 20, Memo: "lost"}))(t)
		if hold.Status != ledger.HoldCaptured || hold.Captured != 20 || !hold.SettledAt.Equal(now) {
			t.Errorf("%+v", hold)
		}
		balanceIs(t, l, "ada", 80, 0)
		must(l.Transfer(ctx, ledger.TransferEntry{From: "ada", To: "bob", Currency: "coins", Amount: 5, Ref: "gift"}))(t)
		must(l.Debit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: "fee", RelatedRef: "gift"}))(t)
		must(l.Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 7, Ref: "again"}))(t)
		if hold = must(l.Release(ctx, "again"))(t); hold.Status != ledger.HoldReleased || hold.Captured != 0 {
			t.Errorf("%+v", hold)
		}
		balanceIs(t, l, "ada", 74, 0)
		balanceIs(t, l, "bob", 5, 0)

		type row struct {
			Ref           string
			Kind          ledger.Kind
			Amount        int64
			Balance, Held int64
			Related, Memo string
		}
		var rows []row
		for i, r := range slices.Backward(history(t, l, "ada", "coins")) {
			rows = append(rows, row{r.Ref, r.Kind, r.Amount, r.BalanceAfter, r.HeldAfter, r.RelatedRef, r.Memo})
			if int(r.Sequence) != len(history(t, l, "ada", "coins"))-i || !r.CreatedAt.Equal(now) {
				t.Errorf("%+v", r)
			}
		}
		want := []row{
			{"buy", ledger.KindCredit, 100, 100, 0, "", "starter pack"},
			{"stake", ledger.KindHold, 30, 100, 30, "", ""},
			{"stake#capture", ledger.KindCapture, 20, 80, 10, "stake", "lost"},
			{"stake#release", ledger.KindRelease, 10, 80, 0, "stake", ""},
			{"gift", ledger.KindTransferOut, 5, 75, 0, "gift#in", ""},
			{"fee", ledger.KindDebit, 1, 74, 0, "gift", ""},
			{"again", ledger.KindHold, 7, 74, 7, "", ""},
			{"again#release", ledger.KindRelease, 7, 74, 0, "again", ""},
		}
		if diff := cmp.Diff(want, rows); diff != "" {
			t.Error(diff)
		}
		addsUp(t, l)
	})
}

// TestRefusals produces every code, outside and inside a caller's transaction,
// which a refusal leaves usable.
func TestRefusals(t *testing.T) {
	credit := call{op: "credit", user: "ada", currency: "coins", amount: 1, ref: "new"}
	debit := call{op: "debit", user: "ada", currency: "coins", amount: 1, ref: "new"}
	hold := call{op: "hold", user: "ada", currency: "coins", amount: 1, ref: "new"}
	transfer := call{op: "transfer", user: "ada", to: "bob", currency: "coins", amount: 1, ref: "new"}
	start := call{op: "credit", user: "ada", currency: "coins", amount: 100, ref: "start"}
	with := func(c call, change func(*call)) call { change(&c); return c }
	cases := []struct {
		name string
		call call
		want *capability.Error
	}{
		{"debit more than there is", with(debit, func(c *call) { c.amount = 101 }), ledger.ErrInsufficientFunds},
		{"debit what is held", with(debit, func(c *call) { c.amount = 61 }), ledger.ErrInsufficientFunds},
		{"hold what is held", with(hold, func(c *call) { c.amount = 61 }), ledger.ErrInsufficientFunds},
		{"transfer what is held", with(transfer, func(c *call) { c.amount = 61 }), ledger.ErrInsufficientFunds},
		{"the same to a new account", with(transfer, func(c *call) { c.to, c.amount = "new", 61 }), ledger.ErrInsufficientFunds},
		{"credit nothing", with(credit, func(c *call) { c.amount = 0 }), ledger.ErrInvalidAmount},
		{"credit less", with(credit, func(c *call) { c.amount = -1 }), ledger.ErrInvalidAmount},
		{"credit past 2^53-1", with(credit, func(c *call) { c.amount = ledger.MaxAmount + 1 }), ledger.ErrInvalidAmount},
		{"debit the least int64", with(debit, func(c *call) { c.amount = math.MinInt64 }), ledger.ErrInvalidAmount},
		{"hold nothing", with(hold, func(c *call) { c.amount = 0 }), ledger.ErrInvalidAmount},
		{"transfer nothing", with(transfer, func(c *call) { c.amount = 0 }), ledger.ErrInvalidAmount},
		{"capture less than nothing", call{op: "capture", ref: "open", amount: -1}, ledger.ErrInvalidAmount},
		{"capture more than the hold", call{op: "capture", ref: "open", amount: 41}, ledger.ErrInvalidAmount},
		{"balance past 2^53-1", with(credit, func(c *call) { c.user = "rich" }), ledger.ErrInvalidAmount},
		{"transfer past 2^53-1", with(transfer, func(c *call) { c.to = "rich" }), ledger.ErrInvalidAmount},
		{"debit nobody", with(debit, func(c *call) { c.user = "nobody" }), ledger.ErrAccountNotFound},
		{"debit another currency", with(debit, func(c *call) { c.currency = "gems" }), ledger.ErrAccountNotFound},
		{"hold of nobody", with(hold, func(c *call) { c.user = "nobody" }), ledger.ErrAccountNotFound},
		{"transfer from nobody", with(transfer, func(c *call) { c.user = "nobody" }), ledger.ErrAccountNotFound},
		{"no such currency", with(credit, func(c *call) { c.currency = "gold" }), ledger.ErrCurrencyNotFound},
		{"no currency", with(credit, func(c *call) { c.currency = "" }), ledger.ErrCurrencyNotFound},
		{"capture of nothing", call{op: "capture", ref: "nothing"}, ledger.ErrHoldNotFound},
		{"release of nothing", call{op: "release", ref: "nothing"}, ledger.ErrHoldNotFound},
		{"capture of a credit", call{op: "capture", ref: "start"}, ledger.ErrHoldNotFound},
		{"capture again", call{op: "capture", ref: "captured"}, ledger.ErrHoldNotOpen},
		{"release what is captured", call{op: "release", ref: "captured"}, ledger.ErrHoldNotOpen},
		{"capture what is released", call{op: "capture", ref: "released"}, ledger.ErrHoldNotOpen},
		{"release again", call{op: "release", ref: "released"}, ledger.ErrHoldNotOpen},
		{"other amount", with(start, func(c *call) { c.amount = 99 }), ledger.ErrRefConflict},
		{"other user", with(start, func(c *call) { c.user = "bob" }), ledger.ErrRefConflict},
		{"other currency", with(start, func(c *call) { c.currency = "gems" }), ledger.ErrRefConflict},
		{"other memo", with(start, func(c *call) { c.memo = "x" }), ledger.ErrRefConflict},
		{"other relation", with(start, func(c *call) { c.relation = "x" }), ledger.ErrRefConflict},
		{"other kind", with(start, func(c *call) { c.op = "debit" }), ledger.ErrRefConflict},
		{"ref of a hold", with(debit, func(c *call) { c.ref, c.amount = "open", 40 }), ledger.ErrRefConflict},
		{"other payee", with(transfer, func(c *call) { c.ref, c.to, c.amount = "moved", "eve", 5 }), ledger.ErrRefConflict},
		{"no ref", with(credit, func(c *call) { c.ref = "" }), capability.ErrInvalidRequest},
		{"long ref", with(credit, func(c *call) { c.ref = strings.Repeat("r", 201) }), capability.ErrInvalidRequest},
		{"ref with #", with(credit, func(c *call) { c.ref = "moved#in" }), capability.ErrInvalidRequest},
		{"ref with NUL", with(credit, func(c *call) { c.ref = "a\x00" }), capability.ErrInvalidRequest},
		{"ref of no text", with(credit, func(c *call) { c.ref = "\xff" }), capability.ErrInvalidRequest},
		{"capture by ref with #", call{op: "capture", ref: "open#capture"}, capability.ErrInvalidRequest},
		{"no user", with(credit, func(c *call) { c.user = "" }), capability.ErrInvalidRequest},
		{"long user", with(credit, func(c *call) { c.user = strings.Repeat("u", 129) }), capability.ErrInvalidRequest},
		{"long memo", with(credit, func(c *call) { c.memo = strings.Repeat("m", 501) }), capability.ErrInvalidRequest},
		{"memo with NUL", with(credit, func(c *call) { c.memo = "\x00" }), capability.ErrInvalidRequest},
		{"long relation", with(credit, func(c *call) { c.relation = strings.Repeat("r", 209) }), capability.ErrInvalidRequest},
		{"transfer to oneself", with(transfer, func(c *call) { c.to = "ada" }), capability.ErrInvalidRequest},
		{"transfer to no user", with(transfer, func(c *call) { c.to = "" }), capability.ErrInvalidRequest},
		{"transfer from no user", with(transfer, func(c *call) { c.user = "" }), capability.ErrInvalidRequest},
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		for _, c := range []call{
			{op: "credit", user: "ada", currency: "coins", amount: 45, ref: "before"},
			{op: "hold", user: "ada", currency: "coins", amount: 40, ref: "open"},
			{op: "hold", user: "ada", currency: "coins", amount: 2, ref: "captured"},
			{op: "capture", ref: "captured"},
			{op: "hold", user: "ada", currency: "coins", amount: 3, ref: "released"},
			{op: "release", ref: "released"},
			{op: "credit", user: "rich", currency: "coins", amount: ledger.MaxAmount, ref: "most"},
			start,
			{op: "debit", user: "ada", currency: "coins", amount: 38, ref: "some"},
			{op: "transfer", user: "ada", to: "bob", currency: "coins", amount: 5, ref: "moved"},
		} {
			if r := c.do(ctx, l); r.Code != "" {
				t.Fatalf("%+v: %s", c, r.Code)
			}
		}
		balanceIs(t, l, "ada", 100, 40)
		before := state(t, l)
		for _, c := range cases {
			if r := c.call.do(ctx, l); r.Code != c.want.Code {
				t.Errorf("%s: %+v", c.name, r)
			}
			if err := db.InTx(ctx, func(ctx context.Context) error {
				if r := c.call.do(ctx, l); r.Code != c.want.Code {
					t.Errorf("%s, joined: %+v", c.name, r)
				}
				_, err := l.Balance(ctx, "ada", "coins")
				return err
			}); err != nil {
				t.Errorf("%s spoiled its transaction: %v", c.name, err)
			}
		}
		if diff := cmp.Diff(before, state(t, l)); diff != "" {
			t.Error(diff)
		}
		produced := make(map[string]bool)
		for _, c := range cases {
			produced[c.want.Code] = true
		}
		for _, refusal := range l.Capability().Refusals {
			if !produced[refusal.Code] {
				t.Errorf("no case produces %s", refusal.Code)
			}
		}
		addsUp(t, l)
	})
}

func TestShortfall(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		l := open(t, db)
		must(l.Credit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 3, Ref: "c"}))(t)
		_, err := l.Debit(t.Context(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 5, Ref: "d"})
		if diff := cmp.Diff(ledger.Shortfall{Available: 3, Required: 5}, capability.AsError(err).Details); diff != "" {
			t.Error(diff)
		}
	})
}

// TestJoins commits and rolls back with the rows of the caller.
func TestJoins(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		if _, err := db.Exec(ctx, `CREATE TABLE shop_order (id TEXT PRIMARY KEY)`); err != nil {
			t.Fatal(err)
		}
		buy := func(order string, end error) error {
			return db.InTx(ctx, func(ctx context.Context) error {
				if _, err := db.Exec(ctx, `INSERT INTO shop_order (id) VALUES ($1)`, order); err != nil {
					return err
				}
				if _, err := l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: order}); err != nil {
					return err
				}
				if _, err := l.Hold(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 4, Ref: order + "-hold"}); err != nil {
					return err
				}
				if _, err := l.Transfer(ctx, ledger.TransferEntry{From: "ada", To: "bob", Currency: "coins", Amount: 1, Ref: order + "-tip"}); err != nil {
					return err
				}
				if _, err := l.Capture(ctx, order+"-hold", ledger.CaptureOptions{}); err != nil {
					return err
				}
				return end
			})
		}
		changed := errors.New("changed my mind")
		if err := buy("1", changed); !errors.Is(err, changed) {
			t.Fatal(err)
		}
		if _, err := l.Balance(ctx, "ada", "coins"); !errors.Is(err, ledger.ErrAccountNotFound) {
			t.Errorf("after a rollback: %v", err)
		}
		if err := buy("1", nil); err != nil {
			t.Fatal(err)
		}
		balanceIs(t, l, "ada", 5, 0)
		var orders int
		if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM shop_order`).Scan(&orders); err != nil || orders != 1 {
			t.Error(orders, err)
		}
		addsUp(t, l)
	})
}

func TestBalances(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		hostile := `o'brien "%_\é` + "\n"
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 3, Ref: "a"}))(t)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "gems", Amount: 4, Ref: "b"}))(t)
		must(l.Credit(ctx, ledger.Entry{UserID: hostile, Currency: "gems", Amount: 5, Ref: "c"}))(t)
		must(l.Hold(ctx, ledger.Entry{UserID: hostile, Currency: "gems", Amount: 2, Ref: "d"}))(t)
		got := must(l.Balances(ctx, ledger.AccountKey{UserID: hostile, Currency: "gems"}, ledger.AccountKey{UserID: "bob", Currency: "coins"},
			ledger.AccountKey{UserID: "ada", Currency: "coins"}, ledger.AccountKey{UserID: hostile, Currency: "gems"}))(t)
		want := []ledger.Balance{
			{Currency: "gems", Balance: 5, Held: 2, Available: 3}, {Currency: "coins"},
			{Currency: "coins", Balance: 3, Available: 3}, {Currency: "gems", Balance: 5, Held: 2, Available: 3},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if got := must(l.Balances(ctx))(t); len(got) != 0 {
			t.Error(got)
		}
		if _, err := l.Balances(ctx, make([]ledger.AccountKey, ledger.MaxBalances+1)...); !errors.Is(err, capability.ErrInvalidRequest) {
			t.Error(err)
		}
		if _, err := l.Balances(ctx, ledger.AccountKey{UserID: "ada", Currency: "gold"}); !errors.Is(err, ledger.ErrCurrencyNotFound) {
			t.Error(err)
		}
	})
}

// Balances of a few are found by their keys, however many there are.
func TestBalancesSeek(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		open(t, db)
		if _, err := db.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
			INSERT INTO ledger_account (user_id, currency, balance, held, sequence, opened_at)
			SELECT 'user' || i, 'coins', 0, 0, 0, 0 FROM n`); err != nil {
			t.Fatal(err)
		}
		databasetest.Seeks(t, db, "", ledger.BalancesSQL, `[["user7","coins"],["user8","coins"]]`)
	})
}

func TestLists(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		users := []string{"Zoe", "ada", "bob", "Ärger", "𝄞"} // in the order of their bytes
		for i, user := range users {
			for n := range int64(i + 1) {
				must(l.Credit(ctx, ledger.Entry{UserID: user, Currency: "gems", Amount: n + 1, Ref: user + string(rune('a'+n))}))(t)
			}
		}
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 1, Ref: "coin"}))(t)

		var seen []string
		for page := capability.NewPage(2, ""); ; {
			items := must(l.ListAccounts(ctx, ledger.AccountFilter{}, page))(t)
			for _, a := range items.Items {
				seen = append(seen, a.UserID+" "+a.Currency)
			}
			if items.NextCursor == nil {
				break
			}
			page = capability.NewPage(2, *items.NextCursor)
		}
		want := []string{"Zoe gems", "ada coins", "ada gems", "bob gems", "Ärger gems", "𝄞 gems"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Error(diff)
		}

		first := must(l.ListAccounts(ctx, ledger.AccountFilter{UserID: "ada"}, capability.NewPage(1, "")))(t)
		second := must(l.ListAccounts(ctx, ledger.AccountFilter{UserID: "ada"}, capability.NewPage(1, *first.NextCursor)))(t)
		if first.Items[0].Currency != "coins" || second.Items[0].Currency != "gems" || second.NextCursor != nil {
			t.Error(first, second)
		}

		var sequences []int64
		for page := capability.NewPage(2, ""); ; {
			items := must(l.ListTransactions(ctx, "𝄞", "gems", page))(t)
			for _, r := range items.Items {
				sequences = append(sequences, r.Sequence)
			}
			if items.NextCursor == nil {
				break
			}
			page = capability.NewPage(2, *items.NextCursor)
		}
		if diff := cmp.Diff([]int64{5, 4, 3, 2, 1}, sequences); diff != "" {
			t.Error(diff)
		}

		never := []func() error{
			func() error { _, err := l.Balance(ctx, "bob", "coins"); return err },
			func() error { _, err := l.ListTransactions(ctx, "bob", "coins", capability.NewPage(0, "")); return err },
			func() error {
				_, err := l.ListAccounts(ctx, ledger.AccountFilter{UserID: "eve"}, capability.NewPage(0, ""))
				return err
			},
		}
		for i, call := range never {
			if err := call(); !errors.Is(err, ledger.ErrAccountNotFound) {
				t.Errorf("%d: %v", i, err)
			}
		}
		if _, err := l.ListTransactions(ctx, "ada", "gold", capability.NewPage(0, "")); !errors.Is(err, ledger.ErrCurrencyNotFound) {
			t.Error(err)
		}
		if _, err := l.ListAccounts(ctx, ledger.AccountFilter{UserID: "\xff"}, capability.NewPage(0, "")); !errors.Is(err, capability.ErrInvalidRequest) {
			t.Error(err)
		}
	})
}

func TestAppendOnly(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 3, Ref: "a"}))(t)
		for _, query := range []string{`UPDATE ledger_transaction SET amount = 4`, `DELETE FROM ledger_transaction`} {
			if _, err := db.Exec(ctx, query); err == nil {
				t.Errorf("not refused: %s", query)
			}
		}
		addsUp(t, l)
	})
}

// TestStorageRefuses holds the named constraints themselves to their word.
func TestStorageRefuses(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		must(l.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 3, Ref: "a"}))(t)
		for name, query := range map[string]string{
			"ledger_account_balance_in_range":  `UPDATE ledger_account SET balance = 9007199254740992`,
			"ledger_account_held_not_negative": `UPDATE ledger_account SET held = -1`,
			"ledger_account_held_covered":      `UPDATE ledger_account SET held = 4`,
		} {
			_, err := db.Exec(ctx, query)
			var violation *database.ConstraintError
			if !errors.As(err, &violation) || violation.Kind != database.Check || violation.Name != name {
				t.Errorf("%s: %v", query, err)
			}
		}
		if _, err := db.Exec(ctx, `UPDATE ledger_account SET balance = -1`); err == nil {
			t.Error("a negative balance was not refused")
		}
	})
}

// must returns the value of a call that has to succeed.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func balanceIs(t testing.TB, l *ledger.Ledger, user string, balance, held int64) {
	t.Helper()
	want := ledger.Balance{Currency: "coins", Balance: balance, Held: held, Available: balance - held}
	if diff := cmp.Diff(want, must(l.Balance(context.Background(), user, "coins"))(t)); diff != "" {
		t.Error(diff)
	}
}

// addsUp proves by Verify that the ledger is whole.
func addsUp(t testing.TB, l *ledger.Ledger) {
	t.Helper()
	for _, f := range must(l.Verify(context.Background()))(t).Findings {
		t.Errorf("verify: %s: %s", f.Subject, f.Rule)
	}
}

// history returns all transactions of an account, newest first.
func history(t testing.TB, l *ledger.Ledger, user, currency string) (all []ledger.Transaction) {
	t.Helper()
	for page := capability.NewPage(capability.MaxLimit, ""); ; {
		items := must(l.ListTransactions(context.Background(), user, currency, page))(t)
		all = append(all, items.Items...)
		if items.NextCursor == nil {
			return all
		}
		page = capability.NewPage(capability.MaxLimit, *items.NextCursor)
	}
}

// state returns all accounts and their transactions.
func state(t testing.TB, l *ledger.Ledger) map[ledger.Account][]ledger.Transaction {
	t.Helper()
	all := make(map[ledger.Account][]ledger.Transaction)
	for page := capability.NewPage(capability.MaxLimit, ""); ; {
		items := must(l.ListAccounts(context.Background(), ledger.AccountFilter{}, page))(t)
		for _, a := range items.Items {
			all[a] = history(t, l, a.UserID, a.Currency)
		}
		if items.NextCursor == nil {
			return all
		}
		page = capability.NewPage(capability.MaxLimit, *items.NextCursor)
	}
}
