package iosstore_test

import (
	"encoding/json"
	"testing"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/iosstore"
	"github.com/kitbackend/kit/payments/iosstore/iosstoretest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
)

func TestRail(t *testing.T) {
	railtest.Run(t, fixture)
}

func FuzzExpand(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzExpand(f, fixture(clock), clock)
}

// FuzzVerify draws what Apple would sign.
func FuzzVerify(f *testing.F) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	fixture := fixtureOf(clock, store)
	f.Add([]byte(`{"notificationType":"DID_RENEW","notificationUUID":"u","signedDate":1,"data":{"appAppleId":1234,"bundleId":"com.example.app","environment":"Production","signedTransactionInfo":"a.b.c"}}`))
	railtest.FuzzVerify(f, fixture, clock, func(text []byte) ([]byte, bool) {
		if !json.Valid(text) {
			return nil, false
		}
		return script.Encode(script.Object{"signedPayload": store.Apple.Sign(json.RawMessage(text))}), true
	})
}

// FuzzTransaction draws transactions that Apple would sign.
func FuzzTransaction(f *testing.F) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	fixture := fixtureOf(clock, store)
	access := fixture.Access(clock)
	f.Add([]byte(`{"transactionId":"1","originalTransactionId":"1","bundleId":"com.example.app","productId":"coins","type":"Consumable","purchaseDate":1,"quantity":1,"environment":"Production","signedDate":1772366400000,"inAppOwnershipType":"PURCHASED","price":990,"currency":"EUR"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		observations, err := fixture.Rail.Redeem(t.Context(), access, payments.Submission{SignedTransaction: store.Apple.Sign(json.RawMessage(text))})
		if err != nil {
			return
		}
		for _, o := range observations {
			if o.TransactionID == "" || o.Version <= 0 {
				t.Fatalf("an observation with transaction id %q and version %d", o.TransactionID, o.Version)
			}
		}
	})
}

func FuzzRedeem(f *testing.F) {
	clock := railtest.NewClock()
	railtest.FuzzRedeem(f, fixture(clock), clock)
}

func fixture(clock *railtest.Clock) railtest.Fixture {
	return fixtureOf(clock, iosstoretest.New(clock.Now, payments.EnvironmentProduction))
}

func fixtureOf(clock *railtest.Clock, store *iosstoretest.Store) railtest.Fixture {
	other := iosstoretest.New(clock.Now, payments.EnvironmentSandbox)
	other.Apple = store.Apple
	var bought string
	buy := func(from *iosstoretest.Store) script.Delivery {
		id, out := from.Subscribe(script.Purchase{ProductID: "com.example.pro"})
		bought = id
		return out[0]
	}
	return railtest.Fixture{
		Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction,
		Deliver: func() script.Delivery { return buy(store) },
		Unknown: func() script.Delivery { return store.Test()[0] },
		Other:   func() script.Delivery { return buy(other) },
		Bought:  func() payments.Ref { return payments.Ref{TransactionID: bought, Kind: payments.KindSubscription} },
		Faults:  &store.Faults,
	}
}

func TestRootIsPinned(t *testing.T) {
	if root := iosstore.AppleRoot(); root.Subject.CommonName != "Apple Root CA - G3" {
		t.Errorf("the root is %s", root.Subject)
	}
}
