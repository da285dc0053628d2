package payments

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/kitbackend/kit/ledger"
)

// clawbackRetry is how long a failed clawback waits until it is tried again.
const clawbackRetry = 6 * time.Hour

// settle updates the charges of a purchase, and the ledger, to its facts: in this transaction, once
// for each settled charge.
func (p *Payments) settle(ctx context.Context, r *row) error {
	for _, chargeID := range sorted(r.facts.Charges) {
		facts := r.facts.Charges[chargeID]
		c := r.charges[chargeID]
		if c == nil {
			c = &charge{id: chargeID, facts: facts}
			ok, err := p.store.claim(ctx, r, c)
			if err != nil {
				return err
			}
			if !ok {
				p.host.Log.WarnContext(ctx, "payments: a charge belongs to two purchases; it stays with the first")
				continue
			}
			r.charges[chargeID] = c
		}
		before := *c
		c.facts = facts
		if err := p.move(ctx, r, c); err != nil {
			return err
		}
		if string(content(before.facts)) == string(content(c.facts)) && before.moves == c.moves && before.owed == c.owed && before.retryAt == c.retryAt {
			continue
		}
		if err := p.store.saveCharge(ctx, r, c); err != nil {
			return err
		}
	}
	return nil
}

// move credits the worth of a charge, and takes back the refunded part.
func (p *Payments) move(ctx context.Context, r *row, c *charge) error {
	if c.credited > 0 && c.userID == "" {
		return nil // its account's owner was erased
	}
	if c.credited == 0 {
		amount, credit := p.worth(ctx, r, c)
		if amount == 0 {
			return nil
		}
		c.currency, c.userID, c.credited = credit.Currency, r.subject.ID, amount
		if gone, chargeback := c.facts.gone(); gone < whole && !chargeback {
			if err := p.credit(ctx, r, c, amount); err != nil {
				return err
			}
		} else {
			c.credited = 0 // it went back before it was ever credited
			return nil
		}
	}
	gone, chargeback := c.facts.gone()
	if chargeback {
		gone = whole
	}
	should := c.credited / whole * gone
	should += c.credited % whole * gone / whole
	if should >= c.clawedBack {
		return p.clawBack(ctx, r, c, should-c.clawedBack)
	}
	c.owed, c.retryAt = 0, 0 // the refund was reversed
	err := p.credit(ctx, r, c, c.clawedBack-should)
	switch {
	case errors.Is(err, ledger.ErrCurrencyNotFound):
		c.retryAt = p.later(ctx)
	case err != nil:
		return err
	default:
		c.clawedBack = should
	}
	return nil
}

// later is when a movement that the ledger cannot make now is tried again.
func (p *Payments) later(ctx context.Context) Instant {
	return At(p.host.DB.Now(ctx).Add(clawbackRetry))
}

// worth returns the credit of a charge and its amount for the quantity of each product.
func (p *Payments) worth(ctx context.Context, r *row, c *charge) (int64, *Credit) {
	paid := c.facts.Charge.Value
	if p.ledger == nil || paid == nil || !paid.Settled || paid.Trial || paid.Proration || r.subject.Type != SubjectUser || r.ownership == OwnershipFamilyShared ||
		r.subject.erased() {
		return 0, nil
	}
	var amount int64
	var credit *Credit
	quantity := max(paid.Quantity, 1)
	for _, product := range p.paidFor(r, paid) {
		switch {
		case product.Credit == nil:
			continue
		case credit != nil && credit.Currency != product.Credit.Currency:
			p.host.Log.ErrorContext(ctx, "payments: a charge is for products with credits of two currencies, of which one is not credited",
				slog.String("rail", string(r.rail)), slog.String("product", product.Key))
			continue
		case quantity > (ledger.MaxAmount-amount)/product.Credit.Amount:
			p.host.Log.ErrorContext(ctx, "payments: a charge is worth more than the ledger takes at once and is not credited",
				slog.String("rail", string(r.rail)), slog.String("product", product.Key), slog.Int64("quantity", quantity))
			return 0, nil
		}
		amount, credit = amount+product.Credit.Amount*quantity, product.Credit
	}
	return amount, credit
}

// paidFor returns the products that a charge paid for.
func (p *Payments) paidFor(r *row, paid *Charge) []Product {
	if paid.Separate {
		named, ok := p.catalog.find(r.rail, paid.ProductID, "", "")
		if !ok || named.Kind == KindSubscription {
			return nil
		}
		return []Product{named}
	}
	list := []Product{p.catalog.byKey[r.productKey]}
	if paid.ProductID != "" && paid.ProductID != r.storeProduct {
		if named, ok := p.catalog.find(r.rail, paid.ProductID, "", ""); ok {
			list[0] = named
		}
	}
	for _, id := range paid.Also {
		if id == r.storeProduct {
			list = append(list, p.catalog.byKey[r.productKey])
		} else if named, ok := p.catalog.find(r.rail, id, "", ""); ok {
			list = append(list, named)
		}
	}
	return list
}

// credit refuses with ledger/currency_not_found if the ledger or the currency of an earlier credit
// is no longer composed.
func (p *Payments) credit(ctx context.Context, r *row, c *charge, amount int64) error {
	if p.ledger == nil {
		return ledger.ErrCurrencyNotFound
	}
	_, err := p.ledger.Credit(ctx, ledger.Entry{UserID: c.userID, Currency: c.currency, Amount: amount, Ref: moveRef(r.rail, c), Memo: r.productKey})
	if err != nil {
		return fmt.Errorf("payments: a charge could not be credited: %w", err)
	}
	c.moves++
	return nil
}

// clawBack debits as much of an amount as the balance covers; the rest is owed and tried again.
func (p *Payments) clawBack(ctx context.Context, r *row, c *charge, amount int64) error {
	c.owed, c.retryAt = 0, 0
	if amount == 0 {
		return nil
	}
	available, err := p.available(ctx, c)
	if err != nil {
		return err
	}
	if take := min(available, amount); take > 0 {
		_, err := p.ledger.Debit(ctx, ledger.Entry{UserID: c.userID, Currency: c.currency, Amount: take, Ref: moveRef(r.rail, c), Memo: r.productKey})
		switch {
		case err == nil:
			c.moves++
			c.clawedBack += take
			amount -= take
		case !errors.Is(err, ledger.ErrInsufficientFunds):
			return fmt.Errorf("payments: a refund could not be taken back: %w", err)
		}
	}
	if c.owed = amount; amount > 0 {
		c.retryAt = p.later(ctx)
	}
	return nil
}

// available returns how much of a charge's credit can be taken back now: nothing if the ledger or
// the currency is no longer composed, so that a refund ends access all the same.
func (p *Payments) available(ctx context.Context, c *charge) (int64, error) {
	if p.ledger == nil {
		return 0, nil
	}
	balance, err := p.ledger.Balance(ctx, c.userID, c.currency)
	if errors.Is(err, ledger.ErrAccountNotFound) || errors.Is(err, ledger.ErrCurrencyNotFound) {
		return 0, nil
	}
	return balance.Available, err
}

// moveRef returns the ledger ref of a movement of a charge: the first is its credit. The name has
// no colon and the rail no dot, so that no two charges share a ref, nor one with those of earlier
// versions, whose later movements ended in a colon and a number.
func moveRef(rail RailID, c *charge) string {
	name := c.id
	if len(name) > 120 || strings.ContainsAny(name, "#:") {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:])
	}
	if c.moves > 0 {
		return fmt.Sprintf("payments:%s.%d:%s", rail, c.moves, name)
	}
	return "payments:" + string(rail) + ":" + name
}
