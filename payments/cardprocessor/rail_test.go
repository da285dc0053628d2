package cardprocessor_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/cardprocessor/cardprocessortest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
)

func TestRail(t *testing.T) {
	railtest.Run(t, fixture)
}

func FuzzExpand(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzExpand(f, fixture(clock), clock)
}

func FuzzVerify(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzVerify(f, fixture(clock), clock, nil)
}

func FuzzRedeem(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzRedeem(f, fixture(clock), clock)
}

func fixture(clock *railtest.Clock) railtest.Fixture {
	store := cardprocessortest.New(clock.Now, payments.EnvironmentProduction)
	other := cardprocessortest.New(clock.Now, payments.EnvironmentSandbox)
	var bought string
	buy := func(from *cardprocessortest.Store) script.Delivery {
		id, out := from.Subscribe(script.Purchase{ProductID: "prod_1", PriceID: "price_1"})
		bought = id
		return out[len(out)-1]
	}
	return railtest.Fixture{
		Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction,
		Deliver: func() script.Delivery { return buy(store) },
		Unknown: func() script.Delivery {
			return store.Event("product.created", script.Object{"id": "prod_1", "object": "product"})
		},
		Other:  func() script.Delivery { return buy(other) },
		Bought: func() payments.Ref { return payments.Ref{TransactionID: bought, Kind: payments.KindSubscription} },
		Sign: func(secret string, body []byte, at time.Time) http.Header {
			return sign.CardProcessor(secret, body, at)
		},
		SecretField: "webhookSecret", Tolerance: cardprocessor.Tolerance, Faults: &store.Faults,
	}
}
