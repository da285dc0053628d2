package merchanta

import (
	"cmp"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/stamp"
)

type period struct {
	Start stamp.Time `json:"starts_at"`
	End   stamp.Time `json:"ends_at"`
}

type cycle struct {
	Interval  string `json:"interval"`
	Frequency int64  `json:"frequency"`
}

type price struct {
	ID           string `json:"id"`
	ProductID    string `json:"product_id"`
	BillingCycle *cycle `json:"billing_cycle"`
	UnitPrice    struct {
		Amount   string `json:"amount"`
		Currency string `json:"currency_code"`
	} `json:"unit_price"`
}

type item struct {
	Quantity int64 `json:"quantity"`
	Price    price `json:"price"`
}

type custom struct {
	Account string `json:"kit_account"`
}

type subscription struct {
	ID         string     `json:"id"`
	Status     string     `json:"status"`
	CustomerID string     `json:"customer_id"`
	Currency   string     `json:"currency_code"`
	CreatedAt  stamp.Time `json:"created_at"`
	UpdatedAt  stamp.Time `json:"updated_at"`
	StartedAt  stamp.Time `json:"started_at"`
	NextBilled stamp.Time `json:"next_billed_at"`
	CanceledAt stamp.Time `json:"canceled_at"`
	PausedAt   stamp.Time `json:"paused_at"`
	Period     *period    `json:"current_billing_period"`
	Cycle      cycle      `json:"billing_cycle"`
	Scheduled  *struct {
		Action      string     `json:"action"`
		EffectiveAt stamp.Time `json:"effective_at"`
		ResumeAt    stamp.Time `json:"resume_at"`
	} `json:"scheduled_change"`
	Items    []item  `json:"items"`
	Custom   *custom `json:"custom_data"`
	Discount *struct {
		ID string `json:"id"`
	} `json:"discount"`
	Next *struct {
		Period  period `json:"billing_period"`
		Details struct {
			Totals totals `json:"totals"`
		} `json:"details"`
	} `json:"next_transaction"`
}

type totals struct {
	Subtotal   string `json:"subtotal"`
	Total      string `json:"total"`
	GrandTotal string `json:"grand_total"`
	Currency   string `json:"currency_code"`
}

type transaction struct {
	ID             string     `json:"id"`
	Status         string     `json:"status"`
	Origin         string     `json:"origin"`
	SubscriptionID string     `json:"subscription_id"`
	CustomerID     string     `json:"customer_id"`
	Currency       string     `json:"currency_code"`
	CreatedAt      stamp.Time `json:"created_at"`
	UpdatedAt      stamp.Time `json:"updated_at"`
	BilledAt       stamp.Time `json:"billed_at"`
	Period         *period    `json:"billing_period"`
	Items          []item     `json:"items"`
	Custom         *custom    `json:"custom_data"`
	Details        struct {
		Totals totals `json:"totals"`
		Lines  []struct {
			Proration *struct{} `json:"proration"`
		} `json:"line_items"`
	} `json:"details"`
	Checkout *struct {
		URL string `json:"url"`
	} `json:"checkout"`
}

type adjustment struct {
	ID             string     `json:"id"`
	Action         string     `json:"action"`
	Type           string     `json:"type"`
	Status         string     `json:"status"`
	TransactionID  string     `json:"transaction_id"`
	SubscriptionID string     `json:"subscription_id"`
	CreatedAt      stamp.Time `json:"created_at"`
	UpdatedAt      stamp.Time `json:"updated_at"`
	Totals         totals     `json:"totals"`
}

func (t transaction) settled() bool { return t.Status == "paid" || t.Status == "completed" }

// recurring reports whether a transaction is for a subscription, which may not
// have been made yet.
func (t transaction) recurring() bool {
	for _, i := range t.Items {
		if i.Price.BillingCycle != nil {
			return true
		}
	}
	return t.SubscriptionID != ""
}

// proration reports whether a transaction is over a change within a period. One
// that was billed in full has a line without a rate.
func (t transaction) proration() bool {
	for _, line := range t.Details.Lines {
		if line.Proration == nil {
			return false
		}
	}
	return t.Origin == "subscription_update"
}

func account(c *custom) string {
	if c == nil {
		return ""
	}
	return c.Account
}

func amount(text string) int64 {
	n, err := money.FromText(text)
	if err != nil {
		return 0
	}
	return n
}

// charge returns the charge of a settled transaction. One over 0 without a discount is a trial.
func charge(t transaction) payments.Charge {
	c := payments.Charge{
		ID: t.ID, At: t.BilledAt.Instant(), AmountMinor: amount(t.Details.Totals.Total), Currency: money.Currency(t.Currency),
		Settled: t.settled(), Trial: t.SubscriptionID != "" && amount(t.Details.Totals.Subtotal) == 0,
		Proration: t.proration(), Separate: t.Origin == "subscription_charge",
	}
	if c.At == 0 {
		c.At = t.CreatedAt.Instant()
	}
	if t.Period != nil {
		c.PeriodStart, c.PeriodEnd = t.Period.Start.Instant(), t.Period.End.Instant()
	}
	for _, i := range t.Items {
		if i.Quantity > 0 { // the others are given back
			c.ProductID, c.Quantity = i.Price.ProductID, i.Quantity
			break
		}
	}
	return c
}

// fromTransaction maps a transaction: a charge of its subscription, or a purchase
// of its own. A draft is nothing yet, nor is one whose subscription is to come.
func fromTransaction(t transaction) []payments.Observation {
	o := payments.Observation{
		Rail: ID, TransactionID: t.ID, Version: stamp.Version(t.UpdatedAt, t.CreatedAt),
		AccountToken: account(t.Custom), CustomerID: t.CustomerID,
	}
	if t.settled() {
		o.Charges = []payments.Charge{charge(t)}
	}
	if t.recurring() {
		if t.SubscriptionID == "" || !t.settled() {
			return nil
		}
		o.TransactionID = t.SubscriptionID
		return []payments.Observation{o}
	}
	if o.Lifecycle = once(t); o.Lifecycle == nil {
		return nil
	}
	return []payments.Observation{o}
}

// once maps a transaction that is a purchase of its own.
func once(t transaction) *payments.Lifecycle {
	l := &payments.Lifecycle{PurchasedAt: t.CreatedAt.Instant()}
	switch t.Status {
	case "paid", "completed":
		l.State = payments.StateActive
	case "ready", "billed", "past_due":
		l.State = payments.StatePending
	case "canceled":
		l.State = payments.StateAbandoned
	default:
		return nil
	}
	if len(t.Items) > 0 {
		first := t.Items[0]
		l.ProductID, l.PriceID, l.Quantity = first.Price.ProductID, first.Price.ID, first.Quantity
	}
	return l
}

// paid holds facts of a subscription's transactions that the subscription itself lacks.
type paid struct {
	charges []payments.Charge
	// overdue says that a transaction of it is past due.
	overdue bool
}

func (p paid) through() (until payments.Instant) {
	for _, c := range p.charges {
		if c.Settled && !c.Separate {
			until = max(until, c.PeriodEnd)
		}
	}
	return until
}

func (p paid) any() bool {
	for _, c := range p.charges {
		if c.Settled && !c.Trial && !c.Separate {
			return true
		}
	}
	return false
}

// asks reports whether the status of a subscription depends on its transactions, which then have to
// be fetched.
func (s subscription) asks() bool {
	return s.Status == "past_due" || s.Status == "paused" || s.Status == "canceled"
}

// lifecycle maps a subscription.
func lifecycle(s subscription, p paid) *payments.Lifecycle {
	l := &payments.Lifecycle{PurchasedAt: s.StartedAt.Instant(), AccessUntil: s.NextBilled.Instant(), WillRenew: true}
	if s.Period != nil {
		l.PeriodStart, l.AccessUntil = s.Period.Start.Instant(), s.Period.End.Instant()
	}
	if len(s.Items) > 0 {
		first := s.Items[0]
		l.ProductID, l.PriceID, l.Quantity = first.Price.ProductID, first.Price.ID, first.Quantity
	}
	scheduled(l, s)
	switch s.Status {
	case "trialing":
		l.State, l.PeriodType = payments.StateActive, payments.PeriodTrial
	case "active":
		l.State = payments.StateActive
	case "past_due":
		// The current period is the one that nobody has paid.
		l.State, l.BillingIssueSince, l.AccessUntil = payments.StateGrace, l.PeriodStart, cmp.Or(p.through(), l.PeriodStart)
	case "paused":
		l.State, l.AccessUntil = payments.StatePaused, p.through()
		if p.overdue { // the attempts to charge are used up
			l.State, l.BillingIssueSince, l.ResumeAt = payments.StateHold, s.PausedAt.Instant(), 0
		}
	case "canceled":
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, s.CanceledAt.Instant()
		if !p.any() {
			l.State = payments.StateAbandoned
		}
	default:
		l.State = payments.StateHold // an unknown, future state grants nothing
	}
	return l
}

// scheduled adds the scheduled change of a subscription.
func scheduled(l *payments.Lifecycle, s subscription) {
	if s.Scheduled == nil {
		return
	}
	at := s.Scheduled.EffectiveAt.Instant()
	switch s.Scheduled.Action {
	case "cancel":
		l.WillRenew, l.CancelAt = false, at
	case "pause":
		l.PauseAt, l.ResumeAt = at, s.Scheduled.ResumeAt.Instant()
	case "resume":
		l.ResumeAt = at
	}
}

func fromSubscription(s subscription, p paid) payments.Observation {
	return payments.Observation{
		Rail: ID, TransactionID: s.ID, Version: stamp.Version(s.UpdatedAt, s.CreatedAt),
		AccountToken: account(s.Custom), CustomerID: s.CustomerID,
		Lifecycle: lifecycle(s, p), Charges: p.charges, Price: current(s),
	}
}

// refund maps an adjustment; ok is false for one that has not moved money, and for a credit. A
// chargeback and its reversal are separate adjustments, so they are given one id.
func refund(j adjustment) (r payments.Refund, ok bool) {
	r = payments.Refund{
		ID: j.ID, ChargeID: j.TransactionID, Version: stamp.Version(j.UpdatedAt, j.CreatedAt), At: j.CreatedAt.Instant(),
		AmountMinor: amount(j.Totals.Total), Full: j.Type == "full",
	}
	switch j.Action {
	case "refund":
		r.Reversed = j.Status == "reversed" || j.Status == "rejected"
	case "chargeback", "chargeback_reverse":
		r.ID, r.Chargeback, r.Full = "chargeback", true, j.Type == "full"
		r.Reversed = j.Action == "chargeback_reverse" || j.Status == "reversed"
	default:
		return payments.Refund{}, false
	}
	return r, j.Status != "pending_approval"
}

// credits reports whether an adjustment gives or takes back a credit.
func (j adjustment) credits() bool { return j.Action == "credit" || j.Action == "credit_reverse" }

// credit returns the sum of the credits of a transaction, less what was taken back of them: an
// adjustment that takes a credit back does not name it. ok is false if there are none.
func credit(transactionID string, list []adjustment) (r payments.Refund, ok bool) {
	var given, marked, taken int64
	r = payments.Refund{ID: "credit", ChargeID: transactionID, Credit: true}
	for _, j := range list {
		if j.TransactionID != transactionID || !j.credits() || j.Status == "pending_approval" || j.Status == "rejected" {
			continue
		}
		total := amount(j.Totals.Total)
		switch {
		case j.Action == "credit_reverse":
			taken += total
		case j.Status == "reversed":
			marked += total
			fallthrough
		default:
			given += total
		}
		r.Version, r.At = max(r.Version, stamp.Version(j.UpdatedAt, j.CreatedAt)), max(r.At, j.CreatedAt.Instant())
	}
	// A credit that was taken back is marked so, has an adjustment that does it, or both.
	r.AmountMinor = max(given-max(marked, taken), 0)
	r.Reversed = r.AmountMinor == 0
	return r, r.Version > 0
}

// current returns the price of a subscription's items, before discounts.
func current(s subscription) *payments.Price {
	if len(s.Items) == 0 {
		return nil
	}
	p := &payments.Price{Currency: money.Currency(s.Currency), Interval: money.Period(s.Cycle.Frequency, s.Cycle.Interval)}
	for _, i := range s.Items {
		p.AmountMinor += amount(i.Price.UnitPrice.Amount) * max(i.Quantity, 1)
	}
	if s.Discount != nil {
		p.Discount = s.Discount.ID
	}
	return p
}
