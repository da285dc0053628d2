// Package merchantatest is a scripted merchant for the rail merchant_a: it keeps
// subscriptions, transactions and adjustments, signs events about them, and
// responds as the API does.
package merchantatest

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/merchanta"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// Secret is what events are signed with.
const Secret = "pdl_ntfset_scripted_merchant_a_secret"

// Store is a scripted merchant. Its methods are safe for concurrent use; those
// that change something return what the merchant would deliver.
type Store struct {
	script.Faults
	script.Counter

	now  func() time.Time
	live bool

	mu      sync.Mutex
	tick    int64
	objects map[string]script.Object // by id
	order   []string
	events  []script.Object
	prices  map[string]script.Purchase
}

// New makes a merchant of an environment.
func New(now func() time.Time, environment payments.StoreEnvironment) *Store {
	return &Store{
		now: now, live: environment == payments.EnvironmentProduction,
		objects: make(map[string]script.Object), prices: make(map[string]script.Purchase),
	}
}

// Rail is a rail that calls the merchant.
func (s *Store) Rail() payments.Rail {
	return merchanta.New(merchanta.Options{HTTP: script.Client(s)})
}

// Credentials are a block that fits.
func (s *Store) Credentials() secrets.Fields {
	key := "pdl_sdbx_apikey_scripted"
	if s.live {
		key = "pdl_live_apikey_scripted"
	}
	return secrets.Fields{"apiKey": secrets.NewValue(key), "webhookSecret": secrets.NewValue(Secret)}
}

// Price tells the merchant what a price is, for checkouts.
func (s *Store) Price(p script.Purchase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[p.PriceID] = p.Defaults()
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

func (s *Store) put(id string, o script.Object) script.Object {
	o["id"], o["created_at"], o["updated_at"] = id, s.now().UTC().Format(time.RFC3339Nano), s.moment()
	s.objects[id] = o
	s.order = append(s.order, id)
	return o
}

// event signs what happened to an object.
func (s *Store) event(kind string, object script.Object) script.Delivery {
	e := script.Copy(script.Object{
		"event_id": s.Next("evt_"), "event_type": kind, "occurred_at": s.moment(), "notification_id": s.Next("ntf_"), "data": object,
	})
	s.events = append(s.events, e)
	body := script.Encode(e)
	return script.Delivery{Header: sign.MerchantA(Secret, body, s.now()), Body: body}
}

func items(p script.Purchase, recurring bool) []any {
	price := script.Object{
		"id": p.PriceID, "product_id": p.ProductID, "billing_cycle": nil,
		"unit_price": script.Object{"amount": strconv.FormatInt(p.AmountMinor, 10), "currency_code": p.Currency},
	}
	if recurring {
		price["billing_cycle"] = script.Object{"interval": "month", "frequency": 1}
	}
	return []any{script.Object{"quantity": p.Quantity, "price": price}}
}

func custom(p script.Purchase) any {
	if p.AccountToken == "" {
		return nil
	}
	return script.Object{"kit_account": p.AccountToken}
}

func period(start, end time.Time) script.Object {
	return script.Object{"starts_at": stampOf(start), "ends_at": stampOf(end)}
}

// transaction adds one of a subscription, or of its own for sub "".
func (s *Store) transaction(p script.Purchase, sub, customer, status string, start, end time.Time, amount int64) script.Object {
	total := strconv.FormatInt(amount, 10)
	t := script.Object{
		"status": status, "customer_id": customer, "currency_code": p.Currency, "items": items(p, sub != ""), "custom_data": custom(p),
		"subscription_id": nil, "billing_period": nil, "billed_at": stampOf(s.now()),
		"details": script.Object{"totals": script.Object{"subtotal": total, "total": total, "grand_total": total, "currency_code": p.Currency}},
	}
	if sub != "" {
		t["subscription_id"], t["billing_period"] = sub, period(start, end)
	}
	return s.put(s.Next("txn_"), t)
}

// Subscribe begins a subscription with a completed transaction.
func (s *Store) Subscribe(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribe(p.Defaults(), cmp.Or(p.CustomerID, s.Next("ctm_")))
}

func (s *Store) subscribe(p script.Purchase, customer string) (id string, out []script.Delivery) {
	start, end, status, amount := s.now(), s.now().Add(p.Period), "active", p.AmountMinor*p.Quantity
	if p.Trial > 0 {
		end, status, amount = start.Add(p.Trial), "trialing", 0
	}
	id = s.Next("sub_")
	sub := s.put(id, script.Object{
		"status": status, "customer_id": customer, "currency_code": p.Currency, "started_at": stampOf(start), "next_billed_at": stampOf(end),
		"paused_at": nil, "canceled_at": nil, "current_billing_period": period(start, end), "scheduled_change": nil,
		"billing_cycle": script.Object{"interval": "month", "frequency": 1}, "items": items(p, true), "custom_data": custom(p), "discount": nil,
	})
	t := s.transaction(p, id, customer, "completed", start, end, amount)
	return id, []script.Delivery{s.event("subscription.created", sub), s.event("transaction.completed", t)}
}

// bought is what a subscription is of.
func bought(sub script.Object) script.Purchase {
	item := sub["items"].([]any)[0].(script.Object)
	price := item["price"].(script.Object)
	unit := price["unit_price"].(script.Object)
	amount, _ := strconv.ParseInt(unit["amount"].(string), 10, 64) // written by items
	p := script.Purchase{
		ProductID: price["product_id"].(string), PriceID: price["id"].(string), AmountMinor: amount,
		Currency: unit["currency_code"].(string), Quantity: item["quantity"].(int64),
	}
	if c, ok := sub["custom_data"].(script.Object); ok {
		p.AccountToken = c["kit_account"].(string)
	}
	return p
}

// Event signs an event of any kind about an object.
func (s *Store) Event(kind string, object script.Object) script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.event(kind, object)
}

func (s *Store) update(id, kind string, set script.Object) script.Delivery {
	sub := s.objects[id]
	for name, value := range set {
		sub[name] = value
	}
	sub["updated_at"] = s.moment()
	return s.event(kind, sub)
}

func (s *Store) set(id, kind string, set script.Object) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.update(id, kind, set)}
}

func bounds(sub script.Object) (start, end time.Time) {
	p := sub["current_billing_period"].(script.Object)
	start, _ = time.Parse(time.RFC3339Nano, p["starts_at"].(string)) // written by period
	end, _ = time.Parse(time.RFC3339Nano, p["ends_at"].(string))
	return start, end
}

// roll begins the next period.
func (s *Store) roll(id string) (start, end time.Time) {
	_, start = bounds(s.objects[id])
	end = start.Add(30 * 24 * time.Hour)
	s.objects[id]["current_billing_period"], s.objects[id]["next_billed_at"] = period(start, end), stampOf(end)
	return start, end
}

// Renew begins the next period and pays it.
func (s *Store) Renew(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, end := s.roll(id)
	return s.charged(id, start, end)
}

func (s *Store) charged(id string, start, end time.Time) []script.Delivery {
	sub := s.objects[id]
	p := bought(sub)
	for _, o := range s.objects {
		if o["subscription_id"] == id && o["status"] == "past_due" {
			o["status"] = "canceled"
		}
	}
	t := s.transaction(p, id, sub["customer_id"].(string), "completed", start, end, p.AmountMinor*p.Quantity)
	return []script.Delivery{
		s.update(id, "subscription.updated", script.Object{"status": "active"}), s.event("transaction.completed", t),
	}
}

// Fail begins the next period without paying it: the subscription is past due.
func (s *Store) Fail(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, end := s.roll(id)
	sub := s.objects[id]
	p := bought(sub)
	t := s.transaction(p, id, sub["customer_id"].(string), "past_due", start, end, p.AmountMinor*p.Quantity)
	return []script.Delivery{
		s.event("transaction.past_due", t), s.update(id, "subscription.past_due", script.Object{"status": "past_due"}),
	}
}

// Hold says that the attempts to charge are used up: the subscription is paused
// with its transaction past due.
func (s *Store) Hold(id string) []script.Delivery {
	return s.set(id, "subscription.paused", script.Object{"status": "paused", "paused_at": stampOf(s.now())})
}

// Recover pays the period that could not be charged.
func (s *Store) Recover(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[id]["paused_at"] = nil
	start, end := bounds(s.objects[id])
	return s.charged(id, start, end)
}

// Pause stops the subscription, until an end where one is given.
func (s *Store) Pause(id string, until time.Time) []script.Delivery {
	set := script.Object{"status": "paused", "paused_at": stampOf(s.now()), "scheduled_change": nil}
	if !until.IsZero() {
		set["scheduled_change"] = script.Object{"action": "resume", "effective_at": stampOf(until), "resume_at": nil}
	}
	return s.set(id, "subscription.paused", set)
}

// Resume goes on.
func (s *Store) Resume(id string) []script.Delivery {
	return s.set(id, "subscription.resumed", script.Object{"status": "active", "paused_at": nil, "scheduled_change": nil})
}

// Cancel ends the subscription with its period, Uncancel takes that back.
func (s *Store) Cancel(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.cancel(id)}
}

func (s *Store) cancel(id string) script.Delivery {
	_, end := bounds(s.objects[id])
	return s.update(id, "subscription.updated", script.Object{
		"scheduled_change": script.Object{"action": "cancel", "effective_at": stampOf(end), "resume_at": nil},
	})
}

// Uncancel lets the subscription renew again.
func (s *Store) Uncancel(id string) []script.Delivery {
	return s.set(id, "subscription.updated", script.Object{"scheduled_change": nil})
}

// Expire ends the subscription now.
func (s *Store) Expire(id string) []script.Delivery {
	return s.set(id, "subscription.canceled", script.Object{
		"status": "canceled", "canceled_at": stampOf(s.now()), "scheduled_change": nil, "next_billed_at": nil,
	})
}

// Change swaps the price of a subscription.
func (s *Store) Change(id string, p script.Purchase) []script.Delivery {
	return s.set(id, "subscription.updated", script.Object{"items": items(p.Defaults(), true)})
}

// Buy sells something once.
func (s *Store) Buy(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	t := s.transaction(p, "", cmp.Or(p.CustomerID, s.Next("ctm_")), "completed", time.Time{}, time.Time{}, p.AmountMinor*p.Quantity)
	return t["id"].(string), []script.Delivery{s.event("transaction.completed", t)}
}

// Complete pays a transaction that a checkout made, or returns [script.ErrNoSession] or
// [script.ErrPaid]; the purchase is a subscription where its price has a period.
func (s *Store) Complete(id string) ([]script.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.objects[id]
	if t["checkout"] == nil {
		return nil, script.ErrNoSession
	}
	if t["status"] != "ready" {
		return nil, script.ErrPaid
	}
	p := bought(t)
	p.Period = s.prices[p.PriceID].Period
	t["customer_id"], t["status"], t["updated_at"] = s.Next("ctm_"), "completed", s.moment()
	if t["items"].([]any)[0].(script.Object)["price"].(script.Object)["billing_cycle"] == nil {
		return []script.Delivery{s.event("transaction.completed", t)}, nil
	}
	sub, out := s.subscribe(p, t["customer_id"].(string))
	t["subscription_id"], t["status"] = sub, "canceled" // the subscription has one of its own
	return out, nil
}

// newest is the newest completed transaction of a purchase.
func (s *Store) newest(purchase string) script.Object {
	for _, id := range slices.Backward(s.order) {
		if o := s.objects[id]; strings.HasPrefix(id, "txn_") && o["status"] == "completed" && (id == purchase || o["subscription_id"] == purchase) {
			return o
		}
	}
	return nil
}

// Adjust takes money of the newest transaction, 0 for all of it.
func (s *Store) Adjust(purchase, action, status string, amount int64) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.newest(purchase)
	total := t["details"].(script.Object)["totals"].(script.Object)["total"].(string)
	kind := "full"
	if amount > 0 {
		kind, total = "partial", strconv.FormatInt(amount, 10)
	}
	j := s.put(s.Next("adj_"), script.Object{
		"action": action, "type": kind, "status": status, "transaction_id": t["id"], "subscription_id": t["subscription_id"],
		"totals": script.Object{"total": total, "currency_code": t["currency_code"]},
	})
	return []script.Delivery{s.event("adjustment.created", j)}
}

// Refund gives back an amount of the newest transaction, 0 for all of it.
func (s *Store) Refund(purchase string, amount int64) []script.Delivery {
	return s.Adjust(purchase, "refund", "approved", amount)
}

// Dispute lets the payer's bank take the newest transaction; Win brings it back.
func (s *Store) Dispute(purchase string) []script.Delivery {
	return s.Adjust(purchase, "chargeback", "approved", 0)
}

// Win ends the dispute of the newest transaction in favour of the seller.
func (s *Store) Win(purchase string) []script.Delivery {
	return s.Adjust(purchase, "chargeback_reverse", "approved", 0)
}

// FailRefund reverses the refunds of the newest transaction.
func (s *Store) FailRefund(purchase string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.newest(purchase)
	var out []script.Delivery
	for _, id := range s.order {
		if o := s.objects[id]; o["action"] == "refund" && o["transaction_id"] == t["id"] {
			out = append(out, s.update(id, "adjustment.updated", script.Object{"status": "reversed"}))
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
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer pdl_") {
		fail(w, http.StatusForbidden, "authentication_malformed")
		return
	}
	if r.Method == http.MethodPost {
		s.post(w, r)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if len(parts) == 2 {
		if o := s.objects[parts[1]]; o != nil {
			script.Reply(w, http.StatusOK, script.Object{"data": s.included(o)})
			return
		}
		fail(w, http.StatusNotFound, "not_found")
		return
	}
	s.list(w, parts[0], r)
}

// included adds the next transaction to a subscription that has one.
func (s *Store) included(o script.Object) script.Object {
	if o["next_billed_at"] == nil || o["billing_cycle"] == nil {
		return o
	}
	o = script.Copy(o)
	p := bought(s.objects[o["id"].(string)])
	total := strconv.FormatInt(p.AmountMinor*p.Quantity, 10)
	o["next_transaction"] = script.Object{"details": script.Object{"totals": script.Object{"total": total, "currency_code": p.Currency}}}
	return o
}

func fail(w http.ResponseWriter, status int, code string) {
	script.Reply(w, status, script.Object{"error": script.Object{"type": "request_error", "code": code}})
}

func (s *Store) list(w http.ResponseWriter, kind string, r *http.Request) {
	q, data := r.URL.Query(), []any{}
	limit, _ := strconv.Atoi(q.Get("per_page"))
	if kind == "events" {
		after := q.Get("after")
		for _, e := range slices.Backward(s.events) {
			if after == "" && len(data) < limit {
				data = append(data, e)
			} else if e["event_id"] == after {
				after = ""
			}
		}
		script.Reply(w, http.StatusOK, script.Object{"data": data})
		return
	}
	prefix := map[string]string{"transactions": "txn_", "subscriptions": "sub_", "adjustments": "adj_"}[kind]
	if limit == 0 {
		limit = map[string]int{"transactions": 30, "subscriptions": 50, "adjustments": 10}[kind]
	}
	limit = min(limit, map[string]int{"transactions": 30, "subscriptions": 200, "adjustments": 50}[kind])
	after := q.Get("after")
	for _, id := range slices.Backward(s.order) {
		if after != "" {
			if id == after {
				after = ""
			}
			continue
		}
		o, match := s.objects[id], strings.HasPrefix(id, prefix)
		for _, name := range []string{"subscription_id", "customer_id", "transaction_id"} {
			match = match && (!q.Has(name) || o[name] == q.Get(name))
		}
		if status, _ := o["status"].(string); match && q.Has("status") {
			match = slices.Contains(strings.Split(q.Get("status"), ","), status)
		}
		if match && len(data) < limit {
			data = append(data, o)
		}
	}
	script.Reply(w, http.StatusOK, script.Object{"data": data})
}

func (s *Store) post(w http.ResponseWriter, r *http.Request) {
	var body script.Object
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "bad_request")
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/transactions":
		s.makeTransaction(w, body)
	case r.URL.Path == "/discounts":
		for _, o := range s.objects {
			if o["enabled_for_checkout"] == true && o["code"] == body["code"] {
				fail(w, http.StatusConflict, "discount_code_conflict")
				return
			}
		}
		script.Reply(w, http.StatusCreated, script.Object{"data": s.put(s.Next("dsc_"), body)})
	case len(parts) == 3 && parts[2] == "portal-sessions":
		script.Reply(w, http.StatusCreated, script.Object{"data": script.Object{
			"urls": script.Object{"general": script.Object{"overview": "https://customer-portal.example.com/" + parts[1]}},
		}})
	case len(parts) == 3 && parts[2] == "cancel" && s.objects[parts[1]] != nil:
		s.cancel(parts[1])
		script.Reply(w, http.StatusOK, script.Object{"data": s.objects[parts[1]]})
	default:
		fail(w, http.StatusNotFound, "not_found")
	}
}

func (s *Store) makeTransaction(w http.ResponseWriter, body script.Object) {
	asked := body["items"].([]any)[0].(script.Object)
	p, ok := s.prices[asked["price_id"].(string)]
	if !ok {
		fail(w, http.StatusBadRequest, "price_not_found")
		return
	}
	p.Quantity = int64(asked["quantity"].(float64))
	if c, ok := body["custom_data"].(script.Object); ok {
		p.AccountToken, _ = c["kit_account"].(string)
	}
	recurring := p.Period > 0 && !p.Consumable && !p.NonRenewing
	t := s.transaction(p, "", "", "ready", time.Time{}, time.Time{}, p.AmountMinor*p.Quantity)
	t["items"] = items(p, recurring)
	t["checkout"] = script.Object{"url": "https://checkout.example.com/?_ptxn=" + t["id"].(string)}
	script.Reply(w, http.StatusCreated, script.Object{"data": t})
}
