// Package merchantbtest is a scripted merchant for the rail merchant_b: it keeps
// subscriptions, orders and refunds, signs events about them, and responds as the
// API does.
package merchantbtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/merchantb"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// Secret is what events are signed with.
const Secret = "polar_whs_scripted_merchant_b"

// Store is a scripted merchant. Its methods are safe for concurrent use; those
// that change something return what the merchant would deliver.
type Store struct {
	script.Faults

	now func() time.Time

	mu      sync.Mutex
	ids     int64
	tick    int64
	objects map[string]script.Object // by id
	order   []string
	prices  map[string]script.Purchase // by product
}

// New makes a merchant; it does not say which environment it is of.
func New(now func() time.Time, _ payments.StoreEnvironment) *Store {
	return &Store{now: now, objects: make(map[string]script.Object), prices: make(map[string]script.Purchase)}
}

// Rail is a rail that calls the merchant.
func (s *Store) Rail() payments.Rail {
	return merchantb.New(merchantb.Options{HTTP: script.Client(s)})
}

// Credentials are a block that fits.
func (s *Store) Credentials() secrets.Fields {
	return secrets.Fields{"accessToken": secrets.NewValue("polar_oat_scripted"), "webhookSecret": secrets.NewValue(Secret)}
}

// Price tells the merchant what a product is, for checkouts.
func (s *Store) Price(p script.Purchase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[p.ProductID] = p
}

func (s *Store) id() string {
	s.ids++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", s.ids)
}

// moment is a time that no two changes share.
func (s *Store) moment() string {
	s.tick++
	return s.now().Add(time.Duration(s.tick) * time.Microsecond).UTC().Format("2006-01-02T15:04:05.000000Z")
}

func stampOf(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func (s *Store) put(kind string, o script.Object) script.Object {
	id := s.id()
	o["id"], o["kind"], o["created_at"], o["modified_at"] = id, kind, stampOf(s.now()), s.moment()
	s.objects[id] = o
	s.order = append(s.order, id)
	return o
}

// event signs what happened to an object.
func (s *Store) event(kind string, object script.Object) script.Delivery {
	body := script.Encode(script.Object{"type": kind, "timestamp": s.moment(), "data": object})
	return script.Delivery{Header: sign.MerchantB(Secret, "msg_"+s.id(), body, s.now()), Body: body}
}

// Event signs an event of any kind about an object.
func (s *Store) Event(kind string, object script.Object) script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.event(kind, object)
}

func (s *Store) update(id, kind string, set script.Object) script.Delivery {
	o := s.objects[id]
	for name, value := range set {
		o[name] = value
	}
	o["modified_at"] = s.moment()
	return s.event(kind, o)
}

func (s *Store) set(id, kind string, set script.Object) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.update(id, kind, set)}
}

func base(p script.Purchase, customer string) script.Object {
	metadata := script.Object{}
	if p.AccountToken != "" {
		metadata["kit_account"] = p.AccountToken
	}
	return script.Object{
		"currency": strings.ToLower(p.Currency), "customer_id": customer, "product_id": p.ProductID, "metadata": metadata,
		"customer": script.Object{"id": customer, "external_id": nil}, "checkout_id": nil, "discount_id": nil,
	}
}

// Subscribe begins a subscription with a paid order.
func (s *Store) Subscribe(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribe(p.Defaults(), cmp.Or(p.CustomerID, s.id()), nil)
}

func (s *Store) subscribe(p script.Purchase, customer string, checkout any) (id string, out []script.Delivery) {
	start, end, status, amount := s.now(), s.now().Add(p.Period), "active", p.AmountMinor*p.Quantity
	sub := base(p, customer)
	if p.Trial > 0 {
		end, status, amount = start.Add(p.Trial), "trialing", 0
		sub["trial_end"] = stampOf(end)
	}
	for name, value := range (script.Object{
		"status": status, "amount": p.AmountMinor * p.Quantity, "recurring_interval": "month", "recurring_interval_count": 1,
		"current_period_start": stampOf(start), "current_period_end": stampOf(end), "started_at": stampOf(start),
		"cancel_at_period_end": false, "pause_at_period_end": false, "checkout_id": checkout,
	}) {
		sub[name] = value
	}
	s.put("subscription", sub)
	id = sub["id"].(string)
	o := s.makeOrder(p, customer, id, amount, "subscription_create")
	o["checkout_id"] = checkout
	return id, []script.Delivery{s.event("subscription.created", sub), s.event("order.paid", o)}
}

func (s *Store) makeOrder(p script.Purchase, customer, sub string, amount int64, reason string) script.Object {
	o := base(p, customer)
	for name, value := range (script.Object{
		"status": "paid", "paid": true, "subtotal_amount": amount, "total_amount": amount, "refunded_amount": 0,
		"billing_reason": reason, "subscription_id": nil,
	}) {
		o[name] = value
	}
	if sub != "" {
		o["subscription_id"] = sub
	}
	return s.put("order", o)
}

func bought(o script.Object) script.Purchase {
	p := script.Purchase{ProductID: o["product_id"].(string), Currency: o["currency"].(string), Quantity: 1}
	p.AccountToken, _ = o["metadata"].(script.Object)["kit_account"].(string)
	return p
}

// roll begins the next period.
func (s *Store) roll(id string) {
	sub := s.objects[id]
	start, _ := time.Parse(time.RFC3339Nano, sub["current_period_end"].(string)) // written by stampOf
	sub["current_period_start"], sub["current_period_end"] = stampOf(start), stampOf(start.Add(30*24*time.Hour))
}

// Renew begins the next period and pays it.
func (s *Store) Renew(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(id)
	return s.charged(id)
}

func (s *Store) charged(id string) []script.Delivery {
	sub := s.objects[id]
	updated := s.update(id, "subscription.updated", script.Object{"status": "active", "past_due_at": nil})
	o := s.makeOrder(bought(sub), sub["customer_id"].(string), id, sub["amount"].(int64), "subscription_cycle")
	return []script.Delivery{updated, s.event("order.paid", o)}
}

// Fail begins the next period without paying it: the subscription is past due.
func (s *Store) Fail(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.roll(id)
	return []script.Delivery{s.update(id, "subscription.past_due", script.Object{"status": "past_due", "past_due_at": stampOf(s.now())})}
}

// Hold says that the attempts to charge are used up.
func (s *Store) Hold(id string) []script.Delivery {
	return s.set(id, "subscription.revoked", script.Object{"status": "unpaid"})
}

// Recover pays the period that could not be charged.
func (s *Store) Recover(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.charged(id)
}

// Pause stops the subscription, until an end where one is given.
func (s *Store) Pause(id string, until time.Time) []script.Delivery {
	return s.set(id, "subscription.paused", script.Object{"status": "paused", "paused_at": stampOf(s.now()), "resumes_at": stampOf(until)})
}

// Resume goes on.
func (s *Store) Resume(id string) []script.Delivery {
	return s.set(id, "subscription.resumed", script.Object{"status": "active", "paused_at": nil, "resumes_at": nil})
}

// Cancel ends the subscription with its period, Uncancel takes that back.
func (s *Store) Cancel(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.update(id, "subscription.canceled", script.Object{
		"cancel_at_period_end": true, "canceled_at": stampOf(s.now()), "ends_at": s.objects[id]["current_period_end"],
	})}
}

// Uncancel lets the subscription renew again.
func (s *Store) Uncancel(id string) []script.Delivery {
	return s.set(id, "subscription.uncanceled", script.Object{"cancel_at_period_end": false, "canceled_at": nil, "ends_at": nil})
}

// Expire ends the subscription now.
func (s *Store) Expire(id string) []script.Delivery {
	return s.set(id, "subscription.revoked", script.Object{"status": "canceled", "ended_at": stampOf(s.now()), "ends_at": stampOf(s.now())})
}

// Change swaps the product of a subscription.
func (s *Store) Change(id string, p script.Purchase) []script.Delivery {
	p = p.Defaults()
	return s.set(id, "subscription.updated", script.Object{"product_id": p.ProductID, "amount": p.AmountMinor * p.Quantity})
}

// Buy sells something once.
func (s *Store) Buy(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	o := s.makeOrder(p, cmp.Or(p.CustomerID, s.id()), "", p.AmountMinor*p.Quantity, "purchase")
	return o["id"].(string), []script.Delivery{s.event("order.created", o), s.event("order.paid", o)}
}

// Complete pays a checkout, or returns [script.ErrNoSession] or [script.ErrPaid]; the purchase is a
// subscription where the product has a period.
func (s *Store) Complete(id string) ([]script.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.objects[id]
	if c["kind"] != "checkout" {
		return nil, script.ErrNoSession
	}
	if c["status"] == "succeeded" {
		return nil, script.ErrPaid
	}
	c["status"] = "succeeded"
	p := s.prices[c["product_id"].(string)]
	p.AccountToken, _ = c["external_customer_id"].(string)
	recurring := p.Period > 0
	p = p.Defaults()
	customer := s.id()
	if recurring {
		_, out := s.subscribe(p, customer, id)
		return out, nil
	}
	o := s.makeOrder(p, customer, "", p.AmountMinor*p.Quantity, "purchase")
	o["checkout_id"] = id
	return []script.Delivery{s.event("order.paid", o)}, nil
}

// newest is the newest order of a purchase.
func (s *Store) newest(purchase string) script.Object {
	for _, id := range slices.Backward(s.order) {
		if o := s.objects[id]; o["kind"] == "order" && (id == purchase || o["subscription_id"] == purchase) {
			return o
		}
	}
	return nil
}

// Refund gives back an amount of the newest order, 0 for all of it.
func (s *Store) Refund(purchase string, amount int64) []script.Delivery {
	return s.refund(purchase, amount, nil, "succeeded")
}

// Dispute lets the payer's bank take the newest order.
func (s *Store) Dispute(purchase string) []script.Delivery {
	return s.refund(purchase, 0, script.Object{"status": "lost"}, "succeeded")
}

// LoseDispute decides a dispute over the newest order for the payer, of which the merchant delivers
// nothing. The dispute began some time ago.
func (s *Store) LoseDispute(purchase string, ago time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.newest(purchase)
	d := s.put("dispute", script.Object{"status": "lost", "amount": o["total_amount"], "tax_amount": 0, "order_id": o["id"]})
	d["created_at"] = stampOf(s.now().Add(-ago))
}

func (s *Store) refund(purchase string, amount int64, dispute any, status string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.newest(purchase)
	if total := o["total_amount"].(int64); amount == 0 || amount == total {
		amount, o["status"] = total, "refunded"
	} else {
		o["status"] = "partially_refunded"
	}
	o["refunded_amount"], o["modified_at"] = amount, s.moment()
	r := s.put("refund", script.Object{
		"status": status, "reason": "customer_request", "amount": amount, "order_id": o["id"], "subscription_id": o["subscription_id"],
		"revoke_benefits": true, "dispute": dispute,
	})
	return []script.Delivery{s.event("refund.created", r), s.event("order.refunded", o)}
}

// FailRefund says that the refunds of the newest order did not go through.
func (s *Store) FailRefund(purchase string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.newest(purchase)
	o["status"], o["refunded_amount"], o["modified_at"] = "paid", 0, s.moment()
	var out []script.Delivery
	for _, id := range s.order {
		if r := s.objects[id]; r["kind"] == "refund" && r["order_id"] == o["id"] {
			out = append(out, s.update(id, "refund.updated", script.Object{"status": "failed"}))
		}
	}
	return out
}

// ServeHTTP responds as the API does.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Faults.Serve(w) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer polar_oat_") {
		script.Reply(w, http.StatusUnauthorized, script.Object{"error": "invalid_token"})
		return
	}
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch {
	case r.Method == http.MethodPost:
		s.post(w, r, parts[0])
	case len(parts) == 2 && parts[1] == "":
		s.list(w, strings.TrimSuffix(parts[0], "s"), r)
	case len(parts) == 2 && s.objects[parts[1]] != nil && s.objects[parts[1]]["kind"] == strings.TrimSuffix(parts[0], "s"):
		if r.Method == http.MethodPatch {
			s.objects[parts[1]]["cancel_at_period_end"], s.objects[parts[1]]["modified_at"] = true, s.moment()
		}
		script.Reply(w, http.StatusOK, s.objects[parts[1]])
	default:
		script.Reply(w, http.StatusNotFound, script.Object{"error": "ResourceNotFound"})
	}
}

func (s *Store) list(w http.ResponseWriter, kind string, r *http.Request) {
	q, found := r.URL.Query(), []any{}
	for _, id := range slices.Backward(s.order) {
		o := s.objects[id]
		match := o["kind"] == kind
		for _, name := range []string{"customer_id", "checkout_id", "order_id", "status"} {
			match = match && (!q.Has(name) || o[name] == q.Get(name))
		}
		if match {
			found = append(found, o)
		}
	}
	page, _ := strconv.Atoi(q.Get("page"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit == 0 {
		limit = 10
	}
	from := min(max(page-1, 0)*limit, len(found))
	script.Reply(w, http.StatusOK, script.Object{"items": found[from:min(from+limit, len(found))]})
}

func (s *Store) post(w http.ResponseWriter, r *http.Request, kind string) {
	var body script.Object
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		script.Reply(w, http.StatusUnprocessableEntity, script.Object{"detail": []any{}})
		return
	}
	switch kind {
	case "checkouts":
		product := body["products"].([]any)[0].(string)
		c := s.put("checkout", script.Object{
			"status": "open", "product_id": product, "external_customer_id": body["external_customer_id"],
			"expires_at": stampOf(s.now().Add(time.Hour)), "customer_id": nil,
		})
		c["url"] = "https://checkout.example.com/" + c["id"].(string)
		script.Reply(w, http.StatusCreated, c)
	case "customer-sessions":
		s.portal(w, body)
	case "discounts":
		for _, o := range s.objects {
			if o["kind"] == "discount" && o["code"] == body["code"] {
				script.Reply(w, http.StatusUnprocessableEntity, script.Object{"detail": []any{script.Object{"loc": []any{"body", "code"}}}})
				return
			}
		}
		script.Reply(w, http.StatusCreated, s.put("discount", body))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

// portal opens for customers that have bought something.
func (s *Store) portal(w http.ResponseWriter, body script.Object) {
	for _, id := range s.order {
		o := s.objects[id]
		metadata, _ := o["metadata"].(script.Object)
		if o["customer_id"] != nil && (o["customer_id"] == body["customer_id"] || metadata["kit_account"] != nil && metadata["kit_account"] == body["external_customer_id"]) {
			script.Reply(w, http.StatusCreated, script.Object{"customer_portal_url": "https://portal.example.com/" + o["customer_id"].(string)})
			return
		}
	}
	script.Reply(w, http.StatusUnprocessableEntity, script.Object{"detail": []any{}})
}
