package ledger

import (
	"context"
	"fmt"
)

// MaxFindings bounds the findings under each rule in a [Report].
const MaxFindings = 100

// verifyPage is how many rows one statement of Verify checks: few enough not to hold a snapshot
// that others wait for.
const verifyPage = 5000

// Report is the result of [Ledger.Verify].
type Report struct {
	Accounts, Transactions, Holds int64
	// Findings is empty when the ledger adds up.
	Findings []Finding
}

// Finding is one place where the ledger breaks a rule.
type Finding struct {
	// Rule says what does not hold.
	Rule string
	// Subject is a ref or, of an account, the user id and the currency.
	Subject string
}

// Err returns the findings as one error, nil when there are none.
func (r Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	first := r.Findings[0]
	return fmt.Errorf("ledger: %d findings, the first at %q: %s", len(r.Findings), first.Subject, first.Rule)
}

// Verify proves that the ledger adds up: every account's transactions follow
// one another without a gap and end at its balance and its held money, open
// holds sum to held, transfers have both halves, and every hold has the
// transactions of its state. It reads everything, some rows at a time, and may
// run while the ledger works.
func (l *Ledger) Verify(ctx context.Context) (Report, error) {
	var report Report
	for _, r := range rules {
		rows, findings, err := l.store.breaches(ctx, r)
		if err != nil {
			return Report{}, fmt.Errorf("ledger: verify that %s: %w", r.name, err)
		}
		switch r.of {
		case eachAccount:
			report.Accounts = max(report.Accounts, rows)
		case eachTransaction:
			report.Transactions = max(report.Transactions, rows)
		case eachHold:
			report.Holds = max(report.Holds, rows)
		}
		report.Findings = append(report.Findings, findings...)
	}
	return report, nil
}
