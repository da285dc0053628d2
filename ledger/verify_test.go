package ledger_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/ledger"
)

// TestVerifyFinds plants each kind of damage by raw SQL, the triggers off, and
// rolls it back.
func TestVerifyFinds(t *testing.T) {
	const (
		chain     = "an account's transactions follow one another without a gap"
		newest    = "an account stands where its newest transaction left it"
		beyond    = "no transaction is beyond its account"
		held      = "open holds sum to held"
		halves    = "a transfer has two equal halves"
		holdOpens = "a hold has the transaction that opened it"
		holdEnds  = "a hold has the capture and release of its state"
		belongs   = "a transaction of a hold has its hold"
	)
	forged := func(ref, user string, sequence int, kind string, related string) string {
		return `INSERT INTO ledger_transaction (ref, user_id, currency, sequence, kind, amount,
			balance_after, held_after, related_ref, memo, created_at) VALUES ('` + ref + `', '` + user + `', 'coins', ` + string(rune('0'+sequence)) +
			`, '` + kind + `', 1, 1, 0, '` + related + `', '', 0)`
	}
	damages := []struct {
		name, query string
		want        []ledger.Finding
	}{
		{"money out of nothing", `UPDATE ledger_account SET balance = balance + 1 WHERE user_id = 'bob'`,
			[]ledger.Finding{{Rule: newest, Subject: "bob coins"}}},
		{"held out of nothing", `UPDATE ledger_account SET held = held + 1 WHERE user_id = 'bob'`,
			[]ledger.Finding{{Rule: newest, Subject: "bob coins"}, {Rule: held, Subject: "bob coins"}}},
		{"a lost account", `DELETE FROM ledger_account WHERE user_id = 'bob'`,
			[]ledger.Finding{{Rule: beyond, Subject: "give#in"}}},
		{"an account without history", `INSERT INTO ledger_account VALUES ('eve', 'coins', 1, 0, 0, 0)`,
			[]ledger.Finding{{Rule: newest, Subject: "eve coins"}}},
		{"a lost newest transaction", `DELETE FROM ledger_transaction WHERE ref = 'late'`,
			[]ledger.Finding{{Rule: newest, Subject: "ada coins"}}},
		{"a lost older transaction", `DELETE FROM ledger_transaction WHERE ref = 'spend'`,
			[]ledger.Finding{{Rule: chain, Subject: "give"}}},
		{"an amount altered", `UPDATE ledger_transaction SET amount = amount + 1 WHERE ref = 'spend'`,
			[]ledger.Finding{{Rule: chain, Subject: "spend"}}},
		{"a kind altered", `UPDATE ledger_transaction SET kind = 'credit' WHERE ref = 'spend'`,
			[]ledger.Finding{{Rule: chain, Subject: "spend"}}},
		{"a forged transaction", forged("forged", "bob", 2, "credit", ""),
			[]ledger.Finding{{Rule: chain, Subject: "forged"}, {Rule: beyond, Subject: "forged"}}},
		{"a forged transaction of nobody", forged("forged", "eve", 1, "credit", ""),
			[]ledger.Finding{{Rule: beyond, Subject: "forged"}}},
		{"half a transfer", `UPDATE ledger_transaction SET kind = 'credit' WHERE ref = 'give#in'`,
			[]ledger.Finding{{Rule: halves, Subject: "give"}}},
		{"a transfer to another currency", `UPDATE ledger_transaction SET currency = 'gems' WHERE ref = 'give#in'`,
			[]ledger.Finding{{Rule: newest, Subject: "bob coins"}, {Rule: beyond, Subject: "give#in"},
				{Rule: halves, Subject: "give"}, {Rule: halves, Subject: "give#in"}}},
		{"a hold resized", `UPDATE ledger_hold SET amount = amount + 1 WHERE ref = 'open'`,
			[]ledger.Finding{{Rule: held, Subject: "ada coins"}, {Rule: holdOpens, Subject: "open"}}},
		{"a hold lost", `DELETE FROM ledger_hold WHERE ref = 'open'`,
			[]ledger.Finding{{Rule: held, Subject: "ada coins"}, {Rule: belongs, Subject: "open"}}},
		{"a settled hold lost", `DELETE FROM ledger_hold WHERE ref = 'part'`,
			[]ledger.Finding{{Rule: belongs, Subject: "part"}, {Rule: belongs, Subject: "part#capture"}, {Rule: belongs, Subject: "part#release"}}},
		{"a hold of another user", `UPDATE ledger_hold SET user_id = 'bob' WHERE ref = 'open'`,
			[]ledger.Finding{{Rule: held, Subject: "ada coins"}, {Rule: held, Subject: "bob coins"}, {Rule: holdOpens, Subject: "open"}}},
		{"a hold of nobody", `INSERT INTO ledger_hold VALUES ('forged', 'eve', 'coins', 1, 0, 'open', 0, NULL)`,
			[]ledger.Finding{{Rule: holdOpens, Subject: "forged"}}},
		{"a hold closed by hand", `UPDATE ledger_hold SET status = 'released', settled_at = 0 WHERE ref = 'open'`,
			[]ledger.Finding{{Rule: held, Subject: "ada coins"}, {Rule: holdEnds, Subject: "open"}}},
		{"a hold reopened by hand", `UPDATE ledger_hold SET status = 'open', settled_at = NULL, captured = 0 WHERE ref = 'part'`,
			[]ledger.Finding{{Rule: held, Subject: "ada coins"}, {Rule: holdEnds, Subject: "part"}}},
		{"another part captured", `UPDATE ledger_hold SET captured = captured + 1 WHERE ref = 'part'`,
			[]ledger.Finding{{Rule: holdEnds, Subject: "part"}}},
	}
	covered := make(map[string]bool)
	for _, d := range damages {
		for _, f := range d.want {
			covered[f.Rule] = true
		}
	}
	for _, rule := range ledger.Rules() {
		if !covered[rule] {
			t.Errorf("no damage breaks the rule that %s", rule)
		}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, l := t.Context(), open(t, db)
		for _, c := range []call{
			{op: "credit", user: "ada", currency: "coins", amount: 100, ref: "buy"},
			{op: "debit", user: "ada", currency: "coins", amount: 10, ref: "spend"},
			{op: "transfer", user: "ada", to: "bob", currency: "coins", amount: 10, ref: "give"},
			{op: "hold", user: "ada", currency: "coins", amount: 10, ref: "open"},
			{op: "hold", user: "ada", currency: "coins", amount: 10, ref: "part"},
			{op: "capture", ref: "part", amount: 4},
			{op: "debit", user: "ada", currency: "coins", amount: 1, ref: "late"},
		} {
			if r := c.do(ctx, l); r.Code != "" {
				t.Fatalf("%+v: %s", c, r.Code)
			}
		}
		report := must(l.Verify(ctx))(t)
		if diff := cmp.Diff(ledger.Report{Accounts: 2, Transactions: 9, Holds: 2}, report); diff != "" || report.Err() != nil {
			t.Fatal(diff)
		}
		for _, d := range damages {
			var report ledger.Report
			err := db.InTx(ctx, func(ctx context.Context) (err error) {
				for _, query := range append(slices.Clone(triggersOff[db.Dialect()]), d.query) {
					if _, err := db.Exec(ctx, query); err != nil {
						return err
					}
				}
				if report, err = l.Verify(ctx); err != nil {
					return err
				}
				return errUndo
			})
			if !errors.Is(err, errUndo) {
				t.Fatalf("%s: %v", d.name, err)
			}
			if diff := cmp.Diff(d.want, report.Findings); diff != "" || report.Err() == nil {
				t.Errorf("%s: %s", d.name, diff)
			}
		}
		addsUp(t, l)
	})
}

var triggersOff = map[database.Dialect][]string{
	database.SQLite:     {`DROP TRIGGER ledger_transaction_no_update`, `DROP TRIGGER ledger_transaction_no_delete`},
	database.PostgreSQL: {`ALTER TABLE ledger_transaction DISABLE TRIGGER USER`},
}
