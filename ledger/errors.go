package ledger

import "github.com/kitbackend/kit/capability"

// The refusals of the ledger. A ref, user id or memo that breaks its bounds,
// and a transfer to oneself, are kit/invalid_request.
var (
	// ErrInsufficientFunds carries a [Shortfall] in its details.
	ErrInsufficientFunds = capability.NewError(409, "ledger/insufficient_funds", "The available balance does not cover the amount.")
	// ErrInvalidAmount also refuses a credit or transfer that would take a
	// balance past [MaxAmount], and a capture of more than its hold.
	ErrInvalidAmount    = capability.NewError(400, "ledger/invalid_amount", "An amount is a whole number of minor units from 1 to 9007199254740991.")
	ErrAccountNotFound  = capability.NewError(404, "ledger/account_not_found", "This account was never opened.")
	ErrCurrencyNotFound = capability.NewError(404, "ledger/currency_not_found", "There is no such currency.")
	ErrHoldNotFound     = capability.NewError(404, "ledger/hold_not_found", "There is no hold under this ref.")
	ErrHoldNotOpen      = capability.NewError(409, "ledger/hold_not_open", "The hold was already captured or released.")
	ErrRefConflict      = capability.NewError(409, "ledger/ref_conflict", "This ref was used before, for something else.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrInsufficientFunds, ErrInvalidAmount, ErrAccountNotFound, ErrCurrencyNotFound,
		ErrHoldNotFound, ErrHoldNotOpen, ErrRefConflict,
	}
}

// Shortfall is the details of [ErrInsufficientFunds]: how much was missing.
type Shortfall struct {
	Available int64 `json:"available"`
	Required  int64 `json:"required"`
}

// noCurrency returns the refusal of an unknown currency.
func noCurrency(code string) error {
	return ErrCurrencyNotFound.Saying("There is no currency %.64q.", code)
}
