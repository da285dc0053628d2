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

// options holds the settings of New.
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

// WithDatabase sets the database binding DB, which every capability uses that names no other.
// Without it the kit runs in memory and logs a warning; in production New fails. The caller closes
// the database after [Kit.Close].
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

// WithBaseURL sets the address at which clients reach the kit. Its path is the mount path under the
// application's router; the kit strips it unless the router has done so, and uses it in links. The
// default is http://localhost:8080; production needs https.
func WithBaseURL(url string) Option { return func(o *options) { o.baseURL = url } }

// WithVersion sets the deployed version that GET /health returns; by default the version of the
// main module.
func WithVersion(version string) Option { return func(o *options) { o.version = version } }

// WithLogger sets the kit's logger, which also gets one line for each request; by default
// slog.Default().
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

// WithTrustedProxies names the networks whose X-Forwarded-For is trusted.
func WithTrustedProxies(networks ...netip.Prefix) Option {
	return func(o *options) { o.proxies = append(o.proxies, networks...) }
}

// WithInternalPrefix moves the kit's own routes from /__kit.
func WithInternalPrefix(prefix string) Option {
	return func(o *options) { o.internalPrefix = prefix }
}

// WithDevelopmentSecret protects the routes of development, its sign-in and mailbox, on a machine
// that others use too: every request to them must carry the secret, as the query parameter secret
// or the header X-Kit-Development-Secret. Without it requests from this machine need none.
func WithDevelopmentSecret(secret string) Option {
	return func(o *options) { o.devSecret = secret }
}

// WithDispatchKey sets the key, of at least 16 bytes, that signs requests to POST
// /__kit/workflows/:binding. Without it KIT_DISPATCH_KEY is read; without either every dispatch is
// refused.
func WithDispatchKey(key []byte) Option { return func(o *options) { o.dispatchKey = key } }

// WithMasterKeys reads the master keys, in the form of KIT_MASTER_KEYS, from a
// source of the application's own, such as a key management service. It is
// called once, by New; without it KIT_MASTER_KEYS is read, or the file that
// KIT_MASTER_KEYS_FILE names.
func WithMasterKeys(source func(context.Context) (string, error)) Option {
	return func(o *options) { o.masterKeys = source }
}

// WithoutMigrations leaves the databases' schema to [Kit.Migrate]; while migrations are missing,
// [Kit.Run] and [Kit.Serve] fail.
func WithoutMigrations() Option { return func(o *options) { o.skipMigrations = true } }
