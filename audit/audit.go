// Package audit keeps the trail of what happened: who did what to whom, from
// where, and how it ended.
//
// An event is written in the transaction of the change it tells of, so there
// is no event without the change and no change without the event. Events are
// append-only: the database itself refuses to alter or remove them. What
// identifies a person (IP address and user agent) is in a row of its own that
// can be erased; the event keeps only a salted commitment to it.
//
// Committed events are sealed into hash chains by [Audit.Seal], which a job
// calls every minute, and what the chains were is signed each hour. From then
// on nobody who can write to the database, but has no master key, can alter,
// remove, insert or reorder an event without [Audit.Verify] naming it. What they
// do to events before the first checkpoint after them can go unseen if they
// recompute the chain, and so can a whole database set back to an earlier day.
// Checkpoints are logged: their lines are anchors outside of the database, and
// Verify names a trail that does not have one it is given. Retention cuts the
// beginning of the trail off, which is signed and an event itself.
//
// Every capability records through its peer *Audit, which may be nil: without
// audit composed nothing is recorded. Over HTTP the control plane lists events
// and reads one; nobody writes.
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

// Peers are what audit uses: no capability, all others use audit.
type Peers struct{}

// Audit writes and reads the trail. It is safe for concurrent use.
type Audit struct {
	host   capability.Host
	cfg    Config
	sealer capability.Sealer
	store  store
	signer *signer
	queue  *queue.Queue[Pending, struct{}]
}

// New checks the configuration; it does no I/O. A host that seals nothing, as in
// tests, has a trail without signed checkpoints.
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

// jobs seals every minute and, where events are not kept forever, cuts daily.
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

// health returns how many events wait for a seal, at most 10,000.
func (a *Audit) health(ctx context.Context) (any, error) { return a.store.countWaiting(ctx, 10_000) }

// Record writes an event in the transaction of ctx, or in one of its own when
// ctx carries none. An event that breaks the grammar is a mistake of the
// program: Record returns [ErrInvalidEvent] and the transaction fails with it.
// On a control-plane row the event of a succeeded operation takes the place of
// the one that the guard would write. A nil *Audit records nothing.
func (a *Audit) Record(ctx context.Context, e Event) error {
	if a == nil {
		return nil
	}
	_, err := a.record(ctx, e, true)
	return err
}

// record is Record, with or without the origin of the request, and returns the
// id of the event. Callers outside of a transaction share one.
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

// SealOf returns the place of an event in its chain; ok is false while it waits
// for one.
func (a *Audit) SealOf(ctx context.Context, eventID string) (s Seal, ok bool, err error) {
	return a.store.sealOf(ctx, eventID)
}

// ListEvents lists the trail, newest first. The personal data of an event is
// empty where it never was or has been erased. A page looks at 20,000 events at
// most: where a filter other than ActorID, Subject.ID and From leaves few of
// them, it may have fewer than asked for, or none, and a NextCursor. A cursor of
// another list is refused with kit/invalid_request.
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

// eraseChunk bounds what one transaction erases.
const eraseChunk = 1000

// Erase removes the personal data (IP address and user agent) of the events a
// filter selects, which names an actor or a subject, and returns of how many.
// The events stay and their chain stays valid. Erasing is an event itself. A
// filter that names nobody is refused with kit/invalid_request.
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
