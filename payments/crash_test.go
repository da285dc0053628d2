package payments_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/secrets"
)

// TestMain lets the test binary be the node that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv("PAYMENTS_CRASH_FILE"); path != "" {
		crash(func() (*database.DB, error) { return database.OpenFile(path) })
	}
	if schema := os.Getenv("PAYMENTS_CRASH_SCHEMA"); schema != "" {
		crash(func() (*database.DB, error) {
			return postgres.Open(context.Background(), os.Getenv("KIT_TEST_POSTGRES"), postgres.WithSchema(schema), postgres.WithConnections(8))
		})
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
func crash(open func() (*database.DB, error)) {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	db, err := open()
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
	t.Run("file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "kit.db")
		killed(t, "PAYMENTS_CRASH_FILE="+path, nil, func() *database.DB {
			db, err := database.OpenFile(path)
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
	})
	t.Run("postgres", func(t *testing.T) {
		other := databasetest.Postgres(t)
		var schema string
		if err := other.QueryRow(t.Context(), `SELECT current_schema()`).Scan(&schema); err != nil {
			t.Fatal(err)
		}
		killed(t, "PAYMENTS_CRASH_SCHEMA="+schema, other, func() *database.DB {
			db, err := postgres.Open(t.Context(), os.Getenv("KIT_TEST_POSTGRES"), postgres.WithSchema(schema), postgres.WithConnections(8))
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
	})
}

// killed runs the story; other is the database of a node that lives on.
func killed(t *testing.T, env string, other *database.DB, open func() *database.DB) {
	token := crashPrepare(t, open)
	t.Setenv("PAYMENTS_CRASH_TOKEN", token)
	var acknowledged []string
	for range 2 {
		var beside sync.WaitGroup
		if other != nil {
			k, err := crashNode(other)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 4 {
				beside.Go(func() { // half of what the node that is killed takes
					for _, i := range rand.New(rand.NewPCG(uint64(n), 1)).Perm(crashEvents / 2) {
						if _, err := crashDeliver(k, crashMessage(token, i)); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		acknowledged = append(acknowledged, killAfter(t, env, 25)...)
		beside.Wait()
	}
	db := open()
	defer func() { _ = db.Close() }()
	k, err := crashNode(db)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close(context.Background()) }()
	crashCheck(t, k, token, acknowledged)
}

// crashPrepare lets a first node make the tables, the credentials and the token
// of who buys.
func crashPrepare(t *testing.T, open func() *database.DB) (token string) {
	db := open()
	defer func() { _ = db.Close() }()
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

// killAfter kills a node with SIGKILL once it has acknowledged n events and
// returns all that it did.
func killAfter(t *testing.T, env string, n int) (acknowledged []string) {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), env)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = child.Process.Kill() })
	late := time.AfterFunc(time.Minute, kill)
	defer late.Stop()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acknowledged = append(acknowledged, lines.Text())
		if len(acknowledged) == n {
			kill()
		}
	}
	_ = child.Wait() // killed
	if len(acknowledged) < n {
		t.Fatalf("the node ended after %d events", len(acknowledged))
	}
	return acknowledged
}
