package androidstore_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore"
	"github.com/kitbackend/kit/payments/androidstore/androidstoretest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
)

const (
	day = 24 * time.Hour
	sub = payments.KindSubscription
)

var pro = script.Purchase{ProductID: "pro", BasePlanID: "monthly", AccountToken: "account"}

func key(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func TestLifeOfASubscription(t *testing.T) {
	clock, store, _ := world()
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	trial := pro
	trial.Trial = 7 * day
	token, out := store.Subscribe(trial)
	first := book.Deliver(out)[0]
	id := key(token)
	if first.AccountToken != "account" || first.RawRef != token || !first.NeedsAcknowledge {
		t.Errorf("%+v", first)
	}
	if p := book.Want(id, sub, payments.StatusActive); p.PeriodType != payments.PeriodTrial || book.Charges(id) != 0 {
		t.Errorf("a trial: %+v with %d charges", p, book.Charges(id))
	}
	clock.Advance(7 * day)
	book.Deliver(store.Renew(token))
	clock.Advance(30 * day)
	until := clock.Now().Add(3 * day)
	book.Deliver(store.Grace(token, until))
	if p := book.Want(id, sub, payments.StatusInGrace); p.GraceUntil != payments.At(until) {
		t.Errorf("grace until %s, want %s", p.GraceUntil.Time(), until)
	}
	clock.Advance(3 * day)
	book.Deliver(store.Hold(token))
	book.Want(id, sub, payments.StatusOnHold)
	book.Deliver(store.Recover(token))
	book.Want(id, sub, payments.StatusActive)
	resume := clock.Now().Add(60 * day)
	book.Deliver(store.Pause(token, resume))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != payments.At(resume) {
		t.Errorf("resumes at %s, want %s", p.ResumeAt.Time(), resume)
	}
	book.Deliver(store.Pause(token, time.Time{}))
	if p := book.Want(id, sub, payments.StatusPaused); p.ResumeAt != 0 {
		t.Errorf("resumes at %s, want no end", p.ResumeAt.Time())
	}
	book.Deliver(store.Resume(token))
	book.Deliver(store.Cancel(token))
	book.Want(id, sub, payments.StatusCanceled)
	book.Deliver(store.Uncancel(token))
	book.Deliver(store.Refund(token))
	book.Want(id, sub, payments.StatusRefunded)
	clock.Advance(30 * day)
	book.Deliver(store.Renew(token))
	book.Want(id, sub, payments.StatusActive)
	book.Deliver(store.Dispute(token))
	book.Want(id, sub, payments.StatusRevoked)
	if book.Charges(id) != 4 || book.Len() != 1 {
		t.Errorf("%d charges of %d purchases, want 4 of 1", book.Charges(id), book.Len())
	}
}

// TestTrialThatLapses: the order of a trial stays the newest one while the first charge
// after it fails, and does not become a charge.
func TestTrialThatLapses(t *testing.T) {
	clock, store, _ := world()
	book := railtest.NewBook(t, railtest.Fixture{Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	trial := pro
	trial.Trial = 7 * day
	token, out := store.Subscribe(trial)
	book.Deliver(out)
	clock.Advance(7 * day)
	book.Deliver(store.Grace(token, clock.Now().Add(3*day)))
	book.Deliver(store.Hold(token))
	book.Deliver(store.Expire(token))
	if n := book.Charges(key(token)); n != 0 {
		t.Errorf("%d charges of a trial that was never paid for, want none", n)
	}
}

// TestTrialThatIsFirstHeardOfAfterItLapsed: the store no longer shows that its order was
// for a trial, the order itself does; a first period that was paid for stays paid for.
func TestTrialThatIsFirstHeardOfAfterItLapsed(t *testing.T) {
	for _, trial := range []time.Duration{7 * day, 0} {
		for name, lapse := range map[string]func(*androidstoretest.Store, *railtest.Clock, string) []script.Delivery{
			"silent day": func(s *androidstoretest.Store, c *railtest.Clock, token string) []script.Delivery {
				out := s.Grace(token, c.Now())
				s.Uncancel(token) // the state is still that of before
				return out
			},
			"grace": func(s *androidstoretest.Store, c *railtest.Clock, token string) []script.Delivery {
				return s.Grace(token, c.Now().Add(3*day))
			},
			"hold": func(s *androidstoretest.Store, c *railtest.Clock, token string) []script.Delivery {
				s.Grace(token, c.Now())
				return s.Hold(token)
			},
			"expired": func(s *androidstoretest.Store, c *railtest.Clock, token string) []script.Delivery {
				s.Grace(token, c.Now())
				return s.Expire(token)
			},
		} {
			clock, store, _ := world()
			book := railtest.NewBook(t, railtest.Fixture{Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
			p := pro
			p.Trial = trial
			token, _ := store.Subscribe(p)
			clock.Advance(max(trial, 30*day))
			book.Deliver(lapse(store, clock, token))
			want := 1
			if trial > 0 {
				want = 0
			}
			if n := book.Charges(key(token)); n != want {
				t.Errorf("%s, a trial of %v: %d charges, want %d", name, trial, n, want)
			}
		}
	}
}

func TestUpgradeRevokeAndExpiry(t *testing.T) {
	clock, store, _ := world()
	book := railtest.NewBook(t, railtest.Fixture{Rail: store.Rail(), Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	token, out := store.Subscribe(pro)
	book.Deliver(out)
	newer, out := store.Upgrade(token, script.Purchase{ProductID: "max"})
	all := book.Deliver(out)
	book.Want(key(token), sub, payments.StatusExpired)
	book.Want(key(newer), sub, payments.StatusActive)
	if last := all[len(all)-1]; last.Lifecycle.Replaces != key(token) {
		t.Errorf("the newer purchase replaces %q", last.Lifecycle.Replaces)
	}
	book.Deliver(store.Revoke(newer))
	book.Want(key(newer), sub, payments.StatusRevoked)
	book.Deliver(store.Refund(newer))
	book.Want(key(newer), sub, payments.StatusRefunded) // now it is known why
	other, out := store.Subscribe(pro)
	book.Deliver(out)
	book.Deliver(store.Expire(other))
	book.Want(key(other), sub, payments.StatusExpired)
}

func TestConsumable(t *testing.T) {
	clock, store, _ := world()
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	book.Access.Kind = func(string) payments.ProductKind { return payments.KindConsumable }
	token, out := store.Buy(script.Purchase{ProductID: "coins", Consumable: true, Quantity: 4})
	book.Observe(rail.Redeem(t.Context(), book.Access, payments.Submission{PurchaseToken: token, ProductID: "coins"}))
	observed := book.Deliver(out)[0]
	if book.Charges(key(token)) != 1 || !observed.NeedsAcknowledge {
		t.Errorf("%d charges, %+v", book.Charges(key(token)), observed)
	}
	ref := payments.Ref{TransactionID: key(token), RawRef: token, ProductID: "coins", Kind: payments.KindConsumable}
	for range 2 {
		if err := rail.Acknowledge(t.Context(), book.Access, ref); err != nil {
			t.Fatal(err)
		}
	}
	if told := store.Acknowledged(token); told != "consume" {
		t.Errorf("the store was told %q, want consume", told)
	}
	book.Deliver(store.RefundPart(token, 1))
	book.Want(key(token), payments.KindConsumable, payments.StatusActive)
	book.Deliver(store.RefundPart(token, 3))
	book.Want(key(token), payments.KindConsumable, payments.StatusRefunded)
	other, _ := store.Buy(script.Purchase{ProductID: "coins", Consumable: true})
	book.Deliver(store.Dispute(other)) // the first that is heard of it
	book.Want(key(other), payments.KindConsumable, payments.StatusRevoked)
}

func TestAcknowledgeOfASubscription(t *testing.T) {
	_, store, access := world()
	token, _ := store.Subscribe(pro)
	ref := payments.Ref{TransactionID: key(token), RawRef: token, ProductID: "pro", Kind: sub}
	rail := store.Rail()
	store.Fail(503)
	if err := rail.Acknowledge(t.Context(), access, ref); err != nil || store.Acknowledged(token) != "acknowledge" {
		t.Errorf("the store was told %q: %v", store.Acknowledged(token), err)
	}
	store.Fail(400)
	if err := rail.Acknowledge(t.Context(), access, ref); err != nil {
		t.Errorf("what is acknowledged already: %v", err)
	}
	ref.RawRef = "unknown-token"
	if err := rail.Acknowledge(t.Context(), access, ref); !errors.Is(err, payments.ErrPurchaseNotFound) {
		t.Errorf("got %v, want payments/purchase_not_found", err)
	}
}

func TestHistoryPricingPortalCancel(t *testing.T) {
	clock, store, _ := world()
	rail := store.Rail()
	book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
	token, _ := store.Subscribe(pro)
	once, _ := store.Buy(script.Purchase{ProductID: "lifetime"})
	store.Dispute(token)
	store.Refund(once)
	page, err := rail.History(t.Context(), book.Access, payments.Window{Since: 1, Until: payments.At(clock.Now()), Limit: 10})
	book.Observe(page.Observations, err)
	book.Want(key(token), sub, payments.StatusRevoked)
	book.Want(key(once), payments.KindOneTime, payments.StatusRefunded)
	other, _ := store.Subscribe(pro)
	ref := payments.Ref{TransactionID: key(other), RawRef: other, ProductID: "pro", Kind: sub}
	if p, err := rail.Pricing(t.Context(), book.Access, ref); err != nil || p.AmountMinor != 999 || p.Next == nil || p.Next.AmountMinor != 999 {
		t.Errorf("%+v: %v", p, err)
	}
	for range 2 {
		if err := rail.Cancel(t.Context(), book.Access, ref); err != nil {
			t.Fatal(err)
		}
	}
	book.Observe(rail.Fetch(t.Context(), book.Access, ref))
	book.Want(key(other), sub, payments.StatusCanceled)
	if p, err := rail.Portal(t.Context(), book.Access, payments.PortalRequest{}); err != nil || !strings.Contains(p.URL, "package=com.example.app") {
		t.Errorf("%+v: %v", p, err)
	}
}

// TestIntroductoryAmount: what the first period cost is what its order says, and
// nothing where the credentials may not read orders.
func TestIntroductoryAmount(t *testing.T) {
	clock, store, access := world()
	offer := pro
	offer.IntroMinor = 99
	token, _ := store.Subscribe(offer)
	fetch := func() payments.Observation {
		t.Helper()
		list, err := store.Rail().Fetch(t.Context(), access, payments.Ref{TransactionID: key(token), RawRef: token, Kind: sub})
		if err != nil || len(list) != 1 || len(list[0].Charges) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		return list[0]
	}
	if o := fetch(); o.Charges[0].AmountMinor != 99 || o.Charges[0].Currency != "USD" || o.Lifecycle.PeriodType != payments.PeriodIntro || o.Price.AmountMinor != 999 {
		t.Errorf("introduced: %+v, %+v", o.Charges[0], o.Price)
	}
	clock.Advance(30 * day)
	store.Renew(token)
	if o := fetch(); o.Charges[0].AmountMinor != 999 || o.Lifecycle.PeriodType == payments.PeriodIntro {
		t.Errorf("renewed: %+v", o.Charges[0])
	}
	offer.IntroMinor = 99
	token, _ = store.Subscribe(offer)
	store.HideOrders()
	if o := fetch(); o.Charges[0].AmountMinor != 0 || !o.Charges[0].Settled {
		t.Errorf("without the right to read orders: %+v", o.Charges[0])
	}
}

// TestChargebackOfAPurchaseThatIsGone: the store no longer shows a subscription
// that expired long ago, whose money the bank still takes. The webhook tells of
// it, and so does the history.
func TestChargebackOfAPurchaseThatIsGone(t *testing.T) {
	for _, missed := range []bool{false, true} {
		clock, store, _ := world()
		gone := false
		rail := androidstore.New(androidstore.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if gone && strings.Contains(r.URL.Path, "/subscriptionsv2/tokens/") {
				w.WriteHeader(http.StatusGone)
				return
			}
			store.ServeHTTP(w, r)
		}))})
		book := railtest.NewBook(t, railtest.Fixture{Rail: rail, Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}, clock)
		token, out := store.Subscribe(pro)
		book.Deliver(out)
		clock.Advance(30 * day)
		book.Deliver(store.Expire(token))
		clock.Advance(61 * day)
		gone = true
		told := store.Dispute(token)
		var observed []payments.Observation
		if missed {
			page, err := rail.History(t.Context(), book.Access, payments.Window{Since: payments.At(clock.Now().Add(-day)), Until: payments.At(clock.Now().Add(day)), Limit: 20})
			observed = book.Observe(page.Observations, err)
		} else {
			observed = book.Deliver(told)
		}
		book.Want(key(token), sub, payments.StatusRevoked)
		if len(observed) != 1 || !observed[0].OnlyKnown {
			t.Errorf("%+v, want one observation of what is known", observed)
		}
	}
}
