package kit

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/pubsub"
)

// Option is one line of a composition.
type Option func(*options)

// options is what New was asked for.
type options struct {
	parts  map[string]part
	others []func(*Kit) (capability.Capability, error)
	twice  []string // capabilities whose option was given more than once

	databases      map[string]*database.DB
	environment    string
	baseURL        string
	version        string
	log            *slog.Logger
	clock          func() time.Time
	bus            *pubsub.Bus
	limits         map[string]rate.Limit
	proxies        []netip.Prefix
	internalPrefix string
	dispatchKey    []byte
	devSecret      string
	masterKeys     func(context.Context) (string, error)
	skipMigrations bool
	friends        bool // matchmaking is composed, with friends
}

// WithDatabase sets the database binding DB, on which everything lives that
// names no other. Without it the kit runs in memory, says so in the log, and
// refuses to in production. The caller closes it after [Kit.Close].
func WithDatabase(db *database.DB) Option { return WithNamedDatabase(DefaultDatabase, db) }

// WithNamedDatabase adds a database binding; a capability's Config.Database
// names it. Capabilities that change rows together must share one.
func WithNamedDatabase(name string, db *database.DB) Option {
	return func(o *options) { o.databases[name] = db }
}

// WithEnvironment names the deployment's environment. Only "production" is
// production; only "development" mounts conveniences for local work. Without
// it KIT_ENVIRONMENT is read, and without that it is "sandbox".
func WithEnvironment(name string) Option { return func(o *options) { o.environment = name } }

// WithBaseURL says where clients reach the kit. Its path is the mount path
// under the application's router: stripped where the router has not, and used
// in links. The default is http://localhost:8080; production needs https.
func WithBaseURL(url string) Option { return func(o *options) { o.baseURL = url } }

// WithVersion is the deployed version that GET /health returns; by default the
// version of the main module.
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// WithLogger sends the kit's log, one line a request included, to a logger;
// by default slog.Default().
func WithLogger(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// WithClock replaces the clock of every capability and database, for tests.
func WithClock(now func() time.Time) Option { return func(o *options) { o.clock = now } }

// WithPubSub replaces the bus that carries hints between nodes. By default it
// is PostgreSQL's when DB is PostgreSQL, else in memory. The caller closes it.
func WithPubSub(bus *pubsub.Bus) Option { return func(o *options) { o.bus = bus } }

// WithRateLimit lets a caller act events times per window in a rate class:
// "read" and "write" are off until set; "auth" is 600, "public" 1,000 and
// "webhook" 3,000 per 10 seconds. Public and webhook routes count by address
// (IPv6 by /64), the others by user or key. Requests over it are refused with
// kit/rate_limited.
func WithRateLimit(class string, events int, per time.Duration) Option {
	return func(o *options) { o.limits[class] = rate.Limit{Events: events, Per: per} }
}

// WithTrustedProxies names the networks whose X-Forwarded-For is believed.
func WithTrustedProxies(networks ...netip.Prefix) Option {
	return func(o *options) { o.proxies = append(o.proxies, networks...) }
}

// WithInternalPrefix moves the kit's own routes from /__kit.
func WithInternalPrefix(prefix string) Option {
	return func(o *options) { o.internalPrefix = prefix }
}

// WithDevelopmentSecret asks every request to what only development has, the
// development sign-in and the mailbox, for a secret, as the query parameter
// secret or the header X-Kit-Development-Secret: for a machine that others work
// on, too. Without it requests of this machine need none.
func WithDevelopmentSecret(secret string) Option {
	return func(o *options) { o.devSecret = secret }
}

// WithDispatchKey sets the key that signs POST /__kit/workflows/:binding, at
// least 16 bytes; without it KIT_DISPATCH_KEY is read, and without that every
// dispatch is refused.
func WithDispatchKey(key []byte) Option { return func(o *options) { o.dispatchKey = key } }

// WithMasterKeys reads the master keys, in the form of KIT_MASTER_KEYS, from a
// source of the application's own, such as a key management service. It is
// called once, by New; without it KIT_MASTER_KEYS is read, or the file that
// KIT_MASTER_KEYS_FILE names.
func WithMasterKeys(source func(context.Context) (string, error)) Option {
	return func(o *options) { o.masterKeys = source }
}

// WithoutMigrations leaves the databases' schema to [Kit.Migrate].
func WithoutMigrations() Option { return func(o *options) { o.skipMigrations = true } }
