package iosstore

import (
	"strings"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
)

// The types of what is sold.
const (
	typeRenewing      = "Auto-Renewable Subscription"
	typeConsumable    = "Consumable"
	typeNonConsumable = "Non-Consumable"
	typeNonRenewing   = "Non-Renewing Subscription"
)

// The statuses of a subscription; 2 is expired and 5 revoked.
const (
	statusActive = 1
	statusRetry  = 3
	statusGrace  = 4
)

type transaction struct {
	ID             string `json:"transactionId"`
	OriginalID     string `json:"originalTransactionId"`
	BundleID       string `json:"bundleId"`
	ProductID      string `json:"productId"`
	PurchaseDate   int64  `json:"purchaseDate"`
	OriginalDate   int64  `json:"originalPurchaseDate"`
	ExpiresDate    int64  `json:"expiresDate"`
	Quantity       int64  `json:"quantity"`
	Type           string `json:"type"`
	AccountToken   string `json:"appAccountToken"`
	Ownership      string `json:"inAppOwnershipType"`
	SignedDate     int64  `json:"signedDate"`
	Reason         *int   `json:"revocationReason"`
	RevocationDate int64  `json:"revocationDate"`
	RevocationType string `json:"revocationType"`
	Percentage     int64  `json:"revocationPercentage"`
	Upgraded       bool   `json:"isUpgraded"`
	OfferType      int    `json:"offerType"`
	OfferDiscount  string `json:"offerDiscountType"`
	Environment    string `json:"environment"`
	Currency       string `json:"currency"`
	Price          int64  `json:"price"`
}

type renewal struct {
	OriginalID     string `json:"originalTransactionId"`
	ProductID      string `json:"productId"`
	RenewProductID string `json:"autoRenewProductId"`
	AutoRenew      int    `json:"autoRenewStatus"`
	GraceExpires   int64  `json:"gracePeriodExpiresDate"`
	PriceIncrease  *int   `json:"priceIncreaseStatus"`
	RenewalDate    int64  `json:"renewalDate"`
	RenewalPrice   int64  `json:"renewalPrice"`
	Currency       string `json:"currency"`
	Environment    string `json:"environment"`
	SignedDate     int64  `json:"signedDate"`
}

func (t transaction) shared() bool { return t.Ownership == "FAMILY_SHARED" }

// key is the purchase that a transaction belongs to. A restore of what is owned
// for good has an id of its own.
func (t transaction) key() string {
	if t.Type == typeRenewing || t.Type == typeNonConsumable {
		return t.OriginalID
	}
	return t.ID
}

// chargeID returns the id of the charge: a restored purchase was paid once.
func (t transaction) chargeID() string {
	if t.Type == typeNonConsumable {
		return t.OriginalID
	}
	return t.ID
}

func (t transaction) ownership() payments.Ownership {
	if t.shared() {
		return payments.OwnershipFamilyShared
	}
	return payments.OwnershipPurchased
}

func (t transaction) period() payments.PeriodType {
	switch {
	case t.OfferDiscount == "FREE_TRIAL":
		return payments.PeriodTrial
	case t.OfferType == 1:
		return payments.PeriodIntro
	case t.OfferType > 1:
		return payments.PeriodPromo
	}
	return ""
}

func (t transaction) base(version int64) payments.Observation {
	e, _ := environment(t.Environment)
	return payments.Observation{
		Rail: ID, TransactionID: t.key(), Environment: e, Version: max(version, 1),
		AccountToken: strings.ToLower(t.AccountToken), Ownership: t.ownership(),
	}
}

// fromTransaction maps a signed transaction. Its facts about the purchase date
// from when it was bought: a device may bring the one of an earlier period, signed
// anew. Its fact about itself, that it was refunded or is not, dates from when it
// was signed; reversals says that it not being revoked is news.
func fromTransaction(t transaction, reversals bool) []payments.Observation {
	bought := t.base(min(t.PurchaseDate, t.SignedDate))
	bought.Lifecycle = purchase(t)
	bought.Charges = []payments.Charge{charge(t)}
	taken := t.base(t.SignedDate)
	switch {
	case t.RevocationDate > 0 && t.revoked():
		taken.Revoke = &payments.Revoke{At: payments.Instant(t.RevocationDate), Reason: "family"}
	case t.RevocationDate > 0:
		taken.Refunds = []payments.Refund{refund(t)}
	case reversals && t.shared():
		taken.Revoke = &payments.Revoke{Reversed: true}
	case reversals && t.period() != payments.PeriodTrial:
		taken.Refunds = []payments.Refund{{ID: "refund", ChargeID: t.chargeID(), Reversed: true}}
	default:
		return []payments.Observation{bought}
	}
	return []payments.Observation{bought, taken}
}

// revoked reports whether a family lost what it shared, rather than somebody
// getting money back.
func (t transaction) revoked() bool {
	return t.RevocationType == "FAMILY_REVOKE" || t.shared()
}

// refund maps a revocation. A part of a subscription's price ends it as the whole
// does; of consumables a part is a part.
func refund(t transaction) payments.Refund {
	r := payments.Refund{ID: "refund", ChargeID: t.chargeID(), At: payments.Instant(t.RevocationDate), Full: true}
	if t.RevocationType == "REFUND_PRORATED" && t.Percentage > 0 && t.Percentage < 100_000 {
		r.AmountMinor = money.FromMilli(t.Price/100_000*t.Percentage+t.Price%100_000*t.Percentage/100_000, t.Currency)
		if t.Type == typeConsumable {
			r.Full, r.BasisPoints = false, t.Percentage/10
		}
	}
	return r
}

func charge(t transaction) payments.Charge {
	return payments.Charge{
		ID: t.chargeID(), At: payments.Instant(t.PurchaseDate), ProductID: t.ProductID,
		AmountMinor: money.FromMilli(t.Price, t.Currency), Currency: money.Currency(t.Currency), Quantity: t.Quantity,
		Settled: true, Trial: t.period() == payments.PeriodTrial,
		PeriodStart: payments.Instant(t.PurchaseDate), PeriodEnd: payments.Instant(t.ExpiresDate),
	}
}

// purchase maps what a transaction alone says.
func purchase(t transaction) *payments.Lifecycle {
	l := &payments.Lifecycle{
		ProductID: t.ProductID, State: payments.StateActive, PeriodType: t.period(), Quantity: t.Quantity,
		PurchasedAt: payments.Instant(t.PurchaseDate),
	}
	if t.Type != typeRenewing {
		return l // how long a subscription that does not renew lasts is the catalog's
	}
	l.PurchasedAt, l.WillRenew = payments.Instant(t.OriginalDate), true
	l.PeriodStart, l.AccessUntil = payments.Instant(t.PurchaseDate), payments.Instant(t.ExpiresDate)
	if t.Upgraded {
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, payments.Instant(min(t.SignedDate, t.ExpiresDate))
	}
	return l
}

// fromStatus maps the status of a subscription with its newest transaction. It returns nothing for
// a transaction that is not the newest.
func fromStatus(status int, t transaction, r renewal, signedDate int64) []payments.Observation {
	if t.Type != typeRenewing || t.Upgraded || t.RevocationDate > 0 || status == statusActive && t.ExpiresDate <= signedDate {
		return nil
	}
	o := t.base(signedDate)
	o.Lifecycle = lifecycle(status, t, r)
	o.Price = price(t, r)
	return []payments.Observation{o}
}

func lifecycle(status int, t transaction, r renewal) *payments.Lifecycle {
	l := purchase(t)
	l.WillRenew = r.AutoRenew == 1
	if r.RenewProductID != "" && r.RenewProductID != t.ProductID {
		l.PendingProductID = r.RenewProductID
	}
	switch status {
	case statusActive:
	case statusGrace:
		l.State, l.BillingIssueSince = payments.StateGrace, l.AccessUntil
		l.GraceUntil = max(l.AccessUntil, payments.Instant(r.GraceExpires))
	case statusRetry:
		l.State, l.BillingIssueSince = payments.StateHold, l.AccessUntil
	default: // expired, or revoked, which the transaction says itself
		l.State, l.WillRenew, l.EndedAt = payments.StateEnded, false, l.AccessUntil
	}
	return l
}

// price maps what a subscription pays and will pay. A store asks for consent to
// some increases.
func price(t transaction, r renewal) *payments.Price {
	if t.Currency == "" {
		return nil
	}
	p := &payments.Price{AmountMinor: money.FromMilli(t.Price, t.Currency), Currency: money.Currency(t.Currency)}
	if r.AutoRenew != 1 || r.RenewalPrice == 0 || r.Currency == "" {
		return p
	}
	p.Next = &payments.NextPrice{
		AmountMinor: money.FromMilli(r.RenewalPrice, r.Currency), Currency: money.Currency(r.Currency),
		ProductID: r.RenewProductID, At: payments.Instant(r.RenewalDate),
	}
	if r.PriceIncrease != nil {
		p.Next.RequiresConsent, p.Next.ConsentState = true, "pending"
		if *r.PriceIncrease == 1 {
			p.Next.ConsentState = "accepted"
		}
	}
	return p
}
