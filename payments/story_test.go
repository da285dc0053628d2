package payments_test

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
)

// mall is a kit with the real rails on scripted stores.
type mall struct {
	shop
	stores   *paytest.Stores
	products map[string]payments.Product
}

func openMall(t *testing.T, opts ...kit.Option) *mall {
	t.Helper()
	return openMallOf(t, payments.EnvironmentSandbox, opts...)
}

// openMallOf opens a mall whose stores are of an environment.
func openMallOf(t *testing.T, environment payments.StoreEnvironment, opts ...kit.Option) *mall {
	t.Helper()
	clock := kittest.NewClock()
	m := &mall{stores: paytest.New(clock.Now, environment), products: make(map[string]payments.Product)}
	cfg := m.stores.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: goods()})
	for _, p := range cfg.Products {
		m.products[p.Key] = p
	}
	k := kittest.New(t, append(append(peers(), kit.WithPayments(cfg), kit.WithClock(clock.Now)), opts...)...)
	k.Clock = clock
	m.shop = shop{Kit: k, fake: newFake(), t: t}
	if err := m.stores.Connect(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	return m
}

// goods are a product of each kind, sold everywhere.
func goods() []payments.Product {
	everywhere := func(key string) map[payments.RailID]payments.StoreIDs {
		ids := make(map[payments.RailID]payments.StoreIDs)
		for _, rail := range paytest.Rails {
			ids[rail] = payments.StoreIDs{ProductID: "prod_" + key, PriceID: "price_" + key}
		}
		return ids
	}
	return []payments.Product{
		{Key: "pro", Kind: payments.KindSubscription, Entitlements: []string{"pro"}, Store: everywhere("pro")},
		{Key: "max", Kind: payments.KindSubscription, Entitlements: []string{"pro", "max"}, Store: everywhere("max")},
		{Key: "map", Kind: payments.KindOneTime, Entitlements: []string{"map"}, Store: everywhere("map")},
		{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 100}, Store: everywhere("coins")},
	}
}

func (m *mall) buy(rail payments.RailID, product, user string) *paytest.Purchase {
	m.t.Helper()
	p, err := m.stores.Buy(rail, paytest.Order{Product: m.products[product], AccountToken: m.token(user)})
	if err != nil {
		m.t.Fatal(err)
	}
	return p
}

// only returns the one purchase of a user's that is of a product.
func (m *mall) only(user, product string) payments.Purchase {
	m.t.Helper()
	var list struct{ Items []payments.Purchase }
	m.Machine("payments:purchases:read").Get("/payments/admin/purchases?subjectType=user&subjectId="+user+"&productKey="+product).Want(200, "").JSON(&list)
	if len(list.Items) != 1 {
		m.t.Fatalf("%d purchases of %s by %s, want 1", len(list.Items), product, user)
	}
	return list.Items[0]
}

func (m *mall) want(user string, status payments.Status, entitled bool) payments.Purchase {
	m.t.Helper()
	p := m.only(user, "pro")
	if p.Status != status {
		m.t.Errorf("%s: %s, want %s", p.Rail, p.Status, status)
	}
	m.wantEntitled(user, "pro", entitled)
	return p
}

func (m *mall) do(step string, err error) {
	m.t.Helper()
	if err != nil && !errors.Is(err, paytest.ErrUnsupported) {
		m.t.Fatalf("%s: %v", step, err)
	}
}

func eachRail(t *testing.T, fn func(t *testing.T, m *mall, rail payments.RailID)) {
	for _, rail := range paytest.Rails {
		t.Run(string(rail), func(t *testing.T) { fn(t, openMall(t), rail) })
	}
}

// TestLifeOfASubscription follows one at every rail: bought, renewed, in grace,
// on hold, recovered, canceled and expired.
func TestLifeOfASubscription(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "pro", "ada")
		bought := m.want("ada", payments.StatusActive, true)
		if !bought.WillRenew || bought.AccessUntil == nil || !bought.AccessUntil.Equal(m.Clock.Now().Add(30*day)) {
			t.Errorf("bought: %+v", bought)
		}
		m.Clock.Advance(30 * day)
		m.do("renew", p.Renew())
		if p := m.want("ada", payments.StatusActive, true); !p.AccessUntil.Equal(m.Clock.Now().Add(30 * day)) {
			t.Errorf("renewed until %v", p.AccessUntil)
		}
		m.Clock.Advance(30 * day)
		m.do("grace", p.Grace(m.Clock.Now().Add(6*day)))
		if p := m.want("ada", payments.StatusInGrace, true); p.GraceUntil == nil {
			t.Error("in grace without a date")
		}
		m.Clock.Advance(7 * day)
		m.do("hold", p.Hold())
		m.want("ada", payments.StatusOnHold, false)
		m.Clock.Advance(hour)
		m.do("recover", p.Recover())
		m.want("ada", payments.StatusActive, true)
		m.Clock.Advance(hour)
		m.do("cancel", p.Cancel())
		m.want("ada", payments.StatusCanceled, true)
		m.Clock.Advance(time.Minute)
		m.do("uncancel", p.Uncancel())
		m.want("ada", payments.StatusActive, true)
		m.Clock.Advance(time.Minute)
		m.do("cancel", p.Cancel())
		m.Clock.Advance(31 * day)
		m.want("ada", payments.StatusExpired, false)
		m.do("expire", p.Expire())
		m.want("ada", payments.StatusExpired, false)
	})
}

// TestRefundAndRenewal: a refund of the newest charge ends access, and what is
// paid after it gives it back.
func TestRefundAndRenewal(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "pro", "ada")
		m.Clock.Advance(day)
		m.do("refund", p.Refund())
		m.want("ada", payments.StatusRefunded, false)
		m.Clock.Advance(day)
		switch err := p.ReverseRefund(); {
		case errors.Is(err, paytest.ErrUnsupported):
		case err != nil:
			t.Fatal(err)
		default:
			m.want("ada", payments.StatusActive, true)
		}
	})
}

// TestRefundBeforeAnythingElse: the refund is the first webhook that arrives.
func TestRefundBeforeAnythingElse(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		m.stores.Hold()
		p := m.buy(rail, "pro", "ada")
		m.stores.Drop()
		m.Clock.Advance(hour)
		m.do("refund", p.Refund())
		m.want("ada", payments.StatusRefunded, false)
	})
}

func TestChargeback(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "pro", "ada")
		m.Clock.Advance(day)
		if err := p.ChargeBack(); errors.Is(err, paytest.ErrUnsupported) {
			t.Skip("this store knows no chargebacks")
		} else if err != nil {
			t.Fatal(err)
		}
		m.want("ada", payments.StatusRevoked, false)
		m.Clock.Advance(hour)
		if err := p.WinBack(); errors.Is(err, paytest.ErrUnsupported) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		m.want("ada", payments.StatusActive, true)
	})
}

// TestWebhookFitsItsBudget: no webhook about money that went back is too much to
// ask of a store that takes a second for each request.
func TestWebhookFitsItsBudget(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		calls := map[payments.RailID]func() int{
			ios: m.stores.IOS.Calls, android: m.stores.Android.Calls, card: m.stores.Card.Calls,
			payments.RailMerchantA: m.stores.A.Calls, payments.RailMerchantB: m.stores.B.Calls,
		}[rail]
		most := 0
		m.stores.DeliverTo(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			before := calls()
			m.ServeHTTP(w, r)
			most = max(most, calls()-before)
		}))
		for _, product := range []string{"pro", "map"} {
			p := m.buy(rail, product, "ada")
			m.do("refund", p.Refund())
			m.do("charge back", p.ChargeBack())
		}
		if need := time.Duration(most) * time.Second; need > payments.WebhookBudget {
			t.Errorf("%d requests for one webhook, which has %s", most, payments.WebhookBudget)
		}
	})
}

func TestPause(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "pro", "ada")
		m.Clock.Advance(31 * day)
		resume := m.Clock.Now().Add(10 * day).Truncate(time.Second)
		if err := p.Pause(resume); errors.Is(err, paytest.ErrUnsupported) {
			t.Skip("this store knows no pauses")
		} else if err != nil {
			t.Fatal(err)
		}
		m.want("ada", payments.StatusPaused, false)
		m.Clock.Advance(hour)
		m.do("resume", p.Resume())
		if rail != android { // which charges as it resumes
			m.Clock.Advance(time.Minute)
			m.do("renew", p.Renew())
		}
		m.want("ada", payments.StatusActive, true)
	})
}

func TestUpgradeAtEveryRail(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "pro", "ada")
		m.Clock.Advance(day)
		m.do("upgrade", p.Upgrade(m.products["max"]))
		m.wantEntitled("ada", "max", true)
		m.wantEntitled("ada", "pro", true)
		if got := m.only("ada", "max"); got.Status != payments.StatusActive {
			t.Errorf("%s", got.Status)
		}
	})
}

// TestConsumableAtEveryRail: one credit for a charge, taken back by a refund.
func TestConsumableAtEveryRail(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		p := m.buy(rail, "coins", "ada")
		if got := m.coins("ada"); got != 100 {
			t.Fatalf("%d coins, want 100", got)
		}
		m.Clock.Advance(time.Minute)
		m.do("refund", p.Refund())
		if got := m.coins("ada"); got != 0 {
			t.Errorf("%d coins after the refund, want 0", got)
		}
	})
}

// TestCheckoutAtEveryRail: from the kit's checkout to the entitlement.
func TestCheckoutAtEveryRail(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		for _, product := range []string{"pro", "map"} {
			body := object{"rail": rail, "productKey": product}
			if rail == ios || rail == android {
				m.User("ada").Post("/payments/checkout", body).Want(422, "payments/checkout_unsupported")
				continue
			}
			var bought payments.Bought
			m.User("ada").Post("/payments/checkout", body).Want(201, "").JSON(&bought)
			m.wantEntitled("ada", product, false)
			m.do("pay", m.stores.Complete(rail, bought.SessionID))
			m.wantEntitled("ada", product, true)
			m.User("ada").Post("/payments/portal", object{"rail": rail}).Want(201, "")
		}
	})
}

// TestASessionIsPaidOnce: a session that is paid, or that the store does not know, is refused and
// has no effect.
func TestASessionIsPaidOnce(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		if rail == ios || rail == android {
			if err := m.stores.Complete(rail, "cs_unknown"); !errors.Is(err, paytest.ErrUnsupported) {
				t.Errorf("%v, want ErrUnsupported", err)
			}
			return
		}
		for _, product := range []string{"coins", "pro"} {
			var bought payments.Bought
			m.User("ada").Post("/payments/checkout", object{"rail": rail, "productKey": product}).Want(201, "").JSON(&bought)
			m.do("pay", m.stores.Complete(rail, bought.SessionID))
			if err := m.stores.Complete(rail, bought.SessionID); !errors.Is(err, paytest.ErrPaid) {
				t.Errorf("%s paid again: %v, want ErrPaid", product, err)
			}
			m.only("ada", product)
		}
		if got := m.coins("ada"); got != 100 {
			t.Errorf("%d coins, want 100", got)
		}
		subscription := m.buy(rail, "pro", "bob").ID // an object of the store, but not a session
		for _, id := range []string{"", "cs_unknown", "txn_unknown", subscription} {
			if err := m.stores.Complete(rail, id); !errors.Is(err, paytest.ErrNoSession) {
				t.Errorf("session %q: %v, want ErrNoSession", id, err)
			}
		}
	})
}

// TestKeyOfAnotherCheckout: a repeated request is one checkout, and another request
// under the same key one of its own, which the rail does not refuse.
func TestKeyOfAnotherCheckout(t *testing.T) {
	m := openMall(t)
	ada := m.User("ada").With("Idempotency-Key", "k")
	sessions := map[string]bool{}
	for _, body := range []object{
		{"rail": card, "productKey": "pro"}, {"rail": card, "productKey": "pro", "quantity": 1},
		{"rail": card, "productKey": "map"}, {"rail": card, "productKey": "map"},
	} {
		var bought payments.Bought
		ada.Post("/payments/checkout", body).Want(201, "").JSON(&bought)
		sessions[bought.SessionID] = true
	}
	if len(sessions) != 2 {
		t.Errorf("%d pages for two checkouts", len(sessions))
	}
}

// TestCheckoutWithoutTheIDThatIsSold: a store refuses a checkout of nothing, so the catalog has to
// say what is sold.
func TestCheckoutWithoutTheIDThatIsSold(t *testing.T) {
	for rail, ids := range map[payments.RailID]payments.StoreIDs{
		card: {ProductID: "prod_x"}, payments.RailMerchantA: {ProductID: "pro_x"}, payments.RailMerchantB: {PriceID: "price_x"},
	} {
		stores := paytest.New(time.Now, payments.EnvironmentSandbox)
		cfg := stores.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: []payments.Product{
			{Key: "x", Kind: payments.KindOneTime, Store: map[payments.RailID]payments.StoreIDs{rail: ids}},
		}})
		k := kittest.New(t, append(peers(), kit.WithPayments(cfg))...)
		if err := stores.Connect(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		k.User("ada").Post("/payments/checkout", object{"rail": rail, "productKey": "x"}).Want(422, "payments/product_unavailable")
	}
}

// TestSubmitAtEveryStore: without an account token the first user to prove it owns it.
func TestSubmitAtEveryStore(t *testing.T) {
	for _, rail := range []payments.RailID{ios, android} {
		m := openMall(t)
		p, err := m.stores.Buy(rail, paytest.Order{Product: m.products["pro"]})
		if err != nil {
			t.Fatal(err)
		}
		s := p.Submission()
		body := object{"rail": rail}
		if s.SignedTransaction != "" {
			body["signedTransaction"] = s.SignedTransaction
		} else {
			body["purchaseToken"] = s.PurchaseToken
		}
		m.wantEntitled("ada", "pro", false)
		m.User("ada").Post("/payments/purchases", body).Want(201, "")
		m.User("ada").Post("/payments/purchases", body).Want(200, "")
		m.wantEntitled("ada", "pro", true)
		m.User("bob").Post("/payments/purchases", body).Want(409, "payments/purchase_claimed")
	}
}

// TestWebhooksInAnyOrder: a whole life delivered late, shuffled and again leads
// to what happened.
func TestWebhooksInAnyOrder(t *testing.T) {
	eachRail(t, func(t *testing.T, m *mall, rail payments.RailID) {
		m.stores.Hold()
		p := m.buy(rail, "pro", "ada")
		m.Clock.Advance(time.Second)
		m.do("renew", p.Renew())
		m.Clock.Advance(time.Second)
		m.do("cancel", p.Cancel())
		m.do("deliver", m.stores.Release(rand.New(rand.NewPCG(1, 2)).Shuffle))
		got := m.want("ada", payments.StatusCanceled, true)
		if got.AccessUntil == nil || got.AccessUntil.Before(m.Clock.Now().Add(59*day)) {
			t.Errorf("until %v, want the end of the second period", got.AccessUntil)
		}
	})
}
