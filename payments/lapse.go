package payments

import (
	"context"

	"github.com/kitbackend/kit/audit"
)

// sweepBinding is the job that removes what is old and writes down what lapsed.
const sweepBinding = "PAYMENTS_SWEEP"

// maxLapsed bounds how many batches of each kind one pass of lapse takes.
const maxLapsed = 100

// lapse writes down what ended by time alone and tells the hooks of it. Reads
// are right without it.
func (p *Payments) lapse(ctx context.Context) error {
	for _, railID := range sorted(p.rails) {
		if err := p.lapsePurchases(ctx, p.rails[railID]); err != nil {
			return err
		}
	}
	return p.lapseGrants(ctx)
}

func (p *Payments) lapsePurchases(ctx context.Context, rail *rail) error {
	for range maxLapsed {
		due, err := p.store.due(ctx, rail.ID, At(p.host.Now()), batchSize)
		if err != nil {
			return err
		}
		for _, r := range due {
			if _, err := p.projectAgain(ctx, rail, r.transactionID, sweepBinding); err != nil {
				return err
			}
		}
		if len(due) < batchSize {
			return nil
		}
	}
	return nil
}

// projectAgain projects a purchase without anything new from its rail.
func (p *Payments) projectAgain(ctx context.Context, rail *rail, transactionID, job string) (*change, error) {
	c := &change{rail: rail, actor: audit.Actor{Kind: audit.ActorJob, ID: job}}
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		c.begin(At(p.host.DB.Now(ctx)))
		if err := p.lockRow(ctx, c, transactionID); err != nil {
			return err
		}
		return p.settleRows(ctx, c)
	})
	return c, err
}

// lapseGrants ends the grants whose time is over.
func (p *Payments) lapseGrants(ctx context.Context) error {
	for range maxLapsed {
		list, err := p.store.lapsedGrants(ctx, At(p.host.Now()), batchSize)
		if err != nil {
			return err
		}
		for _, g := range list {
			if err := p.host.DB.InTx(ctx, func(ctx context.Context) error { return p.lapseGrant(ctx, g) }); err != nil {
				return err
			}
		}
		if len(list) < batchSize {
			return nil
		}
	}
	return nil
}

func (p *Payments) lapseGrant(ctx context.Context, g grantRow) error {
	ended, err := p.store.endGrant(ctx, g.id)
	if err != nil || !ended {
		return err
	}
	if err := p.touch(ctx, g.subject); err != nil {
		return err
	}
	rest, err := p.resolve(ctx, g.subject, nil)
	if err != nil {
		return err
	}
	return p.fire(ctx, g.subject, map[string]bool{g.entitlement: true}, nil, rest.active(At(p.host.DB.Now(ctx))))
}
