// Package events tells other services what happens in the kit: signed web hooks
// in the form of the Standard Webhooks specification.
//
// # What it promises
//
//   - The list of events is that of package hooks, its names with dots:
//     "user.created", "session.ended". [Types] lists them.
//   - A message is written in the transaction of the change it tells of. A change
//     that is rolled back sends none; a committed one sends its own, also when the
//     process is killed right after.
//   - Each endpoint hears of a message at least once, and knows repetitions by
//     the header webhook-id. The order is not promised; the timestamp in the
//     body says when the change was made.
//   - A failed delivery is tried again over three days, see [Attempts]. An
//     endpoint on which every attempt has failed for Config.DisableAfter, or that
//     returns 410, is disabled; messages of that time are kept as failed.
//     [Events.Enable] turns it on again, [Events.Replay] delivers them.
//   - Endpoints that take longer than a second for a message share a part of the
//     workers, so that others are told meanwhile.
//   - No connection is made to an address of a private network, unless
//     Endpoint.Private says so. No redirect is followed.
//   - Messages are kept for Config.Retention. Erasing a user removes those about
//     the user; of the user.deleted that is still to be told the id stays until
//     it is.
//
// # Who may call
//
// In process, any holder of the *Events. There are no routes.
package events

import (
	"context"
	"embed"
	"net/http"
	"sync"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/outbound"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
)

// Name is the capability's name.
const Name = "events"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are what events uses.
type Peers struct {
	// Secrets keeps the signing secrets of endpoints whose config has none.
	Secrets *secrets.Secrets
	// Audit is told when an endpoint is disabled, enabled or replayed; nil records
	// nothing.
	Audit *audit.Audit
}

// Events is the outbox. It is safe for concurrent use, from several processes on
// PostgreSQL.
type Events struct {
	host      capability.Host
	cfg       Config
	store     store
	audit     *audit.Audit
	endpoints map[string]*endpoint
}

// endpoint is a configured receiver and what this node knows of it.
type endpoint struct {
	Endpoint
	handle *secrets.Handle // nil when the config has the secret
	client *http.Client

	mu    sync.Mutex
	pause time.Time // no delivery before it: the last one failed
	slow  time.Time // it takes its time, as seen lately
	busy  int       // attempts under way
	turn  time.Time // of the last one that waits
}

// New checks the configuration and attaches to the hooks; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Events, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults, peers.Secrets != nil)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	e := &Events{host: host, cfg: cfg, store: store{host.DB}, audit: peers.Audit, endpoints: make(map[string]*endpoint)}
	for _, given := range cfg.Endpoints {
		to := &endpoint{Endpoint: given, client: outbound.NewClient(cfg.Timeout, given.Private)}
		if given.Secret == "" {
			handle, err := peers.Secrets.Declare(declaration(given.Name))
			faults.Join(err)
			to.handle = handle
		}
		e.endpoints[given.Name] = to
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	e.attach(host.Hooks)
	return e, nil
}

// Capability describes the outbox to the kit.
func (e *Events) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   e.host.DB,
		Config:     e.cfg.keys(),
		Health:     e.health(),
		Migrations: migrations,
		Jobs: []jobs.Binding{
			{Name: deliverBinding, MaxAttempts: deliverRuns, Timeout: e.cfg.Timeout + storeTimeout, Run: e.runDelivery},
			{Name: "EVENTS_SWEEP", Schedule: "23 * * * *", Run: e.runSweep},
		},
		Refusals: refusals(),
		Export:   e.export,
		Erase:    e.erase,
	}
}

// maxCounted bounds what a health aggregate counts.
const maxCounted = 10_000

func (e *Events) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "pending", Read: func(ctx context.Context) (any, error) {
			var sum int64
			for _, given := range e.cfg.Endpoints {
				n, err := e.store.count(ctx, given.Name, StatePending, maxCounted)
				if err != nil {
					return nil, err
				}
				sum += n
			}
			return sum, nil
		}},
		{Key: "disabledEndpoints", Read: func(ctx context.Context) (any, error) {
			disabled, err := e.store.disabled(ctx)
			return len(disabled), err
		}},
	}
}
