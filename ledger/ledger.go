// Package ledger keeps integer balances per user and currency: credits,
// debits, transfers, and holds that are captured or released.
//
// # Guarantees
//
//   - No account ever has balance < 0, held < 0 or held > balance, and no
//     balance passes [MaxAmount]: the storage itself refuses it, under any concurrency.
//   - A ref takes effect once. It is unique over the whole ledger, holds included: the same call
//     again returns the outcome of the first one, marked Replayed; any other call under it is
//     ledger/ref_conflict. So a call whose outcome is unknown can simply be repeated. Capture and
//     release have no ref of their own: the second one of a hold is ledger/hold_not_open.
//   - An operation joins the transaction of its context and commits or rolls
//     back with the caller's own rows; outside of one it is durable when it
//     returns. A refusal changes nothing and leaves the caller's transaction
//     usable, except a ref conflict that two nodes ran into at the same instant.
//   - History is append-only, and each account's is totally ordered by
//     Sequence. [Ledger.Verify] proves that it adds up.
//
// # Transactions
//
// Every change of an account, of its balance or of what is held of it, is one
// transaction:
//
//	kind          ref          balance  held     relatedRef
//	credit        ref          +amount           the caller's
//	debit         ref          -amount           the caller's
//	transfer_out  ref          -amount           ref#in
//	transfer_in   ref#in       +amount           ref
//	hold          ref                   +amount  the caller's
//	capture       ref#capture  -amount  -amount  ref
//	release       ref#release           -amount  ref
//
// A capture of a part of its hold is followed by a release of the rest.
//
// # Who may call
//
// In process, any code that has the *Ledger. Over HTTP users read their own
// accounts; an access token with the scope Config.AdminScope credits and
// debits any account; the control plane reads all of them.
package ledger

import (
	"context"
	"embed"
	"math"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

// Name is the capability's name.
const Name = "ledger"

// MaxBalances is how many accounts one call of [Ledger.Balances] reads at most.
const MaxBalances = 1000

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities the ledger uses.
type Peers struct {
	// Audit records credits and debits made over HTTP; nil records nothing.
	Audit *audit.Audit
}

// Ledger moves money. It is safe for concurrent use, from several processes on
// PostgreSQL.
type Ledger struct {
	cfg        Config
	currencies map[string]Currency
	db         *database.DB
	store      store
	queue      *queue.Queue[*operation, outcome]
	audit      *audit.Audit
}

// New checks the configuration, all faults at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Ledger, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	currencies := make(map[string]Currency, len(cfg.Currencies))
	for _, c := range cfg.Currencies {
		currencies[c.Code] = c
	}
	l := &Ledger{cfg: cfg, currencies: currencies, db: host.DB, store: store{host.DB}, audit: peers.Audit}
	l.queue = l.newQueue()
	return l, nil
}

// Capability describes the ledger to the kit.
func (l *Ledger) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   l.db,
		Prefix:     l.cfg.BasePath,
		Routes:     l.routes(),
		Config:     l.cfg.keys(),
		Health:     l.health(),
		Migrations: migrations,
		Refusals:   refusals(),
		Export:     l.export,
		Erase:      l.erase,
	}
}

// maxCounted bounds what a health aggregate counts, so that its cost does not grow with the tables.
const maxCounted = 10_000

func (l *Ledger) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "accounts", Read: func(ctx context.Context) (any, error) { return l.store.countAccounts(ctx, maxCounted) }},
		{Key: "openHolds", Read: func(ctx context.Context) (any, error) { return l.store.countOpenHolds(ctx, maxCounted) }},
	}
}

// Credit adds an amount to an account, which it opens if necessary. Refuses with
// ledger/currency_not_found, ledger/invalid_amount and ledger/ref_conflict.
func (l *Ledger) Credit(ctx context.Context, e Entry) (Transaction, error) {
	out, err := l.do(ctx, credit(e))
	return out.rows[0], err
}

func credit(e Entry) *operation {
	return &operation{kind: KindCredit, ref: e.Ref, payee: e.UserID, currency: e.Currency, amount: e.Amount, memo: e.Memo, related: e.RelatedRef}
}

// Debit takes an amount from an account, at most what is available. Refuses with
// ledger/insufficient_funds, ledger/account_not_found, ledger/currency_not_found,
// ledger/invalid_amount and ledger/ref_conflict.
func (l *Ledger) Debit(ctx context.Context, e Entry) (Transaction, error) {
	out, err := l.do(ctx, debit(e))
	return out.rows[0], err
}

func debit(e Entry) *operation {
	return &operation{kind: KindDebit, ref: e.Ref, payer: e.UserID, currency: e.Currency, amount: e.Amount, memo: e.Memo, related: e.RelatedRef}
}

// StaffCredit is [Ledger.Credit] by an administrator: audit records who did it, in the same
// transaction.
func (l *Ledger) StaffCredit(ctx context.Context, e Entry) (Transaction, error) {
	return l.recorded(ctx, credit(e), "ledger/credited")
}

// StaffDebit is [Ledger.Debit] by an administrator: audit records who did it, in the same
// transaction.
func (l *Ledger) StaffDebit(ctx context.Context, e Entry) (Transaction, error) {
	return l.recorded(ctx, debit(e), "ledger/debited")
}

func (l *Ledger) recorded(ctx context.Context, op *operation, action string) (Transaction, error) {
	if err := op.check(l.currencies); err != nil {
		return Transaction{}, err
	}
	event, err := l.audit.Prepare(ctx, audit.Event{
		Action:  action,
		Subject: audit.Target{Type: "user", ID: op.user()},
		Detail:  moved{op.currency, op.amount, op.ref},
	})
	if err != nil {
		return Transaction{}, err
	}
	op.event = &event
	out, err := l.do(ctx, op)
	return out.rows[0], err
}

// moved is the detail of an audit event.
type moved struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
	Ref      string `json:"ref"`
}

// Find returns the transaction under a ref; ok is false when there is none.
func (l *Ledger) Find(ctx context.Context, ref string) (t Transaction, ok bool, err error) {
	t, _, ok, err = l.store.known(ctx, ref)
	return t, ok, err
}

// Circulation returns the sum of the balances of each currency in use. It reads every account, so
// it is for reports. The sums are floats because they have no bound; up to 2^53 they are exact.
func (l *Ledger) Circulation(ctx context.Context) (map[string]float64, error) {
	return l.store.circulation(ctx)
}

// Transfer moves an available amount from one account to another, which it opens if necessary; both
// halves or none. Refuses as [Ledger.Debit] does.
func (l *Ledger) Transfer(ctx context.Context, e TransferEntry) (Transfer, error) {
	op := operation{kind: KindTransferOut, ref: e.Ref, payer: e.From, payee: e.To, currency: e.Currency, amount: e.Amount, memo: e.Memo}
	out, err := l.do(ctx, &op)
	return Transfer{Out: out.rows[0], In: out.rows[1], Replayed: out.replayed}, err
}

// Hold reserves an available amount; the balance stays. Refuses as [Ledger.Debit] does.
func (l *Ledger) Hold(ctx context.Context, e Entry) (Hold, error) {
	op := operation{kind: KindHold, ref: e.Ref, payer: e.UserID, currency: e.Currency, amount: e.Amount, memo: e.Memo, related: e.RelatedRef}
	out, err := l.do(ctx, &op)
	return out.hold, err
}

// Capture spends an open hold, or spends a part of it and releases the rest. Refuses with
// ledger/hold_not_found, ledger/hold_not_open and ledger/invalid_amount.
func (l *Ledger) Capture(ctx context.Context, ref string, o CaptureOptions) (Hold, error) {
	op := operation{kind: KindCapture, ref: ref, amount: o.Amount, memo: o.Memo}
	out, err := l.do(ctx, &op)
	return out.hold, err
}

// Release makes the amount of an open hold available again. Refuses with ledger/hold_not_found and
// ledger/hold_not_open.
func (l *Ledger) Release(ctx context.Context, ref string) (Hold, error) {
	op := operation{kind: KindRelease, ref: ref}
	out, err := l.do(ctx, &op)
	return out.hold, err
}

// do runs an operation in the caller's transaction or, outside of one, in one that it shares with
// concurrent callers.
func (l *Ledger) do(ctx context.Context, op *operation) (outcome, error) {
	if err := op.check(l.currencies); err != nil {
		return outcome{}, err
	}
	if !l.db.InTransaction(ctx) {
		return l.queue.Do(ctx, op)
	}
	c := &call{Op: op}
	if err := l.apply(ctx, []*call{c}); err != nil {
		return outcome{}, err
	}
	return c.Out, c.Err
}

// Balance returns the balance of an account. Refuses with ledger/account_not_found and
// ledger/currency_not_found.
func (l *Ledger) Balance(ctx context.Context, userID, currency string) (Balance, error) {
	key := AccountKey{userID, currency}
	if err := l.check(key); err != nil {
		return Balance{}, err
	}
	account, err := l.store.account(ctx, key)
	if err != nil {
		return Balance{}, err
	}
	if account == nil {
		return Balance{}, ErrAccountNotFound
	}
	return account.balance(), nil
}

// Balances returns many accounts by one query, in the order of the keys; an account that was never
// opened has zeros. More than [MaxBalances] keys are refused with kit/invalid_request.
func (l *Ledger) Balances(ctx context.Context, keys ...AccountKey) ([]Balance, error) {
	if len(keys) > MaxBalances {
		return nil, capability.ErrInvalidRequest.Saying("At most %d accounts at once.", MaxBalances)
	}
	for _, key := range keys {
		if err := l.check(key); err != nil {
			return nil, err
		}
	}
	accounts, err := l.store.many(ctx, keys)
	if err != nil {
		return nil, err
	}
	opened := make(map[AccountKey]Balance, len(accounts))
	for _, a := range accounts {
		opened[a.key()] = a.balance()
	}
	balances := make([]Balance, len(keys))
	for i, key := range keys {
		balances[i] = opened[key]
		balances[i].Currency = key.Currency
	}
	return balances, nil
}

// ListTransactions lists an account's history, newest first. Refuses with
// ledger/account_not_found and ledger/currency_not_found.
func (l *Ledger) ListTransactions(ctx context.Context, userID, currency string, page capability.Page) (capability.Items[Transaction], error) {
	page = page.Bounded()
	var none capability.Items[Transaction]
	key := AccountKey{userID, currency}
	if err := l.check(key); err != nil {
		return none, err
	}
	below := int64(math.MaxInt64)
	if _, err := page.After(&below); err != nil {
		return none, err
	}
	rows, err := l.store.history(ctx, key, below, page.Limit+1)
	if err != nil {
		return none, err
	}
	if len(rows) == 0 {
		account, err := l.store.account(ctx, key)
		if err != nil {
			return none, err
		}
		if account == nil {
			return none, ErrAccountNotFound
		}
	}
	return capability.Paged(page, rows, func(t Transaction) []any { return []any{t.Sequence} }), nil
}

// ListAccounts lists accounts by user id, then currency. With a user id in the
// filter it refuses with ledger/account_not_found when the user has none.
func (l *Ledger) ListAccounts(ctx context.Context, f AccountFilter, page capability.Page) (capability.Items[Account], error) {
	page = page.Bounded()
	var none capability.Items[Account]
	var after AccountKey
	later, err := page.After(&after.UserID, &after.Currency)
	if err != nil {
		return none, err
	}
	var accounts []Account
	if f.UserID == "" {
		accounts, err = l.store.accounts(ctx, after, page.Limit+1)
	} else {
		if err := capability.CheckUserID(f.UserID); err != nil {
			return none, err
		}
		accounts, err = l.store.accountsOf(ctx, f.UserID, after.Currency, page.Limit+1)
		if err == nil && len(accounts) == 0 && !later {
			err = ErrAccountNotFound
		}
	}
	if err != nil {
		return none, err
	}
	return capability.Paged(page, accounts, func(a Account) []any { return []any{a.UserID, a.Currency} }), nil
}

func (l *Ledger) check(key AccountKey) error {
	if _, ok := l.currencies[key.Currency]; !ok {
		return noCurrency(key.Currency)
	}
	return capability.CheckUserID(key.UserID)
}
