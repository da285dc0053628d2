// Package paytest is the five rails as scripted stores in one process: they
// respond to the real rails' requests and send genuine signed deliveries, on a clock
// of the test's. Tests of applications make them sell, renew, fail, refund and so on, and check the
// effects in their kit. No network is needed.
//
// The stores keep everything in memory and number it from 1 in each run: they are for a database in
// memory, or one that begins anew with them, because a database of an earlier run takes new purchases
// for those that it has credited already.
//
//	clock := kittest.NewClock()
//	stores := paytest.New(clock.Now, payments.EnvironmentSandbox)
//	k := kittest.New(t, ..., kit.WithClock(clock.Now), kit.WithPayments(stores.Config(payments.Config{...})))
//	stores.Connect(ctx, k)
//	pro, err := stores.Buy(payments.RailIOSStore, paytest.Order{Product: product, AccountToken: token})
//	err = pro.Renew()
package paytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore/androidstoretest"
	"github.com/kitbackend/kit/payments/cardprocessor/cardprocessortest"
	"github.com/kitbackend/kit/payments/iosstore/iosstoretest"
	"github.com/kitbackend/kit/payments/merchanta/merchantatest"
	"github.com/kitbackend/kit/payments/merchantb/merchantbtest"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/secrets"
)

// Rails are the rails of the kit, in their order.
var Rails = []payments.RailID{payments.RailIOSStore, payments.RailAndroidStore, payments.RailCardProcessor, payments.RailMerchantA, payments.RailMerchantB}

// ErrUnsupported is returned for an action that a store does not have, such as a pause at
// ios_store.
var ErrUnsupported = errors.New("paytest: this store does not do that")

// The errors of [Stores.Complete] for a session that the store does not know, and for one that is
// paid.
var (
	ErrNoSession = script.ErrNoSession
	ErrPaid      = script.ErrPaid
)

// Stores are the five scripted stores. They are safe for concurrent use.
type Stores struct {
	IOS     *iosstoretest.Store
	Android *androidstoretest.Store
	Card    *cardprocessortest.Store
	A       *merchantatest.Store
	B       *merchantbtest.Store

	mu      sync.Mutex
	kit     http.Handler
	base    string
	held    bool
	waiting []waiting
}

// waiting is a delivery that is held back.
type waiting struct {
	rail payments.RailID
	script.Delivery
}

// New makes the stores of an environment on a clock. Their ids start again with each call, so the
// kit's database must be in memory, or begin anew with the stores.
func New(now func() time.Time, environment payments.StoreEnvironment) *Stores {
	return &Stores{
		IOS: iosstoretest.New(now, environment), Android: androidstoretest.New(now, environment), Card: cardprocessortest.New(now, environment),
		A: merchantatest.New(now, environment), B: merchantbtest.New(now, environment),
		base: "/payments",
	}
}

// Config returns a configuration with the five rails on and their return URLs
// set, where they are not set already. Prices of the catalog are made known to
// the stores.
func (s *Stores) Config(cfg payments.Config) payments.Config {
	cfg.Rails = []payments.Rail{s.IOS.Rail(), s.Android.Rail(), s.Card.Rail(), s.A.Rail(), s.B.Rail()}
	urls := make(map[payments.RailID]payments.ReturnURLs)
	for _, rail := range Rails {
		urls[rail] = payments.ReturnURLs{Success: "https://shop.example/thanks", Cancel: "https://shop.example/", Portal: "https://shop.example/"}
		if given, ok := cfg.ReturnURLs[rail]; ok {
			urls[rail] = given
		}
	}
	cfg.ReturnURLs = urls
	for _, product := range cfg.Products {
		s.Card.Price(Order{Product: product}.purchase(payments.RailCardProcessor))
		s.A.Price(Order{Product: product}.purchase(payments.RailMerchantA))
		s.B.Price(Order{Product: product}.purchase(payments.RailMerchantB))
	}
	if cfg.BasePath != "" {
		s.base = cfg.BasePath
	}
	return cfg
}

// Credentials are a block for each rail.
func (s *Stores) Credentials() secrets.Blocks {
	return secrets.Blocks{
		string(payments.RailIOSStore): s.IOS.Credentials(), string(payments.RailAndroidStore): s.Android.Credentials(),
		string(payments.RailCardProcessor): s.Card.Credentials(), string(payments.RailMerchantA): s.A.Credentials(),
		string(payments.RailMerchantB): s.B.Credentials(),
	}
}

// Kit is the part of a composed kit that [Stores.Connect] needs.
type Kit interface {
	http.Handler
	Secrets() *secrets.Secrets
}

// Connect gives the kit the stores' credentials, and the stores the kit to
// deliver to.
func (s *Stores) Connect(ctx context.Context, k Kit) error {
	s.DeliverTo(k)
	_, err := k.Secrets().Rotate(ctx, payments.SecretName, s.Credentials())
	return err
}

// DeliverTo sets the handler that webhooks are posted to.
func (s *Stores) DeliverTo(h http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kit = h
}

// Hold keeps deliveries back until [Stores.Release]: webhooks that are late, or
// with Drop lost.
func (s *Stores) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = true
}

// Drop forgets what is held back.
func (s *Stores) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.waiting = false, nil
}

// Release delivers what was held back, in the order that reorder leaves it in; nil
// keeps the order.
func (s *Stores) Release(reorder func(n int, swap func(i, j int))) error {
	s.mu.Lock()
	s.held = false
	list := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	if reorder != nil {
		reorder(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	}
	for _, each := range list {
		if err := s.post(each.rail, each.Delivery); err != nil {
			return err
		}
	}
	return nil
}

// deliver posts deliveries, or holds them back.
func (s *Stores) deliver(rail payments.RailID, list []script.Delivery) error {
	s.mu.Lock()
	held := s.held
	if held {
		for _, d := range list {
			s.waiting = append(s.waiting, waiting{rail, d})
		}
	}
	s.mu.Unlock()
	if held {
		return nil
	}
	for _, d := range list {
		if err := s.post(rail, d); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stores) post(rail payments.RailID, d script.Delivery) error {
	s.mu.Lock()
	kit := s.kit
	s.mu.Unlock()
	if kit == nil {
		return errors.New("paytest: connect the stores to a kit first")
	}
	recorder := httptest.NewRecorder()
	request := d.Request(s.base + "/webhooks/" + string(rail))
	request.RemoteAddr = "192.0.2.1:443"
	kit.ServeHTTP(recorder, request)
	response := recorder.Result()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("paytest: a delivery of %s returned %d: %s", rail, response.StatusCode, body)
	}
	return nil
}

// Order is an order at a scripted store.
type Order struct {
	// Product is that of the catalog.
	Product payments.Product
	// AccountToken identifies the buyer: [payments.Payments.AccountToken]. Without one the purchase
	// has no subject until a user submits it.
	AccountToken string
	// AmountMinor is 999 by default, in USD.
	AmountMinor int64
	// Period is that of a subscription, by default 30 days.
	Period time.Duration
	// Trial is how long it is free at first.
	Trial    time.Duration
	Quantity int64
	// Shared is a purchase of another member of the family.
	Shared bool
}

func (o Order) purchase(rail payments.RailID) script.Purchase {
	ids := o.Product.Store[rail]
	if o.Product.Kind == payments.KindSubscription && o.Period == 0 {
		o.Period = 30 * 24 * time.Hour
	}
	return script.Purchase{
		ProductID: ids.ProductID, PriceID: ids.PriceID, BasePlanID: ids.BasePlanID, AccountToken: o.AccountToken, AmountMinor: o.AmountMinor,
		Period: o.Period, Trial: o.Trial, Quantity: o.Quantity, Shared: o.Shared,
		Consumable: o.Product.Kind == payments.KindConsumable, NonRenewing: o.Product.Duration > 0,
	}
}

// Purchase is something that was bought at a scripted store.
type Purchase struct {
	Rail payments.RailID
	// ID is the store's: an original transaction, a purchase token, or the id of a
	// subscription, session, transaction or order.
	ID     string
	Order  Order
	stores *Stores
}

// Buy sells something and delivers the webhooks that follow.
func (s *Stores) Buy(rail payments.RailID, o Order) (*Purchase, error) {
	if _, ok := o.Product.Store[rail]; !ok {
		return nil, fmt.Errorf("paytest: %s does not sell %s", rail, o.Product.Key)
	}
	bought := &Purchase{Rail: rail, Order: o, stores: s}
	var out []script.Delivery
	subscribe, buy := s.sellers(rail)
	if o.Product.Kind == payments.KindSubscription {
		bought.ID, out = subscribe(o.purchase(rail))
	} else {
		bought.ID, out = buy(o.purchase(rail))
	}
	return bought, s.deliver(rail, out)
}

type seller = func(script.Purchase) (string, []script.Delivery)

func (s *Stores) sellers(rail payments.RailID) (subscribe, buy seller) {
	switch rail {
	case payments.RailIOSStore:
		return s.IOS.Subscribe, s.IOS.Buy
	case payments.RailAndroidStore:
		return s.Android.Subscribe, s.Android.Buy
	case payments.RailCardProcessor:
		return s.Card.Subscribe, s.Card.Buy
	case payments.RailMerchantA:
		return s.A.Subscribe, s.A.Buy
	default:
		return s.B.Subscribe, s.B.Buy
	}
}

// Complete pays a checkout that the kit made, as its page would, and delivers the
// webhooks that follow. It returns [ErrNoSession] or [ErrPaid], and pays nothing, for a session that
// the store does not know or that is paid; [ErrUnsupported] for a store without checkouts.
func (s *Stores) Complete(rail payments.RailID, sessionID string) error {
	complete := map[payments.RailID]func(string) ([]script.Delivery, error){
		payments.RailCardProcessor: s.Card.Complete, payments.RailMerchantA: s.A.Complete, payments.RailMerchantB: s.B.Complete,
	}[rail]
	if complete == nil {
		return ErrUnsupported
	}
	out, err := complete(sessionID)
	if err != nil {
		return fmt.Errorf("paytest: %s, session %q: %w", rail, sessionID, err)
	}
	return s.deliver(rail, out)
}

// Renew charges the next period.
func (p *Purchase) Renew() error {
	s := p.stores
	return p.act(s.IOS.Renew, s.Android.Renew, s.Card.Renew, s.A.Renew, s.B.Renew)
}

// Grace fails the charge of the next period; access continues until the window ends. The processor
// and the merchants of record report no window of their own.
func (p *Purchase) Grace(until time.Time) error {
	s := p.stores
	return p.act(func(id string) []script.Delivery { return s.IOS.Grace(id, until) },
		func(id string) []script.Delivery { return s.Android.Grace(id, until) }, s.Card.Fail, s.A.Fail, s.B.Fail)
}

// Hold ends access while the charge is still tried.
func (p *Purchase) Hold() error {
	s := p.stores
	return p.act(s.IOS.Hold, s.Android.Hold, s.Card.Hold, s.A.Hold, s.B.Hold)
}

// Recover charges what had failed.
func (p *Purchase) Recover() error {
	s := p.stores
	return p.act(s.IOS.Recover, s.Android.Recover, s.Card.Recover, s.A.Recover, s.B.Recover)
}

// Pause pauses until a time; the zero time is without an end. Of ios_store it is
// [ErrUnsupported].
func (p *Purchase) Pause(until time.Time) error {
	s := p.stores
	pause := func(f func(string, time.Time) []script.Delivery) func(string) []script.Delivery {
		return func(id string) []script.Delivery { return f(id, until) }
	}
	return p.act(nil, pause(s.Android.Pause), pause(s.Card.Pause), pause(s.A.Pause), pause(s.B.Pause))
}

// Resume ends a pause. Of ios_store it is [ErrUnsupported].
func (p *Purchase) Resume() error {
	s := p.stores
	return p.act(nil, s.Android.Resume, s.Card.Resume, s.A.Resume, s.B.Resume)
}

// Cancel ends the purchase with its period.
func (p *Purchase) Cancel() error {
	s := p.stores
	return p.act(s.IOS.Cancel, s.Android.Cancel, s.Card.Cancel, s.A.Cancel, s.B.Cancel)
}

// Uncancel takes a Cancel back.
func (p *Purchase) Uncancel() error {
	s := p.stores
	return p.act(s.IOS.Uncancel, s.Android.Uncancel, s.Card.Uncancel, s.A.Uncancel, s.B.Uncancel)
}

// Expire ends the purchase now.
func (p *Purchase) Expire() error {
	s := p.stores
	return p.act(s.IOS.Expire, s.Android.Expire, s.Card.Expire, s.A.Expire, s.B.Expire)
}

// Refund gives the newest charge back.
func (p *Purchase) Refund() error {
	s := p.stores
	return p.act(p.newest(s.IOS.Refund), s.Android.Refund,
		func(id string) []script.Delivery { return s.Card.Refund(id, 0) },
		func(id string) []script.Delivery { return s.A.Refund(id, 0) },
		func(id string) []script.Delivery { return s.B.Refund(id, 0) })
}

// ReverseRefund takes a refund back: the money stays after all. Of android_store
// it is [ErrUnsupported].
func (p *Purchase) ReverseRefund() error {
	s := p.stores
	return p.act(p.newest(s.IOS.ReverseRefund), nil, s.Card.FailRefund, s.A.FailRefund, s.B.FailRefund)
}

// ChargeBack lets the payer's bank take the newest charge. Of ios_store, which
// knows none, it is [ErrUnsupported].
func (p *Purchase) ChargeBack() error {
	s := p.stores
	return p.act(nil, s.Android.Dispute, s.Card.Dispute, s.A.Dispute, s.B.Dispute)
}

// WinBack gives back what the payer's bank took. Of the stores it is
// [ErrUnsupported].
func (p *Purchase) WinBack() error {
	s := p.stores
	return p.act(nil, nil, s.Card.Win, s.A.Win, s.B.FailRefund)
}

// Upgrade changes to another product at once. At android_store that is another
// purchase, which this one then stands for.
func (p *Purchase) Upgrade(to payments.Product) error {
	s := p.stores
	p.Order.Product = to
	next := p.Order.purchase(p.Rail)
	change := func(f func(string, script.Purchase) []script.Delivery) func(string) []script.Delivery {
		return func(id string) []script.Delivery { return f(id, next) }
	}
	return p.act(change(s.IOS.Upgrade), func(id string) (out []script.Delivery) {
		p.ID, out = s.Android.Upgrade(id, next)
		return out
	}, change(s.Card.Change), change(s.A.Change), change(s.B.Change))
}

// Unshare takes from a family what it shared. Of rails but ios_store it is
// [ErrUnsupported].
func (p *Purchase) Unshare() error {
	return p.act(p.newest(p.stores.IOS.Unshare), nil, nil, nil, nil)
}

// Submission returns the proof that the buyer's client would submit.
func (p *Purchase) Submission() payments.Submission {
	switch p.Rail {
	case payments.RailIOSStore:
		return payments.Submission{SignedTransaction: p.stores.IOS.Signed(p.latest(p.ID))}
	case payments.RailAndroidStore:
		return payments.Submission{PurchaseToken: p.ID, ProductID: p.Order.Product.Store[p.Rail].ProductID}
	default:
		return payments.Submission{SessionID: p.ID}
	}
}

// newest applies to the newest transaction of a subscription of ios_store.
func (p *Purchase) newest(f func(string) []script.Delivery) func(string) []script.Delivery {
	return func(id string) []script.Delivery { return f(p.latest(id)) }
}

func (p *Purchase) latest(id string) string {
	if p.Order.Product.Kind != payments.KindSubscription {
		return id
	}
	return p.stores.IOS.Latest(id)
}

// act lets the purchase's store do something, nil where it cannot, and delivers
// what follows.
func (p *Purchase) act(ios, android, card, a, b func(string) []script.Delivery) error {
	do := map[payments.RailID]func(string) []script.Delivery{payments.RailIOSStore: ios, payments.RailAndroidStore: android,
		payments.RailCardProcessor: card, payments.RailMerchantA: a, payments.RailMerchantB: b}[p.Rail]
	if do == nil {
		return ErrUnsupported
	}
	return p.stores.deliver(p.Rail, do(p.ID))
}
