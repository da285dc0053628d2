// Package media keeps pictures, videos and audio of users, and makes smaller pictures, a
// placeholder, and a hash that finds similar ones.
//
// # Guarantees
//
//   - The bytes of a file determine its type; the declared type and the name never do.
//   - An untrusted file is measured before it is decoded: pixels, bytes and time are bounded, and
//     so is the memory of all decoders of a process. If it crashes a decoder, only its item fails.
//   - Processing is a durable job. The smaller pictures, the cleaned original and the status change
//     in one transaction; after a killed process the item is processed again.
//   - Smaller pictures are upright and have no metadata. The location is removed from originals,
//     unless configured otherwise.
//   - Bytes are objects of storage that no route of storage shows. They count toward their owner's
//     quota, and are removed with their item.
//   - An item of another user cannot be distinguished from a missing one, unless it is public.
//
// # Who may call
//
// In process, any code that has the *Media, for any owner. Over HTTP users use their own items, and
// read public ones.
package media

import (
	"context"
	"embed"
	"errors"
	"log/slog"

	"golang.org/x/sync/semaphore"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/storage"
)

// Name is the capability's name.
const Name = "media"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities media uses.
type Peers struct {
	// Storage keeps the bytes; required.
	Storage *storage.Storage
	// Audit records deletions and refused pictures; nil records nothing.
	Audit *audit.Audit
}

// Media keeps items. It is safe for concurrent use, from several processes that share PostgreSQL
// and one bucket.
type Media struct {
	cfg   Config
	host  capability.Host
	db    *database.DB
	store store
	space storage.Space
	jobs  *jobs.Queue
	hooks *hooks.Hooks
	log   *slog.Logger
	audit *audit.Audit
	// memory bounds the memory of all decoders, in units of four bytes.
	memory *semaphore.Weighted
	// film is acquired to process a video.
	film *semaphore.Weighted
	// recipe identifies the configuration of the derivatives.
	recipe string
}

// inFlight bounds the memory of all decoders of a process: 600 MB. A picture that needs more is
// decoded alone.
const inFlight = 150_000_000

// New returns a Media. It reports all faults of the configuration at once; it does no I/O except
// finding the configured programs.
func New(host capability.Host, cfg Config, peers Peers) (*Media, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults)
	if peers.Storage == nil {
		faults.Join(capability.MissingPeer(Name, storage.Name))
	}
	if err := faults.Err(); err != nil {
		return nil, err
	}
	return &Media{cfg: cfg, host: host, db: host.DB, store: store{host.DB}, space: peers.Storage.Namespace(Name), jobs: host.Jobs,
		hooks: host.Hooks, log: host.Log, audit: peers.Audit, memory: semaphore.NewWeighted(inFlight),
		film: semaphore.NewWeighted(1), recipe: cfg.recipe()}, nil
}

// Capability describes media to the kit.
func (m *Media) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   m.db,
		Prefix:     m.cfg.BasePath,
		Routes:     m.routes(),
		Config:     m.cfg.keys(),
		Health:     m.health(),
		Migrations: migrations,
		Jobs:       m.bindings(),
		Refusals:   refusals(),
		Export:     m.export,
		Erase:      m.erase,
	}
}

func (m *Media) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "processing", Read: func(ctx context.Context) (any, error) { return m.store.countProcessing(ctx) }},
	}
}

// own returns an item of an owner.
func (m *Media) own(ctx context.Context, ownerID, id string) (Item, error) {
	i, found, err := m.store.item(ctx, id)
	return i, mine(i, found, ownerID, err)
}

// lockOwn is own for a change, in a transaction.
func (m *Media) lockOwn(ctx context.Context, ownerID, id string) (Item, error) {
	i, found, err := m.store.lockItem(ctx, id)
	return i, mine(i, found, ownerID, err)
}

func mine(i Item, found bool, ownerID string, err error) error {
	if err == nil && (!found || i.OwnerID != ownerID) {
		err = ErrNotFound
	}
	return err
}

// Get returns an item of an owner, or a public one, with signed URLs that are valid for five
// minutes. Refuses with media/not_found.
func (m *Media) Get(ctx context.Context, ownerID, id string) (Item, error) {
	i, found, err := m.store.item(ctx, id)
	if err != nil {
		return Item{}, err
	}
	public := i.Visibility == storage.VisibilityPublic && i.Status == StatusReady
	if !found || i.OwnerID != ownerID && !public {
		return Item{}, ErrNotFound
	}
	return m.whole(ctx, i)
}

// List lists items of an owner, the newest first, in the form that Get returns. Refuses with
// kit/invalid_request.
func (m *Media) List(ctx context.Context, f Filter, page capability.Page) (capability.Items[Item], error) {
	var none capability.Items[Item]
	page = page.Bounded()
	var before string
	if _, err := page.After(&before); err != nil {
		return none, err
	}
	rows, err := m.store.list(ctx, f, before, page.Limit+1)
	if err != nil {
		return none, err
	}
	items := capability.Paged(page, rows, func(i Item) []any { return []any{i.ID} })
	return items, m.complete(ctx, items.Items)
}

// whole calls complete for one item.
func (m *Media) whole(ctx context.Context, i Item) (Item, error) {
	list := []Item{i}
	err := m.complete(ctx, list)
	return list[0], err
}

// complete adds the derivatives and signed URLs to items that are ready.
func (m *Media) complete(ctx context.Context, items []Item) error {
	at := make(map[string]int, len(items))
	var ids, objects []string
	for n, i := range items {
		if i.Status == StatusReady {
			at[i.ID] = n
			ids, objects = append(ids, i.ID), append(objects, i.ObjectID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	derivatives, err := m.store.derivatives(ctx, ids)
	if err != nil {
		return err
	}
	for _, d := range derivatives {
		objects = append(objects, d.objectID)
	}
	links, err := m.sign(ctx, objects)
	if err != nil {
		return err
	}
	for _, n := range at {
		if link, ok := links[items[n].ObjectID]; ok {
			items[n].Original = &link
		}
	}
	for _, d := range derivatives {
		if link, ok := links[d.objectID]; ok {
			d.URL, d.ExpiresAt = link.URL, link.ExpiresAt
			i := &items[at[d.item]]
			i.Derivatives = append(i.Derivatives, d.Derivative)
		}
	}
	return nil
}

func (m *Media) sign(ctx context.Context, objects []string) (map[string]storage.Link, error) {
	links := make(map[string]storage.Link, len(objects))
	for len(objects) > 0 {
		n := min(len(objects), storage.MaxBatch)
		some, err := m.space.SignAll(ctx, objects[:n], storage.SignOptions{})
		if err != nil {
			return nil, err
		}
		for id, link := range some {
			links[id] = link
		}
		objects = objects[n:]
	}
	return links, nil
}

// Delete removes an item and its files, in the caller's transaction if there is one. Refuses with
// media/not_found.
func (m *Media) Delete(ctx context.Context, ownerID, id string) error {
	return m.db.InTx(ctx, func(ctx context.Context) error {
		i, err := m.lockOwn(ctx, ownerID, id)
		if err != nil {
			return err
		}
		if err := m.removeBytes(ctx, i); err != nil {
			return err
		}
		if _, err := m.store.remove(ctx, i.ID); err != nil {
			return err
		}
		if err := m.record(ctx, "media/deleted", i); err != nil {
			return err
		}
		return m.hooks.MediaDeleted.Fire(ctx, hooks.MediaDeleted{OwnerID: i.OwnerID, MediaID: i.ID})
	})
}

// removeBytes removes the objects of an item, in the caller's transaction.
func (m *Media) removeBytes(ctx context.Context, i Item) error {
	derivatives, err := m.store.derivatives(ctx, []string{i.ID})
	if err != nil {
		return err
	}
	objects := []string{i.ObjectID}
	for _, d := range derivatives {
		objects = append(objects, d.objectID)
	}
	if _, err := m.space.DeleteAll(ctx, objects); err != nil {
		return err
	}
	return m.store.removeDerivatives(ctx, i.ID)
}

// record writes an audit event about an item.
func (m *Media) record(ctx context.Context, action string, i Item) error {
	return m.audit.Record(ctx, audit.Event{Action: action, Subject: audit.Target{Type: "media", ID: i.ID},
		Targets: []audit.Target{{Type: "user", ID: i.OwnerID}}})
}

// refusal returns the refusal of media that an error wraps.
func refusal(err error) (*capability.Error, bool) {
	for _, r := range refusals() {
		if errors.Is(err, r) {
			return r, true
		}
	}
	return nil, false
}
