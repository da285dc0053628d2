package payments_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

// reach calls every row that asks a rail, in a way that nothing else refuses.
func reach(t *testing.T, s *shop, status int, code string) {
	t.Helper()
	ada := s.User("ada")
	ada.Post("/payments/purchases", object{"rail": "ios_store", "signedTransaction": "t1"}).Want(status, code)
	ada.Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"t1"}}).Want(status, code)
	ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "map"}).Want(status, code)
	ada.Post("/payments/portal", object{"rail": "card_processor"}).Want(status, code)
	s.Machine("payments:discounts:create").Post("/payments/admin/discounts",
		object{"rail": "card_processor", "code": "HALF", "kind": "percentage", "percentBasisPoints": 5000, "duration": "once"}).Want(status, code)
	s.Machine("payments:entitlements:grant").Post("/payments/entitlements/grant",
		object{"subjectType": "user", "subjectId": "ada", "reason": "support", "rail": "ios_store", "transactionId": "t1"}).Want(status, code)
}

func TestRailWithoutCredentials(t *testing.T) {
	reach(t, openUnconfigured(t, newFake()), 503, "payments/rail_not_configured")
}

func TestRailThatIsDown(t *testing.T) {
	s := open(t)
	s.fail = payments.Transient(errors.New("down"), 0)
	reach(t, s, 503, "payments/rail_unavailable")
}

// TestCallersWaitAsLongAsTheRailSays: users and senders of webhooks alike.
func TestCallersWaitAsLongAsTheRailSays(t *testing.T) {
	s := open(t)
	s.set(s.pro(ios, "t1", "ada"))
	for wait, want := range map[time.Duration]string{0: "1", 29500 * time.Millisecond: "30", math.MaxInt64: "9223372037"} {
		s.fail = payments.Transient(errors.New("down"), wait)
		for name, r := range map[string]*kittest.Response{
			"a checkout": s.User("ada").Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}),
			"a webhook":  s.post(ios, message{ID: "d1", Observations: s.state["t1"]}),
		} {
			if r.Want(503, "payments/rail_unavailable"); r.Header.Get("Retry-After") != want {
				t.Errorf("%s: Retry-After %q, want %s for %v", name, r.Header.Get("Retry-After"), want, wait)
			}
		}
	}
}

func TestGrantOfAnotherEnvironment(t *testing.T) {
	s := open(t)
	live := s.pro(ios, "t1", "")
	live.Environment = payments.EnvironmentProduction
	s.set(live)
	s.Machine("payments:entitlements:grant").Post("/payments/entitlements/grant",
		object{"subjectType": "user", "subjectId": "ada", "reason": "support", "rail": "ios_store", "transactionId": "t1"}).Want(422, "payments/environment_mismatch")
}

// TestWebhookWithoutKeys cannot prove a sender whose keys cannot be fetched.
func TestWebhookWithoutKeys(t *testing.T) {
	f := newFake()
	others := []payments.RailID{payments.RailMerchantA, payments.RailMerchantB}
	s := openConfig(t, f, func(c *payments.Config) {
		for _, id := range others {
			c.Rails = append(c.Rails, f.rail(id))
			c.ReturnURLs[id] = c.ReturnURLs[card]
		}
	})
	change := secrets.Blocks{}
	for _, id := range others {
		change[string(id)] = secrets.Fields{"apiKey": secrets.NewValue("test_key"), "webhookSecret": secrets.NewValue(secret)}
	}
	if _, err := s.Secrets().Rotate(t.Context(), payments.SecretName, change); err != nil {
		t.Fatal(err)
	}
	for _, id := range append(others, ios, android, card) {
		s.Anonymous().With("X-Proof", "down").Post("/payments/webhooks/"+string(id), message{ID: "x"}).Want(503, "payments/rail_unavailable")
	}
}
