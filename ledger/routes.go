package ledger

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// maxEntry bounds the body of a credit or debit, in bytes: its texts with every character escaped,
// and the names of its members.
const maxEntry = 8 << 10

func (l *Ledger) routes() []capability.Route {
	user, admin := capability.User(), capability.UserWithScope(l.cfg.AdminScope)
	accounts, transactions := capability.ControlPlane("ledger:accounts:read"), capability.ControlPlane("ledger:transactions:read")
	unknown := []*capability.Error{ErrCurrencyNotFound}
	return capability.Mount(l.cfg.BasePath,
		capability.Route{Method: "GET", Path: "/:currency", Guard: user,
			Summary: "The caller's balance.", Refusals: unknown,
			Handle: capability.JSON(200, l.getBalance)},
		capability.Route{Method: "GET", Path: "/:currency/transactions", Guard: user,
			Summary: "The caller's transactions, newest first.", Refusals: unknown,
			Handle: capability.List(l.listTransactions)},
		capability.Route{Method: "POST", Path: "/:currency/credit", Guard: admin,
			Summary: "Credit a user's account.", MaxBody: maxEntry,
			Refusals: []*capability.Error{ErrCurrencyNotFound, ErrInvalidAmount, ErrRefConflict},
			Handle:   capability.JSON(201, l.postCredit)},
		capability.Route{Method: "POST", Path: "/:currency/debit", Guard: admin,
			Summary: "Debit a user's account.", MaxBody: maxEntry,
			Refusals: []*capability.Error{ErrCurrencyNotFound, ErrInvalidAmount, ErrRefConflict, ErrAccountNotFound, ErrInsufficientFunds},
			Handle:   capability.JSON(201, l.postDebit)},
		capability.Route{Method: "GET", Path: "/admin/accounts", Guard: accounts,
			Summary: "List all accounts.",
			Handle:  capability.List(l.adminAccounts)},
		capability.Route{Method: "GET", Path: "/admin/accounts/:userId", Guard: accounts,
			Summary: "List one user's accounts.", Refusals: []*capability.Error{ErrAccountNotFound},
			Handle: capability.List(l.adminAccountsOfUser)},
		capability.Route{Method: "GET", Path: "/admin/accounts/:userId/:currency/transactions", Guard: transactions,
			Summary: "List one account's transactions, newest first.", Refusals: []*capability.Error{ErrCurrencyNotFound, ErrAccountNotFound},
			Handle: capability.List(l.adminTransactions)},
	)
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
	items, err := l.ListTransactions(c.Context(), c.Caller.UserID, c.Param("currency"), page)
	if errors.Is(err, ErrAccountNotFound) {
		return capability.Items[Transaction]{}, nil
	}
	return items, err
}

// entryBody is the request body of credit and debit.
type entryBody struct {
	UserID string `json:"userId"`
	Amount int64  `json:"amount"`
	Ref    string `json:"ref"`
	Memo   string `json:"memo,omitempty"`
	// RelatedRef names another transaction.
	RelatedRef string `json:"relatedRef,omitempty"`
}

func (b entryBody) entry(c *capability.Call) Entry {
	return Entry{UserID: b.UserID, Currency: c.Param("currency"), Amount: b.Amount, Ref: b.Ref, Memo: b.Memo, RelatedRef: b.RelatedRef}
}

func (l *Ledger) postCredit(c *capability.Call, body entryBody) (Transaction, error) {
	return l.StaffCredit(c.Context(), body.entry(c))
}

func (l *Ledger) postDebit(c *capability.Call, body entryBody) (Transaction, error) {
	return l.StaffDebit(c.Context(), body.entry(c))
}

func (l *Ledger) adminAccounts(c *capability.Call, page capability.Page) (capability.Items[Account], error) {
	return l.ListAccounts(c.Context(), AccountFilter{}, page)
}

func (l *Ledger) adminAccountsOfUser(c *capability.Call, page capability.Page) (capability.Items[Account], error) {
	return l.ListAccounts(c.Context(), AccountFilter{UserID: c.Param("userId")}, page)
}

func (l *Ledger) adminTransactions(c *capability.Call, page capability.Page) (capability.Items[Transaction], error) {
	return l.ListTransactions(c.Context(), c.Param("userId"), c.Param("currency"), page)
}
