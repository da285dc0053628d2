package payments_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/processtest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

const crashVariable = "PAYMENTS_TEST_CRASH"

// TestMain lets the test binary be the node that is killed.
func TestMain(m *testing.M) {
	if address := os.Getenv(crashVariable); address != "" {
		crash(address)
	}
	os.Exit(m.Run())
}

// The life that is delivered: purchases with charges, of which the first is
// refunded.
const (
	crashPurchases = 24
	crashCharges   = 4
	crashEvents    = crashPurchases * (crashCharges + 1)
	crashSenders   = 64
)

// crashMessage is one event of that life, the same in every process.
func crashMessage(token string, i int) message {
	purchase, charge := fmt.Sprint("k", i/(crashCharges+1)), i%(crashCharges+1)
	m := message{ID: fmt.Sprintf("%s-%d", purchase, charge)}
	if charge == crashCharges {
		m.Observations = []payments.Observation{{TransactionID: purchase, Version: 99, Refunds: []payments.Refund{{ID: "r", ChargeID: purchase + "-0", Full: true}}}}
		return m
	}
	o := sub(purchase, int64(charge+1), payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive})
	o.AccountToken = token
	o.Charges = []payments.Charge{{ID: fmt.Sprintf("%s-%d", purchase, charge), At: payments.Instant(charge + 1), Settled: true, AmountMinor: 100}}
	m.Observations = []payments.Observation{o}
	return m
}

// crashNode is a kit as every process composes it.
func crashNode(db *database.DB) (*kit.Kit, error) {
	return kit.New(append(peers(), kit.WithPayments(config(newFake())), kit.WithDatabase(db), kit.WithEnvironment("test"),
		kit.WithBaseURL("http://localhost"), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
}

// crashDeliver posts one event.
func crashDeliver(k http.Handler, m message) (payments.Outcome, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	r := httptest.NewRequest(http.MethodPost, "/payments/webhooks/ios_store", bytes.NewReader(body))
	r.Header.Set("X-Proof", secret)
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	var received payments.Received
	if err := json.Unmarshal(w.Body.Bytes(), &received); err != nil || w.Code != 200 {
		return "", fmt.Errorf("%d %s", w.Code, w.Body)
	}
	return received.Outcome, nil
}

// crash delivers from 64 senders, each in an order of its own, until it is killed,
// and prints each event that was acknowledged as new.
func crash(address string) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	db, err := processtest.Open(address)
	fail(err)
	k, err := crashNode(db)
	fail(err)
	for range crashSenders {
		go func() {
			for _, i := range rand.Perm(crashEvents) {
				m := crashMessage(os.Getenv("PAYMENTS_CRASH_TOKEN"), i)
				outcome, err := crashDeliver(k, m)
				fail(err)
				if outcome == payments.OutcomeApplied {
					fmt.Fprintln(os.Stdout, m.ID)
				}
			}
		}()
	}
	select {}
}

// TestKilledNode: a node is killed while 64 senders deliver one history, again and
// again, on PostgreSQL while another node takes the same. What was acknowledged is
// there, and in the end each charge has been credited once.
func TestKilledNode(t *testing.T) {
	t.Setenv("KIT_MASTER_KEYS", "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	processtest.Each(t, killed)
}

// killed runs the story, on PostgreSQL with a node that lives on.
func killed(t *testing.T, address string) {
	db, err := processtest.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	token := crashPrepare(t, db)
	shared := db.Dialect() == database.PostgreSQL
	if !shared {
		_ = db.Close()
	}
	t.Setenv("PAYMENTS_CRASH_TOKEN", token)
	var acknowledged []string
	for range 2 {
		var others sync.WaitGroup
		if shared {
			k, err := crashNode(db)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 4 {
				others.Go(func() { // half of what the node that is killed takes
					for _, i := range rand.New(rand.NewPCG(uint64(n), 1)).Perm(crashEvents / 2) {
						if _, err := crashDeliver(k, crashMessage(token, i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		acknowledged = append(acknowledged, processtest.Kill(t, processtest.Again(crashVariable, address), 25)...)
		others.Wait()
	}
	after, err := processtest.Open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = after.Close() }()
	k, err := crashNode(after)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(context.Background()) }()
	crashCheck(t, k, token, acknowledged)
}

// crashPrepare lets a first node make the tables, the credentials and the token
// of the buyer.
func crashPrepare(t *testing.T, db *database.DB) (token string) {
	k, err := crashNode(db)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(context.Background()) }()
	if _, err := k.Secrets().Rotate(t.Context(), payments.SecretName, secrets.Blocks{"ios_store": {
		"apiKey": secrets.NewValue("test_key"), "webhookSecret": secrets.NewValue(secret)}}); err != nil {
		t.Fatal(err)
	}
	token, err = k.Payments().AccountToken(t.Context(), subject("ada"))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// crashCheck looks at what the killed nodes left, and delivers everything again as
// the rail would.
func crashCheck(t *testing.T, k *kit.Kit, token string, acknowledged []string) {
	known := make(map[string]bool)
	for _, id := range acknowledged {
		known[id] = true
	}
	for i := range crashEvents {
		m := crashMessage(token, i)
		outcome, err := crashDeliver(k, m)
		if err != nil {
			t.Fatal(err)
		}
		if known[m.ID] && outcome != payments.OutcomeDuplicate {
			t.Errorf("%s was acknowledged and is %s the next time, want duplicate", m.ID, outcome)
		}
	}
	balances, err := k.Ledger().Balances(t.Context(), ledger.AccountKey{UserID: "ada", Currency: "coins"})
	if want := int64(crashPurchases * (crashCharges - 1) * 100); err != nil || balances[0].Balance != want {
		t.Errorf("%v coins, %v, want %d: one credit a charge, one of them taken back", balances, err, want)
	}
	page, err := k.Payments().ListPurchases(t.Context(), payments.PurchaseFilter{}, capability.NewPage(100, ""))
	if err != nil || len(page.Items) != crashPurchases {
		t.Errorf("%d purchases, %v, want %d", len(page.Items), err, crashPurchases)
	}
	t.Logf("%d of %d acknowledged before the last kill", len(known), crashEvents)
}
