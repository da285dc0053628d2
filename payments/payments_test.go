package payments_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
)

func sub(tx string, version int64, l payments.Lifecycle) payments.Observation {
	return payments.Observation{TransactionID: tx, Version: version, Lifecycle: &l}
}

func TestSubscriptionLife(t *testing.T) {
	s := open(t)
	now := s.in(0)
	buy := sub("t1", 1, payments.Lifecycle{ProductID: "com.pro", State: payments.StateActive, WillRenew: true, PurchasedAt: now, AccessUntil: s.in(30 * day)})
	buy.AccountToken = s.token("ada")
	buy.Charges = []payments.Charge{{ID: "c1", At: now, AmountMinor: 999, Currency: "EUR", Settled: true, PeriodEnd: s.in(30 * day)}}
	s.wantEntitled("ada", "pro", false)
	if got := s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{buy}}); got != payments.OutcomeApplied {
		t.Fatalf("outcome %s", got)
	}
	if got := s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{buy}}); got != payments.OutcomeDuplicate {
		t.Fatalf("a second time: outcome %s", got)
	}
	s.wantEntitled("ada", "pro", true)
	s.wantEntitled("bob", "pro", false)
	s.wantStatus(ios, "t1", payments.StatusActive)

	grace := sub("t1", 2, payments.Lifecycle{ProductID: "com.pro", State: payments.StateGrace, WillRenew: true, AccessUntil: s.in(30 * day), GraceUntil: s.in(36 * day), BillingIssueSince: s.in(30 * day)})
	s.Clock.Advance(30 * day)
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{grace}})
	p := s.wantStatus(ios, "t1", payments.StatusInGrace)
	if p.GraceUntil == nil || p.BillingIssueSince == nil || p.MoneyArrived {
		t.Errorf("in grace: %+v", p)
	}
	s.wantEntitled("ada", "pro", true)
	resolved, err := s.Payments().Entitlements(t.Context(), subject("ada"))
	if err != nil || resolved.Entitlements[0].ExpiresAt == nil || !resolved.Entitlements[0].ExpiresAt.Equal(s.Clock.Now().Add(6*day)) {
		t.Errorf("entitled in grace: %+v, %v, want the end of the window", resolved.Entitlements, err)
	}
	s.Clock.Advance(6*day + time.Second)
	s.wantStatus(ios, "t1", payments.StatusOnHold)
	s.wantEntitled("ada", "pro", false)

	paused := sub("t1", 3, payments.Lifecycle{ProductID: "com.pro", State: payments.StatePaused})
	s.deliver(ios, message{ID: "d3", Observations: []payments.Observation{paused}})
	p = s.wantStatus(ios, "t1", payments.StatusPaused)
	if raw := s.Machine("payments:purchases:read").Get("/payments/admin/purchases"); p.ResumeAt != nil || !strings.Contains(string(raw.Body), `"resumeAt":null`) {
		t.Errorf("resumeAt of a pause without end is %v, want null", string(raw.Body))
	}
	s.deliver(ios, message{ID: "d4", Observations: []payments.Observation{buy}}) // late and old
	s.wantStatus(ios, "t1", payments.StatusPaused)

	canceled := sub("t1", 4, payments.Lifecycle{ProductID: "com.pro", State: payments.StateActive, AccessUntil: s.in(10 * day)})
	s.deliver(ios, message{ID: "d5", Observations: []payments.Observation{canceled}})
	s.wantStatus(ios, "t1", payments.StatusCanceled)
	s.wantEntitled("ada", "pro", true)
	s.Clock.Advance(10 * day)
	s.wantStatus(ios, "t1", payments.StatusExpired)
	s.wantEntitled("ada", "pro", false)
}

func TestConsumableCreditsOnce(t *testing.T) {
	s := open(t)
	coin := sub("k1", 1, payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive, PurchasedAt: s.in(0), Quantity: 2})
	coin.Charges = []payments.Charge{{ID: "k1", At: s.in(0), Quantity: 2, AmountMinor: 200, Settled: true}}
	s.set(coin)
	var submitted payments.Submitted
	s.User("ada").Post("/payments/purchases", map[string]any{"rail": "ios_store", "signedTransaction": "k1"}).Want(201, "").JSON(&submitted)
	if submitted.Purchase.Status != payments.StatusActive || s.coins("ada") != 200 {
		t.Fatalf("%+v, %d coins", submitted.Purchase, s.coins("ada"))
	}
	s.deliver(ios, message{ID: "d1", Observations: []payments.Observation{coin}})
	s.User("ada").Post("/payments/purchases", map[string]any{"rail": "ios_store", "signedTransaction": "k1"}).Want(200, "")
	if got := s.coins("ada"); got != 200 {
		t.Errorf("%d coins after it was reported three times, want 200", got)
	}
	s.User("bob").Post("/payments/purchases", map[string]any{"rail": "ios_store", "signedTransaction": "k1"}).Want(409, "payments/purchase_claimed")
	s.User("bob").Post("/payments/restore", map[string]any{"rail": "ios_store", "signedTransactions": []string{"k1"}}).Want(200, "")
	if s.coins("bob") != 0 {
		t.Error("a consumable was copied by a restore")
	}
	refund := payments.Observation{TransactionID: "k1", Version: 5, Refunds: []payments.Refund{{ID: "r", ChargeID: "k1", Full: true}}}
	s.deliver(ios, message{ID: "d2", Observations: []payments.Observation{refund}})
	s.wantStatus(ios, "k1", payments.StatusRefunded)
	if got := s.coins("ada"); got != 0 {
		t.Errorf("%d coins after a refund, want 0", got)
	}
}

// TestChargeBeyondTheLedgerIsLogged checks a charge that the ledger cannot hold.
func TestChargeBeyondTheLedgerIsLogged(t *testing.T) {
	var log bytes.Buffer
	s := open(t, kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	coin := sub("k1", 1, payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive, PurchasedAt: s.in(0), Quantity: ledger.MaxAmount})
	coin.Charges = []payments.Charge{{ID: "k1", At: s.in(0), Quantity: ledger.MaxAmount, AmountMinor: 200, Settled: true}}
	s.set(coin)
	s.User("ada").Post("/payments/purchases", map[string]any{"rail": "ios_store", "signedTransaction": "k1"}).Want(201, "")
	if s.coins("ada") != 0 || !strings.Contains(log.String(), "is not credited") || !strings.Contains(log.String(), "product=coins") {
		t.Errorf("%d coins, expected 0 and a line in the log:\n%s", s.coins("ada"), &log)
	}
}

// TestSeparateChargeIsNoPeriod: what was charged with a subscription for something else credits that,
// and its refund leaves the subscription as it is.
func TestSeparateChargeIsNoPeriod(t *testing.T) {
	s := openWith(t, func(c *payments.Config) {
		for i := range c.Products[:2] {
			c.Products[i].Credit = &payments.Credit{Currency: "coins", Amount: 1000}
		}
	})
	o := s.pro(card, "t1", "ada")
	for version, c := range []struct {
		product  string
		refunded bool
		coins    int64
	}{{"", false, 1000}, {"unknown", false, 1000}, {"max", false, 1000}, {"prod_pro", false, 1000}, {"prod_coins", false, 1100}, {"prod_coins", true, 1000}} {
		o.Version = int64(version + 2)
		if id := "extra" + c.product; version > 0 {
			o.Charges = append(o.Charges[:1], payments.Charge{ID: id, At: s.in(hour), ProductID: c.product, AmountMinor: 500, Settled: true, Separate: true})
			o.Refunds = []payments.Refund{{ID: "r", ChargeID: id, Full: true, Reversed: !c.refunded}}
		}
		s.deliver(card, message{ID: fmt.Sprint("d", version), Observations: []payments.Observation{o}})
		if s.wantStatus(card, "t1", payments.StatusActive); s.coins("ada") != c.coins {
			t.Errorf("%q, refunded %v: %d coins, want %d", c.product, c.refunded, s.coins("ada"), c.coins)
		}
	}
}

// TestProrationCreditsNothing: the difference that a change of plan costs is
// money that arrived, and no period.
func TestProrationCreditsNothing(t *testing.T) {
	s := openWith(t, func(c *payments.Config) { c.Products[0].Credit = &payments.Credit{Currency: "coins", Amount: 100} })
	o := s.pro(card, "t1", "ada")
	o.Charges = append(o.Charges, payments.Charge{ID: "change", At: s.in(hour), AmountMinor: 1, Settled: true, Proration: true})
	s.deliver(card, message{ID: "d1", Observations: []payments.Observation{o}})
	if p := s.wantStatus(card, "t1", payments.StatusActive); !p.MoneyArrived || s.coins("ada") != 100 {
		t.Errorf("money arrived: %v, %d coins, want 100", p.MoneyArrived, s.coins("ada"))
	}
}
