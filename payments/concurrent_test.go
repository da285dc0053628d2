package payments_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/pubsub"
)

// nodes are several kits on one database, as one deployment.
func nodes(t *testing.T, dbs []*database.DB) []*shop {
	t.Helper()
	clock, f := kittest.NewClock(), newFake()
	bus := pubsub.NewMemory()
	t.Cleanup(func() { _ = bus.Close() })
	t.Setenv("KIT_MASTER_KEYS", "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	var list []*shop
	for _, db := range dbs {
		k := kittest.New(t, append(peers(), kit.WithPayments(config(f)), kit.WithDatabase(db), kit.WithClock(clock.Now), kit.WithPubSub(bus))...)
		k.Clock = clock
		list = append(list, &shop{Kit: k, fake: f, t: t})
	}
	list[0].configure(secret)
	return list
}

// TestSameHistoryAtOnce: 64 senders deliver one subscription's history, each in
// an order of its own and with repetitions, while its buyer submits it. One row,
// one credit a charge, and what happened last stands.
func TestSameHistoryAtOnce(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { sameHistory(t, nodes(t, []*database.DB{databasetest.File(t)})) })
	t.Run("postgres", func(t *testing.T) { sameHistory(t, nodes(t, databasetest.Shared(t, 2))) })
}

func sameHistory(t *testing.T, kits []*shop) {
	const senders, charges = 64, 8
	s := kits[0]
	token := s.token("ada")
	var history []message
	for i := range charges {
		o := sub("k1", int64(i+1), payments.Lifecycle{ProductID: "com.coins", State: payments.StateActive, WillRenew: true, AccessUntil: s.in(day * 30)})
		o.AccountToken = token
		o.Charges = []payments.Charge{{ID: fmt.Sprint("charge", i), At: s.in(0), Settled: true, AmountMinor: 100}}
		history = append(history, message{ID: fmt.Sprint("d", i), Observations: []payments.Observation{o}})
	}
	refund := payments.Observation{TransactionID: "k1", Version: 99, Refunds: []payments.Refund{{ID: "r", ChargeID: "charge3", Full: true}}}
	history = append(history, message{ID: "refund", Observations: []payments.Observation{refund}})
	s.set(history[0].Observations[0])
	var wait sync.WaitGroup
	failures := make(chan string, senders*len(history))
	for n := range senders {
		client := kits[n%len(kits)].Anonymous().With("X-Proof", secret)
		random := rand.New(rand.NewPCG(uint64(n), 7))
		wait.Go(func() {
			for _, i := range random.Perm(len(history)) {
				if r := client.Post("/payments/webhooks/ios_store", history[i]); r.Status != 200 {
					failures <- fmt.Sprintf("%d %s", r.Status, r.Body)
				}
			}
		})
		if n%8 == 0 {
			user := kits[n%len(kits)].User("ada")
			wait.Go(func() {
				if r := user.Post("/payments/purchases", object{"rail": "ios_store", "signedTransaction": "k1"}); r.Status != 200 && r.Status != 201 {
					failures <- fmt.Sprintf("submitted: %d %s", r.Status, r.Body)
				}
			})
		}
	}
	wait.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	if got := s.coins("ada"); got != (charges-1)*100 {
		t.Errorf("%d coins, want %d: one credit a charge, one refunded", got, (charges-1)*100)
	}
	var list struct{ Items []payments.Purchase }
	s.Machine("payments:purchases:read").Get("/payments/admin/purchases").Want(200, "").JSON(&list)
	if len(list.Items) != 1 {
		t.Errorf("%d rows, want 1", len(list.Items))
	}
}

// TestRepeatedCheckoutIsTheFirst: one session of the rail is one checkout, whichever node is asked
// again for it, until the rail makes another.
func TestRepeatedCheckoutIsTheFirst(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { repeatedCheckout(t, nodes(t, []*database.DB{db})) })
	t.Run("two nodes", func(t *testing.T) { repeatedCheckout(t, nodes(t, databasetest.Shared(t, 2))) })
}

func repeatedCheckout(t *testing.T, kits []*shop) {
	s := kits[0]
	ids := func() map[string]bool {
		t.Helper()
		var wait sync.WaitGroup
		made := make([]payments.Bought, 16)
		for i := range made {
			ada := kits[i%len(kits)].User("ada").With("Idempotency-Key", "k")
			wait.Go(func() {
				if r := ada.Post("/payments/checkout", object{"rail": "card_processor", "productKey": "pro"}); r.Status == 201 {
					r.JSON(&made[i])
				}
			})
		}
		wait.Wait()
		found := make(map[string]bool)
		for _, bought := range made {
			found[bought.CheckoutID] = true
		}
		return found
	}
	rows := func(where string) (n int) {
		t.Helper()
		if err := s.Database().QueryRow(t.Context(), `SELECT COUNT(*) FROM `+where).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := ids()
	s.Clock.Advance(hour)
	if again := ids(); len(first) != 1 || first[""] || !maps.Equal(first, again) {
		t.Errorf("checkouts %v and later %v, expected the same one", first, again)
	}
	if n, told := rows("payments_checkout"), rows("audit_event WHERE action = 'payments/checkout_created'"); n != 1 || told != 1 {
		t.Errorf("%d rows and %d events, expected one of each", n, told)
	}
	s.session = "-2" // the first has expired
	if other := ids(); len(other) != 1 || maps.Equal(first, other) || rows("payments_checkout") != 2 {
		t.Errorf("checkouts %v after %v, and %d rows", other, first, rows("payments_checkout"))
	}
	if err := s.EraseUser(t.Context(), "ada"); err != nil || s.RunJobs() == 0 || rows("payments_checkout") != 0 {
		t.Errorf("%d rows are left after the erasure: %v", rows("payments_checkout"), err)
	}
}

// TestOtherNodesForget: what one node changes, the others do not go on granting.
func TestOtherNodesForget(t *testing.T) {
	kits := nodes(t, databasetest.Shared(t, 2))
	one, other := kits[0], kits[1]
	other.wantEntitled("ada", "vip", false)
	grant, err := one.Payments().Grant(t.Context(), payments.GrantRequest{Subject: subject("ada"), Entitlement: "vip", Reason: "x"})
	if err != nil {
		t.Fatal(err)
	}
	one.wantEntitled("ada", "vip", true)
	one.Clock.Advance(2e9) // without any hint, a second is the bound
	other.wantEntitled("ada", "vip", true)
	if _, err := one.Payments().Revoke(t.Context(), payments.RevokeRequest{Subject: subject("ada"), GrantID: grant.ID, Reason: "x"}); err != nil {
		t.Fatal(err)
	}
	one.wantEntitled("ada", "vip", false)
	one.Clock.Advance(2e9)
	other.wantEntitled("ada", "vip", false)
}
