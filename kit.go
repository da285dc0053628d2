package kit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/events"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/payments"
	"github.com/kitbackend/kit/pubsub"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

// DefaultDatabase is the binding that capabilities use unless they name another.
const DefaultDatabase = "DB"

const defaultInternalPrefix = "/__kit"

// migrationTimeout bounds how long New waits for the schema, another node's
// lock included.
const migrationTimeout = 5 * time.Minute

// Kit is a composed backend: an http.Handler and the capabilities behind it.
type Kit struct {
	// built holds what New made of each capability, by its name. These are no fields of their own
	// types, because the linker keeps the types of all that a type refers to.
	built map[string]any

	capabilities []capability.Capability
	table        []mount.Entry
	bindings     []*binding
	bus          *pubsub.Bus
	ownBus       bool
	ownDB        *database.DB
	mount        *mount.Mount
	owned        *mount.Owned
	log          *slog.Logger
	environment  string
	baseURL      *url.URL
	version      string

	clock          func() time.Time
	internalPrefix string
	devSecret      string
	sealing        func() (capability.Sealer, error)
	hooks          *hooks.Hooks

	// Set by the option of the capability that provides it, so that the code of
	// a capability is linked only where it is composed.
	users    *capability.Users
	machines *capability.Machines
	record   mount.Recorder
	friends  func(context.Context, []string) ([]string, error)
	// mailer sends the mails of sign-in; without email it is nil.
	mailer auth.Mailer
	// attachments are where support keeps files; without storage it names them.
	attachments support.Files
	// prepare holds what capabilities run after the migrations.
	prepare []func(context.Context) error
	// listeners are what Run serves in addition to the jobs, until its context ends.
	listeners []func(context.Context) error
	closed    atomic.Bool
	// byHand is true if New has not migrated the databases.
	byHand bool
	// unmeter unregisters the gauges of telemetry.
	unmeter func() error
	// sealer is set once a capability has asked for the master keys.
	sealer capability.Sealer
}

// binding is a database with the job queue whose jobs commit with its rows.
type binding struct {
	name  string
	db    *database.DB
	queue *jobs.Queue
	// waiting fails when no node takes the queue's jobs; its result is cached like health.
	waiting func(context.Context) (any, error)
	// check fails when the database takes no writes; its result is cached like health.
	check func(context.Context) (any, error)
}

// graph is every capability of the kit in the order of building: a capability
// takes peers from lines above its own. Where it writes rows in one transaction
// with a peer, the peer is named, and the two must name one database.
var graph = []struct {
	name    string
	commits []string
}{
	{audit.Name, nil},
	{secrets.Name, []string{audit.Name}},
	{controlplane.Name, []string{audit.Name}},
	{email.Name, []string{audit.Name}},
	{auth.Name, []string{audit.Name, email.Name}},
	{ledger.Name, []string{audit.Name}},
	{payments.Name, []string{audit.Name, ledger.Name}},
	{storage.Name, []string{audit.Name}},
	{media.Name, []string{audit.Name, storage.Name}},
	{vector.Name, []string{audit.Name}},
	{support.Name, []string{audit.Name, email.Name}},
	{testers.Name, []string{audit.Name, email.Name}},
	{leaderboard.Name, []string{audit.Name}},
	{rating.Name, []string{audit.Name}},
	{multiplayer.Name, []string{ledger.Name, leaderboard.Name, rating.Name}},
	{matchmaking.Name, []string{audit.Name, multiplayer.Name}},
	{events.Name, []string{audit.Name, email.Name, auth.Name, payments.Name, media.Name, multiplayer.Name, support.Name}},
}

// New composes a backend. It checks all peers and configuration first and
// returns every fault at once, each a *[capability.Fault] found by errors.As;
// then it applies the migrations. Nothing runs in the background until
// [Kit.Run].
func New(opts ...Option) (*Kit, error) {
	o := defaults()
	for _, opt := range opts {
		opt(o)
	}
	a, err := begin(o)
	if err != nil {
		return nil, err
	}
	k := a.kit
	for _, node := range graph {
		a.build(node.name, node.commits)
	}
	a.buildOthers()

	if err := a.finish(); err != nil {
		return nil, errors.Join(err, k.Close(context.Background()))
	}
	if k.byHand = o.skipMigrations; k.byHand {
		return k, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), migrationTimeout)
	defer cancel()
	if err := k.Migrate(ctx); err != nil {
		return nil, errors.Join(err, k.Close(context.Background()))
	}
	if err := k.checkMasterKeys(ctx); err != nil {
		return nil, errors.Join(err, k.Close(context.Background()))
	}
	return k, nil
}

// Migrate applies the pending migrations of every capability, in the order of composition. Several
// nodes may call it at once. What does not fit a database is reported at once, a
// *[capability.Fault] each.
func (k *Kit) Migrate(ctx context.Context) error {
	for _, b := range k.bindings {
		if err := b.db.Migrate(ctx, k.migrations(b)...); err != nil {
			return k.migrationFaults(err)
		}
	}
	for _, prepare := range k.prepare {
		if err := prepare(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Import copies SQLite databases, by the names of their bindings, into the PostgreSQL databases of
// this kit, which must be new; see [database.Copy]. It migrates those of from. No node may serve
// meanwhile, and this kit is to be closed afterwards. It returns how many rows were copied; if it
// fails, a database is either copied whole or as it was.
func (k *Kit) Import(ctx context.Context, from map[string]*database.DB) (rows int64, err error) {
	for _, b := range k.bindings {
		if from[b.name] == nil {
			return 0, &capability.Fault{Capability: ownName, Key: b.name, Reason: "has no database to copy", Fix: "give one for every binding"}
		}
	}
	for _, b := range k.bindings {
		n, err := database.Copy(ctx, b.db, from[b.name], k.migrations(b)...)
		rows += n
		if err != nil {
			return rows, fmt.Errorf("%s: %w", b.name, err)
		}
	}
	return rows, k.Migrate(ctx)
}

// PendingMigrations lists the migrations that [Kit.Migrate] would apply, such as "DB
// ledger/0003_sequence". It changes nothing, and fails where [Kit.Migrate] fails: on a migration
// that has changed since it was applied, and on one of a newer version that does not tolerate this
// one.
func (k *Kit) PendingMigrations(ctx context.Context) ([]string, error) {
	var list []string
	for _, b := range k.bindings {
		names, err := b.db.Pending(ctx, k.migrations(b)...)
		if err != nil {
			return list, k.migrationFaults(err)
		}
		for _, name := range names {
			list = append(list, b.name+" "+name)
		}
	}
	return list, nil
}

// migrations returns all migrations of a database, in the order of composition.
func (k *Kit) migrations(b *binding) []database.Migrations {
	sets := []database.Migrations{jobs.Migrations(), kv.Migrations(), mount.Migrations()}
	for _, c := range k.capabilities {
		if c.Database == b.db {
			sets = append(sets, c.Lines()...)
		}
	}
	return sets
}

// migrationFaults returns err with each fault of migrations in it as one of their capability.
func (k *Kit) migrationFaults(err error) error {
	return eachOf(err, func(err error) error {
		fault := new(database.MigrationFault)
		if !errors.As(err, &fault) {
			return err
		}
		owner := ownName
		for _, c := range k.capabilities {
			if slices.ContainsFunc(c.Lines(), func(m database.Migrations) bool { return m.Name == fault.Set }) {
				owner = c.Name
			}
		}
		return &capability.Fault{Capability: owner, Key: "migrations", Value: path.Join(fault.Set, fault.File), Reason: fault.Reason, Fix: fault.Fix}
	})
}

// Rewrap wraps everything that the capabilities have sealed with the first
// master key, so that older ones can be removed, and returns how many values it
// changed. When a capability fails, Rewrap continues with the others; older master keys must stay
// until it returns no error: without them [New] fails in production. It may run while the kit serves.
func (k *Kit) Rewrap(ctx context.Context) (changed int, err error) {
	for _, c := range k.capabilities {
		if c.Rewrap == nil {
			continue
		}
		n, failed := c.Rewrap(ctx)
		if changed += n; failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", c.Name, failed))
		}
	}
	if err == nil {
		err = k.rewrapFingerprint(ctx)
	}
	return changed, err
}

// Audit returns the composed capability, or nil.
func (k *Kit) Audit() *audit.Audit {
	built, _ := k.built[audit.Name].(*audit.Audit)
	return built
}

// Secrets returns the composed capability, or nil.
func (k *Kit) Secrets() *secrets.Secrets {
	built, _ := k.built[secrets.Name].(*secrets.Secrets)
	return built
}

// ControlPlane returns the composed capability, or nil.
func (k *Kit) ControlPlane() *controlplane.ControlPlane {
	built, _ := k.built[controlplane.Name].(*controlplane.ControlPlane)
	return built
}

// Email returns the composed capability, or nil.
func (k *Kit) Email() *email.Email {
	built, _ := k.built[email.Name].(*email.Email)
	return built
}

// Auth returns the composed capability, or nil.
func (k *Kit) Auth() *auth.Auth {
	built, _ := k.built[auth.Name].(*auth.Auth)
	return built
}

// Ledger returns the composed capability, or nil.
func (k *Kit) Ledger() *ledger.Ledger {
	built, _ := k.built[ledger.Name].(*ledger.Ledger)
	return built
}

// Vector returns the composed capability, or nil.
func (k *Kit) Vector() *vector.Vector {
	built, _ := k.built[vector.Name].(*vector.Vector)
	return built
}

// Support returns the composed capability, or nil.
func (k *Kit) Support() *support.Support {
	built, _ := k.built[support.Name].(*support.Support)
	return built
}

// Testers returns the composed capability, or nil.
func (k *Kit) Testers() *testers.Testers {
	built, _ := k.built[testers.Name].(*testers.Testers)
	return built
}

// Storage returns the composed capability, or nil.
func (k *Kit) Storage() *storage.Storage {
	built, _ := k.built[storage.Name].(*storage.Storage)
	return built
}

// Media returns the composed capability, or nil.
func (k *Kit) Media() *media.Media {
	built, _ := k.built[media.Name].(*media.Media)
	return built
}

// Payments returns the composed capability, or nil.
func (k *Kit) Payments() *payments.Payments {
	built, _ := k.built[payments.Name].(*payments.Payments)
	return built
}

// Leaderboard returns the composed capability, or nil.
func (k *Kit) Leaderboard() *leaderboard.Leaderboard {
	built, _ := k.built[leaderboard.Name].(*leaderboard.Leaderboard)
	return built
}

// Rating returns the composed capability, or nil.
func (k *Kit) Rating() *rating.Rating {
	built, _ := k.built[rating.Name].(*rating.Rating)
	return built
}

// Multiplayer returns the composed capability, or nil.
func (k *Kit) Multiplayer() *multiplayer.Multiplayer {
	built, _ := k.built[multiplayer.Name].(*multiplayer.Multiplayer)
	return built
}

// Matchmaking returns the composed capability, or nil.
func (k *Kit) Matchmaking() *matchmaking.Matchmaking {
	built, _ := k.built[matchmaking.Name].(*matchmaking.Matchmaking)
	return built
}

// Events returns the composed capability, or nil.
func (k *Kit) Events() *events.Events {
	built, _ := k.built[events.Name].(*events.Events)
	return built
}

// Database returns the binding DB, for the application's own rows: what runs
// inside its InTx commits together with what capabilities write there.
func (k *Kit) Database() *database.DB { return k.bindings[0].db }

// Databases returns every database binding by its name, "DB" among them.
func (k *Kit) Databases() map[string]*database.DB {
	all := make(map[string]*database.DB, len(k.bindings))
	for _, b := range k.bindings {
		all[b.name] = b.db
	}
	return all
}

// Host returns what a capability of the application's own runs on.
func (k *Kit) Host() capability.Host { return k.bindings[0].host(k) }

// Jobs returns the queue of the binding DB.
func (k *Kit) Jobs() *jobs.Queue { return k.bindings[0].queue }

// PubSub returns the bus that carries hints between nodes.
func (k *Kit) PubSub() *pubsub.Bus { return k.bus }

// Hooks returns the hooks to which the application attaches code, before it serves.
func (k *Kit) Hooks() *hooks.Hooks { return k.hooks }

// Environment returns the deployment's environment.
func (k *Kit) Environment() string { return k.environment }

// Version returns the deployed version, as GET /health does.
func (k *Kit) Version() string { return k.version }

// BaseURL returns where clients reach the kit, without a trailing slash.
func (k *Kit) BaseURL() string { return k.baseURL.String() }

// Capabilities lists what is composed, in order.
func (k *Kit) Capabilities() []capability.Capability { return k.capabilities }

func defaults() *options {
	return &options{
		parts:          make(map[string]part),
		databases:      make(map[string]*database.DB),
		environment:    os.Getenv("KIT_ENVIRONMENT"),
		baseURL:        defaultBaseURL,
		version:        mainVersion(),
		log:            slog.Default(),
		clock:          time.Now,
		limits:         defaultLimits(),
		internalPrefix: defaultInternalPrefix,
		dispatchKey:    []byte(os.Getenv("KIT_DISPATCH_KEY")),
	}
}
