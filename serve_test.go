package kit_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

func get(h http.Handler, path string) (int, string) {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
	return rec.Code, rec.Body.String()
}

func TestHealth(t *testing.T) {
	k := kittest.New(t, kit.WithVersion("1.2.3"))
	if status, body := get(k, "/health"); status != 200 || body != `{"status":"ok","version":"1.2.3"}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
}

// TestHosts mounts one kit the ways applications do: at the root, under a
// prefix that the router leaves on, and under one that it strips.
func TestHosts(t *testing.T) {
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("page")) })
	at := func(base string) *kittest.Kit {
		return kittest.New(t, append(everything(), kit.WithBaseURL("http://localhost:8080"+base))...)
	}
	kept := http.NewServeMux()
	kept.Handle("/api/", at("/api"))
	kept.Handle("/", pages)
	stripped := http.NewServeMux()
	stripped.Handle("/api/", http.StripPrefix("/api", at("/api")))
	stripped.Handle("/", pages)
	router := chi.NewRouter()
	router.Mount("/api", at("/api"))
	router.Handle("/*", pages)
	for name, h := range map[string]http.Handler{
		"net/http": kept, "net/http stripped": stripped, "chi": router, "Before": at("/api").Before(pages),
	} {
		t.Run(name, func(t *testing.T) {
			if status, body := get(h, "/api/health"); status != 200 || !strings.Contains(body, "ok") {
				t.Errorf("health: %d %s", status, body)
			}
			if status, _ := get(h, "/api/ledger/coins"); status != 401 {
				t.Errorf("ledger: %d", status)
			}
			if status, body := get(h, "/index.html"); status != 200 || body != "page" {
				t.Errorf("page: %d %s", status, body)
			}
		})
	}
	if status, _ := get(at("/api").Before(pages), "/api/ledger/a%2Fb"); status != 401 {
		t.Errorf("an escaped slash in a parameter went to the pages: %d", status)
	}
	root := at("")
	h := root.Before(pages)
	for path, owned := range map[string]bool{"/health": true, "/ledger/coins": true, "/ledger": false, "/api/health": false, "/": false} {
		if root.Owns(path) != owned {
			t.Errorf("Owns(%q) = %v", path, !owned)
		}
		if _, body := get(h, path); (body != "page") != owned {
			t.Errorf("%s: %q", path, body)
		}
	}
}

func TestCapabilityNotComposedLeavesItsPrefixFree(t *testing.T) {
	k := kittest.New(t, part(capability.Capability{Name: "shop", Version: "1", Prefix: "/ledger",
		Routes: []capability.Route{route("GET", "/ledger/:thing", capability.Public("tests"))}}))
	k.Anonymous().Get("/ledger/x").Want(200, "")
	k.Anonymous().Get("/auth/devices").Want(404, "kit/not_found")
	if k.Ledger() != nil || k.Auth() != nil || k.Audit() != nil {
		t.Error("accessors of what is not composed are not nil")
	}
}

func TestReady(t *testing.T) {
	var sick error
	k := kittest.New(t, append(everything(), part(capability.Capability{Name: "shop", Version: "1",
		Health: []capability.HealthKey{{Key: "stock", Read: func(context.Context) (any, error) { return 1, sick }}}}))...)
	if err := k.Ready(context.Background()); err != nil {
		t.Error(err)
	}
	sick = errors.New("out of stock")
	if err := k.Ready(context.Background()); err != nil {
		t.Errorf("an aggregate was read again at once: %v", err)
	}
	k.Clock.Advance(30 * time.Second)
	if err := k.Ready(context.Background()); !errors.Is(err, sick) || !strings.Contains(err.Error(), "shop.stock") {
		t.Errorf("got %v", err)
	}
}

func TestMigrationsByHand(t *testing.T) {
	k := kittest.New(t, append(everything(), kit.WithoutMigrations())...)
	k.Anonymous().Get("/health").Want(200, "")
	if err := k.Ready(context.Background()); err == nil {
		t.Error("ready without a schema")
	}
	for range 2 {
		if err := k.Migrate(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	k.Clock.Advance(time.Minute)
	if err := k.Ready(context.Background()); err != nil {
		t.Error(err)
	}
}

// dispatched composes a kit with one job that notes its payloads.
func dispatched(t *testing.T, ran *[]string, opts ...kit.Option) *kittest.Kit {
	return kittest.New(t, append(opts, part(capability.Capability{Name: "shop", Version: "1", Jobs: []jobs.Binding{{
		Name: "SHOP_RESTOCK",
		Run: func(_ context.Context, job jobs.Job) error {
			*ran = append(*ran, job.Binding+" "+job.Key+" "+string(job.Payload))
			return nil
		},
		Dispatch: jobs.Dispatchable[restock](),
	}, {Name: "SHOP_LETTER", Run: func(context.Context, jobs.Job) error { return nil }}}}))...)
}

// restock is the payload that outside callers may start SHOP_RESTOCK with.
type restock struct {
	Item int `json:"item"`
}

func TestRunRefusesASchemaThatIsNotMigrated(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k, err := kit.New(append(everything(), kit.WithDatabase(db), kit.WithoutMigrations())...)
		if err != nil {
			t.Fatal(err)
		}
		limited, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		fault := new(capability.Fault)
		if err := k.Run(limited); !errors.As(err, &fault) || fault.Key != "migrations" || fault.Fix == "" {
			t.Errorf("without its tables Run returns %v", err)
		}
		if err := k.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := errors.Join(k.Run(limited), k.Close(t.Context())); err != nil {
			t.Errorf("with its tables Run returns %v", err)
		}
	})
}

func TestWorkflowDispatch(t *testing.T) {
	key := []byte("0123456789abcdef0123456789abcdef")
	var ran []string
	var log syncBuffer
	k := dispatched(t, &ran, kit.WithDispatchKey(key), kit.WithBaseURL("http://localhost:8080/api"), kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	send := func(path, body, signature string) *kittest.Response {
		return k.Anonymous().With(kit.SignatureHeader, signature).Post(path, body)
	}
	const path = "/api/__kit/workflows/SHOP_RESTOCK"
	body := `{"payload":{"item":7},"key":"monday"}`
	sign := func(at time.Time, path, body string) string { return kit.SignDispatch(key, at, path, []byte(body)) }
	now := k.Clock.Now()

	const missing, unmatched, far = "the header Kit-Signature is missing", "no signature is by a key", " is more than 5m0s from the time here, "
	for name, c := range map[string]struct{ signature, reason string }{
		"none": {"", missing}, "malformed": {"v1", "the timestamp is missing"}, "no time": {strings.TrimPrefix(sign(now, path, body), "t="), "the timestamp is missing"},
		"another path":    {sign(now, "/__kit/workflows/SHOP_RESTOCK", body), unmatched},
		"another body":    {sign(now, path, body+" "), unmatched},
		"too old":         {sign(now.Add(-301*time.Second), path, body), far + now.Format(time.RFC3339)},
		"from the future": {sign(now.Add(301*time.Second), path, body), now.Add(301*time.Second).Format(time.RFC3339) + far},
		"another key":     {kit.SignDispatch([]byte("another key entirely"), now, path, []byte(body)), unmatched},
		"fifth of five":   {"v1=00,v1=00,v1=00,v1=00," + sign(now, path, body), unmatched},
	} {
		t.Run(name, func(t *testing.T) {
			log.Reset()
			got := send(path, body, c.signature).Want(401, "kit/invalid_signature")
			if !strings.Contains(log.String(), c.reason) || strings.Contains(string(got.Body), c.reason) {
				t.Errorf("sent %s and logged %s, expected %q in the log alone", got.Body, log.String(), c.reason)
			}
		})
	}
	var response struct{ JobID string }
	send(path, body, sign(now.Add(-299*time.Second), path, body)).Want(202, "").JSON(&response)
	if response.JobID == "" {
		t.Error("no job id")
	}
	var again struct{ JobID string }
	send(path, body, "v1=00,"+sign(now, path, body)).Want(202, "").JSON(&again)
	if again != response {
		t.Error("a second job under the key of one that waits")
	}
	unknown := "/api/__kit/workflows/NO_SUCH"
	send(unknown, `{}`, sign(now, unknown, `{}`)).Want(404, "kit/not_found")
	send(path, `{"more":1}`, sign(now, path, `{"more":1}`)).Want(400, "kit/invalid_request")
	long := `{"key":"` + strings.Repeat("k", 256) + `"}`
	send(path, long, sign(now, path, long)).Want(400, "kit/invalid_request")
	wrong := `{"payload":{"item":"seven"}}`
	send(path, wrong, sign(now, path, wrong)).Want(400, "kit/invalid_request")
	internal := "/api/__kit/workflows/SHOP_LETTER"
	send(internal, `{}`, sign(now, internal, `{}`)).Want(404, "kit/not_found")
	once := sign(now, path, `{}`)
	send(path, `{}`, once).Want(202, "")
	send(path, `{}`, once).Want(401, "kit/invalid_signature")
	if n := k.RunJobs(); n < 2 || len(ran) != 2 || ran[0] != `SHOP_RESTOCK monday {"item":7}` {
		t.Errorf("%d ran: %q", n, ran)
	}
}

func TestDispatchWithoutAKeyIsRefused(t *testing.T) {
	t.Setenv("KIT_DISPATCH_KEY", "")
	var ran []string
	k := dispatched(t, &ran)
	path := "/__kit/workflows/SHOP_RESTOCK"
	k.Anonymous().With(kit.SignatureHeader, kit.SignDispatch(nil, k.Clock.Now(), path, []byte(`{}`))).Post(path, `{}`).Want(401, "kit/invalid_signature")
}

// TestRun works on jobs until its context ends, and a schedule's tick runs.
func TestRun(t *testing.T) {
	done := make(chan string, 1)
	k := kittest.New(t, part(capability.Capability{Name: "shop", Version: "1", Jobs: []jobs.Binding{{
		Name: "SHOP_RESTOCK",
		Run: func(_ context.Context, job jobs.Job) error {
			done <- string(job.Payload)
			return nil
		}}}}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	if _, err := k.Jobs().Enqueue(ctx, "SHOP_RESTOCK", 7); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got != "7" {
		t.Errorf("ran with %s", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestIdempotencyKeysAreInTheDatabaseOfTheRows: a key is committed with what it was for,
// in the capability's own database, and the kit's schedule removes it there too.
func TestIdempotencyKeysAreInTheDatabaseOfTheRows(t *testing.T) {
	games := databasetest.Memory(t)
	boards := leaderboard.Config{Database: "GAMES", Boards: []leaderboard.Board{
		{Key: "xp", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum}}}
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithLedger(coins()), kit.WithNamedDatabase("GAMES", games), kit.WithLeaderboard(boards))
	keys := func(db *database.DB) (n int) {
		if err := db.QueryRow(t.Context(), `SELECT COUNT(*) FROM kit_idempotency`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	server := k.User("server", "leaderboard:submit").With("Idempotency-Key", "k1")
	for range 2 {
		server.Post("/leaderboard/xp", `{"score":5,"userId":"ada"}`).Want(200, "")
	}
	if me, err := k.Leaderboard().Me(t.Context(), leaderboard.View{Board: "xp"}, "ada"); err != nil || me.Entry.Score != 5 {
		t.Errorf("%+v %v", me, err)
	}
	if _, err := k.Database().Exec(t.Context(), `INSERT INTO kit_idempotency (route, caller, key, hash, status, answer, expires_at)
		VALUES ('r', 'c', 'k', 'h', 200, '', $1)`, k.Clock.Now().Add(mount.KeyLifetime).UnixMilli()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		kept  int
	}{{mount.KeyLifetime - time.Hour, 1}, {2 * time.Hour, 0}} {
		k.Clock.Advance(step.after)
		k.RunJobs()
		if own, other := keys(k.Database()), keys(games); own != step.kept || other != step.kept {
			t.Errorf("%d and %d keys, want %d in each", own, other, step.kept)
		}
	}
}

// TestMasterKeyReplaced: what an older master key has sealed works with the new
// one alone once it is rewrapped.
func TestMasterKeyReplaced(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		under := func(letters string) *kittest.Kit {
			var keys []string
			for _, letter := range letters {
				keys = append(keys, string(letter)+":"+base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(letter)}, 32)))
			}
			source := func(context.Context) (string, error) { return strings.Join(keys, ","), nil }
			return kittest.New(t, append(everything(), kit.WithDatabase(db), kit.WithMasterKeys(source))...)
		}
		before := under("a")
		if err := before.Auth().EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		session, err := before.Auth().CreateSession(ctx, "ada")
		if err != nil {
			t.Fatal(err)
		}
		token, err := before.Auth().SessionAccessToken(ctx, session)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := before.Email().Send(ctx, email.Message{To: "ada@example.com", Subject: "kept", Text: "Hello."}); err != nil {
			t.Fatal(err)
		}
		both := under("ba")
		if n, err := both.Rewrap(ctx); n == 0 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		if n, err := both.Rewrap(ctx); n != 0 || err != nil {
			t.Errorf("again: %d %v", n, err)
		}
		after := under("b")
		after.Bearing("Bearer "+token).Get("/ledger/coins").Want(200, "")
		after.RunJobs()
		if got := after.LastMail("ada@example.com").Subject; got != "kept" {
			t.Errorf("the mail that was waiting: %q", got)
		}
	})
}

// TestTwoKitsOnOneDatabase holds that nodes respond alike.
func TestTwoKitsOnOneDatabase(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	a := kittest.New(t, append(everything(), kit.WithDatabase(dbs[0]))...)
	b := kittest.New(t, append(everything(), kit.WithDatabase(dbs[1]))...)
	staff := a.User("staff", "ledger:admin")
	staff.Post("/ledger/coins/credit", `{"userId":"ada","amount":5,"ref":"r1"}`).Want(201, "")
	var balance struct{ Balance int64 }
	b.User("ada").Get("/ledger/coins").Want(200, "").JSON(&balance)
	if balance.Balance != 5 {
		t.Errorf("the other node returns %d", balance.Balance)
	}
	var tx, again json.RawMessage
	a.User("staff", "ledger:admin").Post("/ledger/coins/credit", `{"userId":"ada","amount":5,"ref":"r1"}`).Want(201, "").JSON(&tx)
	b.User("staff", "ledger:admin").Post("/ledger/coins/credit", `{"userId":"ada","amount":5,"ref":"r1"}`).Want(201, "").JSON(&again)
	if string(tx) != string(again) {
		t.Errorf("replays differ:\n%s\n%s", tx, again)
	}
}

func TestOwnRouteWithAnEscapedSlashIsIdentified(t *testing.T) {
	k := kittest.New(t, kit.WithAuth(auth.Config{}))
	mux := http.NewServeMux()
	var info *capability.RequestInfo
	mux.HandleFunc("GET /{name}", func(_ http.ResponseWriter, r *http.Request) { info = capability.RequestInfoOf(r.Context()) })
	k.Before(k.Identify(mux)).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/auth%2Fnotes", nil))
	if info == nil || info.RequestID == "" {
		t.Errorf("the path is not the kit's, and is not identified: %+v", info)
	}
}
