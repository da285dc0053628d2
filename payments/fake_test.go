package payments_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

// fake is a rail whose deliveries and proofs are observations: it tests
// everything but the wire formats, which have tests of their own.
type fake struct {
	mu sync.Mutex
	// state is what Fetch, Redeem and OfCustomer return, by transaction id.
	state   map[string][]payments.Observation
	history []payments.HistoryPage
	// fail is what every call of the rail's API returns.
	fail  error
	acked []string
	calls int
	// session ends the ids of sessions.
	session string
	// ackFail is what acknowledging returns.
	ackFail error
	// onFetch returns what Fetch does instead of state.
	onFetch func(payments.Ref) payments.Observation
}

var errDown = errors.New("down")

// message is the body of a delivery.
type message struct {
	ID           string                    `json:"id"`
	Type         string                    `json:"type"`
	Environment  payments.StoreEnvironment `json:"environment"`
	Observations []payments.Observation    `json:"observations"`
}

func newFake() *fake { return &fake{state: make(map[string][]payments.Observation)} }

func (f *fake) set(o ...payments.Observation) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state[o[0].TransactionID] = o
}

func (f *fake) get(transactionID string) ([]payments.Observation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.fail != nil {
		return nil, f.fail
	}
	if o, ok := f.state[transactionID]; ok {
		return o, nil
	}
	return nil, payments.ErrPurchaseNotFound
}

func (f *fake) rail(id payments.RailID) payments.Rail {
	r := payments.Rail{
		ID: id, Credentials: secrets.Block{Name: string(id), Required: []string{"apiKey", "webhookSecret"}},
		CheckCredentials: func(environment payments.StoreEnvironment, fields secrets.Fields) error {
			if strings.HasPrefix(fields["apiKey"].Reveal(), "live_") != (environment == payments.EnvironmentProduction) {
				return errors.New("apiKey is of another environment")
			}
			return nil
		},
		Verify: func(_ context.Context, a payments.Access, header http.Header, body []byte) (payments.Delivery, error) {
			proof := header.Get("X-Proof")
			if proof == "down" {
				return payments.Delivery{}, payments.Transient(errors.New("no keys"), time.Second)
			}
			old := a.Previous["webhookSecret"]
			if proof != a.Credentials["webhookSecret"].Reveal() && (old.Empty() || proof != old.Reveal()) {
				return payments.Delivery{}, payments.ErrInvalidSignature
			}
			var m message
			if err := json.Unmarshal(body, &m); err != nil {
				return payments.Delivery{}, payments.ErrInvalidSignature
			}
			return payments.Delivery{ID: m.ID, Type: m.Type, Environment: m.Environment, Body: body}, nil
		},
		Expand: func(_ context.Context, _ payments.Access, d payments.Delivery) ([]payments.Observation, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.fail != nil {
				return nil, f.fail
			}
			var m message
			err := json.Unmarshal(d.Body, &m)
			return m.Observations, err
		},
		Redeem: func(_ context.Context, _ payments.Access, s payments.Submission) ([]payments.Observation, error) {
			return f.get(s.SignedTransaction + s.TransactionID + s.PurchaseToken + s.SessionID)
		},
		Fetch: func(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
			if f.onFetch != nil {
				return []payments.Observation{f.onFetch(ref)}, nil
			}
			return f.get(ref.TransactionID)
		},
		History: func(_ context.Context, _ payments.Access, w payments.Window) (payments.HistoryPage, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.fail != nil {
				return payments.HistoryPage{}, f.fail
			}
			if len(f.history) == 0 {
				return payments.HistoryPage{}, nil
			}
			page := f.history[0]
			f.history = f.history[1:]
			return page, nil
		},
	}
	switch id {
	case payments.RailIOSStore, payments.RailAndroidStore:
		r.ReportsCompleted = true
		r.Acknowledge = func(_ context.Context, _ payments.Access, ref payments.Ref) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			if err := cmp.Or(f.fail, f.ackFail); err != nil {
				return err
			}
			f.acked = append(f.acked, ref.TransactionID)
			return nil
		}
	default:
		f.processor(&r)
	}
	return r
}

func (f *fake) processor(r *payments.Rail) {
	r.Checkout = func(_ context.Context, _ payments.Access, q payments.CheckoutRequest) (payments.Checkout, error) {
		if f.fail != nil {
			return payments.Checkout{}, f.fail
		}
		return payments.Checkout{SessionID: "session-" + q.AccountToken + f.session, URL: "https://pay.example/" + q.Product.Key, CustomerID: "customer-" + q.AccountToken}, nil
	}
	r.Portal = func(_ context.Context, _ payments.Access, q payments.PortalRequest) (payments.Portal, error) {
		if f.fail != nil {
			return payments.Portal{}, f.fail
		}
		if q.CustomerID == "" {
			return payments.Portal{}, payments.ErrCustomerNotFound
		}
		return payments.Portal{URL: "https://portal.example/" + q.CustomerID}, nil
	}
	r.OfCustomer = func(_ context.Context, _ payments.Access, customerID string) ([]payments.Observation, error) {
		return f.get(customerID)
	}
	r.Pricing = func(context.Context, payments.Access, payments.Ref) (payments.Price, error) {
		return payments.Price{AmountMinor: 990, Currency: "EUR", Interval: "P1M"}, f.fail
	}
	r.CreateDiscount = func(_ context.Context, _ payments.Access, d payments.DiscountRequest) (string, error) {
		if d.Code == "TAKEN" {
			return "", payments.ErrDiscountConflict
		}
		return "ext-" + d.Code, f.fail
	}
}

const (
	ios, android, card = payments.RailIOSStore, payments.RailAndroidStore, payments.RailCardProcessor
	secret             = "webhook-secret"
	hour, day          = time.Hour, 24 * time.Hour
)

// shop is a kit with the fake on three rails.
type shop struct {
	*kittest.Kit
	*fake
	t *testing.T
}

func config(f *fake) payments.Config {
	urls := payments.ReturnURLs{Success: "https://shop.example/ok", Cancel: "https://shop.example/no", Portal: "https://shop.example/me"}
	return payments.Config{
		BillingSubject:     payments.SubjectUser,
		Rails:              []payments.Rail{f.rail(ios), f.rail(android), f.rail(card)},
		ReturnURLs:         map[payments.RailID]payments.ReturnURLs{ios: urls, android: urls, card: urls},
		ManualEntitlements: []string{"vip", "beta"},
		Products: []payments.Product{
			{Key: "pro", Kind: payments.KindSubscription, Entitlements: []string{"pro"}, Store: map[payments.RailID]payments.StoreIDs{
				ios: {ProductID: "com.pro"}, android: {ProductID: "pro", BasePlanID: "monthly"}, card: {ProductID: "prod_pro", PriceID: "price_pro"}}},
			{Key: "max", Kind: payments.KindSubscription, Entitlements: []string{"pro", "max"}, Store: map[payments.RailID]payments.StoreIDs{
				ios: {ProductID: "com.max"}, android: {ProductID: "max"}}},
			{Key: "pass", Kind: payments.KindOneTime, Entitlements: []string{"pass"}, Duration: 30 * day, Store: map[payments.RailID]payments.StoreIDs{ios: {ProductID: "com.pass"}}},
			{Key: "map", Kind: payments.KindOneTime, Entitlements: []string{"map"}, Store: map[payments.RailID]payments.StoreIDs{ios: {ProductID: "com.map"}, card: {ProductID: "prod_map", PriceID: "price_map"}}},
			{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 100},
				Store: map[payments.RailID]payments.StoreIDs{ios: {ProductID: "com.coins"}, card: {ProductID: "prod_coins", PriceID: "price_coins"}}},
		},
	}
}

func peers() []kit.Option {
	return append(peersWithoutLedger(), kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}))
}

func peersWithoutLedger() []kit.Option {
	return []kit.Option{kit.WithAudit(audit.Config{}), kit.WithSecrets(secrets.Config{}), kit.WithControlPlane(controlplane.Config{}), kit.WithAuth(auth.Config{})}
}

func open(t *testing.T, opts ...kit.Option) *shop {
	return openWith(t, func(*payments.Config) {}, opts...)
}

// onPostgres makes kits of tests run on PostgreSQL.
var onPostgres bool

// TestOnPostgres runs the stories again on the other database.
func TestOnPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("a short run")
	}
	onPostgres = true
	t.Cleanup(func() { onPostgres = false })
	for name, story := range map[string]func(*testing.T){
		"subscription": TestSubscriptionLife, "consumable": TestConsumableCreditsOnce, "submit": TestSubmitRefusals, "checkout": TestCheckoutPortalPricing,
		"discounts": TestDiscounts, "grants": TestGrantAndRevoke, "webhooks": TestWebhookRefusals, "restore": TestRestore, "customer": TestRestoreOfCustomer, "address": TestAddressProvesNoCustomer,
		"erase": TestEraseAndExport, "behind": TestNothingIsWrittenBehindAnErasure, "stacking": TestStacking, "upgrade": TestUpgrade, "clawback": TestClawback, "retention": TestRetention,
		"reconcile": TestReconcileKeepsRailsApart,
	} {
		t.Run(name, story)
	}
}

// composed makes a kit on the database of the run.
func composed(t *testing.T, opts ...kit.Option) *kittest.Kit {
	t.Helper()
	if onPostgres {
		opts = append(opts, kit.WithDatabase(databasetest.Postgres(t)))
	}
	return kittest.New(t, opts...)
}

func openWith(t *testing.T, adjust func(*payments.Config), opts ...kit.Option) *shop {
	t.Helper()
	f := newFake()
	cfg := config(f)
	adjust(&cfg)
	s := &shop{Kit: composed(t, append(append(peers(), kit.WithPayments(cfg)), opts...)...), fake: f, t: t}
	s.configure(secret)
	return s
}

// configure writes the credentials of every rail.
func (s *shop) configure(webhookSecret string) {
	s.t.Helper()
	key := "test_key"
	if s.Environment() == "production" {
		key = "live_key"
	}
	change := secrets.Blocks{}
	for _, rail := range []payments.RailID{ios, android, card} {
		change[string(rail)] = secrets.Fields{"apiKey": secrets.NewValue(key), "webhookSecret": secrets.NewValue(webhookSecret)}
	}
	if _, err := s.Secrets().Rotate(s.t.Context(), payments.SecretName, change); err != nil {
		s.t.Fatal(err)
	}
}

// deliver posts a webhook and returns its outcome.
func (s *shop) deliver(rail payments.RailID, m message) payments.Outcome {
	s.t.Helper()
	var received payments.Received
	s.post(rail, m).Want(200, "").JSON(&received)
	return received.Outcome
}

func (s *shop) post(rail payments.RailID, m message) *kittest.Response {
	s.t.Helper()
	return s.Anonymous().With("X-Proof", secret).Post("/payments/webhooks/"+string(rail), m)
}

func (s *shop) token(user string) string {
	s.t.Helper()
	token, err := s.Payments().AccountToken(s.t.Context(), subject(user))
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

func subject(user string) payments.Subject {
	return payments.Subject{Type: payments.SubjectUser, ID: user}
}

func (s *shop) entitled(user, key string) bool {
	s.t.Helper()
	ok, err := s.Payments().Entitled(s.t.Context(), subject(user), key)
	if err != nil {
		s.t.Fatal(err)
	}
	return ok
}

func (s *shop) wantEntitled(user, key string, want bool) {
	s.t.Helper()
	if got := s.entitled(user, key); got != want {
		s.t.Errorf("%s entitled to %s: %v, want %v", user, key, got, want)
	}
	resolved, err := s.Payments().Entitlements(s.t.Context(), subject(user))
	if err != nil {
		s.t.Fatal(err)
	}
	listed := false
	for _, e := range resolved.Entitlements {
		listed = listed || e.Key == key
	}
	if listed != want {
		s.t.Errorf("%s listed for %s: %v, want %v", key, user, listed, want)
	}
}

func (s *shop) coins(user string) int64 {
	s.t.Helper()
	balances, err := s.Ledger().Balances(s.t.Context(), ledger.AccountKey{UserID: user, Currency: "coins"})
	if err != nil {
		s.t.Fatal(err)
	}
	return balances[0].Balance
}

func (s *shop) purchase(rail payments.RailID, transactionID string) payments.Purchase {
	s.t.Helper()
	var list struct{ Items []payments.Purchase }
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases?rail="+string(rail)).Want(200, "").JSON(&list)
	for _, p := range list.Items {
		if p.TransactionID == transactionID {
			return p
		}
	}
	s.t.Fatalf("no purchase %s at %s", transactionID, rail)
	return payments.Purchase{}
}

func (s *shop) wantStatus(rail payments.RailID, transactionID string, want payments.Status) payments.Purchase {
	s.t.Helper()
	p := s.purchase(rail, transactionID)
	if p.Status != want {
		s.t.Errorf("%s is %s, want %s", transactionID, p.Status, want)
	}
	return p
}

// in is an instant after the clock's.
func (s *shop) in(d time.Duration) payments.Instant { return payments.At(s.Clock.Now().Add(d)) }

func openUnconfigured(t *testing.T, f *fake) *shop {
	t.Helper()
	return &shop{Kit: composed(t, append(peers(), kit.WithPayments(config(f)))...), fake: f, t: t}
}

func openConfig(t *testing.T, f *fake, adjust func(*payments.Config)) *shop {
	t.Helper()
	cfg := config(f)
	adjust(&cfg)
	s := &shop{Kit: composed(t, append(peers(), kit.WithPayments(cfg))...), fake: f, t: t}
	s.configure(secret)
	return s
}

// accessToken returns what a user's client would send.
func (s *shop) accessToken(user string) (string, error) {
	if err := s.Auth().EnsureUser(s.t.Context(), user); err != nil {
		return "", err
	}
	return s.Auth().IssueToken(s.t.Context(), user, nil, time.Minute)
}

func (s *shop) spend(user string, amount int64) {
	s.t.Helper()
	if _, err := s.Ledger().Debit(s.t.Context(), ledger.Entry{UserID: user, Currency: "coins", Amount: amount, Ref: "spend"}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shop) earn(user string, amount int64) {
	s.t.Helper()
	if _, err := s.Ledger().Credit(s.t.Context(), ledger.Entry{UserID: user, Currency: "coins", Amount: amount, Ref: "earn"}); err != nil {
		s.t.Fatal(err)
	}
}

// health returns a value of the manifest.
func (s *shop) health(key string) any {
	s.t.Helper()
	for _, h := range s.Payments().Capability().Health {
		if h.Key == key {
			value, err := h.Read(s.t.Context())
			if err != nil {
				s.t.Fatal(err)
			}
			return value
		}
	}
	return nil
}
