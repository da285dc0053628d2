// Package iosstore is the rail ios_store, wire-compatible with the App Store
// Server API and App Store Server Notifications V2.
//
// Only data that Apple has signed is used: a signature is ES256 with exactly three certificates in
// its header, of which the first two lead to the pinned root and carry Apple's extensions, and what
// it signs names this app and an environment of the store. Transactions that Xcode makes are signed
// by nobody and never accepted.
//
// App Review and TestFlight buy in the sandbox, from the app that users get: a
// production deployment refuses what they buy. Point the build under review to a
// deployment of another environment.
package iosstore

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
	ID = payments.RailIOSStore
	// BaseURL is the address of the API.
	BaseURL = "https://api.storekit.apple.com"
	// SandboxURL is the address of the API for tests.
	SandboxURL = "https://api.storekit-sandbox.apple.com"
	// SubscriptionsURL is the page on which users manage their subscriptions.
	SubscriptionsURL = "https://apps.apple.com/account/subscriptions"
	// maxBody bounds a notification.
	maxBody = jws.MaxSize + 1<<10
)

// Options replace address and roots of the rail. The zero value is Apple's.
type Options struct {
	// BaseURL replaces the address of the API: https, or http on loopback.
	BaseURL string
	// HTTP makes the requests; nil means a client of the rail's own.
	HTTP *http.Client
	// Roots replace [AppleRoot], for tests.
	Roots []*x509.Certificate
}

// New returns the rail. It panics if Options.BaseURL is not https, or http on loopback.
func New(o Options) payments.Rail {
	if len(o.Roots) == 0 {
		o.Roots = []*x509.Certificate{AppleRoot()}
	}
	r := &rail{client: outbound.New(ID, o.HTTP), verifier: newVerifier(o.Roots)}
	r.production = outbound.MustBase(ID, o.BaseURL, BaseURL)
	r.sandbox = outbound.MustBase(ID, o.BaseURL, SandboxURL)
	return payments.Rail{
		ID: ID,
		Credentials: secrets.Block{
			Name: string(ID), Required: []string{"issuerId", "keyId", "privateKey", "bundleId", "appAppleId"},
		},
		CheckCredentials: checkCredentials,
		ReportsCompleted: true,
		Verify:           r.verify,
		Expand:           r.expand,
		Redeem:           r.redeem,
		Fetch:            r.fetch,
		History:          r.history,
		Portal: func(context.Context, payments.Access, payments.PortalRequest) (payments.Portal, error) {
			return payments.Portal{URL: SubscriptionsURL}, nil
		},
		Pricing: r.pricing,
	}
}

type rail struct {
	production, sandbox string
	client              *outbound.Client
	verifier            *verifier
}

func checkCredentials(_ payments.StoreEnvironment, fields secrets.Fields) error {
	if _, err := jws.ECKey(fields["privateKey"].Reveal()); err != nil {
		return outbound.Problem("The privateKey of ios_store is not a private key on P-256 in PEM, as in the .p8 file.")
	}
	if id, err := strconv.ParseInt(fields["appAppleId"].Reveal(), 10, 64); err != nil || id <= 0 {
		return outbound.Problem("The appAppleId of ios_store is not the number of an app.")
	}
	return nil
}

// notification is what is read of a decoded payload.
type notification struct {
	Type       string `json:"notificationType"`
	Subtype    string `json:"subtype"`
	UUID       string `json:"notificationUUID"`
	SignedDate int64  `json:"signedDate"`
	Data       *struct {
		app
		Status      int    `json:"status"`
		Transaction string `json:"signedTransactionInfo"`
		Renewal     string `json:"signedRenewalInfo"`
	} `json:"data"`
	Summary  *app      `json:"summary"`
	AppData  *app      `json:"appData"`
	External *external `json:"externalPurchaseToken"`
}

// external is a purchase outside of the store, which says its environment by its
// id alone.
type external struct {
	app
	ID string `json:"externalPurchaseId"`
}

func (e external) named() app {
	e.Environment = "Production"
	if strings.HasPrefix(e.ID, "SANDBOX") {
		e.Environment = "Sandbox"
	}
	return e.app
}

// app identifies an application and environment.
type app struct {
	Environment string      `json:"environment"`
	BundleID    string      `json:"bundleId"`
	AppleID     json.Number `json:"appAppleId"`
}

// of returns the application that a notification is for.
func (n notification) of() (app, bool) {
	switch {
	case n.Data != nil:
		return n.Data.app, true
	case n.Summary != nil:
		return *n.Summary, true
	case n.AppData != nil:
		return *n.AppData, true
	case n.External != nil:
		return n.External.named(), true
	}
	return app{}, false
}

// environment maps the store's name; ok is false for what no store signs, such as
// Xcode and LocalTesting.
func environment(name string) (e payments.StoreEnvironment, ok bool) {
	switch name {
	case "Production":
		return payments.EnvironmentProduction, true
	case "Sandbox":
		return payments.EnvironmentSandbox, true
	}
	return payments.EnvironmentOther, false
}

// errApp reports a payload that is signed for another application or environment.
var errApp = errors.New("iosstore: signed for another application")

// check returns the environment of what is of the application of the credentials,
// errApp for anything else. The sandbox does not know the number of an app.
func (p app) check(fields secrets.Fields) (payments.StoreEnvironment, error) {
	e, ok := environment(p.Environment)
	if !ok || p.BundleID == "" || p.BundleID != fields["bundleId"].Reveal() {
		return "", errApp
	}
	if e == payments.EnvironmentProduction && p.AppleID.String() != fields["appAppleId"].Reveal() {
		return "", errApp
	}
	return e, nil
}

// verify checks the signature of a notification, whose certificates must be valid
// now, and that it is for this application. Every holder of an app can have
// Apple sign notifications for that app.
func (r *rail) verify(_ context.Context, a payments.Access, _ http.Header, body []byte) (payments.Delivery, error) {
	raw, ok := signedPayload(body)
	if !ok {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(errors.New("the body has no signedPayload"))
	}
	payload, err := r.verifier.payload(raw, a.Now())
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	d, err := delivery(payload, a)
	if err != nil {
		return payments.Delivery{}, payments.ErrInvalidSignature.Because(err)
	}
	d.Body = body
	return d, nil
}

func signedPayload(body []byte) (string, bool) {
	var envelope struct {
		SignedPayload string `json:"signedPayload"`
	}
	if len(body) > maxBody || strictjson.Valid(body) != nil || json.Unmarshal(body, &envelope) != nil {
		return "", false
	}
	return envelope.SignedPayload, true
}

func delivery(payload []byte, a payments.Access) (payments.Delivery, error) {
	n, err := parseNotification(payload)
	if err != nil {
		return payments.Delivery{}, err
	}
	of, ok := n.of()
	if !ok || n.UUID == "" || len(n.UUID) > 200 {
		return payments.Delivery{}, proof.ErrNoEvent
	}
	e, err := of.check(a.Credentials)
	if err != nil {
		return payments.Delivery{}, err
	}
	name := n.Type
	if n.Subtype != "" {
		name += "/" + n.Subtype
	}
	return payments.Delivery{ID: n.UUID, Type: name, At: payments.Instant(n.SignedDate), Environment: e}, nil
}

func parseNotification(payload []byte) (n notification, err error) {
	if err := strictjson.Valid(payload); err != nil {
		return n, err
	}
	return n, json.Unmarshal(payload, &n)
}

// expand reads the signed transaction and renewal of a notification. The outer
// signature was verified when it came; the inner ones are verified as of when
// they were signed.
func (r *rail) expand(_ context.Context, a payments.Access, d payments.Delivery) ([]payments.Observation, error) {
	raw, ok := signedPayload(d.Body)
	if !ok {
		return nil, payments.ErrInvalidReceipt
	}
	token, err := jws.Parse(raw, jws.ES256)
	if err != nil {
		return nil, payments.ErrInvalidReceipt.Because(err)
	}
	n, err := parseNotification(token.Payload)
	if err != nil {
		return nil, payments.ErrInvalidReceipt.Because(err)
	}
	if n.Data == nil || n.Data.Transaction == "" {
		return nil, nil
	}
	t, err := r.transaction(n.Data.Transaction, a)
	if err != nil {
		return nil, err
	}
	if t.Environment != n.Data.Environment {
		return nil, payments.ErrEnvironmentMismatch
	}
	var renewing *renewal
	if n.Data.Renewal != "" {
		read, err := r.renewal(n.Data.Renewal, a)
		if err != nil {
			return nil, err
		}
		if read.Environment != n.Data.Environment {
			return nil, payments.ErrEnvironmentMismatch
		}
		renewing = &read
	}
	observations := fromTransaction(t, aboutTransaction(n.Type) || t.shared())
	if n.Data.Status != 0 && renewing != nil && !aboutTransaction(n.Type) {
		observations = append(observations, fromStatus(n.Data.Status, t, *renewing, n.SignedDate)...)
	}
	return observations, nil
}

// aboutTransaction reports whether a notification is about the transaction that it contains, which
// may be of an old period, rather than about the newest one.
func aboutTransaction(notification string) bool {
	switch notification {
	case "REFUND", "REFUND_DECLINED", "REFUND_REVERSED", "REVOKE", "CONSUMPTION_REQUEST":
		return true
	}
	return false
}

// transaction verifies a signed transaction of this application, as of when it
// was signed.
func (r *rail) transaction(raw string, a payments.Access) (transaction, error) {
	var t transaction
	if err := r.signed(raw, a, &t, func() int64 { return t.SignedDate }); err != nil {
		return t, err
	}
	if _, ok := environment(t.Environment); !ok {
		return t, payments.ErrInvalidReceipt
	}
	if t.BundleID != a.Credentials["bundleId"].Reveal() {
		return t, payments.ErrAppMismatch
	}
	if !identifier.MatchString(t.ID) || !identifier.MatchString(t.OriginalID) {
		return t, payments.ErrInvalidReceipt
	}
	return t, nil
}

var identifier = regexp.MustCompile(`^[0-9A-Za-z_-]{1,100}$`)

// renewal verifies signed renewal information, which names no application.
func (r *rail) renewal(raw string, a payments.Access) (renewal, error) {
	var n renewal
	if err := r.signed(raw, a, &n, func() int64 { return n.SignedDate }); err != nil {
		return n, err
	}
	if _, ok := environment(n.Environment); !ok {
		return n, payments.ErrInvalidReceipt
	}
	return n, nil
}

// signed verifies what may have been signed long ago: the certificates must have
// been valid then, and that must not be in the future.
func (r *rail) signed(raw string, a payments.Access, into any, date func() int64) error {
	token, err := jws.Parse(raw, jws.ES256)
	if err == nil {
		err = strictjson.Valid(token.Payload)
	}
	if err == nil {
		err = json.Unmarshal(token.Payload, into)
	}
	if err != nil {
		return payments.ErrInvalidReceipt.Because(err)
	}
	at := time.UnixMilli(date())
	if at.After(a.Now().Add(clockSkew)) {
		return payments.ErrInvalidReceipt.Because(fmt.Errorf("iosstore: signed in the future"))
	}
	if _, err := r.verifier.payload(raw, at); err != nil {
		return payments.ErrInvalidReceipt.Because(err)
	}
	return nil
}
