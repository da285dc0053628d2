package payments

import "context"

// How long rows are kept, in milliseconds. Purchases and charges are never removed.
const (
	day         = 24 * 60 * 60 * 1000
	deliveryAge = 30 * day
	checkoutAge = 30 * day
	runAge      = 90 * day
)

const (
	sweepBatch   = 500
	sweepBatches = 200
)

// Sweep removes webhooks and checkouts older than thirty days and reconcile runs
// older than ninety, in bounded batches. The job PAYMENTS_SWEEP calls it hourly.
func (p *Payments) Sweep(ctx context.Context) error {
	for range sweepBatches {
		var removed int64
		err := p.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
			removed, err = p.store.sweep(ctx, At(p.host.DB.Now(ctx)), sweepBatch)
			return err
		})
		if err != nil || removed == 0 {
			return err
		}
	}
	return nil
}
