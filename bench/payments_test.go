package bench

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/processor"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
	"github.com/kitbackend/kit/secrets"
)

// market is a kit with the five rails at scripted stores, which sell a map as a one-time purchase,
// a subscription, and coins.
type market struct {
	*kittest.Kit
	stores  *paytest.Stores
	rails   map[payments.RailID]payments.Rail
	product map[string]payments.Product
}

func openMarket(b *testing.B, db *database.DB, adjust func(*payments.Config)) *market {
	b.Helper()
	everywhere := func(key string) map[payments.RailID]payments.StoreIDs {
		ids := make(map[payments.RailID]payments.StoreIDs)
		for _, rail := range paytest.Rails {
			ids[rail] = payments.StoreIDs{ProductID: "prod_" + key, PriceID: "price_" + key}
		}
		return ids
	}
	clock := kittest.NewClock()
	m := &market{stores: paytest.New(clock.Now, payments.EnvironmentSandbox), rails: make(map[payments.RailID]payments.Rail), product: make(map[string]payments.Product)}
	cfg := m.stores.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: []payments.Product{
		{Key: "map", Kind: payments.KindOneTime, Entitlements: []string{"map"}, Store: everywhere("map")},
		{Key: "pro", Kind: payments.KindSubscription, Entitlements: []string{"pro"}, Store: everywhere("pro")},
		{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 100}, Store: everywhere("coins")},
	}})
	adjust(&cfg)
	for _, p := range cfg.Products {
		m.product[p.Key] = p
	}
	for _, r := range cfg.Rails {
		m.rails[r.ID] = r
	}
	m.Kit = kittest.New(b, kit.WithDatabase(db), kit.WithClock(clock.Now), kit.WithLogger(slog.New(slog.DiscardHandler)), kit.WithAudit(audit.Config{}),
		kit.WithSecrets(secrets.Config{}), kit.WithAuth(auth.Config{}), kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithPayments(cfg))
	m.Clock = clock
	if err := m.stores.Connect(b.Context(), m); err != nil {
		b.Fatal(err)
	}
	return m
}

func onBoth(b *testing.B, run func(b *testing.B, db *database.DB)) {
	b.Run("sqlite", func(b *testing.B) { run(b, databasetest.File(b)) })
	if os.Getenv("KIT_TEST_POSTGRES") != "" {
		b.Run("postgres", func(b *testing.B) { run(b, databasetest.Postgres(b)) })
	}
}

func ada() payments.Subject { return payments.Subject{Type: payments.SubjectUser, ID: "ada"} }

// BenchmarkPaymentsWebhook accepts purchases of coins durably, from 32 senders at once:
// verification, merge, projection, credit, audit trail. One rail has an HMAC, the other has chains
// of certificates, with signatures also inside the body. share is the part of the processor time of
// the process that reading and verifying take.
func BenchmarkPaymentsWebhook(b *testing.B) {
	for _, rail := range []payments.RailID{payments.RailMerchantB, payments.RailIOSStore} {
		b.Run(string(rail), func(b *testing.B) {
			onBoth(b, func(b *testing.B, db *database.DB) {
				m := openMarket(b, db, func(*payments.Config) {})
				var requests []*http.Request
				m.stores.DeliverTo(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests = append(requests, r) }))
				for i := range b.N {
					token, err := m.Payments().AccountToken(b.Context(), payments.Subject{Type: payments.SubjectUser, ID: fmt.Sprint("user", i%100)})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := m.stores.Buy(rail, paytest.Order{Product: m.product["coins"], AccountToken: token}); err != nil {
						b.Fatal(err)
					}
				}
				requests = requests[:b.N]
				proof := m.proof(b, rail)
				var next atomic.Int64
				begun := processor.Spent()
				b.ResetTimer()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						w := httptest.NewRecorder()
						if m.ServeHTTP(w, requests[next.Add(1)-1]); w.Code != 200 || !strings.Contains(w.Body.String(), `"applied"`) {
							b.Error(w.Code, w.Body)
							return
						}
					}
				})
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "webhooks/s")
				used := float64(processor.Spent()-begun) / float64(b.N)
				b.ReportMetric(used, "cpu-ns/op")
				b.ReportMetric(100*float64(proof)/used, "%share")
			})
		})
	}
}

// proof returns the processor time of reading and verifying one delivery.
func (m *market) proof(b *testing.B, rail payments.RailID) time.Duration {
	const times = 300
	var caught []*http.Request
	bodies := make([][]byte, 0, times)
	other := paytest.New(m.Clock.Now, payments.EnvironmentSandbox)
	other.Config(payments.Config{Products: []payments.Product{m.product["coins"]}})
	other.DeliverTo(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { caught = append(caught, r) }))
	for len(caught) < times {
		if _, err := other.Buy(rail, paytest.Order{Product: m.product["coins"]}); err != nil {
			b.Fatal(err)
		}
	}
	for _, r := range caught {
		body := make([]byte, r.ContentLength)
		if _, err := r.Body.Read(body); err != nil && len(body) == 0 {
			b.Fatal(err)
		}
		bodies = append(bodies, body)
	}
	of := map[payments.RailID]payments.Rail{payments.RailIOSStore: other.IOS.Rail(), payments.RailMerchantB: other.B.Rail()}[rail]
	access := payments.Access{Credentials: other.Credentials()[string(rail)], Environment: payments.EnvironmentSandbox, Now: m.Clock.Now,
		Version: func(context.Context, string) (int64, error) { return 1, nil },
		Kind:    func(string) payments.ProductKind { return payments.KindConsumable }}
	begun := processor.Spent()
	for i, r := range caught {
		d, err := of.Verify(b.Context(), access, r.Header, bodies[i])
		if err == nil {
			_, err = of.Expand(b.Context(), access, d)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	return (processor.Spent() - begun) / time.Duration(len(caught))
}

// own gives ada purchases of the map.
func (m *market) own(b *testing.B, db *database.DB, purchases int) {
	b.Helper()
	if _, err := db.Exec(b.Context(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $1)
		INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id, facts,
			status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at)
		SELECT 'p' || CAST(i AS TEXT), 'ios_store', CAST(i AS TEXT), 'sandbox', 'map', 'prod_map', 'one_time', 'user', 'ada', '{}',
			'active', TRUE, '', 'normal', FALSE, 'purchased', 0, 1, 'none', 0, 0, 0 FROM n`, purchases); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPaymentsEntitled measures the check of a request, from the cache and uncached from a
// SQLite file. BenchmarkPaymentsEntitlements lists the keys of a subject.
func BenchmarkPaymentsEntitled(b *testing.B) {
	db := databasetest.File(b)
	m := openMarket(b, db, func(*payments.Config) {})
	m.own(b, db, 3)
	check := func(b *testing.B) {
		if ok, err := m.Payments().Entitled(b.Context(), ada(), "map"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
	b.Run("cached", func(b *testing.B) {
		begun := processor.Spent()
		for b.Loop() {
			check(b)
		}
		b.ReportMetric(float64(processor.Spent()-begun)/float64(b.N), "cpu-ns/op")
	})
	b.Run("uncached", func(b *testing.B) {
		begun := processor.Spent()
		for b.Loop() {
			m.Clock.Advance(2 * time.Second) // past the cache
			check(b)
		}
		b.ReportMetric(float64(processor.Spent()-begun)/float64(b.N), "cpu-ns/op")
	})
}

// BenchmarkPaymentsEntitlements resolves a subject with 1,000 purchases.
func BenchmarkPaymentsEntitlements(b *testing.B) {
	onBoth(b, func(b *testing.B, db *database.DB) {
		m := openMarket(b, db, func(*payments.Config) {})
		m.own(b, db, 1000)
		begun := processor.Spent()
		defer func() { b.ReportMetric(float64(processor.Spent()-begun)/float64(b.N), "cpu-ns/op") }()
		for b.Loop() {
			if e, err := m.Payments().Entitlements(b.Context(), ada()); err != nil || len(e.Entitlements[0].Sources) != 1000 {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkPaymentsReconcile queries a rail for each of b.N subscriptions in one run: -benchtime
// 100000x is a nightly run of a shop with 100,000. peak-KB is the maximum memory of the run, in
// addition to what was in use before.
func BenchmarkPaymentsReconcile(b *testing.B) {
	onBoth(b, func(b *testing.B, db *database.DB) {
		var asked, peak, base int64
		m := openMarket(b, db, func(cfg *payments.Config) {
			cfg.Rails[0].History = nil
			cfg.Rails[0].Fetch = func(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
				if asked++; asked%max(int64(b.N)/5, 1) == 0 {
					b.StopTimer()
					peak = max(peak, live()-base)
					b.StartTimer()
				}
				version, err := a.Version(ctx, ref.TransactionID)
				return []payments.Observation{{TransactionID: ref.TransactionID, Version: version, Lifecycle: &payments.Lifecycle{
					ProductID: "prod_pro", State: payments.StateActive, WillRenew: true, AccessUntil: 1 << 50}}}, err
			}
		})
		for from := 0; from < b.N; from += 10_000 { // a statement has a limit of ten seconds
			if _, err := db.Exec(b.Context(), `WITH RECURSIVE n (i) AS (SELECT CAST($1 AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < $2)
				INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type, subject_id, facts,
					status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at)
				SELECT 'p' || CAST(i AS TEXT), 'ios_store', CAST(i AS TEXT), 'sandbox', 'pro', 'prod_pro', 'subscription', 'user', 'u' || CAST(i AS TEXT), '{}',
					'active', TRUE, '', 'normal', TRUE, 'purchased', 0, 1, 'none', 0, 0, 0 FROM n`, from, min(from+10_000, b.N)); err != nil {
				b.Fatal(err)
			}
		}
		base = live()
		begun := processor.Spent()
		b.ResetTimer()
		run, err := m.Payments().Reconcile(b.Context(), payments.ReconcileRequest{Rail: payments.RailIOSStore})
		if err != nil || run.Checked != int64(b.N) {
			b.Fatalf("%+v, %v", run, err)
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "purchases/s")
		b.ReportMetric(float64(peak>>10), "peak-KB")
		b.ReportMetric(float64(processor.Spent()-begun)/float64(b.N), "cpu-ns/op")
	})
}

// live returns the size of the live heap.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
