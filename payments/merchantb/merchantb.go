// Package merchantb is the rail merchant_b, wire-compatible with Polar, whose
// webhooks are Standard Webhooks.
//
// Deliveries carry the whole object, whose time of change orders them. The name of an event is used
// only to know which object it carries. The merchant of record may refund on its own: for a refund
// its order is fetched.
//
// The store delivers nothing about a dispute that was lost, so reconcile reads those. For that the
// access token needs the scope disputes:read; without it a payer whose bank took the money keeps what
// they bought once.
//
// A checkout puts the account token into its metadata, which its order and subscription have as
// well; that alone names who bought. The external id of a checkout becomes that of the customer
// only if the address that the payer types is new: a customer found by its address keeps the
// external id of the payer who typed it first. So the external id of a customer names nobody, and opens
// no portal.
package merchantb

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
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
	ID = payments.RailMerchantB
	// BaseURL is the address of the API.
	BaseURL = "https://api.polar.sh"
	// SandboxURL is the address of the API for tests.
	SandboxURL = "https://sandbox-api.polar.sh"
	// Version is the version of the API that requests are pinned to.
	Version = "2026-10"
	// Tolerance is how far the time of a signature may differ from the kit's clock, in either
	// direction.
	Tolerance = 300 * time.Second

	accountKey = "kit_account"
)

// Options adjust the rail. The zero value is Polar's.
type Options struct {
	// BaseURL replaces the address of the API: https, or http on loopback.
	BaseURL string
	// HTTP makes the requests; nil means a client of the rail's own.
	HTTP *http.Client
}

// New returns the rail. It panics if Options.BaseURL is not https, or http on loopback.
func New(o Options) payments.Rail {
	r := &rail{client: outbound.New(ID, o.HTTP)}
	r.production = outbound.MustBase(ID, o.BaseURL, BaseURL)
	r.sandbox = outbound.MustBase(ID, o.BaseURL, SandboxURL)
	return payments.Rail{
		ID:               ID,
		Credentials:      secrets.Block{Name: string(ID), Required: []string{"accessToken", "webhookSecret"}},
		CheckCredentials: checkCredentials,
		MerchantOfRecord: true,
		CustomersByEmail: true,
		Verify:           verify,
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
	client              *outbound.Client
}

// checkCredentials refuses credentials that are too short. Tokens and secrets do not name their
// environment; those of another one fail to verify.
func checkCredentials(_ payments.StoreEnvironment, fields secrets.Fields) error {
	if len(fields["accessToken"].Reveal()) < 8 {
		return outbound.Problem("The accessToken of merchant_b is too short.")
	}
	if len(fields["webhookSecret"].Reveal()) < 16 {
		return outbound.Problem("The webhookSecret of merchant_b is too short.")
	}
	return nil
}

// keys returns the two keys of a secret: the bytes of its text, and those that the standard form
// "whsec_" and base64 encodes.
func keys(secret string) [][]byte {
	if secret == "" {
		return nil
	}
	list := [][]byte{[]byte(secret)}
	if decoded, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_")); err == nil {
		list = append(list, decoded)
	}
	return list
}

type event struct {
	Type      string          `json:"type"`
	Timestamp stamp.Time      `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
}

// verify accepts any of several signatures, by the current secret or the one before the rotation,
// in both forms.
func verify(_ context.Context, a payments.Access, h http.Header, body []byte) (payments.Delivery, error) {
	candidates := append(keys(a.Credentials["webhookSecret"].Reveal()), keys(a.Previous["webhookSecret"].Reveal())...)
	id, err := signature.Standard(h, body, candidates, a.Now(), Tolerance)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	var e event
	if len(id) > 200 || strictjson.Valid(body) != nil || json.Unmarshal(body, &e) != nil || e.Type == "" {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(proof.ErrNoEvent)
	}
	return payments.Delivery{ID: id, Type: e.Type, At: e.Timestamp.Instant(), Body: body}, nil
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
		return r.ofSubscription(ctx, a, s, e.Timestamp)
	case "order":
		var o order
		if err := json.Unmarshal(e.Data, &o); err != nil || o.ID == "" {
			return nil, payments.ErrInvalidReceipt
		}
		return fromOrder(o, e.Timestamp), nil
	case "refund":
		var back refund
		if err := json.Unmarshal(e.Data, &back); err != nil || back.ID == "" {
			return nil, payments.ErrInvalidReceipt
		}
		return r.ofRefund(ctx, a, back, e.Timestamp)
	}
	return nil, nil
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// redeem takes the id of a checkout.
func (r *rail) redeem(ctx context.Context, a payments.Access, s payments.Submission) ([]payments.Observation, error) {
	if !uuid.MatchString(s.SessionID) {
		return nil, payments.ErrInvalidReceipt
	}
	var orders list[order]
	if _, err := r.get(ctx, a, "/v1/orders/", map[string][]string{"checkout_id": {s.SessionID}}, &orders); err != nil {
		return nil, err
	}
	var all []payments.Observation
	for _, o := range orders.Items {
		if o.CheckoutID != s.SessionID {
			continue
		}
		observations, err := r.ofOrder(ctx, a, o)
		if err != nil {
			return nil, err
		}
		all = append(all, observations...)
	}
	if len(all) == 0 {
		return nil, r.unfinished(ctx, a, s.SessionID)
	}
	return all, nil
}

// unfinished distinguishes an unpaid checkout from one that does not exist.
func (r *rail) unfinished(ctx context.Context, a payments.Access, id string) error {
	var made checkout
	found, err := r.get(ctx, a, "/v1/checkouts/"+outbound.Segment(id), nil, &made)
	switch {
	case err != nil:
		return err
	case !found:
		return payments.ErrPurchaseNotFound
	case made.Status == "expired" || made.Status == "failed":
		return payments.ErrInvalidReceipt
	}
	return payments.ErrPurchasePending
}

// fetch asks for a purchase, which is a subscription or an order.
func (r *rail) fetch(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
	if ref.Kind == payments.KindOneTime || ref.Kind == payments.KindConsumable {
		return r.order(ctx, a, ref.TransactionID)
	}
	s, err := r.subscription(ctx, a, ref.TransactionID)
	if errors.Is(err, payments.ErrPurchaseNotFound) && ref.Kind == "" {
		return r.order(ctx, a, ref.TransactionID)
	}
	if err != nil {
		return nil, err
	}
	return r.ofSubscription(ctx, a, s, stamp.Time{})
}
