package iosstore_test

import (
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

func fixture(clock *railtest.Clock) railtest.Fixture {
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
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
