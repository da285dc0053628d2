package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// store is the ledger's SQL. Everything that writes runs inside a transaction.
type store struct{ db *database.DB }

// change is the one way a new ref moves money. It leaves the row as it is when
// the account does not exist, would have less than nothing available or more
// than it may, or when the ref is known.
const change = `UPDATE ledger_account SET balance = balance + $3, held = held + $4, sequence = sequence + 1
	WHERE user_id = $1 AND currency = $2 AND balance + $3 - held - $4 >= 0 AND balance + $3 <= 9007199254740991
		AND NOT EXISTS (SELECT 1 FROM ledger_transaction WHERE ref = $5)`

// changeFor is change of a payer, which depends on the payee too, so that the
// payee's own change cannot fail after it.
const changeFor = change + `
		AND EXISTS (SELECT 1 FROM ledger_account WHERE user_id = $6 AND currency = $2 AND balance - $3 <= 9007199254740991)`

const receive = `UPDATE ledger_account SET balance = balance + $3, sequence = sequence + 1
	WHERE user_id = $1 AND currency = $2`

const columns = `ref, user_id, currency, sequence, kind, amount, balance_after, held_after, related_ref, memo, created_at`

// alone runs one operation in a transaction of its own.
func (s store) alone(ctx context.Context, op *operation) (outcome, error) {
	var out outcome
	err := s.db.InTx(ctx, func(ctx context.Context) (err error) {
		out, err = s.apply(ctx, op)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	return out, nil
}

// apply runs one operation. It refuses before it writes anything, so that a
// caller whose transaction it joined may go on after a refusal.
func (s store) apply(ctx context.Context, op *operation) (outcome, error) {
	if op.settles() {
		return s.settle(ctx, op)
	}
	for range 3 { // a second time when the payee was opened, a third when another node was faster
		payer, payee, err := s.lock(ctx, op)
		if err != nil {
			return outcome{}, err
		}
		// An account that another node opens after the look here is not changed in
		// this turn: what it held before would be unknown.
		if op.opened(payer, payee) {
			changed, err := s.change(ctx, op)
			if err != nil {
				return outcome{}, err
			}
			if changed {
				return s.write(ctx, op.post(payer, payee, s.db.Now(ctx)))
			}
		}
		if out, err := s.refuse(ctx, op, payer, payee); err != nil || out.replayed {
			return out, err
		}
		if err := s.open(ctx, AccountKey{op.payee, op.currency}); err != nil {
			return outcome{}, err
		}
	}
	return outcome{}, fmt.Errorf("ledger: the accounts of ref %q refuse it for no reason", op.ref)
}

// lock returns the accounts of an operation, nil where never opened. On
// PostgreSQL it queues behind other operations on them: in key order, so that
// opposite transfers never wait for each other, and before the statement that
// looks for the ref, so that it sees what they wrote.
func (s store) lock(ctx context.Context, op *operation) (payer, payee *Account, err error) {
	for _, key := range op.accounts() {
		account, err := s.lockAccount(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		if key.UserID == op.payer {
			payer = account
		} else {
			payee = account
		}
	}
	return payer, payee, nil
}

func (s store) lockAccount(ctx context.Context, key AccountKey) (*Account, error) {
	return s.oneAccount(ctx, selectAccount+` `+database.ForUpdate, key)
}

// change moves the money of an operation, or returns false and moves nothing.
func (s store) change(ctx context.Context, op *operation) (bool, error) {
	balance, held := op.kind.moves(op.amount)
	if op.kind != KindTransferOut {
		n, err := s.db.Exec(ctx, change, op.user(), op.currency, balance, held, op.ref)
		return n == 1, err
	}
	n, err := s.db.Exec(ctx, changeFor, op.payer, op.currency, balance, held, op.ref, op.payee)
	if err != nil || n == 0 {
		return false, err
	}
	_, err = s.db.Exec(ctx, receive, op.payee, op.currency, op.amount)
	return true, err
}

// refuse finds out why an operation changed nothing: it was done before, or a
// rule forbids it. Neither is the case when only its payee has no account yet.
func (s store) refuse(ctx context.Context, op *operation, payer, payee *Account) (outcome, error) {
	first, in, known, err := s.known(ctx, op.ref)
	if err != nil {
		return outcome{}, err
	}
	if known {
		return op.replay(first, in)
	}
	return outcome{}, op.judge(payer, payee)
}

func (s store) open(ctx context.Context, key AccountKey) error {
	_, err := s.db.Exec(ctx, `INSERT INTO ledger_account (user_id, currency, balance, held, sequence, opened_at)
		VALUES ($1, $2, 0, 0, 0, $3) ON CONFLICT DO NOTHING`, key.UserID, key.Currency, s.db.Now(ctx).UnixMilli())
	return err
}

// write puts down a new operation. Its ref can be taken only on PostgreSQL, by
// another node for other accounts, which the lock does not cover.
func (s store) write(ctx context.Context, out outcome) (outcome, error) {
	var taken *database.ConstraintError
	err := s.insert(ctx, out)
	switch {
	case errors.As(err, &taken) && taken.Kind == database.Unique:
		return outcome{}, ErrRefConflict.Because(err)
	case err != nil:
		return outcome{}, err
	case out.rows[0].Kind != KindHold:
		return out, nil
	}
	h := out.hold
	if _, err := s.db.Exec(ctx, `INSERT INTO ledger_hold (ref, user_id, currency, amount, captured, status, created_at)
		VALUES ($1, $2, $3, $4, 0, 'open', $5)`, h.Ref, h.UserID, h.Currency, h.Amount, h.CreatedAt.UnixMilli()); err != nil {
		return outcome{}, err
	}
	return out, nil
}

// insert writes the one or two transactions of an operation, each by itself:
// SQLite keeps a journal for a statement of several rows.
func (s store) insert(ctx context.Context, out outcome) error {
	for i := range out.rows {
		t := &out.rows[i]
		if t.Ref == "" {
			break
		}
		if _, err := s.db.Exec(ctx, `INSERT INTO ledger_transaction (`+columns+`)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`, t.Ref, t.UserID, t.Currency, t.Sequence, string(t.Kind),
			t.Amount, t.BalanceAfter, t.HeldAfter, t.RelatedRef, t.Memo, t.CreatedAt.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

// settle captures or releases a hold. The first change of its status wins.
func (s store) settle(ctx context.Context, op *operation) (outcome, error) {
	hold, ok, err := database.Get(ctx, s.db, scanHold, `SELECT `+holdColumns+` FROM ledger_hold
		WHERE ref = $1 `+database.ForUpdate, op.ref)
	if err != nil {
		return outcome{}, err
	}
	if !ok {
		return outcome{}, ErrHoldNotFound
	}
	if err := op.judgeHold(&hold); err != nil {
		return outcome{}, err
	}
	account, err := s.lockAccount(ctx, AccountKey{hold.UserID, hold.Currency})
	if err != nil {
		return outcome{}, err
	}
	if account == nil {
		return outcome{}, errNoAccount
	}
	out := op.settle(&hold, account, s.db.Now(ctx))
	n, err := s.db.Exec(ctx, `UPDATE ledger_hold SET status = $2, captured = $3, settled_at = $4
		WHERE ref = $1 AND status = 'open'`, hold.Ref, string(hold.Status), hold.Captured, hold.SettledAt.UnixMilli())
	if err != nil {
		return outcome{}, err
	}
	if n == 0 {
		return outcome{}, ErrHoldNotOpen
	}
	if _, err := s.db.Exec(ctx, `UPDATE ledger_account SET balance = balance - $3, held = held - $4, sequence = $5
		WHERE user_id = $1 AND currency = $2`, hold.UserID, hold.Currency, hold.Captured, hold.Amount, account.Sequence); err != nil {
		return outcome{}, err
	}
	if err := s.insert(ctx, out); err != nil {
		return outcome{}, err
	}
	return out, nil
}

// errNoAccount cannot happen to a ledger that nobody else writes to.
var errNoAccount = errors.New("ledger: a hold has no account; see Verify")

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
		&t.RelatedRef, &t.Memo, &created)
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

const selectAccount = `SELECT ` + accountColumns + ` FROM ledger_account WHERE user_id = $1 AND currency = $2`

// account returns one account, nil when it was never opened.
func (s store) account(ctx context.Context, key AccountKey) (*Account, error) {
	return s.oneAccount(ctx, selectAccount, key)
}

func (s store) oneAccount(ctx context.Context, query string, key AccountKey) (*Account, error) {
	a, ok, err := database.Get(ctx, s.db, scanAccount, query, key.UserID, key.Currency)
	if err != nil || !ok {
		return nil, err
	}
	return &a, nil
}

// accounts lists all accounts behind a key, in key order.
func (s store) accounts(ctx context.Context, after AccountKey, limit int) ([]Account, error) {
	return database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM ledger_account
		WHERE (user_id, currency) > ($1, $2) ORDER BY user_id, currency LIMIT $3`, after.UserID, after.Currency, limit)
}

// accountsOf lists one user's accounts behind a currency, by currency.
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

// PostgreSQL would walk through the table, rather than look a few keys up, where
// it does not know yet how large the table is.
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
	return s.db.Exec(ctx, `UPDATE ledger_transaction SET memo = '' WHERE ref IN
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
