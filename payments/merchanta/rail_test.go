package merchanta_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/merchanta"
	"github.com/kitbackend/kit/payments/merchanta/merchantatest"
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
	store := merchantatest.New(clock.Now, payments.EnvironmentProduction)
	var bought string
	return railtest.Fixture{
		Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction,
		Deliver: func() script.Delivery {
			id, out := store.Subscribe(script.Purchase{ProductID: "pro_1", PriceID: "pri_1"})
			bought = id
			return out[0]
		},
		Unknown: func() script.Delivery {
			return store.Event("business.created", script.Object{"id": "biz_1"})
		},
		Bought: func() payments.Ref { return payments.Ref{TransactionID: bought, Kind: payments.KindSubscription} },
		Sign: func(secret string, body []byte, at time.Time) http.Header {
			return sign.MerchantA(secret, body, at)
		},
		SecretField: "webhookSecret", Tolerance: merchanta.Tolerance, Faults: &store.Faults,
	}
}
