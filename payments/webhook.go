package payments

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/proof"
)

// Outcome is the result of a webhook.
type Outcome string

// The outcomes. A refused webhook is authentic, recorded and acknowledged, because a retry would be
// of no use; a failed one is tried again.
const (
	OutcomeApplied   Outcome = "applied"
	OutcomeDuplicate Outcome = "duplicate"
	OutcomeIgnored   Outcome = "ignored"
	OutcomeRefused   Outcome = "refused"
	OutcomeFailed    Outcome = "failed"
)

// Received is the response to a webhook.
type Received struct {
	Received bool    `json:"received"`
	Outcome  Outcome `json:"outcome"`
	Code     string  `json:"code,omitempty"`
}

// Bounds of a webhook.
const (
	maxWebhook    = 1 << 20
	maxDeliveryID = 200
	maxType       = 100
	// webhookBudget is how long a rail may be called while its webhook waits: a refund at
	// card_processor takes six requests, one after the other. Senders wait 10 seconds and more;
	// merchant_a, which waits 5, delivers a slower one again, as a duplicate.
	webhookBudget = 8 * time.Second
	// callBudget is how long it may be called while a user waits.
	callBudget = 15 * time.Second
	// failedRetry is how long a failed delivery waits until it is tried again.
	failedRetry = 10 * time.Minute
)

type deliveryKey struct{}

// verifier checks the proof of a rail's webhook and passes the delivery to the handler in the
// request's context.
func (p *Payments) verifier(rail *rail) capability.Verifier {
	return func(r *http.Request, body []byte) error {
		access, err := p.access(r.Context(), rail)
		if err != nil {
			return err
		}
		d, err := rail.Verify(r.Context(), access, r.Header, body)
		switch {
		case err == nil:
		case errors.Is(err, ErrInvalidSignature):
			return err
		default:
			return p.unavailable(r.Context(), rail, err)
		}
		if len(d.ID) == 0 || len(d.ID) > maxDeliveryID || capability.CheckText("id", d.ID, 1, maxDeliveryID) != nil {
			return ErrInvalidSignature.Because(proof.ErrNoEvent)
		}
		if d.Type = d.Type[:min(len(d.Type), maxType)]; capability.CheckText("type", d.Type, 0, maxType) != nil {
			d.Type = ""
		}
		*r = *r.WithContext(context.WithValue(r.Context(), deliveryKey{}, d))
		return nil
	}
}

// receive returns the handler of a rail's webhook, which responds once its effects are durable.
func (p *Payments) receive(rail *rail) func(*capability.Call) error {
	return func(c *capability.Call) error {
		d, ok := c.Request().Context().Value(deliveryKey{}).(Delivery)
		if !ok {
			return capability.ErrInternal
		}
		received, err := p.deliver(c.Context(), rail, d, webhookBudget)
		if err != nil {
			return err
		}
		c.Writer().Header().Set("Content-Type", "application/json")
		_, err = c.Writer().Write(content(received))
		return err
	}
}

// deliver applies a verified delivery once. It returns an error only if a retry can succeed; then
// the delivery is in the inbox as failed.
func (p *Payments) deliver(ctx context.Context, rail *rail, d Delivery, budget time.Duration) (Received, error) {
	if outcome, known, err := p.store.outcomeOf(ctx, rail.ID, d.ID); err != nil {
		return Received{}, err
	} else if known && outcome != OutcomeFailed {
		return Received{true, OutcomeDuplicate, ""}, nil
	}
	// A sender that disconnects does not stop the processing.
	ctx = context.WithoutCancel(ctx)
	if d.Environment != "" && d.Environment != p.environment {
		return p.refuse(ctx, rail, d, ErrEnvironmentMismatch)
	}
	observations, err := p.expand(ctx, rail, d, budget)
	var refusal *capability.Error
	switch {
	case errors.As(err, &refusal) && !IsTransient(err) && refusal.Status < http.StatusInternalServerError:
		return p.refuse(ctx, rail, d, refusal)
	case err != nil:
		if kept := p.keep(ctx, rail, d, ErrRailUnavailable); kept != nil {
			return Received{}, errors.Join(err, kept)
		}
		return Received{}, p.unavailable(ctx, rail, err)
	}
	done := delivered{rail: rail.ID, Delivery: d, outcome: OutcomeApplied}
	if len(observations) == 0 {
		done.outcome = OutcomeIgnored
	}
	change := &change{rail: rail, actor: audit.Actor{Kind: audit.ActorWebhook, ID: string(rail.ID)}}
	err = p.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := p.store.record(ctx, done); err != nil || len(observations) == 0 {
			return err
		}
		return p.apply(ctx, change, observations)
	})
	if err != nil {
		why := capability.AsError(err)
		if why.Status < http.StatusInternalServerError { // a hook's refusal: a retry may succeed
			err = capability.ErrUnavailable.Because(err)
		}
		return Received{}, errors.Join(err, p.keep(ctx, rail, d, why))
	}
	p.afterApply(ctx, change)
	return Received{true, done.outcome, ""}, nil
}

// keep stores a failed delivery in the inbox.
func (p *Payments) keep(ctx context.Context, rail *rail, d Delivery, why *capability.Error) error {
	return p.store.record(ctx, delivered{rail: rail.ID, Delivery: d, outcome: OutcomeFailed, code: why.Code, retryAt: At(p.host.Now().Add(failedRetry))})
}

// expand lets the rail read a delivery, and bounds how long.
func (p *Payments) expand(ctx context.Context, rail *rail, d Delivery, budget time.Duration) ([]Observation, error) {
	access, err := p.access(ctx, rail)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	observations, err := rail.Expand(ctx, access, d)
	if err != nil {
		return nil, err
	}
	return p.checkObservations(rail, observations)
}

// refuse records and acknowledges an authentic delivery that is not for this deployment.
func (p *Payments) refuse(ctx context.Context, rail *rail, d Delivery, refusal *capability.Error) (Received, error) {
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := p.store.record(ctx, delivered{rail: rail.ID, Delivery: d, outcome: OutcomeRefused, code: refusal.Code}); err != nil {
			return err
		}
		return p.audit.Record(ctx, audit.Event{Action: "payments/webhook_refused", Outcome: audit.OutcomeRefused, Code: refusal.Code,
			Actor: audit.Actor{Kind: audit.ActorWebhook, ID: string(rail.ID)}, Detail: map[string]any{"rail": rail.ID, "delivery": shorten(d.ID)}})
	})
	return Received{true, OutcomeRefused, refusal.Code}, err
}

// unavailable returns the refusal for an error of a rail.
func (p *Payments) unavailable(ctx context.Context, rail *rail, err error) error {
	var refusal *capability.Error
	if errors.As(err, &refusal) && !IsTransient(err) {
		return err
	}
	if !IsTransient(err) {
		p.host.Log.ErrorContext(ctx, "payments: a rail failed", slog.String("rail", string(rail.ID)), slog.Any("error", err))
	}
	return ErrRailUnavailable.Because(err)
}
