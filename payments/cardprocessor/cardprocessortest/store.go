// Package cardprocessortest is a scripted processor for the rail card_processor:
// it keeps subscriptions, sessions, invoices and charges, signs events about
// them, and responds as the API does.
package cardprocessortest

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// Secret is what events are signed with.
const Secret = "whsec_c2NyaXB0ZWQtcHJvY2Vzc29y"

// Store is a scripted processor. Its methods are safe for concurrent use; those
// that change something return what the processor would deliver.
type Store struct {
	script.Faults
	script.Counter

	now  func() time.Time
	live bool

	mu      sync.Mutex
	objects map[string]script.Object // by id
	order   []string
	events  []script.Object
	replies map[string][]byte // by idempotency key
	asked   map[string]string // the same: for what it was used
	prices  map[string]script.Purchase
}

// New makes a processor of an environment.
func New(now func() time.Time, environment payments.StoreEnvironment) *Store {
	return &Store{
		now: now, live: environment == payments.EnvironmentProduction,
		objects: make(map[string]script.Object), replies: make(map[string][]byte), asked: make(map[string]string), prices: make(map[string]script.Purchase),
	}
}

// Rail is a rail that calls the processor.
func (s *Store) Rail() payments.Rail {
	return cardprocessor.New(cardprocessor.Options{HTTP: script.Client(s)})
}

// Credentials are a block that fits.
func (s *Store) Credentials() secrets.Fields {
	key := "sk_test_scripted0000"
	if s.live {
		key = "sk_live_scripted0000"
	}
	return secrets.Fields{"apiKey": secrets.NewValue(key), "webhookSecret": secrets.NewValue(Secret)}
}

// Price tells the processor what a price is, for checkouts.
func (s *Store) Price(p script.Purchase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prices[p.PriceID] = p.Defaults()
}

func (s *Store) put(id string, o script.Object) script.Object {
	o["id"], o["livemode"] = id, s.live
	if s.objects[id] == nil {
		s.order = append(s.order, id)
	}
	s.objects[id] = o
	return o
}

// event signs what happened to an object.
func (s *Store) event(kind string, object script.Object) script.Delivery {
	e := script.Object{
		"id": s.Next("evt_"), "object": "event", "api_version": cardprocessor.Version, "created": s.now().Unix(), "livemode": s.live,
		"type": kind, "data": script.Object{"object": object},
	}
	e = script.Copy(e)
	s.events = append(s.events, e)
	body := script.Encode(e)
	return script.Delivery{Header: sign.CardProcessor(Secret, body, s.now()), Body: body}
}

// Event signs an event of any kind about an object.
func (s *Store) Event(kind string, object script.Object) script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.event(kind, object)
}

func price(p script.Purchase) script.Object {
	o := script.Object{"id": p.PriceID, "object": "price", "product": p.ProductID, "currency": strings.ToLower(p.Currency), "unit_amount": p.AmountMinor}
	if p.Period > 0 {
		o["recurring"] = script.Object{"interval": "month", "interval_count": 1}
	}
	return o
}

func metadata(p script.Purchase) script.Object {
	if p.AccountToken == "" {
		return script.Object{}
	}
	return script.Object{"kit_account": p.AccountToken}
}

// Subscribe begins a subscription with a paid invoice, or a trial.
func (s *Store) Subscribe(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	return s.subscribe(p, cmp.Or(p.CustomerID, s.Next("cus_")))
}

func (s *Store) subscribe(p script.Purchase, customer string) (id string, out []script.Delivery) {
	start, end, status, amount := s.now(), s.now().Add(p.Period), "active", p.AmountMinor*p.Quantity
	sub := script.Object{}
	if p.Trial > 0 {
		end, status, amount = start.Add(p.Trial), "trialing", 0
		sub["trial_end"] = end.Unix()
	}
	for name, value := range (script.Object{
		"object": "subscription", "status": status, "customer": customer, "metadata": metadata(p), "start_date": start.Unix(),
		"cancel_at": nil, "cancel_at_period_end": false, "ended_at": nil, "pause_collection": nil,
		"items": script.Object{"data": []any{script.Object{
			"current_period_start": start.Unix(), "current_period_end": end.Unix(), "quantity": p.Quantity, "price": price(p),
		}}},
	}) {
		sub[name] = value
	}
	id = s.Next("sub_")
	s.put(id, sub)
	out = []script.Delivery{s.event("customer.subscription.created", sub)}
	return id, append(out, s.invoice(id, amount, start, end, "paid"))
}

// invoice adds one for a period and tells of it.
func (s *Store) invoice(sub string, amount int64, start, end time.Time, status string) script.Delivery {
	id, intent, charge := s.Next("in_"), s.Next("pi_"), s.Next("ch_")
	item := first(s.objects[sub])
	in := s.put(id, script.Object{
		"object": "invoice", "status": status, "subtotal": amount, "total": amount, "amount_paid": amount, "amount_due": amount,
		"currency": item["price"].(script.Object)["currency"], "created": s.now().Unix(),
		"status_transitions": script.Object{"paid_at": s.now().Unix()},
		"parent":             script.Object{"type": "subscription_details", "subscription_details": script.Object{"subscription": sub}},
		"lines": script.Object{"data": []any{script.Object{
			"quantity": item["quantity"], "period": script.Object{"start": start.Unix(), "end": end.Unix()},
			"pricing": script.Object{"price_details": script.Object{"product": item["price"].(script.Object)["product"]}},
		}}},
	})
	if status != "paid" {
		in["amount_paid"] = 0
		return s.event("invoice.payment_failed", in)
	}
	s.put(charge, script.Object{
		"object": "charge", "amount": amount, "currency": in["currency"], "amount_refunded": 0, "refunded": false,
		"payment_intent": intent, "invoice_of": id,
	})
	return s.event("invoice.paid", in)
}

func first(sub script.Object) script.Object {
	return sub["items"].(script.Object)["data"].([]any)[0].(script.Object)
}

func unix(v any) time.Time {
	switch n := v.(type) {
	case int64:
		return time.Unix(n, 0)
	case float64:
		return time.Unix(int64(n), 0)
	}
	return time.Time{}
}

// update sets members of a subscription and tells of it.
func (s *Store) update(id, kind string, set script.Object) script.Delivery {
	sub := s.objects[id]
	for name, value := range set {
		sub[name] = value
	}
	return s.event(kind, sub)
}

// roll begins the next period of a subscription.
func (s *Store) roll(id string) (start, end time.Time, amount int64) {
	item := first(s.objects[id])
	start = unix(item["current_period_end"])
	end = start.Add(30 * 24 * time.Hour)
	item["current_period_start"], item["current_period_end"] = start.Unix(), end.Unix()
	amount = item["price"].(script.Object)["unit_amount"].(int64) * item["quantity"].(int64)
	return start, end, amount
}

// Renew begins the next period and pays it.
func (s *Store) Renew(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, end, amount := s.roll(id)
	return []script.Delivery{
		s.update(id, "customer.subscription.updated", script.Object{"status": "active"}),
		s.invoice(id, amount, start, end, "paid"),
	}
}

// Fail begins the next period without paying it: the subscription is past due.
func (s *Store) Fail(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, end, amount := s.roll(id)
	return []script.Delivery{
		s.invoice(id, amount, start, end, "open"),
		s.update(id, "customer.subscription.updated", script.Object{"status": "past_due"}),
	}
}

// Hold says that the attempts to charge are used up.
func (s *Store) Hold(id string) []script.Delivery {
	return s.set(id, script.Object{"status": "unpaid"})
}

// Recover pays the period that could not be charged.
func (s *Store) Recover(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	item := first(s.objects[id])
	amount := item["price"].(script.Object)["unit_amount"].(int64) * item["quantity"].(int64)
	paid := s.invoice(id, amount, unix(item["current_period_start"]), unix(item["current_period_end"]), "paid")
	return []script.Delivery{paid, s.update(id, "customer.subscription.updated", script.Object{"status": "active"})}
}

func (s *Store) set(id string, set script.Object) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.update(id, "customer.subscription.updated", set)}
}

// Pause stops collecting, until an end where one is given.
func (s *Store) Pause(id string, until time.Time) []script.Delivery {
	pause := script.Object{"behavior": "void", "resumes_at": nil}
	if !until.IsZero() {
		pause["resumes_at"] = until.Unix()
	}
	return s.set(id, script.Object{"pause_collection": pause})
}

// Resume collects again.
func (s *Store) Resume(id string) []script.Delivery {
	return s.set(id, script.Object{"pause_collection": nil})
}

// Cancel ends the subscription with its period, Uncancel takes that back.
func (s *Store) Cancel(id string) []script.Delivery {
	return s.set(id, script.Object{"cancel_at_period_end": true})
}

// Uncancel lets the subscription renew again.
func (s *Store) Uncancel(id string) []script.Delivery {
	return s.set(id, script.Object{"cancel_at_period_end": false})
}

// Expire ends the subscription now.
func (s *Store) Expire(id string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []script.Delivery{s.update(id, "customer.subscription.deleted", script.Object{"status": "canceled", "ended_at": s.now().Unix()})}
}

// Change swaps the price of a subscription.
func (s *Store) Change(id string, p script.Purchase) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	first(s.objects[id])["price"] = price(p)
	return []script.Delivery{s.update(id, "customer.subscription.updated", nil)}
}

// Buy sells something once, through a session.
func (s *Store) Buy(p script.Purchase) (id string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	id = s.Next("cs_")
	p.Period = 0
	s.put(id, s.sessionOf(p, "payment", cmp.Or(p.CustomerID, s.Next("cus_"))))
	return id, s.pay(id, p)
}

func (s *Store) sessionOf(p script.Purchase, mode, customer string) script.Object {
	return script.Object{
		"object": "checkout.session", "mode": mode, "status": "open", "payment_status": "unpaid", "created": s.now().Unix(),
		"amount_total": p.AmountMinor * p.Quantity, "currency": strings.ToLower(p.Currency), "customer": customer,
		"client_reference_id": p.AccountToken, "metadata": metadata(p), "expires_at": s.now().Add(24 * time.Hour).Unix(),
		"line_items": script.Object{"data": []any{script.Object{"quantity": p.Quantity, "price": price(p)}}},
	}
}

// pay completes a session.
func (s *Store) pay(id string, p script.Purchase) []script.Delivery {
	session := s.objects[id]
	session["status"], session["payment_status"] = "complete", "paid"
	if session["mode"] == "subscription" {
		sub, out := s.subscribe(p, session["customer"].(string))
		session["subscription"] = sub
		return append(out, s.event("checkout.session.completed", session))
	}
	intent := s.Next("pi_")
	session["payment_intent"] = intent
	s.put(s.Next("ch_"), script.Object{
		"object": "charge", "amount": session["amount_total"], "currency": session["currency"], "amount_refunded": 0, "refunded": false,
		"payment_intent": intent, "session_of": id,
	})
	return []script.Delivery{s.event("checkout.session.completed", session)}
}

// Complete pays a session that a checkout made, or returns [script.ErrNoSession] or
// [script.ErrPaid].
func (s *Store) Complete(id string) ([]script.Delivery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	session := s.objects[id]
	if session["object"] != "checkout.session" {
		return nil, script.ErrNoSession
	}
	if session["payment_status"] == "paid" {
		return nil, script.ErrPaid
	}
	item := session["line_items"].(script.Object)["data"].([]any)[0].(script.Object)
	p := s.prices[item["price"].(script.Object)["id"].(string)]
	p.AccountToken, p.Quantity = session["client_reference_id"].(string), item["quantity"].(int64)
	return s.pay(id, p), nil
}

// charge finds the newest charge of a subscription or session.
func (s *Store) charge(purchase string) script.Object {
	for i := len(s.order) - 1; i >= 0; i-- {
		o := s.objects[s.order[i]]
		if o["object"] != "charge" {
			continue
		}
		if o["session_of"] == purchase {
			return o
		}
		if in := s.objects[text(o["invoice_of"])]; in != nil && subscriptionOf(in) == purchase {
			return o
		}
	}
	return nil
}

func text(v any) string {
	t, _ := v.(string)
	return t
}

func subscriptionOf(in script.Object) string {
	return text(in["parent"].(script.Object)["subscription_details"].(script.Object)["subscription"])
}

// Refund gives back an amount of the newest charge, 0 for all of it.
func (s *Store) Refund(purchase string, amount int64) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.charge(purchase)
	if amount == 0 {
		amount = c["amount"].(int64)
	}
	c["amount_refunded"], c["refunded"] = amount, amount == c["amount"].(int64)
	return []script.Delivery{s.event("charge.refunded", c)}
}

// FailRefund says that the refunds of the newest charge did not go through.
func (s *Store) FailRefund(purchase string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.charge(purchase)
	c["amount_refunded"], c["refunded"] = 0, false
	refund := script.Object{"id": s.Next("re_"), "object": "refund", "status": "failed", "charge": c["id"], "payment_intent": c["payment_intent"]}
	return []script.Delivery{s.event("refund.failed", refund)}
}

// Dispute lets the payer's bank take the newest charge; Win brings it back.
func (s *Store) Dispute(purchase string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.charge(purchase)
	amount := c["amount"].(int64)
	d := s.put(s.Next("dp_"), script.Object{
		"object": "dispute", "status": "needs_response", "amount": amount, "created": s.now().Unix(), "charge": c["id"],
		"payment_intent": c["payment_intent"], "balance_transactions": []any{script.Object{"amount": -amount}},
	})
	return []script.Delivery{s.event("charge.dispute.created", d), s.event("charge.dispute.funds_withdrawn", d)}
}

// Win ends the dispute of the newest charge in favour of the seller.
func (s *Store) Win(purchase string) []script.Delivery { return s.close(purchase, "won") }

// Lose ends the dispute of the newest charge in favour of the payer.
func (s *Store) Lose(purchase string) []script.Delivery { return s.close(purchase, "lost") }

func (s *Store) close(purchase, status string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	charge := s.charge(purchase)["id"]
	var out []script.Delivery
	for _, id := range s.order {
		if d := s.objects[id]; d["object"] == "dispute" && d["charge"] == charge {
			d["status"] = status
			out = append(out, s.event("charge.dispute.closed", d))
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
	if !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer sk_") || r.Header.Get("Stripe-Version") != cardprocessor.Version {
		fail(w, http.StatusUnauthorized, "", "")
		return
	}
	if err := r.ParseForm(); err != nil {
		fail(w, http.StatusBadRequest, "", "")
		return
	}
	if r.Method == http.MethodPost {
		s.post(w, r)
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if last := s.objects[parts[len(parts)-1]]; last != nil {
		script.Reply(w, http.StatusOK, last)
		return
	}
	if strings.Contains(parts[len(parts)-1], "_") && parts[len(parts)-1] != "invoice_payments" {
		fail(w, http.StatusNotFound, "resource_missing", "id")
		return
	}
	s.list(w, parts[len(parts)-1], r.Form)
}

func fail(w http.ResponseWriter, status int, code, param string) {
	script.Reply(w, status, script.Object{"error": script.Object{"type": "invalid_request_error", "code": code, "param": param}})
}

func (s *Store) list(w http.ResponseWriter, kind string, q url.Values) {
	data := []any{}
	add := func(match func(script.Object) bool, object string) {
		for _, id := range slices.Backward(s.order) {
			if o := s.objects[id]; o["object"] == object && match(o) {
				data = append(data, o)
			}
		}
	}
	switch kind {
	case "invoices":
		add(func(o script.Object) bool {
			return subscriptionOf(o) == q.Get("subscription") && o["status"] == q.Get("status")
		}, "invoice")
	case "subscriptions":
		add(func(o script.Object) bool { return o["customer"] == q.Get("customer") }, "subscription")
	case "disputes":
		add(func(o script.Object) bool { return o["charge"] == q.Get("charge") }, "dispute")
	case "sessions":
		add(func(o script.Object) bool {
			if q.Has("payment_intent") {
				return o["payment_intent"] == q.Get("payment_intent")
			}
			return o["customer"] == q.Get("customer") && o["status"] == q.Get("status")
		}, "checkout.session")
	case "invoice_payments":
		add(func(o script.Object) bool {
			return o["payment_intent"] == q.Get("payment[payment_intent]") && o["invoice_of"] != nil
		}, "charge")
		for i, c := range data {
			data[i] = script.Object{"object": "invoice_payment", "invoice": c.(script.Object)["invoice_of"]}
		}
	case "events":
		s.listEvents(w, q)
		return
	}
	script.Reply(w, http.StatusOK, script.Object{"object": "list", "data": data, "has_more": false})
}

func (s *Store) listEvents(w http.ResponseWriter, q url.Values) {
	since, _ := strconv.ParseInt(q.Get("created[gte]"), 10, 64) // absent is the beginning
	limit, _ := strconv.Atoi(q.Get("limit"))
	data, more, after := []any{}, false, q.Get("starting_after")
	for _, e := range slices.Backward(s.events) {
		if after != "" {
			if e["id"] == after {
				after = ""
			}
			continue
		}
		if unix(e["created"]).Unix() < since || !slices.Contains(q["types[]"], text(e["type"])) {
			continue
		}
		if more = len(data) == limit; more {
			break
		}
		data = append(data, e)
	}
	script.Reply(w, http.StatusOK, script.Object{"object": "list", "data": data, "has_more": more})
}

// post makes objects, once for each idempotency key, which is good for one request.
func (s *Store) post(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	request := r.URL.Path + "?" + r.PostForm.Encode()
	if made, ok := s.replies[key]; ok && key != "" {
		if s.asked[key] != request {
			script.Reply(w, http.StatusBadRequest, script.Object{"error": script.Object{"type": "idempotency_error"}})
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(made) // to a client that has gone
		return
	}
	o, status := s.make(r.URL.Path, r.PostForm)
	if status != http.StatusOK {
		fail(w, status, text(o["code"]), text(o["param"]))
		return
	}
	if key != "" {
		s.replies[key], s.asked[key] = script.Encode(o), request
	}
	script.Reply(w, http.StatusOK, o)
}

func (s *Store) make(path string, form url.Values) (script.Object, int) {
	switch path {
	case "/v1/customers":
		return s.put(s.Next("cus_"), script.Object{"object": "customer", "metadata": script.Object{"kit_account": form.Get("metadata[kit_account]")}}), http.StatusOK
	case "/v1/checkout/sessions":
		return s.makeSession(form)
	case "/v1/billing_portal/sessions":
		if s.objects[form.Get("customer")] == nil && !strings.HasPrefix(form.Get("customer"), "cus_") {
			return script.Object{"code": "resource_missing", "param": "customer"}, http.StatusBadRequest
		}
		return script.Object{"object": "billing_portal.session", "url": "https://billing.example.com/p/" + form.Get("customer")}, http.StatusOK
	case "/v1/invoices/create_preview":
		return s.preview(form.Get("subscription"))
	case "/v1/coupons":
		return s.put(s.Next("co_"), script.Object{"object": "coupon"}), http.StatusOK
	case "/v1/promotion_codes":
		for _, o := range s.objects {
			if o["object"] == "promotion_code" && o["code"] == form.Get("code") {
				return script.Object{"param": "code"}, http.StatusBadRequest
			}
		}
		return s.put(s.Next("promo_"), script.Object{"object": "promotion_code", "code": form.Get("code")}), http.StatusOK
	}
	if sub := s.objects[strings.TrimPrefix(path, "/v1/subscriptions/")]; sub != nil {
		sub["cancel_at_period_end"] = form.Get("cancel_at_period_end") == "true"
		return sub, http.StatusOK
	}
	return script.Object{"code": "resource_missing"}, http.StatusNotFound
}

func (s *Store) makeSession(form url.Values) (script.Object, int) {
	p, ok := s.prices[form.Get("line_items[0][price]")]
	if !ok {
		return script.Object{"code": "resource_missing", "param": "line_items[0][price]"}, http.StatusBadRequest
	}
	p.AccountToken = form.Get("client_reference_id")
	p.Quantity, _ = strconv.ParseInt(form.Get("line_items[0][quantity]"), 10, 64)
	if form.Get("mode") == "payment" {
		p.Period = 0
	}
	id := s.Next("cs_")
	o := s.put(id, s.sessionOf(p, form.Get("mode"), form.Get("customer")))
	o["url"] = "https://checkout.example.com/c/" + id
	o["success_url"] = form.Get("success_url")
	return o, http.StatusOK
}

func (s *Store) preview(id string) (script.Object, int) {
	sub := s.objects[id]
	if sub == nil || sub["status"] == "canceled" || sub["cancel_at_period_end"] == true {
		return script.Object{"code": "invoice_upcoming_none"}, http.StatusNotFound
	}
	item := first(sub)
	cost := item["price"].(script.Object)
	return script.Object{
		"object": "invoice", "amount_due": cost["unit_amount"].(int64) * item["quantity"].(int64), "currency": cost["currency"],
		"next_payment_attempt": item["current_period_end"],
	}, http.StatusOK
}
