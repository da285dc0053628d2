package payments_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

type object = map[string]any

// pro is a subscription bought at a rail.
func (s *shop) pro(rail payments.RailID, tx, user string) payments.Observation {
	product := map[payments.RailID]string{ios: "com.pro", android: "pro", card: "prod_pro"}[rail]
	o := sub(tx, 1, payments.Lifecycle{ProductID: product, BasePlanID: "monthly", State: payments.StateActive, WillRenew: true, PurchasedAt: s.in(0), AccessUntil: s.in(30 * day)})
	o.Charges = []payments.Charge{{ID: "charge-" + tx, At: s.in(0), AmountMinor: 990, Currency: "EUR", Settled: true, PeriodEnd: s.in(30 * day)}}
	if user != "" {
		o.AccountToken = s.token(user)
	}
	return o
}

func TestSubmitRefusals(t *testing.T) {
	s := open(t)
	ada := s.User("ada")
	submit := func(body object) func(int, string) {
		return func(status int, code string) {
			t.Helper()
			ada.Post("/payments/purchases", body).Want(status, code)
		}
	}
	s.Anonymous().Post("/payments/purchases", object{}).Want(401, "auth/unauthenticated")
	submit(object{"rail": "ios_store"})(400, "kit/invalid_request")
	submit(object{"rail": "ios_store", "signedTransaction": "a\x00"})(400, "kit/invalid_request")
	submit(object{"rail": "merchant_a", "sessionId": "x"})(404, "payments/rail_not_enabled")
	submit(object{"rail": "ios_store", "productKey": "nothing", "signedTransaction": "x"})(404, "payments/product_not_found")
	submit(object{"rail": "ios_store", "signedTransaction": "unknown"})(404, "payments/purchase_not_found")
	for _, refusal := range []*capability.Error{payments.ErrInvalidReceipt, payments.ErrAppMismatch, payments.ErrPurchasePending} {
		s.fail = refusal
		submit(object{"rail": "ios_store", "signedTransaction": "x"})(refusal.Status, refusal.Code)
	}
	s.fail = payments.Transient(errors.New("down"), time.Second)
	submit(object{"rail": "ios_store", "signedTransaction": "x"})(503, "payments/rail_unavailable")
	s.fail = errors.New("a mistake of the rail")
	submit(object{"rail": "ios_store", "signedTransaction": "x"})(503, "payments/rail_unavailable")
	s.fail = nil

	live := s.pro(ios, "live", "")
	live.Environment = payments.EnvironmentProduction
	s.set(live)
	submit(object{"rail": "ios_store", "signedTransaction": "live"})(422, "payments/environment_mismatch")
	s.set(s.pro(ios, "other", ""))
	submit(object{"rail": "ios_store", "productKey": "map", "signedTransaction": "other"})(422, "payments/invalid_receipt")
	pending := sub("pending", 1, payments.Lifecycle{ProductID: "pro", State: payments.StatePending})
	s.set(pending)
	submit(object{"rail": "android_store", "purchaseToken": "pending"})(409, "payments/purchase_pending")
	s.wantStatus(android, "pending", payments.StatusNeverPaid)
	s.set(s.pro(ios, "bobs", "bob"))
	submit(object{"rail": "ios_store", "signedTransaction": "bobs"})(409, "payments/purchase_claimed")
	s.wantEntitled("ada", "pro", false)

	// A session's id is no proof: only whom the session was made for gets it.
	s.set(s.pro(card, "session", ""))
	submit(object{"rail": "card_processor", "sessionId": "session"})(409, "payments/purchase_claimed")
}

// TestMissingFieldsAreNamed leaves out, and empties, each field that a body needs.
func TestMissingFieldsAreNamed(t *testing.T) {
	s := open(t)
	subject := object{"subjectType": "user", "subjectId": "ada", "reason": "asked"}
	with := func(fields object) object {
		all := maps.Clone(subject)
		maps.Copy(all, fields)
		return all
	}
	for _, c := range []struct {
		path, scope string
		body        object
		needs       []string
	}{
		{"/payments/checkout", "", object{"rail": "card_processor", "productKey": "pro"}, []string{"rail", "productKey"}},
		{"/payments/purchases", "", object{"rail": "ios_store", "signedTransaction": "x"}, []string{"rail", "signedTransaction"}},
		{"/payments/restore", "", object{"rail": "ios_store"}, []string{"rail"}},
		{"/payments/entitlements/grant", "payments:entitlements:grant", with(object{"entitlement": "vip"}), []string{"subjectType", "subjectId", "entitlement", "reason"}},
		{"/payments/entitlements/grant", "payments:entitlements:grant", with(object{"rail": "ios_store", "transactionId": "t1"}),
			[]string{"subjectType", "subjectId", "rail", "transactionId", "reason"}},
		{"/payments/entitlements/revoke", "payments:entitlements:revoke", with(object{"entitlement": "vip"}), []string{"subjectType", "subjectId", "entitlement", "reason"}},
		{"/payments/admin/discounts", "payments:discounts:create",
			object{"rail": "card_processor", "code": "SPRING", "kind": "percentage", "percentBasisPoints": 1000, "duration": "once"}, []string{"rail", "code", "kind", "duration"}},
	} {
		caller := s.User("ada")
		if c.scope != "" {
			caller = s.Machine(c.scope)
		}
		for _, field := range c.needs {
			without, empty := maps.Clone(c.body), maps.Clone(c.body)
			delete(without, field)
			empty[field] = ""
			for _, body := range []object{without, empty} {
				got := caller.Post(c.path, body)
				if got.Status != 400 || got.Code() != "kit/invalid_request" || !strings.Contains(string(got.Body), field) {
					t.Errorf("%s %v: %d %s, expected that %s is named", c.path, body, got.Status, got.Body, field)
				}
			}
		}
	}
}

func TestCheckoutPortalPricing(t *testing.T) {
	s := open(t)
	ada := s.User("ada")
	ada.Post("/payments/portal", object{}).Want(404, "payments/customer_not_found")
	ada.Post("/payments/portal", object{"rail": "card_processor"}).Want(404, "payments/customer_not_found")
	ada.Post("/payments/portal", object{"rail": "ios_store"}).Want(422, "payments/portal_unsupported")
	for _, c := range []struct {
		body   object
		status int
		code   string
	}{
		{object{"rail": "merchant_b", "productKey": "pro"}, 404, "payments/rail_not_enabled"},
		{object{"rail": "card_processor", "productKey": "nothing"}, 404, "payments/product_not_found"},
		{object{"rail": "ios_store", "productKey": "pro"}, 422, "payments/checkout_unsupported"},
		{object{"rail": "card_processor", "productKey": "pass"}, 422, "payments/product_unavailable"},
		{object{"rail": "card_processor", "productKey": "pro", "quantity": 2}, 400, "kit/invalid_request"},
		{object{"rail": "card_processor", "productKey": "pro", "discountCode": "NONE"}, 400, "kit/invalid_request"},
	} {
		ada.Post("/payments/checkout", c.body).Want(c.status, c.code)
	}
	s.fail = payments.Transient(errors.New("down"), 0)
	ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}).Want(503, "payments/rail_unavailable")
	s.fail = nil
	var bought payments.Bought
	ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}).Want(201, "").JSON(&bought)
	if bought.URL != "https://pay.example/pro" || bought.CheckoutID == "" || bought.Rail != card {
		t.Errorf("checkout: %+v", bought)
	}
	paid := s.pro(card, bought.SessionID, "")
	s.set(paid)
	ada.Post("/payments/purchases", object{"rail": "card_processor", "sessionId": bought.SessionID}).Want(201, "")
	s.wantEntitled("ada", "pro", true)
	ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}).Want(409, "payments/already_subscribed")
	ada.Post("/payments/portal", object{}).Want(201, "")

	var pricing payments.Pricing
	ada.Get("/payments/pricing").Want(200, "").JSON(&pricing)
	if len(pricing.Subscriptions) != 1 || pricing.Subscriptions[0].AmountMinor != 990 || !pricing.Subscriptions[0].Renews {
		t.Errorf("pricing: %+v", pricing)
	}
	var resolved payments.Entitlements
	ada.Get("/payments/entitlements").Want(200, "").JSON(&resolved)
	if len(resolved.Entitlements) != 1 || resolved.AccountTokens[ios] != s.token("ada") || resolved.AccountTokens[card] != "" {
		t.Errorf("entitlements: %+v", resolved)
	}
}

func TestDiscounts(t *testing.T) {
	s := open(t)
	good := func(change object) object {
		body := object{"rail": "card_processor", "code": "HALF", "kind": "percentage", "percentBasisPoints": 5000, "duration": "once"}
		for key, value := range change {
			body[key] = value
		}
		return body
	}
	post := func(body object, status int, code string) {
		t.Helper()
		s.Machine("payments:discounts:create").Post("/payments/admin/discounts", body).Want(status, code)
	}
	post(good(object{"rail": "ios_store"}), 422, "payments/discount_unsupported")
	post(good(object{"rail": "nope"}), 404, "payments/rail_not_enabled")
	post(good(object{"code": "A B"}), 400, "kit/invalid_request")
	post(good(object{"percentBasisPoints": 10001}), 400, "kit/invalid_request")
	post(good(object{"kind": "fixed", "percentBasisPoints": 0, "amountMinor": 100, "currency": "eur"}), 400, "kit/invalid_request")
	post(good(object{"kind": "gift"}), 400, "kit/invalid_request")
	post(good(object{"duration": "repeating"}), 400, "kit/invalid_request")
	post(good(object{"duration": "always"}), 400, "kit/invalid_request")
	post(good(object{"endsAt": "2020-01-01T00:00:00Z"}), 400, "kit/invalid_request")
	post(good(object{"productKeys": []string{"nothing"}}), 404, "payments/product_not_found")
	post(good(object{"productKeys": []string{"pass"}}), 422, "payments/product_unavailable")
	post(good(object{"code": "TAKEN"}), 409, "payments/discount_conflict")
	post(good(object{"productKeys": []string{"pro"}, "endsAt": "2030-01-01T00:00:00Z", "maxRedemptions": 5}), 201, "")
	post(good(nil), 409, "payments/discount_conflict")
	var list capability.Items[payments.Discount]
	s.Machine("payments:discounts:read").Get("/payments/admin/discounts?rail=card_processor").Want(200, "").JSON(&list)
	if len(list.Items) != 1 || list.Items[0].Code != "HALF" || list.Items[0].ExternalID != "ext-HALF" {
		t.Errorf("discounts: %+v", list.Items)
	}
	s.User("ada").Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro", "discountCode": "HALF"}).Want(201, "")
}

func TestGrantAndRevoke(t *testing.T) {
	s := open(t)
	var changes []hooks.EntitlementsChanged
	s.Hooks().EntitlementsChanged.After(func(_ context.Context, e hooks.EntitlementsChanged) { changes = append(changes, e) })
	grant := func(body object, status int, code string) object {
		t.Helper()
		out := object{}
		r := s.Machine("payments:entitlements:grant").Post("/payments/entitlements/grant", body).Want(status, code)
		_ = json.Unmarshal(r.Body, &out)
		return out
	}
	revoke := func(body object, status int, code string) {
		t.Helper()
		s.Machine("payments:entitlements:revoke").Post("/payments/entitlements/revoke", body).Want(status, code)
	}
	ada := func(change object) object {
		body := object{"subjectType": "user", "subjectId": "ada", "reason": "support"}
		for key, value := range change {
			body[key] = value
		}
		return body
	}
	grant(ada(object{"entitlement": "pro"}), 422, "payments/entitlement_not_declared")
	grant(ada(object{"entitlement": "vip", "subjectType": "organization"}), 404, "payments/subject_kind_mismatch")
	grant(ada(object{"entitlement": "vip", "reason": ""}), 400, "kit/invalid_request")
	grant(ada(object{"entitlement": "vip", "expiresAt": "2020-01-01T00:00:00Z"}), 400, "kit/invalid_request")
	grant(ada(object{}), 400, "kit/invalid_request")
	grant(ada(object{"subjectId": "erased:x", "entitlement": "vip"}), 400, "kit/invalid_request")
	grant(ada(object{"entitlement": "vip", "expiresAt": s.Clock.Now().Add(hour)}), 201, "")
	s.wantEntitled("ada", "vip", true)
	s.Clock.Advance(hour)
	s.wantEntitled("ada", "vip", false)
	given := grant(ada(object{"entitlement": "vip"}), 201, "")["grant"].(object)
	s.wantEntitled("ada", "vip", true)
	revoke(ada(object{"grantId": given["id"], "entitlement": "vip"}), 400, "kit/invalid_request")
	revoke(ada(object{"entitlement": "beta"}), 404, "payments/entitlement_not_found")
	revoke(ada(object{"purchaseId": "none"}), 404, "payments/purchase_not_found")
	revoke(ada(object{"grantId": given["id"]}), 200, "")
	s.wantEntitled("ada", "vip", false)

	// What a purchase gives is masked, by renewals too, until it is repaired.
	o := s.pro(ios, "t1", "ada")
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{o}})
	s.wantEntitled("ada", "pro", true)
	revoke(ada(object{"entitlement": "pro"}), 200, "")
	s.wantEntitled("ada", "pro", false)
	o.Version, o.Lifecycle.AccessUntil = 2, s.in(60*day)
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{o}})
	s.wantEntitled("ada", "pro", false)
	grant(ada(object{"rail": "ios_store", "transactionId": "t1"}), 404, "payments/purchase_not_found")
	s.set(o)
	grant(ada(object{"rail": "nope", "transactionId": "t1"}), 404, "payments/rail_not_enabled")
	grant(ada(object{"rail": "ios_store", "transactionId": "t1"}), 201, "")
	s.wantEntitled("ada", "pro", true)
	if len(changes) != 6 {
		t.Errorf("%d changes were told of, want 6: %+v", len(changes), changes)
	}
	var one payments.Entitlements
	s.Machine("payments:entitlements:read").Get("/payments/admin/entitlements/user/ada").Want(200, "").JSON(&one)
	if len(one.Entitlements) != 1 || one.Entitlements[0].Sources[0].Status != payments.StatusActive {
		t.Errorf("entitlements: %+v", one)
	}
	s.Machine("payments:entitlements:read").Get("/payments/admin/entitlements/organization/ada").Want(404, "payments/subject_kind_mismatch")
	var list capability.Items[payments.Entitlements]
	s.Machine("payments:entitlements:read").Get("/payments/admin/entitlements").Want(200, "").JSON(&list)
	if len(list.Items) != 1 || len(list.Items[0].Entitlements) != 1 {
		t.Errorf("listed: %+v", list.Items)
	}
	var subscriptions capability.Items[payments.Subscription]
	s.Machine("payments:subscriptions:read").Get("/payments/admin/subscriptions?status=active&subjectType=user&subjectId=ada").Want(200, "").JSON(&subscriptions)
	if len(subscriptions.Items) != 1 {
		t.Errorf("subscriptions: %+v", subscriptions.Items)
	}
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases?subjectId=ada").Want(400, "kit/invalid_request")
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases?subjectType=organization&subjectId=ada").Want(404, "payments/subject_kind_mismatch")
	s.Machine("payments:subscriptions:read").Get("/payments/admin/subscriptions?subjectType=organization&subjectId=ada").Want(404, "payments/subject_kind_mismatch")
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases?cursor=x").Want(400, "kit/invalid_request")
	var catalog payments.Catalog
	s.Machine("payments:catalog:read").Get("/payments/admin/catalog").Want(200, "").JSON(&catalog)
	if len(catalog.Rails) != 3 || !catalog.Rails[0].Configured || len(catalog.Products) != 5 {
		t.Errorf("catalog: %+v", catalog)
	}
}

// TestRevokedStaysAwayFromWhatComesBack: a purchase that does not grant when its
// entitlement is taken away does not give it back when it recovers.
func TestRevokedStaysAwayFromWhatComesBack(t *testing.T) {
	for name, state := range map[string]payments.State{"on hold": payments.StateHold, "paused": payments.StatePaused, "ended": payments.StateEnded} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			back := s.pro(android, "t1", "ada")
			back.Lifecycle.State = state
			s.deliver(android, message{ID: "d1", Observations: []payments.Observation{back}})
			id := s.purchase(android, "t1").ID
			for _, r := range []payments.RevokeRequest{{Entitlement: "pro"}, {PurchaseID: id}} {
				r.Subject, r.Reason = subject("ada"), "fraud"
				if _, err := s.Payments().Revoke(t.Context(), r); err != nil {
					t.Errorf("%+v: %v", r, err)
				}
			}
			back.Version, back.Lifecycle.State = 2, payments.StateActive
			s.deliver(android, message{ID: "d2", Observations: []payments.Observation{back}})
			s.wantStatus(android, "t1", payments.StatusActive)
			s.wantEntitled("ada", "pro", false)
			s.deliver(ios, message{ID: "d3", Observations: []payments.Observation{s.pro(ios, "later", "ada")}})
			s.wantEntitled("ada", "pro", true)
		})
	}
}

// TestConsumablesHideNoEntitlement: what grants nothing takes no place in the
// bounded reads of what does.
func TestConsumablesHideNoEntitlement(t *testing.T) {
	s := open(t)
	for _, user := range []string{"ada", "bob"} {
		if _, err := s.Payments().Capability().Database.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
			INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id, facts,
				status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at)
			SELECT '00' || $1 || CAST(i AS TEXT), 'ios_store', $1 || CAST(i AS TEXT), 'sandbox', 'coins', 'com.coins', 'consumable', 'user', $1, '{}',
				'active', TRUE, '', 'normal', FALSE, 'purchased', 0, 1, 'none', 0, 0, 0 FROM n`, user); err != nil {
			t.Fatal(err)
		}
		s.deliver(ios, message{ID: user, Observations: []payments.Observation{s.pro(ios, user, user)}})
		s.wantEntitled(user, "pro", true)
	}
	var list capability.Items[payments.Entitlements]
	s.Machine("payments:entitlements:read").Get("/payments/admin/entitlements").Want(200, "").JSON(&list)
	if len(list.Items) != 2 || len(list.Items[0].Entitlements) != 1 || len(list.Items[1].Entitlements) != 1 {
		t.Errorf("listed: %+v", list.Items)
	}
}

func TestWebhookRefusals(t *testing.T) {
	s := open(t)
	hook := s.Anonymous()
	hook.Post("/payments/webhooks/ios_store", message{ID: "x"}).Want(401, "payments/invalid_signature")
	hook.With("X-Proof", "wrong").Post("/payments/webhooks/ios_store", message{ID: "x"}).Want(401, "payments/invalid_signature")
	hook.With("X-Proof", secret).Post("/payments/webhooks/ios_store", message{}).Want(401, "payments/invalid_signature")
	hook.With("X-Proof", secret).Post("/payments/webhooks/ios_store", strings.Repeat("x", 2<<20)).Want(413, "kit/body_too_large")
	hook.With("X-Proof", "down").Post("/payments/webhooks/ios_store", message{ID: "x"}).Want(503, "payments/rail_unavailable")
	hook.With("X-Proof", secret).Post("/payments/webhooks/merchant_a", message{ID: "x"}).Want(404, "kit/not_found")

	live := s.pro(ios, "t1", "ada")
	if got := s.deliver(ios, message{ID: "live", Environment: payments.EnvironmentProduction, Observations: []payments.Observation{live}}); got != payments.OutcomeRefused {
		t.Errorf("of production: %s, want refused", got)
	}
	live.Environment = payments.EnvironmentOther
	if got := s.deliver(ios, message{ID: "inner", Observations: []payments.Observation{live}}); got != payments.OutcomeRefused {
		t.Errorf("whose object is of another environment: %s, want refused", got)
	}
	if got := s.deliver(ios, message{ID: "inner", Observations: []payments.Observation{live}}); got != payments.OutcomeDuplicate {
		t.Errorf("again: %s, want duplicate", got)
	}
	if got := s.deliver(ios, message{ID: "nothing"}); got != payments.OutcomeIgnored {
		t.Errorf("about nothing: %s, want ignored", got)
	}
	var list capability.Items[payments.Purchase]
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases").Want(200, "").JSON(&list)
	if len(list.Items) != 0 {
		t.Errorf("refused webhooks left rows: %+v", list.Items)
	}

	// What a rail keeps from being read is tried again, by the sender and by reconcile.
	s.fail = payments.Transient(errors.New("slow"), 3*time.Second)
	s.post(ios, message{ID: "later", Observations: []payments.Observation{s.pro(ios, "t2", "ada")}}).Want(503, "payments/rail_unavailable")
	s.fail = nil
	s.set(s.pro(ios, "t2", "ada"))
	s.wantEntitled("ada", "pro", false)
	s.Clock.Advance(hour)
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios})
	if err != nil || run.Status != payments.RunSucceeded || run.Rails[0].Recovered != 1 {
		t.Errorf("reconcile: %+v, %v", run, err)
	}
	s.wantEntitled("ada", "pro", true)
}

func TestCredentials(t *testing.T) {
	f := newFake()
	k := openUnconfigured(t, f)
	k.post(ios, message{ID: "x"}).Want(503, "payments/rail_not_configured")
	k.User("ada").Post("/payments/purchases", object{"rail": "ios_store", "signedTransaction": "x"}).Want(503, "payments/rail_not_configured")
	rotate := func(fields secrets.Fields) error {
		_, err := k.Secrets().Rotate(t.Context(), payments.SecretName, secrets.Blocks{"ios_store": fields})
		return err
	}
	if err := rotate(secrets.Fields{"apiKey": secrets.NewValue("test_x")}); !errors.Is(err, secrets.ErrIncompleteBlock) {
		t.Errorf("half a block: %v", err)
	}
	if err := rotate(secrets.Fields{"apiKey": secrets.NewValue("live_x"), "webhookSecret": secrets.NewValue("s")}); !errors.Is(err, secrets.ErrInvalidValue) {
		t.Errorf("a key of production: %v", err)
	}
	k.configure(secret)
	if got := k.deliver(ios, message{ID: "a"}); got != payments.OutcomeIgnored {
		t.Error(got)
	}
	k.configure("the-next-secret")
	if got := k.deliver(ios, message{ID: "b"}); got != payments.OutcomeIgnored {
		t.Error("the secret from before the rotation is not accepted:", got)
	}
	k.Clock.Advance(25 * hour)
	k.post(ios, message{ID: "c"}).Want(401, "payments/invalid_signature")
}

func TestRestore(t *testing.T) {
	for policy, want := range map[payments.RestorePolicy]bool{payments.RestoreMove: true, payments.RestoreMoveInactive: false, payments.RestoreKeep: false} {
		t.Run(string(policy), func(t *testing.T) {
			s := openWith(t, func(c *payments.Config) { c.Restore = policy })
			o := s.pro(ios, "t1", "ada")
			s.deliver(ios, message{ID: "d", Observations: []payments.Observation{o}})
			s.set(o)
			restore := func() (out payments.Restored) {
				s.User("bob").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"t1", "gone"}}).Want(200, "").JSON(&out)
				return out
			}
			out := restore()
			if moved := len(out.Restored) == 1; moved != want {
				t.Errorf("moved %v, want %v: %+v", moved, want, out)
			}
			s.wantEntitled("ada", "pro", !want)
			s.wantEntitled("bob", "pro", want)
			if policy == payments.RestoreMoveInactive {
				s.Clock.Advance(60 * day)
				if out := restore(); len(out.Restored) != 1 {
					t.Errorf("what grants nothing was not moved: %+v", out)
				}
			}
		})
	}
}

func TestRestoreOfCustomer(t *testing.T) {
	s := open(t)
	var bought payments.Bought
	s.User("ada").Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}).Want(201, "").JSON(&bought)
	s.mu.Lock()
	s.state["customer-"+s.token("ada")] = []payments.Observation{s.pro(card, "sub_1", "")}
	s.mu.Unlock()
	var out payments.Restored
	s.User("bob").Post("/payments/restore", object{"rail": "card_processor"}).Want(200, "").JSON(&out)
	if len(out.Restored) != 0 {
		t.Errorf("bob restored %+v", out)
	}
	s.User("ada").Post("/payments/restore", object{"rail": "card_processor"}).Want(200, "").JSON(&out)
	if len(out.Restored) != 1 {
		t.Errorf("ada restored %+v", out)
	}
	items := make([]string, payments.MaxRestore+1)
	s.User("ada").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": items}).Want(400, "kit/invalid_request")
}

func TestOrganizations(t *testing.T) {
	f := newFake()
	s := openConfig(t, f, func(c *payments.Config) {
		c.BillingSubject = payments.SubjectOrganization
		c.Products = c.Products[:4] // without a credit
		c.ResolveSubject = func(_ context.Context, user string) (payments.Subject, bool, error) {
			return payments.Subject{Type: payments.SubjectOrganization, ID: "acme"}, user == "boss", nil
		}
	})
	s.set(s.pro(ios, "t1", ""))
	body := object{"rail": "ios_store", "signedTransaction": "t1"}
	for _, path := range []string{"purchases", "restore", "checkout", "portal"} {
		b := object{"rail": "ios_store"}
		if path == "purchases" {
			b = body
		}
		if path == "checkout" {
			b["productKey"] = "pro"
		}
		s.User("ada").Post("/payments/"+path, b).Want(403, "payments/billing_denied")
	}
	s.User("boss").Post("/payments/purchases", body).Want(201, "")
	var e payments.Entitlements
	s.User("ada").Get("/payments/entitlements").Want(200, "").JSON(&e)
	if len(e.Entitlements) != 1 || e.Subject.ID != "acme" {
		t.Errorf("entitlements of a member: %+v", e)
	}
}

func TestRequireEntitlement(t *testing.T) {
	s := open(t)
	page := s.Payments().RequireEntitlement("pro")(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("members")) }))
	get := func(authorization string) (int, string) {
		r := httptest.NewRequest("GET", "/members", nil)
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, body := get(""); code != 401 || !strings.Contains(body, "auth/unauthenticated") {
		t.Error(code, body)
	}
	token, err := s.accessToken("ada")
	if err != nil {
		t.Fatal(err)
	}
	if code, body := get("Bearer " + token); code != 403 || !strings.Contains(body, "payments/entitlement_required") {
		t.Error(code, body)
	}
	s.deliver(ios, message{ID: "d", Observations: []payments.Observation{s.pro(ios, "t", "ada")}})
	if code, body := get("Bearer " + token); code != 200 || body != "members" {
		t.Error(code, body)
	}
}

func TestRequireEntitlementRefusesAsTheKitDoes(t *testing.T) {
	s := open(t)
	page := s.Identify(s.Payments().RequireEntitlement("pro")(http.NotFoundHandler()))
	token, err := s.accessToken("ada")
	if err != nil {
		t.Fatal(err)
	}
	for what, tokens := range map[string][]string{"none": nil, "two": {"Bearer " + token, "Bearer " + token}} {
		own, kits := httptest.NewRecorder(), httptest.NewRecorder()
		for to, h := range map[*httptest.ResponseRecorder]http.Handler{own: page, kits: s} {
			r := httptest.NewRequest("GET", "/members", nil)
			if to == kits {
				r.URL.Path = "/payments/entitlements"
			}
			r.Header["Authorization"] = tokens
			h.ServeHTTP(to, r)
		}
		var refused struct {
			Error struct{ Code, Message, RequestID string }
		}
		if err := json.Unmarshal(own.Body.Bytes(), &refused); err != nil {
			t.Fatal(err)
		}
		if own.Code != kits.Code || own.Header().Get("WWW-Authenticate") != kits.Header().Get("WWW-Authenticate") {
			t.Errorf("%s: %d %q, the kit refuses with %d %q", what, own.Code, own.Header().Get("WWW-Authenticate"), kits.Code, kits.Header().Get("WWW-Authenticate"))
		}
		if id := own.Header().Get("X-Request-Id"); id == "" || refused.Error.RequestID != id {
			t.Errorf("%s: the request %q is refused as %q", what, id, refused.Error.RequestID)
		}
	}
}

// TestEraseAndExport: what is left names nobody and grants nothing, and later
// webhooks land there.
func TestEraseAndExport(t *testing.T) {
	s := open(t)
	o := s.pro(ios, "t1", "ada")
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{o}})
	if _, err := s.Payments().Grant(t.Context(), payments.GrantRequest{Subject: subject("ada"), Entitlement: "vip", Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	c := s.Payments().Capability()
	var kinds []string
	if err := c.Export(t.Context(), capability.Person{ID: "ada"}, func(kind string, record any) error {
		kinds = append(kinds, kind)
		_, err := json.Marshal(record)
		return err
	}); err != nil || strings.Join(kinds, " ") != "billing_account purchase entitlement_grant" {
		t.Errorf("export: %v, %v", kinds, err)
	}
	erasure, err := c.Erase(t.Context(), capability.Person{ID: "ada"})
	if err != nil || erasure.Removed == 0 || !strings.Contains(erasure.Kept[0].What, "t1") {
		t.Fatalf("erase: %+v, %v", erasure, err)
	}
	if again, err := c.Erase(t.Context(), capability.Person{ID: "ada"}); err != nil || again.Removed != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	s.wantEntitled("ada", "pro", false)
	s.wantEntitled("ada", "vip", false)
	o.Version, o.Lifecycle.AccessUntil = 2, s.in(90*day)
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{o}})
	s.wantEntitled("ada", "pro", false)
	if p := s.purchase(ios, "t1"); p.Subject == nil || !strings.HasPrefix(p.Subject.ID, "erased:") {
		t.Errorf("a later webhook landed at %+v", p.Subject)
	}
	raw := s.Machine("payments:purchases:read").Get("/payments/admin/purchases")
	if strings.Contains(string(raw.Body), `"ada"`) {
		t.Error("the user id still stands in a purchase")
	}
}

// TestErasedSubjectsAreNotToldOf: a purchase that goes on although its user was
// erased entitles nobody: hooks hear nothing, and no list has it, also where a user
// had more than one batch of an erasure.
func TestErasedSubjectsAreNotToldOf(t *testing.T) {
	const purchases = 210
	s := open(t)
	c := s.Payments().Capability()
	seedPurchases(t, c.Database, purchases)
	if _, err := c.Database.Exec(t.Context(), `UPDATE payments_purchase SET subject_id = 'ada'`); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Erase(t.Context(), capability.Person{ID: "ada"}); err != nil {
		t.Fatal(err)
	}
	var told []hooks.EntitlementsChanged
	s.Hooks().EntitlementsChanged.After(func(_ context.Context, e hooks.EntitlementsChanged) { told = append(told, e) })
	for i := range purchases {
		o := s.pro(ios, fmt.Sprint("t", i), "")
		s.deliver(ios, message{ID: o.TransactionID, Observations: []payments.Observation{o}})
	}
	s.Clock.Advance(40 * day)
	if err := s.Payments().Lapse(); err != nil || len(told) != 0 {
		t.Errorf("told of %+v, %v", told, err)
	}
	var list capability.Items[payments.Entitlements]
	s.Machine("payments:entitlements:read").Get("/payments/admin/entitlements").Want(200, "").JSON(&list)
	if len(list.Items) != 0 {
		t.Errorf("%d subjects are listed, the first is %s", len(list.Items), list.Items[0].Subject.ID)
	}
}

// TestNothingIsWrittenBehindAnErasure: who is erased while a rail is asked for them
// gets nothing from what it says.
func TestNothingIsWrittenBehindAnErasure(t *testing.T) {
	var s *shop
	erase := func() {
		if _, err := s.Payments().Capability().Erase(t.Context(), capability.Person{ID: "ada"}); err != nil {
			t.Error(err)
		}
	}
	s = openWith(t, func(c *payments.Config) {
		redeem, ofCustomer, checkout := c.Rails[0].Redeem, c.Rails[2].OfCustomer, c.Rails[2].Checkout
		c.Rails[0].Redeem = func(ctx context.Context, a payments.Access, q payments.Submission) ([]payments.Observation, error) {
			erase()
			return redeem(ctx, a, q)
		}
		c.Rails[2].OfCustomer = func(ctx context.Context, a payments.Access, customer string) ([]payments.Observation, error) {
			erase()
			return ofCustomer(ctx, a, customer)
		}
		c.Rails[2].Checkout = func(ctx context.Context, a payments.Access, q payments.CheckoutRequest) (payments.Checkout, error) {
			erase()
			return checkout(ctx, a, q)
		}
	})
	s.set(s.pro(ios, "t1", ""))
	bought := s.pro(card, "t2", "ada")
	bought.CustomerID = "cus"
	s.deliver(card, message{ID: "d1", Observations: []payments.Observation{bought}})
	other := s.pro(card, "t3", "")
	other.TransactionID = "cus" // the fake finds a customer by its id
	s.set(other)
	ada := s.User("ada")
	ada.Post("/payments/restore", object{"rail": "card_processor"}).Want(401, "auth/unauthenticated")
	ada.Post("/payments/purchases", object{"rail": "ios_store", "signedTransaction": "t1"}).Want(401, "auth/unauthenticated")
	ada.Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"t1"}}).Want(401, "auth/unauthenticated")
	ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "map"}).Want(401, "auth/unauthenticated")
	for _, table := range []string{"subject", "purchase", "checkout", "customer"} {
		var left int
		if err := s.Payments().Capability().Database.QueryRow(t.Context(), `SELECT COUNT(*) FROM payments_`+table+` WHERE subject_id = 'ada'`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d rows of %s name the user who was erased, %v", left, table, err)
		}
	}
}

// TestEraseReachesChargesOfMovedPurchases: who paid is forgotten although somebody
// else has the purchase now, whose own charges stay what they are.
func TestEraseReachesChargesOfMovedPurchases(t *testing.T) {
	s := openWith(t, func(c *payments.Config) { c.Products[0].Credit = &payments.Credit{Currency: "coins", Amount: 100} })
	o := s.pro(ios, "t1", "ada")
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{o}})
	s.set(o)
	s.User("bob").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"t1"}}).Want(200, "")
	renewal := payments.Observation{TransactionID: "t1", Version: 2, Charges: []payments.Charge{{ID: "c2", At: s.in(day), Settled: true}}}
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{renewal}})
	c := s.Payments().Capability()
	if _, err := c.Erase(t.Context(), capability.Person{ID: "ada"}); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := c.Database.QueryRow(t.Context(), `SELECT COUNT(*) FROM payments_charge WHERE user_id = 'ada'`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d charges name the user who was erased, %v", left, err)
	}
	refunds := payments.Observation{TransactionID: "t1", Version: 3, Refunds: []payments.Refund{
		{ID: "r", ChargeID: "charge-t1", Full: true}, {ID: "r", ChargeID: "c2", Full: true}}}
	s.deliver(ios, message{ID: "d3", Observations: []payments.Observation{refunds}})
	if ada, bob := s.coins("ada"), s.coins("bob"); ada != 100 || bob != 0 {
		t.Errorf("ada has %d coins and bob %d, want the 100 that no refund moves and none", ada, bob)
	}
}

// TestStacking: purchases that do not renew follow each other, in any order of
// arrival, and a refund moves those behind it forward.
func TestStacking(t *testing.T) {
	s := open(t)
	pass := func(tx string, bought time.Duration) payments.Observation {
		o := sub(tx, 1, payments.Lifecycle{ProductID: "com.pass", State: payments.StateActive, PurchasedAt: s.in(bought)})
		o.AccountToken = s.token("ada")
		o.Charges = []payments.Charge{{ID: "c" + tx, At: s.in(bought), Settled: true}}
		return o
	}
	first, second := pass("p1", 0), pass("p2", day)
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{second}})
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{first}})
	end := s.purchase(ios, "p2").AccessUntil
	if end == nil || !end.Equal(s.Clock.Now().Add(60*day)) {
		t.Errorf("two passes of thirty days end at %v, want in sixty days", end)
	}
	s.Clock.Advance(59 * day)
	s.wantEntitled("ada", "pass", true)
	refund := payments.Observation{TransactionID: "p1", Version: 9, Refunds: []payments.Refund{{ID: "r", ChargeID: "cp1", Full: true}}}
	s.deliver(ios, message{ID: "d3", Observations: []payments.Observation{refund}})
	s.wantEntitled("ada", "pass", false)
}

// TestManyPassesAtOnceEnd: as many as may be bought at once grant neither for good
// nor for less.
func TestManyPassesAtOnceEnd(t *testing.T) {
	s := openWith(t, func(c *payments.Config) { c.Products[2].Duration = 365 * day })
	for _, quantity := range []int64{300, 600, payments.MaxQuantity} {
		tx := fmt.Sprint("p", quantity)
		o := sub(tx, 1, payments.Lifecycle{ProductID: "com.pass", State: payments.StateActive, PurchasedAt: s.in(0), Quantity: quantity})
		o.AccountToken = s.token(tx)
		o.Charges = []payments.Charge{{ID: tx, At: s.in(0), Quantity: quantity, Settled: true}}
		s.deliver(ios, message{ID: tx, Observations: []payments.Observation{o}})
		if end := s.purchase(ios, tx).AccessUntil; end == nil || end.Year() < s.Clock.Now().Year()+290 {
			t.Errorf("%d years end at %v", quantity, end)
		}
	}
}

// TestMovedPassesTakeTheirTimeAlong: a pass that follows those that a restore
// took away begins earlier, so that the three grant what was bought.
func TestMovedPassesTakeTheirTimeAlong(t *testing.T) {
	s := open(t)
	for _, tx := range []string{"p1", "p2", "p3"} {
		o := sub(tx, 1, payments.Lifecycle{ProductID: "com.pass", State: payments.StateActive, PurchasedAt: s.in(0)})
		o.AccountToken = s.token("ada")
		o.Charges = []payments.Charge{{ID: "c" + tx, At: s.in(0), Settled: true}}
		s.deliver(ios, message{ID: "d" + tx, Observations: []payments.Observation{o}})
		s.set(o)
	}
	s.User("bob").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"p1", "p2"}}).Want(200, "")
	for user, want := range map[string]time.Duration{"ada": 30 * day, "bob": 60 * day} {
		e, err := s.Payments().Entitlements(t.Context(), subject(user))
		if err != nil || len(e.Entitlements) != 1 {
			t.Fatalf("%s: %+v, %v", user, e, err)
		}
		if got := e.Entitlements[0].ExpiresAt.Sub(s.Clock.Now()); got != want {
			t.Errorf("%s has the pass for %v, want %v", user, got, want)
		}
	}
}

// TestMovedPassesLeaveUsedTimeWhereItWasUsed: of a pass that is moved its new subject has
// what was left of it, and passes that stay keep theirs, whatever comes after.
func TestMovedPassesLeaveUsedTimeWhereItWasUsed(t *testing.T) {
	for name, c := range map[string]struct {
		at       time.Duration
		moved    string
		ada, bob time.Duration // when theirs end
	}{
		"the first one while it runs":       {20 * day, "p1", 50 * day, 45 * day},
		"the first one once it is used up":  {40 * day, "p1", 60 * day, 35 * day},
		"the second one before it begins":   {20 * day, "p2", 30 * day, 65 * day},
		"the second one while it runs":      {40 * day, "p2", 30 * day, 60 * day},
		"the second one once it is used up": {70 * day, "p2", 30 * day, 35 * day},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			begun := s.Clock.Now()
			buy := func(tx, user string, bought time.Duration) {
				o := sub(tx, 1, payments.Lifecycle{ProductID: "com.pass", State: payments.StateActive, PurchasedAt: payments.At(begun.Add(bought))})
				o.AccountToken = s.token(user)
				o.Charges = []payments.Charge{{ID: "c" + tx, At: payments.At(begun.Add(bought)), Settled: true}}
				s.deliver(ios, message{ID: "d" + tx, Observations: []payments.Observation{o}})
				s.set(o)
			}
			wantEnd := func(when string, ends map[string]time.Duration) {
				t.Helper()
				for user, want := range ends {
					e, err := s.Payments().Entitlements(t.Context(), subject(user))
					if err != nil {
						t.Fatal(err)
					}
					switch over := begun.Add(want).Compare(s.Clock.Now()) <= 0; {
					case over && len(e.Entitlements) > 0:
						t.Errorf("%s, %s has the pass until %v, want none", when, user, e.Entitlements[0].ExpiresAt)
					case !over && len(e.Entitlements) == 0:
						t.Errorf("%s, %s has no pass, want one for %v", when, user, want)
					case !over && e.Entitlements[0].ExpiresAt.Sub(begun) != want:
						t.Errorf("%s, %s has the pass for %v, want %v", when, user, e.Entitlements[0].ExpiresAt.Sub(begun), want)
					}
				}
			}
			buy("p1", "ada", 0)
			buy("p2", "ada", day)
			buy("own", "bob", 5*day)
			s.Clock.Advance(c.at)
			s.User("bob").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{c.moved}}).Want(200, "")
			wantEnd("moved", map[string]time.Duration{"ada": c.ada, "bob": c.bob})
			buy("p3", "ada", c.at)
			buy("more", "bob", c.at)
			wantEnd("with one more", map[string]time.Duration{"ada": max(c.ada, c.at) + 30*day, "bob": max(c.bob, c.at) + 30*day})
		})
	}
}

// TestMovedPassesThatNobodyHadAreWhole: of a pass that the kit learns of when it is moved
// nothing is used, so that the next one follows it, and its time runs from its purchase.
func TestMovedPassesThatNobodyHadAreWhole(t *testing.T) {
	restore := func(s *shop) {
		s.User("bob").Post("/payments/restore", object{"rail": "ios_store", "signedTransactions": []string{"p1"}}).Want(200, "")
	}
	repair := func(s *shop) {
		r := payments.RepairRequest{Rail: ios, TransactionID: "p1", Subject: subject("bob"), Reason: "asked"}
		if _, err := s.Payments().Repair(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		move func(*shop)
		age  time.Duration // of the first pass when it is moved
		want time.Duration // what both grant from then on
	}{
		"restored at once":         {restore, 0, 60 * day},
		"repaired at once":         {repair, 0, 60 * day},
		"restored later":           {restore, 20 * day, 40 * day},
		"restored once it is over": {restore, 40 * day, 30 * day},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			pass := func(tx, user string) payments.Observation {
				o := sub(tx, 1, payments.Lifecycle{ProductID: "com.pass", State: payments.StateActive, PurchasedAt: s.in(0)})
				o.AccountToken = s.token(user)
				o.Charges = []payments.Charge{{ID: "c" + tx, At: s.in(0), Settled: true}}
				return o
			}
			s.set(pass("p1", "ada"))
			s.Clock.Advance(c.age)
			c.move(s)
			s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{pass("p2", "bob")}})
			e, err := s.Payments().Entitlements(t.Context(), subject("bob"))
			if err != nil || len(e.Entitlements) != 1 {
				t.Fatalf("bob has %+v, %v, want one pass", e.Entitlements, err)
			}
			if got := e.Entitlements[0].ExpiresAt.Sub(s.Clock.Now()); got != c.want {
				t.Errorf("bob has the pass for %v, want %v", got, c.want)
			}
		})
	}
}

// TestPassesOfTwoRailsFollowEachOther: each keeps the terms of its own rail, also
// where both rails use the same id.
func TestPassesOfTwoRailsFollowEachOther(t *testing.T) {
	s := openWith(t, func(c *payments.Config) {
		c.Products[2].Store[card] = payments.StoreIDs{ProductID: "prod_pass", PriceID: "price_pass"}
	})
	pass := func(rail payments.RailID, tx, product string, state payments.State, charges ...payments.Charge) {
		o := sub(tx, 1, payments.Lifecycle{ProductID: product, State: state, PurchasedAt: s.in(0)})
		o.AccountToken, o.Charges = s.token("ada"), charges
		s.deliver(rail, message{ID: "d-" + tx, Observations: []payments.Observation{o}})
		s.Clock.Advance(day)
	}
	bought := s.Clock.Now()
	pass(ios, "p1", "com.pass", payments.StateActive, payments.Charge{ID: "c1", At: s.in(0), Settled: true})
	pass(card, "p1", "prod_pass", payments.StateActive, payments.Charge{ID: "c1", At: s.in(0), Settled: true})
	pass(card, "unpaid", "prod_pass", payments.StatePending)
	wantEnd := func(after time.Duration) {
		t.Helper()
		if p := s.wantStatus(card, "p1", payments.StatusActive); !p.AccessUntil.Equal(bought.Add(after)) {
			t.Errorf("the second pass ends at %v, want %v", p.AccessUntil, bought.Add(after))
		}
		if p := s.wantStatus(card, "unpaid", payments.StatusNeverPaid); p.MoneyArrived {
			t.Error("money arrived that never did")
		}
	}
	wantEnd(60 * day)
	refund := payments.Observation{TransactionID: "p1", Version: 9, Refunds: []payments.Refund{{ID: "r", ChargeID: "c1", Full: true}}}
	s.deliver(ios, message{ID: "refund", Observations: []payments.Observation{refund}})
	s.wantStatus(ios, "p1", payments.StatusRefunded)
	wantEnd(31 * day)
}

// TestUpgrade: a purchase that replaces another inherits its subject, and only
// one of the two grants.
func TestUpgrade(t *testing.T) {
	s := open(t)
	s.deliver(android, message{ID: "d1", Observations: []payments.Observation{s.pro(android, "old", "ada")}})
	upgraded := sub("new", 1, payments.Lifecycle{ProductID: "max", State: payments.StateActive, WillRenew: true, AccessUntil: s.in(30 * day), Replaces: "old"})
	upgraded.NeedsAcknowledge = true
	s.deliver(android, message{ID: "d2", Observations: []payments.Observation{upgraded}})
	s.wantStatus(android, "old", payments.StatusExpired)
	s.wantStatus(android, "new", payments.StatusActive)
	s.wantEntitled("ada", "max", true)
	s.wantEntitled("ada", "pro", true)
	if len(s.acked) != 1 || s.acked[0] != "new" {
		t.Errorf("acknowledged %v", s.acked)
	}
}

// TestClawback: what a refund cannot take back is owed, seen, and tried again.
func TestClawback(t *testing.T) {
	s := open(t)
	coin := sub("k1", 1, payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive})
	coin.AccountToken = s.token("ada")
	coin.Charges = []payments.Charge{{ID: "k1", AmountMinor: 1000, Settled: true}}
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{coin}})
	s.spend("ada", 70)
	half := payments.Observation{TransactionID: "k1", Version: 2, Refunds: []payments.Refund{{ID: "r", ChargeID: "k1", AmountMinor: 500}}}
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{half}})
	if got := s.coins("ada"); got != 0 {
		t.Errorf("%d coins, want 0 with 20 owed", got)
	}
	s.earn("ada", 15)
	s.Clock.Advance(7 * hour)
	if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := s.coins("ada"); got != 0 {
		t.Errorf("%d coins, want 0 with 5 owed", got)
	}
	if owed := s.health("owedClawbacks"); owed != int64(1) {
		t.Errorf("%v owed, want 1", owed)
	}
	back := payments.Observation{TransactionID: "k1", Version: 3, Refunds: []payments.Refund{{ID: "r", ChargeID: "k1", AmountMinor: 500, Reversed: true}}}
	s.deliver(ios, message{ID: "d3", Observations: []payments.Observation{back}})
	if got := s.coins("ada"); got != 45 {
		t.Errorf("%d coins after the refund failed, want the 45 that were taken", got)
	}
	if owed := s.health("owedClawbacks"); owed != int64(0) {
		t.Errorf("%v owed, want none", owed)
	}
}

// TestChargeOfSeveralProducts: one payment credits each of them, and its refund takes all
// of that back.
func TestChargeOfSeveralProducts(t *testing.T) {
	s := openWith(t, func(c *payments.Config) { c.Products[0].Credit = &payments.Credit{Currency: "coins", Amount: 30} })
	o := s.pro(ios, "t1", "ada")
	o.Charges = []payments.Charge{{ID: "c1", ProductID: "com.map", Also: []string{"com.pro", "com.coins", "com.unknown"}, AmountMinor: 200, Settled: true}}
	for version, c := range []struct{ refunded, coins int64 }{{0, 130}, {100, 65}, {200, 0}} {
		o.Version = int64(version + 1)
		o.Refunds = []payments.Refund{{ID: "r", ChargeID: "c1", AmountMinor: c.refunded, Reversed: c.refunded == 0}}
		s.deliver(ios, message{ID: fmt.Sprint("d", version), Observations: []payments.Observation{o}})
		if got := s.coins("ada"); got != c.coins {
			t.Errorf("%d coins with %d of 200 refunded, want %d", got, c.refunded, c.coins)
		}
	}
}

// TestRunAsksForAllThatIsOwed: a run takes back what it can of every refund, not of
// the first batch alone.
func TestRunAsksForAllThatIsOwed(t *testing.T) {
	const purchases = 410
	s := open(t)
	var bought, refunded []payments.Observation
	for i := range purchases {
		tx := fmt.Sprint("k", i)
		o := sub(tx, 1, payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive})
		o.AccountToken, o.Charges = s.token("ada"), []payments.Charge{{ID: tx, AmountMinor: 1, Settled: true}}
		bought = append(bought, o)
		refunded = append(refunded, payments.Observation{TransactionID: tx, Version: 2, Refunds: []payments.Refund{{ID: "r", ChargeID: tx, Full: true}}})
	}
	s.deliver(ios, message{ID: "d1", Observations: bought})
	s.spend("ada", purchases*100)
	s.deliver(ios, message{ID: "d2", Observations: refunded})
	s.earn("ada", purchases*100)
	s.Clock.Advance(7 * hour)
	if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: ios}); err != nil {
		t.Fatal(err)
	}
	if owed := s.health("owedClawbacks"); owed != int64(0) || s.coins("ada") != 0 {
		t.Errorf("%v are owed still and ada has %d coins", owed, s.coins("ada"))
	}
}

// TestChargesShareNoRef: a charge may be called as if it were a movement of
// another one.
func TestChargesShareNoRef(t *testing.T) {
	s := open(t)
	for _, id := range []string{"o7", "o7:1", "o7.1", "card_processor.1:o7"} {
		o := sub(id, 1, payments.Lifecycle{ProductID: "prod_coins", State: payments.StateActive})
		o.AccountToken, o.Charges = s.token("ada"), []payments.Charge{{ID: id, AmountMinor: 100, Settled: true}}
		s.deliver(card, message{ID: "bought-" + id, Observations: []payments.Observation{o}})
		if got := s.coins("ada"); got != 100 {
			t.Errorf("%d coins once %s was bought, want 100", got, id)
		}
		o.Version, o.Refunds = 2, []payments.Refund{{ID: "r", ChargeID: id, Full: true}}
		s.deliver(card, message{ID: "refunded-" + id, Observations: []payments.Observation{o}})
		if got := s.coins("ada"); got != 0 {
			t.Errorf("%d coins once %s was refunded, want 0", got, id)
		}
	}
}

func TestRetention(t *testing.T) {
	s := open(t)
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{s.pro(ios, "t1", "ada")}})
	if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{}); err != nil {
		t.Fatal(err)
	}
	s.Clock.Advance(91 * day)
	if err := s.Payments().Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{s.pro(ios, "t1", "ada")}}); got != payments.OutcomeApplied {
		t.Errorf("a webhook that was forgotten: %s", got)
	}
	var runs capability.Items[payments.Run]
	s.Machine("payments:reconcile:read").Get("/payments/admin/reconcile-runs").Want(200, "").JSON(&runs)
	if len(runs.Items) != 0 {
		t.Errorf("runs: %+v", runs.Items)
	}
	s.purchase(ios, "t1")
}

// TestReconcileKeepsRailsApart: one rail's failure is its own, and missed
// webhooks are found.
func TestReconcileKeepsRailsApart(t *testing.T) {
	good, bad := newFake(), newFake()
	s := openConfig(t, good, func(c *payments.Config) { c.Rails[1], c.Rails[2] = newFake().rail(android), bad.rail(card) })
	good.set(s.pro(ios, "t1", "ada"))
	body, _ := json.Marshal(message{ID: "missed", Observations: []payments.Observation{s.pro(ios, "t1", "ada")}})
	good.history = []payments.HistoryPage{{Deliveries: []payments.Delivery{{ID: "missed", Body: body}}}}
	bad.fail = payments.Transient(errors.New("down"), 0)
	run, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{})
	if err != nil || run.Status != payments.RunPartial {
		t.Fatalf("%+v, %v", run, err)
	}
	codes := make(map[payments.RailID]string)
	for _, part := range run.Rails {
		codes[part.Rail] = part.Code
	}
	if codes[card] != "payments/rail_unavailable" || codes[ios] != "" || codes[android] != "" {
		t.Errorf("codes: %v", codes)
	}
	s.wantEntitled("ada", "pro", true)
	s.RunJobs()
	var runs capability.Items[payments.Run]
	s.Machine("payments:reconcile:read").Get("/payments/admin/reconcile-runs").Want(200, "").JSON(&runs)
	if len(runs.Items) == 0 || runs.Items[0].FinishedAt == nil {
		t.Errorf("runs: %+v", runs.Items)
	}
	// Time alone ends what was not renewed; the run writes it down and tells of it.
	s.Clock.Advance(40 * day)
	if _, err := s.Payments().Reconcile(t.Context(), payments.ReconcileRequest{Rail: "nope"}); !errors.Is(err, payments.ErrRailNotEnabled) {
		t.Error(err)
	}
}

func TestListsOfPurchasesTakeTheZeroPage(t *testing.T) {
	s := open(t)
	s.deliver(ios, message{ID: "d", Observations: []payments.Observation{s.pro(ios, "t", "ada")}})
	purchases, err := s.Payments().ListPurchases(t.Context(), payments.PurchaseFilter{}, capability.Page{})
	if err != nil || len(purchases.Items) != 1 {
		t.Errorf("purchases: %d, %v", len(purchases.Items), err)
	}
	subscriptions, err := s.Payments().ListSubscriptions(t.Context(), payments.PurchaseFilter{}, capability.Page{})
	if err != nil || len(subscriptions.Items) != 1 {
		t.Errorf("subscriptions: %d, %v", len(subscriptions.Items), err)
	}
}
