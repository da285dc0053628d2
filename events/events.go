// Package events notifies other services of what happens in the kit, by signed webhooks in the form
// of the Standard Webhooks specification.
//
// # Guarantees
//
//   - The events are the hooks of package hooks, with dots in their names: "user.created",
//     "session.ended". [Types] lists them.
//   - A message is written in the transaction of the change it describes. A change that is rolled
//     back sends no message; a committed one sends its message, even if the process is killed right
//     after.
//   - Each message is delivered to each endpoint at least once; repetitions have the same header
//     webhook-id. The order is not guaranteed; the timestamp in the body is the time of the change.
//   - A failed delivery is retried over three days, see [Attempts]. An endpoint on which every
//     attempt has failed for Config.DisableAfter, or that responds with status 410, is disabled;
//     messages of that time are stored as failed. [Events.Enable] enables it again, [Events.Replay]
//     delivers the failed messages.
//   - Endpoints that take longer than a second for a message share a part of the workers, so that
//     they do not delay other endpoints.
//   - No connection is made to an address of a private network unless Endpoint.Private is set.
//     Redirects are not followed.
//   - Messages are kept for Config.Retention. Erasing a user removes the messages about the user; a
//     user.deleted that is still to be delivered keeps the id until then.
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

// Peers are the capabilities that events uses.
type Peers struct {
	// Secrets stores the signing secrets of endpoints without a Secret.
	Secrets *secrets.Secrets
	// Audit records when an endpoint is disabled, enabled or replayed; nil records nothing.
	Audit *audit.Audit
}

// Events is the outbox. It is safe for concurrent use, on PostgreSQL from several processes.
type Events struct {
	host      capability.Host
	cfg       Config
	store     store
	audit     *audit.Audit
	endpoints map[string]*endpoint
}

// endpoint is a configured endpoint with its state on this node.
type endpoint struct {
	Endpoint
	handle *secrets.Handle // nil if the config has the secret
	client *http.Client

	mu    sync.Mutex
	pause time.Time // no delivery before this time: the last one failed
	slow  time.Time // it counts as slow until this time
	busy  int       // attempts in progress
	turn  time.Time // of the last waiting delivery
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

// maxCounted limits what a health aggregate counts.
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
