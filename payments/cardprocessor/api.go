package cardprocessor

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

const (
	// maxInvoices bounds the paid invoices that are read of a subscription: two
	// years of months.
	maxInvoices = 24
	// maxOfCustomer bounds the purchases that are read of a customer.
	maxOfCustomer = 20
	// maxEvents is how many events a page of the history has at most.
	maxEvents = 100
)

// get reads an object; found is false when there is none.
func (r *rail) get(ctx context.Context, a payments.Access, path string, query url.Values, into any) (found bool, err error) {
	response, err := r.call(ctx, a, http.MethodGet, path, query, "", into)
	if err != nil || response.OK() {
		return err == nil, err
	}
	if response.Status == http.StatusNotFound {
		return false, nil
	}
	return false, r.client.Unexpected(response)
}

// call sends a form. A key makes repeating it harmless.
func (r *rail) call(ctx context.Context, a payments.Access, method, path string, form url.Values, key string, into any) (outbound.Response, error) {
	request := outbound.Request{
		Now: a.Now, Method: method, Base: r.base, Path: path, Repeatable: method == http.MethodGet || key != "",
		Header: http.Header{
			"Authorization":  {"Bearer " + a.Credentials["apiKey"].Reveal()},
			"Stripe-Version": {Version},
		},
	}
	if method == http.MethodGet {
		request.Query = form
	} else {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		request.Body = []byte(form.Encode())
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	return r.client.JSON(ctx, request, into)
}

// failure returns the code of an error response and the parameter that it names.
func failure(a outbound.Response) (code, param string) {
	var body struct {
		Error struct {
			Code  string `json:"code"`
			Param string `json:"param"`
		} `json:"error"`
	}
	if json.Unmarshal(a.Body, &body) != nil {
		return "", ""
	}
	return body.Error.Code, body.Error.Param
}

// subscription fetches a subscription with its paid invoices. token is that of the session which
// made it, for subscriptions without one.
func (r *rail) subscription(ctx context.Context, a payments.Access, id, token string) ([]payments.Observation, error) {
	version, err := a.Version(ctx, id)
	if err != nil {
		return nil, err
	}
	o, err := r.subscriptionAt(ctx, a, id, version)
	if err != nil {
		return nil, err
	}
	if o.AccountToken == "" {
		o.AccountToken = token
	}
	return []payments.Observation{o}, nil
}

func (r *rail) subscriptionAt(ctx context.Context, a payments.Access, id string, version int64) (payments.Observation, error) {
	var s subscription
	found, err := r.get(ctx, a, "/v1/subscriptions/"+outbound.Segment(id), nil, &s)
	if err != nil {
		return payments.Observation{}, err
	}
	if !found || s.ID != id {
		return payments.Observation{}, payments.ErrPurchaseNotFound
	}
	var invoices struct {
		Data []invoice `json:"data"`
	}
	query := url.Values{"subscription": {id}, "status": {"paid"}, "limit": {strconv.Itoa(maxInvoices)}}
	if _, err := r.get(ctx, a, "/v1/invoices", query, &invoices); err != nil {
		return payments.Observation{}, err
	}
	paid, paidThrough := charges(s, invoices.Data)
	return payments.Observation{
		Rail: ID, TransactionID: s.ID, Environment: environment(s.Livemode), Version: version,
		AccountToken: s.Metadata[accountKey], CustomerID: string(s.Customer),
		Lifecycle: lifecycle(s, paid, paidThrough, a.Now()), Charges: paid, Price: current(s),
	}, nil
}

// current returns the price of a subscription's items, before discounts.
func current(s subscription) *payments.Price {
	if len(s.Items.Data) == 0 {
		return nil
	}
	p := &payments.Price{
		Currency: money.Currency(s.Items.Data[0].Price.Currency), Interval: s.Items.Data[0].Price.interval(),
	}
	for _, i := range s.Items.Data {
		p.AmountMinor += minor(i.Price.UnitAmount, i.Price.Currency) * max(i.Quantity, 1)
	}
	return p
}

// session fetches a session, and the subscription that it made. A session without a result yet has
// no observations.
func (r *rail) session(ctx context.Context, a payments.Access, id string) ([]payments.Observation, error) {
	version, err := a.Version(ctx, id)
	if err != nil {
		return nil, err
	}
	s, err := r.sessionOf(ctx, a, id)
	if err != nil {
		return nil, err
	}
	if s.Mode == "subscription" && s.Subscription != "" {
		return r.subscription(ctx, a, string(s.Subscription), accountOf(s))
	}
	if s.Status == "expired" {
		return nil, payments.ErrInvalidReceipt
	}
	if s.Mode != "payment" || s.Status != "complete" {
		return nil, nil
	}
	return []payments.Observation{r.paidOnce(s, version)}, nil
}

func (r *rail) sessionOf(ctx context.Context, a payments.Access, id string) (session, error) {
	var s session
	query := url.Values{"expand[]": {"line_items"}}
	found, err := r.get(ctx, a, "/v1/checkout/sessions/"+outbound.Segment(id), query, &s)
	if err == nil && (!found || s.ID != id) {
		err = payments.ErrPurchaseNotFound
	}
	return s, err
}

func (r *rail) paidOnce(s session, version int64) payments.Observation {
	return payments.Observation{
		Rail: ID, TransactionID: s.ID, Environment: environment(s.Livemode), Version: version,
		AccountToken: accountOf(s), CustomerID: string(s.Customer),
		Lifecycle: purchase(s), Charges: sessionCharges(s),
	}
}

func accountOf(s session) string {
	if token := s.Metadata[accountKey]; token != "" {
		return token
	}
	return s.ClientReference
}

// charge fetches the refunds of a charge with the purchase that it paid for, because a refund may
// be the first report of a purchase.
func (r *rail) charge(ctx context.Context, a payments.Access, id, paymentIntent string) ([]payments.Observation, error) {
	if id == "" || paymentIntent == "" {
		return nil, nil
	}
	owner, chargeID, all, err := r.owner(ctx, a, paymentIntent)
	if err != nil || owner == "" {
		return nil, err
	}
	version, err := a.Version(ctx, owner)
	if err != nil {
		return nil, err
	}
	var o payments.Observation
	if strings.HasPrefix(owner, "cs_") {
		s, err := r.sessionOf(ctx, a, owner)
		if err != nil {
			return nil, err
		}
		o = r.paidOnce(s, version)
	} else if o, err = r.subscriptionAt(ctx, a, owner, version); err != nil {
		return nil, err
	}
	if o.Refunds, err = r.refunds(ctx, a, id, chargeID, all); err != nil {
		return nil, err
	}
	return []payments.Observation{o}, nil
}

// refunds fetches a charge with its disputes; chargeID is its id in payments, and all the amount of
// the invoice that it paid for, 0 for none.
func (r *rail) refunds(ctx context.Context, a payments.Access, id, chargeID string, all int64) ([]payments.Refund, error) {
	var c charge
	found, err := r.get(ctx, a, "/v1/charges/"+outbound.Segment(id), nil, &c)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, payments.ErrPurchaseNotFound
	}
	var disputes struct {
		Data []dispute `json:"data"`
	}
	if _, err := r.get(ctx, a, "/v1/disputes", url.Values{"charge": {id}, "limit": {"10"}}, &disputes); err != nil {
		return nil, err
	}
	return refunds(chargeID, max(all, c.Amount), c, disputes.Data), nil
}

// owner finds the subscription or session that a payment was for, and the id of the charge there:
// its invoice, with the amount of that, or the payment itself.
func (r *rail) owner(ctx context.Context, a payments.Access, paymentIntent string) (transactionID, chargeID string, all int64, err error) {
	var paid struct {
		Data []struct {
			Invoice reference `json:"invoice"`
		} `json:"data"`
	}
	query := url.Values{"payment[type]": {"payment_intent"}, "payment[payment_intent]": {paymentIntent}, "limit": {"1"}}
	if _, err := r.get(ctx, a, "/v1/invoice_payments", query, &paid); err != nil {
		return "", "", 0, err
	}
	if len(paid.Data) > 0 && paid.Data[0].Invoice != "" {
		var in invoice
		if _, err := r.get(ctx, a, "/v1/invoices/"+outbound.Segment(string(paid.Data[0].Invoice)), nil, &in); err != nil {
			return "", "", 0, err
		}
		id := in.Parent.Details.Subscription
		if id == "" {
			id = in.Subscription
		}
		return string(id), in.ID, in.total(), nil
	}
	var sessions struct {
		Data []session `json:"data"`
	}
	query = url.Values{"payment_intent": {paymentIntent}, "limit": {"1"}}
	if _, err := r.get(ctx, a, "/v1/checkout/sessions", query, &sessions); err != nil || len(sessions.Data) == 0 {
		return "", "", 0, err
	}
	return sessions.Data[0].ID, paymentIntent, 0, nil
}

// ofCustomer fetches the newest subscriptions and paid sessions of a customer.
func (r *rail) ofCustomer(ctx context.Context, a payments.Access, customerID string) ([]payments.Observation, error) {
	var all []payments.Observation
	for _, list := range []struct{ path, status string }{{"/v1/subscriptions", "all"}, {"/v1/checkout/sessions", "complete"}} {
		var found struct {
			Data []struct {
				ID   string `json:"id"`
				Mode string `json:"mode"`
			} `json:"data"`
		}
		query := url.Values{"customer": {customerID}, "status": {list.status}, "limit": {strconv.Itoa(maxOfCustomer)}}
		if _, err := r.get(ctx, a, list.path, query, &found); err != nil {
			return nil, err
		}
		for _, object := range found.Data {
			if object.Mode != "" && object.Mode != "payment" {
				continue
			}
			observations, err := r.fetch(ctx, a, payments.Ref{TransactionID: object.ID})
			if err != nil {
				return nil, err
			}
			all = append(all, observations...)
		}
	}
	return all, nil
}

// handled are the events that expand reads; the API takes 20 at most.
var handled = []string{
	"checkout.session.completed", "checkout.session.async_payment_succeeded", "checkout.session.async_payment_failed",
	"customer.subscription.created", "customer.subscription.updated", "customer.subscription.deleted",
	"customer.subscription.paused", "customer.subscription.resumed",
	"invoice.paid", "invoice.payment_failed", "invoice.voided", "invoice.marked_uncollectible",
	"charge.refunded", "refund.updated", "refund.failed",
	"charge.dispute.created", "charge.dispute.closed", "charge.dispute.funds_withdrawn", "charge.dispute.funds_reinstated",
}

// history reads the events of a window, the newest first.
func (r *rail) history(ctx context.Context, a payments.Access, w payments.Window) (payments.HistoryPage, error) {
	query := url.Values{
		"types[]":      handled,
		"created[gte]": {strconv.FormatInt(int64(w.Since)/1000, 10)},
		"created[lte]": {strconv.FormatInt(int64(w.Until)/1000, 10)},
		"limit":        {strconv.Itoa(min(max(w.Limit, 1), maxEvents))},
	}
	if w.Cursor != "" {
		query.Set("starting_after", w.Cursor)
	}
	var events struct {
		Data    []json.RawMessage `json:"data"`
		HasMore bool              `json:"has_more"`
	}
	if _, err := r.get(ctx, a, "/v1/events", query, &events); err != nil {
		return payments.HistoryPage{}, err
	}
	var page payments.HistoryPage
	var last event
	for _, raw := range events.Data {
		if err := json.Unmarshal(raw, &last); err != nil {
			continue
		}
		if d, err := delivery(raw); err == nil {
			page.Deliveries = append(page.Deliveries, d)
		}
	}
	if events.HasMore {
		page.Next = last.ID
	}
	return page, nil
}
