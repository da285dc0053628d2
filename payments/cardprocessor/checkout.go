package cardprocessor

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

// checkout makes a session. The subject's token is set on all objects that the session makes, so
// that each of them names the subject.
func (r *rail) checkout(ctx context.Context, a payments.Access, c payments.CheckoutRequest) (payments.Checkout, error) {
	if c.Store.PriceID == "" {
		return payments.Checkout{}, payments.ErrProductUnavailable
	}
	customer := c.CustomerID
	if customer == "" {
		var err error
		if customer, err = r.customer(ctx, a, c.AccountToken); err != nil {
			return payments.Checkout{}, err
		}
	}
	form := url.Values{
		"line_items[0][price]":         {c.Store.PriceID},
		"line_items[0][quantity]":      {strconv.FormatInt(max(c.Quantity, 1), 10)},
		"customer":                     {customer},
		"client_reference_id":          {c.AccountToken},
		"metadata[" + accountKey + "]": {c.AccountToken},
		"success_url":                  {c.Success},
		"cancel_url":                   {c.Cancel},
	}
	if c.Product.Kind == payments.KindSubscription {
		form.Set("mode", "subscription")
		form.Set("subscription_data[metadata]["+accountKey+"]", c.AccountToken)
	} else {
		form.Set("mode", "payment")
		form.Set("payment_intent_data[metadata]["+accountKey+"]", c.AccountToken)
	}
	if c.DiscountID != "" {
		form.Set("discounts[0][promotion_code]", c.DiscountID)
	}
	var s session
	response, err := r.call(ctx, a, http.MethodPost, "/v1/checkout/sessions", form, c.IdempotencyKey, &s)
	if err != nil {
		return payments.Checkout{}, err
	}
	if !response.OK() {
		if _, param := failure(response); response.Status == http.StatusBadRequest && param == "line_items[0][price]" {
			return payments.Checkout{}, payments.ErrProductUnavailable
		}
		return payments.Checkout{}, r.client.Unexpected(response)
	}
	return payments.Checkout{SessionID: s.ID, URL: s.URL, CustomerID: customer, ExpiresAt: seconds(s.ExpiresAt)}, nil
}

// customer makes the customer of a subject, once for each token.
func (r *rail) customer(ctx context.Context, a payments.Access, token string) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	form := url.Values{"metadata[" + accountKey + "]": {token}}
	response, err := r.call(ctx, a, http.MethodPost, "/v1/customers", form, "kit-customer-"+token, &made)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return made.ID, err
}

func (r *rail) portal(ctx context.Context, a payments.Access, p payments.PortalRequest) (payments.Portal, error) {
	if p.CustomerID == "" {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	var made struct {
		URL string `json:"url"`
	}
	form := url.Values{"customer": {p.CustomerID}, "return_url": {p.Return}}
	response, err := r.call(ctx, a, http.MethodPost, "/v1/billing_portal/sessions", form, "", &made)
	if err != nil || response.OK() {
		return payments.Portal{URL: made.URL}, err
	}
	if code, param := failure(response); code == "resource_missing" && param == "customer" {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	return payments.Portal{}, r.client.Unexpected(response)
}

// pricing requests a preview of the next invoice; a subscription that ends has none.
func (r *rail) pricing(ctx context.Context, a payments.Access, ref payments.Ref) (payments.Price, error) {
	var s subscription
	found, err := r.get(ctx, a, "/v1/subscriptions/"+outbound.Segment(ref.TransactionID), nil, &s)
	if err != nil {
		return payments.Price{}, err
	}
	now := current(s)
	if !found || now == nil {
		return payments.Price{}, payments.ErrPurchaseNotFound
	}
	var next invoice
	form := url.Values{"subscription": {ref.TransactionID}}
	response, err := r.call(ctx, a, http.MethodPost, "/v1/invoices/create_preview", form, "", &next)
	if err != nil {
		return payments.Price{}, err
	}
	if !response.OK() {
		if code, _ := failure(response); code == "invoice_upcoming_none" || response.Status == http.StatusNotFound {
			return *now, nil
		}
		return payments.Price{}, r.client.Unexpected(response)
	}
	now.Next = &payments.NextPrice{
		AmountMinor: minor(next.AmountDue, next.Currency), Currency: money.Currency(next.Currency), At: seconds(next.NextAttempt),
	}
	if now.Next.At == 0 {
		now.Next.At = seconds(next.PeriodEnd)
	}
	return *now, nil
}

// createDiscount makes a coupon and the code that stands for it. The id is that
// of the code.
func (r *rail) createDiscount(ctx context.Context, a payments.Access, d payments.DiscountRequest) (string, error) {
	form := url.Values{"duration": {string(d.Duration)}}
	if d.Kind == payments.DiscountPercentage {
		form.Set("percent_off", strconv.FormatFloat(float64(d.PercentBasisPoints)/100, 'f', -1, 64))
	} else {
		form.Set("amount_off", strconv.FormatInt(apiAmount(d.AmountMinor, d.Currency), 10))
		form.Set("currency", d.Currency)
	}
	if d.Duration == payments.DurationRepeating {
		form.Set("duration_in_months", strconv.FormatInt(d.Months, 10))
	}
	for i, product := range d.ProductIDs {
		form.Set("applies_to[products]["+strconv.Itoa(i)+"]", product.ProductID)
	}
	coupon, err := r.make(ctx, a, "/v1/coupons", form, keyed(d.IdempotencyKey, "-coupon"))
	if err != nil {
		return "", err
	}
	form = url.Values{"promotion[type]": {"coupon"}, "promotion[coupon]": {coupon}, "code": {d.Code}}
	if d.MaxRedemptions > 0 {
		form.Set("max_redemptions", strconv.FormatInt(d.MaxRedemptions, 10))
	}
	if d.EndsAt > 0 {
		form.Set("expires_at", strconv.FormatInt(int64(d.EndsAt)/1000, 10))
	}
	return r.make(ctx, a, "/v1/promotion_codes", form, keyed(d.IdempotencyKey, "-code"))
}

func keyed(key, suffix string) string {
	if key == "" {
		return ""
	}
	return key + suffix
}

func (r *rail) make(ctx context.Context, a payments.Access, path string, form url.Values, key string) (string, error) {
	var made struct {
		ID string `json:"id"`
	}
	response, err := r.call(ctx, a, http.MethodPost, path, form, key, &made)
	if err != nil || response.OK() {
		return made.ID, err
	}
	if code, param := failure(response); code == "resource_already_exists" || response.Status == http.StatusBadRequest && param == "code" {
		return "", payments.ErrDiscountConflict
	}
	return "", r.client.Unexpected(response)
}

// cancel lets a subscription end with its period.
func (r *rail) cancel(ctx context.Context, a payments.Access, ref payments.Ref) error {
	path := "/v1/subscriptions/" + outbound.Segment(ref.TransactionID)
	var s subscription
	found, err := r.get(ctx, a, path, nil, &s)
	if err != nil {
		return err
	}
	if !found {
		return payments.ErrPurchaseNotFound
	}
	if s.Status == "canceled" || s.Status == "incomplete_expired" || s.CancelAtPeriodEnd {
		return nil
	}
	response, err := r.call(ctx, a, http.MethodPost, path, url.Values{"cancel_at_period_end": {"true"}}, "", nil)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return err
}
