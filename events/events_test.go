package events_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/secrets"
)

var (
	key    = []byte("0123456789abcdef0123456789abcdef")
	secret = "whsec_" + base64.StdEncoding.EncodeToString(key)
)

// received is one request to the receiver.
type received struct {
	id, signature, at string
	body              []byte
	events.Message
}

// receiver responds with the statuses of its script, then with 204.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	script []int
	header http.Header
	got    []received
}

func newReceiver(t *testing.T, script ...int) *receiver {
	t.Helper()
	r := &receiver{script: script, header: http.Header{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	body, _ := io.ReadAll(q.Body) // a short one fails the signature
	one := received{q.Header.Get("webhook-id"), q.Header.Get("webhook-signature"), q.Header.Get("webhook-timestamp"), body, events.Message{}}
	_ = json.Unmarshal(body, &one.Message) // a body that is no message has no type
	r.got = append(r.got, one)
	status := http.StatusNoContent
	if len(r.script) > 0 {
		status, r.script = r.script[0], r.script[1:]
	}
	for name, values := range r.header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
}

func (r *receiver) respond(statuses ...int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = statuses
}

func (r *receiver) types() (list []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.got {
		list = append(list, one.Type)
	}
	return list
}

func (r *receiver) last() received {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.got[len(r.got)-1]
}

func (r *receiver) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got)
}

func (r *receiver) endpoint(types ...string) events.Endpoint {
	return events.Endpoint{Name: "crm", URL: r.URL + "/hook?token=abc", Secret: secret, Private: true, Events: types}
}

func compose(t *testing.T, db *database.DB, cfg events.Config, opts ...kit.Option) *kittest.Kit {
	t.Helper()
	return kittest.New(t, append([]kit.Option{kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}), kit.WithEvents(cfg)}, opts...)...)
}

func create(t *testing.T, k *kittest.Kit, id string) {
	t.Helper()
	if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: id, Email: id + "@example.com", EmailVerified: true}); err != nil {
		t.Fatal(err)
	}
}

func status(t *testing.T, k *kittest.Kit) events.EndpointStatus {
	t.Helper()
	list, err := k.Events().Endpoints(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	return list[0]
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, _ string) (capability.Capability, error) {
		e, err := events.New(h, events.Config{Endpoints: []events.Endpoint{{Name: "crm", URL: "https://example.com", Secret: secret}}}, events.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return e.Capability(), nil
	})
}

// TestWhatHappensIsToldSigned checks the signature of the Standard Webhooks specification.
func TestWhatHappensIsToldSigned(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created", "session.ended")}})
		create(t, k, "ada")
		k.RunJobs()
		if got := r.types(); !slices.Equal(got, []string{"user.created"}) {
			t.Fatalf("told of %v", got)
		}
		one := r.last()
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.%s", one.id, one.at, one.body)
		if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); one.signature != want {
			t.Errorf("signature %q, want %q", one.signature, want)
		}
		if one.at != fmt.Sprint(k.Clock.Now().Unix()) || !one.Timestamp.Equal(k.Clock.Now()) || string(one.Data) != `{"userId":"ada","anonymous":false}` {
			t.Errorf("got %s at %s", one.body, one.at)
		}
		items, err := k.Events().ListDeliveries(t.Context(), events.DeliveryFilter{Endpoint: "crm", State: events.StateDelivered}, capability.NewPage(0, ""))
		if err != nil || len(items.Items) != 1 || items.Items[0].LastStatus != 204 || items.Items[0].MessageID != one.id {
			t.Errorf("%+v %v, want the delivery", items, err)
		}
	})
}

func TestNothingIsToldOfWhatIsRolledBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint()}})
		refuse := errors.New("no")
		k.Hooks().UserCreated.In(func(context.Context, hooks.UserCreated) error { return refuse })
		if _, err := k.Auth().CreateUser(t.Context(), auth.NewUser{ID: "ada"}); !errors.Is(err, refuse) {
			t.Fatal(err)
		}
		k.RunJobs()
		if r.calls() != 0 || status(t, k).Pending != 0 {
			t.Errorf("told of %v, which never was", r.types())
		}
	})
}

func TestFailuresAreTriedAgainUnderOneID(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t, 500, 404)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
		create(t, k, "ada")
		for _, after := range []time.Duration{0, 10 * time.Second, 10 * time.Minute} {
			k.Clock.Advance(after)
			k.RunJobs()
		}
		if r.calls() != 3 || r.got[0].id != r.got[2].id {
			t.Fatalf("%d calls, want three under one id", r.calls())
		}
		if s := status(t, k); !s.FailingSince.IsZero() || s.Pending != 0 {
			t.Errorf("after it has succeeded: %+v", s)
		}
	})
}

func TestRetryAfterIsRespected(t *testing.T) {
	r := newReceiver(t, 429)
	r.header.Set("Retry-After", "3600")
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
	create(t, k, "ada")
	k.RunJobs()
	k.Clock.Advance(30 * time.Minute)
	k.RunJobs()
	if r.calls() != 1 {
		t.Fatalf("%d calls before the time that the endpoint asked for", r.calls())
	}
	k.Clock.Advance(31 * time.Minute)
	if k.RunJobs(); r.calls() != 2 {
		t.Errorf("%d calls, want the second", r.calls())
	}
}

func TestPersistentFailureDisablesAndReplayMakesUpForIt(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}, DisableAfter: time.Hour})
		ctx := t.Context()
		r.respond(500, 500, 500, 500, 500)
		create(t, k, "ada")
		for range 4 {
			k.RunJobs()
			k.Clock.Advance(time.Hour)
		}
		if s := status(t, k); s.DisabledAt.IsZero() || !strings.Contains(s.Reason, "1h") || s.Failed != 1 || s.Pending != 0 {
			t.Fatalf("%+v, want it disabled", s)
		}
		calls := r.calls()
		create(t, k, "bob")
		k.RunJobs()
		if r.calls() != calls {
			t.Error("a disabled endpoint was called")
		}
		if _, err := k.Events().Replay(ctx, "crm", time.Time{}); !errors.Is(err, events.ErrDisabled) {
			t.Errorf("replay to a disabled endpoint: %v", err)
		}
		r.respond()
		if err := k.Events().Enable(ctx, "crm"); err != nil {
			t.Fatal(err)
		}
		if n, err := k.Events().Replay(ctx, "crm", time.Time{}); n != 2 || err != nil {
			t.Fatalf("replayed %d, %v, want both", n, err)
		}
		k.Clock.Advance(time.Minute)
		k.RunJobs()
		if s := status(t, k); r.calls() != calls+2 || s.Failed != 0 || s.Pending != 0 {
			t.Errorf("%d calls, %+v, want both delivered", r.calls()-calls, s)
		}
		if ok, err := k.Events().Resend(ctx, "crm", r.last().id); !ok || err != nil {
			t.Error(ok, err)
		}
		if k.RunJobs(); r.calls() != calls+3 {
			t.Error("what was delivered is not sent again on request")
		}
		if ok, err := k.Events().Resend(ctx, "crm", "msg_none"); ok || err != nil {
			t.Error(ok, err)
		}
		var actions []string
		trail, err := k.Audit().ListEvents(ctx, audit.Filter{}, capability.NewPage(0, ""))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range trail.Items {
			if strings.HasPrefix(e.Action, "events/") {
				actions = append(actions, e.Action)
			}
		}
		if want := []string{"events/replayed", "events/endpoint_enabled", "events/endpoint_disabled"}; !slices.Equal(actions, want) {
			t.Errorf("the trail has %v, want %v", actions, want)
		}
	})
}

func TestDeliveryIsGivenUpAfterItsAttempts(t *testing.T) {
	r := newReceiver(t)
	r.respond(slices.Repeat([]int{503}, 20)...)
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}, DisableAfter: 1000 * time.Hour})
	create(t, k, "ada")
	for range 2 * events.Attempts {
		k.RunJobs()
		k.Clock.Advance(25 * time.Hour)
	}
	if s := status(t, k); r.calls() != events.Attempts || s.Failed != 1 || !s.DisabledAt.IsZero() {
		t.Errorf("%d calls, %+v, want %d and one that has failed", r.calls(), s, events.Attempts)
	}
}

// TestCertificateOfAnyNameCountsAsAFailedAttempt checks that the error of an attempt may quote a
// certificate with any bytes.
func TestCertificateOfAnyNameCountsAsAFailedAttempt(t *testing.T) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	named := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"crm\x00.example.com"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, named, named, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{
			{Name: "crm", URL: "https://localhost:" + port, Secret: secret, Private: true, Events: []string{"user.created"}}}})
		create(t, k, "ada")
		k.RunJobs()
		deliveries, err := k.Events().ListDeliveries(t.Context(), events.DeliveryFilter{Endpoint: "crm"}, capability.Page{})
		if err != nil || len(deliveries.Items) != 1 {
			t.Fatalf("%d deliveries: %v", len(deliveries.Items), err)
		}
		if d := deliveries.Items[0]; d.Attempts != 1 || !strings.Contains(d.LastError, "crm.example.com") {
			t.Errorf("%d attempts, the last error is %q", d.Attempts, d.LastError)
		}
	})
}

func TestGoneDisablesAtOnce(t *testing.T) {
	r := newReceiver(t, 410)
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
	create(t, k, "ada")
	k.RunJobs()
	if s := status(t, k); s.Reason != "the endpoint returned 410" || s.Failed != 1 {
		t.Errorf("%+v", s)
	}
}

// TestDeadEndpointIsLeftAlone checks that the deliveries of a dead endpoint do not occupy the
// workers of others.
func TestDeadEndpointIsLeftAlone(t *testing.T) {
	r := newReceiver(t)
	r.respond(slices.Repeat([]int{500}, 50)...)
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
	for i := range 20 {
		create(t, k, fmt.Sprint("user", i))
	}
	if k.RunJobs(); r.calls() != 1 {
		t.Errorf("%d calls at one instant, want one", r.calls())
	}
}

func TestPrivateAddressesAreNotCalled(t *testing.T) {
	r := newReceiver(t)
	to := r.endpoint("user.created")
	to.Private, to.URL = false, strings.Replace(r.URL, "http:", "https:", 1)
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{to}})
	create(t, k, "ada")
	k.RunJobs()
	items, err := k.Events().ListDeliveries(t.Context(), events.DeliveryFilter{Endpoint: "crm"}, capability.NewPage(0, ""))
	if err != nil || len(items.Items) != 1 || !strings.Contains(items.Items[0].LastError, "not a public address") || r.calls() != 0 {
		t.Errorf("%+v %v, want a refusal of the address", items, err)
	}
}

func TestSecretsAreRotatedWithAnOverlap(t *testing.T) {
	r := newReceiver(t)
	to := r.endpoint("user.created")
	to.Secret = ""
	k := compose(t, databasetest.Memory(t), events.Config{Endpoints: []events.Endpoint{to}}, kit.WithSecrets(secrets.Config{}))
	set := func(letter string) {
		t.Helper()
		text := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(letter, 32)))
		if _, err := k.Secrets().Rotate(t.Context(), "events-crm", secrets.Blocks{"signing": {"secret": secrets.NewValue(text)}}); err != nil {
			t.Fatal(err)
		}
		k.RunJobs()
		k.Clock.Advance(time.Minute)
		k.RunJobs()
	}
	create(t, k, "ada")
	if k.RunJobs(); r.calls() != 0 {
		t.Fatal("told without a secret")
	}
	set("a")
	k.Clock.Advance(10 * time.Minute)
	if k.RunJobs(); r.calls() != 1 {
		t.Fatalf("%d calls once there is a secret", r.calls())
	}
	set("b")
	create(t, k, "bob")
	k.RunJobs()
	if n := len(strings.Fields(r.last().signature)); n != 2 {
		t.Errorf("%d signatures right after a rotation, want those of both secrets", n)
	}
	if _, err := k.Secrets().Rotate(t.Context(), "events-crm", secrets.Blocks{"signing": {"secret": secrets.NewValue("short")}}); !errors.Is(err, secrets.ErrInvalidValue) {
		t.Errorf("a secret that is none: %v", err)
	}
}

// TestErasureLeavesNothing checks that endpoints receive the user.deleted of an erased user, and
// that nothing else is left.
func TestErasureLeavesNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint()}})
		ctx := t.Context()
		create(t, k, "ada")
		create(t, k, "bob")
		if _, err := k.Auth().CreateSession(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		fire := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		fire(k.Hooks().MailSuppressed.Fire(ctx, hooks.MailSuppressed{Address: "ada@example.com", Scope: "all", Reason: "bounce"}))
		fire(k.Hooks().MatchStarted.Fire(ctx, hooks.MatchStarted{SessionID: "s", Game: "duel", Players: []string{"bob", "ada"}}))
		fire(k.Hooks().MatchEnded.Fire(ctx, hooks.MatchEnded{SessionID: "s", Game: "duel", Ranks: map[string]int{"ada": 1, "bob": 2}}))
		k.RunJobs()

		var kinds []string
		err := k.Events().Capability().Export(ctx, capability.Person{ID: "ada", Emails: []string{"ada@example.com"}}, func(_ string, record any) error {
			text, err := json.Marshal(record)
			kinds = append(kinds, string(text))
			if strings.Contains(string(text), "bob") {
				t.Errorf("the export tells of others: %s", text)
			}
			return err
		})
		if all := strings.Join(kinds, "\n"); err != nil || len(kinds) < 5 || !strings.Contains(all, "mail.suppressed") ||
			!strings.Contains(all, "match.started") || !strings.Contains(all, "match.ended") {
			t.Errorf("exported %s, %v", all, err)
		}

		r.respond(slices.Repeat([]int{500}, 5)...) // user.deleted is delivered late
		fire(k.EraseUser(ctx, "ada"))
		k.RunJobs()
		if e, err := k.Erasure(ctx, "ada"); err != nil || e.FinishedAt.IsZero() || len(e.Capabilities["events"].Kept) != 1 {
			t.Fatalf("%+v %v", e, err)
		}
		r.respond()
		for range 3 {
			k.Clock.Advance(time.Hour)
			k.RunJobs()
		}
		if !slices.Contains(r.types(), "user.deleted") {
			t.Errorf("told of %v, want the end of the account", r.types())
		}
		for _, query := range []string{
			`SELECT COUNT(*) FROM events_message WHERE data LIKE '%"ada%'`, `SELECT COUNT(*) FROM events_subject WHERE subject LIKE '%ada%'`,
		} {
			var n int
			if err := db.QueryRow(ctx, query).Scan(&n); err != nil || n > 0 {
				t.Errorf("%s: %d %v", query, n, err)
			}
		}
		var n int
		if err := db.QueryRow(ctx, `SELECT COUNT(*) FROM events_message WHERE type LIKE 'match.%' AND data LIKE '%bob%'`).Scan(&n); err != nil || n != 2 {
			t.Errorf("%d messages about bob's match, %v, want its start and its end to stay", n, err)
		}
	})
}

func TestMessagesAreKeptForAWhile(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := newReceiver(t)
		k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint("user.created")}})
		create(t, k, "ada")
		k.RunJobs()
		for _, want := range []int{1, 0} {
			var n int
			if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM events_message`).Scan(&n); err != nil || n != want {
				t.Errorf("%d messages, %v, want %d", n, err, want)
			}
			k.Clock.Advance(31 * 24 * time.Hour)
			k.RunJobs()
		}
	})
}

func TestEveryHookCanBeTold(t *testing.T) {
	db := databasetest.Memory(t)
	r := newReceiver(t)
	k := compose(t, db, events.Config{Endpoints: []events.Endpoint{r.endpoint()}})
	h, ctx := k.Hooks(), t.Context()
	for _, err := range []error{
		h.UserCreated.Fire(ctx, hooks.UserCreated{UserID: "u"}), h.UserUpdated.Fire(ctx, hooks.UserUpdated{UserID: "u"}),
		h.UserDeleted.Fire(ctx, hooks.UserDeleted{UserID: "u"}), h.SessionStarted.Fire(ctx, hooks.Session{UserID: "u"}),
		h.SessionUsed.Fire(ctx, hooks.Session{UserID: "u"}), h.SessionEnded.Fire(ctx, hooks.SessionEnded{UserID: "u"}),
		h.EntitlementsChanged.Fire(ctx, hooks.EntitlementsChanged{SubjectType: "organization", SubjectID: "o"}),
		h.MatchStarted.Fire(ctx, hooks.MatchStarted{}), h.MatchEnded.Fire(ctx, hooks.MatchEnded{}), h.MailSuppressed.Fire(ctx, hooks.MailSuppressed{Address: "a"}),
		h.MailUnsubscribed.Fire(ctx, hooks.MailSuppressed{Address: "a", UserID: "u"}), h.MediaReady.Fire(ctx, hooks.MediaReady{OwnerID: "u"}),
		h.MediaDeleted.Fire(ctx, hooks.MediaDeleted{OwnerID: "u"}),
		h.SupportReceived.Fire(ctx, hooks.SupportReceived{ThreadID: "t", UserID: "u"}),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	k.RunJobs()
	got := slices.Sorted(slices.Values(r.types()))
	if want := slices.Sorted(slices.Values(events.Types())); !slices.Equal(got, want) {
		t.Errorf("told of %v, want %v", got, want)
	}
}

func TestFaults(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithEvents(events.Config{
		Endpoints: []events.Endpoint{
			{Name: "Crm", URL: "https://example.com", Secret: secret},
			{Name: "a", URL: "http://example.com", Secret: secret},
			{Name: "a", URL: "example", Secret: "whsec_short", Events: []string{"user.made"}},
			{Name: "b", URL: "https://example.com"},
		},
		DisableAfter: time.Second, Retention: time.Hour, Timeout: time.Hour,
	}))
	for _, want := range []string{
		"endpoints[0].name", "endpoints[1].url: is not https", "endpoints[2].name", "endpoints[2].url: is not an address",
		"endpoints[2].secret: is not whsec_", "endpoints[2].events", "endpoints[3].secret: is missing", "disableAfter", "retention", "timeout",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no fault %q in %v", want, err)
		}
	}
	k := compose(t, databasetest.Memory(t), events.Config{})
	for _, err := range []error{
		k.Events().Enable(t.Context(), "x"), k.Events().Disable(t.Context(), "x", ""),
		func() error { _, err := k.Events().Replay(t.Context(), "x", time.Time{}); return err }(),
		func() error { _, err := k.Events().Resend(t.Context(), "x", ""); return err }(),
		func() error {
			_, err := k.Events().ListDeliveries(t.Context(), events.DeliveryFilter{Endpoint: "x"}, capability.Page{})
			return err
		}(),
	} {
		if !errors.Is(err, events.ErrEndpointNotFound) {
			t.Errorf("got %v, want %v", err, events.ErrEndpointNotFound)
		}
	}
}
