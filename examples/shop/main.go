// Shop sells a subscription, a map as a one-time purchase, and coins, at five rails that are
// scripted and in this process: buy, make a charge fail, pause, refund or charge back, and see the
// effect on entitlements and coins. The members' page is for users entitled to it.
//
//	go run ./examples/shop
//	go run ./examples/shop -addr localhost:9000
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
	"github.com/kitbackend/kit/secrets"
)

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := open(ctx, "http://"+*addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("open http://%s/", *addr)
	if err := s.kit.Serve(ctx, *addr, s.handler()); err != nil {
		log.Print(err)
	}
}

// open composes the kit and connects the scripted stores to it. An application composes real rails
// instead, such as iosstore.New(iosstore.Options{}).
func open(ctx context.Context, baseURL string, opts ...kit.Option) (*shop, error) {
	stores := paytest.New(time.Now, payments.EnvironmentSandbox)
	k, err := kit.New(append([]kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithAudit(audit.Config{}),
		kit.WithSecrets(secrets.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
		kit.WithPayments(stores.Config(payments.Config{BillingSubject: payments.SubjectUser, Products: products()})),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	if err := stores.Connect(ctx, k); err != nil {
		return nil, errors.Join(err, k.Close(ctx))
	}
	return &shop{kit: k, stores: stores, bought: make(map[string][]*bought)}, nil
}

// products returns one product of each kind, and an upgrade of the membership, sold at every rail.
func products() []payments.Product {
	everywhere := func(key string) map[payments.RailID]payments.StoreIDs {
		ids := make(map[payments.RailID]payments.StoreIDs)
		for _, rail := range paytest.Rails {
			ids[rail] = payments.StoreIDs{ProductID: "prod_" + key, PriceID: "price_" + key}
		}
		return ids
	}
	return []payments.Product{
		{Key: "membership", Kind: payments.KindSubscription, Entitlements: []string{"members"}, Store: everywhere("membership")},
		{Key: "patronage", Kind: payments.KindSubscription, Entitlements: []string{"members", "patrons"}, Store: everywhere("patronage")},
		{Key: "map", Kind: payments.KindOneTime, Entitlements: []string{"map"}, Store: everywhere("map")},
		{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 100}, Store: everywhere("coins")},
	}
}
