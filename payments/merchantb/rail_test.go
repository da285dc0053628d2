package merchantb_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/merchantb"
	"github.com/kitbackend/kit/payments/merchantb/merchantbtest"
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
	store := merchantbtest.New(clock.Now, payments.EnvironmentProduction)
	var bought string
	return railtest.Fixture{
		Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction,
		Deliver: func() script.Delivery {
			id, out := store.Subscribe(script.Purchase{ProductID: "11111111-0000-4000-8000-000000000000"})
			bought = id
			return out[0]
		},
		Unknown: func() script.Delivery {
			return store.Event("benefit_grant.created", script.Object{"id": "b"})
		},
		Bought: func() payments.Ref { return payments.Ref{TransactionID: bought, Kind: payments.KindSubscription} },
		Sign: func(secret string, body []byte, at time.Time) http.Header {
			return sign.MerchantB(secret, "msg_1", body, at)
		},
		SecretField: "webhookSecret", Tolerance: merchantb.Tolerance, Faults: &store.Faults,
	}
}
