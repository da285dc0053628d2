package merchantb

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/outbound"
	"github.com/kitbackend/kit/payments/internal/stamp"
)

const (
	// maxOfCustomer is how many entries a page of the lists of a customer has, and customerPages how
	// many pages are read of each.
	maxOfCustomer = 100
	customerPages = 4
	// historyPage is small enough that the purchase of each entry can be fetched within the
	// deadline of a call.
	historyPage = 20
	// refundAge is how long after it was made a refund may fail, and disputeAge how long banks take to
	// decide a dispute at most.
	refundAge  = 60 * 24 * time.Hour
	disputeAge = 180 * 24 * time.Hour
)

// get reads an object; found is false when there is none.
func (r *rail) get(ctx context.Context, a payments.Access, path string, query url.Values, into any) (found bool, err error) {
	response, err := r.call(ctx, a, http.MethodGet, path, query, nil, into)
	if err != nil || response.OK() {
		return err == nil, err
	}
	if response.Status == http.StatusNotFound || response.Status == http.StatusUnprocessableEntity {
		return false, nil
	}
	return false, r.client.Unexpected(response)
}

// call sends JSON. It retries only reads, because the API has no idempotency keys.
func (r *rail) call(ctx context.Context, a payments.Access, method, path string, query url.Values, body, into any) (outbound.Response, error) {
	request := outbound.Request{
		Now: a.Now, Method: method, Base: r.sandbox, Path: path, Query: query, Repeatable: method == http.MethodGet,
		Header: http.Header{"Authorization": {"Bearer " + a.Credentials["accessToken"].Reveal()}, "Polar-Version": {Version}},
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
	return r.client.JSON(ctx, request, into)
}

func (r *rail) subscription(ctx context.Context, a payments.Access, id string) (s subscription, err error) {
	found, err := r.get(ctx, a, "/v1/subscriptions/"+outbound.Segment(id), nil, &s)
	if err == nil && (!found || s.ID != id) {
		err = payments.ErrPurchaseNotFound
	}
	return s, err
}

// ofSubscription adds the orders of a subscription that has ended, because its status depends on
// whether any was paid.
func (r *rail) ofSubscription(ctx context.Context, a payments.Access, s subscription, said stamp.Time) ([]payments.Observation, error) {
	observations := []payments.Observation{fromSubscription(s, said)}
	if s.Status != "canceled" {
		return observations, nil
	}
	orders, err := r.ordersOf(ctx, a, s.CustomerID)
	if err != nil {
		return nil, err
	}
	for _, o := range orders {
		if o.SubscriptionID == s.ID {
			observations = append(observations, fromOrder(o, stamp.Time{})...)
		}
	}
	return observations, nil
}

// ordersOf fetches the newest orders of a customer.
func (r *rail) ordersOf(ctx context.Context, a payments.Access, customerID string) ([]order, error) {
	return pages[order](ctx, r, a, "/v1/orders/", url.Values{"customer_id": {customerID}, "sorting": {"-created_at"}})
}

func (r *rail) order(ctx context.Context, a payments.Access, id string) ([]payments.Observation, error) {
	var o order
	found, err := r.get(ctx, a, "/v1/orders/"+outbound.Segment(id), nil, &o)
	if err != nil {
		return nil, err
	}
	if !found || o.ID != id {
		return nil, payments.ErrPurchaseNotFound
	}
	return r.ofOrder(ctx, a, o)
}

// ofOrder adds the subscription of an order, if the store still has it; charges and refunds count
// without it.
func (r *rail) ofOrder(ctx context.Context, a payments.Access, o order) ([]payments.Observation, error) {
	observations := fromOrder(o, stamp.Time{})
	if o.SubscriptionID == "" || len(observations) == 0 {
		return observations, nil
	}
	whole, err := r.subscription(ctx, a, o.SubscriptionID)
	if errors.Is(err, payments.ErrPurchaseNotFound) {
		return observations, nil
	}
	return append([]payments.Observation{fromSubscription(whole, stamp.Time{})}, observations...), err
}

// ofRefund fetches the order of a refund, which may be the first report of a purchase.
func (r *rail) ofRefund(ctx context.Context, a payments.Access, taken refund, said stamp.Time) ([]payments.Observation, error) {
	var o order
	found, err := r.get(ctx, a, "/v1/orders/"+outbound.Segment(taken.OrderID), nil, &o)
	if err != nil {
		return nil, err
	}
	if !found || o.ID != taken.OrderID {
		return nil, payments.ErrPurchaseNotFound
	}
	entry, ok := back(taken, o, said)
	if !ok {
		return nil, nil
	}
	observations, err := r.ofOrder(ctx, a, o)
	if err != nil || len(observations) == 0 {
		return nil, err
	}
	last := &observations[len(observations)-1] // the one of the order
	if taken.disputed() {
		last.Refunds = []payments.Refund{sum(o), entry} // what was won back left the sum too
	} else {
		last.Refunds = []payments.Refund{entry}
	}
	return observations, nil
}

// ofCustomer fetches the newest subscriptions and orders of a customer.
func (r *rail) ofCustomer(ctx context.Context, a payments.Access, customerID string) ([]payments.Observation, error) {
	subscriptions, err := pages[subscription](ctx, r, a, "/v1/subscriptions/", url.Values{"customer_id": {customerID}, "sorting": {"-started_at"}})
	if err != nil {
		return nil, err
	}
	var all []payments.Observation
	for _, s := range subscriptions {
		all = append(all, fromSubscription(s, stamp.Time{}))
	}
	orders, err := r.ordersOf(ctx, a, customerID)
	if err != nil {
		return nil, err
	}
	for _, o := range orders {
		all = append(all, fromOrder(o, stamp.Time{})...)
	}
	return all, nil
}

// pages reads the first pages of a list of a customer.
func pages[T any](ctx context.Context, r *rail, a payments.Access, path string, query url.Values) (all []T, err error) {
	query.Set("limit", strconv.Itoa(maxOfCustomer))
	for number := range customerPages {
		query.Set("page", strconv.Itoa(number+1))
		var page list[T]
		if _, err := r.get(ctx, a, path, query, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Items...)
		if len(page.Items) < maxOfCustomer {
			break
		}
	}
	return all, nil
}

// history reads orders, then refunds and lost disputes, the newest first, back to the beginning of
// the window. The cursor is the list and the page in it.
func (r *rail) history(ctx context.Context, a payments.Access, w payments.Window) (payments.HistoryPage, error) {
	lists := []struct {
		name string
		read func(context.Context, payments.Access, payments.Window, url.Values, *payments.HistoryPage) (more bool, err error)
	}{{"orders", r.pastOrders}, {"refunds", r.pastRefunds}, {"disputes", r.pastDisputes}}
	name, number, _ := strings.Cut(cmp.Or(w.Cursor, "orders:1"), ":")
	page, err := strconv.Atoi(number)
	for i, list := range lists {
		if list.name != name || err != nil || page < 1 {
			continue
		}
		query := url.Values{
			"sorting": {"-created_at"}, "page": {strconv.Itoa(page)}, "limit": {strconv.Itoa(min(max(w.Limit, 1), historyPage))},
		}
		var result payments.HistoryPage
		more, err := list.read(ctx, a, w, query, &result)
		switch {
		case err != nil:
			return payments.HistoryPage{}, err
		case more:
			result.Next = name + ":" + strconv.Itoa(page+1)
		case i+1 < len(lists):
			result.Next = lists[i+1].name + ":1"
		}
		return result, nil
	}
	return payments.HistoryPage{}, errors.New("merchant_b: not a cursor of the history")
}

func (r *rail) pastOrders(ctx context.Context, a payments.Access, w payments.Window, query url.Values, into *payments.HistoryPage) (more bool, err error) {
	var orders list[order]
	if _, err := r.get(ctx, a, "/v1/orders/", query, &orders); err != nil {
		return false, err
	}
	for _, o := range orders.Items {
		if o.CreatedAt.Instant() < w.Since {
			return false, nil
		}
		observations, err := r.ofOrder(ctx, a, o)
		if err != nil {
			return false, err
		}
		into.Observations = append(into.Observations, observations...)
	}
	return len(orders.Items) == min(max(w.Limit, 1), historyPage), nil
}

// pastRefunds reads the refunds that were made or failed within the window.
func (r *rail) pastRefunds(ctx context.Context, a payments.Access, w payments.Window, query url.Values, into *payments.HistoryPage) (more bool, err error) {
	var refunds list[refund]
	if _, err := r.get(ctx, a, "/v1/refunds/", query, &refunds); err != nil {
		return false, err
	}
	for _, taken := range refunds.Items {
		if taken.CreatedAt.Instant() < w.Since-payments.Instant(refundAge.Milliseconds()) {
			return false, nil
		}
		if changed(taken.CreatedAt, taken.ModifiedAt) < w.Since {
			continue
		}
		observations, err := r.ofRefund(ctx, a, taken, stamp.Time{})
		if errors.Is(err, payments.ErrPurchaseNotFound) {
			continue // skip an order that the store no longer has
		}
		if err != nil {
			return false, err
		}
		into.Observations = append(into.Observations, observations...)
	}
	return len(refunds.Items) == min(max(w.Limit, 1), historyPage), nil
}

// pastDisputes reads the disputes that were lost within the window, whenever they began.
func (r *rail) pastDisputes(ctx context.Context, a payments.Access, w payments.Window, query url.Values, into *payments.HistoryPage) (more bool, err error) {
	query.Set("status", "lost")
	var disputes list[dispute]
	response, err := r.call(ctx, a, http.MethodGet, "/v1/disputes/", query, nil, &disputes)
	switch {
	case err != nil:
		return false, err
	case response.Status == http.StatusForbidden, response.Status == http.StatusNotFound:
		return false, nil // the token may not read them
	case !response.OK():
		return false, r.client.Unexpected(response)
	}
	for _, d := range disputes.Items {
		if d.CreatedAt.Instant() < w.Since-payments.Instant(disputeAge.Milliseconds()) {
			return false, nil
		}
		if changed(d.CreatedAt, d.ModifiedAt) < w.Since {
			continue
		}
		var o order
		found, err := r.get(ctx, a, "/v1/orders/"+outbound.Segment(d.OrderID), nil, &o)
		if err != nil {
			return false, err
		}
		if !found || o.ID != d.OrderID {
			continue // skip an order that the store no longer has
		}
		observations, err := r.ofOrder(ctx, a, o)
		if err != nil {
			return false, err
		}
		if len(observations) > 0 {
			last := &observations[len(observations)-1] // the one of the order
			last.Refunds = append(last.Refunds, lost(d, o))
		}
		into.Observations = append(into.Observations, observations...)
	}
	return len(disputes.Items) == min(max(w.Limit, 1), historyPage), nil
}

// checkout refuses a quantity, because the store has none.
func (r *rail) checkout(ctx context.Context, a payments.Access, c payments.CheckoutRequest) (payments.Checkout, error) {
	if c.Quantity > 1 {
		return payments.Checkout{}, capability.ErrInvalidRequest.Saying("quantity is 1 at merchant_b.")
	}
	if c.Store.ProductID == "" {
		return payments.Checkout{}, payments.ErrProductUnavailable
	}
	body := map[string]any{
		"products": []string{c.Store.ProductID}, "external_customer_id": c.AccountToken,
		"success_url": c.Success, "return_url": c.Cancel, "metadata": map[string]string{accountKey: c.AccountToken},
	}
	if c.DiscountID != "" {
		body["discount_id"] = c.DiscountID
	}
	var made checkout
	response, err := r.call(ctx, a, http.MethodPost, "/v1/checkouts/", nil, body, &made)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	if err != nil {
		return payments.Checkout{}, err
	}
	return payments.Checkout{SessionID: made.ID, URL: made.URL, CustomerID: made.CustomerID, ExpiresAt: made.ExpiresAt.Instant()}, nil
}

func (r *rail) portal(ctx context.Context, a payments.Access, p payments.PortalRequest) (payments.Portal, error) {
	if p.CustomerID == "" {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	body := map[string]string{"return_url": p.Return, "customer_id": p.CustomerID}
	var made struct {
		URL string `json:"customer_portal_url"`
	}
	response, err := r.call(ctx, a, http.MethodPost, "/v1/customer-sessions/", nil, body, &made)
	if err == nil && (response.Status == http.StatusNotFound || response.Status == http.StatusUnprocessableEntity) {
		return payments.Portal{}, payments.ErrCustomerNotFound
	}
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return payments.Portal{URL: made.URL}, err
}

func (r *rail) pricing(ctx context.Context, a payments.Access, ref payments.Ref) (payments.Price, error) {
	var s subscription
	found, err := r.get(ctx, a, "/v1/subscriptions/"+outbound.Segment(ref.TransactionID), nil, &s)
	if err != nil {
		return payments.Price{}, err
	}
	if !found {
		return payments.Price{}, payments.ErrPurchaseNotFound
	}
	now := current(s)
	if s.CancelAtPeriodEnd || s.Status == "canceled" {
		return *now, nil
	}
	now.Next = &payments.NextPrice{AmountMinor: s.Amount, Currency: money.Currency(s.Currency), At: s.PeriodEnd.Instant()}
	if s.PendingUpdate != nil && s.PendingUpdate.ProductID != "" && s.PendingUpdate.ProductID != s.ProductID {
		if err := r.pendingPrice(ctx, a, s, now.Next); err != nil {
			return payments.Price{}, err
		}
	}
	return *now, nil
}

// pendingPrice fetches what the product costs that a subscription changes to.
func (r *rail) pendingPrice(ctx context.Context, a payments.Access, s subscription, next *payments.NextPrice) error {
	var product struct {
		Prices []struct {
			Amount   int64  `json:"price_amount"`
			Currency string `json:"price_currency"`
		} `json:"prices"`
	}
	found, err := r.get(ctx, a, "/v1/products/"+outbound.Segment(s.PendingUpdate.ProductID), nil, &product)
	if err != nil {
		return err
	}
	next.ProductID, next.At = s.PendingUpdate.ProductID, s.PendingUpdate.AppliesAt.Instant()
	if found && len(product.Prices) > 0 {
		next.AmountMinor, next.Currency = product.Prices[0].Amount, money.Currency(product.Prices[0].Currency)
	}
	return nil
}

func (r *rail) createDiscount(ctx context.Context, a payments.Access, d payments.DiscountRequest) (string, error) {
	body := map[string]any{"name": d.Code, "code": d.Code, "duration": string(d.Duration)}
	if d.Kind == payments.DiscountPercentage {
		body["type"], body["basis_points"] = "percentage", d.PercentBasisPoints
	} else {
		body["type"], body["amount"], body["currency"] = "fixed", d.AmountMinor, strings.ToLower(d.Currency)
	}
	if d.Duration == payments.DurationRepeating {
		body["duration_in_months"] = d.Months
	}
	if d.MaxRedemptions > 0 {
		body["max_redemptions"] = d.MaxRedemptions
	}
	if d.EndsAt > 0 {
		body["ends_at"] = d.EndsAt.Time().Format("2006-01-02T15:04:05.000Z")
	}
	if len(d.ProductIDs) > 0 {
		var only []string
		for _, product := range d.ProductIDs {
			only = append(only, product.ProductID)
		}
		body["products"] = only
	}
	var made struct {
		ID string `json:"id"`
	}
	response, err := r.call(ctx, a, http.MethodPost, "/v1/discounts/", nil, body, &made)
	if err == nil && (response.Status == http.StatusConflict || response.Status == http.StatusUnprocessableEntity && names(response, "code")) {
		return "", payments.ErrDiscountConflict
	}
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return made.ID, err
}

// names reports whether a refusal is about a member of the body.
func names(a outbound.Response, member string) bool {
	var body struct {
		Detail []struct {
			Location []any `json:"loc"`
		} `json:"detail"`
	}
	if json.Unmarshal(a.Body, &body) != nil {
		return false
	}
	for _, d := range body.Detail {
		for _, at := range d.Location {
			if at == member {
				return true
			}
		}
	}
	return false
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
	if s.Status == "canceled" || s.CancelAtPeriodEnd {
		return nil
	}
	response, err := r.call(ctx, a, http.MethodPatch, path, nil, map[string]bool{"cancel_at_period_end": true}, nil)
	if err == nil && !response.OK() {
		err = r.client.Unexpected(response)
	}
	return err
}
