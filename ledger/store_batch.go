package ledger

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbackend/kit/database"
)

// load locks what the operations concern and reads it.
func (s store) load(ctx context.Context, calls []*call) (*batch, error) {
	b := &batch{
		now: s.db.Now(ctx), accounts: make(map[AccountKey]*Account), holds: make(map[string]*Hold),
		known: make(map[string]Transaction), stored: make(map[AccountKey]int64),
	}
	if s.db.Dialect() == database.PostgreSQL {
		// A plan made while the tables were empty must not be kept.
		if _, err := s.db.Exec(ctx, `SET LOCAL plan_cache_mode = force_custom_plan`); err != nil {
			return nil, err
		}
	}
	var refs, settling [][]any
	keys := make(map[AccountKey]bool)
	for _, c := range calls {
		switch op := c.Op; {
		case op.settles():
			settling = append(settling, []any{op.ref})
		default:
			refs = append(refs, []any{op.ref})
			for _, key := range op.accounts() {
				keys[key] = true
			}
		}
	}
	if err := s.loadHolds(ctx, b, settling); err != nil {
		return nil, err
	}
	for _, hold := range b.holds {
		keys[AccountKey{hold.UserID, hold.Currency}] = true
	}
	if err := s.loadAccounts(ctx, b, keys); err != nil {
		return nil, err
	}
	return b, s.loadKnown(ctx, b, refs)
}

var lockHolds = `SELECT ` + holdColumns + ` FROM ledger_hold
	WHERE ref = ` + database.Text(`$1`, `ANY($1::text[]) ORDER BY ref FOR UPDATE`)

func (s store) loadHolds(ctx context.Context, b *batch, refs [][]any) error {
	holds, err := readAll(ctx, s, scanHold, lockHolds, refs)
	for _, hold := range holds {
		b.holds[hold.Ref] = &hold
	}
	return err
}

var lockAccounts = `SELECT ` + accountColumns + ` FROM ledger_account WHERE (user_id, currency)
	` + database.Text(`= ($1, $2)`, `IN (SELECT * FROM unnest($1::text[], $2::text[])) ORDER BY user_id, currency FOR UPDATE`)

func (s store) loadAccounts(ctx context.Context, b *batch, keys map[AccountKey]bool) error {
	rows := make([][]any, 0, len(keys))
	for key := range keys {
		rows = append(rows, []any{key.UserID, key.Currency})
	}
	accounts, err := readAll(ctx, s, scanAccount, lockAccounts, rows)
	for _, account := range accounts {
		b.accounts[account.key()] = &account
		b.stored[account.key()] = account.Sequence
	}
	return err
}

var transactionsOf = `SELECT ` + columns + ` FROM ledger_transaction WHERE ref = ` + database.Text(`$1`, `ANY($1::text[])`)

// loadKnown comes after the locks, so that it sees what they waited for.
func (s store) loadKnown(ctx context.Context, b *batch, refs [][]any) error {
	known, err := readAll(ctx, s, scanTransaction, transactionsOf, refs)
	if err != nil {
		return err
	}
	var seconds [][]any
	for _, t := range known {
		b.known[t.Ref] = t
		if t.Kind == KindTransferOut {
			seconds = append(seconds, []any{t.Ref + suffixIn})
		}
	}
	known, err = readAll(ctx, s, scanTransaction, transactionsOf, seconds)
	for _, t := range known {
		b.known[t.Ref] = t
	}
	return err
}

// save writes what the operations changed.
func (s store) save(ctx context.Context, b *batch) error {
	var fresh, changed [][]any
	for key, a := range b.accounts {
		switch sequence, stored := b.stored[key]; {
		case !stored:
			fresh = append(fresh, []any{a.UserID, a.Currency, a.Balance, a.Held, a.Sequence, a.OpenedAt.UnixMilli()})
		case sequence != a.Sequence:
			changed = append(changed, []any{a.UserID, a.Currency, a.Balance, a.Held, a.Sequence})
		}
	}
	slices.SortFunc(fresh, byKey)
	slices.SortFunc(b.rows, func(x, y Transaction) int { return strings.Compare(x.Ref, y.Ref) })
	for _, change := range []struct {
		query string
		rows  [][]any
	}{
		{insertAccounts, fresh},
		{insertTransactions, each(b.rows, Transaction.row)},
		{insertHolds, each(b.opened, (*Hold).row)},
		{settleHolds, each(b.settled, (*Hold).settledRow)},
		{updateAccounts, changed},
	} {
		if err := s.writeAll(ctx, change.query, change.rows); err != nil {
			return err
		}
	}
	return nil
}

func byKey(x, y []any) int {
	return cmp.Or(strings.Compare(x[0].(string), y[0].(string)), strings.Compare(x[1].(string), y[1].(string)))
}

var insertAccounts = `INSERT INTO ledger_account (` + accountColumns + `)
	` + database.Text(`VALUES ($1, $2, $3, $4, $5, $6)`, `SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])`)

var updateAccounts = `UPDATE ledger_account AS a SET
	` + database.Text(`balance = $3, held = $4, sequence = $5 WHERE user_id = $1 AND currency = $2`, `balance = n.balance, held = n.held, sequence = n.sequence
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS n (user_id, currency, balance, held, sequence)
		WHERE a.user_id = n.user_id AND a.currency = n.currency`)

var insertTransactions = `INSERT INTO ledger_transaction (` + columns + `)
	` + database.Text(`VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, `SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[],
		$7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::bigint[])`)

func (t Transaction) row() []any {
	return []any{t.Ref, t.UserID, t.Currency, t.Sequence, string(t.Kind), t.Amount, t.BalanceAfter, t.HeldAfter,
		t.RelatedRef, t.Memo, t.CreatedAt.UnixMilli()}
}

var insertHolds = `INSERT INTO ledger_hold (ref, user_id, currency, amount, captured, status, created_at, settled_at)
	` + database.Text(`VALUES ($1, $2, $3, $4, $5, $6, $7, NULLIF($8, 0))`, `SELECT ref, user_id, currency, amount, captured, status, created_at, NULLIF(settled_at, 0)
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[])
			AS n (ref, user_id, currency, amount, captured, status, created_at, settled_at)`)

func (h *Hold) row() []any {
	return []any{h.Ref, h.UserID, h.Currency, h.Amount, h.Captured, string(h.Status), h.CreatedAt.UnixMilli(), h.settledMillis()}
}

var settleHolds = `UPDATE ledger_hold AS h SET
	` + database.Text(`captured = $2, status = $3, settled_at = $4 WHERE ref = $1`, `captured = n.captured, status = n.status, settled_at = n.settled_at
		FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS n (ref, captured, status, settled_at)
		WHERE h.ref = n.ref`)

func (h *Hold) settledRow() []any {
	return []any{h.Ref, h.Captured, string(h.Status), h.settledMillis()}
}

// each makes rows of many values.
func each[T any](values []T, row func(T) []any) [][]any {
	rows := make([][]any, len(values))
	for i, value := range values {
		rows[i] = row(value)
	}
	return rows
}

// readAll reads at most one row for each of some keys: on PostgreSQL by one
// statement, which gets the keys as arrays, on SQLite by one a key.
func readAll[T any](ctx context.Context, s store, scan func(database.Scanner) (T, error), query string, keys [][]any) (found []T, err error) {
	if s.db.Dialect() == database.PostgreSQL && len(keys) > 0 {
		return database.All(ctx, s.db, scan, query, arrays(keys)...)
	}
	for _, key := range keys {
		value, ok, err := database.Get(ctx, s.db, scan, query, key...)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, value)
		}
	}
	return found, nil
}

// writeAll writes rows as readAll reads them. None may be left out.
func (s store) writeAll(ctx context.Context, query string, rows [][]any) (err error) {
	changed := int64(0)
	if s.db.Dialect() == database.PostgreSQL && len(rows) > 0 {
		changed, err = s.db.Exec(ctx, query, arrays(rows)...)
	} else {
		for i := 0; i < len(rows) && err == nil; i++ {
			var n int64
			n, err = s.db.Exec(ctx, query, rows[i]...)
			changed += n
		}
	}
	if err == nil && changed != int64(len(rows)) {
		err = fmt.Errorf("ledger: a batch changed %d rows instead of %d", changed, len(rows))
	}
	return err
}

// arrays turns rows of text and integers into columns, as unnest takes them.
func arrays(rows [][]any) []any {
	columns := make([]any, len(rows[0]))
	for i, value := range rows[0] {
		if _, ok := value.(string); ok {
			columns[i] = column[string](rows, i)
		} else {
			columns[i] = column[int64](rows, i)
		}
	}
	return columns
}

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for j, row := range rows {
		values[j] = row[i].(T)
	}
	return values
}
