package ledger

import "github.com/kitbackend/kit/capability"

// MaxAmount is the largest amount and the largest balance: 2^53-1, the largest
// integer that every JSON client keeps exactly.
const MaxAmount = 1<<53 - 1

// Entry is one movement on one account.
type Entry struct {
	// UserID owns the account: 1 to 128 bytes.
	UserID string
	// Currency is the code of a configured currency.
	Currency string
	// Amount is in minor units, 1 to [MaxAmount].
	Amount int64
	// Ref is unique over the whole ledger: 1 to 200 bytes without "#".
	Ref string
	// Memo is free text of at most 500 bytes. The account's owner reads it.
	Memo string
	// RelatedRef names another transaction, such as the wager of a payout; at
	// most 208 bytes. It is stored as given, not looked up.
	RelatedRef string
}

// TransferEntry is one movement from an account to another of the same
// currency, with the bounds of [Entry]. From and To differ.
type TransferEntry struct {
	From, To string
	Currency string
	Amount   int64
	Ref      string
	Memo     string
}

// CaptureOptions are the options of [Ledger.Capture].
type CaptureOptions struct {
	// Amount is in minor units, at most that of the hold; the rest is released.
	// Zero means all of it.
	Amount int64
	// Memo is free text of at most 500 bytes.
	Memo string
}

// Kind says what a transaction did to its account.
type Kind string

// The kinds of transaction; the package documentation says what each one moves.
const (
	KindCredit      Kind = "credit"
	KindDebit       Kind = "debit"
	KindTransferOut Kind = "transfer_out"
	KindTransferIn  Kind = "transfer_in"
	KindHold        Kind = "hold"
	KindCapture     Kind = "capture"
	KindRelease     Kind = "release"
)

// moves returns what an amount of this kind adds to balance and to held money.
func (k Kind) moves(amount int64) (balance, held int64) {
	switch k {
	case KindCredit, KindTransferIn:
		return amount, 0
	case KindDebit, KindTransferOut:
		return -amount, 0
	case KindHold:
		return 0, amount
	case KindCapture:
		return -amount, -amount
	default:
		return 0, -amount
	}
}

// Transaction is one change of one account. It never changes afterwards.
type Transaction struct {
	Ref      string `json:"ref"`
	UserID   string `json:"userId"`
	Currency string `json:"currency"`
	// Sequence counts the transactions of the account, from 1 without gaps.
	Sequence int64 `json:"sequence"`
	Kind     Kind  `json:"kind"`
	Amount   int64 `json:"amount"`
	// BalanceAfter and HeldAfter are the account's right after this change.
	BalanceAfter int64 `json:"balanceAfter"`
	HeldAfter    int64 `json:"heldAfter"`
	// RelatedRef names the other half of a transfer, the hold of a capture or
	// release, or what the caller named.
	RelatedRef string          `json:"relatedRef,omitempty"`
	Memo       string          `json:"memo,omitempty"`
	CreatedAt  capability.Time `json:"createdAt"`
	// Replayed reports that the ref was used before and nothing was done now.
	Replayed bool `json:"-"`
	// MemoErased reports that there was a memo until its user's data was erased.
	MemoErased bool `json:"-"`
}

// Transfer is the two halves of a transfer.
type Transfer struct {
	Out, In Transaction
	// Replayed reports that the ref was used before and nothing was done now.
	Replayed bool
}

// HoldStatus is the state of a hold.
type HoldStatus string

// The states of a hold. Only an open one changes, and a hold never expires.
const (
	HoldOpen     HoldStatus = "open"
	HoldCaptured HoldStatus = "captured"
	HoldReleased HoldStatus = "released"
)

// Hold is money reserved on an account.
type Hold struct {
	Ref, UserID, Currency string
	Amount                int64
	// Captured is the amount spent of it, 0 unless captured.
	Captured  int64
	Status    HoldStatus
	CreatedAt capability.Time
	// SettledAt is when it was captured or released, zero while it is open.
	SettledAt capability.Time
	// Replayed reports that the ref was used before and nothing was done now;
	// the hold is then shown as it was first returned: open.
	Replayed bool
}

// settledMillis is the stored form of SettledAt, nil while the hold is open.
func (h *Hold) settledMillis() *int64 {
	if h.Status == HoldOpen {
		return nil
	}
	return new(h.SettledAt.UnixMilli())
}

// AccountKey names an account.
type AccountKey struct{ UserID, Currency string }

// Account is the account of one user in one currency, in minor units.
type Account struct {
	UserID   string `json:"userId"`
	Currency string `json:"currency"`
	Balance  int64  `json:"balance"`
	Held     int64  `json:"held"`
	// Available is Balance less Held.
	Available int64 `json:"available"`
	// Sequence is that of the account's newest transaction.
	Sequence int64           `json:"sequence"`
	OpenedAt capability.Time `json:"openedAt"`
}

func (a Account) key() AccountKey { return AccountKey{a.UserID, a.Currency} }

func (a Account) balance() Balance {
	return Balance{Currency: a.Currency, Balance: a.Balance, Held: a.Held, Available: a.Available}
}

// AccountFilter selects accounts; zero fields select all.
type AccountFilter struct{ UserID string }

// Balance is the balance of an account, in minor units.
type Balance struct {
	Currency string `json:"currency"`
	Balance  int64  `json:"balance"`
	// Held is the part that open holds reserve.
	Held int64 `json:"held"`
	// Available is Balance less Held.
	Available int64 `json:"available"`
}

// Choices lists the values, for documents.
func (Kind) Choices() []string {
	return []string{string(KindCredit), string(KindDebit), string(KindTransferOut), string(KindTransferIn), string(KindHold), string(KindCapture), string(KindRelease)}
}

// Choices lists the values, for documents.
func (HoldStatus) Choices() []string {
	return []string{string(HoldOpen), string(HoldCaptured), string(HoldReleased)}
}
