package vector

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/vector/internal/flat"
)

// Engine searches vectors in the database, from points that it keeps there
// next to the documents. The documents stay the truth: the partitions that an
// engine does not have in full are searched in memory, until the job that
// [Engine.Prepare] runs in has caught up. Package pgvector has one.
type Engine interface {
	// Name is what the manifest shows.
	Name() string
	// Dialect is the database that the engine runs on.
	Dialect() database.Dialect
	// Migrations are the tables that the engine needs, after those of vector.
	Migrations() database.Migrations
	// Check says why the engine cannot serve an index.
	Check(x Index) error
	// MaxComponent is the largest absolute value that a component may have; 0 is
	// any.
	MaxComponent(x Index) float32
	// Put adds points to a partition, or replaces them, in the transaction that
	// has moved the partition by one revision. Those of removed documents go with
	// the documents.
	Put(ctx context.Context, db *database.DB, part Part, points []Point) error
	// Search returns the ids of the points nearest to a vector, more than enough
	// of them, which the caller scores. Without a vector it says only whether the
	// partition is ready.
	Search(ctx context.Context, db *database.DB, part Part, s Search) (Nearest, error)
	// Keep returns which of the ids a condition keeps, in their order.
	Keep(ctx context.Context, db *database.DB, part Part, filter *Condition, ids []string) ([]string, error)
	// Prepare brings all partitions of an index up to date, in transactions of
	// its own. It can be killed anywhere and run again.
	Prepare(ctx context.Context, db *database.DB, x Index) error
}

// Part is a partition as an [Engine] sees it.
type Part struct {
	ID        string
	Revision  int64
	Documents int64
	Index     Index
}

// Point is a document as an [Engine] keeps it.
type Point struct {
	ID     string
	Vector []float32
	// Metadata has strings, float64 and booleans; everything else is nil.
	Metadata map[string]any
}

// Search is what an [Engine] looks for.
type Search struct {
	Vector []float32
	K      int
	Exact  bool       // compare all
	Filter *Condition // nil keeps all
}

// Nearest is what an [Engine] found.
type Nearest struct {
	IDs   []string
	Exact bool // all were compared
	// Ready is false when the engine does not have the partition in full.
	Ready bool
	// Behind asks for [Engine.Prepare].
	Behind bool
}

// Condition is a [Filter] that was checked: a group of conditions, or a test of
// one key.
type Condition struct {
	Group string // and, or, not; empty for a test
	Parts []Condition

	Key      string
	Operator string // as in a Filter
	Operands []any  // string, float64 or bool: one, or those of in and nin
}

func (p partition) forEngine(x *Index) Part {
	return Part{ID: p.id, Revision: p.revision, Documents: p.documents, Index: *x}
}

// facts are metadata as an engine keeps it.
func facts(metadata map[string]any) map[string]any {
	out := make(map[string]any, len(metadata))
	for key, value := range metadata {
		out[key] = plain(value)
	}
	return out
}

// Facts returns the metadata of a document, as JSON, as [Point] has it.
func Facts(metadata string) (map[string]any, error) {
	var values map[string]any
	if err := json.Unmarshal([]byte(metadata), &values); err != nil {
		return nil, err
	}
	return facts(values), nil
}

// checkEngine refuses an engine of another database.
func (c Config) checkEngine(dialect database.Dialect, faults *capability.Faults) {
	if c.Engine != nil && c.Engine.Dialect() != dialect {
		faults.Add("engine", c.Engine.Name(), "does not run on "+dialect.String(), "leave it out: nodes then search in memory")
	}
}

// parts are the engine's migrations.
func (c Config) parts() []database.Migrations {
	if c.Engine == nil {
		return nil
	}
	return []database.Migrations{c.Engine.Migrations()}
}

// findInDatabase is find by the engine; ready is false when it has not all of
// the partition yet.
func (v *Vector) findInDatabase(ctx context.Context, p partition, q *question) (list []found, exact, ready bool, err error) {
	part, filter := p.forEngine(q.index), q.filter.forEngine()
	exact = true
	if q.Mode != ModeText || filter != nil {
		// Without a vector to look for this only asks whether the engine is ready.
		near, err := v.cfg.Engine.Search(ctx, v.db, part, Search{q.vector, q.wanted(), q.Precision == PrecisionExact, filter})
		if err != nil {
			return nil, false, false, err
		}
		if near.Behind {
			v.prepareSoon(ctx, q.index)
		}
		if !near.Ready {
			return nil, false, false, nil
		}
		if q.Mode != ModeText {
			exact = near.Exact
			rows, err := v.store.candidates(ctx, p.id, near.IDs, q.index)
			if err != nil {
				return nil, false, false, err
			}
			set := q.index.newSet()
			set.Apply(rows, nil)
			set.Publish()
			hits, _ := set.View().Search(q.vector, q.wanted(), nil, true)
			list = q.scored(hits)
		}
	}
	list, all, err := v.withWords(ctx, p, q, list, func(ctx context.Context, ids []string) ([]string, error) {
		return v.cfg.Engine.Keep(ctx, v.db, part, filter, ids)
	})
	return list, exact && all, true, err
}

// preparation is the job that brings an engine up to date.
const (
	preparation = "VECTOR_PREPARE"
	// preparePause is how long a node waits before it asks for the job again.
	preparePause = time.Minute
)

type prepareIndex struct {
	Index string `json:"index"`
}

// prepareSoon starts the job, unless this node has done so lately. Without it
// queries are slower and right, so it fails nothing.
func (v *Vector) prepareSoon(ctx context.Context, x *Index) {
	now := v.now()
	last := v.asked[x.Name]
	was := last.Load()
	if v.db.InTransaction(ctx) || now.UnixMilli()-was < preparePause.Milliseconds() || !last.CompareAndSwap(was, now.UnixMilli()) {
		return
	}
	if _, err := v.jobs.Enqueue(ctx, preparation, prepareIndex{x.Name}, jobs.Key(x.Name)); err != nil {
		v.log.Warn("vector: an index could not be prepared", "index", x.Name, "error", err)
	}
}

func (v *Vector) runPreparation(ctx context.Context, job jobs.Job) error {
	var work prepareIndex
	if err := json.Unmarshal(job.Payload, &work); err != nil {
		return jobs.Permanent(err)
	}
	x, ok := v.indexes[work.Index]
	if !ok || v.cfg.Engine == nil {
		return jobs.Cancel(errors.New("vector: there is no such index, or no engine"))
	}
	return v.cfg.Engine.Prepare(ctx, v.db, *x)
}

// DecodeVector reads a vector as vector_document has it: float32, little-endian.
func DecodeVector(raw []byte) []float32 { return decodeVector(raw) }

// Unit returns a vector in the direction of another, of length 1.
func Unit(vector []float32) []float32 { return flat.Unit(vector) }
