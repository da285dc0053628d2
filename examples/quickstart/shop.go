package main

import (
	"net/http"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
)

// stores returns the five rails, scripted and in this process: no money moves. An application
// composes the real rails instead, such as iosstore.New(iosstore.Options{}).
func stores() *paytest.Stores { return paytest.New(time.Now, payments.EnvironmentSandbox) }

// products returns products that every rail sells.
func products() []payments.Product {
	everywhere := func(key string) map[payments.RailID]payments.StoreIDs {
		ids := make(map[payments.RailID]payments.StoreIDs)
		for _, rail := range paytest.Rails {
			ids[rail] = payments.StoreIDs{ProductID: "prod_" + key, PriceID: "price_" + key}
		}
		return ids
	}
	return []payments.Product{
		{Key: "pro", Kind: payments.KindSubscription, Entitlements: []string{"pro"}, Store: everywhere("pro")},
		{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 100}, Store: everywhere("coins")},
	}
}

// buy buys at a scripted store for the signed-in user; the webhooks of the store then reach the
// kit.
func buy(k *kit.Kit, s *paytest.Stores) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := k.Payments().AccountToken(r.Context(), payments.Subject{Type: payments.SubjectUser, ID: r.FormValue("user")})
		if err != nil {
			http.Error(w, "Say who buys: user=ada.", http.StatusBadRequest)
			return
		}
		product := products()[0]
		if r.FormValue("product") == "coins" {
			product = products()[1]
		}
		if _, err := s.Buy(payments.RailIOSStore, paytest.Order{Product: product, AccountToken: token}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
