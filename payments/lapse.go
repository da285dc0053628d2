package payments

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// sweepBinding is the job that removes old rows and writes purchases and grants that have lapsed.
const sweepBinding = "PAYMENTS_SWEEP"

const (
	// maxLapsed bounds how many batches of each kind one pass of lapse takes, and lapseAsks how
	// long it calls each rail.
	maxLapsed = 100
	lapseAsks = 30 * time.Second
	// maxUnasked is how long the end of a purchase waits for a rail that is unavailable.
	maxUnasked = 72 * time.Hour
)

// lapse writes the purchases and grants that ended by time alone and fires the hooks. Reads are
// correct without it. It skips a row that cannot be written, and returns an error so that the job
// is retried.
func (p *Payments) lapse(ctx context.Context) error {
	var failed []error
	for _, railID := range sorted(p.rails) {
		failed = append(failed, p.lapseOf(ctx, p.rails[railID]))
	}
	return errors.Join(append(failed, p.lapseGrants(ctx))...)
}

func (p *Payments) lapseOf(ctx context.Context, rail *rail) error {
	asking, cancel := context.WithTimeout(ctx, lapseAsks)
	defer cancel()
	return p.lapsePurchases(ctx, &lapsing{p: p, rail: rail, job: sweepBinding, over: func() bool { return asking.Err() != nil }})
}

// lapsing writes the changes of a rail's purchases that time alone has made.
type lapsing struct {
	p    *Payments
	rail *rail
	job  string
	// over reports whether the time to call the rail is over. After several failures in a row it is
	// not called either.
	over     func() bool
	failures int
}

// write writes the change of a purchase. If the purchase was to be renewed it asks the rail first,
// because a purchase that is written as ended is not checked again, and the webhook of its renewal
// may have been lost. The change is nil for a purchase that is left to the next pass.
func (l *lapsing) write(ctx context.Context, r *row) (*change, error) {
	if l.rail.Fetch == nil || !r.p.WillRenew || r.p.Then.mayRenew() || l.p.host.Now().Sub(r.p.ChangesAt.Time()) >= maxUnasked {
		return l.p.projectAgain(ctx, l.rail, r.transactionID, l.job)
	}
	if l.failures >= maxFailures || l.over() {
		return nil, nil
	}
	observations, err := l.p.ask(ctx, l.rail, func(ctx context.Context, a Access) ([]Observation, error) { return l.rail.Fetch(ctx, a, r.ref()) })
	var refusal *capability.Error
	switch {
	case errors.As(err, &refusal) && (refusal.Status < http.StatusInternalServerError || errors.Is(err, ErrRailNotConfigured)):
		return l.p.projectAgain(ctx, l.rail, r.transactionID, l.job)
	case err != nil:
		l.failures++
		return nil, err
	}
	l.failures = 0
	c := &change{rail: l.rail, checked: true, actor: audit.Actor{Kind: audit.ActorJob, ID: l.job}}
	if err := l.p.host.DB.InTx(ctx, func(ctx context.Context) error { return l.p.apply(ctx, c, observations) }); err != nil {
		return nil, err
	}
	l.p.afterApply(ctx, c)
	if c.rows[r.transactionID] == nil { // the rail speaks of another purchase
		return l.p.projectAgain(ctx, l.rail, r.transactionID, l.job)
	}
	return c, nil
}

func (p *Payments) lapsePurchases(ctx context.Context, l *lapsing) (failed error) {
	last := &row{}
	for range maxLapsed {
		due, err := p.store.due(ctx, l.rail.ID, At(p.host.Now()), last, batchSize)
		if err != nil {
			return err
		}
		for _, last = range due {
			if _, err := l.write(ctx, last); err != nil {
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

// unwritten logs a purchase that could not be written.
func (p *Payments) unwritten(ctx context.Context, id string, err error) {
	if ctx.Err() == nil { // otherwise the caller has gone
		p.host.Log.WarnContext(ctx, "payments: a purchase is left for later", slog.String("id", shorten(id)), slog.Any("error", err))
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

// lapseGrants ends expired grants.
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
