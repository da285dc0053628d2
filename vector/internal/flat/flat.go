// Package flat searches one set of vectors in memory.
//
// A search estimates the score of every row from one bit a dimension, by
// counting bits, and scores the best of them exactly. The bits are the signs of
// the vectors after the set's mean is taken off and a random rotation spreads
// what is left over all dimensions, so that no form of data defeats them by
// itself. How many rows are scored exactly, and whether the query is taken at
// one or four bits, follows from what the set's own neighbours needed: see
// [Set.Train]. A small set, and one for which no estimate pays, is scored whole.
//
// A Set changes under a lock; a View of it never changes and is read without one.
package flat

import (
	"math"
	"sync"
	"sync/atomic"
)

// Metric says what a score is. Higher is better for all three.
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

// minCoded is the number of dimensions from which signs say enough.
const minCoded = 64

// Row is one vector with what it can be filtered by.
type Row struct {
	ID       string
	Revision int64
	Vector   []float32
	Values   []Value // one for each filterable key
}

// Removal says that an id was removed at a revision.
type Removal struct {
	ID       string
	Revision int64
}

// block is up to blockRows rows. The part that a View holds does not change.
type block struct {
	ids       []string
	revisions []int64
	vectors   []float32  // of unit length under Cosine
	columns   [][]uint32 // numbers of the dictionaries
	codes     []uint64
	factors   factors
	packed    []byte // the codes in whole groups; see pack
}

// Set is a growing set of vectors. It is safe for concurrent use.
type Set struct {
	metric     Metric
	dimensions int
	keys       int
	base       *Set // of which With made it, else nil

	mu     sync.RWMutex
	rows   map[string]int32 // the living row of an id
	blocks []*block
	n      int
	dead   []uint64
	shared bool // a View has dead
	buried int
	bytes  int64
	dicts  []*dictionary // one for each key
	coder  *coder

	view atomic.Pointer[View]

	training sync.Mutex
	trained  int // rows when it was trained
	recent   recent
}

// View is a set at an instant.
type View struct {
	set    *Set
	blocks []*block
	n      int
	live   int
	dead   []uint64
	coder  *coder
	values [][]Value // of the dictionaries
}

// New returns an empty set of vectors of a length, with a number of filterable keys.
func New(metric Metric, dimensions, keys int) *Set {
	s := &Set{metric: metric, dimensions: dimensions, keys: keys, rows: make(map[string]int32), dicts: newDictionaries(keys)}
	s.Publish()
	return s
}

// View returns the set as it was published last.
func (s *Set) View() *View { return s.view.Load() }

// Apply puts rows, each in place of one of the same id and a lower revision,
// and takes removed ones out. Readers see it after Publish.
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
		s.dead = append(s.dead, 0) // beyond what a View reads
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

// Publish shows to readers what Apply has done.
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
	if last := len(v.blocks) - 1; last >= 0 { // which goes on growing
		tail := *s.blocks[last]
		tail.columns = append([][]uint32(nil), tail.columns...)
		v.blocks[last] = &tail
	}
	s.shared = true
	s.view.Store(v)
}

// With returns a view with changes that the set does not get: those of a
// transaction that has not committed.
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

// clone returns a block whose growth does not reach the original.
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

// Bytes returns about how much memory the set takes.
func (s *Set) Bytes() int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.bytes
}

// Worn reports whether so many rows were replaced or removed that the set is
// better built anew.
func (s *Set) Worn() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.buried > 1024 && s.buried > s.n/3
}

// find returns the living rows of ids, -1 where there is none. Sets know only their
// newest rows, so what they do not know is looked for in all rows.
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

// known returns the living row of an id by what the set knows, or else the one that
// the set of a transaction was made of; -1 where that is no row of the view.
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

// Len returns the number of living rows.
func (v *View) Len() int { return v.live }

func (v *View) vector(at int) []float32 {
	d := v.set.dimensions
	return v.blocks[at/blockRows].vectors[at%blockRows*d:][:d:d]
}

func (v *View) id(at int32) string { return v.blocks[at/blockRows].ids[at%blockRows] }

func (v *View) revision(at int32) int64 { return v.blocks[at/blockRows].revisions[at%blockRows] }

// Unit returns a vector in the direction of another, of length 1.
func Unit(vector []float32) []float32 {
	unit := append([]float32(nil), vector...)
	normalize(unit)
	return unit
}

// normalize makes the length of a vector 1 and returns what it was. Squares are added up as float64,
// so neither 1e38 nor 1e-38 is lost.
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
