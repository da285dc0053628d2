package kit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mount"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kv"
)

// ownName is the capability of the kit itself: its routes, refusals and jobs.
const ownName = "kit"

// Health is the response of GET /health.
type Health struct {
	Status  string `json:"status"`
	Version string `json:"version"`
}

func (k *Kit) own(o *options) capability.Capability {
	d := dispatcher{key: o.dispatchKey, spent: kv.NewSQL(k.bindings[0].db), now: o.clock, mountPath: strings.TrimSuffix(k.baseURL.Path, "/"), bindings: k.bindings}
	return capability.Capability{
		Name:    ownName,
		Version: k.version,
		Claims:  []string{o.internalPrefix},
		Routes: []capability.Route{
			{Method: http.MethodGet, Path: "/health", Guard: capability.Public("says only that the process serves, and its version"),
				Summary: "Status and deployed version.", Handle: capability.JSON(http.StatusOK, k.getHealth)},
			{Method: http.MethodPost, Path: o.internalPrefix + "/workflows/:binding", Guard: capability.SignedWebhook(d.verify),
				Summary: "Enqueue a durable job.", MaxBody: jobs.MaxPayload, Handle: capability.JSON(http.StatusAccepted, d.postWorkflow)},
		},
		Refusals: capability.GeneralRefusals(),
		Jobs: []jobs.Binding{
			{Name: "KIT_IDEMPOTENCY_SWEEP", Schedule: "17 * * * *", Run: k.sweepKeys},
			{Name: eraseBinding, MaxAttempts: 100, Timeout: eraseTimeout, Run: k.erase},
			{Name: erasedBefore, MaxAttempts: 100, Timeout: eraseTimeout, Run: k.erase},
		},
	}
}

func (k *Kit) sweepKeys(ctx context.Context, _ jobs.Job) error {
	for _, b := range k.bindings {
		if err := mount.SweepKeys(ctx, b.db); err != nil {
			return err
		}
	}
	return nil
}

func (k *Kit) getHealth(*capability.Call, capability.None) (Health, error) {
	return Health{Status: "ok", Version: k.version}, nil
}

// ServeHTTP serves a request of the root or of the mount path.
func (k *Kit) ServeHTTP(w http.ResponseWriter, r *http.Request) { k.mount.ServeHTTP(w, r) }

// Owns reports whether the kit serves this path, whatever the method. It is
// computed from the route table. The path is as the application's router sees
// it, the mount path of WithBaseURL included.
func (k *Kit) Owns(path string) bool { return k.owned.Has(path) }

// serves is [Kit.Owns] for the path that the router matches: the escaped one where a path has one.
func (k *Kit) serves(r *http.Request) bool { return k.Owns(cmp.Or(r.URL.RawPath, r.URL.Path)) }

// Before serves owned paths itself and hands every other request to next, such
// as a handler of static assets.
func (k *Kit) Before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if k.serves(r) {
			k.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Route is one row of the composed table, in the words of the specification.
type Route struct {
	Method string
	// Path is fully mounted under the kit.
	Path string
	// Guard is the strategy: user, bearer, session, control-plane, signed-webhook or public.
	Guard string
	// Scope is the scope or condition of the row, or "-".
	Scope string
	// Capability is the name of the part that serves it.
	Capability string
}

// Routes lists the composed table in the order of composition.
func (k *Kit) Routes() []Route {
	list := make([]Route, 0, len(k.table))
	for _, e := range k.table {
		g := e.Route.Guard
		list = append(list, Route{Method: e.Route.Method, Path: e.Route.Path, Guard: g.Strategy().String(),
			Scope: condition(g), Capability: e.Domain})
	}
	return list
}

// condition returns what a row requires beyond its strategy, as a word or a note.
func condition(g capability.Guard) string {
	switch {
	case g.Scope() != "":
		return g.Scope()
	case g.CSRF():
		return "csrf"
	case g.Note() == capability.DevelopmentOnly, g.Strategy() != capability.StrategyPublic && g.Note() != "":
		return g.Note()
	default:
		return "-"
	}
}

// How long a health aggregate is cached, since it may be a scan, and how long a failure is.
const (
	healthLifetime  = 30 * time.Second
	failureLifetime = 5 * time.Second
)

// cacheHealth caches the results of the capability's health aggregates.
func cacheHealth(c capability.Capability, now func() time.Time) capability.Capability {
	c.Health = slices.Clone(c.Health)
	for i := range c.Health {
		c.Health[i].Read = cached(c.Health[i].Read, now)
	}
	return c
}

// cached caches the result of read, a failure for a shorter time. Callers that wait for the read of
// another stop waiting when their context ends.
func cached(read func(context.Context) (any, error), now func() time.Time) func(context.Context) (any, error) {
	turn := make(chan struct{}, 1)
	var value any
	var failure error
	var at time.Time
	return func(ctx context.Context) (any, error) {
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		lifetime := healthLifetime
		if failure != nil {
			lifetime = failureLifetime
		}
		if age := now().Sub(at); !at.IsZero() && 0 <= age && age < lifetime {
			return value, failure
		}
		fresh, err := read(ctx)
		if err != nil && ctx.Err() != nil {
			return nil, err // the caller's own deadline says nothing about the capability
		}
		value, failure, at = fresh, err, now()
		return fresh, err
	}
}

// maxLag is how long a due job may wait while no node works before the kit is not
// ready.
const maxLag = time.Minute

// lag fails when no node takes the jobs of a queue. A backlog alone is no failure: taking busy
// nodes out of service would not help their users.
func (b *binding) lag(ctx context.Context) (any, error) {
	lag, leased, err := b.queue.Lag(ctx)
	if err == nil && lag > maxLag && leased == 0 {
		err = fmt.Errorf("a job has been due for %v and nobody has taken it: call Run, on one node at least",
			lag.Round(time.Second))
	}
	return nil, err
}

// Ready returns nil while the kit can serve: every database took a write within the
// last 30 seconds (see [database.DB.Check]), every health aggregate could be read in that time, and
// no job has been due for over a minute while no node works on any, as when no node calls
// [Kit.Run]. It is for the application's readiness probe. A failure is cached for 5 seconds.
func (k *Kit) Ready(ctx context.Context) error {
	var faults []error
	for _, b := range k.bindings {
		err := b.db.Ping(ctx)
		if err == nil {
			_, err = b.check(ctx)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("database %s: %w", b.name, err))
		} else if _, err := b.waiting(ctx); err != nil {
			faults = append(faults, fmt.Errorf("queue %s: %w", b.name, err))
		}
	}
	for _, c := range k.capabilities {
		for _, key := range c.Health {
			if _, err := key.Read(ctx); err != nil {
				faults = append(faults, fmt.Errorf("%s.%s: %w", c.Name, key.Key, err))
			}
		}
	}
	return errors.Join(faults...)
}

// ErrClosed is what [Kit.Run] returns after [Kit.Close].
var ErrClosed = errors.New("kit: closed")

// Run works on durable jobs and schedules until ctx ends, then stops gracefully: running jobs
// finish or give their lease back. Any number of nodes may run on one database; each tick of a
// schedule runs once. It returns [ErrClosed] after Close, and [database.ErrClosed] once a database
// is closed. With [WithoutMigrations] it returns a [capability.Fault] while migrations are missing.
func (k *Kit) Run(ctx context.Context) error {
	if k.closed.Load() {
		return ErrClosed
	}
	if err := k.checkMigrated(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	runs := slices.Clone(k.listeners)
	for _, b := range k.bindings {
		runs = append(runs, b.run)
	}
	faults := make([]error, len(runs))
	var wg sync.WaitGroup
	for i, run := range runs {
		wg.Go(func() {
			if faults[i] = run(ctx); faults[i] != nil {
				cancel() // one that fails stops the others
			}
		})
	}
	wg.Wait()
	return errors.Join(faults...)
}

// checkMigrated checks what New left to the application with [WithoutMigrations].
func (k *Kit) checkMigrated(ctx context.Context) error {
	if !k.byHand {
		return nil
	}
	missing, err := k.PendingMigrations(ctx)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return &capability.Fault{Capability: ownName, Key: "migrations",
			Reason: fmt.Sprintf("%d are missing, the first is %s", len(missing), missing[0]),
			Fix:    "apply them with Kit.Migrate, or with the command migrate of kitcmd, before this version serves"}
	}
	return k.checkMasterKeys(ctx)
}

func (b *binding) run(ctx context.Context) error {
	if err := b.queue.Run(ctx); err != nil {
		return fmt.Errorf("queue %s: %w", b.name, err)
	}
	return nil
}

// Close stops the background work of capabilities, the last composed first, and closes the database
// that New opened itself. Call it after Run has returned; a second call does nothing.
func (k *Kit) Close(ctx context.Context) error {
	if k.closed.Swap(true) {
		return nil
	}
	var faults []error
	for _, c := range slices.Backward(k.capabilities) {
		if c.Close != nil {
			faults = append(faults, c.Close(ctx))
		}
	}
	if k.unmeter != nil {
		faults = append(faults, k.unmeter())
	}
	if k.ownBus {
		faults = append(faults, k.bus.Close())
	}
	if k.ownDB != nil {
		faults = append(faults, k.ownDB.Close())
	}
	return errors.Join(faults...)
}
