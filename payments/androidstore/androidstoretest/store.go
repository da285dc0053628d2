// Package androidstoretest is a scripted store for the rail android_store: it
// keeps purchases by their token, pushes notifications with tokens shaped like
// Google's, and responds as the Play Developer API does.
package androidstoretest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// The names of the store's application and its pushes.
const (
	Package  = "com.example.app"
	Audience = "https://shop.example.com/payments/webhooks/android_store"
	Account  = "push@project.iam.gserviceaccount.com"
)

// Store is a scripted Google Play. Its methods are safe for concurrent use; those
// that change something return what the store would push.
type Store struct {
	script.Faults
	script.Counter
	// Google signs pushes.
	Google *sign.Google

	now  func() time.Time
	test bool
	key  string

	mu       sync.Mutex
	tokens   map[string]script.Object
	products map[string]script.Object
	orders   map[string]script.Object
	voided   []script.Object
	acked    map[string]string // by token: what was told
}

// New makes a store of an environment: outside of production purchases are those
// of testers.
func New(now func() time.Time, environment payments.StoreEnvironment) *Store {
	return &Store{
		Google: sign.NewGoogle(), now: now, test: environment != payments.EnvironmentProduction, key: sign.RSAKey(),
		tokens: make(map[string]script.Object), products: make(map[string]script.Object), orders: make(map[string]script.Object), acked: make(map[string]string),
	}
}

// Rail is a rail that trusts the store and calls it.
func (s *Store) Rail() payments.Rail {
	return androidstore.New(androidstore.Options{HTTP: script.Client(s)})
}

// Credentials are a block that fits.
func (s *Store) Credentials() secrets.Fields {
	return secrets.Fields{
		"clientEmail": secrets.NewValue("kit@project.iam.gserviceaccount.com"), "privateKey": secrets.NewValue(s.key),
		"tokenUri": secrets.NewValue("https://oauth2.googleapis.com/token"), "packageName": secrets.NewValue(Package),
		"pushAudience": secrets.NewValue(Audience), "pushServiceAccount": secrets.NewValue(Account),
	}
}

// Acknowledged is what the store was told of a purchase: "", "acknowledge" or
// "consume".
func (s *Store) Acknowledged(token string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked[token]
}

// OfTester makes a purchase one of a tester, which no money was paid for.
func (s *Store) OfTester(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token]["testPurchase"] = script.Object{}
}

// PaidFor makes a purchase one that money was paid for.
func (s *Store) PaidFor(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens[token], "testPurchase")
}

// HideOrders takes away the right to read orders.
func (s *Store) HideOrders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.orders)
}

func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// push makes a delivery of a notification.
func (s *Store) push(set script.Object) []script.Delivery {
	n := script.Object{"version": "1.0", "packageName": Package, "eventTimeMillis": strconv.FormatInt(s.now().UnixMilli(), 10)}
	for name, value := range set {
		n[name] = value
	}
	return []script.Delivery{s.Push(script.Encode(n), sign.Claims(Audience, Account, s.now()))}
}

// Push makes a delivery of any notification, with a token of any claims.
func (s *Store) Push(notification []byte, claims map[string]any) script.Delivery {
	id := s.Next("")
	return script.Delivery{
		Header: http.Header{"Authorization": {"Bearer " + s.Google.Token(claims)}},
		Body: script.Encode(script.Object{
			"message": script.Object{
				"attributes": script.Object{}, "data": base64.StdEncoding.EncodeToString(notification),
				"messageId": id, "publishTime": stampOf(s.now()),
			},
			"subscription": "projects/example/subscriptions/play",
		}),
	}
}

func (s *Store) changed(token string, kind int) []script.Delivery {
	return s.push(script.Object{"subscriptionNotification": script.Object{"version": "1.0", "notificationType": kind, "purchaseToken": token}})
}

func (s *Store) token() string { return strings.ToLower(s.Next("token")) + ".AO-J1O" }

func amount(p script.Purchase) script.Object {
	return script.Object{"currencyCode": p.Currency, "units": strconv.FormatInt(p.AmountMinor/100, 10), "nanos": p.AmountMinor % 100 * 10_000_000}
}

// Subscribe begins a subscription, which is known by its token.
func (s *Store) Subscribe(p script.Purchase) (token string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token = s.token()
	s.subscribe(token, p.Defaults(), "SUBSCRIPTION_STATE_ACTIVE")
	return token, s.changed(token, 4)
}

func (s *Store) subscribe(token string, p script.Purchase, state string) script.Object {
	period, phase := p.Period, script.Object{"basePrice": script.Object{}}
	if p.Trial > 0 {
		period, phase = p.Trial, script.Object{"freeTrial": script.Object{}}
	}
	item := script.Object{
		"productId": p.ProductID, "expiryTime": stampOf(s.now().Add(period)), "latestSuccessfulOrderId": s.Next("GPA."),
		"autoRenewingPlan": script.Object{"autoRenewEnabled": true, "recurringPrice": amount(p)},
		"offerDetails":     script.Object{"basePlanId": p.BasePlanID}, "offerPhase": phase,
	}
	sub := script.Object{
		"kind": "androidpublisher#subscriptionPurchaseV2", "subscriptionState": state, "startTime": stampOf(s.now()),
		"lineItems": []any{item}, "acknowledgementState": "ACKNOWLEDGEMENT_STATE_PENDING", "period": p.Period.String(),
	}
	paid, details := p, "baseDetails"
	switch {
	case p.Trial > 0:
		paid.AmountMinor, details = 0, "freeTrialDetails"
	case p.IntroMinor > 0:
		item["offerPhase"] = script.Object{"introductoryPrice": script.Object{}}
		paid.AmountMinor, details = p.IntroMinor, "introductoryPriceDetails"
	}
	id := item["latestSuccessfulOrderId"].(string) // set above
	s.orders[id] = script.Object{"orderId": id, "purchaseToken": token, "lineItems": []any{script.Object{
		"productId": p.ProductID, "total": amount(paid),
		"subscriptionDetails": script.Object{"offerPhaseDetails": script.Object{details: script.Object{}}},
	}}}
	if p.AccountToken != "" {
		sub["externalAccountIdentifiers"] = script.Object{"obfuscatedExternalAccountId": p.AccountToken}
	}
	if s.test {
		sub["testPurchase"] = script.Object{}
	}
	s.tokens[token] = sub
	return sub
}

func line(sub script.Object) script.Object { return sub["lineItems"].([]any)[0].(script.Object) }

// state sets what a subscription is and tells of it.
func (s *Store) state(token, state string, kind int, set script.Object) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.tokens[token]
	for _, name := range []string{"pausedStateContext", "canceledStateContext"} {
		delete(sub, name)
	}
	sub["subscriptionState"] = state
	for name, value := range set {
		sub[name] = value
	}
	return s.changed(token, kind)
}

// Renew begins the next period, Recover after a hold or a pause.
func (s *Store) Renew(token string) []script.Delivery { return s.renew(token, 2) }

// Recover begins a period after what went wrong, or after a pause.
func (s *Store) Recover(token string) []script.Delivery { return s.renew(token, 1) }

// Resume ends a pause.
func (s *Store) Resume(token string) []script.Delivery { return s.renew(token, 1) }

func (s *Store) renew(token string, kind int) []script.Delivery {
	s.mu.Lock()
	item := line(s.tokens[token])
	start, _ := time.Parse(time.RFC3339Nano, item["expiryTime"].(string)) // written by stampOf
	if kind == 1 || start.Before(s.now().Add(-24*time.Hour)) {
		start = s.now()
	}
	period, _ := time.ParseDuration(s.tokens[token]["period"].(string)) // written by subscribe
	item["expiryTime"], item["offerPhase"] = stampOf(start.Add(period)), script.Object{"basePrice": script.Object{}}
	base, number, _ := strings.Cut(item["latestSuccessfulOrderId"].(string), "..")
	n := 0
	if number != "" {
		n, _ = strconv.Atoi(number) // written here
		n++
	}
	item["latestSuccessfulOrderId"] = fmt.Sprintf("%s..%d", base, n)
	s.mu.Unlock()
	return s.state(token, "SUBSCRIPTION_STATE_ACTIVE", kind, nil)
}

// Grace says that a renewal failed, and until when access stays.
func (s *Store) Grace(token string, until time.Time) []script.Delivery {
	s.mu.Lock()
	item := line(s.tokens[token])
	item["expiryTime"], item["offerPhase"] = stampOf(until), script.Object{"basePrice": script.Object{}} // what could not be charged
	s.mu.Unlock()
	return s.state(token, "SUBSCRIPTION_STATE_IN_GRACE_PERIOD", 6, nil)
}

// Hold says that the grace is over and the charge still fails.
func (s *Store) Hold(token string) []script.Delivery {
	return s.state(token, "SUBSCRIPTION_STATE_ON_HOLD", 5, nil)
}

// Pause stops the subscription, until an end where one is given.
func (s *Store) Pause(token string, until time.Time) []script.Delivery {
	paused := script.Object{}
	if !until.IsZero() {
		paused["autoResumeTime"] = stampOf(until)
	}
	return s.state(token, "SUBSCRIPTION_STATE_PAUSED", 10, script.Object{"pausedStateContext": paused})
}

// Cancel ends the subscription with its period, Uncancel takes that back.
func (s *Store) Cancel(token string) []script.Delivery {
	return s.cancel(token, false, "SUBSCRIPTION_STATE_CANCELED", 3)
}

// Uncancel lets the subscription renew again.
func (s *Store) Uncancel(token string) []script.Delivery {
	return s.cancel(token, true, "SUBSCRIPTION_STATE_ACTIVE", 7)
}

func (s *Store) cancel(token string, renews bool, state string, kind int) []script.Delivery {
	s.mu.Lock()
	line(s.tokens[token])["autoRenewingPlan"].(script.Object)["autoRenewEnabled"] = renews
	s.mu.Unlock()
	return s.state(token, state, kind, nil)
}

// Expire says that the subscription has ended.
func (s *Store) Expire(token string) []script.Delivery {
	return s.cancel(token, false, "SUBSCRIPTION_STATE_EXPIRED", 13)
}

// Revoke takes the access away without saying why.
func (s *Store) Revoke(token string) []script.Delivery {
	return s.cancel(token, false, "SUBSCRIPTION_STATE_EXPIRED", 12)
}

// Upgrade replaces a subscription by another one, with a token of its own.
func (s *Store) Upgrade(token string, p script.Purchase) (newer string, out []script.Delivery) {
	s.mu.Lock()
	newer = s.token()
	s.subscribe(newer, p.Defaults(), "SUBSCRIPTION_STATE_ACTIVE")["linkedPurchaseToken"] = token
	s.mu.Unlock()
	out = s.state(token, "SUBSCRIPTION_STATE_CANCELED", 13, script.Object{"canceledStateContext": script.Object{"replacementCancellation": script.Object{}}})
	s.mu.Lock()
	defer s.mu.Unlock()
	return newer, append(out, s.changed(newer, 4)...)
}

// Buy sells something once, which is known by its token.
func (s *Store) Buy(p script.Purchase) (token string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	token = s.token()
	consumption := ""
	if p.Consumable {
		consumption = "CONSUMPTION_STATE_YET_TO_BE_CONSUMED"
	}
	o := script.Object{
		"kind": "androidpublisher#productPurchaseV2", "orderId": s.Next("GPA."), "purchaseCompletionTime": stampOf(s.now()),
		"productLineItem": []any{script.Object{"productId": p.ProductID, "productOfferDetails": script.Object{
			"quantity": p.Quantity, "refundableQuantity": p.Quantity, "consumptionState": consumption,
		}}},
		"purchaseStateContext": script.Object{"purchaseState": "PURCHASED"}, "acknowledgementState": "ACKNOWLEDGEMENT_STATE_PENDING",
	}
	if p.AccountToken != "" {
		o["obfuscatedExternalAccountId"] = p.AccountToken
	}
	if s.test {
		o["testPurchaseContext"] = script.Object{"fopType": "TEST"}
	}
	s.products[token] = o
	return token, s.bought(token, 1)
}

func (s *Store) bought(token string, kind int) []script.Delivery {
	return s.push(script.Object{"oneTimeProductNotification": script.Object{"version": "1.0", "notificationType": kind, "purchaseToken": token}})
}

// Refund gives the money of the newest order back, Dispute lets the bank take it.
func (s *Store) Refund(token string) []script.Delivery { return s.void(token, 1) }

// Dispute lets the payer's bank take the newest order.
func (s *Store) Dispute(token string) []script.Delivery { return s.void(token, 7) }

func (s *Store) void(token string, reason int) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	var order string
	kind := 1
	if sub := s.tokens[token]; sub != nil {
		order = line(sub)["latestSuccessfulOrderId"].(string)
	} else {
		kind, order = 2, s.products[token]["orderId"].(string)
		s.products[token]["purchaseStateContext"] = script.Object{"purchaseState": "CANCELLED"}
	}
	s.voided = append(s.voided, script.Object{
		"orderId": order, "purchaseToken": token, "voidedTimeMillis": strconv.FormatInt(s.now().UnixMilli(), 10), "voidedReason": reason,
	})
	return s.push(script.Object{"voidedPurchaseNotification": script.Object{
		"purchaseToken": token, "orderId": order, "productType": kind, "refundType": 1,
	}})
}

// RefundPart gives back some of what was bought several times at once.
func (s *Store) RefundPart(token string, quantity int64) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	offer := s.products[token]["productLineItem"].([]any)[0].(script.Object)["productOfferDetails"].(script.Object)
	offer["refundableQuantity"] = offer["refundableQuantity"].(int64) - quantity
	return s.push(script.Object{"voidedPurchaseNotification": script.Object{
		"purchaseToken": token, "orderId": s.products[token]["orderId"], "productType": 2, "refundType": 2,
	}})
}

// ServeHTTP responds as the Play Developer API, the issuer of access tokens and
// the server of public keys do.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/oauth2/v3/certs":
		s.Google.ServeHTTP(w, r)
		return
	case "/token":
		script.Reply(w, http.StatusOK, script.Object{"access_token": "scripted", "expires_in": 3599, "token_type": "Bearer"})
		return
	}
	if s.Faults.Serve(w) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/androidpublisher/v3/applications/"+Package+"/")
	if !ok || r.Header.Get("Authorization") != "Bearer scripted" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serve(w, r, path)
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request, path string) {
	if id, ok := strings.CutPrefix(path, "orders/"); ok {
		if s.orders[id] == nil {
			script.Reply(w, http.StatusForbidden, script.Object{"error": script.Object{"code": 403, "status": "PERMISSION_DENIED"}})
			return
		}
		script.Reply(w, http.StatusOK, s.orders[id])
		return
	}
	path = strings.TrimPrefix(path, "purchases/")
	if path == "voidedpurchases" {
		s.listVoided(w, r)
		return
	}
	_, token, _ := strings.Cut(path, "/tokens/")
	token, verb, told := strings.Cut(token, ":")
	o := s.tokens[token]
	if strings.HasPrefix(path, "products") {
		o = s.products[token]
	}
	if o == nil {
		script.Reply(w, http.StatusNotFound, script.Object{"error": script.Object{"code": 404, "status": "NOT_FOUND"}})
		return
	}
	if told {
		s.tell(token, verb, o)
		script.Reply(w, http.StatusOK, script.Object{})
		return
	}
	script.Reply(w, http.StatusOK, o)
}

func (s *Store) tell(token, verb string, o script.Object) {
	switch verb {
	case "cancel":
		o["subscriptionState"] = "SUBSCRIPTION_STATE_CANCELED"
		line(o)["autoRenewingPlan"].(script.Object)["autoRenewEnabled"] = false
		return
	case "consume":
		o["productLineItem"].([]any)[0].(script.Object)["productOfferDetails"].(script.Object)["consumptionState"] = "CONSUMPTION_STATE_CONSUMED"
	}
	o["acknowledgementState"], s.acked[token] = "ACKNOWLEDGEMENT_STATE_ACKNOWLEDGED", verb
}

func (s *Store) listVoided(w http.ResponseWriter, r *http.Request) {
	since, _ := strconv.ParseInt(r.URL.Query().Get("startTime"), 10, 64) // absent is the beginning
	list := []script.Object{}
	for _, v := range s.voided {
		if at, _ := strconv.ParseInt(v["voidedTimeMillis"].(string), 10, 64); at >= since {
			list = append(list, v)
		}
	}
	script.Reply(w, http.StatusOK, script.Object{"voidedPurchases": list})
}
