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

// ProductKind says what buying a product does.
type ProductKind string

// The kinds of product. A one-time product with a duration does not renew.
const (
	KindSubscription ProductKind = "subscription"
	KindOneTime      ProductKind = "one_time"
	KindConsumable   ProductKind = "consumable"
)

// Ownership says how somebody came to a purchase.
type Ownership string

// The kinds of ownership. A purchase shared with a family grants entitlements
// and credits nothing.
const (
	OwnershipPurchased    Ownership = "purchased"
	OwnershipFamilyShared Ownership = "family_shared"
)

// PeriodType says on which terms the current period runs.
type PeriodType string

// The types of period.
const (
	PeriodNormal PeriodType = "normal"
	PeriodIntro  PeriodType = "intro"
	PeriodTrial  PeriodType = "trial"
	PeriodPromo  PeriodType = "promotional"
)

// Observation is what a rail said about one purchase: a set of facts, each
// optional, that is merged into what is known. Any order and any repetition of
// observations leads to the same facts.
type Observation struct {
	Rail RailID
	// TransactionID is the key of the purchase at its rail: 1 to 200 bytes.
	TransactionID string
	// RawRef is what the rail needs to fetch the purchase where that is not the
	// transaction id, such as a purchase token: at most 4,000 bytes.
	RawRef string
	// Environment is what the rail reports; "" where it names none.
	Environment StoreEnvironment
	// Version orders what is said about the same purchase: the rail's own time of
	// the statement, or a version drawn from [Access.Version]. It is above 0.
	Version int64
	// AccountToken is what a checkout or app gave the rail for the subject.
	AccountToken string
	// CustomerID is the rail's id of the payer.
	CustomerID string
	// Ownership is "" for purchased.
	Ownership Ownership
	// NeedsAcknowledge says that the rail waits for [Rail.Acknowledge].
	NeedsAcknowledge bool
	// OnlyKnown says that it makes no purchase: where nothing else is known of the
	// purchase, it is dropped. It is for what [Rail.Expand] and [Rail.History] say of
	// purchases that the rail no longer shows.
	OnlyKnown bool

	Lifecycle *Lifecycle
	Charges   []Charge
	Refunds   []Refund
	Revoke    *Revoke
	Price     *Price
}

// State is what a rail says of a purchase, before payments decides its status.
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

// Lifecycle is one statement about how a purchase stands; the newest one counts
// as a whole.
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
	// AccessUntil is the end of the period; 0 where there is none, as of what is
	// owned for good.
	AccessUntil Instant `json:"accessUntil,omitempty"`
	// GraceUntil is the end of the rail's grace window, 0 where it reports none
	// apart from the state.
	GraceUntil Instant `json:"graceUntil,omitempty"`
	// ResumeAt is what the rail says of a paused purchase, never computed.
	ResumeAt Instant `json:"resumeAt,omitempty"`
	// WillRenew is false from the moment it was canceled; CancelAt is when that
	// takes effect, 0 for AccessUntil.
	WillRenew bool    `json:"willRenew,omitempty"`
	CancelAt  Instant `json:"cancelAt,omitempty"`
	EndedAt   Instant `json:"endedAt,omitempty"`
	// BillingIssueSince is when a renewal first failed.
	BillingIssueSince Instant `json:"billingIssueSince,omitempty"`
	// Prepaid runs out at AccessUntil without having been canceled.
	Prepaid bool `json:"prepaid,omitempty"`
	// PauseAt is when a pause begins that was asked for.
	PauseAt Instant `json:"pauseAt,omitempty"`
	// PendingProductID is what it changes to at the next renewal.
	PendingProductID string `json:"pendingProductId,omitempty"`
	// Replaces is the transaction id of the purchase that this one takes the place
	// of. The older one grants nothing from then on.
	Replaces string `json:"replaces,omitempty"`
}

// Charge is one payment of a purchase. One that settled stays settled: what
// takes money back is a [Refund].
type Charge struct {
	// ID is unique among the rail's charges: 1 to 200 bytes.
	ID string  `json:"id"`
	At Instant `json:"at,omitempty"`
	// ProductID is what was paid for, "" for the product of the lifecycle.
	ProductID   string `json:"productId,omitempty"`
	AmountMinor int64  `json:"amountMinor,omitempty"`
	Currency    string `json:"currency,omitempty"`
	// Quantity multiplies the credit; 0 means 1.
	Quantity int64 `json:"quantity,omitempty"`
	Settled  bool  `json:"settled,omitempty"`
	// Trial is a period that costs nothing; it credits nothing.
	Trial bool `json:"trial,omitempty"`
	// Proration is the difference that a change within a period costs: money
	// arrived, but for no period of its own, so it credits nothing. A purchase is
	// refunded once both the period and what changes within it cost went back.
	Proration bool `json:"proration,omitempty"`
	// PeriodStart and PeriodEnd are what it paid for, 0 where that has no end.
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
	// AmountMinor is what went back; Full says that nothing is left. BasisPoints
	// says instead which part of the charge it was, and Quantity how many of what
	// was bought.
	AmountMinor int64 `json:"amountMinor,omitempty"`
	BasisPoints int64 `json:"basisPoints,omitempty"`
	Quantity    int64 `json:"quantity,omitempty"`
	Full        bool  `json:"full,omitempty"`
	// Chargeback says that the payer's bank took it.
	Chargeback bool `json:"chargeback,omitempty"`
	// Reversed says that the money came back, or the refund failed.
	Reversed bool `json:"reversed,omitempty"`
}

// Revoke says that the rail took access away without a refund, or gave it back.
type Revoke struct {
	At     Instant `json:"at,omitempty"`
	Reason string  `json:"reason,omitempty"`
	// Reversed takes an earlier revocation back.
	Reversed bool `json:"reversed,omitempty"`
}

// Price is what a subscription pays, and when that changes.
type Price struct {
	AmountMinor int64  `json:"amountMinor"`
	Currency    string `json:"currency"`
	// Interval is a period such as "P1M" (ISO 8601).
	Interval string     `json:"interval,omitempty"`
	Next     *NextPrice `json:"next,omitempty"`
	// Discount is the code or name of what is taken off, "" for nothing.
	Discount string `json:"discount,omitempty"`
}

// NextPrice is what a subscription will pay.
type NextPrice struct {
	AmountMinor int64  `json:"amountMinor"`
	Currency    string `json:"currency"`
	// ProductID is the store's id of what it changes to.
	ProductID       string  `json:"productId,omitempty"`
	At              Instant `json:"at,omitempty"`
	RequiresConsent bool    `json:"requiresConsent,omitempty"`
	// ConsentState is "pending" or "accepted" where consent is asked for.
	ConsentState string `json:"consentState,omitempty"`
}

// DiscountKind says what a discount takes off.
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
