package merchanta

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

const (
	// maxTransactions and maxAdjustments are how many a page has at most, and maxPages is how many
	// pages are read of the transactions of a customer or the adjustments of a purchase. Of the
	// transactions of a subscription one is read.
	maxTransactions = 30
	maxAdjustments  = 50
	maxPages        = 10
	// maxOfCustomer bounds what is read of the subscriptions of a customer.
	maxOfCustomer = 20
	maxEvents     = 200
)

// get reads the data of a response; found is false when there is none.
func (r *rail) get(ctx context.Context, a payments.Access, path string, query url.Values, into any) (found bool, err error) {
	response, err := r.call(ctx, a, http.MethodGet, path, query, nil, into)
	if err != nil || response.OK() {
		return err == nil, err
	}
	if response.Status == http.StatusNotFound {
		return false, nil
	}
	return false, r.client.Unexpected(response)
}

// call sends JSON. It retries only reads, because the API has no idempotency keys.
func (r *rail) call(ctx context.Context, a payments.Access, method, path string, query url.Values, body, into any) (outbound.Response, error) {
	request := outbound.Request{
		Now: a.Now, Method: method, Base: r.sandbox, Path: path, Query: query, Repeatable: method == http.MethodGet,
		Header: http.Header{"Authorization": {"Bearer " + a.Credentials["apiKey"].Reveal()}, "Paddle-Version": {"1"}},
	}
	if a.Environment == payments.EnvironmentProduction {
		request.Base = r.production
	}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return outbound.Response{}, err
		}
		request.Body = text
		request.Header.Set("Content-Type", "application/json")
	}
	return r.client.JSON(ctx, request, &struct {
		Data any `json:"data"`
	}{into})
}

// ofSubscription adds the payments of a subscription if its status depends on them.
func (r *rail) ofSubscription(ctx context.Context, a payments.Access, s subscription) ([]payments.Observation, error) {
	var p paid
	if s.asks() {
		var found []transaction
		query := url.Values{
			"subscription_id": {s.ID}, "status": {"completed,paid,past_due"},
			"order_by": {"billed_at[DESC]"}, "per_page": {strconv.Itoa(maxTransactions)},
		}
		if _, err := r.get(ctx, a, "/transactions", query, &found); err != nil {
			return nil, err
		}
		for _, t := range found {
			if t.settled() {
				p.charges = append(p.charges, charge(t))
			} else if t.Status == "past_due" {
				p.overdue = true
			}
		}
	}
	return []payments.Observation{fromSubscription(s, p)}, nil
}

func (r *rail) subscription(ctx context.Context, a payments.Access, id string) ([]payments.Observation, error) {
	var s subscription
	found, err := r.get(ctx, a, "/subscriptions/"+outbound.Segment(id), nil, &s)
	if err != nil {
		return nil, err
	}
	if !found || s.ID != id {
		return nil, payments.ErrPurchaseNotFound
	}
	return r.ofSubscription(ctx, a, s)
}

// transaction fetches one, with the subscription that it is of.
func (r *rail) transaction(ctx context.Context, a payments.Access, id string) ([]payments.Observation, error) {
	var t transaction
	found, err := r.get(ctx, a, "/transactions/"+outbound.Segment(id), nil, &t)
	if err != nil {
		return nil, err
	}
	if !found || t.ID != id {
		return nil, payments.ErrPurchaseNotFound
	}
	observations := fromTransaction(t)
	if t.SubscriptionID == "" {
		return observations, nil
	}
	whole, err := r.subscription(ctx, a, t.SubscriptionID)
	return append(whole, observations...), err
}

// ofAdjustment fetches the purchase of an adjustment, because a refund may be the first report of a
// purchase.
func (r *rail) ofAdjustment(ctx context.Context, a payments.Access, j adjustment) ([]payments.Observation, error) {
	back, ok := refund(j)
	if j.credits() {
		list, all, err := r.listAdjustments(ctx, a, "transaction_id", j.TransactionID)
		if err != nil || !all {
			return nil, err
		}
		if !slices.ContainsFunc(list, func(listed adjustment) bool { return listed.ID == j.ID }) {
			list = append(list, j) // it is not listed yet
		}
		back, ok = credit(j.TransactionID, list)
	}
	if !ok {
		return nil, nil
	}
	observations, err := r.transaction(ctx, a, j.TransactionID)
	if err != nil || len(observations) == 0 {
		return nil, err
	}
	observations[0].Refunds = []payments.Refund{back}
	return observations, nil
}

// listAdjustments fetches the newest adjustments of a transaction or subscription; all is false if
// there may be more. Credits are not summed then.
func (r *rail) listAdjustments(ctx context.Context, a payments.Access, by, id string) (list []adjustment, all bool, err error) {
	return pages(ctx, r, a, "/adjustments", url.Values{by: {id}}, maxAdjustments, func(j adjustment) string { return j.ID })
}

// pages reads the newest entries of a list; all is false if there may be more.
func pages[T any](ctx context.Context, r *rail, a payments.Access, path string, query url.Values, size int, id func(T) string) (list []T, all bool, err error) {
	query.Set("order_by", "id[DESC]")
	query.Set("per_page", strconv.Itoa(size))
	for range maxPages {
		var page []T
		if _, err := r.get(ctx, a, path, query, &page); err != nil {
			return nil, false, err
		}
		list = append(list, page...)
		if len(page) < size {
			return list, true, nil
		}
		query.Set("after", id(page[len(page)-1]))
	}
	return list, false, nil
}

// adjustments fetches the refunds of a transaction or subscription.
func (r *rail) adjustments(ctx context.Context, a payments.Access, by, id string) ([]payments.Refund, error) {
	found, all, err := r.listAdjustments(ctx, a, by, id)
	if err != nil {
		return nil, err
	}
	var list []payments.Refund
	summed := make(map[string]bool)
	for _, j := range found {
		back, ok := refund(j)
		if j.credits() && !summed[j.TransactionID] && all {
			summed[j.TransactionID] = true
			back, ok = credit(j.TransactionID, found)
		}
		if ok {
			list = append(list, back)
		}
	}
	return list, nil
}

// ofCustomer fetches the newest subscriptions and single purchases of a customer.
func (r *rail) ofCustomer(ctx context.Context, a payments.Access, customerID string) ([]payments.Observation, error) {
	var all []payments.Observation
	query := url.Values{"customer_id": {customerID}, "order_by": {"id[DESC]"}, "per_page": {strconv.Itoa(maxOfCustomer)}}
	var subscriptions []subscription
	if _, err := r.get(ctx, a, "/subscriptions", query, &subscriptions); err != nil {
		return nil, err
	}
	for _, s := range subscriptions {
		observations, err := r.ofSubscription(ctx, a, s)
		if err != nil {
			return nil, err
		}
		all = append(all, observations...)
	}
	query = url.Values{"customer_id": {customerID}, "status": {"completed,paid"}}
	transactions, _, err := pages(ctx, r, a, "/transactions", query, maxTransactions, func(t transaction) string { return t.ID })
	if err != nil {
		return nil, err
	}
	for _, t := range transactions {
		all = append(all, fromTransaction(t)...)
	}
	return all, nil
}

// history reads the events before the cursor, the newest first, back to the
// beginning of the window.
func (r *rail) history(ctx context.Context, a payments.Access, w payments.Window) (payments.HistoryPage, error) {
	query := url.Values{"order_by": {"id[DESC]"}, "per_page": {strconv.Itoa(min(max(w.Limit, 1), maxEvents))}}
	if w.Cursor != "" {
		query.Set("after", w.Cursor)
	}
	var events []json.RawMessage
	if _, err := r.get(ctx, a, "/events", query, &events); err != nil {
		return payments.HistoryPage{}, err
	}
	var page payments.HistoryPage
	for _, raw := range events {
		d, err := delivery(raw)
		if err != nil {
			continue
		}
		if d.At < w.Since {
			page.Next = ""
			return page, nil
		}
		page.Next = d.ID
		if d.At <= w.Until && handled(d.Type) {
			page.Deliveries = append(page.Deliveries, d)
		}
	}
	if len(events) < min(max(w.Limit, 1), maxEvents) {
		page.Next = ""
	}
	return page, nil
}

func handled(event string) bool {
	kind, _, _ := strings.Cut(event, ".")
	return kind == "subscription" || kind == "transaction" || kind == "adjustment"
}

func (r *rail) checkout(ctx context.Context, a payments.Access, c payments.CheckoutRequest) (payments.Checkout, error) {
	if c.Store.PriceID == "" {
		return payments.Checkout{}, payments.ErrProductUnavailable
	}
	body := map[string]any{
		"items":       []map[string]any{{"price_id": c.Store.PriceID, "quantity": max(c.Quantity, 1)}},
		"custom_data": map[string]string{accountKey: c.AccountToken},
		"checkout":    map[string]string{"url": c.Success},
	}
	if c.CustomerID != "" {
		body["customer_id"] = c.CustomerID
	}
	if c.DiscountID != "" {
		body["discount_id"] = c.DiscountID
	}
	var t transaction
	response, err := r.call(ctx, a, http.MethodPost, "/transactions", nil, body, &t)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	if err == nil && t.Checkout == nil {
		err = errors.New("merchant_a made a transaction without a checkout")
	}
	if err != nil {
		return payments.Checkout{}, err
	}
	return payments.Checkout{SessionID: t.ID, URL: t.Checkout.URL, CustomerID: t.CustomerID}, nil
}

func (r *rail) portal(ctx context.Context, a payments.Access, p payments.PortalRequest) (payments.Portal, error) {
	if p.CustomerID == "" {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	var made struct {
		URLs struct {
			General struct {
				Overview string `json:"overview"`
			} `json:"general"`
		} `json:"urls"`
	}
	path := "/customers/" + outbound.Segment(p.CustomerID) + "/portal-sessions"
	response, err := r.call(ctx, a, http.MethodPost, path, nil, map[string]any{}, &made)
	if err == nil && response.Status == http.StatusNotFound {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return payments.Portal{URL: made.URLs.General.Overview}, err
}

func (r *rail) pricing(ctx context.Context, a payments.Access, ref payments.Ref) (payments.Price, error) {
	var s subscription
	path := "/subscriptions/" + outbound.Segment(ref.TransactionID)
	if _, err := r.get(ctx, a, path, url.Values{"include": {"next_transaction"}}, &s); err != nil {
		return payments.Price{}, err
	}
	now := current(s)
	if now == nil {
		return payments.Price{}, payments.ErrPurchaseNotFound
	}
	if s.Next != nil {
		t := s.Next.Details.Totals
		now.Next = &payments.NextPrice{AmountMinor: amount(t.Total), Currency: money.Currency(t.Currency), At: s.NextBilled.Instant()}
	}
	return *now, nil
}

func (r *rail) createDiscount(ctx context.Context, a payments.Access, d payments.DiscountRequest) (string, error) {
	body := map[string]any{
		"code": d.Code, "description": d.Code, "enabled_for_checkout": true, "recur": d.Duration != payments.DurationOnce,
	}
	if d.Kind == payments.DiscountPercentage {
		body["type"], body["amount"] = "percentage", strconv.FormatFloat(float64(d.PercentBasisPoints)/100, 'f', -1, 64)
	} else {
		body["type"], body["amount"], body["currency_code"] = "flat", strconv.FormatInt(d.AmountMinor, 10), d.Currency
	}
	if d.Duration == payments.DurationRepeating {
		body["maximum_recurring_intervals"] = d.Months
	}
	if d.MaxRedemptions > 0 {
		body["usage_limit"] = d.MaxRedemptions
	}
	if d.EndsAt > 0 {
		body["expires_at"] = d.EndsAt.Time().Format("2006-01-02T15:04:05.000Z")
	}
	if len(d.ProductIDs) > 0 {
		var only []string
		for _, product := range d.ProductIDs {
			only = append(only, product.ProductID)
		}
		body["restrict_to"] = only
	}
	var made struct {
		ID string `json:"id"`
	}
	response, err := r.call(ctx, a, http.MethodPost, "/discounts", nil, body, &made)
	if err == nil && response.Status == http.StatusConflict {
		return "", payments.ErrDiscountConflict
	}
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return made.ID, err
}

// cancel lets a subscription end with its period.
func (r *rail) cancel(ctx context.Context, a payments.Access, ref payments.Ref) error {
	path := "/subscriptions/" + outbound.Segment(ref.TransactionID)
	var s subscription
	found, err := r.get(ctx, a, path, nil, &s)
	if err != nil {
		return err
	}
	if !found {
		return payments.ErrPurchaseNotFound
	}
	if s.Status == "canceled" || s.Scheduled != nil && s.Scheduled.Action == "cancel" {
		return nil
	}
	body := map[string]string{"effective_from": "next_billing_period"}
	response, err := r.call(ctx, a, http.MethodPost, path+"/cancel", nil, body, nil)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return err
}
