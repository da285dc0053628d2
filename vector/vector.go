// Package vector stores documents with vectors in named indexes and finds those nearest to a
// vector, a text or another document.
//
// # Guarantees
//
//   - An upsert is all or nothing, durable when it returns, and visible to every query that begins
//     after that, on every node. So is a deletion: a deleted document is never found again.
//   - A query finds at least 995 of 1,000 true neighbors, and all of them with [PrecisionExact].
//     Scores are exact in both cases; ties are ordered by ID.
//   - An owner's documents are found, read and written only under that owner. The same ID under two
//     owners is two documents, and documents of another owner appear not to exist.
//   - Vectors of different models are never compared.
//   - Operations join the transaction of their context. A query in a transaction sees its writes. A
//     service embeds text only outside of transactions: see [Vector.Embed].
//
// # Implementation
//
// Rows in the database are authoritative. A node keeps the vectors of the partitions in use in
// memory: one partition for each owner, or one for a shared index. Every query reads the
// partition's revision and the changes since the node's last read.
//
// # Who may call
//
// In process, any code that has the *Vector, for any owner. Over HTTP users use their own
// documents, and read shared indexes.
package vector

import (
	"context"
	"embed"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/secrets"
)

// Name is the capability's name.
const Name = "vector"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities vector uses.
type Peers struct {
	// Audit records re-embeddings; nil records nothing.
	Audit *audit.Audit
	// Secrets keeps the URL and key of the embedding service; required if an index has a [Remote]
	// embedder.
	Secrets *secrets.Secrets
}

// Vector stores and finds documents. It is safe for concurrent use, from several processes that
// share PostgreSQL.
type Vector struct {
	cfg     Config
	indexes map[string]*Index
	db      *database.DB
	jobs    *jobs.Queue
	now     func() time.Time
	log     *slog.Logger
	store   store
	cache   *cache
	audit   *audit.Audit
	asked   map[string]*atomic.Int64 // when the preparation of each index was last enqueued
}

// New returns a Vector. It reports all faults of the configuration at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Vector, error) {
	cfg = cfg.withDefaults()
	faults := capability.Faults{Capability: Name}
	cfg.validate(&faults)
	cfg.checkEngine(host.DB.Dialect(), &faults)
	faults.Join(bindRemotes(cfg, peers.Secrets, host.Now))
	if err := faults.Err(); err != nil {
		return nil, err
	}
	v := &Vector{cfg: cfg, indexes: make(map[string]*Index, len(cfg.Indexes)), db: host.DB, jobs: host.Jobs,
		now: host.Now, log: host.Log, store: store{host.DB}, audit: peers.Audit, asked: make(map[string]*atomic.Int64)}
	for i := range cfg.Indexes {
		v.indexes[cfg.Indexes[i].Name] = &cfg.Indexes[i]
		v.asked[cfg.Indexes[i].Name] = new(atomic.Int64)
	}
	v.cache = newCache(v.store, cfg.MemoryBytes)
	return v, nil
}

// Capability describes vector to the kit.
func (v *Vector) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   v.db,
		Prefix:     v.cfg.BasePath,
		Routes:     v.routes(),
		Config:     v.cfg.keys(),
		Health:     v.health(),
		Migrations: migrations,
		Parts:      v.cfg.parts(),
		Jobs:       v.bindings(),
		Refusals:   refusals(),
		Export:     v.export,
		Erase:      v.erase,
		Close:      v.close,
	}
}

// close stops the background training of partitions and waits for it.
func (v *Vector) close(context.Context) error {
	v.cache.close()
	return nil
}

// maxShownIndexes keeps the health value under 2 KB.
const maxShownIndexes = 32

func (v *Vector) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "documents", Read: func(ctx context.Context) (any, error) { return v.store.countDocuments(ctx) }},
		{Key: "memoryBytes", Read: func(context.Context) (any, error) { return v.cache.used(), nil }},
		{Key: "outdated", Read: func(ctx context.Context) (any, error) { return v.outdated(ctx) }},
	}
}

// index returns the index of a space, and checks the owner.
func (v *Vector) index(space Space) (*Index, error) {
	x, ok := v.indexes[space.Index]
	if !ok {
		return nil, ErrIndexNotFound
	}
	if x.Scope == ScopeShared {
		if space.OwnerID != "" {
			return nil, capability.ErrInvalidRequest.Saying("A shared index has no owners.")
		}
		return x, nil
	}
	return x, capability.CheckUserID(space.OwnerID)
}

// inTx joins the caller's transaction, which stays usable after a refusal, or
// opens one.
func (v *Vector) inTx(ctx context.Context, fn func(context.Context) error) error {
	if v.db.InTransaction(ctx) {
		return fn(ctx)
	}
	return v.db.InTx(ctx, fn)
}
