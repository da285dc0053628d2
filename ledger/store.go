package ledger

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// store is the ledger's SQL. Everything that writes runs inside a transaction.
type store struct{ db *database.DB }

const columns = `ref, user_id, currency, sequence, kind, amount, balance_after, held_after, related_ref, memo, memo_erased, created_at`

const holdColumns = `ref, user_id, currency, amount, captured, status, created_at, COALESCE(settled_at, 0)`

func scanHold(row database.Scanner) (h Hold, err error) {
	var created, settled int64
	err = row.Scan(&h.Ref, &h.UserID, &h.Currency, &h.Amount, &h.Captured, &h.Status, &created, &settled)
	h.CreatedAt = capability.Millis(created)
	if settled != 0 {
		h.SettledAt = capability.Millis(settled)
	}
	return h, err
}

// known returns the transaction under a ref, and its second half if it is a transfer.
func (s store) known(ctx context.Context, ref string) (first, in Transaction, ok bool, err error) {
	rows, err := database.All(ctx, s.db, scanTransaction, `SELECT `+columns+` FROM ledger_transaction
		WHERE ref IN ($1, $2) ORDER BY ref`, ref, ref+suffixIn)
	if err != nil || len(rows) == 0 {
		return first, in, false, err
	}
	if len(rows) == 2 {
		in = rows[1]
	}
	return rows[0], in, true, nil
}

func scanTransaction(row database.Scanner) (t Transaction, err error) {
	var created int64
	err = row.Scan(&t.Ref, &t.UserID, &t.Currency, &t.Sequence, &t.Kind, &t.Amount, &t.BalanceAfter, &t.HeldAfter,
		&t.RelatedRef, &t.Memo, &t.MemoErased, &created)
	t.CreatedAt = capability.Millis(created)
	return t, err
}

// history lists an account's transactions with a sequence below one, newest first.
func (s store) history(ctx context.Context, key AccountKey, below int64, limit int) ([]Transaction, error) {
	return database.All(ctx, s.db, scanTransaction, `SELECT `+columns+` FROM ledger_transaction
		WHERE user_id = $1 AND currency = $2 AND sequence < $3 ORDER BY sequence DESC LIMIT $4`,
		key.UserID, key.Currency, below, limit)
}

const accountColumns = `user_id, currency, balance, held, sequence, opened_at`

func scanAccount(row database.Scanner) (a Account, err error) {
	var opened int64
	err = row.Scan(&a.UserID, &a.Currency, &a.Balance, &a.Held, &a.Sequence, &opened)
	a.Available, a.OpenedAt = a.Balance-a.Held, capability.Millis(opened)
	return a, err
}

// account returns one account, nil when it was never opened.
func (s store) account(ctx context.Context, key AccountKey) (*Account, error) {
	a, ok, err := database.Get(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM ledger_account
		WHERE user_id = $1 AND currency = $2`, key.UserID, key.Currency)
	if err != nil || !ok {
		return nil, err
	}
	return &a, nil
}

// accounts lists all accounts after a key, in key order.
func (s store) accounts(ctx context.Context, after AccountKey, limit int) ([]Account, error) {
	return database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM ledger_account
		WHERE (user_id, currency) > ($1, $2) ORDER BY user_id, currency LIMIT $3`, after.UserID, after.Currency, limit)
}

// accountsOf lists one user's accounts after a currency, by currency.
func (s store) accountsOf(ctx context.Context, userID, after string, limit int) ([]Account, error) {
	return database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM ledger_account
		WHERE user_id = $1 AND currency > $2 ORDER BY currency LIMIT $3`, userID, after, limit)
}

// many returns those of the accounts that were opened, in no order.
func (s store) many(ctx context.Context, keys []AccountKey) ([]Account, error) {
	pairs := make([][2]string, len(keys))
	for i, key := range keys {
		pairs[i] = [2]string{key.UserID, key.Currency}
	}
	list, err := json.Marshal(pairs)
	if err != nil {
		return nil, err
	}
	return database.All(ctx, s.db, scanAccount, manySQL, string(list))
}

// Without statistics PostgreSQL would scan the table instead of looking up a few keys.
var manySQL = `SELECT ` + accountColumns + ` FROM ` + database.Text(``, `jsonb_array_elements($1::jsonb) AS n (value), LATERAL (SELECT * FROM`) + ` ledger_account
	` + database.Text(`WHERE (user_id, currency) IN (SELECT value->>0, value->>1 FROM json_each($1))`, `WHERE user_id = value->>0 AND currency = value->>1 LIMIT 1) AS a`)

// openHolds lists refs of a user's open holds.
func (s store) openHolds(ctx context.Context, userID string, limit int) ([]string, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (ref string, err error) {
		return ref, row.Scan(&ref)
	}, `SELECT ref FROM ledger_hold WHERE user_id = $1 AND status = 'open' LIMIT $2`, userID, limit)
}

// emptyMemos empties the memos of some of a user's transactions: the one change
// that the triggers let through.
func (s store) emptyMemos(ctx context.Context, userID string, limit int) (int64, error) {
	return s.db.Exec(ctx, `UPDATE ledger_transaction SET memo = '', memo_erased = TRUE WHERE ref IN
		(SELECT ref FROM ledger_transaction WHERE user_id = $1 AND memo <> '' LIMIT $2)`, userID, limit)
}

// countAccounts counts up to a bound.
func (s store) countAccounts(ctx context.Context, most int) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM ledger_account LIMIT $1) AS n`, most).Scan(&n)
	return n, err
}

func (s store) countOpenHolds(ctx context.Context, most int) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM ledger_hold WHERE status = 'open' LIMIT $1) AS n`, most).Scan(&n)
	return n, err
}

func (s store) circulation(ctx context.Context) (map[string]float64, error) {
	rows, err := s.db.Query(ctx, `SELECT currency, SUM(CAST(balance AS DOUBLE PRECISION)) FROM ledger_account GROUP BY currency`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	sums := make(map[string]float64)
	for rows.Next() {
		var currency string
		var sum float64
		if err := rows.Scan(&currency, &sum); err != nil {
			return nil, err
		}
		sums[currency] = sum
	}
	return sums, rows.Err()
}
