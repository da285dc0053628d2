// Package payments turns what five rails report, two stores, a card processor
// and two merchants of record, into purchases and entitlements.
//
// # Guarantees
//
//   - Reports of rails are merged into facts that do not depend on the order or the number of
//     deliveries: see [Merge]. A status is a function of facts and time alone: see [Project]. So
//     a late, early or repeated webhook leads to the same result, and purchases end by time
//     without a job.
//   - A webhook is acknowledged once its effects are durable. One whose proof does not verify is
//     refused; an authentic one of another environment is recorded and acknowledged, without
//     effect.
//   - A settled charge credits the ledger once, in the transaction of the projection. A refund
//     takes the credit back; the part that the balance does not cover is owed, shown, and tried
//     again.
//   - A purchase belongs to one subject. Submitting a purchase of another subject is refused; a
//     restore moves it, and never copies it.
//   - Status and money are independent: grants come from the status, credits from
//     charges that settled.
//
// # Who may call
//
// In process, any holder of the *Payments. Over HTTP users submit, restore, buy and
// read for their own subject; rails deliver webhooks that they prove; the control
// plane reads all, and grants and revokes.
package payments

import (
	"context"
	"embed"
	"errors"
	"hash/fnv"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/secrets"
)

// Name is the capability's name.
const Name = "payments"

// SecretName is the secret that holds a block of credentials for each rail.
const SecretName = "payments-provider-credentials"

const topic = "payments/entitlements"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that payments uses.
type Peers struct {
	// Secrets keeps the credentials of the rails; required.
	Secrets *secrets.Secrets
	// Ledger gets the credits of products that have one. It uses the same database.
	Ledger *ledger.Ledger
	// Audit records changes; nil records nothing.
	Audit *audit.Audit
	// Users verifies the callers of [Payments.RequireEntitlement], which without it admits nobody.
	Users *capability.Users
}

// Payments manages purchases and entitlements. It is safe for concurrent use, from several
// processes on PostgreSQL.
type Payments struct {
	host        capability.Host
	cfg         Config
	environment StoreEnvironment
	catalog     catalog
	rails       map[RailID]*rail
	store       store
	handle      *secrets.Handle
	ledger      *ledger.Ledger
	audit       *audit.Audit
	users       *capability.Users
	cache       cache
	budget      time.Duration
	unsubscribe func()
}

// rail is a composed rail with its defaults.
type rail struct{ Rail }

// New checks the configuration, all faults at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Payments, error) {
	cfg = cfg.withDefaults()
	p := &Payments{host: host.Complete(), cfg: cfg, environment: EnvironmentSandbox, rails: make(map[RailID]*rail), store: store{host.DB},
		ledger: peers.Ledger, audit: peers.Audit, users: peers.Users, budget: callBudget,
		cache: cache{entries: make(map[Subject]cached), gone: make(map[Subject]uint64)}}
	if host.Production() {
		p.environment = EnvironmentProduction
	}
	for _, r := range cfg.Rails {
		if r.RenewalLeeway == 0 {
			r.RenewalLeeway = time.Hour
		}
		p.rails[r.ID] = &rail{r}
	}
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults, host.Production(), peers.Ledger)
	if peers.Ledger != nil && host.DB != nil && usesCredit(cfg) && peers.Ledger.Capability().Database != host.DB {
		faults.Add("database", cfg.Database, "is not the database of the ledger that products credit", "name the same database in both")
	}
	if peers.Secrets == nil {
		faults.AddFault(*capability.MissingPeer(Name, secrets.Name))
	} else if faults.Err() == nil && len(cfg.Rails) > 0 {
		handle, err := peers.Secrets.Declare(p.secret())
		faults.Join(err)
		p.handle = handle
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	p.catalog = newCatalog(cfg.Products)
	p.unsubscribe = p.host.PubSub.Subscribe(topic, p.heard)
	return p, nil
}

func usesCredit(cfg Config) bool {
	for _, product := range cfg.Products {
		if product.Credit != nil {
			return true
		}
	}
	return false
}

// secret declares the credentials: a block a rail, whole or absent.
func (p *Payments) secret() secrets.Secret {
	s := secrets.Secret{Name: SecretName, Check: func(blocks secrets.Blocks) error {
		var wrong []error
		for _, rail := range p.cfg.Rails {
			if fields, ok := blocks[string(rail.ID)]; ok && len(fields) > 0 && rail.CheckCredentials != nil {
				wrong = append(wrong, rail.CheckCredentials(p.environment, fields))
			}
		}
		return errors.Join(wrong...)
	}}
	for _, rail := range p.cfg.Rails {
		s.Blocks = append(s.Blocks, rail.Credentials)
	}
	return s
}

// Capability describes payments to the kit.
func (p *Payments) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   p.host.DB,
		Prefix:     p.cfg.BasePath,
		Routes:     p.routes(),
		Config:     p.cfg.keys(),
		Health:     p.health(),
		Migrations: migrations,
		Jobs:       p.jobs(),
		Refusals:   refusals(),
		Export:     p.export,
		Erase:      p.erase,
		Close:      func(context.Context) error { p.unsubscribe(); return nil },
	}
}

func (p *Payments) jobs() []jobs.Binding {
	bindings := []jobs.Binding{{Name: sweepBinding, Schedule: "17 * * * *", Run: func(ctx context.Context, _ jobs.Job) error {
		return errors.Join(p.lapse(ctx), p.Sweep(ctx))
	}}}
	if p.cfg.NoReconcile {
		return bindings
	}
	return append(bindings, jobs.Binding{Name: ReconcileBinding, Schedule: "40 2 * * *", Timeout: 10 * time.Minute,
		Run: p.runReconcile, Dispatch: jobs.Dispatchable[*ReconcileRequest]()})
}

func (p *Payments) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "failedWebhooks", Read: p.store.count(countFailedWebhooks)},
		{Key: "owedClawbacks", Read: p.store.count(countOwedClawbacks)},
		{Key: "unacknowledged", Read: p.store.count(countUnacknowledged)},
	}
}

// heard invalidates cached entitlements that another node has changed.
func (p *Payments) heard(payload []byte) {
	kind, subjectID, ok := strings.Cut(string(payload), " ")
	if !ok {
		p.cache.forgetAll()
		return
	}
	p.cache.forget(Subject{SubjectKind(kind), subjectID})
}

func (p *Payments) forgetAfter(ctx context.Context, subject Subject) {
	database.AfterCommit(ctx, func() { p.cache.forget(subject) })
}

// on returns a rail that is on. Refuses with payments/rail_not_enabled and, without an id, with
// kit/invalid_request.
func (p *Payments) on(id RailID) (*rail, error) {
	if id == "" {
		return nil, capability.ErrInvalidRequest.Saying("rail is missing.")
	}
	if rail := p.rails[id]; rail != nil {
		return rail, nil
	}
	return nil, ErrRailNotEnabled
}

// versionSlots is how many counters the purchases of a rail share.
const versionSlots = 4096

// access returns the Access of a call, with the current credentials. Refuses with
// payments/rail_not_configured.
func (p *Payments) access(ctx context.Context, rail *rail) (Access, error) {
	data, err := p.handle.Get(ctx)
	if errors.Is(err, secrets.ErrNotFound) {
		return Access{}, ErrRailNotConfigured
	}
	if err != nil {
		return Access{}, err
	}
	fields, ok := data.Block(string(rail.ID))
	if !ok {
		return Access{}, ErrRailNotConfigured
	}
	access := Access{Credentials: fields, Environment: p.environment, Now: p.host.Now, Kind: p.catalog.kind(rail.ID)}
	if previous, ok, err := p.handle.Previous(ctx); err == nil && ok {
		access.Previous, _ = previous.Block(string(rail.ID))
	}
	access.Version = func(ctx context.Context, transactionID string) (int64, error) {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(transactionID))
		version, err := p.store.draw(ctx, rail.ID, int64(sum.Sum64()%versionSlots))
		if err != nil {
			return 0, Transient(err, 0)
		}
		return version, nil
	}
	return access, nil
}

// subjectOf returns the subject that a user buys for, and whether the user may manage its billing.
func (p *Payments) subjectOf(ctx context.Context, userID string) (Subject, bool, error) {
	if err := capability.CheckUserID(userID); err != nil {
		return Subject{}, false, err
	}
	if p.cfg.BillingSubject == SubjectUser {
		return Subject{SubjectUser, userID}, true, nil
	}
	subject, manages, err := p.cfg.ResolveSubject(ctx, userID)
	if err != nil {
		return Subject{}, false, err
	}
	return subject, manages, p.checkSubject(subject)
}

// manager returns the subject of a user who may manage its billing. Refuses with
// payments/billing_denied.
func (p *Payments) manager(ctx context.Context, userID string) (Subject, error) {
	subject, manages, err := p.subjectOf(ctx, userID)
	if err == nil && !manages {
		err = ErrBillingDenied
	}
	return subject, err
}

// stillThere refuses a subject whose token has changed, because it was erased while a rail was
// called and nothing may be written about it afterwards. It locks the subject against erasure until
// the transaction ends. Refuses with auth/unauthenticated.
func (p *Payments) stillThere(ctx context.Context, subject Subject, token string) error {
	there, err := p.store.holdSubject(ctx, subject, token)
	if err == nil && !there {
		err = capability.ErrUnauthenticated
	}
	return err
}

// AccountToken returns the UUID that identifies a subject at the rails: an app passes it to its
// store with a purchase, by which the purchase is assigned to the subject.
func (p *Payments) AccountToken(ctx context.Context, subject Subject) (string, error) {
	if err := p.checkSubject(subject); err != nil {
		return "", err
	}
	if known, ok, err := p.store.subject(ctx, subject); err != nil || ok {
		return known.token, err
	}
	var known subjectRow
	err := p.host.DB.InTx(ctx, func(ctx context.Context) (err error) {
		if err := p.store.ensureSubject(ctx, subject, newToken()); err != nil {
			return err
		}
		known, _, err = p.store.subject(ctx, subject)
		return err
	})
	return known.token, err
}
