// Package merchanta is the rail merchant_a, wire-compatible with Paddle Billing.
//
// Deliveries carry the whole object, whose time of change orders them. Facts that
// an object lacks, such as the amount paid of a subscription that is past due,
// are fetched. The merchant of record may refund on its own: for an adjustment its purchase is
// fetched.
package merchanta

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/strictjson"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/outbound"
	"github.com/kitbackend/kit/payments/internal/signature"
	"github.com/kitbackend/kit/payments/internal/stamp"
	"github.com/kitbackend/kit/secrets"
)

const (
	// ID is the id of the rail.
	ID = payments.RailMerchantA
	// BaseURL is the address of the API.
	BaseURL = "https://api.paddle.com"
	// SandboxURL is the address of the API for tests.
	SandboxURL = "https://sandbox-api.paddle.com"
	// Tolerance is how far the time of a signature may differ from the kit's clock, in either
	// direction, unless Options sets another.
	Tolerance = 5 * time.Second
	// MaxTolerance bounds Options.Tolerance.
	MaxTolerance = 300 * time.Second

	accountKey = "kit_account"
)

// Options adjust the rail. The zero value is Paddle's.
type Options struct {
	// BaseURL replaces the address of the API: https, or http on loopback.
	BaseURL string
	// HTTP makes the requests; nil means a client of the rail's own.
	HTTP *http.Client
	// Tolerance is for hosts whose clocks are off, at most [MaxTolerance].
	Tolerance time.Duration
}

// New returns the rail. It panics if Options.BaseURL is not https, or http on loopback.
func New(o Options) payments.Rail {
	r := &rail{tolerance: Tolerance, client: outbound.New(ID, o.HTTP)}
	r.production = outbound.MustBase(ID, o.BaseURL, BaseURL)
	r.sandbox = outbound.MustBase(ID, o.BaseURL, SandboxURL)
	if o.Tolerance > 0 {
		r.tolerance = min(o.Tolerance, MaxTolerance)
	}
	return payments.Rail{
		ID:               ID,
		Credentials:      secrets.Block{Name: string(ID), Required: []string{"apiKey", "webhookSecret"}},
		CheckCredentials: checkCredentials,
		MerchantOfRecord: true,
		CustomersByEmail: true,
		Verify:           r.verify,
		Expand:           r.expand,
		Redeem:           r.redeem,
		Fetch:            r.fetch,
		OfCustomer:       r.ofCustomer,
		History:          r.history,
		Checkout:         r.checkout,
		Portal:           r.portal,
		Pricing:          r.pricing,
		CreateDiscount:   r.createDiscount,
		Cancel:           r.cancel,
	}
}

type rail struct {
	production, sandbox string
	tolerance           time.Duration
	client              *outbound.Client
}

// checkCredentials refuses keys that say they are of the other environment.
// Older keys do not say.
func checkCredentials(environment payments.StoreEnvironment, fields secrets.Fields) error {
	key := fields["apiKey"].Reveal()
	live, sandbox := strings.HasPrefix(key, "pdl_live_"), strings.HasPrefix(key, "pdl_sdbx_")
	if production := environment == payments.EnvironmentProduction; live && !production || sandbox && production {
		return outbound.Problem("The apiKey of merchant_a is of another environment than this deployment.")
	}
	if len(fields["webhookSecret"].Reveal()) < 16 {
		return outbound.Problem("The webhookSecret of merchant_a is not the secret of a notification destination.")
	}
	return nil
}

var form = signature.Header{Name: "Paddle-Signature", Separator: ";", Time: "ts", Signature: "h1", Joint: ":"}

type event struct {
	ID         string          `json:"event_id"`
	Type       string          `json:"event_type"`
	OccurredAt stamp.Time      `json:"occurred_at"`
	Data       json.RawMessage `json:"data"`
}

// verify accepts any of several signatures, by the current secret or the one before the rotation.
func (r *rail) verify(_ context.Context, a payments.Access, h http.Header, body []byte) (payments.Delivery, error) {
	keys := [][]byte{[]byte(a.Credentials["webhookSecret"].Reveal()), []byte(a.Previous["webhookSecret"].Reveal())}
	if err := form.Verify(h, body, keys, a.Now(), r.tolerance); err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	return delivery(body)
}

// delivery reads an event. It refuses a signed body that is no event like an invalid proof, because
// it could not be recorded.
func delivery(body []byte) (payments.Delivery, error) {
	var e event
	if strictjson.Valid(body) != nil || json.Unmarshal(body, &e) != nil || e.ID == "" || len(e.ID) > 200 {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(proof.ErrNoEvent)
	}
	return payments.Delivery{ID: e.ID, Type: e.Type, At: e.OccurredAt.Instant(), Body: body}, nil
}

// expand reads the object of an event by what it is.
func (r *rail) expand(ctx context.Context, a payments.Access, d payments.Delivery) ([]payments.Observation, error) {
	var e event
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return nil, payments.ErrInvalidReceipt.Because(err)
	}
	kind, _, _ := strings.Cut(e.Type, ".")
	switch kind {
	case "subscription":
		var s subscription
		if err := json.Unmarshal(e.Data, &s); err != nil || s.ID == "" {
			return nil, payments.ErrInvalidReceipt
		}
		return r.ofSubscription(ctx, a, s)
	case "transaction":
		var t transaction
		if err := json.Unmarshal(e.Data, &t); err != nil || t.ID == "" {
			return nil, payments.ErrInvalidReceipt
		}
		return fromTransaction(t), nil
	case "adjustment":
		var j adjustment
		if err := json.Unmarshal(e.Data, &j); err != nil || j.ID == "" {
			return nil, payments.ErrInvalidReceipt
		}
		return r.ofAdjustment(ctx, a, j)
	}
	return nil, nil
}

// redeem takes the transaction of a checkout.
func (r *rail) redeem(ctx context.Context, a payments.Access, s payments.Submission) ([]payments.Observation, error) {
	if !strings.HasPrefix(s.SessionID, "txn_") || len(s.SessionID) > 200 {
		return nil, payments.ErrInvalidReceipt
	}
	observations, err := r.transaction(ctx, a, s.SessionID)
	if err == nil && len(observations) == 0 {
		return nil, payments.ErrPurchasePending
	}
	return observations, err
}

// fetch asks for a subscription or a transaction, with the adjustments of it.
func (r *rail) fetch(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
	if strings.HasPrefix(ref.TransactionID, "txn_") {
		observations, err := r.transaction(ctx, a, ref.TransactionID)
		if err == nil && len(observations) > 0 {
			observations[0].Refunds, err = r.adjustments(ctx, a, "transaction_id", ref.TransactionID)
		}
		return observations, err
	}
	observations, err := r.subscription(ctx, a, ref.TransactionID)
	if err == nil {
		observations[0].Refunds, err = r.adjustments(ctx, a, "subscription_id", ref.TransactionID)
	}
	return observations, err
}
