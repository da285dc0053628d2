package androidstore

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/kitbackend/kit/payments"
)

const (
	expiry = 1_772_366_400_000 // 2026-03-01T12:00:00Z
	before = expiry - 60_000
)

func project(o payments.Observation, kind payments.ProductKind, at payments.Instant) payments.Projection {
	return payments.Project(payments.Merge(payments.Facts{}, o), payments.Terms{Kind: kind, ReportsCompleted: true, Leeway: renewalLeeway, Grace: true}, at)
}

// The rows of the mapping, one by one.
func TestMapping(t *testing.T) {
	const (
		plan    = `"autoRenewingPlan":{"autoRenewEnabled":true,"recurringPrice":{"currencyCode":"USD","units":"9","nanos":990000000}}`
		off     = `"autoRenewingPlan":{"autoRenewEnabled":false}`
		prepaid = `"prepaidPlan":{}`
	)
	for name, c := range map[string]struct {
		state, plan, more string
		at                payments.Instant
		want              payments.Status
		grace, resume     payments.Instant
	}{
		"active":                        {"ACTIVE", plan, ``, before, payments.StatusActive, 0, 0},
		"active, the silent day":        {"ACTIVE", plan, ``, expiry + 3_600_000, payments.StatusActive, 0, 0},
		"active, a day later":           {"ACTIVE", plan, ``, expiry + 86_400_000, payments.StatusExpired, 0, 0},
		"prepaid":                       {"ACTIVE", prepaid, ``, before, payments.StatusActive, 0, 0},
		"prepaid, over":                 {"ACTIVE", prepaid, ``, expiry, payments.StatusExpired, 0, 0},
		"canceled":                      {"CANCELED", off, ``, before, payments.StatusCanceled, 0, 0},
		"canceled, over":                {"CANCELED", off, ``, expiry, payments.StatusExpired, 0, 0},
		"replaced":                      {"CANCELED", off, `,"canceledStateContext":{"replacementCancellation":{}}`, before, payments.StatusExpired, 0, 0},
		"in grace":                      {"IN_GRACE_PERIOD", plan, ``, before, payments.StatusInGrace, expiry, 0},
		"in grace, over":                {"IN_GRACE_PERIOD", plan, ``, expiry, payments.StatusOnHold, 0, 0},
		"on hold":                       {"ON_HOLD", plan, ``, before, payments.StatusOnHold, 0, 0},
		"paused with an end":            {"PAUSED", plan, `,"pausedStateContext":{"autoResumeTime":"2026-04-01T00:00:00Z"}`, before, payments.StatusPaused, 0, 1_775_001_600_000},
		"paused without an end":         {"PAUSED", plan, `,"pausedStateContext":{}`, before, payments.StatusPaused, 0, 0},
		"paused without a word":         {"PAUSED", plan, ``, before, payments.StatusPaused, 0, 0},
		"expired":                       {"EXPIRED", off, ``, before, payments.StatusExpired, 0, 0},
		"pending":                       {"PENDING", `"x":1`, ``, before, payments.StatusNeverPaid, 0, 0},
		"pending with a linked token":   {"PENDING", `"x":1`, `,"linkedPurchaseToken":"old"`, before, payments.StatusNeverPaid, 0, 0},
		"pending purchase was canceled": {"PENDING_PURCHASE_CANCELED", `"x":1`, ``, before, payments.StatusNeverPaid, 0, 0},
		"a state of tomorrow":           {"ASTONISHED", plan, ``, before, payments.StatusOnHold, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			order := `"latestSuccessfulOrderId":"GPA.1..2",`
			if c.plan == `"x":1` {
				order = ""
			}
			var s subscription
			text := `{"subscriptionState":"SUBSCRIPTION_STATE_` + c.state + `","startTime":"2026-01-01T00:00:00.5Z","lineItems":[{"productId":"pro","expiryTime":"2026-03-01T12:00:00Z",` +
				order + c.plan + `,"offerDetails":{"basePlanId":"monthly"}}],"acknowledgementState":"ACKNOWLEDGEMENT_STATE_PENDING"` + c.more + `}`
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			o := fromSubscription("token", s, 1)
			p := project(o, payments.KindSubscription, c.at)
			if p.Status != c.want || p.GraceUntil != c.grace || p.ResumeAt != c.resume {
				t.Errorf("%s, grace until %d, resumes at %d; want %s, %d, %d", p.Status, p.GraceUntil, p.ResumeAt, c.want, c.grace, c.resume)
			}
			if o.Lifecycle.Replaces != "" {
				t.Errorf("a pending purchase replaces %q", o.Lifecycle.Replaces)
			}
			if o.NeedsAcknowledge == (c.want == payments.StatusNeverPaid) {
				t.Errorf("the store waits for an acknowledgement: %v", o.NeedsAcknowledge)
			}
			if o.Environment != payments.EnvironmentProduction || o.TransactionID != key("token") || o.RawRef != "token" || o.Lifecycle.BasePlanID != "monthly" {
				t.Errorf("%+v", o)
			}
		})
	}
}

func TestTrialAndUpgradeAndTester(t *testing.T) {
	var s subscription
	text := `{"subscriptionState":"SUBSCRIPTION_STATE_ACTIVE","linkedPurchaseToken":"old","testPurchase":{},"lineItems":[
		{"productId":"addon","expiryTime":"2026-02-01T12:00:00Z","latestSuccessfulOrderId":"GPA.1"},
		{"productId":"pro","expiryTime":"2026-03-01T12:00:00Z","latestSuccessfulOrderId":"GPA.1","offerPhase":{"freeTrial":{}},
		 "autoRenewingPlan":{"autoRenewEnabled":true},"deferredItemReplacement":{"productId":"max"}}],
		"outOfAppPurchaseContext":{"expiredExternalAccountIdentifiers":{"obfuscatedExternalAccountId":"account"}}}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	o := fromSubscription("new", s, 1)
	l := o.Lifecycle
	if l.Replaces != key("old") || l.PeriodType != payments.PeriodTrial || l.ProductID != "pro" || l.PendingProductID != "max" || l.AccessUntil != expiry {
		t.Errorf("%+v", l)
	}
	if o.Environment != payments.EnvironmentSandbox || o.AccountToken != "account" || len(o.Charges) != 1 {
		t.Errorf("%+v", o)
	}
}

// A plan that was changed within a period is paid for with what the period before is
// still worth: its first order is none of a whole period, and none of money where that
// one was a trial.
func TestProrationPeriod(t *testing.T) {
	for original, trial := range map[string]bool{"BASE": false, "INTRODUCTORY": false, "FREE_TRIAL": true} {
		var s subscription
		text := `{"subscriptionState":"SUBSCRIPTION_STATE_ACTIVE","linkedPurchaseToken":"old","lineItems":[
			{"productId":"max","expiryTime":"2026-03-01T12:00:00Z","latestSuccessfulOrderId":"GPA.2","autoRenewingPlan":{"autoRenewEnabled":true},
			 "offerPhase":{"prorationPeriod":{"originalOfferPhaseType":"` + original + `"}}}]}`
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		o := fromSubscription("new", s, 1)
		if len(o.Charges) != 1 || !o.Charges[0].Proration || o.Charges[0].Trial != trial || (o.Lifecycle.PeriodType == payments.PeriodTrial) != trial {
			t.Errorf("out of %s: %+v, %q", original, o.Charges, o.Lifecycle.PeriodType)
		}
	}
}

// A change of plan at the full price pays for a whole period, also out of a trial; it is
// told by how the item was replaced.
func TestChangeOfPlanAtTheFullPriceIsAPeriod(t *testing.T) {
	for _, original := range []string{"BASE", "FREE_TRIAL"} {
		for mode, full := range map[string]bool{"CHARGE_FULL_PRICE": true, "CHARGE_PRORATED_PRICE": false, "WITH_TIME_PRORATION": false, "": false} {
			var s subscription
			text := `{"subscriptionState":"SUBSCRIPTION_STATE_ACTIVE","linkedPurchaseToken":"old","lineItems":[
				{"productId":"max","expiryTime":"2026-03-01T12:00:00Z","latestSuccessfulOrderId":"GPA.2","itemReplacement":{"productId":"pro","replacementMode":"` + mode + `"},
				 "autoRenewingPlan":{"autoRenewEnabled":true,"recurringPrice":{"currencyCode":"USD","units":"19"}},
				 "offerPhase":{"prorationPeriod":{"originalOfferPhaseType":"` + original + `"}}}]}`
			if err := json.Unmarshal([]byte(text), &s); err != nil {
				t.Fatal(err)
			}
			o := fromSubscription("new", s, 1)
			trial := !full && original == "FREE_TRIAL"
			if c := o.Charges[0]; c.Proration == full || c.Trial != trial || (c.AmountMinor == 1900) != full || (o.Lifecycle.PeriodType == payments.PeriodTrial) != trial {
				t.Errorf("%q out of %s: %+v, %q", mode, original, c, o.Lifecycle.PeriodType)
			}
		}
	}
}

// One order pays for several items; those that it pays no period of have no part in it.
func TestAddOnsOfOneOrder(t *testing.T) {
	item := func(product, order, phase string) string {
		return `{"productId":"` + product + `","latestSuccessfulOrderId":"` + order + `","offerPhase":{` + phase + `},
			"autoRenewingPlan":{"recurringPrice":{"currencyCode":"USD","units":"5"}}}`
	}
	const base, trial, proration = `"basePrice":{}`, `"freeTrial":{}`, `"prorationPeriod":{}`
	for name, c := range map[string]struct {
		items string
		want  []payments.Charge
	}{
		"three of one order": {item("a", "GPA.1", base) + "," + item("b", "GPA.1", base) + "," + item("c", "GPA.1", base),
			[]payments.Charge{{ID: "GPA.1", ProductID: "a", Also: []string{"b", "c"}, AmountMinor: 1500}}},
		"two of one order around another": {item("a", "GPA.1", base) + "," + item("b", "GPA.2", base) + "," + item("c", "GPA.1", base),
			[]payments.Charge{{ID: "GPA.1", ProductID: "a", Also: []string{"c"}, AmountMinor: 1000}, {ID: "GPA.2", ProductID: "b", AmountMinor: 500}}},
		"a trial first": {item("a", "GPA.1", trial) + "," + item("b", "GPA.1", base),
			[]payments.Charge{{ID: "GPA.1", ProductID: "b", AmountMinor: 500}}},
		"a change of plan last": {item("a", "GPA.1", base) + "," + item("b", "GPA.1", proration),
			[]payments.Charge{{ID: "GPA.1", ProductID: "a", AmountMinor: 500}}},
		"trials": {item("a", "GPA.1", trial) + "," + item("b", "GPA.1", trial),
			[]payments.Charge{{ID: "GPA.1", ProductID: "a", Trial: true}}},
	} {
		var s subscription
		if err := json.Unmarshal([]byte(`{"lineItems":[`+c.items+`]}`), &s); err != nil {
			t.Fatal(err)
		}
		for i := range c.want {
			c.want[i].Currency, c.want[i].Settled = "USD", true
		}
		if got := charges(s); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMappingOfWhatIsBoughtOnce(t *testing.T) {
	const done = `"purchaseCompletionTime":"2026-01-01T00:00:00Z",`
	for name, c := range map[string]struct {
		state, done, offer string
		want               payments.Status
		gone               int64 // how many of four went back
		ack                bool
	}{
		"purchased":                  {"PURCHASED", done, `"quantity":4,"refundableQuantity":4`, payments.StatusActive, 0, true},
		"purchased, no word":         {"PURCHASED", done, `"quantity":4`, payments.StatusActive, 0, true},
		"one of four refunded":       {"PURCHASED", done, `"quantity":4,"refundableQuantity":3`, payments.StatusActive, 1, true},
		"all of four refunded":       {"PURCHASED", done, `"quantity":4,"refundableQuantity":0`, payments.StatusRefunded, 0, true},
		"pending":                    {"PENDING", "", `"quantity":4`, payments.StatusNeverPaid, 0, false},
		"canceled before completion": {"CANCELLED", "", `"quantity":4`, payments.StatusNeverPaid, 0, false},
		"canceled after completion":  {"CANCELLED", done, `"quantity":4`, payments.StatusRefunded, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			var p product
			text := `{"purchaseStateContext":{"purchaseState":"` + c.state + `"},` + c.done + `"orderId":"GPA.9","acknowledgementState":"ACKNOWLEDGEMENT_STATE_PENDING",
				"productLineItem":[{"productId":"coins","productOfferDetails":{` + c.offer + `}}]}`
			if err := json.Unmarshal([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			o := fromProduct("token", p, 1, func(string) payments.ProductKind { return payments.KindConsumable })
			if got := project(o, payments.KindConsumable, before); got.Status != c.want {
				t.Errorf("%s, want %s", got.Status, c.want)
			}
			var gone int64
			for _, r := range o.Refunds {
				gone += r.Quantity
			}
			if gone != c.gone || o.NeedsAcknowledge != c.ack {
				t.Errorf("%d went back and acknowledge is %v, want %d and %v", gone, o.NeedsAcknowledge, c.gone, c.ack)
			}
		})
	}
}

// The list knows why an order was voided, whichever comes first.
func TestVoided(t *testing.T) {
	var s subscription
	text := `{"subscriptionState":"SUBSCRIPTION_STATE_ACTIVE","lineItems":[{"productId":"pro","expiryTime":"2026-03-01T12:00:00Z","latestSuccessfulOrderId":"GPA.1..1","autoRenewingPlan":{"autoRenewEnabled":true}}]}`
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	for reason, want := range map[int]payments.Status{0: payments.StatusRefunded, 1: payments.StatusRefunded, 7: payments.StatusRevoked, 8: payments.StatusRefunded} {
		listed := &voidedPurchase{OrderID: "GPA.1..1", At: before, Reason: reason}
		for _, order := range [][]*voidedPurchase{{nil, listed}, {listed, nil}, {listed}} {
			f := payments.Merge(payments.Facts{}, fromSubscription("token", s, 1))
			for _, each := range order {
				f = payments.Merge(f, payments.Observation{TransactionID: key("token"), Version: 1, Refunds: []payments.Refund{void("GPA.1..1", before+5, each)}})
			}
			if p := payments.Project(f, payments.Terms{Kind: payments.KindSubscription, ReportsCompleted: true}, before); p.Status != want {
				t.Errorf("reason %d, %d statements: %s, want %s", reason, len(order), p.Status, want)
			}
		}
		older := payments.Merge(payments.Merge(payments.Facts{}, fromSubscription("token", s, 1)), payments.Observation{
			TransactionID: key("token"), Version: 1, Charges: []payments.Charge{{ID: "GPA.1", At: 1, Settled: true}}, Refunds: []payments.Refund{void("GPA.1", before, listed)},
		})
		if p := payments.Project(older, payments.Terms{Kind: payments.KindSubscription, ReportsCompleted: true}, before); p.Status != payments.StatusActive {
			t.Errorf("reason %d of an older order: %s, want active", reason, p.Status)
		}
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]int64{
		`{"currencyCode":"USD","units":"9","nanos":990000000}`: 999,
		`{"currencyCode":"JPY","units":"500"}`:                 500,
		`{"currencyCode":"KWD","units":"1","nanos":5000000}`:   1005,
		`{"currencyCode":"USD","nanos":990000000}`:             99,
		`{"currencyCode":"USD","units":"x"}`:                   0,
		`{"currencyCode":"USD","units":"9223372036854775807"}`: 0,
	} {
		var a amount
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		if got := a.minor(); got != want {
			t.Errorf("%s is %d, want %d", text, got, want)
		}
	}
}
