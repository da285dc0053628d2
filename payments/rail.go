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
// into observations and speak to its API. A nil function is something the rail
// cannot do. The functions are safe for concurrent use, keep nothing that has
// to survive the process, put a deadline on what they send, and bound what they
// read.
//
// Their errors are one of three: a refusal (an error of this package such as
// [ErrInvalidReceipt]), which no repetition changes; [Transient], which a
// repetition may; and anything else, which is treated as transient and logged.
type Rail struct {
	ID RailID
	// Credentials are the fields of the rail's block in the secret
	// payments-provider-credentials; the name is the rail's ID.
	Credentials secrets.Block
	// CheckCredentials refuses values that cannot be right, such as a key of
	// another environment. Its error is a sentence that quotes no value.
	CheckCredentials func(environment StoreEnvironment, fields secrets.Fields) error
	// MerchantOfRecord says that the rail is the seller and may refund on its own.
	MerchantOfRecord bool
	// CustomersByEmail says that the rail finds its customers by the address that
	// the payer types, so that a customer proves nothing about who paid. Such a
	// customer names no purchase and claims none; what is bought without an account
	// token waits for [Payments.Repair]. It opens a portal, fills in a checkout, and
	// is asked about in a restore, only for a subject that has all of its purchases
	// that are known here; before a portal opens, OfCustomer is asked for the rest, as
	// far as it lists them.
	CustomersByEmail bool
	// ReportsCompleted says that the rail only ever reports transactions that went
	// through, so that a trial which ended was a purchase that expired. Of other
	// rails a purchase that ends before any money arrived was never paid.
	ReportsCompleted bool
	// RenewalLeeway is how long a renewing purchase keeps granting after its paid
	// period while the rail has not reported its end; 0 means one hour.
	RenewalLeeway time.Duration

	// Verify checks the proof of a webhook over the exact bytes received and
	// returns what was delivered. It refuses with [ErrInvalidSignature]. Where the
	// keys of the sender cannot be had it returns [Transient].
	Verify func(ctx context.Context, a Access, header http.Header, body []byte) (Delivery, error)
	// Expand turns a verified delivery, read from its Body alone, into
	// observations; none means that there is nothing to record. It may call the
	// rail, and may run again, minutes or days later.
	Expand func(ctx context.Context, a Access, d Delivery) ([]Observation, error)
	// Redeem turns what a client submits into observations, the submitted purchase
	// first. It refuses with [ErrInvalidReceipt], [ErrAppMismatch],
	// [ErrPurchaseNotFound] and [ErrPurchasePending].
	Redeem func(ctx context.Context, a Access, s Submission) ([]Observation, error)
	// Fetch asks the rail how a purchase stands now. It refuses with
	// [ErrPurchaseNotFound].
	Fetch func(ctx context.Context, a Access, ref Ref) ([]Observation, error)
	// OfCustomer asks the rail for the purchases of one of its customers.
	OfCustomer func(ctx context.Context, a Access, customerID string) ([]Observation, error)
	// History reads what happened at the rail in a window of time, a page a call,
	// to find the webhooks that were missed.
	History func(ctx context.Context, a Access, w Window) (HistoryPage, error)
	// Acknowledge tells the rail that a purchase was delivered. It is idempotent.
	Acknowledge func(ctx context.Context, a Access, ref Ref) error
	// Checkout makes a page where a user pays.
	Checkout func(ctx context.Context, a Access, r CheckoutRequest) (Checkout, error)
	// Portal makes a page where a customer manages what was bought.
	Portal func(ctx context.Context, a Access, r PortalRequest) (Portal, error)
	// Pricing asks what a subscription pays now and next.
	Pricing func(ctx context.Context, a Access, ref Ref) (Price, error)
	// CreateDiscount makes a code. It refuses with [ErrDiscountConflict].
	CreateDiscount func(ctx context.Context, a Access, d DiscountRequest) (externalID string, err error)
	// Cancel ends a renewing purchase at the end of its paid period. It is
	// idempotent.
	Cancel func(ctx context.Context, a Access, ref Ref) error
}

// Access is what a rail works with during one call.
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
	// Version draws a version for state that is about to be fetched of the purchase
	// with this transaction id. It is called before the request is sent, once for
	// each purchase that the request is about. Registers whose versions come from
	// here never get one from elsewhere.
	Version func(ctx context.Context, transactionID string) (int64, error)
	// Kind returns what the catalog sells under a product id of this rail, "" when
	// it sells nothing there.
	Kind func(storeProductID string) ProductKind
}

// Delivery is a webhook whose proof verified.
type Delivery struct {
	// ID is unique among the rail's deliveries: 1 to 200 bytes.
	ID string
	// Type is what the rail calls the event, for people.
	Type string
	// At is when it happened, as the rail says.
	At Instant
	// Environment is what the delivery says it is of; "" when it does not say. One
	// that is not the deployment's is recorded and acknowledged, not expanded.
	Environment StoreEnvironment
	// Body is what [Rail.Expand] reads: the exact bytes received.
	Body []byte
}

// Ref is how a rail finds a purchase again.
type Ref struct {
	TransactionID string
	// RawRef is [Observation.RawRef] of the purchase, "" when there was none.
	RawRef string
	// ProductID is the store's id of the product, "" while it is not known.
	ProductID  string
	Kind       ProductKind
	CustomerID string
}

// Submission is what a client says it bought: one of the first three, or SessionID.
// Nothing in it is believed.
type Submission struct {
	// SignedTransaction is ios_store's.
	SignedTransaction string
	// TransactionID is ios_store's, where the client has no signed transaction. It
	// proves no possession.
	TransactionID string
	// PurchaseToken is android_store's, ProductID may accompany it.
	PurchaseToken string
	ProductID     string
	// SessionID is that of a checkout.
	SessionID string
}

// proofs counts what a submission names; one is what it should be.
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

// Window is what [Rail.History] is asked for.
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

// CheckoutRequest is what is to be paid for.
type CheckoutRequest struct {
	Product  Product
	Store    StoreIDs
	Quantity int64
	// AccountToken stands for the subject at the rail; it comes back as
	// [Observation.AccountToken]. It is a UUID and says nothing about anybody.
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

// PortalRequest says whose purchases are to be managed.
type PortalRequest struct {
	// CustomerID is "" when the subject has none at this rail; a rail that needs
	// one refuses with [ErrCustomerNotFound].
	CustomerID   string
	AccountToken string
	Return       string
}

// Portal is a page where a customer manages what was bought.
type Portal struct{ URL string }

// DiscountRequest is a code that takes something off.
type DiscountRequest struct {
	Code string
	Kind DiscountKind
	// PercentBasisPoints is 1 to 10,000, where 10,000 is everything.
	PercentBasisPoints int64
	// AmountMinor and Currency are those of a fixed discount.
	AmountMinor int64
	Currency    string
	Duration    DiscountDuration
	// Months is how long a repeating discount lasts.
	Months int64
	// MaxRedemptions is 0 for no bound; EndsAt is 0 for no end.
	MaxRedemptions int64
	EndsAt         Instant
	// ProductIDs are the store's ids of what it applies to; empty means everything.
	ProductIDs []StoreIDs
	// IdempotencyKey makes a repeated request one discount.
	IdempotencyKey string
}

// Transient says that a rail could not be asked: try again, after a while where
// the rail said how long. The webhook or request is refused with
// payments/rail_unavailable.
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

// IsTransient reports whether an error of a rail may be gone the next time.
func IsTransient(err error) bool {
	var transient *TransientError
	return errors.As(err, &transient)
}
