package payments_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
)

func benchDatabases(b *testing.B, fn func(b *testing.B, db *database.DB)) {
	b.Run("sqlite", func(b *testing.B) { fn(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) { fn(b, databasetest.Postgres(b)) })
}

// catch keeps what the scripted stores would deliver.
type catch struct{ requests []*http.Request }

func (c *catch) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.requests = append(c.requests, r) }

// BenchmarkWebhook accepts purchases of a consumable durably: proof, merge,
// projection, credit, trail. An HMAC rail and the one with chains of
// certificates.
func BenchmarkWebhook(b *testing.B) {
	for _, rail := range []payments.RailID{payments.RailMerchantB, payments.RailIOSStore} {
		b.Run(string(rail), func(b *testing.B) {
			benchDatabases(b, func(b *testing.B, db *database.DB) {
				clock := kittest.NewClock()
				stores := paytest.New(clock.Now, payments.EnvironmentSandbox)
				products := goods()
				k := kittest.New(b, append(peers(), kit.WithDatabase(db), kit.WithClock(clock.Now), kit.WithLogger(slog.New(slog.DiscardHandler)),
					kit.WithPayments(stores.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: products})))...)
				if err := stores.Connect(b.Context(), k); err != nil {
					b.Fatal(err)
				}
				caught := &catch{}
				stores.DeliverTo(caught)
				for i := range b.N {
					token, err := k.Payments().AccountToken(b.Context(), subject(fmt.Sprint("user", i%100)))
					if err != nil {
						b.Fatal(err)
					}
					if _, err := stores.Buy(rail, paytest.Order{Product: products[3], AccountToken: token}); err != nil {
						b.Fatal(err)
					}
				}
				var next atomic.Int64
				b.ResetTimer()
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						i := int(next.Add(1)) - 1
						if i >= len(caught.requests) {
							return
						}
						w := httptest.NewRecorder()
						k.ServeHTTP(w, caught.requests[i])
						if w.Code != 200 {
							b.Error(w.Code, w.Body)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "webhooks/s")
			})
		})
	}
}

// entitledShop has a subject with purchases.
func entitledShop(b *testing.B, db *database.DB, purchases int) *kittest.Kit {
	f := newFake()
	k := kittest.New(b, append(peers(), kit.WithPayments(config(f)), kit.WithDatabase(db))...)
	err := db.InTx(b.Context(), func(ctx context.Context) error {
		for i := range purchases {
			if _, err := db.Exec(ctx, `INSERT INTO payments_purchase (id, rail, transaction_id, environment, product_key, store_product_id, kind, subject_type,
				subject_id, facts, status, grants, status_then, period_type, will_renew, ownership, starts_at, quantity, acknowledged, created_at, updated_at, checked_at)
				VALUES ($1, 'ios_store', $1, 'sandbox', 'map', 'com.map', 'one_time', 'user', 'ada', $2, 'active', $3, '', 'normal', $3, 'purchased', 0, 1, 'none', 0, 0, 0)`,
				fmt.Sprintf("p%06d", i), "{}", true); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return k
}

func BenchmarkEntitledCached(b *testing.B) {
	k := entitledShop(b, databasetest.File(b), 3)
	for b.Loop() {
		if ok, err := k.Payments().Entitled(b.Context(), subject("ada"), "map"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkEntitledUncached(b *testing.B) {
	k := entitledShop(b, databasetest.File(b), 3)
	for b.Loop() {
		k.Clock.Advance(2e9) // past the cache
		if ok, err := k.Payments().Entitled(b.Context(), subject("ada"), "map"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkEntitlementsOfThousand(b *testing.B) {
	k := entitledShop(b, databasetest.File(b), 1000)
	for b.Loop() {
		if e, err := k.Payments().Entitlements(b.Context(), subject("ada")); err != nil || len(e.Entitlements[0].Sources) != 1000 {
			b.Fatal(err)
		}
	}
}
