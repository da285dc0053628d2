package merchantb

import (
	"cmp"
	"encoding/json"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/stamp"
)

type metadata struct {
	Account string `json:"kit_account"`
}

type subscription struct {
	ID                string     `json:"id"`
	Status            string     `json:"status"`
	Amount            int64      `json:"amount"`
	Currency          string     `json:"currency"`
	Interval          string     `json:"recurring_interval"`
	IntervalCount     int64      `json:"recurring_interval_count"`
	CreatedAt         stamp.Time `json:"created_at"`
	ModifiedAt        stamp.Time `json:"modified_at"`
	PeriodStart       stamp.Time `json:"current_period_start"`
	PeriodEnd         stamp.Time `json:"current_period_end"`
	StartedAt         stamp.Time `json:"started_at"`
	EndsAt            stamp.Time `json:"ends_at"`
	EndedAt           stamp.Time `json:"ended_at"`
	PastDueAt         stamp.Time `json:"past_due_at"`
	ResumesAt         stamp.Time `json:"resumes_at"`
	CancelAtPeriodEnd bool       `json:"cancel_at_period_end"`
	PauseAtPeriodEnd  bool       `json:"pause_at_period_end"`
	CustomerID        string     `json:"customer_id"`
	ProductID         string     `json:"product_id"`
	DiscountID        string     `json:"discount_id"`
	Metadata          metadata   `json:"metadata"`
	PendingUpdate     *struct {
		AppliesAt stamp.Time `json:"applies_at"`
		ProductID string     `json:"product_id"`
	} `json:"pending_update"`
}

type order struct {
	ID             string     `json:"id"`
	Status         string     `json:"status"`
	Paid           bool       `json:"paid"`
	Subtotal       int64      `json:"subtotal_amount"`
	Total          int64      `json:"total_amount"`
	Refunded       int64      `json:"refunded_amount"`
	RefundedTax    int64      `json:"refunded_tax_amount"`
	Currency       string     `json:"currency"`
	Reason         string     `json:"billing_reason"`
	CreatedAt      stamp.Time `json:"created_at"`
	ModifiedAt     stamp.Time `json:"modified_at"`
	SubscriptionID string     `json:"subscription_id"`
	CustomerID     string     `json:"customer_id"`
	ProductID      string     `json:"product_id"`
	CheckoutID     string     `json:"checkout_id"`
	Metadata       metadata   `json:"metadata"`
	Items          []struct {
		Proration bool `json:"proration"`
	} `json:"items"`
}

type refund struct {
	ID         string          `json:"id"`
	Status     string          `json:"status"`
	Amount     int64           `json:"amount"`
	Tax        int64           `json:"tax_amount"`
	OrderID    string          `json:"order_id"`
	CreatedAt  stamp.Time      `json:"created_at"`
	ModifiedAt stamp.Time      `json:"modified_at"`
	Dispute    json.RawMessage `json:"dispute"`
}

// dispute is one that the payer's bank decided, of which the store delivers nothing.
type dispute struct {
	ID         string     `json:"id"`
	Amount     int64      `json:"amount"`
	Tax        int64      `json:"tax_amount"`
	OrderID    string     `json:"order_id"`
	CreatedAt  stamp.Time `json:"created_at"`
	ModifiedAt stamp.Time `json:"modified_at"`
}

func (r refund) disputed() bool { return len(r.Dispute) > 0 && string(r.Dispute) != "null" }

type checkout struct {
	ID         string     `json:"id"`
	Status     string     `json:"status"`
	URL        string     `json:"url"`
	CustomerID string     `json:"customer_id"`
	ExpiresAt  stamp.Time `json:"expires_at"`
}

type list[T any] struct {
	Items []T `json:"items"`
}

// lifecycle maps a subscription.
func lifecycle(s subscription) *payments.Lifecycle {
	l := &payments.Lifecycle{
		ProductID: s.ProductID, PurchasedAt: s.StartedAt.Instant(),
		PeriodStart: s.PeriodStart.Instant(), AccessUntil: s.PeriodEnd.Instant(), WillRenew: !s.CancelAtPeriodEnd,
	}
	if s.CancelAtPeriodEnd {
		l.CancelAt = cmp.Or(s.EndsAt.Instant(), l.AccessUntil)
	}
	if s.PendingUpdate != nil {
		l.PendingProductID = s.PendingUpdate.ProductID
	}
	if s.PauseAtPeriodEnd {
		l.PauseAt = l.AccessUntil
	}
	switch s.Status {
	case "trialing":
		l.State, l.PeriodType = payments.StateActive, payments.PeriodTrial
	case "active":
		l.State = payments.StateActive
	case "past_due":
		// The current period is the one that nobody has paid.
		l.State, l.BillingIssueSince, l.AccessUntil = payments.StateGrace, cmp.Or(s.PastDueAt.Instant(), l.PeriodStart), l.PeriodStart
	case "unpaid":
		l.State, l.BillingIssueSince, l.AccessUntil = payments.StateHold, cmp.Or(s.PastDueAt.Instant(), l.PeriodStart), l.PeriodStart
	case "paused":
		l.State, l.ResumeAt, l.PauseAt = payments.StatePaused, s.ResumesAt.Instant(), 0
	case "canceled":
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, s.EndedAt.Instant()
	case "incomplete":
		l.State, l.WillRenew = payments.StatePending, false
	case "incomplete_expired":
		l.State, l.WillRenew, l.EndedAt = payments.StateAbandoned, false, s.EndedAt.Instant()
	default:
		l.State = payments.StateHold // an unknown, future state grants nothing
	}
	return l
}

func fromSubscription(s subscription, said stamp.Time) payments.Observation {
	o := payments.Observation{
		Rail: ID, TransactionID: s.ID, Version: stamp.Version(s.ModifiedAt, said, s.CreatedAt),
		AccountToken: s.Metadata.Account, CustomerID: s.CustomerID, Lifecycle: lifecycle(s),
	}
	o.Price = current(s)
	return o
}

// current returns the price of a subscription, without that of a pending change.
func current(s subscription) *payments.Price {
	return &payments.Price{
		AmountMinor: s.Amount, Currency: money.Currency(s.Currency), Interval: money.Period(s.IntervalCount, s.Interval), Discount: s.DiscountID,
	}
}

func (o order) settled() bool {
	return o.Paid || o.Status == "paid" || o.Status == "refunded" || o.Status == "partially_refunded"
}

// proration reports whether an order is over a change or the usage within a period. One that
// began a period, such as of a subscription that was free, has an item for it.
func (o order) proration() bool {
	if o.Reason == "subscription_meter_cycle" {
		return true
	}
	for _, item := range o.Items {
		if !item.Proration {
			return false
		}
	}
	return o.Reason == "subscription_update"
}

// fromOrder maps an order: a charge of its subscription, or a purchase of its
// own. A draft is nothing yet.
func fromOrder(o order, said stamp.Time) []payments.Observation {
	result := payments.Observation{
		Rail: ID, TransactionID: o.ID, Version: stamp.Version(o.ModifiedAt, said, o.CreatedAt),
		AccountToken: o.Metadata.Account, CustomerID: o.CustomerID,
	}
	if o.settled() {
		// An order over 0 without a discount is a trial.
		result.Charges = []payments.Charge{{
			ID: o.ID, At: o.CreatedAt.Instant(), ProductID: o.ProductID, AmountMinor: o.Total, Currency: money.Currency(o.Currency),
			Settled: true, Trial: o.SubscriptionID != "" && o.Total == 0 && o.Subtotal == 0, Proration: o.proration(),
		}}
	}
	if o.Refunded > 0 || o.Status == "refunded" {
		result.Refunds = []payments.Refund{sum(o)}
	}
	if o.SubscriptionID != "" {
		if len(result.Charges) == 0 {
			return nil
		}
		result.TransactionID = o.SubscriptionID
		return []payments.Observation{result}
	}
	l := &payments.Lifecycle{ProductID: o.ProductID, PurchasedAt: o.CreatedAt.Instant(), State: payments.StateActive}
	switch {
	case o.settled():
	case o.Status == "pending":
		l.State = payments.StatePending
	case o.Status == "void":
		l.State = payments.StateAbandoned
	default:
		return nil
	}
	result.Lifecycle = l
	return []payments.Observation{result}
}

// sum returns one refund with the sum of an order's refunds. The total of an order includes tax, the
// amount of a refund does not.
func sum(o order) payments.Refund {
	amount := o.Refunded + o.RefundedTax
	return payments.Refund{
		ID: "refunds", ChargeID: o.ID, At: o.ModifiedAt.Instant(), AmountMinor: amount,
		Full: o.Status == "refunded" || o.Total > 0 && amount >= o.Total, Reversed: o.Refunded == 0 && o.Status != "refunded",
	}
}

// changed is when an entry that was made at a time changed last.
func changed(made, modified stamp.Time) payments.Instant {
	return cmp.Or(modified.Instant(), made.Instant())
}

// lost maps a dispute that was lost.
func lost(d dispute, o order) payments.Refund {
	return payments.Refund{
		ID: d.ID, ChargeID: o.ID, Version: stamp.Version(d.ModifiedAt, d.CreatedAt), At: changed(d.CreatedAt, d.ModifiedAt),
		AmountMinor: d.Amount + d.Tax, Full: d.Amount+d.Tax >= o.Total, Chargeback: true,
	}
}

// back maps a refund by the current state of its order. A dispute becomes a separate refund with
// Chargeback; ok is false for a refund that has not happened.
func back(r refund, o order, said stamp.Time) (payments.Refund, bool) {
	if !r.disputed() {
		return sum(o), o.settled()
	}
	result := payments.Refund{
		ID: r.ID, ChargeID: o.ID, Version: stamp.Version(r.ModifiedAt, said, r.CreatedAt), At: r.CreatedAt.Instant(),
		AmountMinor: r.Amount + r.Tax, Full: r.Amount+r.Tax >= o.Total, Chargeback: true, Reversed: r.Status == "failed" || r.Status == "canceled",
	}
	return result, r.Status != "pending"
}
