package multiplayer

import (
	"fmt"
	"strings"
)

// EffectKind is the ledger operation of an effect.
type EffectKind string

// The kinds of effect.
const (
	EffectHold     EffectKind = "hold"
	EffectCapture  EffectKind = "capture"
	EffectRelease  EffectKind = "release"
	EffectCredit   EffectKind = "credit"
	EffectDebit    EffectKind = "debit"
	EffectTransfer EffectKind = "transfer"
)

// Effect is one ledger operation that a model declares. The session settles it in the transaction
// of the transition, once by its ref.
type Effect struct {
	Kind EffectKind `json:"kind"`
	// UserID is the owner of the account; of a transfer, the payer.
	UserID string `json:"userId,omitempty"`
	// To is the payee of a transfer.
	To       string `json:"to,omitempty"`
	Currency string `json:"currency,omitempty"`
	// Amount is in minor units.
	Amount int64 `json:"amount,omitempty"`
	// All makes a capture without an amount spend the whole hold. Without All an amount of zero is
	// ledger/invalid_amount.
	All bool `json:"all,omitempty"`
	// Ref begins with the session's id, see [Context.Ref]. A capture and a release have the ref of
	// their hold.
	Ref string `json:"ref"`
	// Memo is free text of at most 500 bytes, not used by a release.
	Memo string `json:"memo,omitempty"`
}

// Hold reserves a stake. If the player cannot cover it, the action is refused and nothing is
// stored. A hold that is neither captured nor released by the end of the session is released then.
func Hold(userID, currency string, amount int64, ref string) Effect {
	return Effect{Kind: EffectHold, UserID: userID, Currency: currency, Amount: amount, Ref: ref}
}

// Capture spends the whole of a hold of this session.
func Capture(ref string) Effect { return Effect{Kind: EffectCapture, Ref: ref, All: true} }

// CapturePart spends a part of a hold of this session and releases the rest. The
// amount is at least 1.
func CapturePart(ref string, amount int64) Effect {
	return Effect{Kind: EffectCapture, Ref: ref, Amount: amount}
}

// Release releases a hold of this session.
func Release(ref string) Effect { return Effect{Kind: EffectRelease, Ref: ref} }

// Credit pays a player.
func Credit(userID, currency string, amount int64, ref string) Effect {
	return Effect{Kind: EffectCredit, UserID: userID, Currency: currency, Amount: amount, Ref: ref}
}

// Debit takes an amount from a player, who must cover it.
func Debit(userID, currency string, amount int64, ref string) Effect {
	return Effect{Kind: EffectDebit, UserID: userID, Currency: currency, Amount: amount, Ref: ref}
}

// Transfer moves money from one player, who must cover it, to another.
func Transfer(from, to, currency string, amount int64, ref string) Effect {
	return Effect{Kind: EffectTransfer, UserID: from, To: to, Currency: currency, Amount: amount, Ref: ref}
}

// settles reports whether the effect ends a hold.
func (e Effect) settles() bool { return e.Kind == EffectCapture || e.Kind == EffectRelease }

// takes reports whether the effect takes or reserves money of its user.
func (e Effect) takes() bool {
	return e.Kind == EffectHold || e.Kind == EffectDebit || e.Kind == EffectTransfer
}

// maxEffects bounds the effects of one transition.
const maxEffects = 4 * MaxSeats

// checkEffects checks that every ref belongs to the session: so sessions never collide in the
// ledger, and none settles a hold of another.
func checkEffects(sessionID string, effects []Effect) error {
	if len(effects) > maxEffects {
		return fmt.Errorf("declares more than %d effects at once", maxEffects)
	}
	for _, e := range effects {
		switch e.Kind {
		case EffectHold, EffectCapture, EffectRelease, EffectCredit, EffectDebit, EffectTransfer:
		default:
			return fmt.Errorf("declares an effect of unknown kind")
		}
		if !strings.HasPrefix(e.Ref, sessionID+"/") {
			return fmt.Errorf("declares a %s whose ref does not begin with the session's id and a slash", e.Kind)
		}
	}
	return nil
}
