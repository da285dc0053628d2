// Package audit records what happened: who did what to whom, from where, and with what outcome.
//
// An event is written in the transaction of the change it describes, so that neither exists without
// the other. Events are append-only: the database itself refuses to change or delete them. Data
// that identifies a person (IP address and user agent) is stored in a separate row that can be
// erased; the event keeps only a salted commitment to it.
//
// Committed events are sealed into hash chains by [Audit.Seal], which a job calls every minute, and
// the heads of the chains are signed each hour. From then on nobody who can write to the database,
// but has no master key, can change, delete, insert or reorder an event without [Audit.Verify]
// detecting it. Changes to events before their first checkpoint can go undetected if the chain is
// recomputed, and so can the reset of a whole database to an earlier day. Checkpoints are logged:
// their log lines are anchors outside of the database, and Verify reports a trail that lacks a
// given anchor. Retention cuts off the beginning of the trail; the cut is signed and itself an
// event.
//
// Every capability records through its peer *Audit, which may be nil: without audit nothing is
// recorded. Over HTTP the control plane lists and reads events; nobody writes them.
package audit

import (
	"context"
	"embed"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/queue"
	"github.com/kitbackend/kit/jobs"
)

// Name is the capability's name.
const Name = "audit"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers is empty: audit uses no capability, all others use audit.
type Peers struct{}

// Audit writes and reads the audit trail. It is safe for concurrent use.
type Audit struct {
	host   capability.Host
	cfg    Config
	sealer capability.Sealer
	store  store
	signer *signer
	queue  *queue.Queue[Pending, struct{}]
}

// New checks the configuration; it does no I/O. On a host without master keys, as in tests, the
// trail has no signed checkpoints.
func New(host capability.Host, cfg Config, _ Peers) (*Audit, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	var sealer capability.Sealer
	if host.Sealing != nil {
		var err error
		sealer, err = host.Sealing()
		faults.Join(err)
	}
	cfg.validate(&faults, sealer)
	if err := faults.Err(); err != nil {
		return nil, err
	}
	store := store{host.DB, scanChunk}
	a := &Audit{host: host, cfg: cfg, sealer: sealer, store: store, signer: &signer{store: store, sealer: sealer}}
	a.queue = &queue.Queue[Pending, struct{}]{Run: a.run, Size: batchSize, Leaders: queue.WriteLeaders(host.DB)}
	return a, nil
}

// Capability describes audit to the kit.
func (a *Audit) Capability() capability.Capability {
	c := capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   a.host.DB,
		Prefix:     a.cfg.BasePath,
		Routes:     a.routes(),
		Config:     a.cfg.keys(),
		Health:     []capability.HealthKey{{Key: "waiting", Read: a.health}},
		Migrations: migrations,
		Jobs:       a.jobs(),
		Refusals:   refusals(),
		Export:     a.exportPerson,
		Erase:      a.erasePerson,
	}
	if a.sealer != nil {
		c.Rewrap = a.Rewrap
	}
	return c
}

// jobs returns the jobs that seal every minute and, if retention is limited, cut daily.
func (a *Audit) jobs() []jobs.Binding {
	list := []jobs.Binding{{Name: "AUDIT_SEAL", Schedule: "* * * * *", Run: func(ctx context.Context, _ jobs.Job) error {
		_, err := a.Seal(ctx)
		return err
	}}}
	if a.cfg.Retention > 0 {
		list = append(list, jobs.Binding{Name: "AUDIT_RETENTION", Schedule: "17 3 * * *", Run: func(ctx context.Context, _ jobs.Job) error {
			_, err := a.Cut(ctx, a.host.DB.Now(ctx).Add(-a.cfg.Retention))
			return err
		}})
	}
	return list
}

// health returns the number of events that are not sealed yet, at most 10,000.
func (a *Audit) health(ctx context.Context) (any, error) { return a.store.countWaiting(ctx, 10_000) }

// Record writes an event in the transaction of ctx, or in one of its own if there is none. For an
// event that violates the grammar, which is a bug of the program, Record returns [ErrInvalidEvent]
// and the transaction fails with it. On a control-plane route the event of a succeeded operation
// replaces the one that the guard would write. A nil *Audit records nothing.
func (a *Audit) Record(ctx context.Context, e Event) error {
	if a == nil {
		return nil
	}
	_, err := a.record(ctx, e, true)
	return err
}

// record is Record, with or without the origin of the request, and returns the id of the event.
// Concurrent callers outside of a transaction share one.
func (a *Audit) record(ctx context.Context, e Event, origin bool) (eventID string, err error) {
	if a.host.DB.InTransaction(ctx) {
		err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
			p, err := a.prepare(ctx, e, origin)
			eventID = p.entry.ID
			if err != nil {
				return err
			}
			return a.RecordAll(ctx, p)
		})
		return eventID, err
	}
	p, err := a.prepare(ctx, e, origin)
	if err != nil {
		return "", err
	}
	_, err = a.queue.Do(ctx, p)
	return p.entry.ID, err
}

// Event returns one event. It refuses with audit/event_not_found.
func (a *Audit) Event(ctx context.Context, eventID string) (Entry, error) {
	if !storable(eventID) {
		return Entry{}, ErrEventNotFound
	}
	entry, found, err := a.store.event(ctx, eventID)
	if err == nil && !found {
		err = ErrEventNotFound
	}
	return entry, err
}

// SealOf returns the seal of an event; ok is false until the event is sealed.
func (a *Audit) SealOf(ctx context.Context, eventID string) (s Seal, ok bool, err error) {
	return a.store.sealOf(ctx, eventID)
}

// ListEvents lists events, newest first. The personal data of an event is empty if there was none
// or it was erased. A page examines at most 20,000 events: if few of them match a filter other than
// ActorID, Subject.ID and From, the page may have fewer than its limit, or none, and still a
// NextCursor. A cursor of another list is refused with kit/invalid_request.
func (a *Audit) ListEvents(ctx context.Context, f Filter, page capability.Page) (capability.Items[Entry], error) {
	page = page.Bounded()
	var before string
	if _, err := page.After(&before); err != nil {
		return capability.Items[Entry]{}, err
	}
	entries, next, err := a.store.list(ctx, f, before, page.Limit+1)
	if err != nil {
		return capability.Items[Entry]{}, err
	}
	if next != "" {
		return capability.Continued(entries, next), nil
	}
	return capability.Paged(page, entries, func(e Entry) []any { return []any{e.ID} }), nil
}

// eraseChunk limits the events of one erasing transaction.
const eraseChunk = 1000

// Erase removes the personal data (IP address and user agent) of the events that a filter selects,
// and returns the number of these events. The events remain and their chain stays valid. The
// erasure is itself an event. A filter that names neither an actor nor a subject is refused with
// kit/invalid_request.
func (a *Audit) Erase(ctx context.Context, f Filter) (erased int64, err error) {
	if f.ActorID == "" && f.Subject.ID == "" {
		return 0, capability.ErrInvalidRequest.Saying("Name the actor or the subject whose personal data is to be erased.")
	}
	if erased, err = a.eraseChunks(ctx, f); err != nil {
		return erased, err
	}
	e := Event{Action: "audit/personal_data_erased", Subject: f.Subject, Detail: map[string]int64{"events": erased}}
	if f.ActorID != "" {
		e.Subject = Target{Type: "actor", ID: f.ActorID}
	}
	return erased, a.Record(ctx, e)
}

func (a *Audit) eraseChunks(ctx context.Context, f Filter) (erased int64, err error) {
	for {
		n, err := a.store.erase(ctx, f, eraseChunk)
		if erased += n; err != nil || n < eraseChunk {
			return erased, err
		}
	}
}
