package kit_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/paytest"
	"github.com/kitbackend/kit/pubsub"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

// composing is kit.New without a log, for the examples.
func composing(opts ...kit.Option) *kit.Kit {
	k, err := kit.New(append([]kit.Option{kit.WithLogger(slog.New(slog.DiscardHandler))}, opts...)...)
	if err != nil {
		log.Fatal(err)
	}
	return k
}

// status is what a GET returns.
func status(h http.Handler, path string, header ...string) int {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// TestEveryOptionHasAnExample reads the sources: an option without an example
// is one that nobody has shown.
func TestEveryOptionHasAnExample(t *testing.T) {
	var examples string
	files, err := filepath.Glob("*example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		examples += read(t, file)
	}
	for _, file := range []string{"options.go", "compose.go"} {
		for _, name := range regexp.MustCompile(`(?m)^func (With\w+)\(`).FindAllStringSubmatch(read(t, file), -1) {
			if !strings.Contains(examples, "func Example"+name[1]+"() {") {
				t.Errorf("%s has no example", name[1])
			}
		}
	}
}

func ExampleWithAudit() {
	ctx := context.Background()
	k := composing(kit.WithAudit(audit.Config{}))
	defer k.Close(ctx)
	err := k.Audit().Record(ctx, audit.Event{Action: "shop/closed", Subject: audit.Target{Type: "shop", ID: "7"}})
	report, verified := k.Audit().Verify(ctx)
	fmt.Println(err, verified, report.Break == nil)
	// Output: <nil> <nil> true
}

func ExampleWithSecrets() {
	ctx := context.Background()
	k := composing(kit.WithSecrets(secrets.Config{Secrets: []secrets.Secret{
		{Name: "weather-key", Blocks: []secrets.Block{{Name: "api", Required: []string{"token"}}}}}}))
	defer k.Close(ctx)
	_, err := k.Secrets().Rotate(ctx, "weather-key", secrets.Blocks{"api": {"token": secrets.NewValue("t0p")}})
	key, _ := k.Secrets().Handle("weather-key")
	data, _ := key.Get(ctx)
	api, present := data.Block("api")
	fmt.Println(err, present, api["token"])
	// Output: <nil> true [redacted]
}

func ExampleWithControlPlane() {
	k := composing(kit.WithControlPlane(controlplane.Config{}))
	defer k.Close(context.Background())
	// Nobody has connected: every route of management refuses.
	fmt.Println(status(k, "/control-plane/manifest"))
	// Output: 403
}

func ExampleWithEmail() {
	ctx := context.Background()
	k := composing(kit.WithEmail(email.Config{From: "Acme <hello@acme.example>"}))
	defer k.Close(ctx)
	_, err := k.Email().Send(ctx, email.Message{To: "ada@example.org", Subject: "Hello", Text: "Hello, Ada."})
	_, worked := k.Jobs().RunDue(ctx) // what k.Run does all the time
	mail, arrived, _ := k.Email().LastMail(ctx, "ada@example.org")
	fmt.Println(err, worked, arrived, mail.Subject)
	// Output: <nil> <nil> true Hello
}

func ExampleWithAuth() {
	ctx := context.Background()
	k := composing(kit.WithAuth(auth.Config{TrustedOrigins: []string{"https://app.example.com"}}))
	defer k.Close(ctx)
	user, err := k.Auth().CreateUser(ctx, auth.NewUser{Email: "ada@example.org", Name: "Ada"})
	if err != nil {
		log.Fatal(err)
	}
	token, _ := k.Auth().IssueToken(ctx, user.ID, nil, time.Minute)
	fmt.Println(status(k, "/auth/devices"), status(k, "/auth/devices", "Authorization", "Bearer "+token))
	// Output: 401 200
}

func ExampleWithLedger() {
	ctx := context.Background()
	k := composing(kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}))
	defer k.Close(ctx)
	for range 2 { // a reference counts once
		if _, err := k.Ledger().Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 20, Ref: "welcome:ada"}); err != nil {
			log.Fatal(err)
		}
	}
	balance, err := k.Ledger().Balance(ctx, "ada", "coins")
	fmt.Println(balance.Balance, err)
	// Output: 20 <nil>
}

func ExampleWithPayments() {
	ctx := context.Background()
	stores := paytest.New(time.Now, payments.EnvironmentSandbox) // in place of the real rails
	k := composing(kit.WithSecrets(secrets.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithPayments(stores.Config(payments.Config{BillingSubject: payments.SubjectUser, ManualEntitlements: []string{"pro"}})))
	defer k.Close(ctx)
	ada := payments.Subject{Type: payments.SubjectUser, ID: "ada"}
	if _, err := k.Payments().Grant(ctx, payments.GrantRequest{Subject: ada, Entitlement: "pro", Reason: "a friend"}); err != nil {
		log.Fatal(err)
	}
	entitled, err := k.Payments().Entitled(ctx, ada, "pro")
	fmt.Println(entitled, err)
	// Output: true <nil>
}

func ExampleWithStorage() {
	ctx := context.Background()
	k := composing(kit.WithStorage(storage.Config{Quota: 1 << 20}))
	defer k.Close(ctx)
	object, err := k.Storage().Put(ctx, storage.Upload{OwnerID: "ada", Path: "notes/a.txt", Size: 5, ContentType: "text/plain",
		Visibility: storage.VisibilityPrivate}, strings.NewReader("hello"))
	fmt.Println(object.State, object.Size, err)
	// Output: ready 5 <nil>
}

func ExampleWithMedia() {
	ctx := context.Background()
	k := composing(kit.WithStorage(storage.Config{}), kit.WithMedia(media.Config{}))
	defer k.Close(ctx)
	created, err := k.Media().Create(ctx, media.Upload{OwnerID: "ada", Filename: "sea.png", ContentType: "image/png", Size: 1000})
	fmt.Println(created.Item.Status, err)
	// Output: pending <nil>
}

func ExampleWithVector() {
	ctx := context.Background()
	k := composing(kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}))
	defer k.Close(ctx)
	ada := vector.Space{Index: "notes", OwnerID: "ada"}
	if _, err := k.Vector().Upsert(ctx, ada, vector.Document{ID: "soup", Text: "Lentil soup with cumin"}); err != nil {
		log.Fatal(err)
	}
	found, err := k.Vector().Query(ctx, ada, vector.Query{Text: "soup", Mode: vector.ModeText})
	fmt.Println(found.Items[0].ID, err)
	// Output: soup <nil>
}

func ExampleWithSupport() {
	ctx := context.Background()
	k := composing(kit.WithSupport(support.Config{}))
	defer k.Close(ctx)
	ticket, opened, err := k.Support().Submit(ctx, support.Feedback{UserID: "ada", Message: "The door does not open."})
	fmt.Println(len(ticket.Messages), opened, err)
	// Output: 1 true <nil>
}

func ExampleWithTesters() {
	ctx := context.Background()
	k := composing(kit.WithEmail(email.Config{}), kit.WithTesters(testers.Config{Cohorts: []testers.CohortConfig{
		{ID: "beta", Name: "Beta", StoreURL: "https://play.example.com/beta"}}}))
	defer k.Close(ctx)
	result, err := k.Testers().Invite(ctx, "beta", []testers.Tester{{Email: "ada@example.org"}})
	fmt.Println(len(result.Invited), err)
	// Output: 1 <nil>
}

func ExampleWithLeaderboard() {
	ctx := context.Background()
	k := composing(kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{
		{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}))
	defer k.Close(ctx)
	for user, score := range map[string]int64{"ada": 70, "bob": 40} {
		if _, err := k.Leaderboard().Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: user, Score: score}); err != nil {
			log.Fatal(err)
		}
	}
	top, err := k.Leaderboard().ListTop(ctx, leaderboard.View{Board: "arcade"}, capability.NewPage(1, ""))
	fmt.Println(top.Items[0].UserID, err)
	// Output: ada <nil>
}

func ExampleWithRating() {
	ctx := context.Background()
	k := composing(kit.WithRating(rating.Config{Games: []rating.Game{
		{Key: "duel", Algorithm: "elo", XP: &rating.XP{Win: 3, Draw: 2, Loss: 1}}}}))
	defer k.Close(ctx)
	result, err := k.Rating().Record(ctx, "duel", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}, Key: "match:7"})
	fmt.Println(result.Players[0].UserID, err)
	// Output: ada <nil>
}

func ExampleWithMultiplayer() {
	ctx := context.Background()
	k := composing(kit.WithMultiplayer(multiplayer.Config{
		Models: []multiplayer.Model{race()}, Games: []multiplayer.Game{{Key: "duel", Kind: "race"}}}))
	defer k.Close(ctx)
	view, err := k.Multiplayer().Create(ctx, "duel", "ada")
	fmt.Println(view.Players, err)
	// Output: [ada] <nil>
}

func ExampleWithMatchmaking() {
	ctx := context.Background()
	k := composing(kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{{Key: "darts", Players: 2}}}))
	defer k.Close(ctx)
	for _, user := range []string{"ada", "bob"} {
		if _, err := k.Matchmaking().Enqueue(ctx, "darts", "", user); err != nil {
			log.Fatal(err)
		}
	}
	queued, err := k.Matchmaking().Status(ctx, "darts", "ada")
	fmt.Println(queued.State, err)
	// Output: waiting <nil>
}

func ExampleWithCapability() {
	hello := func(k *kit.Kit) (capability.Capability, error) {
		return capability.Capability{
			Name: "hello", Version: "1.0.0", Database: k.Database(), Prefix: "/hello", NoUserData: "it only greets",
			Routes: capability.Mount("/hello", capability.Route{
				Method: "GET", Path: "", Guard: capability.Public("a greeting is for everybody"), Summary: "Greet.",
				Handle: capability.JSON(200, func(*capability.Call, capability.None) (map[string]string, error) {
					return map[string]string{"hello": "world"}, nil
				})}),
		}, nil
	}
	k := composing(kit.WithCapability(hello))
	defer k.Close(context.Background())
	fmt.Println(status(k, "/hello"))
	// Output: 200
}

func ExampleWithNamedDatabase() {
	ctx := context.Background()
	events, err := database.OpenMemory()
	if err != nil {
		log.Fatal(err)
	}
	defer events.Close()
	k := composing(kit.WithNamedDatabase("EVENTS", events), kit.WithLeaderboard(leaderboard.Config{Database: "EVENTS",
		Boards: []leaderboard.Board{{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}))
	defer k.Close(ctx)
	fmt.Println(len(k.Databases()), k.Databases()["EVENTS"] == events)
	// Output: 2 true
}

func ExampleWithEnvironment() {
	k := composing(kit.WithEnvironment("staging"))
	defer k.Close(context.Background())
	fmt.Println(k.Environment())
	// Output: staging
}

func ExampleWithBaseURL() {
	k := composing(kit.WithBaseURL("https://example.com/api"))
	defer k.Close(context.Background())
	fmt.Println(k.Owns("/api/health"), status(k, "/api/health"))
	// Output: true 200
}

func ExampleWithVersion() {
	k := composing(kit.WithVersion("1.4.0"))
	defer k.Close(context.Background())
	fmt.Println(k.Version())
	// Output: 1.4.0
}

func ExampleWithLogger() {
	plain := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == "msg" {
			return a
		}
		return slog.Attr{}
	}})
	k, err := kit.New(kit.WithLogger(slog.New(plain)))
	if err != nil {
		log.Fatal(err)
	}
	defer k.Close(context.Background())
	// Output: msg="no database was given: running in memory, nothing is kept"
}

func ExampleWithClock() {
	ctx := context.Background()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	k := composing(kit.WithClock(func() time.Time { return now }))
	defer k.Close(ctx)
	fmt.Println(k.Database().Now(ctx).Format(time.TimeOnly))
	// Output: 12:00:00
}

func ExampleWithPubSub() {
	ctx := context.Background()
	bus := pubsub.NewMemory()
	defer bus.Close()
	k := composing(kit.WithPubSub(bus))
	defer k.Close(ctx)
	heard := make(chan string, 1)
	defer k.PubSub().Subscribe("shop/opened", func(payload []byte) { heard <- string(payload) })()
	err := bus.Publish(ctx, "shop/opened", []byte("7"))
	fmt.Println(<-heard, err)
	// Output: 7 <nil>
}

func ExampleWithRateLimit() {
	k := composing(kit.WithRateLimit("public", 2, time.Minute))
	defer k.Close(context.Background())
	fmt.Println(status(k, "/health"), status(k, "/health"), status(k, "/health"))
	// Output: 200 200 429
}

func ExampleWithTrustedProxies() {
	k := composing(kit.WithTrustedProxies(netip.MustParsePrefix("192.0.2.0/24")), kit.WithRateLimit("public", 1, time.Minute))
	defer k.Close(context.Background())
	// httptest's requests come from 192.0.2.1: the limit counts the client behind it.
	fmt.Println(status(k, "/health", "X-Forwarded-For", "198.51.100.1"), status(k, "/health", "X-Forwarded-For", "198.51.100.2"))
	// Output: 200 200
}

func ExampleWithInternalPrefix() {
	k := composing(kit.WithInternalPrefix("/_internal"))
	defer k.Close(context.Background())
	fmt.Println(k.Owns("/_internal/workflows/X"), k.Owns("/__kit/workflows/X"))
	// Output: true false
}

func ExampleWithDevelopmentSecret() {
	k := composing(kit.WithEnvironment(capability.Development), kit.WithDevelopmentSecret("sesame"), kit.WithAuth(auth.Config{}))
	defer k.Close(context.Background())
	fmt.Println(status(k, "/__kit/dev-login?user=ada"))
	// Output: 404
}

func ExampleWithDispatchKey() {
	k := composing(kit.WithDispatchKey([]byte("sixteen bytes or more")))
	defer k.Close(context.Background())
	// A scheduler outside signs POST /__kit/workflows/:binding with this key.
	fmt.Println(k.Owns("/__kit/workflows/STORAGE_SWEEP"))
	// Output: true
}

func ExampleWithMasterKeys() {
	ctx := context.Background()
	vault := func(context.Context) (string, error) { // a key management service
		return "k1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", nil
	}
	k := composing(kit.WithMasterKeys(vault), kit.WithSecrets(secrets.Config{}))
	defer k.Close(ctx)
	changed, err := k.Rewrap(ctx)
	fmt.Println(changed, err)
	// Output: 0 <nil>
}

func ExampleWithoutMigrations() {
	ctx := context.Background()
	k := composing(kit.WithoutMigrations())
	defer k.Close(ctx)
	before, _ := k.PendingMigrations(ctx)
	err := k.Migrate(ctx) // in a step of the deployment
	after, _ := k.PendingMigrations(ctx)
	fmt.Println(len(before) > 0, err, len(after))
	// Output: true <nil> 0
}
