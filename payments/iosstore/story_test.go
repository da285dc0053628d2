package iosstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/iosstore/iosstoretest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
)

const (
	day     = 24 * time.Hour
	sub     = payments.KindSubscription
	account = "7e3fb20b-4cdb-47cc-936d-99d65f608138"
)

var pro = script.Purchase{ProductID: "com.example.pro", AccountToken: account}

func world(t *testing.T) (*railtest.Clock, *iosstoretest.Store, payments.Rail, *railtest.Book) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	return clock, store, rail, book
}

func TestLifeOfASubscription(t *testing.T) {
	clock, store, _, book := world(t)
	trial := pro
	trial.Trial = 7 * day
	id, out := store.Subscribe(trial)
	if first := book.Deliver(out)[0]; first.AccountToken != account {
		t.Errorf("the subject is %q", first.AccountToken)
	}
	if p := book.Want(id, sub, payments.StatusActive); p.PeriodType != payments.PeriodTrial || book.Charges(id) != 0 {
		t.Errorf("a trial: %+v with %d charges", p, book.Charges(id))
	}
	clock.Advance(7 * day)
	book.Deliver(store.Renew(id))
	clock.Advance(30 * day)
	until := clock.Now().Add(16 * day)
	book.Deliver(store.Grace(id, until))
	if p := book.Want(id, sub, payments.StatusInGrace); p.GraceUntil != payments.At(until) {
		t.Errorf("grace until %s, want %s", p.GraceUntil.Time(), until)
	}
	clock.Advance(16 * day)
	book.Want(id, sub, payments.StatusOnHold) // no notification is needed for that
	book.Deliver(store.Hold(id))
	book.Want(id, sub, payments.StatusOnHold)
	clock.Advance(day)
	book.Deliver(store.Recover(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(time.Minute)
	book.Deliver(store.Cancel(id))
	book.Want(id, sub, payments.StatusCanceled)
	clock.Advance(time.Minute)
	book.Deliver(store.Uncancel(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(time.Hour)
	book.Deliver(store.Refund(store.Latest(id)))
	book.Want(id, sub, payments.StatusRefunded)
	clock.Advance(time.Hour)
	book.Deliver(store.ReverseRefund(store.Latest(id)))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(time.Minute)
	book.Deliver(store.Upgrade(id, script.Purchase{ProductID: "com.example.max"}))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(30 * day)
	book.Deliver(store.Expire(id))
	book.Want(id, sub, payments.StatusExpired)
	if book.Len() != 1 || book.Charges(id) != 3 {
		t.Errorf("%d charges of %d purchases, want 3 of 1", book.Charges(id), book.Len())
	}
}

func TestRefundIsTheFirstThatIsHeard(t *testing.T) {
	_, store, _, book := world(t)
	id, _ := store.Subscribe(pro)
	book.Deliver(store.Refund(id))
	book.Want(id, sub, payments.StatusRefunded)
}

func TestFamilyShare(t *testing.T) {
	clock, store, _, book := world(t)
	shared := pro
	shared.Shared = true
	id, out := store.Subscribe(shared)
	if first := book.Deliver(out)[0]; first.Ownership != payments.OwnershipFamilyShared {
		t.Errorf("it is owned as %q", first.Ownership)
	}
	clock.Advance(time.Hour)
	book.Deliver(store.Unshare(id))
	book.Want(id, sub, payments.StatusRevoked)
}

func TestConsumableBySubmissionAndNotification(t *testing.T) {
	clock, store, rail, book := world(t)
	id, out := store.Buy(script.Purchase{ProductID: "coins", Consumable: true, Quantity: 3, AmountMinor: 500, Currency: "JPY"})
	observed := book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{SignedTransaction: store.Signed(id)}))
	book.Deliver(out)
	book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{TransactionID: id}))
	if c := observed[0].Charges[0]; book.Charges(id) != 1 || c.Quantity != 3 || c.AmountMinor != 500 || c.Currency != "JPY" {
		t.Errorf("%d charges, %+v", book.Charges(id), c)
	}
	clock.Advance(time.Hour)
	book.Deliver(store.RefundPart(id, 5000))
	book.Want(id, payments.KindConsumable, payments.StatusActive)
	clock.Advance(time.Hour)
	book.Deliver(store.Refund(id))
	book.Want(id, payments.KindConsumable, payments.StatusRefunded)
}

// A device restores a transaction whose period is over: the store knows a newer one.
func TestExpiredTransactionAsksTheStore(t *testing.T) {
	clock, store, rail, book := world(t)
	id, _ := store.Subscribe(pro)
	old := store.Signed(id)
	clock.Advance(30 * day)
	store.Renew(id)
	book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{SignedTransaction: old}))
	book.Want(id, sub, payments.StatusActive)
	store.Down(true)
	book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{SignedTransaction: old}))
	store.Down(false)
	clock.Advance(2 * time.Minute)
	if _, err := rail.Redeem(t.Context(), book.Access, payments.Submission{TransactionID: "99"}); !errors.Is(err, payments.ErrPurchaseNotFound) {
		t.Errorf("got %v, want payments/purchase_not_found", err)
	}
}

func TestMissedNotificationsAreInTheHistory(t *testing.T) {
	clock, store, rail, book := world(t)
	since := payments.At(clock.Now())
	id, _ := store.Subscribe(pro)
	for range 25 {
		clock.Advance(time.Minute)
		store.Cancel(id)
		store.Uncancel(id)
	}
	clock.Advance(30 * day)
	store.Renew(id)
	store.Test()
	w := payments.Window{Since: since, Until: payments.At(clock.Now()), Limit: 20}
	pages := 0
	for ; pages < 10; pages++ {
		page, err := rail.History(t.Context(), book.Access, w)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Deliveries {
			book.Observe(rail.Expand(t.Context(), book.Access, d))
		}
		if w.Cursor = page.Next; w.Cursor == "" {
			break
		}
	}
	if p := book.Want(id, sub, payments.StatusActive); pages < 2 || book.Charges(id) != 2 || p.AccessUntil != since+payments.Instant(60*day/time.Millisecond) {
		t.Errorf("%d pages, %d charges, until %s", pages+1, book.Charges(id), p.AccessUntil.Time())
	}
}

// Charges whose notifications were missed are in the history of transactions.
func TestFetchFindsMissedCharges(t *testing.T) {
	clock, store, rail, book := world(t)
	id, _ := store.Subscribe(pro)
	for range 4 {
		clock.Advance(30 * day)
		store.Renew(id)
	}
	book.Observe(rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: id, Kind: sub}))
	if book.Charges(id) != 5 {
		t.Errorf("%d charges, want 5", book.Charges(id))
	}
	p, err := rail.Pricing(t.Context(), book.Access, payments.Ref{TransactionID: id})
	if err != nil || p.AmountMinor != 999 || p.Next == nil || p.Next.AmountMinor != 999 {
		t.Errorf("%+v: %v", p, err)
	}
	once, _ := store.Buy(script.Purchase{ProductID: "lifetime"})
	book.Observe(rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: once}))
	book.Want(once, payments.KindOneTime, payments.StatusActive)
}
