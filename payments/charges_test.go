package payments_test

import (
	"fmt"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
)

// TestRefundWithoutTheCurrency: a refund ends access although the ledger, or the currency of the
// credit, is no longer composed. The credit is owed, and taken back once they are there again; so
// is given back what a reversed refund took.
func TestRefundWithoutTheCurrency(t *testing.T) {
	coins := kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}})
	gems := kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "gems"}}})
	for name, without := range map[string][]kit.Option{"ledger": nil, "currency": {gems}} {
		t.Run(name, func(t *testing.T) {
			databasetest.Each(t, func(t *testing.T, db *database.DB) { refundWithout(t, db, coins, without) })
		})
	}
}

func refundWithout(t *testing.T, db *database.DB, coins kit.Option, without []kit.Option) {
	t.Setenv("KIT_MASTER_KEYS", "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	f, clock := newFake(), kittest.NewClock()
	compose := func(credit *payments.Credit, money ...kit.Option) *shop {
		cfg := config(f)
		for i := range cfg.Products {
			cfg.Products[i].Credit = nil
			if cfg.Products[i].Key == "map" {
				cfg.Products[i].Credit = credit
			}
		}
		options := append(peersWithoutLedger(), kit.WithPayments(cfg), kit.WithDatabase(db), kit.WithClock(clock.Now))
		k := kittest.New(t, append(options, money...)...)
		k.Clock = clock
		return &shop{Kit: k, fake: f, t: t}
	}
	credit := &payments.Credit{Currency: "coins", Amount: 50}
	with, less := compose(credit, coins), compose(nil, without...)
	with.configure(secret)
	bought := sub("m1", 1, payments.Lifecycle{ProductID: "com.map", State: payments.StateActive})
	bought.AccountToken, bought.Charges = with.token("ada"), []payments.Charge{{ID: "m1", AmountMinor: 1000, Settled: true}}
	with.deliver(ios, message{ID: "d1", Observations: []payments.Observation{bought}})
	for i, c := range []struct {
		reversed bool
		coins    int64
	}{{false, 0}, {true, 50}} {
		version := int64(i + 2)
		before := with.coins("ada")
		refund := payments.Refund{ID: "r", ChargeID: "m1", Full: true, Reversed: c.reversed}
		less.deliver(ios, message{ID: fmt.Sprint("refund", i), Observations: []payments.Observation{
			{TransactionID: "m1", Version: version, Refunds: []payments.Refund{refund}}}})
		less.wantEntitled("ada", "map", c.reversed)
		if got, waits := with.coins("ada"), less.health("owedClawbacks"); got != before || waits != int64(1) {
			t.Errorf("reversed %v: %d coins, %v charges wait; want %d, and 1", c.reversed, got, waits, before)
		}
		clock.Advance(7 * hour)
		if _, err := with.Payments().Reconcile(t.Context(), payments.ReconcileRequest{}); err != nil {
			t.Fatal(err)
		}
		if got, waits := with.coins("ada"), with.health("owedClawbacks"); got != c.coins || waits != int64(0) {
			t.Errorf("reversed %v: %d coins with the currency, %v charges wait; want %d, and none", c.reversed, got, waits, c.coins)
		}
	}
}
