package androidstore_test

import (
	"testing"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore/androidstoretest"
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

func fixture(clock *railtest.Clock) railtest.Fixture {
	store := androidstoretest.New(clock.Now, payments.EnvironmentProduction)
	var bought string
	return railtest.Fixture{
		Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction,
		Deliver: func() script.Delivery {
			token, out := store.Subscribe(script.Purchase{ProductID: "pro", BasePlanID: "monthly"})
			bought = token
			return out[0]
		},
		Unknown: func() script.Delivery {
			return store.Push([]byte(`{"version":"1.0","packageName":"com.example.app","eventTimeMillis":"1","testNotification":{"version":"1.0"}}`),
				sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now()))
		},
		Other: func() script.Delivery {
			token, out := store.Subscribe(script.Purchase{ProductID: "pro", BasePlanID: "monthly"})
			store.OfTester(token)
			return out[0]
		},
		Bought: func() payments.Ref {
			return payments.Ref{TransactionID: "x", RawRef: bought, ProductID: "pro", Kind: payments.KindSubscription}
		},
		Loose: true, Faults: &store.Faults,
	}
}
