// Package iosstoretest is a scripted store for the rail ios_store: it keeps
// subscriptions and purchases, signs transactions and notifications with a chain
// shaped like Apple's, and responds as the App Store Server API does.
package iosstoretest

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/iosstore"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// The name of the store's application.
const (
	BundleID = "com.example.app"
	AppleID  = "1234567890"
)

// Store is a scripted App Store. Its methods are safe for concurrent use; those
// that change something return what the store would deliver.
type Store struct {
	script.Faults
	// Apple signs.
	Apple *sign.Apple

	now         func() time.Time
	environment string
	key         string

	mu            sync.Mutex
	ids           int64
	transactions  map[string]script.Object
	order         []string
	subscriptions map[string]*subscription
	sent          []sent
}

type subscription struct {
	status  int
	latest  string
	renewal script.Object
	period  time.Duration
	bought  script.Purchase
}

type sent struct {
	at      time.Time
	payload string
}

// New makes a store of an environment.
func New(now func() time.Time, environment payments.StoreEnvironment) *Store {
	name := "Sandbox"
	if environment == payments.EnvironmentProduction {
		name = "Production"
	}
	return &Store{
		Apple: sign.NewApple(now()), now: now, environment: name, key: sign.ECKey(), ids: 2_000_000_000_000_000,
		transactions: make(map[string]script.Object), subscriptions: make(map[string]*subscription),
	}
}

// Rail is a rail that trusts the store and calls it.
func (s *Store) Rail() payments.Rail {
	return iosstore.New(iosstore.Options{HTTP: script.Client(s), Roots: []*x509.Certificate{s.Apple.Root}})
}

// Credentials are a block that fits.
func (s *Store) Credentials() secrets.Fields {
	return secrets.Fields{
		"issuerId": secrets.NewValue("57246542-96fe-1a63-e053-0824d011072a"), "keyId": secrets.NewValue("2X9R4HXF34"),
		"privateKey": secrets.NewValue(s.key), "bundleId": secrets.NewValue(BundleID), "appAppleId": secrets.NewValue(AppleID),
	}
}

func (s *Store) nextID() string {
	s.ids++
	return fmt.Sprint(s.ids)
}

func milli(p script.Purchase) int64 {
	switch money.Exponent(p.Currency) {
	case 0:
		return p.AmountMinor * 1000
	case 3:
		return p.AmountMinor
	}
	return p.AmountMinor * 10
}

// transaction adds one; original is "" for the first of a purchase.
func (s *Store) transaction(p script.Purchase, kind, original string, start time.Time, until time.Time) string {
	transactionID := s.nextID()
	if original == "" {
		original = transactionID
	}
	ownership := "PURCHASED"
	if p.Shared {
		ownership = "FAMILY_SHARED"
	}
	t := script.Object{
		"transactionId": transactionID, "originalTransactionId": original, "bundleId": BundleID, "productId": p.ProductID,
		"purchaseDate": start.UnixMilli(), "originalPurchaseDate": start.UnixMilli(), "quantity": p.Quantity, "type": kind,
		"inAppOwnershipType": ownership, "environment": s.environment, "transactionReason": "PURCHASE",
		"currency": p.Currency, "price": milli(p), "storefront": "USA",
	}
	if first, ok := s.transactions[original]; ok {
		t["originalPurchaseDate"], t["transactionReason"] = first["purchaseDate"], "RENEWAL"
	}
	if p.AccountToken != "" {
		t["appAccountToken"] = p.AccountToken
	}
	if !until.IsZero() {
		t["expiresDate"] = until.UnixMilli()
	}
	s.transactions[transactionID] = t
	s.order = append(s.order, transactionID)
	return transactionID
}

// signed signs a transaction as of now.
func (s *Store) signed(transactionID string) string {
	t := script.Copy(s.transactions[transactionID])
	t["signedDate"] = s.now().UnixMilli()
	return s.Apple.Sign(t)
}

// Signed is what a device holds of a transaction.
func (s *Store) Signed(transactionID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.signed(transactionID)
}

// Latest is the newest transaction of a subscription.
func (s *Store) Latest(original string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscriptions[original].latest
}

// notify signs a notification about a transaction.
func (s *Store) notify(kind, subtype, transactionID string) []script.Delivery {
	t := s.transactions[transactionID]
	data := script.Object{
		"appAppleId": json.Number(AppleID), "bundleId": BundleID, "bundleVersion": "1", "environment": s.environment,
		"signedTransactionInfo": s.signed(transactionID),
	}
	if sub := s.subscriptions[t["originalTransactionId"].(string)]; sub != nil {
		data["status"], data["signedRenewalInfo"] = sub.status, s.renewal(sub)
	}
	return s.send(script.Object{
		"notificationType": kind, "subtype": subtype, "notificationUUID": id.New(s.now()), "version": "2.0",
		"signedDate": s.now().UnixMilli(), "data": data,
	})
}

func (s *Store) renewal(sub *subscription) string {
	r := script.Copy(sub.renewal)
	r["signedDate"] = s.now().UnixMilli()
	return s.Apple.Sign(r)
}

func (s *Store) send(payload script.Object) []script.Delivery {
	signed := s.Apple.Sign(payload)
	s.sent = append(s.sent, sent{s.now(), signed})
	return []script.Delivery{{Body: script.Encode(script.Object{"signedPayload": signed})}}
}

// Test is the notification that one asks for.
func (s *Store) Test() []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.send(script.Object{
		"notificationType": "TEST", "notificationUUID": id.New(s.now()), "version": "2.0", "signedDate": s.now().UnixMilli(),
		"data": script.Object{"appAppleId": json.Number(AppleID), "bundleId": BundleID, "environment": s.environment},
	})
}

// Subscribe begins a subscription, which is known by its first transaction.
func (s *Store) Subscribe(p script.Purchase) (original string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	start, period := s.now(), p.Period
	first := p
	if p.Trial > 0 {
		period, first.AmountMinor = p.Trial, 0
	}
	original = s.transaction(first, "Auto-Renewable Subscription", "", start, start.Add(period))
	if p.Trial > 0 {
		s.transactions[original]["offerDiscountType"], s.transactions[original]["offerType"] = "FREE_TRIAL", 1
	}
	s.subscriptions[original] = &subscription{status: 1, latest: original, period: p.Period, bought: p, renewal: script.Object{
		"originalTransactionId": original, "productId": p.ProductID, "autoRenewProductId": p.ProductID, "autoRenewStatus": 1,
		"environment": s.environment, "renewalDate": start.Add(period).UnixMilli(), "renewalPrice": milli(p), "currency": p.Currency,
	}}
	return original, s.notify("SUBSCRIBED", "INITIAL_BUY", original)
}

// Renew begins the next period.
func (s *Store) Renew(original string) []script.Delivery { return s.renew(original, "") }

// Recover renews what could not be charged for a while.
func (s *Store) Recover(original string) []script.Delivery {
	return s.renew(original, "BILLING_RECOVERY")
}

func (s *Store) renew(original, subtype string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[original]
	start := time.UnixMilli(int64(number(s.transactions[sub.latest]["expiresDate"])))
	if subtype != "" {
		start = s.now()
	}
	sub.latest = s.transaction(sub.bought, "Auto-Renewable Subscription", original, start, start.Add(sub.period))
	sub.status = 1
	delete(sub.renewal, "gracePeriodExpiresDate")
	sub.renewal["isInBillingRetryPeriod"], sub.renewal["renewalDate"] = false, start.Add(sub.period).UnixMilli()
	return s.notify("DID_RENEW", subtype, sub.latest)
}

func number(v any) float64 {
	switch n := v.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// change sets what a subscription is and tells of it.
func (s *Store) change(original string, status int, set script.Object, kind, subtype string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[original]
	sub.status = status
	for name, value := range set {
		sub.renewal[name] = value
	}
	return s.notify(kind, subtype, sub.latest)
}

// Grace says that a renewal failed, and until when access stays.
func (s *Store) Grace(original string, until time.Time) []script.Delivery {
	return s.change(original, 4, script.Object{"isInBillingRetryPeriod": true, "gracePeriodExpiresDate": until.UnixMilli()},
		"DID_FAIL_TO_RENEW", "GRACE_PERIOD")
}

// Hold says that the grace is over and the charge still fails.
func (s *Store) Hold(original string) []script.Delivery {
	return s.change(original, 3, script.Object{"isInBillingRetryPeriod": true}, "GRACE_PERIOD_EXPIRED", "")
}

// Cancel turns the renewal off, Uncancel on.
func (s *Store) Cancel(original string) []script.Delivery {
	return s.change(original, 1, script.Object{"autoRenewStatus": 0}, "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_DISABLED")
}

// Uncancel turns the renewal on again.
func (s *Store) Uncancel(original string) []script.Delivery {
	return s.change(original, 1, script.Object{"autoRenewStatus": 1}, "DID_CHANGE_RENEWAL_STATUS", "AUTO_RENEW_ENABLED")
}

// Expire says that the subscription has ended.
func (s *Store) Expire(original string) []script.Delivery {
	return s.change(original, 2, script.Object{"expirationIntent": 1, "autoRenewStatus": 0}, "EXPIRED", "VOLUNTARY")
}

// Upgrade changes the product at once.
func (s *Store) Upgrade(original string, p script.Purchase) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscriptions[original]
	s.transactions[sub.latest]["isUpgraded"] = true
	p = p.Defaults()
	p.AccountToken = sub.bought.AccountToken
	sub.bought, sub.period = p, p.Period
	sub.latest = s.transaction(p, "Auto-Renewable Subscription", original, s.now(), s.now().Add(p.Period))
	sub.renewal["productId"], sub.renewal["autoRenewProductId"], sub.renewal["renewalPrice"] = p.ProductID, p.ProductID, milli(p)
	return s.notify("DID_CHANGE_RENEWAL_PREF", "UPGRADE", sub.latest)
}

// Buy sells something once.
func (s *Store) Buy(p script.Purchase) (transactionID string, out []script.Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = p.Defaults()
	kind := "Non-Consumable"
	switch {
	case p.Consumable:
		kind = "Consumable"
	case p.NonRenewing:
		kind = "Non-Renewing Subscription"
	}
	transactionID = s.transaction(p, kind, "", s.now(), time.Time{})
	return transactionID, s.notify("ONE_TIME_CHARGE", "", transactionID)
}

// Refund gives the money of a transaction back.
func (s *Store) Refund(transactionID string) []script.Delivery {
	return s.revoke(transactionID, script.Object{
		"revocationDate": s.now().UnixMilli(), "revocationReason": 1, "revocationType": "REFUND_FULL",
	}, "REFUND")
}

// RefundPart gives a part back, in basis points.
func (s *Store) RefundPart(transactionID string, basisPoints int64) []script.Delivery {
	return s.revoke(transactionID, script.Object{
		"revocationDate": s.now().UnixMilli(), "revocationReason": 1, "revocationType": "REFUND_PRORATED",
		"revocationPercentage": basisPoints * 10,
	}, "REFUND")
}

// Unshare takes from a family what it shared.
func (s *Store) Unshare(transactionID string) []script.Delivery {
	return s.revoke(transactionID, script.Object{"revocationDate": s.now().UnixMilli(), "revocationType": "FAMILY_REVOKE"}, "REVOKE")
}

// ReverseRefund takes a refund back.
func (s *Store) ReverseRefund(transactionID string) []script.Delivery {
	return s.revoke(transactionID, nil, "REFUND_REVERSED")
}

func (s *Store) revoke(transactionID string, set script.Object, kind string) []script.Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.transactions[transactionID]
	for _, name := range []string{"revocationDate", "revocationReason", "revocationType", "revocationPercentage"} {
		delete(t, name)
	}
	for name, value := range set {
		t[name] = value
	}
	return s.notify(kind, "", transactionID)
}

// ServeHTTP responds as the App Store Server API does.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.Faults.Serve(w) {
		return
	}
	if token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || strings.Count(token, ".") != 2 {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	switch {
	case r.URL.Path == "/inApps/v1/notifications/history":
		s.history(w, r)
	case strings.HasPrefix(r.URL.Path, "/inApps/v1/transactions/") && s.transactions[last] != nil:
		script.Reply(w, http.StatusOK, script.Object{"signedTransactionInfo": s.signed(last)})
	case strings.HasPrefix(r.URL.Path, "/inApps/v1/subscriptions/") && s.subscriptions[s.original(last)] != nil:
		s.statuses(w, s.original(last))
	case strings.HasPrefix(r.URL.Path, "/inApps/v2/history/") && s.transactions[last] != nil:
		s.past(w, s.original(last))
	default:
		script.Reply(w, http.StatusNotFound, script.Object{"errorCode": 4040010, "errorMessage": "Transaction id not found."})
	}
}

func (s *Store) original(transactionID string) string {
	original, _ := s.transactions[transactionID]["originalTransactionId"].(string)
	return original
}

func (s *Store) statuses(w http.ResponseWriter, original string) {
	sub := s.subscriptions[original]
	script.Reply(w, http.StatusOK, script.Object{
		"environment": s.environment, "bundleId": BundleID, "appAppleId": json.Number(AppleID),
		"data": []script.Object{{"subscriptionGroupIdentifier": "1", "lastTransactions": []script.Object{{
			"status": sub.status, "originalTransactionId": original,
			"signedTransactionInfo": s.signed(sub.latest), "signedRenewalInfo": s.renewal(sub),
		}}}},
	})
}

func (s *Store) past(w http.ResponseWriter, original string) {
	signed := []string{}
	for i := len(s.order) - 1; i >= 0 && len(signed) < 20; i-- {
		if s.original(s.order[i]) == original {
			signed = append(signed, s.signed(s.order[i]))
		}
	}
	script.Reply(w, http.StatusOK, script.Object{
		"revision": "1", "hasMore": false, "bundleId": BundleID, "environment": s.environment, "signedTransactions": signed,
	})
}

func (s *Store) history(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Start int64 `json:"startDate"`
		End   int64 `json:"endDate"`
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	const page = 20
	var from int
	_, _ = fmt.Sscan(r.URL.Query().Get("paginationToken"), &from) // "" is the beginning
	list := []script.Object{}
	for ; from < len(s.sent) && len(list) < page; from++ {
		if at := s.sent[from].at.UnixMilli(); at >= asked.Start && at <= asked.End {
			list = append(list, script.Object{"signedPayload": s.sent[from].payload, "sendAttempts": []script.Object{}})
		}
	}
	script.Reply(w, http.StatusOK, script.Object{
		"notificationHistory": list, "hasMore": from < len(s.sent), "paginationToken": fmt.Sprint(from),
	})
}
