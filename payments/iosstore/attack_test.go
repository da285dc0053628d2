package iosstore_test

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/iosstore"
	"github.com/kitbackend/kit/payments/iosstore/iosstoretest"
	"github.com/kitbackend/kit/payments/railtest"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/payments/railtest/sign"
)

// notification is a good payload but for what set replaces.
func notification(clock *railtest.Clock, set script.Object) script.Object {
	n := script.Object{
		"notificationType": "TEST", "notificationUUID": "u1", "version": "2.0", "signedDate": clock.Now().UnixMilli(),
		"data": script.Object{"appAppleId": json.Number(iosstoretest.AppleID), "bundleId": iosstoretest.BundleID, "environment": "Production"},
	}
	for name, value := range set {
		if name == "data" {
			for member, inner := range value.(script.Object) {
				n["data"].(script.Object)[member] = inner
			}
			continue
		}
		n[name] = value
	}
	return n
}

func TestChainAttacks(t *testing.T) {
	clock := railtest.NewClock()
	root, chain := sign.NewAppleVariants(clock.Now())
	good := chain(sign.AppleOptions{})
	foreign := sign.NewApple(clock.Now())
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	rail := iosstore.New(iosstore.Options{HTTP: script.Client(store), Roots: []*x509.Certificate{root}})
	access := railtest.Fixture{Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}.Access(clock)
	payload := notification(clock, nil)
	certificates := good.Certificates()
	with := func(x5c ...string) string { return good.SignWith(script.Object{"x5c": x5c}, payload) }
	parts := strings.Split(good.Sign(payload), ".")
	head := func(h script.Object) string {
		return base64.RawURLEncoding.EncodeToString(script.Encode(h)) + "." + parts[1] + "." + parts[2]
	}
	year := 365 * 24 * time.Hour
	const malformed, other = "jws: malformed token", "they are not those of receipts"
	for name, c := range map[string]struct{ raw, reason string }{
		"a good one":                        {good.Sign(payload), ""},
		"root of the header is not read":    {with(certificates[0], certificates[1], "AAAA"), ""},
		"no leaf OID":                       {chain(sign.AppleOptions{NoLeafOID: true}).Sign(payload), other},
		"no intermediate OID":               {chain(sign.AppleOptions{NoIntermediateOID: true}).Sign(payload), other},
		"neither OID":                       {chain(sign.AppleOptions{NoLeafOID: true, NoIntermediateOID: true}).Sign(payload), other},
		"intermediate may not sign":         {chain(sign.AppleOptions{IntermediateNotCA: true}).Sign(payload), other},
		"expired leaf":                      {chain(sign.AppleOptions{NotAfter: clock.Now().Add(-2 * time.Minute)}).Sign(payload), "valid from "},
		"expired within the skew":           {chain(sign.AppleOptions{NotAfter: clock.Now().Add(-30 * time.Second)}).Sign(payload), ""},
		"leaf of tomorrow":                  {chain(sign.AppleOptions{NotBefore: clock.Now().Add(year)}).Sign(payload), "valid from 2027-03-01T12:00:00Z to 2028"},
		"another root, brought along":       {foreign.Sign(payload), "no pinned root signs the second"},
		"own chain, pinned root at its end": {foreign.SignWith(script.Object{"x5c": append(foreign.Certificates()[:2], certificates[2])}, payload), "no pinned root signs the second"},
		"own leaf, good intermediate":       {foreign.SignWith(script.Object{"x5c": append(foreign.Certificates()[:1], certificates[1:]...)}, payload), "the second does not sign the first"},
		"two certificates":                  {with(certificates[0], certificates[1]), "there are 2 of them, not 3"},
		"one certificate":                   {with(certificates[0]), "there are 1 of them, not 3"},
		"no certificates":                   {good.SignWith(nil, payload), "there are 0 of them, not 3"},
		"four certificates":                 {with(append(certificates, certificates[2])...), "there are 4 of them, not 3"},
		"certificates in another order":     {with(certificates[1], certificates[0], certificates[2]), other},
		"intermediate as leaf":              {with(certificates[1], certificates[1], certificates[2]), other},
		"a certificate that is none":        {with("AAAA", certificates[1], certificates[2]), "one cannot be read"},
		"a certificate of 10 KB":            {with(strings.Repeat("A", 10<<10), certificates[1], certificates[2]), "one is too large"},
		"alg none":                          {head(script.Object{"alg": "none", "x5c": certificates}), malformed},
		"alg none, no signature":            {strings.TrimSuffix(head(script.Object{"alg": "none", "x5c": certificates}), parts[2]), malformed},
		"alg HS256":                         {head(script.Object{"alg": "HS256", "x5c": certificates}), malformed},
		"alg RS256":                         {head(script.Object{"alg": "RS256", "x5c": certificates}), malformed},
		"alg ES384":                         {head(script.Object{"alg": "ES384", "x5c": certificates}), malformed},
		"alg es256":                         {head(script.Object{"alg": "es256", "x5c": certificates}), malformed},
		"crit":                              {good.SignWith(script.Object{"x5c": certificates, "crit": []string{"b64"}, "b64": false}, payload), malformed},
		"a header of its own key":           {good.SignWith(script.Object{"jwk": script.Object{"kty": "EC"}}, payload), "there are 0 of them, not 3"},
		"four parts":                        {good.Sign(payload) + ".x", malformed},
		"a line break":                      {good.Sign(payload) + "\n", malformed},
		"200 KB":                            {good.Sign(notification(clock, script.Object{"pad": strings.Repeat("x", 200<<10)})), "the body has no signedPayload"},
	} {
		t.Run(name, func(t *testing.T) {
			body := script.Encode(script.Object{"signedPayload": c.raw})
			_, err := rail.Verify(t.Context(), access, nil, body)
			if (err == nil) != (c.reason == "") || err != nil && !(errors.Is(err, payments.ErrInvalidSignature) && strings.Contains(err.Error(), c.reason)) {
				t.Errorf("got %v, expected %q", err, c.reason)
			}
		})
	}
}

func TestNotificationsOfOthersAreRefused(t *testing.T) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	rail := store.Rail()
	access := railtest.Fixture{Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}.Access(clock)
	data := func(name string, value any) script.Object { return script.Object{"data": script.Object{name: value}} }
	for name, c := range map[string]struct {
		set  script.Object
		want payments.StoreEnvironment // "" for refused
	}{
		"ours":                     {nil, payments.EnvironmentProduction},
		"another bundle":           {data("bundleId", "com.example.evil"), ""},
		"no bundle":                {data("bundleId", ""), ""},
		"another app id":           {data("appAppleId", 99), ""},
		"no app id":                {data("appAppleId", nil), ""},
		"sandbox":                  {data("environment", "Sandbox"), payments.EnvironmentSandbox},
		"sandbox has no app id":    {script.Object{"data": script.Object{"environment": "Sandbox", "appAppleId": nil}}, payments.EnvironmentSandbox},
		"Xcode":                    {data("environment", "Xcode"), ""},
		"LocalTesting":             {data("environment", "LocalTesting"), ""},
		"no environment":           {data("environment", ""), ""},
		"production in lower case": {data("environment", "production"), ""},
		"no id":                    {script.Object{"notificationUUID": ""}, ""},
		"an id of 201 bytes":       {script.Object{"notificationUUID": strings.Repeat("u", 201)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := script.Encode(script.Object{"signedPayload": store.Apple.Sign(notification(clock, c.set))})
			d, err := rail.Verify(t.Context(), access, nil, body)
			if c.want == "" && !errors.Is(err, payments.ErrInvalidSignature) || c.want != "" && (err != nil || d.Environment != c.want) {
				t.Errorf("environment %q, error %v, want %q", d.Environment, err, c.want)
			}
		})
	}
}

// What is inside of a signed notification, or comes from a device, is checked for
// itself.
func TestTransactionsOfOthersAreRefused(t *testing.T) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	rail := store.Rail()
	access := railtest.Fixture{Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}.Access(clock)
	transaction := func(set script.Object) script.Object {
		o := script.Object{
			"transactionId": "1", "originalTransactionId": "1", "bundleId": iosstoretest.BundleID, "productId": "coins", "type": "Consumable",
			"purchaseDate": clock.Now().UnixMilli(), "quantity": 1, "environment": "Production", "signedDate": clock.Now().UnixMilli(),
			"inAppOwnershipType": "PURCHASED",
		}
		for name, value := range set {
			o[name] = value
		}
		return o
	}
	for name, c := range map[string]struct {
		raw  string
		want error
	}{
		"ours":                          {store.Apple.Sign(transaction(nil)), nil},
		"another bundle":                {store.Apple.Sign(transaction(script.Object{"bundleId": "com.example.evil"})), payments.ErrAppMismatch},
		"Xcode":                         {store.Apple.Sign(transaction(script.Object{"environment": "Xcode"})), payments.ErrInvalidReceipt},
		"LocalTesting":                  {store.Apple.Sign(transaction(script.Object{"environment": "LocalTesting"})), payments.ErrInvalidReceipt},
		"signed tomorrow":               {store.Apple.Sign(transaction(script.Object{"signedDate": clock.Now().Add(24 * time.Hour).UnixMilli()})), payments.ErrInvalidReceipt},
		"signed before the certificate": {store.Apple.Sign(transaction(script.Object{"signedDate": clock.Now().AddDate(-2, 0, 0).UnixMilli()})), payments.ErrInvalidReceipt},
		"no id":                         {store.Apple.Sign(transaction(script.Object{"transactionId": ""})), payments.ErrInvalidReceipt},
		"an id with a slash":            {store.Apple.Sign(transaction(script.Object{"transactionId": "../1"})), payments.ErrInvalidReceipt},
		"by somebody else":              {sign.NewApple(clock.Now()).Sign(transaction(nil)), payments.ErrInvalidReceipt},
		"a notification":                {store.Apple.Sign(notification(clock, nil)), payments.ErrInvalidReceipt},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rail.Redeem(t.Context(), access, payments.Submission{SignedTransaction: c.raw})
			if !errors.Is(err, c.want) {
				t.Errorf("submitted: got %v, want %v", err, c.want)
			}
			body := script.Encode(script.Object{"signedPayload": store.Apple.Sign(notification(clock, script.Object{
				"notificationType": "ONE_TIME_CHARGE", "data": script.Object{"signedTransactionInfo": c.raw},
			}))})
			d, err := rail.Verify(t.Context(), access, nil, body)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := rail.Expand(t.Context(), access, d); !errors.Is(err, c.want) {
				t.Errorf("in a notification: got %v, want %v", err, c.want)
			}
		})
	}
	t.Run("of the other environment inside", func(t *testing.T) {
		body := script.Encode(script.Object{"signedPayload": store.Apple.Sign(notification(clock, script.Object{
			"data": script.Object{"signedTransactionInfo": store.Apple.Sign(transaction(script.Object{"environment": "Sandbox"}))},
		}))})
		d, err := rail.Verify(t.Context(), access, nil, body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rail.Expand(t.Context(), access, d); !errors.Is(err, payments.ErrEnvironmentMismatch) {
			t.Errorf("got %v, want payments/environment_mismatch", err)
		}
	})
}

// The chain of a transaction that a device kept may have expired since; that of a
// notification may not.
func TestOldTransactionsStayGood(t *testing.T) {
	clock := railtest.NewClock()
	store := iosstoretest.New(clock.Now, payments.EnvironmentProduction)
	id, out := store.Buy(script.Purchase{ProductID: "lifetime"})
	old := store.Signed(id)
	clock.Advance(3 * 365 * 24 * time.Hour)
	access := railtest.Fixture{Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}.Access(clock)
	if _, err := store.Rail().Redeem(t.Context(), access, payments.Submission{SignedTransaction: old}); err != nil {
		t.Errorf("a transaction of three years ago: %v", err)
	}
	if _, err := store.Rail().Verify(t.Context(), access, nil, out[0].Body); !errors.Is(err, payments.ErrInvalidSignature) {
		t.Errorf("a notification of three years ago: got %v, want payments/invalid_signature", err)
	}
}

func TestPinnedRootHash(t *testing.T) {
	if sum := sha256.Sum256(iosstore.AppleRoot().Raw); base64.StdEncoding.EncodeToString(sum[:]) != "YzQ6v7iaagPrtX6bP1+nvnxPXHVvMBezqMSIw2U+kXk=" {
		t.Error("the embedded root is another one")
	}
}
