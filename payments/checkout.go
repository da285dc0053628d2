package payments

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// BuyRequest is the request of a checkout.
type BuyRequest struct {
	Rail       RailID
	ProductKey string
	// DiscountCode is the code of a discount that [Payments.CreateDiscount] made at the rail, ""
	// for none.
	DiscountCode string
	// Quantity is 1 to [MaxQuantity], and 1 for a subscription and at merchant_b; 0 means 1.
	Quantity int64
	// IdempotencyKey makes a repeated request one checkout, of the same CheckoutID, at a rail that
	// takes such keys. A different request under the same key is a checkout of its own.
	IdempotencyKey string
}

// MaxQuantity bounds the quantity of one checkout.
const MaxQuantity = 1000

// Bought is the result of a checkout: a page where the user pays.
type Bought struct {
	Rail       RailID           `json:"rail"`
	CheckoutID string           `json:"checkoutId"`
	SessionID  string           `json:"sessionId"`
	URL        string           `json:"url"`
	ExpiresAt  *capability.Time `json:"expiresAt"`
}

// Checkout makes a page where a user pays for the subject. Nothing is granted before the rail
// reports the payment. Refuses with payments/product_not_found, product_unavailable,
// checkout_unsupported, already_subscribed, rail_not_enabled, rail_not_configured, rail_unavailable
// and billing_denied, and with auth/unauthenticated where the user is erased meanwhile.
func (p *Payments) Checkout(ctx context.Context, userID string, b BuyRequest) (Bought, error) {
	var none Bought
	subject, err := p.manager(ctx, userID)
	if err != nil {
		return none, err
	}
	rail, err := p.on(b.Rail)
	if err != nil {
		return none, err
	}
	product, ok := p.catalog.byKey[b.ProductKey]
	switch {
	case b.ProductKey == "":
		return none, capability.ErrInvalidRequest.Saying("productKey is missing.")
	case !ok:
		return none, ErrProductNotFound
	case rail.Rail.Checkout == nil:
		return none, ErrCheckoutUnsupported
	}
	ids, ok := product.Store[rail.ID]
	if !ok {
		return none, ErrProductUnavailable
	}
	if b.Quantity < 0 || b.Quantity > MaxQuantity || b.Quantity > 1 && product.Kind == KindSubscription {
		return none, capability.ErrInvalidRequest.Saying("quantity is 1 to %d, and 1 for a subscription.", MaxQuantity)
	}
	if err := capability.CheckText("Idempotency-Key", b.IdempotencyKey, 0, 255); err != nil {
		return none, err
	}
	if has, err := p.store.subscribed(ctx, subject, product.Key, At(p.host.Now())); err != nil || has {
		if err == nil {
			err = ErrAlreadySubscribed
		}
		return none, err
	}
	urls := p.cfg.ReturnURLs[rail.ID]
	request := CheckoutRequest{Product: product, Store: ids, Quantity: max(b.Quantity, 1), Success: urls.Success, Cancel: urls.Cancel}
	if request.DiscountID, request.DiscountCode, err = p.discountID(ctx, rail.ID, b.DiscountCode); err != nil {
		return none, err
	}
	if b.IdempotencyKey != "" { // a rail refuses a key that was used for another request
		b.IdempotencyKey += string(content(request))
	}
	request.IdempotencyKey = keyFor(subject, "checkout", b.IdempotencyKey)
	if request.AccountToken, err = p.AccountToken(ctx, subject); err != nil {
		return none, err
	}
	if request.CustomerID, err = p.customerOf(ctx, rail, subject); err != nil {
		return none, err
	}
	made, err := p.makeCheckout(ctx, rail, request)
	if err != nil {
		return none, err
	}
	return p.keepCheckout(ctx, rail, subject, request.AccountToken, product, made)
}

func (p *Payments) makeCheckout(ctx context.Context, rail *rail, request CheckoutRequest) (Checkout, error) {
	access, err := p.access(ctx, rail)
	if err != nil {
		return Checkout{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	made, err := rail.Rail.Checkout(ctx, access, request)
	if err != nil {
		return Checkout{}, p.unavailable(ctx, rail, err)
	}
	return made, nil
}

// keepCheckout stores the subject and the customer of a session. A session that the rail returned
// before, for the same Idempotency-Key, is the checkout that it was then.
func (p *Payments) keepCheckout(ctx context.Context, rail *rail, subject Subject, token string, product Product, made Checkout) (Bought, error) {
	bought := Bought{Rail: rail.ID, SessionID: made.SessionID, URL: made.URL, ExpiresAt: optional.Time(made.ExpiresAt)}
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		if made.CustomerID != "" && !rail.CustomersByEmail {
			if err := p.store.addCustomer(ctx, rail.ID, made.CustomerID, subject); err != nil {
				return err
			}
		}
		// What applies purchases shares the subject's key, which this lock lets it, and then locks
		// customers: so customers come first here too.
		if there, err := p.store.lockSubject(ctx, subject, token); err != nil || !there {
			return cmp.Or(err, error(capability.ErrUnauthenticated))
		}
		known, ok, err := p.store.checkoutOf(ctx, rail.ID, made.SessionID, subject)
		if err != nil || ok {
			bought.CheckoutID = known
			return err
		}
		bought.CheckoutID = id.New(p.host.DB.Now(ctx))
		if err := p.store.insertCheckout(ctx, bought.CheckoutID, rail.ID, made.SessionID, subject, product.Key); err != nil {
			return err
		}
		return p.audit.Record(ctx, audit.Event{Action: "payments/checkout_created", Subject: target(subject),
			Detail: map[string]any{"rail": rail.ID, "product": product.Key}})
	})
	return bought, err
}

// keyFor makes an idempotency key of a subject's own; a fresh one where none was
// given.
func keyFor(subject Subject, what, key string) string {
	if key == "" {
		return newToken()
	}
	sum := sha256.Sum256([]byte(what + "\x00" + string(subject.Type) + "\x00" + subject.ID + "\x00" + key))
	return hex.EncodeToString(sum[:])
}

func (p *Payments) discountID(ctx context.Context, rail RailID, code string) (externalID, sameCode string, err error) {
	if code == "" {
		return "", "", nil
	}
	if err := capability.CheckText("discountCode", code, 1, maxCode); err != nil {
		return "", "", err
	}
	known, ok, err := p.store.discount(ctx, rail, code)
	if err == nil && !ok {
		err = capability.ErrInvalidRequest.Saying("There is no such discount at this rail.")
	}
	return known.externalID, code, err
}

// Opened is the result of [Payments.Portal]: a page where a customer manages purchases.
type Opened struct {
	Rail RailID `json:"rail"`
	URL  string `json:"url"`
}

// Portal makes a page where a user manages the subject's purchases; an empty rail means that of the
// newest purchase. Refuses with payments/customer_not_found, portal_unsupported, rail_not_enabled,
// rail_not_configured, rail_unavailable and billing_denied.
func (p *Payments) Portal(ctx context.Context, userID string, id RailID) (Opened, error) {
	subject, err := p.manager(ctx, userID)
	if err != nil {
		return Opened{}, err
	}
	if id == "" {
		rows, err := p.store.purchases(ctx, PurchaseFilter{Subject: subject}, At(p.host.Now()), "", 1)
		if err != nil {
			return Opened{}, err
		}
		if len(rows) == 0 {
			return Opened{}, ErrCustomerNotFound
		}
		id = rows[0].rail
	}
	rail, err := p.on(id)
	if err != nil {
		return Opened{}, err
	}
	if rail.Rail.Portal == nil {
		return Opened{}, ErrPortalUnsupported
	}
	request := PortalRequest{Return: p.cfg.ReturnURLs[rail.ID].Portal}
	if request.CustomerID, err = p.customerOf(ctx, rail, subject); err != nil {
		return Opened{}, err
	}
	if request.AccountToken, err = p.AccountToken(ctx, subject); err != nil {
		return Opened{}, err
	}
	if rail.CustomersByEmail {
		if err := p.checkCustomer(ctx, rail, subject, request); err != nil {
			return Opened{}, err
		}
	}
	access, err := p.access(ctx, rail)
	if err != nil {
		return Opened{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	portal, err := rail.Rail.Portal(ctx, access, request)
	if err != nil {
		return Opened{}, p.unavailable(ctx, rail, err)
	}
	return Opened{rail.ID, portal.URL}, nil
}

// checkCustomer refuses a customer that has purchases of others, those not reported yet included,
// because a portal shows and changes all of them.
func (p *Payments) checkCustomer(ctx context.Context, rail *rail, subject Subject, r PortalRequest) error {
	if r.CustomerID == "" {
		return ErrCustomerNotFound
	}
	var found Restored
	err := p.restoreOfCustomer(ctx, rail, subject, r.AccountToken, r.CustomerID, &found)
	if err == nil && len(found.Skipped) > 0 {
		err = ErrCustomerNotFound
	}
	return err
}

// Pricing holds the prices of a subject's subscriptions and when they change.
type Pricing struct {
	Subscriptions []Subscription `json:"subscriptions"`
}

// Subscription is a renewing purchase with its price.
type Subscription struct {
	PurchaseID       string           `json:"purchaseId"`
	Rail             RailID           `json:"rail"`
	ProductKey       string           `json:"productKey"`
	Status           Status           `json:"status"`
	Currency         string           `json:"currency"`
	AmountMinor      int64            `json:"amountMinor"`
	Interval         string           `json:"interval"`
	CurrentPeriodEnd *capability.Time `json:"currentPeriodEnd"`
	Renews           bool             `json:"renews"`
	Next             *NextTerms       `json:"next"`
	Discount         *string          `json:"discount"`
	// Subject is the owner; users do not see it.
	Subject *Subject `json:"subject,omitempty"`
}

// NextTerms are the price and terms of a subscription after its next change.
type NextTerms struct {
	AmountMinor     int64            `json:"amountMinor"`
	Currency        string           `json:"currency"`
	ProductKey      string           `json:"productKey"`
	EffectiveAt     *capability.Time `json:"effectiveAt"`
	RequiresConsent bool             `json:"requiresConsent"`
	ConsentState    string           `json:"consentState"`
}

// maxPriced bounds how many subscriptions of one subject are priced.
const maxPriced = 20

// Pricing returns the current prices of the subscriptions of a user's subject; for a rail that is
// unavailable, the last known ones.
func (p *Payments) Pricing(ctx context.Context, userID string) (Pricing, error) {
	out := Pricing{Subscriptions: []Subscription{}}
	subject, _, err := p.subjectOf(ctx, userID)
	if err != nil {
		return out, err
	}
	now := At(p.host.Now())
	rows, err := p.store.purchases(ctx, PurchaseFilter{Subject: subject, Kind: KindSubscription}, now, "", 200)
	if err != nil {
		return out, err
	}
	asking, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	for _, r := range rows {
		switch r.at(now, true).Status {
		case StatusActive, StatusInGrace, StatusOnHold, StatusCanceled, StatusPaused:
			if len(out.Subscriptions) < maxPriced {
				out.Subscriptions = append(out.Subscriptions, p.priced(r, p.priceNow(asking, r), now, false))
			}
		default:
		}
	}
	return out, nil
}

// priceNow fetches the price from the rail, and falls back to the last known one.
func (p *Payments) priceNow(ctx context.Context, r *row) *Price {
	rail := p.rails[r.rail]
	if rail == nil || rail.Rail.Pricing == nil {
		return r.facts.Price.Value
	}
	access, err := p.access(ctx, rail)
	if err != nil {
		return r.facts.Price.Value
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	price, err := rail.Rail.Pricing(ctx, access, r.ref())
	if err != nil {
		return r.facts.Price.Value
	}
	return &price
}

func (p *Payments) priced(r *row, price *Price, now Instant, admin bool) Subscription {
	s := r.at(now, !p.cfg.NoGraceAccess)
	out := Subscription{PurchaseID: r.id, Rail: r.rail, ProductKey: r.productKey, Status: s.Status, CurrentPeriodEnd: optional.Time(s.AccessUntil), Renews: s.WillRenew}
	if admin && r.subject != (Subject{}) {
		out.Subject = &r.subject
	}
	if price == nil {
		return out
	}
	out.Currency, out.AmountMinor, out.Interval = price.Currency, price.AmountMinor, price.Interval
	if price.Discount != "" {
		out.Discount = &price.Discount
	}
	if n := price.Next; n != nil {
		out.Next = &NextTerms{AmountMinor: n.AmountMinor, Currency: n.Currency, ProductKey: r.productKey, EffectiveAt: optional.Time(n.At),
			RequiresConsent: n.RequiresConsent, ConsentState: n.ConsentState}
		if product, ok := p.catalog.find(r.rail, n.ProductID, "", n.ProductID); ok {
			out.Next.ProductKey = product.Key
		}
	}
	return out
}

// ListSubscriptions lists renewing purchases with their prices, newest first.
func (p *Payments) ListSubscriptions(ctx context.Context, f PurchaseFilter, page capability.Page) (capability.Items[Subscription], error) {
	page = page.Bounded()
	f.Kind = KindSubscription
	rows, now, err := p.rows(ctx, f, page)
	if err != nil {
		return capability.Items[Subscription]{}, err
	}
	list := make([]Subscription, len(rows))
	for i, r := range rows {
		list[i] = p.priced(r, r.facts.Price.Value, now, true)
	}
	return capability.Paged(page, list, func(s Subscription) []any { return []any{s.PurchaseID} }), nil
}

// Discount is a discount code at one rail.
type Discount struct {
	ID         string `json:"id"`
	Rail       RailID `json:"rail"`
	ExternalID string `json:"externalId"`
	DiscountTerms
	CreatedAt capability.Time `json:"createdAt"`
}

// DiscountTerms are the terms of a discount.
type DiscountTerms struct {
	// Code is 1 to 64 letters, digits, "_" and "-".
	Code string       `json:"code"`
	Kind DiscountKind `json:"kind"`
	// PercentBasisPoints is 1 to 10,000 for a percentage discount; AmountMinor and Currency are set
	// for a fixed one.
	PercentBasisPoints int64            `json:"percentBasisPoints,omitempty"`
	AmountMinor        int64            `json:"amountMinor,omitempty"`
	Currency           string           `json:"currency,omitempty"`
	Duration           DiscountDuration `json:"duration"`
	// Months is 1 to 120 for a repeating discount. At merchant_a, which knows no months, it is the
	// number of billing periods.
	Months         int64            `json:"months,omitempty"`
	MaxRedemptions int64            `json:"maxRedemptions,omitempty"`
	EndsAt         *capability.Time `json:"endsAt,omitempty"`
	ProductKeys    []string         `json:"productKeys,omitempty"`
}

const maxCode = 64

var (
	codeForm  = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	moneyForm = regexp.MustCompile(`^[A-Z]{3}$`)
)

// CreateDiscount makes a discount at a rail. Refuses with
// payments/discount_unsupported, discount_conflict, product_not_found,
// product_unavailable, rail_not_enabled, rail_not_configured and
// rail_unavailable.
func (p *Payments) CreateDiscount(ctx context.Context, id RailID, d DiscountTerms) (Discount, error) {
	var none Discount
	rail, err := p.on(id)
	if err != nil {
		return none, err
	}
	if rail.Rail.CreateDiscount == nil {
		return none, ErrDiscountUnsupported
	}
	request, err := p.discountRequest(rail, d)
	if err != nil {
		return none, err
	}
	if _, taken, err := p.store.discount(ctx, id, d.Code); err != nil || taken {
		if err == nil {
			err = ErrDiscountConflict
		}
		return none, err
	}
	access, err := p.access(ctx, rail)
	if err != nil {
		return none, err
	}
	asking, cancel := context.WithTimeout(ctx, p.budget)
	defer cancel()
	externalID, err := rail.Rail.CreateDiscount(asking, access, request)
	if err != nil {
		return none, p.unavailable(ctx, rail, err)
	}
	return p.keepDiscount(ctx, rail.ID, externalID, d)
}

func (p *Payments) keepDiscount(ctx context.Context, rail RailID, externalID string, d DiscountTerms) (Discount, error) {
	var kept discountRow
	err := p.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := p.host.DB.Now(ctx)
		kept = discountRow{id: id.New(now), rail: rail, externalID: externalID, code: d.Code, terms: string(content(d)), createdAt: At(now)}
		if ok, err := p.store.insertDiscount(ctx, kept); err != nil || !ok {
			if err == nil {
				err = ErrDiscountConflict
			}
			return err
		}
		return p.audit.Record(ctx, audit.Event{Action: "payments/discount_created", Subject: audit.Target{Type: "discount", ID: kept.id},
			Detail: map[string]any{"rail": rail, "code": d.Code}})
	})
	return kept.wire(), err
}

func (d discountRow) wire() Discount {
	out := Discount{ID: d.id, Rail: d.rail, ExternalID: d.externalID, CreatedAt: capability.Millis(int64(d.createdAt))}
	_ = json.Unmarshal([]byte(d.terms), &out.DiscountTerms) // written by keepDiscount
	return out
}

// discountRequest checks the terms of a discount.
func (p *Payments) discountRequest(rail *rail, d DiscountTerms) (DiscountRequest, error) {
	bad := capability.ErrInvalidRequest
	r := DiscountRequest{Code: d.Code, Kind: d.Kind, PercentBasisPoints: d.PercentBasisPoints, AmountMinor: d.AmountMinor, Currency: d.Currency,
		Duration: d.Duration, Months: d.Months, MaxRedemptions: d.MaxRedemptions,
		IdempotencyKey: keyFor(Subject{"discount", string(rail.ID)}, "discount", d.Code+string(content(d)))}
	if !codeForm.MatchString(d.Code) {
		return r, bad.Saying("code is 1 to %d letters, digits, _ and -.", maxCode)
	}
	switch d.Kind {
	case DiscountPercentage:
		if d.PercentBasisPoints < 1 || d.PercentBasisPoints > whole || d.AmountMinor != 0 || d.Currency != "" {
			return r, bad.Saying("A percentage has percentBasisPoints from 1 to %d, and no amount.", whole)
		}
	case DiscountFixed:
		if d.AmountMinor < 1 || d.AmountMinor > maxCredit || !moneyForm.MatchString(d.Currency) || d.PercentBasisPoints != 0 {
			return r, bad.Saying("A fixed discount has amountMinor above 0 and a currency of three capital letters, and no percentage.")
		}
	default:
		return r, bad.Saying("kind is percentage or fixed.")
	}
	switch {
	case d.Duration != DurationOnce && d.Duration != DurationForever && d.Duration != DurationRepeating:
		return r, bad.Saying("duration is once, forever or repeating.")
	case (d.Duration == DurationRepeating) != (d.Months >= 1 && d.Months <= 120):
		return r, bad.Saying("A repeating discount, and no other, has months from 1 to 120.")
	case d.MaxRedemptions < 0 || d.MaxRedemptions > 1<<31:
		return r, bad.Saying("maxRedemptions is not a count.")
	case len(d.ProductKeys) > 100:
		return r, bad.Saying("At most 100 products.")
	}
	if d.EndsAt != nil {
		if r.EndsAt = At(d.EndsAt.Time); !d.EndsAt.After(p.host.Now()) {
			return r, bad.Saying("endsAt is not in the future.")
		}
	}
	for _, key := range d.ProductKeys {
		product, ok := p.catalog.byKey[key]
		if !ok {
			return r, ErrProductNotFound
		}
		ids, ok := product.Store[rail.ID]
		if !ok {
			return r, ErrProductUnavailable
		}
		r.ProductIDs = append(r.ProductIDs, ids)
	}
	return r, nil
}

// ListDiscounts lists the discounts that [Payments.CreateDiscount] made, newest first, optionally
// of one rail.
func (p *Payments) ListDiscounts(ctx context.Context, rail RailID, page capability.Page) (capability.Items[Discount], error) {
	page = page.Bounded()
	var before string
	if _, err := page.After(&before); err != nil {
		return capability.Items[Discount]{}, err
	}
	rows, err := p.store.discounts(ctx, rail, before, page.Limit+1)
	if err != nil {
		return capability.Items[Discount]{}, err
	}
	list := make([]Discount, len(rows))
	for i, d := range rows {
		list[i] = d.wire()
	}
	return capability.Paged(page, list, func(d Discount) []any { return []any{d.ID} }), nil
}
