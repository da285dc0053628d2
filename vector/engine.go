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

// Engine searches vectors in the database, from points that it stores in addition to the documents.
// The documents are authoritative: partitions of which the engine does not have all points are
// searched in memory, until the job that runs [Engine.Prepare] has caught up. Package pgvector has
// an engine.
type Engine interface {
	// Name returns the name in the manifest.
	Name() string
	// Dialect returns the database that the engine runs on.
	Dialect() database.Dialect
	// Migrations returns the tables that the engine needs, applied after those of vector.
	Migrations() database.Migrations
	// Check returns an error if the engine cannot serve an index.
	Check(x Index) error
	// MaxComponent returns the largest absolute value of a component; 0 means no bound.
	MaxComponent(x Index) float32
	// Put adds points to a partition, or replaces them, in the transaction that has increased the
	// partition's revision by one. The points of removed documents are deleted with the documents.
	Put(ctx context.Context, db *database.DB, part Part, points []Point) error
	// Search returns the IDs of the points nearest to a vector, more than requested, which the
	// caller scores. Without a vector it only reports whether the partition is ready.
	Search(ctx context.Context, db *database.DB, part Part, s Search) (Nearest, error)
	// Keep returns the IDs that match a condition, in their order.
	Keep(ctx context.Context, db *database.DB, part Part, filter *Condition, ids []string) ([]string, error)
	// Prepare updates all partitions of an index, in transactions of its own. It can be killed at
	// any point and run again.
	Prepare(ctx context.Context, db *database.DB, x Index) error
}

// Part is a partition in the form for an [Engine].
type Part struct {
	ID        string
	Revision  int64
	Documents int64
	Index     Index
}

// Point is a document in the form for an [Engine].
type Point struct {
	ID     string
	Vector []float32
	// Metadata has strings, float64 and booleans; all other values are nil.
	Metadata map[string]any
}

// Search is a search of an [Engine].
type Search struct {
	Vector []float32
	K      int
	Exact  bool       // compare all
	Filter *Condition // nil matches all
}

// Nearest is the result of a search of an [Engine].
type Nearest struct {
	IDs   []string
	Exact bool // all were compared
	// Ready reports whether the engine has all points of the partition.
	Ready bool
	// Behind reports that [Engine.Prepare] must run.
	Behind bool
}

// Condition is a checked [Filter]: a group of conditions, or a test of one key.
type Condition struct {
	Group string // and, or, not; empty for a test
	Parts []Condition

	Key      string
	Operator string // as in a Filter
	Operands []any  // string, float64 or bool: one, or the list of in and nin
}

func (p partition) forEngine(x *Index) Part {
	return Part{ID: p.id, Revision: p.revision, Documents: p.documents, Index: *x}
}

// facts returns metadata in the form for an engine.
func facts(metadata map[string]any) map[string]any {
	out := make(map[string]any, len(metadata))
	for key, value := range metadata {
		out[key] = plain(value)
	}
	return out
}

// Facts returns the metadata of a document, given as JSON, in the form of [Point].
func Facts(metadata string) (map[string]any, error) {
	var values map[string]any
	if err := json.Unmarshal([]byte(metadata), &values); err != nil {
		return nil, err
	}
	return facts(values), nil
}

// checkEngine refuses an engine for another database.
func (c Config) checkEngine(dialect database.Dialect, faults *capability.Faults) {
	if c.Engine != nil && c.Engine.Dialect() != dialect {
		faults.Add("engine", c.Engine.Name(), "does not run on "+dialect.String(), "leave it out: nodes then search in memory")
	}
}

// parts returns the engine's migrations.
func (c Config) parts() []database.Migrations {
	if c.Engine == nil {
		return nil
	}
	return []database.Migrations{c.Engine.Migrations()}
}

// findInDatabase is find by the engine; ready is false if the engine does not have all points of
// the partition yet.
func (v *Vector) findInDatabase(ctx context.Context, p partition, q *question) (list []found, exact, ready bool, err error) {
	part, filter := p.forEngine(q.index), q.filter.forEngine()
	exact = true
	if q.Mode != ModeText || filter != nil {
		// Without a vector this only checks whether the engine is ready.
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

// preparation is the job that updates an engine.
const (
	preparation = "VECTOR_PREPARE"
	// preparePause is how long a node waits before it enqueues the job again.
	preparePause = time.Minute
)

type prepareIndex struct {
	Index string `json:"index"`
}

// prepareSoon enqueues the job, unless this node has done so recently. Without the job queries are
// slower but correct, so an error is only logged.
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

// DecodeVector decodes a vector of vector_document: float32, little-endian.
func DecodeVector(raw []byte) []float32 { return decodeVector(raw) }

// Unit returns the vector of length 1 with the same direction.
func Unit(vector []float32) []float32 { return flat.Unit(vector) }
