package kit_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/payments/androidstore"
	"github.com/kitbackend/kit/payments/cardprocessor"
	"github.com/kitbackend/kit/payments/iosstore"
	"github.com/kitbackend/kit/payments/merchanta"
	"github.com/kitbackend/kit/payments/merchantb"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

func coins() ledger.Config {
	return ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}
}

// everything composes all capabilities that exist.
func everything() []kit.Option { return append(withoutAuth(), kit.WithAuth(auth.Config{})) }

func withoutAuth() []kit.Option {
	return []kit.Option{
		kit.WithAudit(audit.Config{}),
		kit.WithSecrets(secrets.Config{}),
		kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{}),
		kit.WithLedger(coins()),
		kit.WithPayments(shop()),
		kit.WithStorage(storage.Config{}),
		kit.WithMedia(media.Config{}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
		kit.WithSupport(support.Config{}),
		kit.WithTesters(testers.Config{}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}),
		kit.WithRating(rating.Config{Games: []rating.Game{{Key: "duel", Algorithm: "elo", XP: &rating.XP{Win: 3, Draw: 2, Loss: 1}}}}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{race()}, Games: []multiplayer.Game{{Key: "duel", Kind: "race"}}}),
		kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{
			{Key: "duel", Players: 2, SkillPool: "duel", Snapshot: &multiplayer.Game{Kind: "race"}}}}),
		kit.WithEvents(events.Config{}),
	}
}

// shop has all rails on and sells one subscription.
func shop() payments.Config {
	cfg := payments.Config{
		BillingSubject: payments.SubjectUser, ManualEntitlements: []string{"gift"},
		Rails: []payments.Rail{iosstore.New(iosstore.Options{}), androidstore.New(androidstore.Options{}), cardprocessor.New(cardprocessor.Options{}),
			merchanta.New(merchanta.Options{}), merchantb.New(merchantb.Options{})},
		ReturnURLs: make(map[payments.RailID]payments.ReturnURLs),
		Products: []payments.Product{{Key: "pro", Kind: payments.KindSubscription, Entitlements: []string{"pro"},
			Store: map[payments.RailID]payments.StoreIDs{payments.RailCardProcessor: {ProductID: "prod_pro", PriceID: "price_pro"}}}},
	}
	for _, rail := range cfg.Rails {
		cfg.ReturnURLs[rail.ID] = payments.ReturnURLs{Success: "https://shop.example/", Cancel: "https://shop.example/", Portal: "https://shop.example/"}
	}
	return cfg
}

// race is a game that the first to move wins.
func race() multiplayer.Model {
	type state struct {
		Winner string `json:"winner"`
	}
	type game = multiplayer.Context[struct{}]
	return multiplayer.Define(multiplayer.Definition[struct{}, state]{
		Kind:       "race",
		Init:       func(game) (s state, _ []multiplayer.Effect, _ error) { return s, nil, nil },
		IsComplete: func(_ game, s state) bool { return s.Winner != "" },
		Apply: func(_ game, _ state, m multiplayer.Move) (state, []multiplayer.Effect, error) {
			return state{m.UserID}, nil, nil
		},
		Resolve: func(c game, s state) multiplayer.Outcome {
			ranks := make(map[string]int)
			for _, player := range c.Players {
				if ranks[player] = 2; player == s.Winner {
					ranks[player] = 1
				}
			}
			return multiplayer.Outcome{Ranks: ranks}
		},
		Redact: func(_ game, s state, _ string, _ bool) any { return s },
	})
}

// part wraps a literal as a third-party capability.
func part(c capability.Capability) kit.Option {
	c.NoUserData = "a test"
	return kit.WithCapability(func(*kit.Kit) (capability.Capability, error) { return c, nil })
}

// migrated is a third-party capability with migrations of these names.
func migrated(name string, files ...string) kit.Option {
	fsys := fstest.MapFS{}
	for _, file := range files {
		fsys[file] = &fstest.MapFile{Data: []byte("SELECT 1;")}
	}
	return kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
		return capability.Capability{Name: name, NoUserData: "a test", Database: k.Database(), Migrations: fsys}, nil
	})
}

func nothing(context.Context, jobs.Job) error { return nil }

func ok(*capability.Call, capability.None) (capability.None, error) { return capability.None{}, nil }

func route(method, path string, g capability.Guard) capability.Route {
	return capability.Route{Method: method, Path: path, Guard: g, Summary: "Test.", Handle: capability.JSON(200, ok)}
}

var gone = capability.NewError(404, "shop/gone", "Gone.")

// refusing is a row that lists refusals.
func refusing(row string, refusals ...*capability.Error) capability.Route {
	method, path, _ := strings.Cut(row, " ")
	r := route(method, path, capability.Public("tests"))
	r.Refusals = refusals
	return r
}

// faultsOf lists what New refused, as "capability.key: reason".
func faultsOf(err error) []string {
	var list []string
	for _, err := range errorsIn(err) {
		fault := new(capability.Fault)
		if !errors.As(err, &fault) {
			list = append(list, "not a fault: "+err.Error())
			continue
		}
		list = append(list, fault.Capability+"."+fault.Key+": "+fault.Reason)
		if fault.Fix == "" {
			list = append(list, "no fix")
		}
	}
	return list
}

// errorsIn lists the errors that errors.Join joined.
func errorsIn(err error) (list []error) {
	several, ok := err.(interface{ Unwrap() []error })
	switch {
	case ok:
		for _, one := range several.Unwrap() {
			list = append(list, errorsIn(one)...)
		}
	case err != nil:
		list = append(list, err)
	}
	return list
}

func TestAssemblyRefuses(t *testing.T) {
	t.Setenv("KIT_MASTER_KEYS", "")
	t.Setenv("KIT_MASTER_KEYS_FILE", "")
	open := capability.Public("tests")
	for name, c := range map[string]struct {
		opts []kit.Option
		want []string
	}{
		"no guard": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{route("GET", "/shop", capability.Guard{})}})},
			[]string{"shop.routes: has no guard"}},
		"public without a reason": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{route("GET", "/shop", capability.Public(""))}})},
			[]string{"shop.routes: has no guard"}},
		"no handler": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{{Method: "GET", Path: "/shop", Guard: open}}})},
			[]string{"shop.routes: has no handler"}},
		"bad method and path": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{route("FETCH", "shop//x", open)}})},
			[]string{"shop.routes: has no method the kit serves", "shop.routes: has no well-formed path"}},
		"equal routes": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{route("GET", "/shop/:id", open), route("GET", "/shop/:name", open)}})},
			[]string{"shop.routes: is already taken by shop"}},
		"equal routes of two": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{route("GET", "/health", open)}})},
			[]string{"shop.routes: is already taken by kit"}},
		"machine route without scope and summary": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{
			{Method: "GET", Path: "/shop/ping", Guard: capability.ControlPlane(""), Handle: capability.JSON(200, ok)}}})},
			[]string{"shop.routes: is a control-plane route without a scope", "shop.routes: is a control-plane route without a summary"}},
		"machine route that writes itself": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{
			{Method: "GET", Path: "/shop/admin", Guard: capability.ControlPlane("shop:read"), Summary: "Read.", Handle: capability.Raw(func(*capability.Call) error { return nil })}}})},
			[]string{"shop.routes: is a control-plane route that writes its own response"}},
		"idempotency without a caller": {[]kit.Option{part(capability.Capability{Name: "shop", Routes: []capability.Route{
			{Method: "POST", Path: "/shop", Guard: open, Idempotent: true, Handle: capability.JSON(200, ok)}}})},
			[]string{"shop.routes: cannot honour Idempotency-Key"}},
		"refusal of another domain": {[]kit.Option{part(capability.Capability{Name: "shop", Refusals: []*capability.Error{capability.NewError(404, "store/gone", "Gone."), capability.NewError(200, "shop/fine", "Fine.")}})},
			[]string{"shop.refusals: is not a code of the domain shop", "shop.refusals: has no HTTP status of a refusal"}},
		"refusals of rows that no capability lists": {[]kit.Option{kit.WithLedger(coins()),
			part(capability.Capability{Name: "shop", Refusals: []*capability.Error{gone}, Routes: []capability.Route{
				refusing("GET /shop", gone, capability.ErrNotFound, capability.ErrCSRF, ledger.ErrInsufficientFunds, rating.ErrGameNotFound),
				refusing("POST /shop", capability.NewError(404, "shop/gnoe", "Gone.")),
				refusing("PUT /shop", capability.NewError(409, "ledger/insufficient_founds", "No funds.")),
				refusing("PATCH /shop", capability.NewError(404, "shpo/gone", "Gone.")),
				refusing("DELETE /shop", capability.NewError(404, "GONE", "Gone."))}})},
			[]string{"shop.routes: lists the refusal shop/gnoe, which no capability has", "shop.routes: lists the refusal ledger/insufficient_founds,",
				"shop.routes: lists the refusal shpo/gone,", "shop.routes: lists the refusal GONE,"}},
		"a row with a refusal of a capability that could not be built": {[]kit.Option{
			kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
				return capability.Capability{}, capability.MissingPeer("depot", "ledger")
			}),
			part(capability.Capability{Name: "shop", Routes: []capability.Route{refusing("GET /shop", capability.NewError(404, "depot/empty", "Empty."))}})},
			[]string{"depot.peers: needs the capability ledger"}},
		"duplicate names and prefixes": {[]kit.Option{part(capability.Capability{Name: "shop", Prefix: "/a"}), part(capability.Capability{Name: "shop", Prefix: "/b"}), part(capability.Capability{Name: "store", Prefix: "/a"})},
			[]string{"shop.name: is already taken by shop", "store.basePath: is already taken by shop"}},
		"a name with the codes of another": {[]kit.Option{kit.WithAuth(auth.Config{}), part(capability.Capability{Name: "au-th"}), part(capability.Capability{Name: "sh-op"}), part(capability.Capability{Name: "shop"})},
			[]string{"au-th.name: is already taken by auth", "shop.name: is already taken by sh-op"}},
		"name and prefix forms": {[]kit.Option{part(capability.Capability{Name: "Shop", Prefix: "shop/"})},
			[]string{"Shop.name: is not a capability name", "Shop.basePath: is not a path prefix"}},
		"duplicate bindings and health keys": {[]kit.Option{part(capability.Capability{Name: "shop",
			Jobs:   []jobs.Binding{{Name: "KIT_IDEMPOTENCY_SWEEP", Run: nothing}},
			Health: []capability.HealthKey{{Key: "a", Read: func(context.Context) (any, error) { return 1, nil }}, {Key: "a"}}})},
			[]string{"shop.jobs: is already taken by kit", "shop.health: is already taken by shop", "shop.health: has no Read"}},
		"jobs": {[]kit.Option{part(capability.Capability{Name: "shop", Jobs: []jobs.Binding{
			{Name: "sell", Run: nothing}, {Name: "SHOP_SWEEP"}, {Name: "SHOP_MAIL", Run: nothing, Timeout: -1},
			{Name: "SHOP_REPORT", Run: nothing, Schedule: "@daily"}, {Name: "KIT_JOBS_SWEEP", Run: nothing}, {Name: "KIT_USER_LEFT", Run: nothing}}})},
			[]string{"shop.jobs: has a name that is not", "shop.jobs: has no Run", "shop.jobs: has a negative", "shop.jobs: has no schedule that can be read",
				"shop.jobs: is already taken by kit", "shop.jobs: is already taken by kit"}},
		"migrations": {[]kit.Option{
			migrated("shop", "1_a.sql", "0001_a.sql"), migrated("store", "0001_a.sql", "0003_c.sql", "0004_d.sql"),
			migrated("depot", "0001_a.sqlite.sql"), migrated("jobs", "0001_a.sql"), migrated("bare")},
			[]string{"shop.migrations: is not named", "store.migrations: has the number 0003 instead of 0002", "depot.migrations: is neither one file nor a pair",
				"jobs.migrations: is given twice", "bare.migrations: holds no files"}},
		"a database that is not the kit's": {[]kit.Option{kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
			return capability.Capability{Name: "shop", NoUserData: "a test", Database: new(database.DB)}, nil
		})}, []string{"shop.database: is none of the kit"}},
		"config values": {[]kit.Option{part(capability.Capability{Name: "shop", Config: []capability.ConfigKey{
			{Key: "mode", Value: "loud", Choices: []string{"quiet", "mute"}}, {Key: "f", Value: func() {}}}})},
			[]string{"shop.mode: is not one of the choices", "shop.f: does not encode as JSON"}},
		"a third-party failure and a fault": {[]kit.Option{kit.WithBaseURL("example.com"), kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
			return capability.Capability{}, capability.MissingPeer("shop", "payments")
		})},
			[]string{"kit.baseURL: is not an http or https address", "shop.peers: needs the capability payments, which is not composed"}},
		"production": {[]kit.Option{kit.WithDatabase(nil), kit.WithEnvironment("production")},
			[]string{"kit.baseURL: is plain http in production", "kit.database DB: is nil", "kit.database: is missing in production"}},
		"production without master keys": {[]kit.Option{kit.WithEnvironment("production"), kit.WithBaseURL("https://example.com"), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{})},
			[]string{"kit.KIT_MASTER_KEYS: is not set, and production keeps encrypted rows"}},
		"options": {[]kit.Option{kit.WithInternalPrefix("__kit"), kit.WithDispatchKey([]byte("short")), kit.WithRateLimit("read", 0, time.Second), kit.WithClock(nil)},
			[]string{"kit.internalPrefix: is not a path prefix", "kit.dispatchKey: has 5 bytes", "kit.rateLimit read: admits nothing", "kit.clock: is nil"}},
		"an unknown database, and one apart from audit": {[]kit.Option{kit.WithAudit(audit.Config{}), kit.WithLedger(ledger.Config{Currencies: coins().Currencies, Database: "OTHER"})},
			[]string{"ledger.database: is not the database of a capability it must commit together with, DB", "ledger.database: no database of this name was given"}},
		"events apart from support, whose messages it tells of": {[]kit.Option{kit.WithEvents(events.Config{}), kit.WithSupport(support.Config{Database: "OTHER"})},
			[]string{"events.database: is not the database of a capability it must commit together with, OTHER of support", "support.database: no database of this name was given"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := kittest.Compose(t, c.opts...)
			got := faultsOf(err)
			for _, want := range c.want {
				if !contains(got, want) {
					t.Errorf("missing %q in %s", want, strings.Join(got, "\n"))
				}
			}
			if len(c.want) != len(got) && name != "equal routes of two" {
				t.Error(cmp.Diff(c.want, got))
			}
		})
	}
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if strings.HasPrefix(s, want) {
			return true
		}
	}
	return false
}

func TestAssemblyReportsEverythingAtOnce(t *testing.T) {
	_, err := kittest.Compose(t,
		kit.WithBaseURL("nowhere"),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "admin"}, {Code: "x"}, {Code: "x"}}}),
		part(capability.Capability{Name: "shop", Routes: []capability.Route{route("GET", "/shop", capability.Guard{})}}),
	)
	if got := faultsOf(err); len(got) < 4 {
		t.Errorf("only %d faults: %q", len(got), got)
	}
}

func TestFaultFindsItsRefusal(t *testing.T) {
	invalid := capability.NewError(422, "shop/invalid_schedule", "The schedule does not parse.")
	_, err := kittest.Compose(t, kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
		var faults capability.Faults
		faults.AddFault(capability.Fault{Capability: "shop", Key: "window", Value: "* *", Reason: "does not parse", Fix: "use five fields", Refusal: invalid})
		return capability.Capability{}, faults.Err()
	}))
	if !errors.Is(err, invalid) {
		t.Errorf("%v does not find its code", err)
	}
	if want := `shop.window = "* *": does not parse [shop/invalid_schedule] (use five fields)`; !strings.Contains(err.Error(), want) {
		t.Errorf("got %q", err)
	}
}

func TestMasterKeysFromASource(t *testing.T) {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	production := []kit.Option{kit.WithEnvironment("production"), kit.WithBaseURL("https://example.com"), kit.WithAuth(auth.Config{})}
	_, err := kittest.Compose(t, append(production, kit.WithMasterKeys(func(context.Context) (string, error) { return "k1:" + key, nil }))...)
	if err != nil {
		t.Error(err)
	}
	down := errors.New("the key service does not respond")
	_, err = kittest.Compose(t, append(production, kit.WithMasterKeys(func(context.Context) (string, error) { return "", down }))...)
	if err == nil || strings.Contains(err.Error(), key) {
		t.Errorf("composed without keys: %v", err)
	}
}

func TestMemoryIsAnnounced(t *testing.T) {
	var log strings.Builder
	k, err := kit.New(kit.WithEnvironment("sandbox"), kit.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "in memory"); n != 1 {
		t.Errorf("said %d times: %s", n, &log)
	}
}

func TestBuilderWithoutItsPeerIsNotReported(t *testing.T) {
	_, err := kittest.Compose(t,
		kit.WithLedger(ledger.Config{}),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) { return k.Ledger().Capability(), nil }),
	)
	if got := faultsOf(err); len(got) != 1 || !strings.HasPrefix(got[0], "ledger.currencies") {
		t.Errorf("faults: %q, want that of the ledger alone", got)
	}
}

// TestFaultNamesTheMissingPeer: a tool reads from it which option to add. A peer whose option is
// there but has a fault of its own is not missing.
func TestFaultNamesTheMissingPeer(t *testing.T) {
	credit := payments.Config{BillingSubject: payments.SubjectUser, Products: []payments.Product{
		{Key: "coins", Kind: payments.KindConsumable, Credit: &payments.Credit{Currency: "coins", Amount: 1}}}}
	hook := events.Config{Endpoints: []events.Endpoint{{Name: "shop", URL: "https://shop.example/"}}}
	board := multiplayer.Config{Models: []multiplayer.Model{race()},
		Games: []multiplayer.Game{{Key: "duel", Kind: "race", Leaderboard: &multiplayer.Scoring{Board: "arcade"}}}}
	twice := secrets.Config{Secrets: []secrets.Secret{{Name: ""}}}
	for name, c := range map[string]struct {
		opts  []kit.Option
		peers []string
	}{
		"media":                         {[]kit.Option{kit.WithMedia(media.Config{})}, []string{"storage"}},
		"testers":                       {[]kit.Option{kit.WithTesters(testers.Config{})}, []string{"email"}},
		"payments":                      {[]kit.Option{kit.WithPayments(credit)}, []string{"ledger", "secrets"}},
		"events":                        {[]kit.Option{kit.WithEvents(hook)}, []string{"secrets"}},
		"multiplayer":                   {[]kit.Option{kit.WithMultiplayer(board)}, []string{"leaderboard"}},
		"a peer with faults of its own": {[]kit.Option{kit.WithSecrets(twice), kit.WithEvents(hook), kit.WithPayments(payments.Config{})}, nil},
	} {
		_, err := kittest.Compose(t, c.opts...)
		var peers []string
		for _, err := range errorsIn(err) {
			if fault := new(capability.Fault); errors.As(err, &fault) && fault.Peer != "" {
				peers = append(peers, fault.Peer)
			}
		}
		if diff := cmp.Diff(c.peers, peers); err == nil || diff != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

func TestTheSameOptionTwiceIsRefused(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithLedger(coins()), kit.WithLedger(coins()))
	if got := faultsOf(err); !contains(got, "ledger.option: was composed twice") {
		t.Errorf("faults: %q, want the second option named", got)
	}
}

// TestPrefixesDoNotNest: a ledger below the links of mails would lose the
// currencies that the links' literals shadow.
func TestPrefixesDoNotNest(t *testing.T) {
	for name, c := range map[string]capability.Capability{
		"below another":           {Name: "shop", Prefix: "/ledger/shop"},
		"below the kit's own":     {Name: "shop", Prefix: "/__kit/shop"},
		"a claim below another":   {Name: "shop", Claims: []string{"/ledger/links"}},
		"a claim that is another": {Name: "shop", Claims: []string{"/__kit"}},
	} {
		_, err := kittest.Compose(t, kit.WithLedger(coins()), part(c))
		if got := faultsOf(err); !contains(got, "shop.basePath: ") && !contains(got, "shop.claims: ") {
			t.Errorf("%s: faults %q, want the prefix refused", name, got)
		}
	}
}

func TestMigrationsWithoutADatabaseAreRefused(t *testing.T) {
	_, err := kittest.Compose(t, part(capability.Capability{Name: "shop", Migrations: fstest.MapFS{"0001_shop.sql": {}}}))
	if got := faultsOf(err); !contains(got, "shop.database: is missing") {
		t.Errorf("faults: %q, want the missing database", got)
	}
}

// TestMigrationsThatChangedAreRefused: those that do not fit the database are faults of their
// capabilities, all at once.
func TestMigrationsThatChangedAreRefused(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		compose := func(text string) error {
			_, err := kittest.Compose(t, kit.WithDatabase(db),
				third(func(c *capability.Capability, _ *kit.Kit) {
					c.Name, c.Database, c.Migrations = "shop", db, fstest.MapFS{"0001_a.sql": {Data: []byte(text)}}
				}),
				third(func(c *capability.Capability, _ *kit.Kit) {
					c.Name, c.Database = "store", db
					c.Parts = []database.Migrations{{Name: "shelves", FS: fstest.MapFS{"0001_b.sql": {Data: []byte(text)}}}}
				}))
			return err
		}
		if err := compose("SELECT 1;"); err != nil {
			t.Fatal(err)
		}
		want := []string{"shop.migrations: has changed since it was applied", "store.migrations: has changed since it was applied"}
		if diff := cmp.Diff(want, faultsOf(compose("SELECT 2;"))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestMisspelledOptionsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		option kit.Option
		want   string
	}{
		"environment": {kit.WithEnvironment("Production"), "kit.environment: is not production"},
		"short":       {kit.WithEnvironment("prod"), "kit.environment: is not production"},
		"rate class":  {kit.WithRateLimit("reads", 1, time.Second), "kit.rateLimit reads: is a class of no route"},
	} {
		if _, err := kittest.Compose(t, c.option); !contains(faultsOf(err), c.want) {
			t.Errorf("%s: faults %q, want %q", name, faultsOf(err), c.want)
		}
	}
}

func TestScopesOutsideTheTrailsGrammarAreRefused(t *testing.T) {
	_, err := kittest.Compose(t, part(capability.Capability{Name: "shop", Routes: []capability.Route{
		route("GET", "/shop", capability.ControlPlane("Shop:Items"))}}))
	if got := faultsOf(err); !contains(got, "shop.routes: has a scope that cannot name an audit action") {
		t.Errorf("faults: %q, want the scope refused", got)
	}
}

// TestPublicRowsAreLimited walks the table: requests without a caller are counted by address.
func TestPublicRowsAreLimited(t *testing.T) {
	k := kittest.New(t, everything()...)
	for _, c := range k.Capabilities() {
		for _, r := range c.Routes {
			s := r.Guard.Strategy()
			if class := r.RateClass(); (s == capability.StrategyPublic || s == capability.StrategySignedWebhook) && (class == "read" || class == "write") {
				t.Errorf("%s %s is open to everybody and in no rate class that is on by default", r.Method, r.Path)
			}
		}
	}
}

func TestCapabilitiesSayWhatBecomesOfAUsersData(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithCapability(func(*kit.Kit) (capability.Capability, error) {
		return capability.Capability{Name: "shop"}, nil
	}))
	if got := faultsOf(err); !contains(got, "shop.erase: does not say how a user's data is exported and erased") {
		t.Errorf("faults: %q, want the missing Export and Erase", got)
	}
}
