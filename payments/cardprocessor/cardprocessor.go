// Package cardprocessor is the rail card_processor, wire-compatible with Stripe.
//
// A delivery only names what changed: subscriptions, sessions, charges and
// disputes are fetched, and the status comes from what was fetched. So deliveries may come in any
// order. Requests carry a pinned version of the API; deliveries of any version are accepted, as
// only ids are read from them.
package cardprocessor

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/strictjson"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/outbound"
	"github.com/kitbackend/kit/payments/internal/signature"
	"github.com/kitbackend/kit/secrets"
)

const (
	// ID is the id of the rail.
	ID = payments.RailCardProcessor
	// BaseURL is the address of the API.
	BaseURL = "https://api.stripe.com"
	// Version is the version of the API that requests are pinned to.
	Version = "2026-08-26.dahlia"
	// Tolerance is how far the time of a signature may differ from the kit's clock, in either
	// direction.
	Tolerance = 300 * time.Second
	// accountKey is the member of an object's metadata that holds the token of the
	// subject.
	accountKey = "kit_account"
)

// Options replace the address and client of the rail. The zero value is Stripe's.
type Options struct {
	// BaseURL replaces the address of the API: https, or http on loopback.
	BaseURL string
	// HTTP makes the requests; nil means a client of the rail's own.
	HTTP *http.Client
}

// New returns the rail. It panics if Options.BaseURL is not https, or http on loopback.
func New(o Options) payments.Rail {
	r := &rail{base: outbound.MustBase(ID, o.BaseURL, BaseURL), client: outbound.New(ID, o.HTTP)}
	return payments.Rail{
		ID:               ID,
		Credentials:      secrets.Block{Name: string(ID), Required: []string{"apiKey", "webhookSecret"}},
		CheckCredentials: checkCredentials,
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
	base   string
	client *outbound.Client
}

var apiKey = regexp.MustCompile(`^(sk|rk)_(live|test)_[A-Za-z0-9_]{8,}$`)

// checkCredentials refuses keys of the other environment, which keys name.
func checkCredentials(environment payments.StoreEnvironment, fields secrets.Fields) error {
	parts := apiKey.FindStringSubmatch(fields["apiKey"].Reveal())
	if parts == nil {
		return outbound.Problem("The apiKey of card_processor is not a secret key, which starts with sk_ or rk_.")
	}
	if (parts[2] == "live") != (environment == payments.EnvironmentProduction) {
		return outbound.Problem("The apiKey of card_processor is of another environment than this deployment.")
	}
	if !strings.HasPrefix(fields["webhookSecret"].Reveal(), "whsec_") || len(fields["webhookSecret"].Reveal()) < 16 {
		return outbound.Problem("The webhookSecret of card_processor is not a signing secret, which starts with whsec_.")
	}
	return nil
}

var form = signature.Header{Name: "Stripe-Signature", Separator: ",", Time: "t", Signature: "v1", Joint: "."}

// event holds the members of a delivery that are read.
type event struct {
	ID       string `json:"id"`
	Object   string `json:"object"`
	Type     string `json:"type"`
	Created  int64  `json:"created"`
	Livemode *bool  `json:"livemode"`
	Data     struct {
		Object struct {
			ID            string    `json:"id"`
			Object        string    `json:"object"`
			Charge        reference `json:"charge"`
			PaymentIntent reference `json:"payment_intent"`
			Subscription  reference `json:"subscription"`
			Parent        parent    `json:"parent"`
			Mode          string    `json:"mode"`
		} `json:"object"`
	} `json:"data"`
}

// verify accepts a signature by the current secret or the one before the rotation.
func verify(_ context.Context, a payments.Access, h http.Header, body []byte) (payments.Delivery, error) {
	keys := [][]byte{[]byte(a.Credentials["webhookSecret"].Reveal()), []byte(a.Previous["webhookSecret"].Reveal())}
	if err := form.Verify(h, body, keys, a.Now(), Tolerance); err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	return delivery(body)
}

// delivery reads an event. It refuses a signed body that is no event like an invalid proof, because
// it could not be recorded.
func delivery(body []byte) (payments.Delivery, error) {
	var e event
	if strictjson.Valid(body) != nil || json.Unmarshal(body, &e) != nil ||
		e.Object != "event" || e.ID == "" || len(e.ID) > 200 || e.Livemode == nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(proof.ErrNoEvent)
	}
	return payments.Delivery{
		ID: e.ID, Type: e.Type, At: seconds(e.Created), Environment: environment(*e.Livemode), Body: body,
	}, nil
}

func environment(livemode bool) payments.StoreEnvironment {
	if livemode {
		return payments.EnvironmentProduction
	}
	return payments.EnvironmentSandbox
}

// expand fetches the objects of an event. Events that are not about a purchase, or
// about one made elsewhere than through subscriptions and sessions, are skipped.
func (r *rail) expand(ctx context.Context, a payments.Access, d payments.Delivery) ([]payments.Observation, error) {
	var e event
	if err := json.Unmarshal(d.Body, &e); err != nil {
		return nil, payments.ErrInvalidReceipt.Because(err)
	}
	o := e.Data.Object
	switch o.Object {
	case "subscription":
		return r.subscription(ctx, a, o.ID, "")
	case "invoice":
		id := o.Subscription
		if id == "" {
			id = o.Parent.Details.Subscription
		}
		if id == "" {
			return nil, nil
		}
		return r.subscription(ctx, a, string(id), "")
	case "checkout.session":
		if e.Type == "checkout.session.expired" || o.Mode == "setup" {
			return nil, nil
		}
		return r.session(ctx, a, o.ID)
	case "charge":
		return r.charge(ctx, a, o.ID, string(o.PaymentIntent))
	case "refund", "dispute":
		return r.charge(ctx, a, string(o.Charge), string(o.PaymentIntent))
	}
	return nil, nil
}

var sessionID = regexp.MustCompile(`^cs_[A-Za-z0-9_]{1,190}$`)

// redeem takes the session of a checkout.
func (r *rail) redeem(ctx context.Context, a payments.Access, s payments.Submission) ([]payments.Observation, error) {
	if !sessionID.MatchString(s.SessionID) {
		return nil, payments.ErrInvalidReceipt
	}
	observations, err := r.session(ctx, a, s.SessionID)
	if err == nil && len(observations) == 0 {
		return nil, payments.ErrPurchasePending
	}
	return observations, err
}

// fetch asks for a subscription or a session.
func (r *rail) fetch(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
	if strings.HasPrefix(ref.TransactionID, "cs_") {
		return r.session(ctx, a, ref.TransactionID)
	}
	return r.subscription(ctx, a, ref.TransactionID, "")
}
