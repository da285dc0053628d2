package ledger

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// applySet reads what all operations concern, decides them in memory by the
// rules that hold alone too, and writes all rows by a few statements. It locks
// and writes in one order everywhere (holds, accounts, new accounts, refs;
// each by key), so that transactions never wait for each other in a circle.
func (s store) applySet(ctx context.Context, calls []*call) error {
	b, err := s.load(ctx, calls)
	if err != nil {
		return err
	}
	for _, c := range calls {
		c.out, c.err = b.apply(c.op)
	}
	return s.save(ctx, b)
}

// batch is the part of the ledger that a batch of operations sees and changes.
type batch struct {
	now      time.Time
	accounts map[AccountKey]*Account // those ever opened
	holds    map[string]*Hold
	known    map[string]Transaction

	stored  map[AccountKey]int64 // sequences of the accounts that were there before
	rows    []Transaction        // new
	opened  []*Hold              // new
	settled []*Hold              // that were there before
}

// apply decides one operation on what those before it left.
func (b *batch) apply(op *operation) (outcome, error) {
	if op.settles() {
		return b.settle(op)
	}
	if first, ok := b.known[op.ref]; ok {
		return op.replay(first, b.known[op.ref+suffixIn])
	}
	payer, payee := b.accounts[AccountKey{op.payer, op.currency}], b.accounts[AccountKey{op.payee, op.currency}]
	if err := op.judge(payer, payee); err != nil {
		return outcome{}, err
	}
	if op.payee != "" && payee == nil {
		payee = &Account{UserID: op.payee, Currency: op.currency, OpenedAt: capability.Time{Time: b.now}}
		b.accounts[payee.key()] = payee
	}
	out := op.post(payer, payee, b.now)
	if op.kind == KindHold {
		hold := out.hold
		b.holds[hold.Ref] = &hold
		b.opened = append(b.opened, &hold)
	}
	b.add(out)
	return out, nil
}

func (b *batch) settle(op *operation) (outcome, error) {
	hold := b.holds[op.ref]
	if err := op.judgeHold(hold); err != nil {
		return outcome{}, err
	}
	account := b.accounts[AccountKey{hold.UserID, hold.Currency}]
	if account == nil {
		return outcome{}, errNoAccount
	}
	if !slices.Contains(b.opened, hold) {
		b.settled = append(b.settled, hold)
	}
	out := op.settle(hold, account, b.now)
	b.add(out)
	return out, nil
}

func (b *batch) add(out outcome) {
	for _, t := range out.rows {
		if t.Ref != "" {
			b.known[t.Ref] = t
			b.rows = append(b.rows, t)
		}
	}
}

// load locks what the operations concern and reads it.
func (s store) load(ctx context.Context, calls []*call) (*batch, error) {
	b := &batch{
		now: s.db.Now(ctx), accounts: make(map[AccountKey]*Account), holds: make(map[string]*Hold),
		known: make(map[string]Transaction), stored: make(map[AccountKey]int64),
	}
	// A plan made while the tables were empty must not be kept.
	if _, err := s.db.Exec(ctx, `SET LOCAL plan_cache_mode = force_custom_plan`); err != nil {
		return nil, err
	}
	var refs, settling []string
	keys := make(map[AccountKey]bool)
	for _, c := range calls {
		switch op := c.op; {
		case op.settles():
			settling = append(settling, op.ref)
		default:
			refs = append(refs, op.ref, op.ref+suffixIn)
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
	if err := s.loadAccounts(ctx, b, slices.Collect(maps.Keys(keys))); err != nil {
		return nil, err
	}
	return b, s.loadKnown(ctx, b, refs)
}

func (s store) loadHolds(ctx context.Context, b *batch, refs []string) error {
	if len(refs) == 0 {
		return nil
	}
	holds, err := database.All(ctx, s.db, scanHold, `SELECT `+holdColumns+` FROM ledger_hold
		WHERE ref = ANY($1::text[]) ORDER BY ref FOR UPDATE`, refs)
	for _, hold := range holds {
		b.holds[hold.Ref] = &hold
	}
	return err
}

func (s store) loadAccounts(ctx context.Context, b *batch, keys []AccountKey) error {
	accounts, err := database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM ledger_account
		WHERE (user_id, currency) IN (SELECT * FROM unnest($1::text[], $2::text[]))
		ORDER BY user_id, currency FOR UPDATE`,
		column(keys, func(k AccountKey) string { return k.UserID }), column(keys, func(k AccountKey) string { return k.Currency }))
	for _, account := range accounts {
		b.accounts[account.key()] = &account
		b.stored[account.key()] = account.Sequence
	}
	return err
}

// loadKnown comes after the locks, so that it sees what they waited for.
func (s store) loadKnown(ctx context.Context, b *batch, refs []string) error {
	if len(refs) == 0 {
		return nil
	}
	known, err := database.All(ctx, s.db, scanTransaction, `SELECT `+columns+` FROM ledger_transaction
		WHERE ref = ANY($1::text[])`, refs)
	for _, t := range known {
		b.known[t.Ref] = t
	}
	return err
}

// save writes what the operations changed.
func (s store) save(ctx context.Context, b *batch) error {
	var fresh, changed []*Account
	for key, account := range b.accounts {
		switch sequence, stored := b.stored[key]; {
		case !stored:
			fresh = append(fresh, account)
		case sequence != account.Sequence:
			changed = append(changed, account)
		}
	}
	slices.SortFunc(fresh, func(x, y *Account) int {
		return cmp.Or(strings.Compare(x.UserID, y.UserID), strings.Compare(x.Currency, y.Currency))
	})
	slices.SortFunc(b.rows, func(x, y Transaction) int { return strings.Compare(x.Ref, y.Ref) })
	err := s.insertAccounts(ctx, fresh)
	if err == nil {
		err = s.insertAll(ctx, b.rows)
	}
	if err == nil {
		err = s.insertHolds(ctx, b.opened)
	}
	if err == nil {
		err = s.updateHolds(ctx, b.settled)
	}
	if err == nil {
		err = s.updateAccounts(ctx, changed)
	}
	return err
}

// column lists one field of many rows, as unnest takes them.
func column[T, V any](rows []T, field func(T) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = field(row)
	}
	return values
}

func accountArrays(accounts []*Account) []any {
	return []any{
		column(accounts, func(a *Account) string { return a.UserID }),
		column(accounts, func(a *Account) string { return a.Currency }),
		column(accounts, func(a *Account) int64 { return a.Balance }),
		column(accounts, func(a *Account) int64 { return a.Held }),
		column(accounts, func(a *Account) int64 { return a.Sequence }),
		column(accounts, func(a *Account) int64 { return a.OpenedAt.UnixMilli() }),
	}
}

func (s store) insertAccounts(ctx context.Context, accounts []*Account) error {
	return s.all(ctx, len(accounts), `INSERT INTO ledger_account (`+accountColumns+`)
		SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[])`,
		accountArrays(accounts)...)
}

func (s store) updateAccounts(ctx context.Context, accounts []*Account) error {
	return s.all(ctx, len(accounts), `UPDATE ledger_account a
		SET balance = n.balance, held = n.held, sequence = n.sequence
		FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[]) AS n (`+accountColumns+`)
		WHERE a.user_id = n.user_id AND a.currency = n.currency`,
		accountArrays(accounts)...)
}

func (s store) insertAll(ctx context.Context, rows []Transaction) error {
	return s.all(ctx, len(rows), `INSERT INTO ledger_transaction (`+columns+`)
		SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[],
			$7::bigint[], $8::bigint[], $9::text[], $10::text[], $11::bigint[])`,
		column(rows, func(t Transaction) string { return t.Ref }),
		column(rows, func(t Transaction) string { return t.UserID }),
		column(rows, func(t Transaction) string { return t.Currency }),
		column(rows, func(t Transaction) int64 { return t.Sequence }),
		column(rows, func(t Transaction) string { return string(t.Kind) }),
		column(rows, func(t Transaction) int64 { return t.Amount }),
		column(rows, func(t Transaction) int64 { return t.BalanceAfter }),
		column(rows, func(t Transaction) int64 { return t.HeldAfter }),
		column(rows, func(t Transaction) string { return t.RelatedRef }),
		column(rows, func(t Transaction) string { return t.Memo }),
		column(rows, func(t Transaction) int64 { return t.CreatedAt.UnixMilli() }))
}

func (s store) insertHolds(ctx context.Context, holds []*Hold) error {
	return s.all(ctx, len(holds), `INSERT INTO ledger_hold
			(ref, user_id, currency, amount, captured, status, created_at, settled_at)
		SELECT ref, user_id, currency, amount, captured, status, created_at, NULLIF(settled_at, 0)
		FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[])
			AS n (ref, user_id, currency, amount, captured, status, created_at, settled_at)`,
		column(holds, func(h *Hold) string { return h.Ref }),
		column(holds, func(h *Hold) string { return h.UserID }),
		column(holds, func(h *Hold) string { return h.Currency }),
		column(holds, func(h *Hold) int64 { return h.Amount }),
		column(holds, func(h *Hold) int64 { return h.Captured }),
		column(holds, func(h *Hold) string { return string(h.Status) }),
		column(holds, func(h *Hold) int64 { return h.CreatedAt.UnixMilli() }),
		column(holds, func(h *Hold) int64 { return h.settledMillis() }))
}

func (s store) updateHolds(ctx context.Context, holds []*Hold) error {
	return s.all(ctx, len(holds), `UPDATE ledger_hold h
		SET captured = n.captured, status = n.status, settled_at = n.settled_at
		FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[]) AS n (ref, captured, status, settled_at)
		WHERE h.ref = n.ref`,
		column(holds, func(h *Hold) string { return h.Ref }),
		column(holds, func(h *Hold) int64 { return h.Captured }),
		column(holds, func(h *Hold) string { return string(h.Status) }),
		column(holds, func(h *Hold) int64 { return h.settledMillis() }))
}

// all runs a statement that must change n rows; none are left out.
func (s store) all(ctx context.Context, n int, query string, args ...any) error {
	if n == 0 {
		return nil
	}
	changed, err := s.db.Exec(ctx, query, args...)
	if err == nil && changed != int64(n) {
		err = fmt.Errorf("ledger: a batch changed %d rows instead of %d", changed, n)
	}
	return err
}
