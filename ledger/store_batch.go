package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bulk"
)

// load locks and reads the rows that the operations concern.
func (s store) load(ctx context.Context, calls []*call) (*batch, error) {
	b := &batch{
		now: s.db.Now(ctx), accounts: make(map[AccountKey]*Account), holds: make(map[string]*Hold),
		known: make(map[string]Transaction), stored: make(map[AccountKey]int64),
	}
	var refs, settling [][]any
	var keys []AccountKey
	for _, c := range calls {
		switch op := c.Op; {
		case op.settles():
			settling = append(settling, []any{op.ref})
		default:
			refs = append(refs, []any{op.ref})
			keys = append(keys, op.accounts()...)
		}
	}
	if err := s.loadHolds(ctx, b, settling); err != nil {
		return nil, err
	}
	for _, hold := range b.holds {
		keys = append(keys, AccountKey{hold.UserID, hold.Currency})
	}
	if err := s.loadAccounts(ctx, b, keys); err != nil {
		return nil, err
	}
	return b, s.loadKnown(ctx, b, refs)
}

// On PostgreSQL each key is looked up by itself, so that a plan made while the tables were empty
// stays good.
var lockHolds = `SELECT ` + holdColumns + ` FROM ` + database.Text(`ledger_hold WHERE ref = $1`, `unnest($1::text[]) AS n (wanted),
		LATERAL (SELECT * FROM ledger_hold WHERE ref = n.wanted LIMIT 1 FOR UPDATE) AS h`)

func (s store) loadHolds(ctx context.Context, b *batch, refs [][]any) error {
	slices.SortFunc(refs, byKey)
	holds, err := readAll(ctx, s, scanHold, lockHolds, refs)
	for _, hold := range holds {
		b.holds[hold.Ref] = &hold
	}
	return err
}

var lockAccounts = `SELECT ` + accountColumns + ` FROM ` + database.Text(`ledger_account WHERE user_id = $1 AND currency = $2`, `unnest($1::text[], $2::text[]) AS n (wanted_user, wanted_currency),
		LATERAL (SELECT * FROM ledger_account WHERE user_id = n.wanted_user AND currency = n.wanted_currency LIMIT 1 FOR UPDATE) AS a`)

// loadAccounts locks accounts in the order of their keys.
func (s store) loadAccounts(ctx context.Context, b *batch, keys []AccountKey) error {
	rows := each(keys, func(key AccountKey) []any { return []any{key.UserID, key.Currency} })
	slices.SortFunc(rows, byKey)
	rows = slices.CompactFunc(rows, func(x, y []any) bool { return byKey(x, y) == 0 })
	accounts, err := readAll(ctx, s, scanAccount, lockAccounts, rows)
	for _, account := range accounts {
		b.accounts[account.key()] = &account
		b.stored[account.key()] = account.Sequence
	}
	return err
}

var transactionsOf = `SELECT ` + columns + ` FROM ` + database.Text(`ledger_transaction WHERE ref = $1`, `unnest($1::text[]) AS n (wanted),
		LATERAL (SELECT * FROM ledger_transaction WHERE ref = n.wanted LIMIT 1) AS t`)

// loadKnown reads the transactions under the refs, after the locks, so that it sees the commits
// which they waited for.
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

// save writes what the operations changed. It returns errMoved, and has written
// nothing but accounts, where another node opened one of those that are new here.
func (s store) save(ctx context.Context, b *batch) error {
	var fresh, changed [][]any
	for key, a := range b.accounts {
		row := []any{a.UserID, a.Currency, a.Balance, a.Held, a.Sequence, a.OpenedAt.UnixMilli()}
		switch sequence, stored := b.stored[key]; {
		case !stored:
			fresh = append(fresh, row)
		case sequence != a.Sequence:
			changed = append(changed, row)
		}
	}
	slices.SortFunc(fresh, byKey)
	opened, err := insertAccounts.Write(ctx, s.db, fresh)
	if err == nil && opened != int64(len(fresh)) {
		err = errMoved
	}
	if err != nil {
		return err
	}
	slices.SortFunc(b.rows, func(x, y Transaction) int { return strings.Compare(x.Ref, y.Ref) })
	for _, change := range []struct {
		statement bulk.Insert
		rows      [][]any
	}{
		{insertTransactions, each(b.rows, Transaction.row)},
		{saveHolds, each(b.changed, (*Hold).row)},
		{updateAccounts, changed},
	} {
		written, err := change.statement.Write(ctx, s.db, change.rows)
		if err == nil && written != int64(len(change.rows)) {
			err = fmt.Errorf("ledger: a batch wrote %d rows instead of %d", written, len(change.rows))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byKey orders rows by the one or two texts that they begin with.
func byKey(x, y []any) int {
	order := strings.Compare(x[0].(string), y[0].(string))
	if order == 0 && len(x) > 1 {
		order = strings.Compare(x[1].(string), y[1].(string))
	}
	return order
}

// errMoved reports that another node opened an account after it was read.
var errMoved = errors.New("ledger: an account was opened meanwhile")

var accountFields = []string{"user_id TEXT", "currency TEXT", "balance BIGINT", "held BIGINT", "sequence BIGINT", "opened_at BIGINT"}

var insertAccounts = bulk.New("ledger_account", accountFields, `ON CONFLICT DO NOTHING`)

// updateAccounts writes accounts that are there and locked.
var updateAccounts = bulk.New("ledger_account", accountFields, `ON CONFLICT (user_id, currency) DO UPDATE SET
	balance = excluded.balance, held = excluded.held, sequence = excluded.sequence`)

var insertTransactions = bulk.New("ledger_transaction", []string{
	"ref TEXT", "user_id TEXT", "currency TEXT", "sequence BIGINT", "kind TEXT", "amount BIGINT", "balance_after BIGINT",
	"held_after BIGINT", "related_ref TEXT", "memo TEXT", "created_at BIGINT"}, ``)

func (t Transaction) row() []any {
	return []any{t.Ref, t.UserID, t.Currency, t.Sequence, string(t.Kind), t.Amount, t.BalanceAfter, t.HeldAfter,
		t.RelatedRef, t.Memo, t.CreatedAt.UnixMilli()}
}

// saveHolds writes new holds, whose refs the transactions have taken, and settled
// ones, which are locked.
var saveHolds = bulk.New("ledger_hold", []string{
	"ref TEXT", "user_id TEXT", "currency TEXT", "amount BIGINT", "captured BIGINT", "status TEXT", "created_at BIGINT", "settled_at BIGINT"},
	`ON CONFLICT (ref) DO UPDATE SET captured = excluded.captured, status = excluded.status, settled_at = excluded.settled_at`)

func (h *Hold) row() []any {
	return []any{h.Ref, h.UserID, h.Currency, h.Amount, h.Captured, string(h.Status), h.CreatedAt.UnixMilli(), h.settledMillis()}
}

// each returns the rows of many values.
func each[T any](values []T, row func(T) []any) [][]any {
	rows := make([][]any, len(values))
	for i, value := range values {
		rows[i] = row(value)
	}
	return rows
}

// readAll reads at most one row for each key: on PostgreSQL by one statement, which gets the keys
// as arrays, on SQLite by one statement for each.
func readAll[T any](ctx context.Context, s store, scan func(database.Scanner) (T, error), query string, keys [][]any) (found []T, err error) {
	if s.db.Dialect() == database.PostgreSQL && len(keys) > 0 {
		return database.All(ctx, s.db, scan, query, bulk.Columns(keys)...)
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
