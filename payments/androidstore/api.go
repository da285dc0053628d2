package androidstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/jws"
	"github.com/kitbackend/kit/payments/internal/money"
	"github.com/kitbackend/kit/payments/internal/outbound"
)

const (
	scope = "https://www.googleapis.com/auth/androidpublisher"
	// tokenMargin is how long before its expiry an access token is replaced.
	tokenMargin = time.Minute
	// maxVoided is how many voided purchases a page has at most, voidedPages how
	// many pages are read for one of them.
	maxVoided   = 1000
	voidedPages = 3
)

// tokens are access tokens by the service account that they were made for.
type tokens struct {
	mu    sync.Mutex
	known map[[sha256.Size]byte]accessToken
}

type accessToken struct {
	text        string
	made, until time.Time
}

// good reports whether a token can be used. One from the future was made before the clock was set
// back.
func (t accessToken) good(now time.Time) bool { return !now.Before(t.made) && now.Before(t.until) }

// token returns an access token of the service account.
func (r *rail) token(ctx context.Context, a payments.Access) (string, error) {
	c := a.Credentials
	name := sha256.Sum256([]byte(c["clientEmail"].Reveal() + "\n" + c["tokenUri"].Reveal() + "\n" + c["privateKey"].Reveal()))
	r.tokens.mu.Lock()
	known := r.tokens.known[name]
	r.tokens.mu.Unlock()
	if known.good(a.Now()) {
		return known.text, nil
	}
	made, err := r.exchange(ctx, a)
	if err != nil {
		return "", err
	}
	r.tokens.mu.Lock()
	defer r.tokens.mu.Unlock()
	r.tokens.known = map[[sha256.Size]byte]accessToken{name: made} // one account at a time
	return made.text, nil
}

// exchange requests an access token with an assertion signed by the account's key.
func (r *rail) exchange(ctx context.Context, a payments.Access) (accessToken, error) {
	address := a.Credentials["tokenUri"].Reveal()
	if err := outbound.CheckBase(address); err != nil {
		return accessToken{}, outbound.Problem("The tokenUri of android_store " + err.Error() + ".")
	}
	key, err := jws.RSAKey(a.Credentials["privateKey"].Reveal())
	if err != nil {
		return accessToken{}, err
	}
	now := a.Now()
	assertion, err := jws.Sign(key, map[string]any{"typ": "JWT"}, map[string]any{
		"iss": a.Credentials["clientEmail"].Reveal(), "scope": scope, "aud": address,
		"iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	})
	if err != nil {
		return accessToken{}, err
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	var made struct {
		Token     string `json:"access_token"`
		ExpiresIn int64  `json:"expires_in"`
	}
	response, err := r.client.JSON(ctx, outbound.Request{
		Now: a.Now, Method: http.MethodPost, Base: address, Body: []byte(form.Encode()), Repeatable: true,
		Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}},
	}, &made)
	if err == nil && (!response.OK() || made.Token == "") {
		err = r.client.Unexpected(response)
	}
	life := time.Duration(min(max(made.ExpiresIn, 0), 3600)) * time.Second
	return accessToken{made.Token, now, now.Add(life - tokenMargin)}, err
}

// call sends a request about the application; found is false when there is no
// such purchase, or none anymore.
func (r *rail) call(ctx context.Context, a payments.Access, method, path string, query url.Values, into any) (outbound.Response, bool, error) {
	token, err := r.token(ctx, a)
	if err != nil {
		return outbound.Response{}, false, err
	}
	response, err := r.client.JSON(ctx, outbound.Request{
		Now: a.Now, Method: method, Base: r.base, Query: query, Repeatable: true, // acknowledging twice is once
		Path:   "/androidpublisher/v3/applications/" + outbound.Segment(a.Credentials["packageName"].Reveal()) + path,
		Header: http.Header{"Authorization": {"Bearer " + token}},
	}, into)
	return response, err == nil && response.OK(), err
}

// errGone reports an existing purchase that the store no longer shows, because it expired sixty
// days ago.
var errGone = errors.New("the purchase is no longer shown")

// get reads a purchase.
func (r *rail) get(ctx context.Context, a payments.Access, path string, into any) error {
	response, found, err := r.call(ctx, a, http.MethodGet, path, nil, into)
	switch {
	case err != nil || found:
		return err
	case response.Status == http.StatusGone:
		return payments.ErrPurchaseNotFound.Because(errGone)
	case response.Status == http.StatusNotFound, response.Status == http.StatusBadRequest:
		return payments.ErrPurchaseNotFound
	}
	return r.client.Unexpected(response)
}

// subscription fetches one by its token.
func (r *rail) subscription(ctx context.Context, a payments.Access, token string) ([]payments.Observation, error) {
	if !purchaseToken.MatchString(token) {
		return nil, payments.ErrInvalidReceipt
	}
	version, err := a.Version(ctx, key(token))
	if err != nil {
		return nil, err
	}
	var s subscription
	if err := r.get(ctx, a, "/purchases/subscriptionsv2/tokens/"+outbound.Segment(token), &s); err != nil {
		return nil, err
	}
	o := fromSubscription(token, s, version)
	lapsed := o.Lifecycle.State != payments.StateActive || o.Lifecycle.AccessUntil <= payments.At(a.Now())
	for i := range o.Charges {
		c := &o.Charges[i]
		first := lapsed && renewals(c.ID) == 0 && !c.Trial && !c.Proration
		if !first && o.Lifecycle.PeriodType != payments.PeriodIntro {
			continue
		}
		if err := r.ordered(ctx, a, token, c); err != nil {
			return nil, err
		}
	}
	return []payments.Observation{o}, nil
}

// order holds the members of an order that say what was paid.
type order struct {
	Token string `json:"purchaseToken"`
	Items []struct {
		ProductID string  `json:"productId"`
		Total     *amount `json:"total"`
		Details   struct {
			OldPhase string `json:"offerPhase"`
			Phase    struct {
				FreeTrial *struct{} `json:"freeTrialDetails"`
			} `json:"offerPhaseDetails"`
		} `json:"subscriptionDetails"`
	} `json:"lineItems"`
}

// ordered sets what only the order of a charge says: the amount of an introductory period, and
// whether the first order of a subscription whose period is over was for a trial, because the store
// then shows it under the period that was to follow. The charge stays as it is if the credentials
// may not read orders.
func (r *rail) ordered(ctx context.Context, a payments.Access, token string, c *payments.Charge) error {
	var o order
	_, found, err := r.call(ctx, a, http.MethodGet, "/orders/"+outbound.Segment(c.ID), nil, &o)
	if err != nil || !found || o.Token != token {
		return err
	}
	var total int64
	trial, known := true, false
	for _, item := range o.Items {
		if item.ProductID != c.ProductID && !slices.Contains(c.Also, item.ProductID) {
			continue
		}
		known = true
		trial = trial && (item.Details.Phase.FreeTrial != nil || item.Details.OldPhase == "FREE_TRIAL")
		if item.Total != nil {
			total += item.Total.minor()
			c.Currency = money.Currency(item.Total.Currency)
		}
	}
	if known {
		c.Trial, c.AmountMinor = trial, total
	}
	return nil
}

// product fetches a one-time purchase by its token.
func (r *rail) product(ctx context.Context, a payments.Access, token string) ([]payments.Observation, error) {
	if !purchaseToken.MatchString(token) {
		return nil, payments.ErrInvalidReceipt
	}
	version, err := a.Version(ctx, key(token))
	if err != nil {
		return nil, err
	}
	var p product
	if err := r.get(ctx, a, "/purchases/productsv2/tokens/"+outbound.Segment(token), &p); err != nil {
		return nil, err
	}
	return []payments.Observation{fromProduct(token, p, version, a.Kind)}, nil
}

// The values of a notification about a voided purchase.
const (
	productTypeSubscription = 1
	refundTypePart          = 2
)

// voided fetches a voided purchase and the reason. The notification may be the first about the
// purchase.
func (r *rail) voided(ctx context.Context, a payments.Access, n notification) ([]payments.Observation, error) {
	kind := payments.KindOneTime
	if n.Voided.ProductType == productTypeSubscription {
		kind = payments.KindSubscription
	}
	observations, err := r.purchase(ctx, a, n.Voided.Token, kind)
	if errors.Is(err, errGone) && n.Voided.RefundType != refundTypePart {
		observations, err = gone(n.Voided.Token), nil
	}
	if err != nil || n.Voided.RefundType == refundTypePart || n.Voided.OrderID == "" {
		return observations, err // of a part the purchase itself says how much is left
	}
	listed, err := r.listed(ctx, a, n)
	if err != nil {
		return nil, err
	}
	first := &observations[0]
	first.Refunds = append(first.Refunds, void(n.Voided.OrderID, n.EventTime, listed))
	return observations, nil
}

// gone returns an observation of a purchase that the store no longer shows but may still refund. It
// may be a tester's, so the observation counts only for a known purchase.
func gone(token string) []payments.Observation {
	return []payments.Observation{{Rail: ID, TransactionID: key(token), Version: 1, OnlyKnown: true}}
}

// listed finds an order in the list of voided purchases, which may not have it yet.
func (r *rail) listed(ctx context.Context, a payments.Access, n notification) (*voidedPurchase, error) {
	day := millis(24 * time.Hour / time.Millisecond)
	w := payments.Window{Since: payments.Instant(max(n.EventTime-day, 1)), Until: payments.At(a.Now()), Limit: maxVoided}
	for range voidedPages {
		page, next, err := r.voidedPage(ctx, a, w)
		if err != nil {
			return nil, err
		}
		for _, v := range page {
			if v.OrderID == n.Voided.OrderID && v.Token == n.Voided.Token {
				return &v, nil
			}
		}
		if w.Cursor = next; next == "" {
			break
		}
	}
	return nil, nil
}

func (r *rail) voidedPage(ctx context.Context, a payments.Access, w payments.Window) (page []voidedPurchase, next string, err error) {
	query := url.Values{
		"type": {"1"}, "includeQuantityBasedPartialRefund": {"true"},
		"startTime":  {strconv.FormatInt(int64(w.Since), 10)},
		"endTime":    {strconv.FormatInt(int64(w.Until), 10)},
		"maxResults": {strconv.Itoa(min(max(w.Limit, 1), maxVoided))},
	}
	if w.Cursor != "" {
		query.Set("token", w.Cursor)
	}
	var response struct {
		Voided     []voidedPurchase `json:"voidedPurchases"`
		Pagination struct {
			Next string `json:"nextPageToken"`
		} `json:"tokenPagination"`
	}
	said, found, err := r.call(ctx, a, http.MethodGet, "/purchases/voidedpurchases", query, &response)
	if err == nil && !found {
		err = r.client.Unexpected(said)
	}
	return response.Voided, response.Pagination.Next, err
}

// The store lists voided purchases of 30 days. A page is small enough for each of
// its purchases to be fetched within the deadline of a call.
const (
	historyAge  = 30 * 24 * time.Hour
	historyPage = 20
)

// history reads the voided purchases of a window. It fetches each to learn its environment, and
// omits one that the store does not find.
func (r *rail) history(ctx context.Context, a payments.Access, w payments.Window) (payments.HistoryPage, error) {
	w.Limit = min(max(w.Limit, 1), historyPage)
	w.Since = max(w.Since, payments.At(a.Now().Add(time.Hour-historyAge)))
	voided, next, err := r.voidedPage(ctx, a, w)
	if err != nil {
		return payments.HistoryPage{}, err
	}
	page := payments.HistoryPage{Next: next}
	for _, v := range voided {
		observations, err := r.purchase(ctx, a, v.Token, "")
		if errors.Is(err, errGone) && v.Quantity == 0 {
			observations, err = gone(v.Token), nil
		}
		if errors.Is(err, payments.ErrPurchaseNotFound) || errors.Is(err, payments.ErrInvalidReceipt) {
			continue
		}
		if err != nil {
			return payments.HistoryPage{}, err
		}
		if v.Quantity == 0 { // of a part the purchase itself says how much is left
			observations[0].Refunds = append(observations[0].Refunds, void(v.OrderID, v.At, &v))
		}
		page.Observations = append(page.Observations, observations...)
	}
	return page, nil
}

// acknowledge tells the store that a purchase was delivered; a consumable can be
// bought again then. A repetition is no error.
func (r *rail) acknowledge(ctx context.Context, a payments.Access, ref payments.Ref) error {
	if ref.RawRef == "" || ref.ProductID == "" {
		return payments.ErrPurchaseNotFound
	}
	path, verb := "/purchases/products/", ":acknowledge"
	if ref.Kind == payments.KindConsumable {
		verb = ":consume"
	}
	if ref.Kind == payments.KindSubscription {
		path = "/purchases/subscriptions/"
	}
	path += outbound.Segment(ref.ProductID) + "/tokens/" + outbound.Segment(ref.RawRef) + verb
	response, done, err := r.call(ctx, a, http.MethodPost, path, nil, nil)
	switch {
	case err != nil || done:
		return err
	case response.Status == http.StatusNotFound || response.Status == http.StatusGone:
		return payments.ErrPurchaseNotFound
	}
	observations, err := r.purchase(ctx, a, ref.RawRef, ref.Kind)
	if err != nil {
		return err
	}
	if observations[0].NeedsAcknowledge {
		return r.client.Unexpected(response)
	}
	return nil
}

func (r *rail) pricing(ctx context.Context, a payments.Access, ref payments.Ref) (payments.Price, error) {
	observations, err := r.fetch(ctx, a, ref)
	if err != nil {
		return payments.Price{}, err
	}
	if observations[0].Price == nil {
		return payments.Price{}, payments.ErrPurchaseNotFound
	}
	return *observations[0].Price, nil
}

// cancel lets a subscription end with its period.
func (r *rail) cancel(ctx context.Context, a payments.Access, ref payments.Ref) error {
	observations, err := r.fetch(ctx, a, ref)
	if err != nil {
		return err
	}
	l := observations[0].Lifecycle
	if !l.WillRenew || l.State == payments.StateEnded {
		return nil
	}
	path := "/purchases/subscriptions/" + outbound.Segment(l.ProductID) + "/tokens/" + outbound.Segment(ref.RawRef) + ":cancel"
	response, done, err := r.call(ctx, a, http.MethodPost, path, nil, nil)
	if err == nil && !done {
		err = r.client.Unexpected(response)
	}
	return err
}
