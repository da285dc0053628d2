package ledger

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/capability"
)

// lifePage is how many rows an export or an erasure handles at once.
const lifePage = capability.MaxLimit

// export emits the accounts of a user, also those in currencies that are no longer configured, and
// the history of each.
func (l *Ledger) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	for after := ""; ; {
		accounts, err := l.store.accountsOf(ctx, person.ID, after, lifePage)
		if err != nil {
			return err
		}
		for _, account := range accounts {
			if err := emit("account", account); err != nil {
				return err
			}
			if err := l.exportHistory(ctx, account, emit); err != nil {
				return err
			}
			after = account.Currency
		}
		if len(accounts) < lifePage {
			return nil
		}
	}
}

func (l *Ledger) exportHistory(ctx context.Context, account Account, emit capability.Emit) error {
	for below := account.Sequence + 1; below > 1; {
		rows, err := l.store.history(ctx, account.key(), below, lifePage)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, t := range rows {
			if err := emit("transaction", t); err != nil {
				return err
			}
		}
		below = rows[len(rows)-1].Sequence
	}
	return nil
}

// erase releases the open holds of a user and empties the memos of the history.
// The rows stay: without them the sums would not add up.
func (l *Ledger) erase(ctx context.Context, person capability.Person) (capability.Erasure, error) {
	var done capability.Erasure
	for {
		refs, err := l.store.openHolds(ctx, person.ID, lifePage)
		if err != nil {
			return done, err
		}
		for _, ref := range refs {
			if _, err := l.Release(ctx, ref); err != nil && !errors.Is(err, ErrHoldNotOpen) {
				return done, err
			}
			done.Removed++
		}
		if len(refs) < lifePage {
			break
		}
	}
	for {
		n, err := l.store.emptyMemos(ctx, person.ID, lifePage)
		if err != nil {
			return done, err
		}
		done.Removed += n
		if n < lifePage {
			break
		}
	}
	done.Kept = []capability.Kept{{What: "accounts and transactions", Why: "the ledger is append-only: the user id stays as a pseudonym"}}
	return done, nil
}
