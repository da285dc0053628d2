package androidstore_test

import (
	"encoding/base64"
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

// FuzzVerify draws notifications that a genuine push carries.
func FuzzVerify(f *testing.F) {
	clock := railtest.NewClock()
	f.Add([]byte(`{"packageName":"com.example.app","eventTimeMillis":"1","subscriptionNotification":{"notificationType":4,"purchaseToken":"token-00000001"}}`))
	f.Add([]byte(`{"packageName":"com.example.app","eventTimeMillis":1,"voidedPurchaseNotification":{"purchaseToken":"token-00000001","orderId":"GPA.1","productType":1,"refundType":2}}`))
	f.Add([]byte(`{"packageName":"com.example.app","oneTimeProductNotification":{"notificationType":1,"purchaseToken":"token-00000001"}}`))
	railtest.FuzzVerify(f, fixture(clock), clock, func(text []byte) ([]byte, bool) {
		return script.Encode(script.Object{"message": script.Object{"data": base64.StdEncoding.EncodeToString(text), "messageId": "1"}}), true
	})
}

func FuzzRedeem(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzRedeem(f, fixture(clock), clock)
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
