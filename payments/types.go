package payments

import "time"

// Instant is a time in milliseconds since 1970, UTC; 0 is none.
type Instant int64

// At returns the instant of a time; the zero time is none.
func At(t time.Time) Instant {
	if t.IsZero() {
		return 0
	}
	return Instant(t.UnixMilli())
}

// Time returns the instant as a time in UTC, the zero time for none.
func (i Instant) Time() time.Time {
	if i == 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(i)).UTC()
}

// StoreEnvironment says whether real money moved.
type StoreEnvironment string

// The environments of a store. A rail that sees any other, such as a local test
// environment, says EnvironmentOther, which no deployment matches.
const (
	EnvironmentProduction StoreEnvironment = "production"
	EnvironmentSandbox    StoreEnvironment = "sandbox"
	EnvironmentOther      StoreEnvironment = "other"
)

// ProductKind is the kind of a product.
type ProductKind string

// The kinds of product. A one-time product with a duration does not renew.
const (
	KindSubscription ProductKind = "subscription"
	KindOneTime      ProductKind = "one_time"
	KindConsumable   ProductKind = "consumable"
)

// Ownership says whether a purchase was bought or shared.
type Ownership string

// The kinds of ownership. A purchase shared with a family grants entitlements
// and credits nothing.
const (
	OwnershipPurchased    Ownership = "purchased"
	OwnershipFamilyShared Ownership = "family_shared"
)

// PeriodType is the kind of the current period, such as a trial.
type PeriodType string

// The types of period.
const (
	PeriodNormal PeriodType = "normal"
	PeriodIntro  PeriodType = "intro"
	PeriodTrial  PeriodType = "trial"
	PeriodPromo  PeriodType = "promotional"
)

// Observation is a rail's report about one purchase: a set of facts, each optional, that is merged
// into the known ones. Any order and any repetition of observations leads to the same facts.
type Observation struct {
	Rail RailID
	// TransactionID is the key of the purchase at its rail: 1 to 200 bytes.
	TransactionID string
	// RawRef is the id by which the rail fetches the purchase if that is not the transaction id,
	// such as a purchase token: at most 4,000 bytes.
	RawRef string
	// Environment is the environment that the rail reports, or "".
	Environment StoreEnvironment
	// Version orders the observations of a purchase: it is the rail's own time of the statement, or
	// a version from [Access.Version]. It is above 0.
	Version int64
	// AccountToken is the token by which a checkout or app named the subject to the rail.
	AccountToken string
	// CustomerID is the rail's id of the payer.
	CustomerID string
	// Ownership is "" for purchased.
	Ownership Ownership
	// NeedsAcknowledge says that the rail requires [Rail.Acknowledge].
	NeedsAcknowledge bool
	// OnlyKnown says that the observation is dropped if the purchase is not known. It is for
	// purchases that the rail no longer shows, in results of [Rail.Expand] and [Rail.History].
	OnlyKnown bool

	Lifecycle *Lifecycle
	Charges   []Charge
	Refunds   []Refund
	Revoke    *Revoke
	Price     *Price
}

// State is the state of a purchase as its rail reports it, from which payments derives the status.
type State string

// The states. A purchase that was bought once is active as long as it is owned.
const (
	StateActive State = "active"
	// StatePending has not been paid.
	StatePending State = "pending"
	// StateGrace could not be charged and keeps its access by the rail's terms.
	StateGrace State = "grace"
	// StateHold could not be charged and has lost its access for now.
	StateHold   State = "hold"
	StatePaused State = "paused"
	// StateEnded has run out, been canceled and ended, or been replaced.
	StateEnded State = "ended"
	// StateAbandoned ended without having been paid.
	StateAbandoned State = "abandoned"
)

// Lifecycle is a statement about the state of a purchase; the newest one replaces the others as a
// whole.
type Lifecycle struct {
	// ProductID is the store's id of the product; BasePlanID and PriceID narrow it.
	ProductID  string `json:"productId"`
	BasePlanID string `json:"basePlanId,omitempty"`
	PriceID    string `json:"priceId,omitempty"`
	State      State  `json:"state"`
	// PeriodType is "" for normal.
	PeriodType  PeriodType `json:"periodType,omitempty"`
	Quantity    int64      `json:"quantity,omitempty"`
	PurchasedAt Instant    `json:"purchasedAt,omitempty"`
	PeriodStart Instant    `json:"periodStart,omitempty"`
	// AccessUntil is the end of the period; 0 for a purchase that is owned forever.
	AccessUntil Instant `json:"accessUntil,omitempty"`
	// GraceUntil is the end of the rail's grace window, 0 if it does not report one.
	GraceUntil Instant `json:"graceUntil,omitempty"`
	// ResumeAt is the end of a pause as the rail reports it, never computed.
	ResumeAt Instant `json:"resumeAt,omitempty"`
	// WillRenew is false from the moment it was canceled; CancelAt is when that
	// takes effect, 0 for AccessUntil.
	WillRenew bool    `json:"willRenew,omitempty"`
	CancelAt  Instant `json:"cancelAt,omitempty"`
	EndedAt   Instant `json:"endedAt,omitempty"`
	// BillingIssueSince is when a renewal first failed.
	BillingIssueSince Instant `json:"billingIssueSince,omitempty"`
	// Prepaid says that the purchase ends at AccessUntil without having been canceled.
	Prepaid bool `json:"prepaid,omitempty"`
	// PauseAt is when a requested pause begins.
	PauseAt Instant `json:"pauseAt,omitempty"`
	// PendingProductID is the product to which it changes at the next renewal.
	PendingProductID string `json:"pendingProductId,omitempty"`
	// Replaces is the transaction id of the purchase that this one replaces. The older one grants
	// nothing from then on.
	Replaces string `json:"replaces,omitempty"`
}

// Charge is one payment of a purchase. A settled charge stays settled: money that goes back is a
// [Refund].
type Charge struct {
	// ID is unique among the rail's charges: 1 to 200 bytes.
	ID string  `json:"id"`
	At Instant `json:"at,omitempty"`
	// ProductID is the product that was paid for, "" for the product of the lifecycle.
	ProductID string `json:"productId,omitempty"`
	// Also are further products that the same payment was for, which it credits as well.
	Also        []string `json:"also,omitempty"`
	AmountMinor int64    `json:"amountMinor,omitempty"`
	Currency    string   `json:"currency,omitempty"`
	// Quantity multiplies the credit; 0 means 1.
	Quantity int64 `json:"quantity,omitempty"`
	Settled  bool  `json:"settled,omitempty"`
	// Trial is a period that costs nothing; it credits nothing.
	Trial bool `json:"trial,omitempty"`
	// Proration is the difference that a change within a period costs: money
	// arrived, but for no period of its own, so it credits nothing. A purchase is
	// refunded once both the period and what changes within it cost went back.
	Proration bool `json:"proration,omitempty"`
	// Separate is a payment for something else that was charged with the purchase, such as a pack of
	// coins. It credits what it paid for if the catalog has that as something other than a
	// subscription, and its refund leaves the purchase as it is.
	Separate bool `json:"separate,omitempty"`
	// PeriodStart and PeriodEnd bound the paid period; PeriodEnd is 0 if it has no end.
	PeriodStart Instant `json:"periodStart,omitempty"`
	PeriodEnd   Instant `json:"periodEnd,omitempty"`
}

// Refund is money that went back, for one charge.
type Refund struct {
	// ID is unique among the refunds of the charge; a rail that reports only a sum
	// uses one id for it.
	ID       string `json:"id"`
	ChargeID string `json:"chargeId"`
	// Version is the version of this statement, 0 for the observation's.
	Version int64   `json:"version,omitempty"`
	At      Instant `json:"at,omitempty"`
	// AmountMinor is the refunded amount; Full says that it is all of the charge. BasisPoints gives
	// instead the refunded part of the charge, and Quantity the number of refunded units.
	AmountMinor int64 `json:"amountMinor,omitempty"`
	BasisPoints int64 `json:"basisPoints,omitempty"`
	Quantity    int64 `json:"quantity,omitempty"`
	Full        bool  `json:"full,omitempty"`
	// Chargeback says that the payer's bank took it.
	Chargeback bool `json:"chargeback,omitempty"`
	// Credit says that less was to be paid, so that it does not imply that any money arrived.
	Credit bool `json:"credit,omitempty"`
	// Reversed says that the money came back, or the refund failed.
	Reversed bool `json:"reversed,omitempty"`
}

// Revoke says that the rail revoked access without a refund, or restored it.
type Revoke struct {
	At     Instant `json:"at,omitempty"`
	Reason string  `json:"reason,omitempty"`
	// Reversed cancels an earlier revocation.
	Reversed bool `json:"reversed,omitempty"`
}

// Price is the price of a subscription and its next change.
type Price struct {
	AmountMinor int64  `json:"amountMinor"`
	Currency    string `json:"currency"`
	// Interval is a period such as "P1M" (ISO 8601).
	Interval string     `json:"interval,omitempty"`
	Next     *NextPrice `json:"next,omitempty"`
	// Discount is the code or name of the discount, or "".
	Discount string `json:"discount,omitempty"`
}

// NextPrice is the price of a subscription after its next change.
type NextPrice struct {
	AmountMinor int64  `json:"amountMinor"`
	Currency    string `json:"currency"`
	// ProductID is the store's id of the product that it changes to.
	ProductID       string  `json:"productId,omitempty"`
	At              Instant `json:"at,omitempty"`
	RequiresConsent bool    `json:"requiresConsent,omitempty"`
	// ConsentState is "pending" or "accepted" if the store requires consent.
	ConsentState string `json:"consentState,omitempty"`
}

// DiscountKind is the kind of a discount.
type DiscountKind string

// The kinds of discount.
const (
	DiscountPercentage DiscountKind = "percentage"
	DiscountFixed      DiscountKind = "fixed"
)

// DiscountDuration says how many payments of a subscription a discount is for.
type DiscountDuration string

// The durations of a discount.
const (
	DurationOnce      DiscountDuration = "once"
	DurationForever   DiscountDuration = "forever"
	DurationRepeating DiscountDuration = "repeating"
)

// Choices lists the values, for documents.
func (StoreEnvironment) Choices() []string {
	return []string{string(EnvironmentProduction), string(EnvironmentSandbox), string(EnvironmentOther)}
}

// Choices lists the values, for documents.
func (ProductKind) Choices() []string {
	return []string{string(KindSubscription), string(KindOneTime), string(KindConsumable)}
}

// Choices lists the values, for documents.
func (Ownership) Choices() []string {
	return []string{string(OwnershipPurchased), string(OwnershipFamilyShared)}
}

// Choices lists the values, for documents.
func (PeriodType) Choices() []string {
	return []string{string(PeriodNormal), string(PeriodIntro), string(PeriodTrial), string(PeriodPromo)}
}

// Choices lists the values, for documents.
func (State) Choices() []string {
	return []string{string(StateActive), string(StatePending), string(StateGrace), string(StateHold), string(StatePaused), string(StateEnded), string(StateAbandoned)}
}

// Choices lists the values, for documents.
func (DiscountKind) Choices() []string {
	return []string{string(DiscountPercentage), string(DiscountFixed)}
}

// Choices lists the values, for documents.
func (DiscountDuration) Choices() []string {
	return []string{string(DurationOnce), string(DurationForever), string(DurationRepeating)}
}
