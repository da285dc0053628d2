package androidstore

import (
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/stamp"
)

type amount struct {
	Currency string `json:"currencyCode"`
	Units    string `json:"units"`
	Nanos    int32  `json:"nanos"`
}

// minor returns the amount in minor units, 0 for an invalid one.
func (a amount) minor() int64 {
	var units int64
	if a.Units != "" {
		n, err := strconv.ParseInt(a.Units, 10, 64)
		if err != nil {
			return 0
		}
		units = n
	}
	n, err := money.FromUnits(units, a.Nanos, a.Currency)
	if err != nil {
		return 0
	}
	return n
}

type accounts struct {
	Account string `json:"obfuscatedExternalAccountId"`
}

type renewingPlan struct {
	Enabled bool    `json:"autoRenewEnabled"`
	Price   *amount `json:"recurringPrice"`
	Change  *struct {
		New   *amount    `json:"newPrice"`
		Mode  string     `json:"priceChangeMode"`
		State string     `json:"priceChangeState"`
		At    stamp.Time `json:"expectedNewPriceChargeTime"`
	} `json:"priceChangeDetails"`
	StepUp *struct {
		Deadline stamp.Time `json:"consentDeadlineTime"`
		New      *amount    `json:"newPrice"`
		State    string     `json:"state"`
	} `json:"priceStepUpConsentDetails"`
}

type lineItem struct {
	ProductID string        `json:"productId"`
	Expiry    stamp.Time    `json:"expiryTime"`
	OrderID   string        `json:"latestSuccessfulOrderId"`
	Renewing  *renewingPlan `json:"autoRenewingPlan"`
	Prepaid   *struct{}     `json:"prepaidPlan"`
	Offer     struct {
		BasePlanID string `json:"basePlanId"`
	} `json:"offerDetails"`
	Phase struct {
		FreeTrial    *struct{} `json:"freeTrial"`
		Introductory *struct{} `json:"introductoryPrice"`
		Proration    *struct {
			Original string `json:"originalOfferPhaseType"`
		} `json:"prorationPeriod"`
	} `json:"offerPhase"`
	Deferred *struct {
		ProductID string `json:"productId"`
	} `json:"deferredItemReplacement"`
	Replacement struct {
		Mode string `json:"replacementMode"`
	} `json:"itemReplacement"`
}

// prorated reports whether the item is in what a change of plan left of a period. A change at the
// full price is followed by a whole period, which that time is added to.
func (i lineItem) prorated() bool {
	return i.Phase.Proration != nil && i.Replacement.Mode != "CHARGE_FULL_PRICE"
}

// trial reports whether the period costs nothing, also what is left of it after a
// change of plan.
func (i lineItem) trial() bool {
	return i.Phase.FreeTrial != nil || i.prorated() && i.Phase.Proration.Original == "FREE_TRIAL"
}

type subscription struct {
	State    string     `json:"subscriptionState"`
	Start    stamp.Time `json:"startTime"`
	Linked   string     `json:"linkedPurchaseToken"`
	Items    []lineItem `json:"lineItems"`
	Test     *struct{}  `json:"testPurchase"`
	Ack      string     `json:"acknowledgementState"`
	Accounts accounts   `json:"externalAccountIdentifiers"`
	OutOfApp *struct {
		Accounts accounts `json:"expiredExternalAccountIdentifiers"`
	} `json:"outOfAppPurchaseContext"`
	Paused *struct {
		ResumeTime stamp.Time `json:"autoResumeTime"`
	} `json:"pausedStateContext"`
	Canceled *struct {
		Replacement *struct{} `json:"replacementCancellation"`
	} `json:"canceledStateContext"`
}

type product struct {
	Items []struct {
		ProductID string `json:"productId"`
		Offer     struct {
			Quantity    int64  `json:"quantity"`
			Refundable  *int64 `json:"refundableQuantity"`
			Consumption string `json:"consumptionState"`
		} `json:"productOfferDetails"`
	} `json:"productLineItem"`
	Context struct {
		State string `json:"purchaseState"`
	} `json:"purchaseStateContext"`
	CompletedAt stamp.Time `json:"purchaseCompletionTime"`
	OrderID     string     `json:"orderId"`
	Ack         string     `json:"acknowledgementState"`
	Account     string     `json:"obfuscatedExternalAccountId"`
	Test        *struct{}  `json:"testPurchaseContext"`
}

type voidedPurchase struct {
	OrderID  string `json:"orderId"`
	Token    string `json:"purchaseToken"`
	At       millis `json:"voidedTimeMillis"`
	Reason   int    `json:"voidedReason"`
	Quantity int64  `json:"voidedQuantity"`
}

// reasonChargeback is the voidedReason of money that the payer's bank took.
const reasonChargeback = 7

const ackPending = "ACKNOWLEDGEMENT_STATE_PENDING"

func environment(test bool) payments.StoreEnvironment {
	if test {
		return payments.EnvironmentSandbox
	}
	return payments.EnvironmentProduction
}

// newest is the line item that lasts longest, which stands for the purchase.
func (s subscription) newest() (item lineItem) {
	for i, each := range s.Items {
		if i == 0 || each.Expiry.After(item.Expiry.Time) {
			item = each
		}
	}
	return item
}

// fromSubscription maps a subscription that was fetched for a token.
func fromSubscription(token string, s subscription, version int64) payments.Observation {
	o := payments.Observation{
		Rail: ID, TransactionID: key(token), RawRef: token, Environment: environment(s.Test != nil), Version: version,
		AccountToken: s.Accounts.Account, Lifecycle: lifecycle(s), Charges: charges(s), Price: price(s.newest()),
	}
	if o.AccountToken == "" && s.OutOfApp != nil {
		o.AccountToken = s.OutOfApp.Accounts.Account
	}
	o.NeedsAcknowledge = s.Ack == ackPending && o.Lifecycle.State != payments.StatePending && o.Lifecycle.State != payments.StateAbandoned
	return o
}

// lifecycle maps the state of a subscription.
func lifecycle(s subscription) *payments.Lifecycle {
	item := s.newest()
	l := &payments.Lifecycle{
		ProductID: item.ProductID, BasePlanID: item.Offer.BasePlanID, PurchasedAt: s.Start.Instant(), AccessUntil: item.Expiry.Instant(),
		WillRenew: item.Renewing != nil && item.Renewing.Enabled, Prepaid: item.Prepaid != nil,
	}
	switch {
	case item.trial():
		l.PeriodType = payments.PeriodTrial
	case item.Phase.Introductory != nil:
		l.PeriodType = payments.PeriodIntro
	}
	if item.Deferred != nil {
		l.PendingProductID = item.Deferred.ProductID
	}
	if s.Linked != "" && s.State != "SUBSCRIPTION_STATE_PENDING" && s.State != "SUBSCRIPTION_STATE_PENDING_PURCHASE_CANCELED" {
		l.Replaces = key(s.Linked)
	}
	switch s.State {
	case "SUBSCRIPTION_STATE_ACTIVE":
		l.State = payments.StateActive
	case "SUBSCRIPTION_STATE_CANCELED":
		l.State, l.WillRenew, l.Prepaid = payments.StateActive, false, false
		if s.Canceled != nil && s.Canceled.Replacement != nil {
			l.State = payments.StateEnded
		}
	case "SUBSCRIPTION_STATE_IN_GRACE_PERIOD":
		// The store has extended the expiry to the end of the window already.
		l.State, l.GraceUntil = payments.StateGrace, l.AccessUntil
	case "SUBSCRIPTION_STATE_ON_HOLD":
		l.State, l.BillingIssueSince = payments.StateHold, l.AccessUntil
	case "SUBSCRIPTION_STATE_PAUSED":
		l.State = payments.StatePaused
		if s.Paused != nil {
			l.ResumeAt = s.Paused.ResumeTime.Instant()
		}
	case "SUBSCRIPTION_STATE_EXPIRED":
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, l.AccessUntil
	case "SUBSCRIPTION_STATE_PENDING":
		l.State = payments.StatePending
	case "SUBSCRIPTION_STATE_PENDING_PURCHASE_CANCELED":
		l.State, l.WillRenew = payments.StateAbandoned, false
	default:
		l.State = payments.StateHold // an unknown, future state grants nothing
	}
	return l
}

// charges returns the newest orders of a subscription, each with all items that it paid a period
// of. The store does not say when they were charged, so they are ordered by their number.
func charges(s subscription) []payments.Charge {
	var list []payments.Charge
	for _, item := range s.Items {
		if item.OrderID == "" {
			continue
		}
		c := item.charge(s.Start)
		i := slices.IndexFunc(list, func(known payments.Charge) bool { return known.ID == c.ID })
		switch {
		case i < 0:
			list = append(list, c)
		case c.Trial || c.Proration:
		case list[i].Trial || list[i].Proration:
			list[i] = c
		default:
			list[i].Also = append(list[i].Also, c.ProductID)
			list[i].AmountMinor += c.AmountMinor
		}
	}
	return list
}

// charge returns what the newest order paid for an item.
func (i lineItem) charge(begun stamp.Time) payments.Charge {
	c := payments.Charge{
		ID: i.OrderID, At: begun.Instant() + payments.Instant(renewals(i.OrderID)), ProductID: i.ProductID,
		Settled: true, Trial: i.trial(), Proration: i.prorated(),
	}
	if i.Renewing != nil && i.Renewing.Price != nil {
		c.Currency = money.Currency(i.Renewing.Price.Currency)
		if i.Phase.Introductory == nil && !c.Trial && !c.Proration {
			c.AmountMinor = i.Renewing.Price.minor()
		}
	}
	return c
}

// renewals is how many times an order was renewed: "..0" is the first time.
func renewals(orderID string) int64 {
	_, number, ok := strings.Cut(orderID, "..")
	n, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil || n < 0 {
		return 0
	}
	return n + 1
}

// price maps the current and next price of a line item.
func price(item lineItem) *payments.Price {
	plan := item.Renewing
	if plan == nil || plan.Price == nil {
		return nil
	}
	p := &payments.Price{AmountMinor: plan.Price.minor(), Currency: money.Currency(plan.Price.Currency)}
	if !plan.Enabled {
		return p
	}
	p.Next = &payments.NextPrice{AmountMinor: p.AmountMinor, Currency: p.Currency, At: item.Expiry.Instant()}
	if item.Deferred != nil {
		p.Next.ProductID = item.Deferred.ProductID
	}
	if c := plan.Change; c != nil && c.New != nil && (c.State == "OUTSTANDING" || c.State == "CONFIRMED") {
		p.Next.AmountMinor, p.Next.Currency = c.New.minor(), money.Currency(c.New.Currency)
		if !c.At.IsZero() {
			p.Next.At = c.At.Instant()
		}
		if c.Mode == "PRICE_INCREASE" {
			p.Next.RequiresConsent, p.Next.ConsentState = true, consent(c.State == "CONFIRMED")
		}
	}
	if u := plan.StepUp; u != nil && u.New != nil {
		p.Next.AmountMinor, p.Next.Currency = u.New.minor(), money.Currency(u.New.Currency)
		p.Next.RequiresConsent, p.Next.ConsentState = true, consent(u.State != "PENDING")
	}
	return p
}

func consent(given bool) string {
	if given {
		return "accepted"
	}
	return "pending"
}

// fromProduct maps a purchase that was fetched for a token.
func fromProduct(token string, p product, version int64, kind func(string) payments.ProductKind) payments.Observation {
	o := payments.Observation{
		Rail: ID, TransactionID: key(token), RawRef: token, Environment: environment(p.Test != nil), Version: version,
		AccountToken: p.Account, Lifecycle: &payments.Lifecycle{PurchasedAt: p.CompletedAt.Instant(), State: payments.StateActive, Quantity: 1},
	}
	l := o.Lifecycle
	var refundable *int64
	consumed := true
	if len(p.Items) > 0 {
		first := p.Items[0]
		l.ProductID, l.Quantity, refundable = first.ProductID, max(first.Offer.Quantity, 1), first.Offer.Refundable
		consumed = first.Offer.Consumption != "CONSUMPTION_STATE_YET_TO_BE_CONSUMED"
	}
	completed := !p.CompletedAt.IsZero()
	switch {
	case p.Context.State == "PURCHASED":
		o.NeedsAcknowledge = p.Ack == ackPending || !consumed && kind(l.ProductID) == payments.KindConsumable
	case p.Context.State == "CANCELLED" && !completed:
		l.State = payments.StateAbandoned
		return o
	case p.Context.State == "CANCELLED":
	default:
		l.State = payments.StatePending
		return o
	}
	order := p.OrderID
	if order == "" { // a purchase paid by a code has no order
		order = o.TransactionID
	}
	o.Charges = []payments.Charge{{ID: order, At: l.PurchasedAt, ProductID: l.ProductID, Quantity: l.Quantity, Settled: true}}
	switch {
	case p.Context.State == "CANCELLED", refundable != nil && *refundable == 0:
		o.Refunds = []payments.Refund{{ID: "state", ChargeID: order, Full: true}}
	case refundable != nil && *refundable < l.Quantity:
		o.Refunds = []payments.Refund{{ID: "state", ChargeID: order, Quantity: l.Quantity - *refundable}}
	}
	return o
}

// The versions of what is said of an order that was voided, which nothing takes
// back: the list of voided purchases knows why, a notification does not.
const (
	voidNotified = 1
	voidListed   = 2
)

func void(orderID string, at millis, listed *voidedPurchase) payments.Refund {
	r := payments.Refund{ID: "void", ChargeID: orderID, Version: voidNotified, At: payments.Instant(at), Full: true}
	if listed != nil {
		r.Version, r.At, r.Chargeback = voidListed, payments.Instant(listed.At), listed.Reason == reasonChargeback
	}
	return r
}
