// Package androidstore is the rail android_store, wire-compatible with the Google
// Play Developer API v3 and its real-time developer notifications, pushed by
// Pub/Sub with a token of OpenID Connect.
//
// The token proves the sender, not the content: a notification only names the purchase whose state
// is then fetched. The transaction id of a purchase is the SHA-256 of its token.
//
// The state shows the newest order of a subscription, and the period that the subscription is in
// or was to be in. What a first order was for is therefore read from the order where that period is
// over, or introductory. For that the service account needs the right to view financial data;
// without it a trial that is first reported after it lapsed is taken for a paid period, which the
// state of it looks like. A change of plan at the full price is told apart for 60 days, as long as
// the store says how an item was replaced; one that is first reported later is credited from its
// second order on.
package androidstore

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kitbackend/kit/internal/proof"
	"github.com/kitbackend/kit/internal/strictjson"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/internal/jws"
	"github.com/kitbackend/kit/payments/internal/outbound"
	"github.com/kitbackend/kit/secrets"
)

const (
	// ID is the id of the rail.
	ID = payments.RailAndroidStore
	// BaseURL is the address of the API.
	BaseURL = "https://androidpublisher.googleapis.com"
	// KeysURL is the address of the public keys of push tokens.
	KeysURL = "https://www.googleapis.com/oauth2/v3/certs"
	// SubscriptionsURL is the page on which users manage their subscriptions.
	SubscriptionsURL = "https://play.google.com/store/account/subscriptions"
	// renewalLeeway covers the day of grace that the store does not report.
	renewalLeeway = 24 * time.Hour
	// clockSkew is how far the clocks of the sender and of the host may differ.
	clockSkew = time.Minute
)

// Options replace addresses and keys of the rail. The zero value is Google's.
type Options struct {
	// BaseURL and KeysURL replace the addresses: https, or http on loopback.
	BaseURL, KeysURL string
	// HTTP makes the requests; nil means a client of the rail's own.
	HTTP *http.Client
}

// New returns the rail. It panics if an address of Options is not https, or http on loopback.
func New(o Options) payments.Rail {
	r := &rail{
		base: outbound.MustBase(ID, o.BaseURL, BaseURL), client: outbound.New(ID, o.HTTP),
		keys: &keys{url: outbound.MustBase(ID, o.KeysURL, KeysURL), client: outbound.New(ID, o.HTTP)},
	}
	return payments.Rail{
		ID: ID,
		Credentials: secrets.Block{
			Name:     string(ID),
			Required: []string{"clientEmail", "privateKey", "tokenUri", "packageName", "pushAudience", "pushServiceAccount"},
			Optional: []string{"pushSubscription"},
		},
		CheckCredentials: checkCredentials,
		ReportsCompleted: true,
		RenewalLeeway:    renewalLeeway,
		Verify:           r.verify,
		Expand:           r.expand,
		Redeem:           r.redeem,
		Fetch:            r.fetch,
		History:          r.history,
		Acknowledge:      r.acknowledge,
		Portal:           portal,
		Pricing:          r.pricing,
		Cancel:           r.cancel,
	}
}

type rail struct {
	base   string
	client *outbound.Client
	keys   *keys
	tokens tokens
}

func checkCredentials(_ payments.StoreEnvironment, fields secrets.Fields) error {
	if _, err := jws.RSAKey(fields["privateKey"].Reveal()); err != nil {
		return outbound.Problem("The privateKey of android_store is not the RSA private key of a service account in PEM.")
	}
	if err := outbound.CheckBase(fields["tokenUri"].Reveal()); err != nil {
		return outbound.Problem("The tokenUri of android_store " + err.Error() + ".")
	}
	for _, name := range []string{"clientEmail", "pushServiceAccount"} {
		if !strings.Contains(fields[name].Reveal(), "@") {
			return outbound.Problem("The " + name + " of android_store is not the address of a service account.")
		}
	}
	return nil
}

// push is the body of a delivery.
type push struct {
	Message struct {
		Data      string `json:"data"`
		MessageID string `json:"messageId"`
		LegacyID  string `json:"message_id"`
	} `json:"message"`
	Subscription string `json:"subscription"`
}

type notification struct {
	PackageName  string `json:"packageName"`
	EventTime    millis `json:"eventTimeMillis"`
	Subscription *struct {
		Type  int    `json:"notificationType"`
		Token string `json:"purchaseToken"`
	} `json:"subscriptionNotification"`
	OneTime *struct {
		Type  int    `json:"notificationType"`
		Token string `json:"purchaseToken"`
	} `json:"oneTimeProductNotification"`
	Voided *struct {
		Token       string `json:"purchaseToken"`
		OrderID     string `json:"orderId"`
		ProductType int    `json:"productType"`
		RefundType  int    `json:"refundType"`
	} `json:"voidedPurchaseNotification"`
	Test *struct{} `json:"testNotification"`
}

// millis are milliseconds as the store writes them: in a text or as a number.
type millis int64

// UnmarshalJSON never fails: a value that cannot be read becomes 0.
func (m *millis) UnmarshalJSON(raw []byte) error {
	n, err := strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if *m = millis(n); err != nil || n < 0 {
		*m = 0
	}
	return nil
}

func (n notification) name() string {
	switch {
	case n.Subscription != nil:
		return "subscription/" + strconv.Itoa(n.Subscription.Type)
	case n.OneTime != nil:
		return "one_time/" + strconv.Itoa(n.OneTime.Type)
	case n.Voided != nil:
		return "voided/" + strconv.Itoa(n.Voided.RefundType)
	case n.Test != nil:
		return "test"
	}
	return "unknown"
}

// claims are those of the token of a push.
type claims struct {
	Issuer        string `json:"iss"`
	Audience      any    `json:"aud"`
	Email         string `json:"email"`
	EmailVerified any    `json:"email_verified"`
	ExpiresAt     int64  `json:"exp"`
	IssuedAt      int64  `json:"iat"`
}

// verify checks the token of a push: any account of the issuer can have a token
// made for any audience, so the account counts as well.
func (r *rail) verify(ctx context.Context, a payments.Access, h http.Header, body []byte) (payments.Delivery, error) {
	token, err := bearer(h)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	var c claims
	if strictjson.Valid(token.Payload) != nil || json.Unmarshal(token.Payload, &c) != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(errors.New("the claims of the token cannot be read"))
	}
	if err := c.check(a); err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	key, err := r.keys.key(ctx, a.Now, token.Header.KeyID)
	if err != nil {
		return payments.Delivery{}, err
	}
	if err := token.VerifyRS256(key); err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	return delivery(body, a)
}

// bearer reads the token of a push.
func bearer(h http.Header) (token jws.Token, err error) {
	header, err := proof.Header(h, "Authorization")
	if err != nil {
		return token, err
	}
	raw, ok := strings.CutPrefix(header, "Bearer ")
	if !ok {
		return token, errors.New("the header Authorization is no bearer token")
	}
	if token, err = jws.Parse(raw, jws.RS256); err == nil && token.Header.KeyID == "" {
		err = jws.ErrMalformed
	}
	return token, err
}

// check returns an error unless claims are those of the configured sender, now.
func (c claims) check(a payments.Access) error {
	audience, _ := c.Audience.(string)
	if c.Issuer != "https://accounts.google.com" && c.Issuer != "accounts.google.com" {
		return errors.New("the issuer of the token is another")
	}
	if audience == "" || audience != a.Credentials["pushAudience"].Reveal() {
		return errors.New("the audience of the token is not the pushAudience of the credentials")
	}
	if c.Email == "" || c.Email != a.Credentials["pushServiceAccount"].Reveal() || c.EmailVerified != true {
		return errors.New("the account of the token is not the pushServiceAccount of the credentials")
	}
	now, skew := a.Now(), int64(clockSkew/time.Second)
	if now.Unix() >= c.ExpiresAt+skew || now.Unix() <= c.IssuedAt-skew || c.ExpiresAt <= c.IssuedAt {
		return fmt.Errorf("the token is valid from %s to %s, and the time here is %s",
			proof.Time(time.Unix(c.IssuedAt, 0)), proof.Time(time.Unix(c.ExpiresAt, 0)), proof.Time(now))
	}
	return nil
}

// delivery reads a push. It refuses a proven body that is no push, because it could not be
// recorded.
func delivery(body []byte, a payments.Access) (payments.Delivery, error) {
	p, n, err := parsePush(body)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(proof.ErrNoEvent)
	}
	id := p.Message.MessageID
	if id == "" {
		id = p.Message.LegacyID
	}
	if id == "" || len(id) > 200 {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(proof.ErrNoEvent)
	}
	if want := a.Credentials["pushSubscription"].Reveal(); want != "" && p.Subscription != want {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(errors.New("the push is of another subscription than the pushSubscription of the credentials"))
	}
	return payments.Delivery{ID: id, Type: n.name(), At: payments.Instant(n.EventTime), Body: body}, nil
}

func parsePush(body []byte) (p push, n notification, err error) {
	if err := strictjson.Valid(body); err != nil {
		return p, n, err
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, n, err
	}
	data, err := base64.StdEncoding.DecodeString(p.Message.Data)
	if err != nil {
		return p, n, err
	}
	if err := strictjson.Valid(data); err != nil {
		return p, n, err
	}
	return p, n, json.Unmarshal(data, &n)
}

// expand fetches the purchase that a notification names.
func (r *rail) expand(ctx context.Context, a payments.Access, d payments.Delivery) ([]payments.Observation, error) {
	_, n, err := parsePush(d.Body)
	if err != nil {
		return nil, payments.ErrInvalidReceipt.Because(err)
	}
	if n.PackageName != a.Credentials["packageName"].Reveal() {
		return nil, payments.ErrAppMismatch
	}
	switch {
	case n.Subscription != nil:
		return r.subscriptionChanged(ctx, a, n)
	case n.OneTime != nil:
		return r.product(ctx, a, n.OneTime.Token)
	case n.Voided != nil:
		return r.voided(ctx, a, n)
	}
	return nil, nil
}

// notificationRevoked is the one type whose meaning the state does not show: an
// expired subscription was revoked.
const notificationRevoked = 12

func (r *rail) subscriptionChanged(ctx context.Context, a payments.Access, n notification) ([]payments.Observation, error) {
	observations, err := r.subscription(ctx, a, n.Subscription.Token)
	if err != nil || n.Subscription.Type != notificationRevoked || observations[0].Lifecycle.State != payments.StateEnded {
		return observations, err
	}
	revoked := observations[0]
	return append(observations, payments.Observation{
		Rail: ID, TransactionID: revoked.TransactionID, Environment: revoked.Environment, Version: max(int64(n.EventTime), 1),
		Revoke: &payments.Revoke{At: payments.Instant(n.EventTime), Reason: "revoked"},
	}), nil
}

// purchaseToken is the form of a purchase token.
var purchaseToken = regexp.MustCompile(`^[0-9A-Za-z._~+/=-]{8,1000}$`)

// key is the id of the purchase of a token.
func key(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// redeem takes the token of a purchase.
func (r *rail) redeem(ctx context.Context, a payments.Access, s payments.Submission) ([]payments.Observation, error) {
	if !purchaseToken.MatchString(s.PurchaseToken) {
		return nil, payments.ErrInvalidReceipt
	}
	var kind payments.ProductKind
	if s.ProductID != "" {
		kind = a.Kind(s.ProductID)
	}
	return r.purchase(ctx, a, s.PurchaseToken, kind)
}

func (r *rail) fetch(ctx context.Context, a payments.Access, ref payments.Ref) ([]payments.Observation, error) {
	if ref.RawRef == "" {
		return nil, payments.ErrPurchaseNotFound
	}
	return r.purchase(ctx, a, ref.RawRef, ref.Kind)
}

// purchase fetches the purchase of a token; if its kind is unknown it may be a subscription or a
// product.
func (r *rail) purchase(ctx context.Context, a payments.Access, token string, kind payments.ProductKind) ([]payments.Observation, error) {
	if kind == payments.KindOneTime || kind == payments.KindConsumable {
		return r.product(ctx, a, token)
	}
	observations, err := r.subscription(ctx, a, token)
	if kind == "" && errors.Is(err, payments.ErrPurchaseNotFound) && !errors.Is(err, errGone) {
		return r.product(ctx, a, token)
	}
	return observations, err
}

func portal(_ context.Context, a payments.Access, _ payments.PortalRequest) (payments.Portal, error) {
	query := url.Values{"package": {a.Credentials["packageName"].Reveal()}}
	return payments.Portal{URL: SubscriptionsURL + "?" + query.Encode()}, nil
}
