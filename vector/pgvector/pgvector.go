// Package pgvector searches the vectors of package vector in PostgreSQL, with the extension
// pgvector 0.8 or newer.
//
// # Guarantees
//
//   - The guarantees of package vector for writes, owners and deletions: points change in the
//     transaction of their documents, and the next query sees them.
//   - A partition of at most [Config.ExactBelow] documents is searched exactly. A larger one is
//     searched by an HNSW index, whose recall depends on the data and on [Config.Candidates] and is
//     not guaranteed. A search with a filter or with vector.PrecisionExact never misses documents
//     because of the index: if it finds too few, all are compared.
//   - Scores are exact: the results of the index are scored again from the documents.
//
// # Implementation
//
// A table has a point for each document, of unit length under cosine, and a partial HNSW index for
// each index: on vector up to 2,000 dimensions, on halfvec up to 4,000, none above. A job adds the
// points of documents from before the engine was configured; until it is done their partitions are
// searched in memory, as they are after a node without the engine has written to them.
//
// The points take as much space as the documents' own vectors. Distances are summed as float32:
// under vector.MetricDot and vector.MetricEuclidean components below about 1e-19 count as zero.
package pgvector

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/vector"
)

//go:embed migrations/*.sql
var migrations embed.FS

// Config configures the engine. Values out of bounds are replaced by the nearest bound.
type Config struct {
	// ExactBelow is the number of documents up to which a partition is searched
	// exactly, by default 10,000.
	ExactBelow int64
	// Candidates is how many candidates a search of the HNSW index keeps, 100 to 1,000, by default
	// 200: more improve recall, and take longer.
	Candidates int
	// Links is how many neighbors a point of the HNSW index has, 4 to 100, by default 16. Links and
	// Effort only affect indexes that do not exist yet.
	Links int
	// Effort is how many candidates are compared when a point is added, twice Links to 1,000, by
	// default 64.
	Effort int
	// Scanned bounds how many points a search with a filter reads before all are compared, by
	// default 20,000.
	Scanned int
}

const (
	maxVector = 2000 // dimensions of an HNSW index on vector
	maxHalf   = 4000 // dimensions of an HNSW index on halfvec
	largest   = 65504
)

// New returns the engine, for vector.Config.
func New(cfg Config) vector.Engine {
	cfg.ExactBelow = cmp.Or(max(cfg.ExactBelow, 0), 10_000)
	cfg.Candidates = max(100, min(cmp.Or(cfg.Candidates, 200), 1000))
	cfg.Links = max(4, min(cmp.Or(cfg.Links, 16), 100))
	cfg.Effort = max(2*cfg.Links, min(cmp.Or(cfg.Effort, 64), 1000))
	cfg.Scanned = max(1, cmp.Or(cfg.Scanned, 20_000))
	return &engine{cfg: cfg}
}

type engine struct {
	cfg     Config
	schemas sync.Map // schema of the extension, by database
}

func (e *engine) Name() string              { return "pgvector" }
func (e *engine) Dialect() database.Dialect { return database.PostgreSQL }
func (e *engine) Check(vector.Index) error  { return nil }

func (e *engine) Migrations() database.Migrations {
	return database.Migrations{Name: "vector-pgvector", FS: migrations}
}

// MaxComponent returns the bound of halfvec if that is indexed.
func (e *engine) MaxComponent(x vector.Index) float32 {
	if x.Metric != vector.MetricCosine && x.Dimensions > maxVector && x.Dimensions <= maxHalf {
		return largest
	}
	return 0
}

// kind identifies the points that an index can be compared with.
func kind(x vector.Index) string { return fmt.Sprintf("%s/%s/%d", x.Name, x.Metric, x.Dimensions) }

// hnsw returns the name of the HNSW index of a kind; it is a hash, since names in PostgreSQL are
// short.
func hnsw(x vector.Index) string {
	f := fnv.New64a()
	_, _ = f.Write([]byte(kind(x)))
	return fmt.Sprintf("vector_point_%016x", f.Sum64())
}

// prepared returns a vector in the form in which it is stored and searched.
func prepared(x vector.Index, v []float32) []float32 {
	if x.Metric == vector.MetricCosine {
		return vector.Unit(v)
	}
	return v
}

func (e *engine) Put(ctx context.Context, db *database.DB, part vector.Part, points []vector.Point) error {
	s, err := e.store(ctx, db, part.Index)
	if err != nil {
		return err
	}
	rows := make([]row, len(points))
	for i, p := range points {
		rows[i] = newRow(part.Index, p.ID, p.Vector, p.Metadata)
	}
	if err := s.put(ctx, part.ID, rows); err != nil {
		return err
	}
	return s.moved(ctx, part.ID, part.Revision)
}

func (e *engine) Search(ctx context.Context, db *database.DB, part vector.Part, ask vector.Search) (near vector.Nearest, err error) {
	s, err := e.store(ctx, db, part.Index)
	if err != nil {
		return near, err
	}
	err = db.Read(ctx, func(ctx context.Context) (err error) {
		near, err = e.search(ctx, s, part, ask)
		return err
	})
	return near, err
}

// search runs in one snapshot.
func (e *engine) search(ctx context.Context, s store, part vector.Part, ask vector.Search) (near vector.Nearest, err error) {
	state, err := s.begin(ctx, part.ID, max(e.cfg.Candidates, 2*ask.K), e.cfg.Scanned)
	if err != nil {
		return near, err
	}
	large := part.Documents > e.cfg.ExactBelow && part.Index.Dimensions <= maxHalf
	near.Ready = state.ready
	near.Behind = !state.ready || large && !state.indexed
	if !state.ready || ask.Vector == nil {
		return near, nil
	}
	// More than requested, since exact scores may change the order of similar ones.
	limit := ask.K + ask.K/8 + 8
	looked := prepared(part.Index, ask.Vector)
	if large && state.indexed && !ask.Exact {
		near.IDs, err = s.nearest(ctx, part.ID, looked, ask.Filter, limit)
		if err != nil || len(near.IDs) >= min(limit, int(part.Documents)) {
			return near, err
		}
	}
	near.Exact = true
	near.IDs, err = s.all(ctx, part.ID, looked, ask.Filter, limit)
	return near, err
}

func (e *engine) Keep(ctx context.Context, db *database.DB, part vector.Part, filter *vector.Condition, ids []string) ([]string, error) {
	s, err := e.store(ctx, db, part.Index)
	if err != nil {
		return nil, err
	}
	found, err := s.kept(ctx, part.ID, filter, ids)
	if err != nil {
		return nil, err
	}
	known := make(map[string]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	kept := make([]string, 0, len(found))
	for _, id := range ids {
		if known[id] {
			kept = append(kept, id)
		}
	}
	return kept, nil
}

// caughtUp is how many documents a transaction of Prepare adds.
const caughtUp = 200

func (e *engine) Prepare(ctx context.Context, db *database.DB, x vector.Index) error {
	s, err := e.store(ctx, db, x)
	if err != nil {
		return err
	}
	// The index is created before the points are added one by one: creating it afterwards is
	// faster, but would block writes of documents.
	if x.Dimensions <= maxHalf {
		if err := db.InTx(ctx, func(ctx context.Context) error { return s.makeIndex(ctx, e.cfg) }); err != nil {
			return err
		}
	}
	for after := ""; ; {
		partition, ok, err := s.nextBehind(ctx, after)
		if err != nil || !ok {
			return err
		}
		for more := true; more; {
			if err := db.InTx(ctx, func(ctx context.Context) (err error) {
				more, err = s.catchUp(ctx, partition)
				return err
			}); err != nil {
				return err
			}
		}
		after = partition
	}
}

// catchUp adds the points of some documents of a partition, in a transaction; more is false once it
// has all of them.
func (s store) catchUp(ctx context.Context, partition string) (more bool, err error) {
	revision, ok, err := s.lock(ctx, partition)
	if err != nil || !ok {
		return false, err
	}
	documents, err := s.behind(ctx, partition, caughtUp)
	if err != nil {
		return false, err
	}
	rows := make([]row, len(documents))
	for i, d := range documents {
		if len(d.vector) != s.index.Dimensions {
			return false, errors.New("pgvector: a document of index " + s.index.Name + " has other dimensions than the index is configured with")
		}
		rows[i] = newRow(s.index, d.id, d.vector, d.facts)
	}
	if err := s.put(ctx, partition, rows); err != nil || len(rows) == caughtUp {
		return err == nil, err
	}
	return false, s.done(ctx, partition, revision)
}
