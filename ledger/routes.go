package ledger

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

func (l *Ledger) routes() []capability.Route {
	user, admin := capability.User(), capability.UserWithScope(l.cfg.AdminScope)
	accounts, transactions := capability.ControlPlane("ledger:accounts:read"), capability.ControlPlane("ledger:transactions:read")
	return capability.Mount(l.cfg.BasePath,
		capability.Route{Method: "GET", Path: "/:currency", Guard: user,
			Summary: "The caller's balance.",
			Handle:  capability.JSON(200, l.getBalance)},
		capability.Route{Method: "GET", Path: "/:currency/transactions", Guard: user,
			Summary: "The caller's transactions, newest first.",
			Handle:  capability.List(l.listTransactions)},
		capability.Route{Method: "POST", Path: "/:currency/credit", Guard: admin,
			Summary: "Credit a user's account.",
			Handle:  capability.JSON(201, l.postCredit)},
		capability.Route{Method: "POST", Path: "/:currency/debit", Guard: admin,
			Summary: "Debit a user's account.",
			Handle:  capability.JSON(201, l.postDebit)},
		capability.Route{Method: "GET", Path: "/admin/accounts", Guard: accounts,
			Summary: "List all accounts.",
			Handle:  capability.List(l.adminAccounts)},
		capability.Route{Method: "GET", Path: "/admin/accounts/:userId", Guard: accounts,
			Summary: "List one user's accounts.",
			Handle:  capability.List(l.adminAccountsOfUser)},
		capability.Route{Method: "GET", Path: "/admin/accounts/:userId/:currency/transactions", Guard: transactions,
			Summary: "List one account's transactions, newest first.",
			Handle:  capability.List(l.adminTransactions)},
	)
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
	}
}

// getBalance returns zeros for an account that was never opened.
func (l *Ledger) getBalance(c *capability.Call, _ capability.None) (Balance, error) {
	balance, err := l.Balance(c.Context(), c.Caller.UserID, c.Param("currency"))
	if errors.Is(err, ErrAccountNotFound) {
		return Balance{Currency: c.Param("currency")}, nil
	}
	return balance, err
}

// listTransactions returns none for an account that was never opened.
func (l *Ledger) listTransactions(c *capability.Call, page capability.Page) (capability.Items[Transaction], error) {
	items, err := l.Transactions(c.Context(), c.Caller.UserID, c.Param("currency"), page)
	if errors.Is(err, ErrAccountNotFound) {
		return capability.Items[Transaction]{}, nil
	}
	return items, err
}

// entryBody is what credit and debit are sent.
type entryBody struct {
	UserID string `json:"userId"`
	Amount int64  `json:"amount"`
	Ref    string `json:"ref"`
	Memo   string `json:"memo,omitempty"`
}

func (l *Ledger) postCredit(c *capability.Call, body entryBody) (Transaction, error) {
	return l.post(c, body, l.Credit, "ledger/credited")
}

func (l *Ledger) postDebit(c *capability.Call, body entryBody) (Transaction, error) {
	return l.post(c, body, l.Debit, "ledger/debited")
}

// post moves money for an administrator and records who did, both or neither.
func (l *Ledger) post(c *capability.Call, body entryBody, move func(context.Context, Entry) (Transaction, error), action string) (t Transaction, err error) {
	entry := Entry{UserID: body.UserID, Currency: c.Param("currency"), Amount: body.Amount, Ref: body.Ref, Memo: body.Memo}
	err = l.db.InTx(c.Context(), func(ctx context.Context) error {
		if t, err = move(ctx, entry); err != nil || t.Replayed {
			return err
		}
		return l.audit.Record(ctx, audit.Event{
			Action:  action,
			Subject: audit.Target{Type: "user", ID: t.UserID},
			Detail:  moved{t.Currency, t.Amount, t.Ref},
		})
	})
	return t, err
}

// moved is the detail of an audit event.
type moved struct {
	Currency string `json:"currency"`
	Amount   int64  `json:"amount"`
	Ref      string `json:"ref"`
}

func (l *Ledger) adminAccounts(c *capability.Call, page capability.Page) (capability.Items[Account], error) {
	return l.Accounts(c.Context(), AccountFilter{}, page)
}

func (l *Ledger) adminAccountsOfUser(c *capability.Call, page capability.Page) (capability.Items[Account], error) {
	return l.Accounts(c.Context(), AccountFilter{UserID: c.Param("userId")}, page)
}

func (l *Ledger) adminTransactions(c *capability.Call, page capability.Page) (capability.Items[Transaction], error) {
	return l.Transactions(c.Context(), c.Param("userId"), c.Param("currency"), page)
}

// maxCirculation keeps the health value under 2 KB.
const maxCirculation = 32

func (l *Ledger) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "accounts", Read: func(ctx context.Context) (any, error) { return l.store.countAccounts(ctx) }},
		{Key: "openHolds", Read: func(ctx context.Context) (any, error) { return l.store.countOpenHolds(ctx) }},
		{Key: "circulation", Read: func(ctx context.Context) (any, error) { return l.circulation(ctx) }},
	}
}

// circulation returns the sum of all balances in each of the first currencies.
func (l *Ledger) circulation(ctx context.Context) (map[string]float64, error) {
	sums, err := l.store.circulation(ctx)
	if err != nil {
		return nil, err
	}
	shown := make(map[string]float64)
	for _, c := range l.cfg.Currencies[:min(len(l.cfg.Currencies), maxCirculation)] {
		shown[c.Code] = sums[c.Code]
	}
	return shown, nil
}
