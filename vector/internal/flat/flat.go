// Package flat searches one set of vectors in memory.
//
// A search estimates the score of every row from one bit per dimension, by counting bits, and
// scores the best of them exactly. The bits are the signs of the vectors after the set's mean is
// subtracted and a random rotation spreads the rest over all dimensions, so that no distribution of
// data defeats them by itself. How many rows are scored exactly, and whether the query is encoded
// at one or four bits, is determined by samples of the set's own neighbors: see [Set.Train]. All
// rows of a small set, and of one for which no estimate is faster, are scored exactly.
//
// A Set changes under a lock; a View of it never changes and is read without one.
package flat

import (
	"math"
	"sync"
	"sync/atomic"
)

// Metric determines the score. Higher is better for all three.
type Metric int

// The metrics.
const (
	Cosine    Metric = iota // the cosine of the angle
	Dot                     // the inner product
	Euclidean               // minus the distance
)

// blockRows is how many rows share an allocation; a multiple of 64.
const blockRows = 1024

// MinTrained is the number of rows from which estimates are worth their cost.
const MinTrained = 4096

// minCoded is the number of dimensions from which signs are accurate enough.
const minCoded = 64

// Row is a vector with its filterable values.
type Row struct {
	ID       string
	Revision int64
	Vector   []float32
	Values   []Value // one for each filterable key
}

// Removal reports that an ID was removed at a revision.
type Removal struct {
	ID       string
	Revision int64
}

// block is up to blockRows rows. The part that a View has does not change.
type block struct {
	ids       []string
	revisions []int64
	vectors   []float32  // of unit length under Cosine
	columns   [][]uint32 // numbers in the dictionaries
	codes     []uint64
	factors   factors
	packed    []byte // the codes of complete groups; see pack
}

// Set is a growing set of vectors. It is safe for concurrent use.
type Set struct {
	metric     Metric
	dimensions int
	keys       int
	base       *Set // the set on which With was called, else nil

	mu     sync.RWMutex
	rows   map[string]int32 // the live row of each ID
	blocks []*block
	n      int
	dead   []uint64
	shared bool // a View uses dead
	buried int
	bytes  int64
	dicts  []*dictionary // one for each key
	coder  *coder

	view atomic.Pointer[View]

	training sync.Mutex
	trained  int // rows when it was trained
	recent   recent
}

// View is an immutable snapshot of a set.
type View struct {
	set    *Set
	blocks []*block
	n      int
	live   int
	dead   []uint64
	coder  *coder
	values [][]Value // values of the dictionaries
}

// New returns an empty set of vectors of this length, with this number of filterable keys.
func New(metric Metric, dimensions, keys int) *Set {
	s := &Set{metric: metric, dimensions: dimensions, keys: keys, rows: make(map[string]int32), dicts: newDictionaries(keys)}
	s.Publish()
	return s
}

// View returns the set as last published.
func (s *Set) View() *View { return s.view.Load() }

// Apply adds rows, each of which replaces the row with the same ID and a lower revision, and
// removes the rows of removals. Readers see the changes after Publish.
func (s *Set) Apply(rows []Row, removals []Removal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, removal := range removals {
		if at, ok := s.rows[removal.ID]; ok && s.revision(at) < removal.Revision {
			s.bury(at)
			delete(s.rows, removal.ID)
		}
	}
	for i := range rows {
		row := &rows[i]
		at, ok := s.rows[row.ID]
		if ok && s.revision(at) >= row.Revision {
			continue
		}
		if ok {
			s.bury(at)
		}
		s.append(row)
	}
}

func (s *Set) revision(at int32) int64 { return s.blocks[at/blockRows].revisions[at%blockRows] }

func (s *Set) bury(at int32) {
	if s.shared {
		s.dead = append(make([]uint64, 0, len(s.dead)+16), s.dead...)
		s.shared = false
	}
	s.dead[at/64] |= 1 << (at % 64)
	s.buried++
}

func (s *Set) append(row *Row) {
	if s.n%blockRows == 0 {
		s.blocks = append(s.blocks, &block{columns: make([][]uint32, s.keys)})
	}
	if s.n%64 == 0 {
		s.dead = append(s.dead, 0) // beyond the part that a View reads
	}
	b := s.blocks[len(s.blocks)-1]
	b.ids = append(b.ids, row.ID)
	b.revisions = append(b.revisions, row.Revision)
	at := len(b.vectors)
	b.vectors = append(b.vectors, row.Vector...)
	if s.metric == Cosine {
		normalize(b.vectors[at:])
	}
	for key := range b.columns {
		known := len(s.dicts[key].values)
		b.columns[key] = append(b.columns[key], s.dicts[key].number(row.Values[key]))
		if len(s.dicts[key].values) > known {
			s.bytes += int64(120 + len(row.Values[key].Text))
		}
	}
	if s.coder != nil {
		s.coder.append(b, b.vectors[at:])
	}
	s.rows[row.ID] = int32(s.n)
	s.n++
	s.bytes += int64(4*s.dimensions + 4*s.keys + len(row.ID) + 100 + s.dimensions/4 + 16)
}

// Publish makes the changes of Apply visible to readers.
func (s *Set) Publish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publish()
}

func (s *Set) publish() {
	v := &View{set: s, n: s.n, live: s.n - s.buried, dead: s.dead, coder: s.coder, values: make([][]Value, s.keys)}
	for key, d := range s.dicts {
		v.values[key] = d.values
	}
	v.blocks = append(make([]*block, 0, len(s.blocks)), s.blocks...)
	if last := len(v.blocks) - 1; last >= 0 { // the last block continues to grow
		tail := *s.blocks[last]
		tail.columns = append([][]uint32(nil), tail.columns...)
		v.blocks[last] = &tail
	}
	s.shared = true
	s.view.Store(v)
}

// With returns a view with changes that are not applied to the set: those of a transaction that has
// not committed.
func (s *Set) With(rows []Row, removals []Removal) *View {
	s.mu.RLock()
	defer s.mu.RUnlock()
	v := s.View()
	private := &Set{metric: s.metric, dimensions: s.dimensions, keys: s.keys, base: s, rows: make(map[string]int32),
		blocks: append([]*block(nil), v.blocks...), n: v.n, dead: append([]uint64(nil), v.dead[:(v.n+63)/64]...),
		buried: v.n - v.live, coder: v.coder}
	for _, d := range s.dicts {
		private.dicts = append(private.dicts, d.clone())
	}
	if last := len(private.blocks) - 1; last >= 0 {
		private.blocks[last] = private.blocks[last].clone()
	}
	known := func(id string) {
		if at, ok := s.rows[id]; ok && int(at) < v.n {
			private.rows[id] = at
		}
	}
	for _, row := range rows {
		known(row.ID)
	}
	for _, removal := range removals {
		known(removal.ID)
	}
	private.Apply(rows, removals)
	private.Publish()
	return private.View()
}

// clone returns a block that can grow without changing the original.
func (b *block) clone() *block {
	c := &block{
		ids: b.ids[:len(b.ids):len(b.ids)], revisions: b.revisions[:len(b.revisions):len(b.revisions)],
		vectors: b.vectors[:len(b.vectors):len(b.vectors)], codes: b.codes[:len(b.codes):len(b.codes)],
		factors: b.factors.clipped(), packed: b.packed[:len(b.packed):len(b.packed)],
	}
	for _, column := range b.columns {
		c.columns = append(c.columns, column[:len(column):len(column)])
	}
	return c
}

// Bytes returns the approximate memory use of the set.
func (s *Set) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// Worn reports whether so many rows were replaced or removed that the set should be rebuilt.
func (s *Set) Worn() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.buried > 1024 && s.buried > s.n/3
}

// find returns the live rows of IDs, -1 for an ID without one. Sets only know their newest rows, so
// all rows are searched for the other IDs.
func (v *View) find(ids []string) []int32 {
	rows, others := make([]int32, len(ids)), make(map[string]int)
	for i, id := range ids {
		if rows[i] = v.known(id); rows[i] < 0 {
			others[id] = i
		}
	}
	for number, b := range v.blocks {
		if len(others) == 0 {
			break
		}
		for offset, id := range b.ids {
			if i, ok := others[id]; ok && !v.isDead(number*blockRows+offset) {
				rows[i] = int32(number*blockRows + offset)
				delete(others, id)
			}
		}
	}
	return rows
}

// known returns the live row of an ID as known to the set, or to the set on which With was called;
// -1 if that is not a row of the view.
func (v *View) known(id string) int32 {
	for set := v.set; set != nil; set = set.base {
		set.mu.RLock()
		at, ok := set.rows[id]
		set.mu.RUnlock()
		if ok && int(at) < v.n && v.blocks[at/blockRows].ids[at%blockRows] == id && !v.isDead(int(at)) {
			return at
		}
	}
	return -1
}

func (v *View) isDead(at int) bool { return v.dead[at/64]>>(at%64)&1 == 1 }

// Len returns the number of live rows.
func (v *View) Len() int { return v.live }

func (v *View) vector(at int) []float32 {
	d := v.set.dimensions
	return v.blocks[at/blockRows].vectors[at%blockRows*d:][:d:d]
}

func (v *View) id(at int32) string { return v.blocks[at/blockRows].ids[at%blockRows] }

func (v *View) revision(at int32) int64 { return v.blocks[at/blockRows].revisions[at%blockRows] }

// Unit returns the vector of length 1 with the same direction.
func Unit(vector []float32) []float32 {
	unit := append([]float32(nil), vector...)
	normalize(unit)
	return unit
}

// normalize scales a vector to length 1 and returns its former length. Squares are summed as
// float64, so that neither 1e38 nor 1e-38 is lost.
func normalize(x []float32) float64 {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	if sum == 0 {
		return 0
	}
	length := math.Sqrt(sum)
	for i, v := range x {
		x[i] = float32(float64(v) / length)
	}
	return length
}
