package payments

import (
	"context"
	"fmt"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// pseudonymPrefix begins the subject ids that replace erased subjects. No other subject id begins
// with it.
const pseudonymPrefix = "erased:"

// erased reports whether a subject is the pseudonym of an erased one.
func (s Subject) erased() bool { return strings.HasPrefix(s.ID, pseudonymPrefix) }

// exported is a purchase with its charges.
type exported struct {
	Purchase Purchase         `json:"purchase"`
	Charges  []exportedCharge `json:"charges"`
}

type exportedCharge struct {
	ID          string           `json:"id"`
	AmountMinor int64            `json:"amountMinor"`
	Currency    string           `json:"currency"`
	Settled     bool             `json:"settled"`
	At          *capability.Time `json:"at"`
	Refunds     []Refund         `json:"refunds"`
}

// revocation is an entitlement of a purchase that was taken away by hand, until the purchase is
// repaired.
type revocation struct {
	PurchaseID  string          `json:"purchaseId"`
	Entitlement string          `json:"entitlement"`
	Reason      string          `json:"reason"`
	RevokedAt   capability.Time `json:"revokedAt"`
}

// export emits the records of a user who buys for themselves. Purchases of organizations belong to
// the organizations.
func (p *Payments) export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	subject := Subject{SubjectUser, person.ID}
	if p.cfg.BillingSubject != SubjectUser || p.checkSubject(subject) != nil {
		return nil
	}
	if known, ok, err := p.store.subject(ctx, subject); err != nil {
		return err
	} else if ok {
		if err := emit("billing_account", map[string]any{"accountToken": known.token}); err != nil {
			return err
		}
	}
	for after := ""; ; {
		rows, err := p.store.ofSubject(ctx, subject, after, batchSize)
		if err != nil {
			return err
		}
		for _, r := range rows {
			after = r.id
			if err := p.exportPurchase(ctx, r, emit); err != nil {
				return err
			}
		}
		if len(rows) < batchSize {
			break
		}
	}
	for after := ""; ; {
		grants, err := p.store.allGrants(ctx, subject, after, batchSize)
		if err != nil {
			return err
		}
		for _, g := range grants {
			after = g.id
			if err := emit("entitlement_grant", g.wire()); err != nil {
				return err
			}
		}
		if len(grants) < batchSize {
			break
		}
	}
	for after := (mask{}); ; {
		list, err := p.store.revocations(ctx, subject, after, batchSize)
		if err != nil {
			return err
		}
		for _, r := range list {
			after = mask{r.PurchaseID, r.Entitlement}
			if err := emit("entitlement_revocation", r); err != nil {
				return err
			}
		}
		if len(list) < batchSize {
			return nil
		}
	}
}

func (p *Payments) exportPurchase(ctx context.Context, r *row, emit capability.Emit) error {
	list, err := p.store.chargesOf(ctx, r.id)
	if err != nil {
		return err
	}
	record := exported{Purchase: p.wire(r, At(p.host.Now()), false), Charges: []exportedCharge{}}
	for _, c := range list {
		out := exportedCharge{ID: c.id, Refunds: []Refund{}}
		if paid := c.facts.Charge.Value; paid != nil {
			out.AmountMinor, out.Currency, out.Settled, out.At = paid.AmountMinor, paid.Currency, paid.Settled, optional.Time(paid.At)
		}
		for _, key := range sorted(c.facts.Refunds) {
			out.Refunds = append(out.Refunds, *c.facts.Refunds[key].Value)
		}
		record.Charges = append(record.Charges, out)
	}
	return emit("purchase", record)
}

// erase replaces a user by a pseudonym, which keeps the purchases and charges, gets later webhooks,
// and is granted nothing. The result names purchases that still bill; they are canceled first if
// Config.CancelOnErase is set.
func (p *Payments) erase(ctx context.Context, person capability.Person) (erasure capability.Erasure, err error) {
	subject := Subject{SubjectUser, person.ID}
	if p.cfg.BillingSubject != SubjectUser || p.checkSubject(subject) != nil {
		return erasure, nil
	}
	renewing, err := p.store.renewing(ctx, subject)
	if err != nil {
		return erasure, err
	}
	for _, r := range renewing {
		erasure.Kept = append(erasure.Kept, p.stillBills(ctx, r))
	}
	for {
		var moved int64
		err := p.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			moved, err = p.store.pseudonymize(ctx, subject, pseudonymPrefix+id.New(p.host.DB.Now(ctx)), batchSize)
			p.forgetAfter(ctx, subject)
			return err
		})
		if err != nil {
			return erasure, err
		}
		if moved == 0 {
			break
		}
		erasure.Removed += moved
	}
	if err := p.host.PubSub.Publish(ctx, topic, []byte(string(subject.Type)+" "+subject.ID)); err != nil {
		return erasure, err
	}
	if erasure.Removed > 0 {
		erasure.Kept = append(erasure.Kept,
			capability.Kept{What: "purchases and charges", Why: "accounts must add up; they name a pseudonym"},
			capability.Kept{What: "webhook bodies", Why: "they are removed thirty days after they came"})
	}
	return erasure, nil
}

// stillBills returns the entry of an erasure for a subscription of the erased subject.
func (p *Payments) stillBills(ctx context.Context, r *row) capability.Kept {
	what := fmt.Sprintf("subscription %s at %s", shorten(r.transactionID), r.rail)
	rail := p.rails[r.rail]
	if !p.cfg.CancelOnErase || rail == nil || rail.Cancel == nil {
		return capability.Kept{What: what, Why: "it still bills until it is cancelled at the rail"}
	}
	access, err := p.access(ctx, rail)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, p.budget)
		defer cancel()
		err = rail.Cancel(ctx, access, r.ref())
	}
	if err != nil {
		return capability.Kept{What: what, Why: "it still bills: the rail could not be told to cancel it"}
	}
	return capability.Kept{What: what, Why: "it was cancelled and ends with its paid period"}
}
