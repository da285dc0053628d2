// Package stripetest compares the rail card_processor with the vendor's own
// programs: signatures with stripe-go, requests with stripe-mock, which checks
// them against the description of the API. It is a module of its own, so that the
// kit depends on neither.
package stripetest

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
	"github.com/stripe/stripe-go/v85/webhook"
)

const (
	secret = "whsec_stripetest_0000000000"
	body   = `{"id":"evt_1","object":"event","created":1,"livemode":false,"type":"x","data":{"object":{}}}`
)

func access() payments.Access {
	var mu sync.Mutex
	var version int64
	return payments.Access{
		Credentials: secrets.Fields{"apiKey": secrets.NewValue("sk_test_123"), "webhookSecret": secrets.NewValue(secret)},
		Environment: payments.EnvironmentSandbox, Now: time.Now,
		Version: func(context.Context, string) (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			version++
			return version, nil
		},
		Kind: func(string) payments.ProductKind { return payments.KindSubscription },
	}
}

func TestSignaturesOfTheVendorAreAccepted(t *testing.T) {
	signed := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret})
	rail := cardprocessor.New(cardprocessor.Options{})
	d, err := rail.Verify(t.Context(), access(), http.Header{"Stripe-Signature": {signed.Header}}, []byte(body))
	if err != nil || d.ID != "evt_1" {
		t.Errorf("%+v: %v", d, err)
	}
	if _, err := rail.Verify(t.Context(), access(), http.Header{"Stripe-Signature": {signed.Header}}, []byte(body+" ")); err == nil {
		t.Error("another body is accepted")
	}
}

func TestTheVendorAcceptsOurSignatures(t *testing.T) {
	h := sign.CardProcessor(secret, []byte(body), time.Now())
	if err := webhook.ValidatePayload([]byte(body), h.Get("Stripe-Signature"), secret); err != nil {
		t.Error(err)
	}
}

// recorder keeps what the mock returned.
type recorder struct {
	mu   sync.Mutex
	seen []string
	bad  []string
}

func (r *recorder) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	call := request.Method + " " + request.URL.Path
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(strings.NewReader(string(text)))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, call)
	if response.StatusCode != http.StatusOK {
		r.bad = append(r.bad, call+"?"+request.URL.RawQuery+": "+response.Status+" "+string(text))
	}
	return response, nil
}

// Every request that the rail makes is one of the API.
func TestRequestsAreAccepted(t *testing.T) {
	address := os.Getenv("KIT_TEST_STRIPE_MOCK")
	if address == "" {
		t.Skip("KIT_TEST_STRIPE_MOCK is not set")
	}
	record := &recorder{}
	rail := cardprocessor.New(cardprocessor.Options{BaseURL: address, HTTP: &http.Client{Transport: record}})
	a, ctx := access(), t.Context()
	for _, kind := range []payments.ProductKind{payments.KindSubscription, payments.KindConsumable} {
		made, err := rail.Checkout(ctx, a, payments.CheckoutRequest{
			Product: payments.Product{Kind: kind}, Store: payments.StoreIDs{PriceID: "price_1"}, Quantity: 2, AccountToken: "7e3fb20b-4cdb-47cc-936d-99d65f608138",
			DiscountID: "promo_1", Success: "https://example.com/ok", Cancel: "https://example.com/no", IdempotencyKey: "k",
		})
		if err != nil || made.SessionID == "" || made.CustomerID == "" {
			t.Errorf("a checkout of a %s: %+v, %v", kind, made, err)
		}
	}
	if p, err := rail.Portal(ctx, a, payments.PortalRequest{CustomerID: "cus_1", Return: "https://example.com"}); err != nil || p.URL == "" {
		t.Errorf("a portal: %+v, %v", p, err)
	}
	for _, d := range []payments.DiscountRequest{
		{Code: "A", Kind: payments.DiscountPercentage, PercentBasisPoints: 1250, Duration: payments.DurationRepeating, Months: 3, MaxRedemptions: 10, EndsAt: payments.At(time.Now().Add(time.Hour))},
		{Code: "B", Kind: payments.DiscountFixed, AmountMinor: 500, Currency: "usd", Duration: payments.DurationOnce, ProductIDs: []payments.StoreIDs{{ProductID: "prod_1"}}},
		{Code: "C", Kind: payments.DiscountPercentage, PercentBasisPoints: 10_000, Duration: payments.DurationForever},
	} {
		if id, err := rail.CreateDiscount(ctx, a, d); err != nil || id == "" {
			t.Errorf("the discount %s: %q, %v", d.Code, id, err)
		}
	}
	ref := payments.Ref{TransactionID: "sub_1"}
	if _, err := rail.Pricing(ctx, a, ref); err != nil {
		t.Errorf("the price: %v", err)
	}
	if out, err := rail.Fetch(ctx, a, ref); err != nil || out[0].CustomerID == "" || out[0].Lifecycle.ProductID == "" || out[0].Lifecycle.CancelAt == 0 {
		t.Errorf("a subscription: %+v, %v", out, err)
	}
	// What the mock makes up of these does not fit together: that the requests are
	// accepted is what counts.
	_, _ = rail.OfCustomer(ctx, a, "cus_1")
	_, _ = rail.Redeem(ctx, a, payments.Submission{SessionID: "cs_1"})
	_, _ = rail.History(ctx, a, payments.Window{Since: 1000, Until: payments.At(time.Now()), Limit: 10, Cursor: "evt_1"})
	for _, object := range []string{
		`{"id":"ch_1","object":"charge","payment_intent":"pi_1"}`, `{"id":"dp_1","object":"dispute","charge":"ch_1","payment_intent":"pi_1"}`,
	} {
		event := `{"id":"evt_1","object":"event","livemode":false,"type":"x","data":{"object":` + object + `}}`
		_, _ = rail.Expand(ctx, a, payments.Delivery{Body: []byte(event)})
	}
	for _, bad := range record.bad {
		t.Error(bad)
	}
	for _, call := range []string{
		"POST /v1/customers", "POST /v1/checkout/sessions", "POST /v1/billing_portal/sessions", "POST /v1/coupons", "POST /v1/promotion_codes",
		"POST /v1/invoices/create_preview", "GET /v1/subscriptions/sub_1", "GET /v1/invoices", "GET /v1/subscriptions",
		"GET /v1/checkout/sessions", "GET /v1/checkout/sessions/cs_1", "GET /v1/events", "GET /v1/invoice_payments", "GET /v1/charges/ch_1", "GET /v1/disputes",
	} {
		found := false
		for _, seen := range record.seen {
			found = found || seen == call
		}
		if !found {
			t.Errorf("the rail never asked for %s", call)
		}
	}
}
