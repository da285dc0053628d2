package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/internal/seal"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// keysTimeout bounds how long a source of master keys may take.
const keysTimeout = 30 * time.Second

// assembly builds a kit and collects what is wrong with it.
type assembly struct {
	o      *options
	kit    *Kit
	faults capability.Faults
	// incomplete is true once a capability could not be built.
	incomplete bool
}

// begin resolves what every capability runs on. After an error nothing can be built.
func begin(o *options) (*assembly, error) {
	k := &Kit{environment: cmp.Or(o.environment, capability.Sandbox), version: o.version, hooks: hooks.New(), built: map[string]any{}}
	k.log = o.log.With(slog.String("environment", k.environment))
	k.sealing = o.sealing(k)
	a := &assembly{o: o, kit: k, faults: capability.Faults{Capability: "kit"}}
	a.resolveBaseURL()
	a.checkOptions()
	if err := a.openDatabase(); err != nil {
		return nil, err
	}
	a.resolveBus()
	a.bind()
	return a, nil
}

func (a *assembly) resolveBaseURL() {
	raw := strings.TrimRight(a.o.baseURL, "/")
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		a.faults.Add("baseURL", a.o.baseURL, "is not an http or https address", "write it like https://example.com/api")
		u = &url.URL{Scheme: "http", Host: "localhost"}
	} else if a.kit.environment == capability.Production && u.Scheme != "https" {
		a.faults.Add("baseURL", raw, "is plain http in production", "set WithBaseURL to the https address clients use")
	}
	a.kit.baseURL = u
}

// segment is one literal part of a path the kit mounts.
var segment = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

func validPrefix(prefix string) bool {
	rest, ok := strings.CutPrefix(prefix, "/")
	if !ok {
		return false
	}
	for part := range strings.SplitSeq(rest, "/") {
		if !segment.MatchString(part) {
			return false
		}
	}
	return true
}

const minDispatchKey = 16

// nearProduction are spellings that mean production and are not it.
var nearProduction = regexp.MustCompile(`(?i)^\s*(prod|prd|production|live|release)\s*$`)

func (a *assembly) checkOptions() {
	if env := a.kit.environment; env != capability.Production && nearProduction.MatchString(env) {
		a.faults.Add("environment", env, "is not "+capability.Production+", though it seems to mean it", "write "+capability.Production+", or name it otherwise")
	}
	if !validPrefix(a.o.internalPrefix) {
		a.faults.Add("internalPrefix", a.o.internalPrefix, "is not a path prefix", "write it like /__kit")
		a.o.internalPrefix = defaultInternalPrefix
	}
	if n := len(a.o.dispatchKey); n > 0 && n < minDispatchKey {
		a.faults.Add("dispatchKey", nil, fmt.Sprintf("has %d bytes", n), fmt.Sprintf("give at least %d random bytes", minDispatchKey))
	}
	for _, class := range sortedKeys(a.o.limits) {
		if !a.o.limits[class].Valid() {
			a.faults.Add("rateLimit "+class, nil, "admits nothing", "give a positive number of events and a positive window")
		}
	}
	for _, name := range sortedKeys(a.o.databases) {
		if a.o.databases[name] == nil {
			a.faults.Add("database "+name, nil, "is nil", "open it before kit.New, and check the error")
			delete(a.o.databases, name)
		}
	}
	for _, name := range a.o.twice {
		a.faults.AddFault(capability.Fault{Capability: name, Key: "option", Reason: "was composed twice", Fix: "give its option once"})
	}
	if a.o.clock == nil {
		a.faults.Add("clock", nil, "is nil", "give a function like time.Now")
		a.o.clock = time.Now
	}
	a.kit.clock, a.kit.internalPrefix, a.kit.devSecret = a.o.clock, a.o.internalPrefix, a.o.devSecret
}

// openDatabase opens SQLite in memory when the application gave no database.
func (a *assembly) openDatabase() error {
	if a.o.databases[DefaultDatabase] != nil {
		return nil
	}
	if a.kit.environment == capability.Production {
		a.faults.Add("database", nil, "is missing in production", "give WithDatabase a file or PostgreSQL")
	}
	db, err := database.OpenMemory()
	if err != nil {
		return err
	}
	a.kit.ownDB = db
	a.o.databases[DefaultDatabase] = db
	a.kit.log.Info("no database was given: running in memory, nothing is kept")
	return nil
}

func (a *assembly) resolveBus() {
	a.kit.bus = a.o.bus
	if a.kit.bus != nil {
		return
	}
	a.kit.ownBus = true
	if db := a.o.databases[DefaultDatabase]; db.Dialect() == database.PostgreSQL {
		a.kit.bus = pubsub.NewPostgres(db, a.kit.log)
		return
	}
	a.kit.bus = pubsub.NewMemory()
}

// bind gives every database the clock and a job queue; DB comes first.
func (a *assembly) bind() {
	names := sortedKeys(a.o.databases)
	slices.SortStableFunc(names, func(x, y string) int {
		return cmp.Compare(order(x), order(y))
	})
	for _, name := range names {
		db := a.o.databases[name]
		db.UseClock(a.o.clock)
		queue := jobs.New(db, a.kit.bus, jobs.Options{Log: a.kit.log, Now: a.o.clock})
		b := &binding{name: name, db: db, queue: queue}
		b.waiting = cached(b.lag, a.o.clock)
		b.check = cached(func(ctx context.Context) (any, error) { return nil, b.db.Check(ctx) }, a.o.clock)
		a.kit.bindings = append(a.kit.bindings, b)
	}
}

func order(name string) int {
	if name == DefaultDatabase {
		return 0
	}
	return 1
}

func (b *binding) host(k *Kit) capability.Host {
	return capability.Host{
		DB: b.db, Jobs: b.queue, PubSub: k.bus, Log: k.log, Now: k.clock,
		Environment: k.environment, BaseURL: k.baseURL, InternalPrefix: k.internalPrefix, DevelopmentSecret: k.devSecret,
		Sealing: k.sealing, Hooks: k.hooks,
	}
}

// build builds one capability of the graph, if it is composed. The capability must use the same
// database as the composed peers named in commits, with which it shares transactions.
func (a *assembly) build(name string, commits []string) {
	p, ok := a.o.parts[name]
	if !ok {
		return
	}
	for _, peer := range commits {
		if other, composed := a.o.parts[peer]; composed && other.database != p.database {
			a.faults.AddFault(capability.Fault{
				Capability: name, Key: "database", Value: p.database,
				Reason: "is not the database of a capability it must commit together with, " + other.database + " of " + peer,
				Fix:    "name the same database in both",
			})
		}
	}
	a.add(p.build(a, a.host(name, p.database)))
}

// buildOthers builds what the application composes itself.
func (a *assembly) buildOthers() {
	for _, build := range a.o.others {
		a.buildOther(build)
	}
}

// buildOther drops a panic of a builder that met the nil peer of a capability
// which could not be built: that fault is already reported.
func (a *assembly) buildOther(build func(*Kit) (capability.Capability, error)) {
	defer func() {
		if a.incomplete {
			_ = recover()
		}
	}()
	a.add(build(a.kit))
}

// host returns what a capability runs on.
func (a *assembly) host(name, database string) capability.Host {
	for _, b := range a.kit.bindings {
		if b.name == database {
			return b.host(a.kit)
		}
	}
	a.faults.AddFault(capability.Fault{
		Capability: name, Key: "database", Value: database,
		Reason: "no database of this name was given", Fix: "add it with WithNamedDatabase, or leave the key empty for DB",
	})
	return a.kit.bindings[0].host(a.kit)
}

// sealing loads the master keys once, when a capability first needs them. A
// fault is returned to every caller and reported once.
func (o *options) sealing(k *Kit) func() (capability.Sealer, error) {
	return sync.OnceValues(func() (capability.Sealer, error) {
		keys, err := o.loadKeys(k.environment)
		if err != nil {
			return nil, err
		}
		k.sealer = keys
		switch {
		case !keys.Ephemeral():
		case k.environment != capability.Development && k.bindings[0].db.Dialect() == database.PostgreSQL:
			k.log.Warn("no master keys on PostgreSQL: what this run encrypts at rest opens in no other run and on no other node; " +
				"set " + seal.Variable + ", for example to k1:$(openssl rand -base64 32)")
		default:
			k.log.Info(seal.Variable + " is not set: what this run encrypts at rest does not open in the next one; " +
				"with a database that the next run uses too, set it before the first, for example to k1:$(openssl rand -base64 32)")
		}
		return keys, nil
	})
}

func (o *options) loadKeys(environment string) (*seal.Keys, error) {
	if o.masterKeys == nil {
		return seal.Load(environment, os.Getenv)
	}
	ctx, cancel := context.WithTimeout(context.Background(), keysTimeout)
	defer cancel()
	return seal.LoadFrom(ctx, o.masterKeys)
}

func (a *assembly) add(c capability.Capability, err error) {
	if err != nil {
		a.incomplete = true
		a.faults.Join(eachOf(err, a.cause))
		return
	}
	a.kit.capabilities = append(a.kit.capabilities, c)
}

// cause returns err, or nil for the fault that a peer is missing which is composed: that it could not
// be built is already reported.
func (a *assembly) cause(err error) error {
	fault := new(capability.Fault)
	if errors.As(err, &fault) && a.kit.built[fault.Peer] == nil {
		if _, composed := a.o.parts[fault.Peer]; composed {
			return nil
		}
	}
	return err
}

// eachOf returns what f returns for each of the errors that [errors.Join] made err of, joined.
func eachOf(err error, f func(error) error) error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return f(err)
	}
	var list []error
	for _, one := range several.Unwrap() {
		list = append(list, eachOf(one, f))
	}
	return errors.Join(list...)
}

// finish checks the composition as a whole and mounts it.
func (a *assembly) finish() error {
	k := a.kit
	own := k.own(a.o)
	all := append([]capability.Capability{own}, k.capabilities...)
	check(a, all)
	for _, b := range k.bindings {
		a.faults.Join(k.migrationFaults(b.db.CheckMigrations(k.migrations(b)...)))
	}
	a.checkLimits(all)
	if err := a.faults.Err(); err != nil {
		return err
	}
	for i, c := range k.capabilities {
		k.capabilities[i] = cacheHealth(c, k.clock)
	}
	for _, c := range append(slices.Clone(k.capabilities), own) {
		for _, r := range c.Routes {
			k.table = append(k.table, mount.Entry{Domain: c.Domain(), Route: r, DB: c.Database})
		}
		if c.Name == auth.Name && c.Database != k.Database() {
			c.Jobs = append(slices.Clip(c.Jobs), k.left(c.Database))
		}
		if err := k.queueOf(c).Register(c.Jobs...); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
	}
	k.owned = mount.NewOwned(k.baseURL.Path, k.table)
	k.mount = mount.New(mount.Config{
		Entries: k.table, Users: k.users, Machines: k.machines, Record: k.record,
		DB: k.bindings[0].db, Log: k.log, Now: a.o.clock, BaseURL: k.baseURL,
		Limits: a.o.limits, TrustedProxies: a.o.proxies,
	})
	k.meter()
	k.announceDevelopment(a.o.devSecret)
	return nil
}

// announceDevelopment says at start what remains open in development.
func (k *Kit) announceDevelopment(secret string) {
	open := func(e mount.Entry) bool { return e.Route.Guard.Note() == capability.DevelopmentOnly }
	if secret == "" && slices.ContainsFunc(k.table, open) {
		k.log.Info("routes of development serve this machine without a password, sign-in as anybody among them: " +
			"a proxy on it that adds no header passes for a developer, WithDevelopmentSecret asks for a secret")
	}
}

// checkLimits refuses a limit of a rate class that no route is in.
func (a *assembly) checkLimits(all []capability.Capability) {
	classes := defaultLimits()
	classes["read"], classes["write"] = rate.Limit{}, rate.Limit{}
	for _, c := range all {
		for _, r := range c.Routes {
			classes[r.RateClass()] = rate.Limit{}
		}
	}
	for _, class := range sortedKeys(a.o.limits) {
		if _, ok := classes[class]; !ok {
			a.faults.Add("rateLimit "+class, nil, "is a class of no route", "use one of "+strings.Join(sortedKeys(classes), ", "))
		}
	}
}

// queueOf returns the queue whose jobs commit with the capability's rows.
func (k *Kit) queueOf(c capability.Capability) *jobs.Queue {
	for _, b := range k.bindings {
		if b.db == c.Database {
			return b.queue
		}
	}
	return k.bindings[0].queue
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// defaultLimits are the rate classes that are on unless the host says otherwise.
func defaultLimits() map[string]rate.Limit {
	return map[string]rate.Limit{
		"auth":    {Events: 600, Per: 10 * time.Second},
		"public":  {Events: 1000, Per: 10 * time.Second},
		"webhook": {Events: 3000, Per: 10 * time.Second},
	}
}

func mainVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
