package androidstore_test

import (
	"encoding/base64"
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
	"github.com/kitbackend/kit/payments/railtest/sign"
	"github.com/kitbackend/kit/secrets"
)

func world() (*railtest.Clock, *androidstoretest.Store, payments.Access) {
	clock := railtest.NewClock()
	store := androidstoretest.New(clock.Now, payments.EnvironmentProduction)
	access := railtest.Fixture{Credentials: store.Credentials(), Environment: payments.EnvironmentProduction}.Access(clock)
	return clock, store, access
}

const test = `{"version":"1.0","packageName":"com.example.app","eventTimeMillis":"1","testNotification":{"version":"1.0"}}`

func TestTokenAttacks(t *testing.T) {
	clock, store, access := world()
	rail := store.Rail()
	claims := func(set map[string]any) map[string]any {
		c := sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now())
		for name, value := range set {
			if value == nil {
				delete(c, name)
				continue
			}
			c[name] = value
		}
		return c
	}
	at := func(d time.Duration) int64 { return clock.Now().Add(d).Unix() }
	const (
		issuer   = "the issuer of the token is another"
		audience = "the audience of the token is not the pushAudience"
		account  = "the account of the token is not the pushServiceAccount"
	)
	outside := ", and the time here is " + clock.Now().Format(time.RFC3339)
	for name, c := range map[string]struct {
		set    map[string]any
		reason string
	}{
		"ours":                        {nil, ""},
		"issuer without scheme":       {map[string]any{"iss": "accounts.google.com"}, ""},
		"another issuer":              {map[string]any{"iss": "https://accounts.example.com"}, issuer},
		"no issuer":                   {map[string]any{"iss": nil}, issuer},
		"another audience":            {map[string]any{"aud": "https://evil.example.com/"}, audience},
		"audience with more after it": {map[string]any{"aud": androidstoretest.Audience + "/"}, audience},
		"several audiences":           {map[string]any{"aud": []string{androidstoretest.Audience, "https://evil.example.com"}}, audience},
		"no audience":                 {map[string]any{"aud": nil}, audience},
		"another account":             {map[string]any{"email": "evil@project.iam.gserviceaccount.com"}, account},
		"no account":                  {map[string]any{"email": nil}, account},
		"e-mail not verified":         {map[string]any{"email_verified": false}, account},
		"e-mail verified as a text":   {map[string]any{"email_verified": "true"}, account},
		"e-mail verified missing":     {map[string]any{"email_verified": nil}, account},
		"expired":                     {map[string]any{"iat": at(-2 * time.Hour), "exp": at(-2 * time.Minute)}, outside},
		"expired within the skew":     {map[string]any{"iat": at(-2 * time.Hour), "exp": at(-30 * time.Second)}, ""},
		"no expiry":                   {map[string]any{"exp": nil}, outside},
		"issued in the future":        {map[string]any{"iat": at(2 * time.Minute)}, outside},
	} {
		t.Run(name, func(t *testing.T) {
			d := store.Push([]byte(test), claims(c.set))
			_, err := rail.Verify(t.Context(), access, d.Header, d.Body)
			if (err == nil) != (c.reason == "") || err != nil && !(errors.Is(err, payments.ErrInvalidSignature) && strings.Contains(err.Error(), c.reason)) {
				t.Errorf("got %v, expected %q", err, c.reason)
			}
		})
	}
	good := store.Google.Token(claims(nil))
	parts := strings.Split(good, ".")
	head := func(text string) string {
		return base64.RawURLEncoding.EncodeToString([]byte(text)) + "." + parts[1] + "." + parts[2]
	}
	const malformed, scheme, unsigned = "jws: malformed token", "the header Authorization is no bearer token", "jws: the signature does not verify"
	for name, c := range map[string]struct{ header, reason string }{
		"Basic":               {"Basic " + good, scheme},
		"bearer, lower case":  {"bearer " + good, scheme},
		"no token":            {"Bearer ", malformed},
		"alg none":            {"Bearer " + head(`{"alg":"none","kid":"1"}`), malformed},
		"alg HS256":           {"Bearer " + head(`{"alg":"HS256","kid":"1"}`), malformed},
		"alg ES256":           {"Bearer " + head(`{"alg":"ES256","kid":"1"}`), malformed},
		"no key id":           {"Bearer " + head(`{"alg":"RS256"}`), malformed},
		"claims of another":   {"Bearer " + parts[0] + "." + base64.RawURLEncoding.EncodeToString(script.Encode(claims(map[string]any{"sub": "2"}))) + "." + parts[2], unsigned},
		"a flipped signature": {"Bearer " + parts[0] + "." + parts[1] + "." + flipped(parts[2]), unsigned},
		"a longer token":      {"Bearer " + good + strings.Repeat("A", 5000), "the header Authorization has more than 4096 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			d := store.Push([]byte(test), claims(nil))
			d.Header = http.Header{"Authorization": {c.header}}
			_, err := rail.Verify(t.Context(), access, d.Header, d.Body)
			if !errors.Is(err, payments.ErrInvalidSignature) || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), parts[2]) {
				t.Errorf("got %v, expected payments/invalid_signature and %q", err, c.reason)
			}
		})
	}
}

// flipped returns text with one bit of what its first character stands for changed.
func flipped(text string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	return alphabet[strings.IndexByte(alphabet, text[0])^1:][:1] + text[1:]
}

func TestKeysRotate(t *testing.T) {
	clock, store, access := world()
	rail := store.Rail()
	verify := func() error {
		d := store.Push([]byte(test), sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now()))
		_, err := rail.Verify(t.Context(), access, d.Header, d.Body)
		return err
	}
	if err := verify(); err != nil {
		t.Fatal(err)
	}
	store.Google.Rotate()
	if err := verify(); !errors.Is(err, payments.ErrInvalidSignature) {
		t.Errorf("an unknown key within seconds of a fetch: got %v, want payments/invalid_signature", err)
	}
	clock.Advance(time.Minute)
	if err := verify(); err != nil {
		t.Errorf("a new key a minute later: %v", err)
	}
	store.Google.Down(true)
	clock.Advance(time.Minute)
	if err := verify(); err != nil {
		t.Errorf("a known key while the key server is down: %v", err)
	}
	clock.Advance(2 * time.Hour)
	if err := verify(); !payments.IsTransient(err) {
		t.Errorf("keys that are old while the key server is down: got %v, want a transient error", err)
	}
	store.Google.Down(false)
	clock.Advance(2 * time.Minute)
	if err := verify(); err != nil {
		t.Errorf("the key server is up again: %v", err)
	}
}

// TestWhatIsKeptAfterTheClockWasSetBack: neither the issuer's keys nor the access
// token are kept until the time that was not comes again.
func TestWhatIsKeptAfterTheClockWasSetBack(t *testing.T) {
	clock, store, access := world()
	asked := make(map[string]int)
	rail := androidstore.New(androidstore.Options{HTTP: script.Client(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked[r.URL.Path]++
		store.ServeHTTP(w, r)
	}))})
	token, _ := store.Subscribe(pro)
	use := func() {
		t.Helper()
		d := store.Push([]byte(test), sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now()))
		if _, err := rail.Verify(t.Context(), access, d.Header, d.Body); err != nil {
			t.Fatal(err)
		}
		if _, err := rail.Fetch(t.Context(), access, payments.Ref{RawRef: token, Kind: payments.KindSubscription}); err != nil {
			t.Fatal(err)
		}
	}
	use()
	use()
	clock.Advance(-24 * time.Hour)
	use()
	if keys, tokens := asked["/oauth2/v3/certs"], asked["/token"]; keys != 2 || tokens != 2 {
		t.Errorf("asked %d times for keys and %d times for a token, want each before and after", keys, tokens)
	}
}

func TestKeyServerDownIsTransient(t *testing.T) {
	clock, store, access := world()
	store.Google.Down(true)
	d := store.Push([]byte(test), sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now()))
	if _, err := store.Rail().Verify(t.Context(), access, d.Header, d.Body); !payments.IsTransient(err) {
		t.Errorf("got %v, want a transient error", err)
	}
	bad := store.Push([]byte(test), sign.Claims("https://evil.example.com", androidstoretest.Account, clock.Now()))
	if _, err := store.Rail().Verify(t.Context(), access, bad.Header, bad.Body); !errors.Is(err, payments.ErrInvalidSignature) {
		t.Errorf("a token of another audience asks nobody for keys: got %v", err)
	}
}

func TestPushesOfOthers(t *testing.T) {
	clock, store, access := world()
	rail := store.Rail()
	claims := sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now())
	d := store.Push([]byte(strings.Replace(test, "com.example.app", "com.example.evil", 1)), claims)
	verified, err := rail.Verify(t.Context(), access, d.Header, d.Body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rail.Expand(t.Context(), access, verified); !errors.Is(err, payments.ErrAppMismatch) {
		t.Errorf("another package: got %v, want payments/app_mismatch", err)
	}
	access.Credentials["pushSubscription"] = secrets.NewValue("projects/example/subscriptions/other")
	d = store.Push([]byte(test), claims)
	_, err = rail.Verify(t.Context(), access, d.Header, d.Body)
	if !errors.Is(err, payments.ErrInvalidSignature) || !strings.Contains(err.Error(), "another subscription than the pushSubscription") {
		t.Errorf("another subscription: got %v, want payments/invalid_signature", err)
	}
}

// A notification is not believed: what it says is fetched.
func TestNotificationIsOnlyAHint(t *testing.T) {
	clock, store, access := world()
	rail := store.Rail()
	token, _ := store.Subscribe(script.Purchase{ProductID: "pro"})
	claims := sign.Claims(androidstoretest.Audience, androidstoretest.Account, clock.Now())
	d := store.Push([]byte(`{"packageName":"com.example.app","eventTimeMillis":"1","subscriptionNotification":{"notificationType":12,"purchaseToken":"`+token+`"}}`), claims)
	verified, err := rail.Verify(t.Context(), access, d.Header, d.Body)
	if err != nil {
		t.Fatal(err)
	}
	observations, err := rail.Expand(t.Context(), access, verified)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range observations {
		if o.Revoke != nil || o.Lifecycle.State != payments.StateActive {
			t.Errorf("a lie about a subscription that runs became %+v", o)
		}
	}
}
