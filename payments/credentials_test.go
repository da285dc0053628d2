package payments_test

import (
	"errors"
	"testing"
	"time"

	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore/androidstoretest"
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

// TestCredentialsThatCannotBeRight writes to every rail what is malformed or, where
// a prefix tells, of production to a deployment that is not: each is refused
// before the write, and the credentials from before stay.
func TestCredentialsThatCannotBeRight(t *testing.T) {
	m := openMall(t)
	write := func(rail payments.RailID, field, value string) error {
		fields := make(secrets.Fields)
		for name, from := range m.stores.Credentials()[string(rail)] {
			fields[name] = from
		}
		fields[field] = secrets.NewValue(value)
		_, err := m.Secrets().Rotate(t.Context(), payments.SecretName, secrets.Blocks{string(rail): fields})
		return err
	}
	const a, b = payments.RailMerchantA, payments.RailMerchantB
	for _, c := range []struct {
		what         string
		rail         payments.RailID
		field, value string
	}{
		{"a key of production", card, "apiKey", "sk_live_abcdefghijkl"},
		{"a restricted key of production", card, "apiKey", "rk_live_abcdefghijkl"},
		{"a key that is public", card, "apiKey", "pk_test_abcdefghijkl"},
		{"a signing secret without its prefix", card, "webhookSecret", "abcdefghijklmnopqrst"},
		{"a short signing secret", card, "webhookSecret", "whsec_a"},
		{"a key of production", a, "apiKey", "pdl_live_abcdefghijkl"},
		{"a short signing secret", a, "webhookSecret", "pdl_ntfset"},
		{"a short token", b, "accessToken", "polar"},
		{"a short signing secret", b, "webhookSecret", "whsec_a"},
		{"no private key", ios, "privateKey", "-----BEGIN PRIVATE KEY-----"},
		{"no number of an app", ios, "appAppleId", "com.example.app"},
		{"number 0 of an app", ios, "appAppleId", "0"},
		{"no private key", android, "privateKey", "-----BEGIN PRIVATE KEY-----"},
		{"an address without https", android, "tokenUri", "http://oauth2.example"},
		{"no address of an account", android, "clientEmail", "example"},
		{"no address of the pushing account", android, "pushServiceAccount", "example"},
	} {
		if err := write(c.rail, c.field, c.value); !errors.Is(err, secrets.ErrInvalidValue) {
			t.Errorf("%s to %s: got %v, want secrets/invalid_value", c.what, c.rail, err)
		}
	}
	m.do("a purchase with the credentials from before", m.buy(card, "pro", "ada").Renew())
}

// TestGoogleWithoutKeys: while the keys that sign pushes cannot be fetched nothing
// is proven, and the push comes again.
func TestGoogleWithoutKeys(t *testing.T) {
	m := openMall(t)
	m.stores.Android.Google.Down(true)
	push := func() (status int, code string) {
		return m.send(android, m.stores.Android.Push([]byte(`{"version":"1.0","packageName":"com.example.app","eventTimeMillis":"1","testNotification":{"version":"1.0"}}`),
			sign.Claims(androidstoretest.Audience, androidstoretest.Account, m.Clock.Now())))
	}
	if status, code := push(); status != 503 || code != "payments/rail_unavailable" {
		t.Errorf("%d %s, want 503 payments/rail_unavailable", status, code)
	}
	m.stores.Android.Google.Down(false)
	m.Clock.Advance(2 * time.Minute)
	if status, code := push(); status != 200 {
		t.Errorf("with keys: %d %s, want 200", status, code)
	}
}
