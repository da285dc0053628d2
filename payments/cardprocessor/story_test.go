package cardprocessor_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/cardprocessor/cardprocessortest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
)

const day = 24 * time.Hour

func world(t *testing.T) (*railtest.Clock, *cardprocessortest.Store, payments.Rail, *railtest.Book) {
	clock := railtest.NewClock()
	store := cardprocessortest.New(clock.Now, payments.EnvironmentProduction)
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	return clock, store, rail, book
}

var (
	pro   = script.Purchase{ProductID: "prod_1", PriceID: "price_1", AccountToken: "account"}
	coins = script.Purchase{ProductID: "prod_2", PriceID: "price_2", AccountToken: "account", Quantity: 2}
)

const sub = payments.KindSubscription

func TestLifeOfASubscription(t *testing.T) {
	clock, store, _, book := world(t)
	trial := pro
	trial.Trial = 7 * day
	id, out := store.Subscribe(trial)
	book.Deliver(out)
	if p := book.Want(id, sub, payments.StatusActive); p.PeriodType != payments.PeriodTrial || book.Charges(id) != 0 {
		t.Errorf("a trial: %+v with %d charges", p, book.Charges(id))
	}
	clock.Advance(7 * day)
	book.Deliver(store.Renew(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(30 * day)
	paidThrough := payments.At(clock.Now())
	book.Deliver(store.Fail(id))
	if p := book.Want(id, sub, payments.StatusInGrace); p.GraceUntil != paidThrough || p.BillingIssueSince != paidThrough {
		t.Errorf("grace until %s since %s, want what was paid for", p.GraceUntil.Time(), p.BillingIssueSince.Time())
	}
	clock.Advance(5 * day)
	book.Deliver(store.Hold(id))
	book.Want(id, sub, payments.StatusOnHold)
	clock.Advance(day)
	book.Deliver(store.Recover(id))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Cancel(id))
	book.Want(id, sub, payments.StatusCanceled)
	book.Deliver(store.Uncancel(id))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Refund(id, 100))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Refund(id, 0))
	book.Want(id, sub, payments.StatusRefunded)
	book.Deliver(store.FailRefund(id))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Dispute(id))
	book.Want(id, sub, payments.StatusRevoked)
	book.Deliver(store.Win(id))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Refund(id, 0))
	clock.Advance(24 * day)
	book.Deliver(store.Renew(id))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(30 * day)
	book.Deliver(store.Expire(id))
	book.Want(id, sub, payments.StatusExpired)
	if book.Charges(id) != 3 || book.Len() != 1 {
		t.Errorf("%d charges of %d purchases, want 3 of 1", book.Charges(id), book.Len())
	}
}

func TestPauses(t *testing.T) {
	clock, store, rail, book := world(t)
	id, out := store.Subscribe(pro)
	book.Deliver(out)
	book.Deliver(store.Pause(id, clock.Now().Add(60*day)))
	book.Want(id, sub, payments.StatusActive)
	clock.Advance(31 * day)
	book.Observe(rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: id}))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != payments.At(railtest.NewClock().Now().Add(60*day)) {
		t.Errorf("resumes at %s", p.ResumeAt.Time())
	}
	book.Deliver(store.Pause(id, time.Time{}))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != 0 {
		t.Errorf("resumes at %s, want no end", p.ResumeAt.Time())
	}
}

func TestRefundIsTheFirstThatIsHeard(t *testing.T) {
	_, store, _, book := world(t)
	id, _ := store.Subscribe(pro)
	out := book.Deliver(store.Refund(id, 0))
	book.Want(id, sub, payments.StatusRefunded)
	if out[0].AccountToken != "account" {
		t.Errorf("the subject is %q", out[0].AccountToken)
	}
	once, _ := store.Buy(coins)
	book.Deliver(store.Refund(once, 0))
	book.Want(once, payments.KindConsumable, payments.StatusRefunded)
	if book.Charges(once) != 1 {
		t.Errorf("%d charges", book.Charges(once))
	}
}

func TestCheckout(t *testing.T) {
	_, store, rail, book := world(t)
	store.Price(pro)
	store.Price(coins)
	for _, c := range []struct {
		p    script.Purchase
		kind payments.ProductKind
	}{{pro, sub}, {coins, payments.KindConsumable}} {
		made, err := rail.Checkout(t.Context(), book.Access, payments.CheckoutRequest{
			Product: payments.Product{Kind: c.kind}, Store: payments.StoreIDs{ProductID: c.p.ProductID, PriceID: c.p.PriceID}, Quantity: 2,
			AccountToken: "account", Success: "https://example.com/ok", Cancel: "https://example.com/no", IdempotencyKey: "key-" + string(c.kind),
		})
		if err != nil || !strings.Contains(made.URL, made.SessionID) || made.CustomerID == "" || made.ExpiresAt == 0 {
			t.Fatalf("%+v: %v", made, err)
		}
		if _, err := rail.Redeem(t.Context(), book.Access, payments.Submission{SessionID: made.SessionID}); !errors.Is(err, payments.ErrPurchasePending) {
			t.Errorf("an open session: got %v, want payments/purchase_pending", err)
		}
		deliveries, err := store.Complete(made.SessionID)
		if err != nil {
			t.Fatal(err)
		}
		out := book.Deliver(deliveries)
		again := book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{SessionID: made.SessionID}))
		if out[0].AccountToken != "account" || again[0].TransactionID != out[0].TransactionID || book.Charges(out[0].TransactionID) != 1 {
			t.Errorf("%+v then %+v", out, again)
		}
		book.Want(out[0].TransactionID, c.kind, payments.StatusActive)
		owned := book.Observe(rail.OfCustomer(t.Context(), book.Access, made.CustomerID))
		if len(owned) == 0 {
			t.Error("the customer has bought nothing")
		}
		if made, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{CustomerID: made.CustomerID, Return: "https://example.com"}); err != nil || made.URL == "" {
			t.Errorf("the portal: %+v, %v", made, err)
		}
	}
	if _, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{}); !errors.Is(err, payments.ErrCustomerNotFound) {
		t.Errorf("nobody's portal: got %v, want payments/customer_not_found", err)
	}
	if _, err := rail.Checkout(t.Context(), book.Access, payments.CheckoutRequest{Store: payments.StoreIDs{PriceID: "price_9"}}); !errors.Is(err, payments.ErrProductUnavailable) {
		t.Errorf("a price that is none: got %v, want payments/product_unavailable", err)
	}
}

func TestPricingDiscountsAndCancel(t *testing.T) {
	_, store, rail, book := world(t)
	id, out := store.Subscribe(pro)
	book.Deliver(out)
	ref := payments.Ref{TransactionID: id}
	p, err := rail.Pricing(t.Context(), book.Access, ref)
	if err != nil || p.AmountMinor != 999 || p.Currency != "USD" || p.Interval != "P1M" || p.Next == nil || p.Next.AmountMinor != 999 || p.Next.At == 0 {
		t.Errorf("%+v: %v", p, err)
	}
	for range 2 {
		if err := rail.Cancel(t.Context(), book.Access, ref); err != nil {
			t.Error(err)
		}
	}
	if p, err := rail.Pricing(t.Context(), book.Access, ref); err != nil || p.Next != nil {
		t.Errorf("what ends has a next price: %+v, %v", p.Next, err)
	}
	d := payments.DiscountRequest{Code: "SPRING", Kind: payments.DiscountPercentage, PercentBasisPoints: 1250, Duration: payments.DurationRepeating, Months: 3, IdempotencyKey: "d1"}
	first, err := rail.CreateDiscount(t.Context(), book.Access, d)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := rail.CreateDiscount(t.Context(), book.Access, d); err != nil || again != first {
		t.Errorf("the same request made %s and %s: %v", first, again, err)
	}
	d.IdempotencyKey = "d2"
	if _, err := rail.CreateDiscount(t.Context(), book.Access, d); !errors.Is(err, payments.ErrDiscountConflict) {
		t.Errorf("the same code: got %v, want payments/discount_conflict", err)
	}
}

func TestMissedWebhooksAreInTheHistory(t *testing.T) {
	clock, store, rail, book := world(t)
	since := payments.At(clock.Now())
	id, _ := store.Subscribe(pro)
	store.Refund(id, 0)
	w := payments.Window{Since: since, Until: since, Limit: 1}
	for pages := 0; ; pages++ {
		page, err := rail.History(t.Context(), book.Access, w)
		if err != nil || pages > 10 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, d := range page.Deliveries {
			book.Observe(rail.Expand(t.Context(), book.Access, d))
		}
		if w.Cursor = page.Next; w.Cursor == "" {
			break
		}
	}
	book.Want(id, sub, payments.StatusRefunded)
}

func TestUnknownObjectsAreNothing(t *testing.T) {
	_, store, rail, book := world(t)
	if out := book.Deliver([]script.Delivery{
		store.Event("invoice.paid", script.Object{"id": "in_9", "object": "invoice"}),
		store.Event("checkout.session.expired", script.Object{"id": "cs_9", "object": "checkout.session", "mode": "payment"}),
		store.Event("charge.refunded", script.Object{"id": "ch_9", "object": "charge", "payment_intent": "pi_9"}),
		store.Event("charge.refunded", script.Object{"id": "ch_9", "object": "charge"}),
		store.Event("coupon.created", script.Object{"id": "co_9", "object": "coupon"}),
	}); len(out) != 0 {
		t.Errorf("%+v, want nothing", out)
	}
	if _, err := rail.Fetch(t.Context(), book.Access, payments.Ref{TransactionID: "sub_9"}); !errors.Is(err, payments.ErrPurchaseNotFound) {
		t.Errorf("got %v, want payments/purchase_not_found", err)
	}
}

// TestSessionThatExpired: nobody waits for the money of a page that is closed.
func TestSessionThatExpired(t *testing.T) {
	_, _, _, book := world(t)
	rail := cardprocessor.New(cardprocessor.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		script.Reply(w, http.StatusOK, script.Object{
			"id": "cs_1", "object": "checkout.session", "mode": "payment", "status": "expired", "payment_status": "unpaid", "livemode": true,
		})
	}))})
	if _, err := rail.Redeem(t.Context(), book.Access, payments.Submission{SessionID: "cs_1"}); !errors.Is(err, payments.ErrInvalidReceipt) {
		t.Errorf("got %v, want payments/invalid_receipt", err)
	}
}

// TestRefundOfOneOfSeveralPayments: an invoice is not refunded with one of the payments
// that it was paid by.
func TestRefundOfOneOfSeveralPayments(t *testing.T) {
	clock, store, _, _ := world(t)
	rail := cardprocessor.New(cardprocessor.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/invoices") {
			store.ServeHTTP(w, r)
			return
		}
		said := httptest.NewRecorder()
		store.ServeHTTP(said, r)
		_, _ = w.Write(bytes.ReplaceAll(said.Body.Bytes(), []byte(`"amount_paid":999`), []byte(`"amount_paid":1500`)))
	}))})
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	id, out := store.Subscribe(pro)
	book.Deliver(out)
	observed := book.Deliver(store.Refund(id, 0))
	if r := observed[0].Refunds[0]; r.Full || r.AmountMinor != 999 || !strings.HasPrefix(r.ID, "refunds:ch_") {
		t.Errorf("%+v", r)
	}
	book.Want(id, sub, payments.StatusActive)
}

// TestCurrenciesWithAnotherUnit: the API counts krónur and shillings in hundredths and ariary in
// whole ones, the kit all of them in the minor units of ISO 4217.
func TestCurrenciesWithAnotherUnit(t *testing.T) {
	for currency, c := range map[string]struct{ api, minor int64 }{
		"ISK": {50_000, 500}, "UGX": {50_000, 500}, "MGA": {500, 50_000}, "JPY": {500, 500}, "KWD": {500, 500}, "EUR": {500, 500},
	} {
		_, store, rail, book := world(t)
		p := pro
		p.Currency, p.AmountMinor = currency, c.api
		id, out := store.Subscribe(p)
		all := book.Deliver(append(out, store.Refund(id, c.api/2)...))
		last := all[len(all)-1]
		if paid, back := last.Charges[0].AmountMinor, last.Refunds[0].AmountMinor; paid != c.minor || back != c.minor/2 || last.Price.AmountMinor != c.minor {
			t.Errorf("%s: %d were paid and %d refunded at a price of %d, want %d", currency, paid, back, last.Price.AmountMinor, c.minor)
		}
		price, err := rail.Pricing(t.Context(), book.Access, payments.Ref{TransactionID: id})
		if err != nil || price.AmountMinor != c.minor || price.Next.AmountMinor != c.minor {
			t.Errorf("%s: %+v: %v, want a price of %d", currency, price, err, c.minor)
		}
		p = coins
		p.Currency, p.AmountMinor, p.Quantity = currency, c.api, 1
		_, out = store.Buy(p)
		if paid := book.Deliver(out)[0].Charges[0].AmountMinor; paid != c.minor {
			t.Errorf("%s: %d were paid once, want %d", currency, paid, c.minor)
		}
		d := payments.DiscountRequest{Code: "SPRING", Kind: payments.DiscountFixed, AmountMinor: c.minor, Currency: currency, Duration: payments.DurationOnce}
		var off string
		rail = cardprocessor.New(cardprocessor.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body) // of a request that is in memory
			if form, _ := url.ParseQuery(string(body)); r.URL.Path == "/v1/coupons" {
				off = form.Get("amount_off")
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			store.ServeHTTP(w, r)
		}))})
		if _, err := rail.CreateDiscount(t.Context(), book.Access, d); err != nil || off != fmt.Sprint(c.api) {
			t.Errorf("%s: a discount of %d takes %s off: %v, want %d", currency, c.minor, off, err, c.api)
		}
	}
}
