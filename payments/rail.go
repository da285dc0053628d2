package payments

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/kitbackend/kit/secrets"
)

// RailID names a rail: one of the five below, or one of the application's own,
// which is "app_" followed by 1 to 40 lower case letters, digits and
// underscores. It is the last segment of the rail's webhook path and the name
// of its block of credentials.
type RailID string

// The rails that the kit has packages for.
const (
	RailIOSStore      RailID = "ios_store"
	RailAndroidStore  RailID = "android_store"
	RailCardProcessor RailID = "card_processor"
	RailMerchantA     RailID = "merchant_a"
	RailMerchantB     RailID = "merchant_b"
)

// Rail is a store or processor: data, and functions that turn its wire format
// into observations and speak to its API. A nil function means that the rail does not support the
// operation. The functions are safe for concurrent use, keep no state that must survive the
// process, put a deadline on requests, and bound responses.
//
// Their errors are of three kinds: a refusal (an error of this package such as
// [ErrInvalidReceipt]), for which a retry is of no use; [Transient], for which it may be; and any
// other error, which is treated as transient and logged.
type Rail struct {
	ID RailID
	// Credentials are the fields of the rail's block in the secret
	// payments-provider-credentials; the name is the rail's ID.
	Credentials secrets.Block
	// CheckCredentials refuses invalid values, such as a key of another environment. Its error is a
	// sentence that quotes no value.
	CheckCredentials func(environment StoreEnvironment, fields secrets.Fields) error
	// MerchantOfRecord says that the rail is the seller and may refund on its own.
	MerchantOfRecord bool
	// CustomersByEmail says that the rail identifies customers by the address that the payer types,
	// so that a customer does not prove who paid. A purchase is then never assigned by its
	// customer; without an account token it waits for [Payments.Repair]. The customer is used for
	// portals, checkouts and restores only if all its known purchases belong to the subject; before
	// a portal opens, OfCustomer is called for further ones.
	CustomersByEmail bool
	// ReportsCompleted says that the rail only ever reports transactions that went
	// through, so that a trial which ended was a purchase that expired. Of other
	// rails a purchase that ends before any money arrived was never paid.
	ReportsCompleted bool
	// RenewalLeeway is how long a renewing purchase keeps granting after its paid
	// period while the rail has not reported its end; 0 means one hour.
	RenewalLeeway time.Duration

	// Verify checks the proof of a webhook over the exact bytes received and
	// returns what was delivered. It refuses with [ErrInvalidSignature], whose cause says why to the
	// log and contains no secret. If the keys of the sender are unavailable it returns [Transient].
	Verify func(ctx context.Context, a Access, header http.Header, body []byte) (Delivery, error)
	// Expand turns a verified delivery, read from its Body alone, into
	// observations; none means that there is nothing to record. It may call the
	// rail, and may run again, minutes or days later.
	Expand func(ctx context.Context, a Access, d Delivery) ([]Observation, error)
	// Redeem turns what a client submits into observations, the submitted purchase
	// first. It refuses with [ErrInvalidReceipt], [ErrAppMismatch],
	// [ErrPurchaseNotFound] and [ErrPurchasePending].
	Redeem func(ctx context.Context, a Access, s Submission) ([]Observation, error)
	// Fetch fetches the current state of a purchase. It refuses with [ErrPurchaseNotFound].
	Fetch func(ctx context.Context, a Access, ref Ref) ([]Observation, error)
	// OfCustomer fetches the purchases of a customer of the rail.
	OfCustomer func(ctx context.Context, a Access, customerID string) ([]Observation, error)
	// History reads the events of the rail in a window of time, one page for each call, to find
	// missed webhooks.
	History func(ctx context.Context, a Access, w Window) (HistoryPage, error)
	// Acknowledge acknowledges the delivery of a purchase to the rail. It is idempotent.
	Acknowledge func(ctx context.Context, a Access, ref Ref) error
	// Checkout makes a page where a user pays. It refuses a quantity that it cannot sell with
	// [capability.ErrInvalidRequest], and a product without the id that it sells by with
	// [ErrProductUnavailable].
	Checkout func(ctx context.Context, a Access, r CheckoutRequest) (Checkout, error)
	// Portal makes a page where a customer manages what was bought.
	Portal func(ctx context.Context, a Access, r PortalRequest) (Portal, error)
	// Pricing fetches the current and next price of a subscription.
	Pricing func(ctx context.Context, a Access, ref Ref) (Price, error)
	// CreateDiscount makes a discount code. It refuses with [ErrDiscountConflict].
	CreateDiscount func(ctx context.Context, a Access, d DiscountRequest) (externalID string, err error)
	// Cancel ends a renewing purchase at the end of its paid period. It is
	// idempotent.
	Cancel func(ctx context.Context, a Access, ref Ref) error
}

// Access holds the credentials and helpers of one call to a rail.
type Access struct {
	// Credentials is the rail's block, present in full.
	Credentials secrets.Fields
	// Previous is the block before the last rotation while its overlap lasts, for
	// verifying; nil otherwise.
	Previous secrets.Fields
	// Environment is the deployment's, never inferred from a payload.
	Environment StoreEnvironment
	// Now is the only clock.
	Now func() time.Time
	// Version returns a new version for the state of the purchase with this transaction id that is
	// about to be fetched. It is called before the request is sent, once for each purchase that the
	// request is about. Registers whose versions come from here never get one from elsewhere.
	Version func(ctx context.Context, transactionID string) (int64, error)
	// Kind returns the kind of the catalog's product with a product id of this rail, "" if there is
	// none.
	Kind func(storeProductID string) ProductKind
}

// Delivery is a webhook whose proof verified.
type Delivery struct {
	// ID is unique among the rail's deliveries: 1 to 200 bytes.
	ID string
	// Type is the rail's name of the event, for display.
	Type string
	// At is when it happened, by the rail's clock.
	At Instant
	// Environment is the environment that the delivery names, or "". A delivery of another
	// environment than the deployment's is recorded and acknowledged, but not expanded.
	Environment StoreEnvironment
	// Body is what [Rail.Expand] reads: the exact bytes received.
	Body []byte
}

// Ref identifies a purchase to its rail.
type Ref struct {
	TransactionID string
	// RawRef is [Observation.RawRef] of the purchase, "" when there was none.
	RawRef string
	// ProductID is the store's id of the product, "" while it is not known.
	ProductID  string
	Kind       ProductKind
	CustomerID string
}

// Submission is a client's proof of a purchase: one of the first three members, or SessionID. Its
// content is not trusted.
type Submission struct {
	// SignedTransaction is for ios_store.
	SignedTransaction string
	// TransactionID is for ios_store, if the client has no signed transaction. It proves no
	// possession.
	TransactionID string
	// PurchaseToken is for android_store, optionally with ProductID.
	PurchaseToken string
	ProductID     string
	// SessionID is that of a checkout.
	SessionID string
}

// proofs counts the proofs in a submission, which must be one.
func (s Submission) proofs() (n int) {
	for _, text := range []string{s.SignedTransaction, s.TransactionID, s.PurchaseToken, s.SessionID} {
		if text != "" {
			n++
		}
	}
	return n
}

// possessed reports whether only the buyer's device has what was submitted.
func (s Submission) possessed() bool { return s.SignedTransaction != "" || s.PurchaseToken != "" }

// Window selects a page of [Rail.History].
type Window struct {
	Since, Until Instant
	// Cursor is [HistoryPage.Next] of the page before, "" for the first.
	Cursor string
	// Limit is how many entries a page has at most; a rail may give fewer.
	Limit int
}

// HistoryPage is a page of a rail's history. An entry is a delivery, with the
// id its webhook has, or an observation.
type HistoryPage struct {
	Deliveries   []Delivery
	Observations []Observation
	// Next is "" on the last page.
	Next string
}

// CheckoutRequest describes the purchase to pay for.
type CheckoutRequest struct {
	Product  Product
	Store    StoreIDs
	Quantity int64
	// AccountToken identifies the subject at the rail, which returns it as
	// [Observation.AccountToken]. It is a random UUID.
	AccountToken string
	// CustomerID is "" for a subject that the rail does not know yet.
	CustomerID string
	// DiscountID is the rail's id of a discount, "" for none; DiscountCode is its
	// code.
	DiscountID, DiscountCode string
	Success, Cancel          string
	// IdempotencyKey makes a repeated request one checkout.
	IdempotencyKey string
}

// Checkout is a page where a user pays.
type Checkout struct {
	SessionID string
	URL       string
	// CustomerID is the rail's id of the customer where it made one.
	CustomerID string
	// ExpiresAt is 0 when the rail names none.
	ExpiresAt Instant
}

// PortalRequest names the customer whose purchases are managed.
type PortalRequest struct {
	// CustomerID is "" when the subject has none at this rail; a rail that needs
	// one refuses with [ErrCustomerNotFound].
	CustomerID   string
	AccountToken string
	Return       string
}

// Portal is a page where a customer manages what was bought.
type Portal struct{ URL string }

// DiscountRequest describes a discount code to make.
type DiscountRequest struct {
	Code string
	Kind DiscountKind
	// PercentBasisPoints is 1 to 10,000, where 10,000 is 100 %.
	PercentBasisPoints int64
	// AmountMinor and Currency are those of a fixed discount.
	AmountMinor int64
	Currency    string
	Duration    DiscountDuration
	// Months is how long a repeating discount lasts; a rail that knows no months takes it for billing
	// periods.
	Months int64
	// MaxRedemptions is 0 for no bound; EndsAt is 0 for no end.
	MaxRedemptions int64
	EndsAt         Instant
	// ProductIDs are the store's ids of the products it applies to; empty means all.
	ProductIDs []StoreIDs
	// IdempotencyKey makes a repeated request one discount.
	IdempotencyKey string
}

// Transient returns the error of a rail that is unavailable, with the time to wait before a retry
// if the rail gave one. The webhook or request is refused with payments/rail_unavailable.
func Transient(cause error, retryAfter time.Duration) error {
	return &TransientError{Cause: cause, RetryAfter: retryAfter}
}

// TransientError is made by [Transient] and found by errors.As.
type TransientError struct {
	Cause error
	// RetryAfter is 0 when the rail did not say.
	RetryAfter time.Duration
}

func (e *TransientError) Error() string {
	return "payments: the rail cannot be reached: " + e.Cause.Error()
}

// Wait is RetryAfter.
func (e *TransientError) Wait() time.Duration { return e.RetryAfter }

// Unwrap returns the cause.
func (e *TransientError) Unwrap() error { return e.Cause }

// IsTransient reports whether a retry may succeed after an error of a rail.
func IsTransient(err error) bool {
	var transient *TransientError
	return errors.As(err, &transient)
}
