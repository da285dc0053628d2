package ledger

import (
	"context"
	"fmt"

	"github.com/kitbackend/kit/database"
)

// rule is an invariant of every row of a table: joins adds the rows that it depends on, broken is
// the condition under which it is violated.
type rule struct {
	name, of      string
	joins, broken string
}

// The scans of the tables, in key order after ($1, $2).
const (
	eachAccount = `SELECT a.user_id, a.currency, CASE WHEN %[2]s THEN 1 ELSE 0 END FROM ledger_account a %[1]s
		WHERE (a.user_id, a.currency) > ($1, $2) ORDER BY a.user_id, a.currency LIMIT $3`
	eachTransaction = `SELECT t.ref, '', CASE WHEN %[2]s THEN 1 ELSE 0 END FROM ledger_transaction t %[1]s
		WHERE t.ref > $1 AND $2 = '' ORDER BY t.ref LIMIT $3`
	eachHold = `SELECT h.ref, '', CASE WHEN %[2]s THEN 1 ELSE 0 END FROM ledger_hold h %[1]s
		WHERE h.ref > $1 AND $2 = '' ORDER BY h.ref LIMIT $3`
)

var rules = []rule{
	{"an account's transactions follow one another without a gap", eachTransaction,
		`LEFT JOIN ledger_transaction b ON b.user_id = t.user_id AND b.currency = t.currency AND b.sequence = t.sequence - 1`,
		`(b.ref IS NULL AND t.sequence > 1)
			OR t.balance_after <> COALESCE(b.balance_after, 0) + CASE WHEN t.kind IN ('credit', 'transfer_in') THEN t.amount
				WHEN t.kind IN ('debit', 'transfer_out', 'capture') THEN -t.amount ELSE 0 END
			OR t.held_after <> COALESCE(b.held_after, 0) + CASE WHEN t.kind = 'hold' THEN t.amount
				WHEN t.kind IN ('capture', 'release') THEN -t.amount ELSE 0 END`},
	{"an account stands where its newest transaction left it", eachAccount,
		`LEFT JOIN ledger_transaction t ON t.user_id = a.user_id AND t.currency = a.currency AND t.sequence = a.sequence`,
		`a.balance <> COALESCE(t.balance_after, 0) OR a.held <> COALESCE(t.held_after, 0) OR (a.sequence > 0 AND t.ref IS NULL)`},
	{"no transaction is beyond its account", eachTransaction,
		`LEFT JOIN ledger_account a ON a.user_id = t.user_id AND a.currency = t.currency`,
		`t.sequence > COALESCE(a.sequence, 0)`},
	{"open holds sum to held", eachAccount, ``,
		`a.held <> COALESCE((SELECT SUM(h.amount) FROM ledger_hold h
			WHERE h.user_id = a.user_id AND h.currency = a.currency AND h.status = 'open'), 0)`},
	{"a transfer has two equal halves", eachTransaction,
		`LEFT JOIN ledger_transaction o ON o.ref = t.related_ref AND o.related_ref = t.ref
			AND o.kind = CASE WHEN t.kind = 'transfer_out' THEN 'transfer_in' ELSE 'transfer_out' END
			AND o.currency = t.currency AND o.amount = t.amount AND o.user_id <> t.user_id`,
		`t.kind IN ('transfer_out', 'transfer_in') AND o.ref IS NULL`},
	{"a hold has the transaction that opened it", eachHold,
		`LEFT JOIN ledger_transaction t ON t.ref = h.ref AND t.kind = 'hold' AND t.user_id = h.user_id
			AND t.currency = h.currency AND t.amount = h.amount`,
		`t.ref IS NULL`},
	{"a hold has the capture and release of its state", eachHold,
		`LEFT JOIN ledger_transaction c ON c.ref = h.ref || '#capture' AND c.kind = 'capture'
			AND c.related_ref = h.ref AND c.user_id = h.user_id AND c.currency = h.currency
		LEFT JOIN ledger_transaction r ON r.ref = h.ref || '#release' AND r.kind = 'release'
			AND r.related_ref = h.ref AND r.user_id = h.user_id AND r.currency = h.currency`,
		`COALESCE(c.amount, 0) <> h.captured
			OR COALESCE(r.amount, 0) <> CASE WHEN h.status = 'open' THEN 0 ELSE h.amount - h.captured END`},
	{"a transaction of a hold has its hold", eachTransaction,
		`LEFT JOIN ledger_hold h ON t.ref = h.ref || CASE WHEN t.kind = 'hold' THEN '' ELSE '#' || t.kind END
			AND h.ref = CASE WHEN t.kind = 'hold' THEN t.ref ELSE t.related_ref END`,
		`t.kind IN ('hold', 'capture', 'release') AND h.ref IS NULL`},
}

// breach is one row that was checked against a rule.
type breach struct {
	key    [2]string
	broken bool
}

func scanBreach(row database.Scanner) (b breach, err error) {
	var broken int
	err = row.Scan(&b.key[0], &b.key[1], &broken)
	b.broken = broken == 1
	return b, err
}

// breaches checks every row of a rule's table.
func (s store) breaches(ctx context.Context, r rule) (rows int64, findings []Finding, err error) {
	query := fmt.Sprintf(r.of, r.joins, r.broken)
	var last breach
	for {
		page, err := database.All(ctx, s.db, scanBreach, query, last.key[0], last.key[1], verifyPage)
		if err != nil {
			return rows, findings, err
		}
		for _, b := range page {
			if b.broken && len(findings) < MaxFindings {
				subject := b.key[0]
				if b.key[1] != "" {
					subject += " " + b.key[1]
				}
				findings = append(findings, Finding{Rule: r.name, Subject: subject})
			}
		}
		rows += int64(len(page))
		if len(page) < verifyPage {
			return rows, findings, nil
		}
		last = page[len(page)-1]
	}
}
