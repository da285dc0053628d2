package merchantb_test

import (
	"errors"
	"net/http"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/merchantb"
	"github.com/kitbackend/kit/payments/merchantb/merchantbtest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
)

const (
	day = 24 * time.Hour
	sub = payments.KindSubscription
)

var (
	pro   = script.Purchase{ProductID: "pro_1", PriceID: "pri_1", AccountToken: "account", Period: 30 * day}
	coins = script.Purchase{ProductID: "pro_2", PriceID: "pri_2", AccountToken: "account", Consumable: true}
)

func world(t *testing.T) (*railtest.Clock, *merchantbtest.Store, payments.Rail, *railtest.Book) {
	clock := railtest.NewClock()
	store := merchantbtest.New(clock.Now, payments.EnvironmentProduction)
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	return clock, store, rail, book
}

func TestLifeOfASubscription(t *testing.T) {
	clock, store, _, book := world(t)
	trial := pro
	trial.Trial = 7 * day
	id, out := store.Subscribe(trial)
	if first := book.Deliver(out)[0]; first.AccountToken != "account" || first.CustomerID == "" {
		t.Errorf("%+v", first)
	}
	if p := book.Want(id, sub, payments.StatusActive); p.PeriodType != payments.PeriodTrial || book.Charges(id) != 0 {
		t.Errorf("a trial: %+v with %d charges", p, book.Charges(id))
	}
	clock.Advance(7 * day)
	book.Deliver(store.Renew(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(30 * day)
	paidThrough := payments.At(clock.Now())
	book.Deliver(store.Fail(id))
	if p := book.Want(id, sub, payments.StatusInGrace); p.GraceUntil != paidThrough {
		t.Errorf("grace until %s, want what was paid for", p.GraceUntil.Time())
	}
	clock.Advance(day)
	book.Deliver(store.Hold(id))
	book.Want(id, sub, payments.StatusOnHold)
	clock.Advance(day)
	book.Deliver(store.Recover(id))
	book.Want(id, sub, payments.StatusActive)
	resume := clock.Now().Add(60 * day)
	book.Deliver(store.Pause(id, resume))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != payments.At(resume) {
		t.Errorf("resumes at %s, want %s", p.ResumeAt.Time(), resume)
	}
	book.Deliver(store.Pause(id, time.Time{}))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != 0 {
		t.Errorf("resumes at %s, want no end", p.ResumeAt.Time())
	}
	book.Deliver(store.Resume(id))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Cancel(id))
	book.Want(id, sub, payments.StatusCanceled)
	book.Deliver(store.Uncancel(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(time.Hour)
	book.Deliver(store.Refund(id, 0))
	book.Want(id, sub, payments.StatusRefunded)
	clock.Advance(time.Hour)
	book.Deliver(store.FailRefund(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(time.Hour)
	book.Deliver(store.Dispute(id))
	book.Want(id, sub, payments.StatusRevoked)
	clock.Advance(28 * day)
	book.Deliver(store.Renew(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(30 * day)
	book.Deliver(store.Expire(id))
	book.Want(id, sub, payments.StatusExpired)
	if book.Charges(id) != 3 || book.Len() != 1 {
		t.Errorf("%d charges of %d purchases, want 3 of 1", book.Charges(id), book.Len())
	}
}

// The merchant refunds on its own: the purchase comes with the refund.
func TestRefundIsTheFirstThatIsHeard(t *testing.T) {
	_, store, _, book := world(t)
	id, _ := store.Subscribe(pro)
	out := book.Deliver(store.Refund(id, 0)[:1])
	book.Want(id, sub, payments.StatusRefunded)
	if out[0].AccountToken != "account" {
		t.Errorf("the subject is %q", out[0].AccountToken)
	}
	once, _ := store.Buy(coins)
	book.Deliver(store.Dispute(once)[:1])
	book.Want(once, payments.KindConsumable, payments.StatusRevoked)
	part, _ := store.Buy(coins)
	book.Deliver(store.Refund(part, 100)[:1])
	book.Want(part, payments.KindConsumable, payments.StatusActive)
}

func TestCheckout(t *testing.T) {
	_, store, rail, book := world(t)
	single := coins
	single.Period = 0
	store.Price(pro)
	store.Price(single)
	for _, c := range []struct {
		p    script.Purchase
		kind payments.ProductKind
	}{{pro, sub}, {single, payments.KindConsumable}} {
		made, err := rail.Checkout(t.Context(), book.Access, payments.CheckoutRequest{
			Product: payments.Product{Kind: c.kind}, Store: payments.StoreIDs{ProductID: c.p.ProductID, PriceID: c.p.PriceID}, Quantity: 1,
			AccountToken: "account", Success: "https://example.com/ok", Cancel: "https://example.com/no",
		})
		if err != nil || made.URL == "" {
			t.Fatalf("%+v: %v", made, err)
		}
		deliveries, err := store.Complete(made.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		out := book.Deliver(deliveries)
		if out[0].AccountToken != "account" || book.Charges(out[0].TransactionID) != 1 {
			t.Errorf("%+v", out)
		}
		book.Want(out[0].TransactionID, c.kind, payments.StatusActive)
		if owned := book.Observe(rail.OfCustomer(t.Context(), book.Access, out[0].CustomerID)); len(owned) == 0 {
			t.Error("the customer has bought nothing")
		}
		if p, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{CustomerID: out[0].CustomerID, AccountToken: "account"}); err != nil || p.URL == "" {
			t.Errorf("the portal: %+v, %v", p, err)
		}
		if c.kind == payments.KindConsumable {
			again := book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{SessionID: made.SessionID}))
			if again[0].TransactionID != out[0].TransactionID || book.Charges(out[0].TransactionID) != 1 {
				t.Errorf("%+v", again)
			}
		}
	}
	open, err := rail.Checkout(t.Context(), book.Access, payments.CheckoutRequest{Store: payments.StoreIDs{ProductID: "pro_1", PriceID: "pri_1"}, Quantity: 1, AccountToken: "account"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rail.Redeem(t.Context(), book.Access, payments.Submission{SessionID: open.SessionID}); !errors.Is(err, payments.ErrPurchasePending) {
		t.Errorf("an open checkout: got %v, want payments/purchase_pending", err)
	}
	if _, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{AccountToken: "account"}); !errors.Is(err, payments.ErrCustomerNotFound) {
		t.Errorf("a portal by the external id: got %v, want payments/customer_not_found", err)
	}
	if _, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{AccountToken: "stranger"}); !errors.Is(err, payments.ErrCustomerNotFound) {
		t.Errorf("a stranger's portal: got %v, want payments/customer_not_found", err)
	}
}

func TestPricingDiscountsAndCancel(t *testing.T) {
	_, store, rail, book := world(t)
	id, out := store.Subscribe(pro)
	book.Deliver(out)
	ref := payments.Ref{TransactionID: id, Kind: sub}
	p, err := rail.Pricing(t.Context(), book.Access, ref)
	if err != nil || p.AmountMinor != 999 || p.Currency != "USD" || p.Interval != "P1M" || p.Next == nil || p.Next.AmountMinor != 999 || p.Next.At == 0 {
		t.Errorf("%+v: %v", p, err)
	}
	for range 2 {
		if err := rail.Cancel(t.Context(), book.Access, ref); err != nil {
			t.Error(err)
		}
	}
	book.Observe(rail.Fetch(t.Context(), book.Access, ref))
	book.Want(id, sub, payments.StatusCanceled)
	d := payments.DiscountRequest{Code: "SPRING", Kind: payments.DiscountFixed, AmountMinor: 500, Currency: "USD", Duration: payments.DurationOnce}
	if _, err := rail.CreateDiscount(t.Context(), book.Access, d); err != nil {
		t.Fatal(err)
	}
	if _, err := rail.CreateDiscount(t.Context(), book.Access, d); !errors.Is(err, payments.ErrDiscountConflict) {
		t.Errorf("the same code: got %v, want payments/discount_conflict", err)
	}
	if _, err := rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: "sub_9"}); !errors.Is(err, payments.ErrPurchaseNotFound) {
		t.Errorf("got %v, want payments/purchase_not_found", err)
	}
}

func TestMissedWebhooksAreInTheHistory(t *testing.T) {
	clock, store, rail, book := world(t)
	since := payments.At(clock.Now())
	id, _ := store.Subscribe(pro)
	clock.Advance(time.Minute)
	store.Refund(id, 0)
	once, _ := store.Buy(coins)
	w := payments.Window{Since: since, Until: payments.At(clock.Now().Add(time.Minute)), Limit: 2}
	history(t, rail, book, w)
	book.Want(id, sub, payments.StatusRefunded)
	book.Want(once, payments.KindConsumable, payments.StatusActive)
}

// TestFailedRefundIsInTheHistory: a refund may fail weeks after it was made.
func TestFailedRefundIsInTheHistory(t *testing.T) {
	clock, store, rail, book := world(t)
	id, out := store.Subscribe(pro)
	book.Deliver(append(out, store.Refund(id, 0)...))
	book.Want(id, sub, payments.StatusRefunded)
	clock.Advance(20 * day)
	store.FailRefund(id)
	history(t, rail, book, payments.Window{Since: payments.At(clock.Now().Add(-day)), Until: payments.At(clock.Now().Add(time.Minute)), Limit: 2})
	book.Want(id, sub, payments.StatusActive)
}

// TestLostDisputesAreInTheHistory: the merchant tells nobody that a dispute was lost, and may decide
// one that began months ago. A token that may not read disputes keeps nothing else from being read.
func TestLostDisputesAreInTheHistory(t *testing.T) {
	clock, store, rail, book := world(t)
	id, _ := store.Subscribe(pro)
	once, _ := store.Buy(coins)
	kept, _ := store.Buy(coins)
	clock.Advance(100 * day)
	w := payments.Window{Since: payments.At(clock.Now().Add(-day)), Until: payments.At(clock.Now().Add(time.Minute)), Limit: 2}
	store.LoseDispute(kept, 90*day)
	clock.Advance(2 * day) // it was lost before the window of the next run
	w.Since, w.Until = payments.At(clock.Now().Add(-day)), payments.At(clock.Now().Add(time.Minute))
	store.LoseDispute(id, 90*day)
	store.LoseDispute(once, 0)
	denied := merchantb.New(merchantb.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/disputes/" {
			script.Reply(w, http.StatusForbidden, script.Object{"error": "insufficient_scope"})
			return
		}
		store.ServeHTTP(w, r)
	}))})
	if history(t, denied, book, w); book.Len() != 0 {
		t.Errorf("%d purchases were found without disputes, want none", book.Len())
	}
	history(t, rail, book, w)
	book.Want(id, sub, payments.StatusRevoked)
	book.Want(once, payments.KindConsumable, payments.StatusRevoked)
	if book.Len() != 2 {
		t.Errorf("%d purchases were found, want the two whose disputes were lost in the window", book.Len())
	}
}

// history reads a window to its end and returns how many pages it has.
func history(t *testing.T, rail payments.Rail, book *railtest.Book, w payments.Window) (pages int) {
	t.Helper()
	for pages = 1; ; pages++ {
		page, err := rail.History(t.Context(), book.Access, w)
		if err != nil || pages > 10 {
			t.Fatalf("page %d: %v", pages, err)
		}
		book.Observe(page.Observations, nil)
		for _, d := range page.Deliveries {
			book.Observe(rail.Expand(t.Context(), book.Access, d))
		}
		if w.Cursor = page.Next; w.Cursor == "" {
			return pages
		}
	}
}

// A subscription or an order that the store has forgotten keeps no others from
// being found, and of a subscription it keeps what was paid and went back.
func TestHistoryGoesOnBehindWhatIsForgotten(t *testing.T) {
	clock, store, _, book := world(t)
	forgotten := make(map[string]bool)
	rail := merchantb.New(merchantb.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if forgotten[path.Base(r.URL.Path)] {
			script.Reply(w, http.StatusNotFound, script.Object{"error": "ResourceNotFound"})
			return
		}
		store.ServeHTTP(w, r)
	}))})
	since := payments.At(clock.Now())
	found, _ := store.Buy(coins)
	id, _ := store.Subscribe(pro)
	store.Refund(id, 0)
	once, _ := store.Buy(coins)
	store.Refund(once, 0)
	forgotten[id], forgotten[once] = true, true
	history(t, rail, book, payments.Window{Since: since, Until: payments.At(clock.Now().Add(time.Minute)), Limit: 200})
	book.Want(found, payments.KindConsumable, payments.StatusActive)
	book.Want(id, sub, payments.StatusRefunded)
}

// What a page of the history fetches fits into the deadline of a call.
func TestPageOfTheHistoryIsSmall(t *testing.T) {
	clock, store, rail, book := world(t)
	since := payments.At(clock.Now())
	for range 50 {
		store.Subscribe(pro)
	}
	pages := history(t, rail, book, payments.Window{Since: since, Until: payments.At(clock.Now().Add(time.Minute)), Limit: 200})
	if calls := store.Calls(); pages != 5 || calls != 50+pages || book.Len() != 50 {
		t.Errorf("%d calls for %d pages with %d purchases, want 55 for 5 with 50", calls, pages, book.Len())
	}
}

// TestRenewalsHideNoOtherPurchase: the lists of a customer have every renewal of a subscription.
func TestRenewalsHideNoOtherPurchase(t *testing.T) {
	clock, store, rail, book := world(t)
	once, again := coins, pro
	once.CustomerID, again.CustomerID = "ada", "ada"
	bought, _ := store.Buy(once)
	renewing, _ := store.Subscribe(again)
	for range 120 {
		clock.Advance(30 * day)
		store.Renew(renewing)
	}
	owned := book.Observe(rail.OfCustomer(t.Context(), book.Access, "ada"))
	if !slices.ContainsFunc(owned, func(o payments.Observation) bool { return o.TransactionID == bought }) {
		t.Errorf("%d observations, none of the purchase before ten years of renewals", len(owned))
	}
}

// TestFetchedSubscriptionThatEndedWasPaid: its webhooks were lost, so only the store knows what was
// paid.
func TestFetchedSubscriptionThatEndedWasPaid(t *testing.T) {
	clock, store, rail, book := world(t)
	id, _ := store.Subscribe(pro)
	clock.Advance(30 * day)
	store.Renew(id)
	clock.Advance(30 * day)
	store.Expire(id)
	book.Observe(rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: id}))
	book.Want(id, sub, payments.StatusExpired)

	_, store, _, book = world(t)
	id, _ = store.Subscribe(pro)
	out := store.Expire(id)
	book.Deliver(out[len(out)-1:])
	book.Want(id, sub, payments.StatusExpired)

	trial := pro
	trial.Trial = 7 * day
	id, _ = store.Subscribe(trial)
	book.Deliver(store.Expire(id))
	book.Want(id, sub, payments.StatusNeverPaid)
}

func TestCheckoutSellsOne(t *testing.T) {
	_, store, rail, book := world(t)
	store.Price(coins)
	request := payments.CheckoutRequest{Store: payments.StoreIDs{ProductID: "pro_2"}, Quantity: 2, AccountToken: "account"}
	if made, err := rail.Checkout(t.Context(), book.Access, request); !errors.Is(err, capability.ErrInvalidRequest) {
		t.Errorf("a checkout of two: %+v, %v, expected kit/invalid_request, as the store sells one at a time", made, err)
	}
}
