package ledger

import (
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// Bounds of a caller's texts, in bytes.
const (
	maxRef     = 200
	maxRelated = maxRef + len(suffixCapture)
	maxMemo    = 500
)

// The suffixes that make refs of further rows from a caller's ref.
const (
	suffixIn      = "#in"
	suffixCapture = "#capture"
	suffixRelease = "#release"
)

// operation is one call on its way to the database.
type operation struct {
	// kind is that of the transaction under ref: credit, debit, transfer_out or
	// hold. For a capture or release ref is the hold's.
	kind Kind
	ref  string
	// payer must have amount available; payee gets it.
	payer, payee  string
	currency      string
	amount        int64 // of a capture, 0 is all of the hold
	memo, related string
	// event goes on the audit trail if the operation succeeds; nil for none.
	event *audit.Pending
}

// outcome is what an operation did: now or, when replayed, the first time.
type outcome struct {
	rows     [2]Transaction // the second only for a transfer
	hold     Hold           // of a hold, capture or release
	replayed bool
}

// settles reports whether the operation ends a hold.
func (op *operation) settles() bool { return op.kind == KindCapture || op.kind == KindRelease }

// accounts returns the keys of the accounts that the operation moves money between, in order.
func (op *operation) accounts() []AccountKey {
	keys := make([]AccountKey, 0, 2)
	for _, user := range [...]string{min(op.payer, op.payee), max(op.payer, op.payee)} {
		if user != "" {
			keys = append(keys, AccountKey{user, op.currency})
		}
	}
	return keys
}

// user returns the owner of the account that the transaction under ref belongs to.
func (op *operation) user() string {
	if op.payer != "" {
		return op.payer
	}
	return op.payee
}

// check refuses an operation whose arguments are out of bounds.
func (op *operation) check(currencies map[string]Currency) error {
	if !op.settles() {
		if _, ok := currencies[op.currency]; !ok {
			return noCurrency(op.currency)
		}
		if err := op.checkUsers(); err != nil {
			return err
		}
	}
	if err := capability.CheckText("ref", op.ref, 1, maxRef); err != nil {
		return err
	}
	if strings.Contains(op.ref, "#") {
		return capability.ErrInvalidRequest.Saying("ref may not contain #.")
	}
	if err := capability.CheckText("relatedRef", op.related, 0, maxRelated); err != nil {
		return err
	}
	if err := capability.CheckText("memo", op.memo, 0, maxMemo); err != nil {
		return err
	}
	all := op.settles() && op.amount == 0
	if !all && (op.amount < 1 || op.amount > MaxAmount) {
		return ErrInvalidAmount
	}
	return nil
}

func (op *operation) checkUsers() error {
	if op.kind == KindTransferOut {
		if op.payer == op.payee {
			return capability.ErrInvalidRequest.Saying("from and to must differ.")
		}
		if err := capability.CheckUserID(op.payee); err != nil {
			return err
		}
		return capability.CheckUserID(op.payer)
	}
	return capability.CheckUserID(op.user())
}

// judge returns the refusal of a new operation by the state of its accounts, which are nil if never
// opened, or nil.
func (op *operation) judge(payer, payee *Account) error {
	if op.payer != "" {
		if payer == nil {
			return ErrAccountNotFound
		}
		if payer.Available < op.amount {
			return ErrInsufficientFunds.With(Shortfall{Available: payer.Available, Required: op.amount})
		}
	}
	if payee != nil && payee.Balance > MaxAmount-op.amount {
		return ErrInvalidAmount.Saying("The amount would take the balance past %d.", int64(MaxAmount))
	}
	return nil
}

// replay decides an operation whose ref is taken: it returns the first outcome if the facts are the
// same, and a refusal otherwise. A memo that was erased is no fact any more. in is the second half if
// the first is a transfer.
func (op *operation) replay(first, in Transaction) (outcome, error) {
	same := first.Kind == op.kind && first.UserID == op.user() && first.Currency == op.currency &&
		first.Amount == op.amount && (first.Memo == op.memo || first.MemoErased)
	if op.kind == KindTransferOut {
		same = same && in.UserID == op.payee
	} else {
		same = same && first.RelatedRef == op.related
	}
	if !same {
		return outcome{}, ErrRefConflict
	}
	first.Replayed, in.Replayed = true, true
	out := outcome{rows: [2]Transaction{first, in}, replayed: true}
	if op.kind == KindHold {
		out.hold = opened(first)
	}
	return out, nil
}

// post moves the money of an accepted operation between its accounts in memory and returns the
// transactions.
func (op *operation) post(payer, payee *Account, now time.Time) (out outcome) {
	balance, held := op.kind.moves(op.amount)
	switch op.kind {
	case KindCredit:
		payee.move(balance, held)
		out.rows[0] = op.row(payee, op.ref, op.kind, op.amount, op.related, now)
	case KindTransferOut:
		payer.move(balance, held)
		payee.move(op.amount, 0)
		out.rows[0] = op.row(payer, op.ref, op.kind, op.amount, op.ref+suffixIn, now)
		out.rows[1] = op.row(payee, op.ref+suffixIn, KindTransferIn, op.amount, op.ref, now)
	default:
		payer.move(balance, held)
		out.rows[0] = op.row(payer, op.ref, op.kind, op.amount, op.related, now)
	}
	if op.kind == KindHold {
		out.hold = opened(out.rows[0])
	}
	return out
}

func (op *operation) row(after *Account, ref string, kind Kind, amount int64, related string, now time.Time) Transaction {
	return Transaction{
		Ref: ref, UserID: after.UserID, Currency: after.Currency, Sequence: after.Sequence, Kind: kind, Amount: amount,
		BalanceAfter: after.Balance, HeldAfter: after.Held, RelatedRef: related, Memo: op.memo,
		CreatedAt: capability.Time{Time: now},
	}
}

// opened returns the hold that a hold transaction opened.
func opened(t Transaction) Hold {
	return Hold{Ref: t.Ref, UserID: t.UserID, Currency: t.Currency, Amount: t.Amount, Status: HoldOpen,
		CreatedAt: t.CreatedAt, Replayed: t.Replayed}
}

// judgeHold returns why a hold cannot be settled; hold is nil when there is none.
func (op *operation) judgeHold(hold *Hold) error {
	switch {
	case hold == nil:
		return ErrHoldNotFound
	case hold.Status != HoldOpen:
		return ErrHoldNotOpen
	case op.amount > hold.Amount:
		return ErrInvalidAmount.Saying("The hold is of %d.", hold.Amount)
	}
	return nil
}

// settle ends a hold that judgeHold accepted, on its account in memory, and returns the
// transactions: a capture of a part is a capture and a release.
func (op *operation) settle(hold *Hold, account *Account, now time.Time) (out outcome) {
	hold.Status, hold.SettledAt = HoldReleased, capability.Time{Time: now}
	next := 0
	if op.kind == KindCapture {
		hold.Status, hold.Captured = HoldCaptured, op.amount
		if op.amount == 0 {
			hold.Captured = hold.Amount
		}
		account.move(KindCapture.moves(hold.Captured))
		out.rows[next] = op.row(account, op.ref+suffixCapture, KindCapture, hold.Captured, op.ref, now)
		next++
	}
	if rest := hold.Amount - hold.Captured; rest > 0 {
		account.move(KindRelease.moves(rest))
		out.rows[next] = op.row(account, op.ref+suffixRelease, KindRelease, rest, op.ref, now)
		out.rows[next].Memo = "" // a memo is on what was spent
	}
	out.hold = *hold
	return out
}

// move changes an account in memory.
func (a *Account) move(balance, held int64) {
	a.Balance += balance
	a.Held += held
	a.Available = a.Balance - a.Held
	a.Sequence++
}
