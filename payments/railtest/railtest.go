// Package railtest is the suite that every rail passes, and that an application
// runs against a rail of its own: what a proof covers and which ones are refused, which failures
// are transient, and that a store which is down is not called.
package railtest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/railtest/script"
	"github.com/kitbackend/kit/secrets"
)

// Fixture is a rail on a scripted store.
type Fixture struct {
	Rail        payments.Rail
	Credentials secrets.Fields
	Environment payments.StoreEnvironment
	// Deliver buys something new and returns a genuine delivery about it.
	Deliver func() script.Delivery
	// Unknown returns a genuine delivery of an event that the rail ignores.
	Unknown func() script.Delivery
	// Other returns a genuine delivery of the other environment; nil for rails that
	// do not say which environment a delivery is of.
	Other func() script.Delivery
	// Bought returns the purchase of the last delivery, to fetch it.
	Bought func() payments.Ref
	// Loose says that the proof does not cover the body, so that everything the body
	// says must be fetched.
	Loose bool
	// SecretField is the field of the credentials that signs, and Sign signs with any
	// secret; nil for rails that verify with public keys.
	SecretField string
	Sign        func(secret string, body []byte, at time.Time) http.Header
	// Tolerance is how far the time of a signature may be off.
	Tolerance time.Duration
	// Faults makes the store fail.
	Faults *script.Faults
}

// Clock is a clock that stands still. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// NewClock returns a clock that begins at noon of 1 March 2026, UTC.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

// Access returns the Access to call the rail with.
func (f Fixture) Access(clock *Clock) payments.Access {
	var mu sync.Mutex
	var version int64
	return payments.Access{
		Credentials: f.Credentials, Environment: f.Environment, Now: clock.Now,
		Version: func(context.Context, string) (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			version++
			return version, nil
		},
		Kind: func(string) payments.ProductKind { return payments.KindSubscription },
	}
}

// Run runs the suite; each test has a fixture of its own.
func Run(t *testing.T, with func(clock *Clock) Fixture) {
	tests := map[string]func(*suite){
		"GenuineDeliveryIsObserved":     (*suite).genuine,
		"EveryByteIsProven":             (*suite).flipped,
		"NoProofIsRefused":              (*suite).unproven,
		"TimeOfTheProofIsBounded":       (*suite).tolerance,
		"TwoSecretsDuringARotation":     (*suite).rotation,
		"EmptySecretProvesNothing":      (*suite).empty,
		"UnknownEventIsAcknowledged":    (*suite).unknown,
		"OtherEnvironmentIsNamed":       (*suite).other,
		"HostileBodiesAreRefused":       (*suite).hostile,
		"SubmittedRubbishIsRefused":     (*suite).rubbish,
		"StoreThatIsDownIsLeftAlone":    (*suite).down,
		"CredentialsAreChecked":         (*suite).credentials,
		"ObservationsOfARefetchAgree":   (*suite).refetched,
		"CallerThatGoesAwayEndsTheCall": (*suite).canceled,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			clock := NewClock()
			f := with(clock)
			test(&suite{T: t, Fixture: f, clock: clock, access: f.Access(clock)})
		})
	}
}

type suite struct {
	*testing.T
	Fixture
	clock  *Clock
	access payments.Access
}

func (s *suite) verify(d script.Delivery) (payments.Delivery, error) {
	return s.Rail.Verify(s.Context(), s.access, d.Header, d.Body)
}

func (s *suite) refused(d script.Delivery, what string) {
	s.Helper()
	if _, err := s.verify(d); !errors.Is(err, payments.ErrInvalidSignature) {
		s.Errorf("%s: got %v, want payments/invalid_signature", what, err)
	}
}

func (s *suite) genuine() {
	d := s.Deliver()
	verified, err := s.verify(d)
	if err != nil {
		s.Fatalf("a genuine delivery is refused: %v", err)
	}
	if verified.ID == "" || len(verified.ID) > 200 || verified.Type == "" || !bytes.Equal(verified.Body, d.Body) {
		s.Errorf("the delivery has id %q, type %q and a body of %d bytes of %d", verified.ID, verified.Type, len(verified.Body), len(d.Body))
	}
	observations, err := s.Rail.Expand(s.Context(), s.access, verified)
	if err != nil || len(observations) == 0 {
		s.Fatalf("the delivery expands to %d observations: %v", len(observations), err)
	}
	known := false
	for _, o := range observations {
		if o.TransactionID == "" || len(o.TransactionID) > 200 || len(o.RawRef) > 4000 || o.Version <= 0 {
			s.Errorf("an observation has transaction id %q, a reference of %d bytes and version %d", o.TransactionID, len(o.RawRef), o.Version)
		}
		if o.Environment != "" && o.Environment != s.Environment {
			s.Errorf("an observation is of %q, want %q", o.Environment, s.Environment)
		}
		known = known || o.Lifecycle != nil && o.Lifecycle.State == payments.StateActive
	}
	if !known {
		s.Error("no observation says that what was bought is active")
	}
	again, err := s.verify(d)
	if err != nil || again.ID != verified.ID {
		s.Errorf("the same delivery has id %q and then %q: %v", verified.ID, again.ID, err)
	}
}

func (s *suite) flipped() {
	if s.Loose {
		s.Skip("the proof does not cover the body")
	}
	d := s.Deliver()
	step := max(len(d.Body)/97, 1)
	for i := 0; i < len(d.Body); i += step {
		body := bytes.Clone(d.Body)
		body[i] ^= 1
		s.refused(script.Delivery{Header: d.Header, Body: body}, "byte "+string(rune('0'+i%10))+" of a flipped body")
	}
	s.refused(script.Delivery{Header: d.Header, Body: d.Body[:len(d.Body)-1]}, "a body cut short")
	if s.Sign != nil {
		s.refused(script.Delivery{Header: d.Header, Body: append(bytes.Clone(d.Body), '\n')}, "a body with a line break after it")
	}
}

func (s *suite) unproven() {
	d := s.Deliver()
	if s.Sign != nil || s.Loose {
		s.refused(script.Delivery{Body: d.Body}, "no header")
		for name := range d.Header {
			h := d.Header.Clone()
			h[name] = append(h[name], h[name]...)
			s.refused(script.Delivery{Header: h, Body: d.Body}, "two headers "+name)
			h = d.Header.Clone()
			h.Set(name, "")
			s.refused(script.Delivery{Header: h, Body: d.Body}, "an empty header "+name)
			h.Set(name, strings.Repeat("x", 1<<20))
			s.refused(script.Delivery{Header: h, Body: d.Body}, "a header "+name+" of a megabyte")
		}
	}
	s.refused(script.Delivery{Header: d.Header}, "no body")
	s.refused(script.Delivery{Body: []byte(`{}`)}, "an empty object")
}

func (s *suite) tolerance() {
	if s.Sign == nil {
		s.Skip("the proof has no time of its own")
	}
	d := s.Deliver()
	secret := s.Credentials[s.SecretField].Reveal()
	for _, c := range []struct {
		off  time.Duration
		good bool
	}{
		{0, true}, {-s.Tolerance, true}, {s.Tolerance, true},
		{-s.Tolerance - time.Second, false}, {s.Tolerance + time.Second, false}, {time.Hour, false}, {-24 * time.Hour, false},
	} {
		signed := script.Delivery{Header: s.Sign(secret, d.Body, s.clock.Now().Add(c.off)), Body: d.Body}
		if _, err := s.verify(signed); (err == nil) != c.good {
			s.Errorf("a signature of %v from now: %v", c.off, err)
		}
	}
}

func (s *suite) rotation() {
	if s.Sign == nil {
		s.Skip("there is no secret")
	}
	d := s.Deliver()
	const before, other = "whsec_before-the-rotation-0000", "whsec_of-somebody-else-00000000"
	s.access.Previous = secrets.Fields{s.SecretField: secrets.NewValue(before)}
	old := script.Delivery{Header: s.Sign(before, d.Body, s.clock.Now()), Body: d.Body}
	if _, err := s.verify(old); err != nil {
		s.Errorf("the secret before the rotation: %v", err)
	}
	if _, err := s.verify(d); err != nil {
		s.Errorf("the secret of now: %v", err)
	}
	s.refused(script.Delivery{Header: s.Sign(other, d.Body, s.clock.Now()), Body: d.Body}, "another secret")
	s.access.Previous = nil
	s.refused(old, "the secret before, after the rotation")
}

func (s *suite) empty() {
	if s.Sign == nil {
		s.Skip("there is no secret")
	}
	d := s.Deliver()
	signed := script.Delivery{Header: s.Sign("", d.Body, s.clock.Now()), Body: d.Body}
	s.refused(signed, "signed with an empty secret")
	s.access.Credentials = secrets.Fields{}
	s.refused(signed, "signed with an empty secret where none is configured")
}

func (s *suite) unknown() {
	verified, err := s.verify(s.Unknown())
	if err != nil {
		s.Fatalf("an event without meaning is refused: %v", err)
	}
	observations, err := s.Rail.Expand(s.Context(), s.access, verified)
	if err != nil || len(observations) != 0 {
		s.Errorf("an event without meaning expands to %d observations: %v", len(observations), err)
	}
}

func (s *suite) other() {
	if s.Other == nil {
		s.Skip("the rail names no environment")
	}
	verified, err := s.verify(s.Other())
	if err != nil {
		s.Fatalf("a genuine delivery of the other environment is refused, so that it would come again and again: %v", err)
	}
	if verified.Environment != "" {
		if verified.Environment == s.Environment {
			s.Errorf("the delivery says it is of %q", verified.Environment)
		}
		return
	}
	observations, err := s.Rail.Expand(s.Context(), s.access, verified)
	if errors.Is(err, payments.ErrEnvironmentMismatch) {
		return
	}
	if err != nil || len(observations) == 0 {
		s.Fatalf("neither the delivery nor what it expands to names the other environment: %v", err)
	}
	for _, o := range observations {
		if o.Environment == s.Environment || o.Environment == "" {
			s.Errorf("an observation of the other environment says %q", o.Environment)
		}
	}
}

// hostileBodies are of the kinds that exhaust or confuse a parser.
func hostileBodies() map[string][]byte {
	return map[string][]byte{
		"10 MB of text":          []byte(`{"id":"` + strings.Repeat("x", 10<<20) + `"}`),
		"100,000 arrays deep":    []byte(strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)),
		"100,000 objects deep":   []byte(strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)),
		"a NUL":                  []byte("{\"id\":\"a\x00b\"}"),
		"an escaped NUL":         []byte(`{"id":"a\u0000b","type":"x","event_id":"a\u0000b"}`),
		"no UTF-8":               []byte("{\"id\":\"\xff\"}"),
		"a member twice":         []byte(`{"id":"a","id":"b"}`),
		"no JSON":                []byte("id=a&type=b"),
		"something after it":     []byte(`{"id":"a"}{"id":"b"}`),
		"a list":                 []byte(`[{"id":"a"}]`),
		"an object of nothing":   []byte(`{"id":null,"type":null,"data":null,"message":null,"signedPayload":null}`),
		"members of other types": []byte(`{"id":1,"type":2,"data":"x","message":7,"signedPayload":{}}`),
	}
}

func (s *suite) hostile() {
	genuine := s.Deliver()
	for name, body := range hostileBodies() {
		h := genuine.Header
		if s.Sign != nil {
			h = s.Sign(s.Credentials[s.SecretField].Reveal(), body, s.clock.Now())
		}
		verified, err := s.verify(script.Delivery{Header: h, Body: body})
		if errors.Is(err, payments.ErrInvalidSignature) {
			continue
		}
		if err != nil {
			s.Errorf("%s: %v", name, err)
			continue
		}
		observations, err := s.Rail.Expand(s.Context(), s.access, verified)
		if len(observations) > 0 || err != nil && payments.IsTransient(err) {
			s.Errorf("%s expands to %d observations: %v", name, len(observations), err)
		}
	}
}

func (s *suite) rubbish() {
	if s.Rail.Redeem == nil {
		s.Skip("the rail takes no submissions")
	}
	for name, text := range map[string]string{
		"nothing": "", "a path": "../../v1/customers", "a NUL": "a\x00b", "a megabyte": strings.Repeat("x", 1<<20), "dots": "a.b.c",
		"a query": "cs_1?expand[]=x", "spaces": "txn_ 1",
	} {
		_, err := s.Rail.Redeem(s.Context(), s.access, payments.Submission{
			SignedTransaction: text, TransactionID: text, PurchaseToken: text, SessionID: text,
		})
		var refusal *capability.Error
		if !errors.As(err, &refusal) || payments.IsTransient(err) {
			s.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
}

func (s *suite) down() {
	s.observe()
	if s.Rail.Fetch == nil || s.Faults == nil {
		s.Skip("the rail asks nobody")
	}
	s.Faults.Down(true)
	for range 3 {
		if _, err := s.Rail.Fetch(s.Context(), s.access, s.Bought()); !payments.IsTransient(err) {
			s.Fatalf("a store that is down: got %v, want a transient error", err)
		}
	}
	calls := s.Faults.Calls()
	for range 10 {
		if _, err := s.Rail.Fetch(s.Context(), s.access, s.Bought()); !payments.IsTransient(err) {
			s.Fatalf("a breaker that is open: got %v, want a transient error", err)
		}
	}
	if after := s.Faults.Calls(); after != calls {
		s.Errorf("a store that is down was asked %d times more", after-calls)
	}
	s.Faults.Down(false)
	s.clock.Advance(time.Minute)
	if _, err := s.Rail.Fetch(s.Context(), s.access, s.Bought()); err != nil {
		s.Errorf("a store that is up again: %v", err)
	}
}

// observe lets the rail take one genuine delivery.
func (s *suite) observe() []payments.Observation {
	s.Helper()
	verified, err := s.verify(s.Deliver())
	if err != nil {
		s.Fatal(err)
	}
	observations, err := s.Rail.Expand(s.Context(), s.access, verified)
	if err != nil {
		s.Fatal(err)
	}
	return observations
}

func (s *suite) refetched() {
	delivered := s.observe()
	if s.Rail.Fetch == nil {
		s.Skip("the rail asks nobody")
	}
	s.clock.Advance(time.Second)
	fetched, err := s.Rail.Fetch(s.Context(), s.access, s.Bought())
	if err != nil {
		s.Fatal(err)
	}
	var facts payments.Facts
	for _, o := range delivered {
		facts = payments.Merge(facts, o)
	}
	both := facts
	for _, o := range fetched {
		if o.TransactionID != delivered[0].TransactionID {
			s.Errorf("what was fetched is about %q, what was delivered about %q", o.TransactionID, delivered[0].TransactionID)
		}
		both = payments.Merge(both, o)
	}
	now, terms := payments.At(s.clock.Now()), payments.Terms{Kind: payments.KindSubscription, Leeway: time.Hour}
	if a, b := payments.Project(facts, terms, now), payments.Project(both, terms, now); a.Status != b.Status || a.AccessUntil != b.AccessUntil {
		s.Errorf("as delivered the purchase is %s until %d, with what was fetched %s until %d", a.Status, a.AccessUntil, b.Status, b.AccessUntil)
	}
}

func (s *suite) canceled() {
	s.observe()
	if s.Rail.Fetch == nil {
		s.Skip("the rail asks nobody")
	}
	ctx, cancel := context.WithCancel(s.Context())
	cancel()
	if _, err := s.Rail.Fetch(ctx, s.access, s.Bought()); err == nil {
		s.Error("a caller that has gone away got a response")
	}
	if _, err := s.Rail.Fetch(s.Context(), s.access, s.Bought()); err != nil {
		s.Errorf("the next caller: %v", err)
	}
}

func (s *suite) credentials() {
	block := s.Rail.Credentials
	if block.Name != string(s.Rail.ID) || len(block.Required) == 0 {
		s.Errorf("the block is named %q with %d required fields, want %q with some", block.Name, len(block.Required), s.Rail.ID)
	}
	for _, field := range block.Required {
		if s.Credentials[field].Empty() {
			s.Errorf("the fixture has no %s", field)
		}
	}
	if s.Rail.CheckCredentials == nil {
		return
	}
	if err := s.Rail.CheckCredentials(s.Environment, s.Credentials); err != nil {
		s.Errorf("the fixture's credentials: %v", err)
	}
	err := s.Rail.CheckCredentials(s.Environment, secrets.Fields{})
	if err == nil {
		s.Error("no credentials at all are taken")
	}
	for _, value := range s.Credentials {
		if err != nil && value.Reveal() != "" && strings.Contains(err.Error(), value.Reveal()) {
			s.Error("the refusal quotes a value")
		}
	}
}

// FuzzExpand calls the rail with bodies that resemble those of its deliveries: it must not panic,
// and the observations must be storable.
func FuzzExpand(f *testing.F, fixture Fixture, clock *Clock) {
	f.Add(fixture.Deliver().Body)
	f.Add(fixture.Unknown().Body)
	for _, body := range hostileBodies() {
		if len(body) < 1<<10 {
			f.Add(body)
		}
	}
	access := fixture.Access(clock)
	f.Fuzz(func(t *testing.T, body []byte) {
		fit(t, fixture, access, payments.Delivery{ID: "1", Type: "x", Body: body})
	})
}

// fit expands a delivery: what it says must be fit to be recorded.
func fit(t *testing.T, fixture Fixture, access payments.Access, d payments.Delivery) {
	t.Helper()
	observations, err := fixture.Rail.Expand(t.Context(), access, d)
	if err != nil {
		return
	}
	for _, o := range observations {
		if o.TransactionID == "" || o.Version <= 0 {
			t.Fatalf("an observation with transaction id %q and version %d", o.TransactionID, o.Version)
		}
	}
}

// FuzzVerify calls the rail with bodies that have a genuine proof, as a sender with a leaked secret
// could make; seal makes a body from the fuzzed bytes, nil uses them unchanged. Without a secret
// the header is that of a genuine delivery.
func FuzzVerify(f *testing.F, fixture Fixture, clock *Clock, seal func(text []byte) (body []byte, ok bool)) {
	genuine := fixture.Deliver()
	f.Add(genuine.Body)
	f.Add(fixture.Unknown().Body)
	for _, body := range hostileBodies() {
		if len(body) < 1<<10 {
			f.Add(body)
		}
	}
	access := fixture.Access(clock)
	f.Fuzz(func(t *testing.T, body []byte) {
		if seal != nil {
			sealed, ok := seal(body)
			if !ok {
				return
			}
			body = sealed
		}
		header := genuine.Header
		if fixture.Sign != nil {
			header = fixture.Sign(access.Credentials[fixture.SecretField].Reveal(), body, clock.Now())
		}
		d, err := fixture.Rail.Verify(t.Context(), access, header, body)
		if err != nil {
			return
		}
		if d.ID == "" || len(d.ID) > 200 || !bytes.Equal(d.Body, body) {
			t.Fatalf("a delivery with id %q and a body of %d bytes of %d", d.ID, len(d.Body), len(body))
		}
		fit(t, fixture, access, d)
	})
}

// FuzzRedeem submits invalid values as each kind of proof: the rail must refuse all of them.
func FuzzRedeem(f *testing.F, fixture Fixture, clock *Clock) {
	for _, text := range []string{"", "a.b.c", "eyJhbGciOiJFUzI1NiJ9.e30.AA", "token-1", "cs_1", "../../v1", "a\x00b", "1?expand=x"} {
		f.Add(text)
	}
	access := fixture.Access(clock)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range []payments.Submission{{SignedTransaction: text}, {TransactionID: text}, {PurchaseToken: text}, {SessionID: text}} {
			if observations, err := fixture.Rail.Redeem(t.Context(), access, s); err == nil {
				t.Fatalf("%q is vouched for: %+v", text, observations)
			}
		}
	})
}
