package payments

import (
	"context"
	"errors"
	"log/slog"

	"github.com/kitbackend/kit/audit"
)

// sweepBinding is the job that removes what is old and writes down what lapsed.
const sweepBinding = "PAYMENTS_SWEEP"

// maxLapsed bounds how many batches of each kind one pass of lapse takes.
const maxLapsed = 100

// lapse writes down what ended by time alone and tells the hooks of it. Reads
// are right without it. What cannot be written keeps nothing else from it; the
// error is for the job, which tries again.
func (p *Payments) lapse(ctx context.Context) error {
	var failed []error
	for _, railID := range sorted(p.rails) {
		failed = append(failed, p.lapsePurchases(ctx, p.rails[railID]))
	}
	return errors.Join(append(failed, p.lapseGrants(ctx))...)
}

func (p *Payments) lapsePurchases(ctx context.Context, rail *rail) (failed error) {
	last := &row{}
	for range maxLapsed {
		due, err := p.store.due(ctx, rail.ID, At(p.host.Now()), last, batchSize)
		if err != nil {
			return err
		}
		for _, last = range due {
			if _, err := p.projectAgain(ctx, rail, last.transactionID, sweepBinding); err != nil {
				failed = err
				p.unwritten(ctx, last.id, err)
			}
		}
		if len(due) < batchSize {
			break
		}
	}
	return failed
}

// unwritten logs that what changed could not be written down.
func (p *Payments) unwritten(ctx context.Context, id string, err error) {
	if ctx.Err() == nil { // otherwise the caller has gone
		p.host.Log.WarnContext(ctx, "payments: a change could not be written", slog.String("id", shorten(id)), slog.Any("error", err))
	}
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
func (p *Payments) lapseGrants(ctx context.Context) (failed error) {
	var last grantRow
	for range maxLapsed {
		list, err := p.store.lapsedGrants(ctx, At(p.host.Now()), last, batchSize)
		if err != nil {
			return err
		}
		for _, last = range list {
			if err := p.host.DB.InTx(ctx, func(ctx context.Context) error { return p.lapseGrant(ctx, last) }); err != nil {
				failed = err
				p.unwritten(ctx, last.id, err)
			}
		}
		if len(list) < batchSize {
			break
		}
	}
	return failed
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
