package cardprocessor

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
)

// reference is the id of an object that may have been expanded in its place.
type reference string

// UnmarshalJSON takes an id, an object with an id, or null.
func (r *reference) UnmarshalJSON(raw []byte) error {
	var object struct {
		ID string `json:"id"`
	}
	if len(raw) > 0 && raw[0] == '{' {
		err := json.Unmarshal(raw, &object)
		*r = reference(object.ID)
		return err
	}
	return json.Unmarshal(raw, (*string)(r))
}

type parent struct {
	Details struct {
		Subscription reference `json:"subscription"`
	} `json:"subscription_details"`
}

type price struct {
	ID         string    `json:"id"`
	Product    reference `json:"product"`
	Currency   string    `json:"currency"`
	UnitAmount int64     `json:"unit_amount"`
	Recurring  *struct {
		Interval string `json:"interval"`
		Count    int64  `json:"interval_count"`
	} `json:"recurring"`
}

type subscription struct {
	ID                string            `json:"id"`
	Status            string            `json:"status"`
	Livemode          bool              `json:"livemode"`
	Customer          reference         `json:"customer"`
	Metadata          map[string]string `json:"metadata"`
	StartDate         int64             `json:"start_date"`
	CancelAt          int64             `json:"cancel_at"`
	CancelAtPeriodEnd bool              `json:"cancel_at_period_end"`
	EndedAt           int64             `json:"ended_at"`
	TrialEnd          int64             `json:"trial_end"`
	// PeriodStart and PeriodEnd are here in API versions before 2025-03-31, and on items since.
	PeriodStart     int64 `json:"current_period_start"`
	PeriodEnd       int64 `json:"current_period_end"`
	PauseCollection *struct {
		ResumesAt int64 `json:"resumes_at"`
	} `json:"pause_collection"`
	StatusDetails *struct {
		Paused *struct {
			Subscription *struct {
				Type string `json:"type"`
			} `json:"subscription"`
		} `json:"paused"`
	} `json:"status_details"`
	Items struct {
		Data []item `json:"data"`
	} `json:"items"`
}

type item struct {
	PeriodStart int64 `json:"current_period_start"`
	PeriodEnd   int64 `json:"current_period_end"`
	Quantity    int64 `json:"quantity"`
	Price       price `json:"price"`
}

type invoice struct {
	ID           string    `json:"id"`
	Status       string    `json:"status"`
	AmountPaid   int64     `json:"amount_paid"`
	AmountDue    int64     `json:"amount_due"`
	Subtotal     int64     `json:"subtotal"`
	Reason       string    `json:"billing_reason"`
	Currency     string    `json:"currency"`
	Created      int64     `json:"created"`
	Subscription reference `json:"subscription"`
	Parent       parent    `json:"parent"`
	NextAttempt  int64     `json:"next_payment_attempt"`
	PeriodEnd    int64     `json:"period_end"`
	Transitions  struct {
		PaidAt int64 `json:"paid_at"`
	} `json:"status_transitions"`
	Lines struct {
		Data []struct {
			Quantity int64 `json:"quantity"`
			Period   struct {
				Start int64 `json:"start"`
				End   int64 `json:"end"`
			} `json:"period"`
			Pricing struct {
				Details struct {
					Product reference `json:"product"`
				} `json:"price_details"`
			} `json:"pricing"`
			Parent struct {
				Item *struct {
					Proration bool `json:"proration"`
				} `json:"subscription_item_details"`
			} `json:"parent"`
		} `json:"data"`
	} `json:"lines"`
}

type session struct {
	ID              string            `json:"id"`
	Mode            string            `json:"mode"`
	Status          string            `json:"status"`
	PaymentStatus   string            `json:"payment_status"`
	Livemode        bool              `json:"livemode"`
	Created         int64             `json:"created"`
	AmountTotal     int64             `json:"amount_total"`
	Currency        string            `json:"currency"`
	Customer        reference         `json:"customer"`
	Subscription    reference         `json:"subscription"`
	PaymentIntent   reference         `json:"payment_intent"`
	ClientReference string            `json:"client_reference_id"`
	Metadata        map[string]string `json:"metadata"`
	URL             string            `json:"url"`
	ExpiresAt       int64             `json:"expires_at"`
	LineItems       struct {
		Data []struct {
			Quantity int64 `json:"quantity"`
			Price    price `json:"price"`
		} `json:"data"`
	} `json:"line_items"`
}

type charge struct {
	ID             string `json:"id"`
	Amount         int64  `json:"amount"`
	Currency       string `json:"currency"`
	AmountRefunded int64  `json:"amount_refunded"`
	Refunded       bool   `json:"refunded"`
}

type dispute struct {
	ID           string `json:"id"`
	Status       string `json:"status"`
	Amount       int64  `json:"amount"`
	Created      int64  `json:"created"`
	Transactions []struct {
		Amount int64 `json:"amount"`
	} `json:"balance_transactions"`
}

// total is what was paid by an invoice, or is to be.
func (in invoice) total() int64 {
	if in.Status == "paid" {
		return in.AmountPaid
	}
	return in.AmountDue
}

func seconds(s int64) payments.Instant { return payments.Instant(s * 1000) }

// units is how many of its units the API counts for a minor unit of ISO 4217, and how many minor
// units for one of its own, for currencies in which the two differ.
var units = map[string]struct{ api, minor int64 }{"ISK": {100, 1}, "UGX": {100, 1}, "MGA": {1, 100}}

// minor converts an amount of the API to minor units of ISO 4217.
func minor(amount int64, currency string) int64 {
	if u, ok := units[strings.ToUpper(currency)]; ok {
		return amount / u.api * u.minor
	}
	return amount
}

// apiAmount is the inverse of minor.
func apiAmount(amount int64, currency string) int64 {
	if u, ok := units[strings.ToUpper(currency)]; ok {
		return amount / u.minor * u.api
	}
	return amount
}

// proration reports whether an invoice is over a change within a period. One that
// began a new period, such as a year instead of a month, has a line of its own for
// it.
func (in invoice) proration() bool {
	for _, line := range in.Lines.Data {
		if line.Parent.Item != nil && !line.Parent.Item.Proration {
			return false
		}
	}
	return in.Reason == "subscription_update"
}

// separate reports whether an invoice is over items that were added to a subscription, for no period
// of it.
func (in invoice) separate() bool {
	return in.Reason == "manual" || in.Reason == "automatic_pending_invoice_item_invoice"
}

// charges returns the settled invoices of a subscription. An invoice over 0 without a discount is a
// trial if it began before the trial ended, even if that was early, and so is one for a change of
// plan that cost nothing: neither earns a credit.
func charges(s subscription, invoices []invoice) (list []payments.Charge, paidThrough payments.Instant) {
	for _, in := range invoices {
		if in.Status != "paid" {
			continue
		}
		c := payments.Charge{
			ID: in.ID, At: seconds(in.Transitions.PaidAt), AmountMinor: minor(in.AmountPaid, in.Currency), Currency: money.Currency(in.Currency),
			Settled: true, Proration: in.proration(), Separate: in.separate(),
		}
		if c.At == 0 {
			c.At = seconds(in.Created)
		}
		for _, line := range in.Lines.Data {
			if end := seconds(line.Period.End); end > c.PeriodEnd {
				c.PeriodStart, c.PeriodEnd = seconds(line.Period.Start), end
				c.ProductID, c.Quantity = string(line.Pricing.Details.Product), line.Quantity
			}
		}
		c.Trial = in.Subtotal == 0 && s.TrialEnd > 0 && c.PeriodStart < seconds(s.TrialEnd) ||
			in.Reason == "subscription_update" && in.AmountPaid == 0
		if !c.Separate {
			paidThrough = max(paidThrough, c.PeriodEnd)
		}
		list = append(list, c)
	}
	return list, paidThrough
}

// settled reports whether any charge settled, also one over 0 after a discount.
func settled(list []payments.Charge) bool {
	for _, c := range list {
		if c.Settled && !c.Trial && !c.Separate {
			return true
		}
	}
	return false
}

// lifecycle maps a subscription and its payments.
func lifecycle(s subscription, paid []payments.Charge, paidThrough payments.Instant, now time.Time) *payments.Lifecycle {
	l := &payments.Lifecycle{
		PurchasedAt: seconds(s.StartDate), PeriodStart: seconds(s.PeriodStart), AccessUntil: seconds(s.PeriodEnd),
		CancelAt: seconds(s.CancelAt), WillRenew: !s.CancelAtPeriodEnd && s.CancelAt == 0,
	}
	if len(s.Items.Data) > 0 {
		first := s.Items.Data[0]
		l.ProductID, l.PriceID, l.Quantity = string(first.Price.Product), first.Price.ID, first.Quantity
		if first.PeriodEnd > 0 {
			l.PeriodStart, l.AccessUntil = seconds(first.PeriodStart), seconds(first.PeriodEnd)
		}
	}
	switch s.Status {
	case "trialing":
		l.State, l.PeriodType = payments.StateActive, payments.PeriodTrial
	case "active":
		l.State = payments.StateActive
		if s.PauseCollection != nil {
			collectionPaused(l, s.PauseCollection.ResumesAt, paidThrough, now)
		}
	case "past_due":
		// The processor has begun the next period already, which nobody has paid.
		l.State, l.BillingIssueSince, l.AccessUntil = payments.StateGrace, l.PeriodStart, cmp.Or(paidThrough, l.PeriodStart)
	case "unpaid":
		l.State, l.BillingIssueSince, l.AccessUntil = payments.StateHold, l.PeriodStart, paidThrough
	case "paused":
		l.State, l.AccessUntil = pausedState(s), paidThrough
	case "incomplete":
		l.State, l.WillRenew = payments.StatePending, false
	case "incomplete_expired":
		l.State, l.WillRenew, l.EndedAt = payments.StateAbandoned, false, seconds(s.EndedAt)
	case "canceled":
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, seconds(s.EndedAt)
		if !settled(paid) {
			l.State = payments.StateAbandoned
		}
	default:
		l.State = payments.StateHold // a state of tomorrow grants nothing
	}
	return l
}

// collectionPaused applies a pause of collection, which the status does not show: the paid period
// still runs to its end.
func collectionPaused(l *payments.Lifecycle, resumesAt int64, paidThrough payments.Instant, now time.Time) {
	l.ResumeAt = seconds(resumesAt)
	if paidThrough > payments.At(now) {
		l.PauseAt, l.AccessUntil = paidThrough, paidThrough
		return
	}
	l.State, l.AccessUntil = payments.StatePaused, paidThrough
}

// pausedState distinguishes requested pauses from failed payments.
func pausedState(s subscription) payments.State {
	if d := s.StatusDetails; d != nil && d.Paused != nil && d.Paused.Subscription != nil {
		switch d.Paused.Subscription.Type {
		case "pause_requested", "system":
			return payments.StatePaused
		default:
			return payments.StateHold
		}
	}
	// Older responses name no reason; the only one then was a trial without a payment method.
	return payments.StateHold
}

// purchase maps a session that pays once.
func purchase(s session) *payments.Lifecycle {
	l := &payments.Lifecycle{State: payments.StatePending, PurchasedAt: seconds(s.Created)}
	if paidSession(s) {
		l.State = payments.StateActive
	}
	if len(s.LineItems.Data) > 0 {
		first := s.LineItems.Data[0]
		l.ProductID, l.PriceID, l.Quantity = string(first.Price.Product), first.Price.ID, first.Quantity
	}
	return l
}

func paidSession(s session) bool {
	return s.PaymentStatus == "paid" || s.PaymentStatus == "no_payment_required"
}

// sessionCharges returns the charge of a session that pays once. A session over 0 has no payment,
// so its own id identifies the charge.
func sessionCharges(s session) []payments.Charge {
	if !paidSession(s) {
		return nil
	}
	c := payments.Charge{
		ID: string(s.PaymentIntent), At: seconds(s.Created), AmountMinor: minor(s.AmountTotal, s.Currency), Currency: money.Currency(s.Currency), Settled: true,
	}
	if c.ID == "" {
		c.ID = s.ID
	}
	if len(s.LineItems.Data) > 0 {
		c.ProductID, c.Quantity = string(s.LineItems.Data[0].Price.Product), s.LineItems.Data[0].Quantity
	}
	return []payments.Charge{c}
}

// refunds returns the refunds of a charge: their sum, and each dispute by its effect on the
// balance. all is the amount of what the charge paid for, which is more than the charge itself where
// an invoice was paid by several.
func refunds(chargeID string, all int64, c charge, disputes []dispute) []payments.Refund {
	sum := payments.Refund{
		ID: "refunds", ChargeID: chargeID, AmountMinor: minor(c.AmountRefunded, c.Currency),
		Full: c.Refunded && c.AmountRefunded >= all, Reversed: c.AmountRefunded == 0,
	}
	list := []payments.Refund{sum}
	if c.Amount < all {
		list[0].ID += ":" + c.ID
		// Earlier versions stored the sum of any of the charges under the plain id; it no longer counts.
		list = append(list, payments.Refund{ID: sum.ID, ChargeID: chargeID, Reversed: true})
	}
	for _, d := range disputes {
		r := payments.Refund{
			ID: d.ID, ChargeID: chargeID, At: seconds(d.Created), AmountMinor: minor(d.Amount, c.Currency),
			Full: d.Amount >= all, Chargeback: true, Reversed: !withdrawn(d),
		}
		list = append(list, r)
	}
	return list
}

// withdrawn reports whether a dispute holds the money back at the moment.
// Inquiries, whose status starts with warning, do not.
func withdrawn(d dispute) bool {
	switch d.Status {
	case "lost":
		return true
	case "needs_response", "under_review":
		var net int64
		for _, t := range d.Transactions {
			net += t.Amount
		}
		return net < 0
	default:
		return false
	}
}

// interval writes a price's period as in ISO 8601.
func (p price) interval() string {
	if p.Recurring == nil {
		return ""
	}
	return money.Period(p.Recurring.Count, p.Recurring.Interval)
}
