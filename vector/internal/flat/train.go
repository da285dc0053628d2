package flat

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
)

const (
	samples    = 48
	neighbours = 10
	// goal is the fraction of the samples' neighbors that must be found.
	goal = 0.999
	// The costs of operations, relative to one multiplication of an exact score.
	costWord    = 1.3 // for each word of a code
	costRandom  = 2.0 // for each multiplication of a row that is not the next in memory
	recentLimit = 32
)

// recent keeps recent queries, as samples.
type recent struct {
	mu      sync.Mutex
	queries [][]float32
	seen    int
}

func (r *recent) add(vector []float32) {
	if !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	r.seen++
	switch {
	case len(r.queries) < recentLimit:
		r.queries = append(r.queries, vector)
	case r.seen%64 == 0:
		r.queries[r.seen/64%recentLimit] = vector
	}
}

func (r *recent) all() [][]float32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.queries)
}

// Untrained reports whether Train would make searches faster or more accurate: there are enough
// rows, and at least half as many again as at the last training.
func (s *Set) Untrained() bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.dimensions >= minCoded && s.n >= MinTrained && s.n >= s.trained+s.trained/2
}

// Train centers the codes on the mean of the current rows and measures searches for samples: rows,
// points between rows, and recent queries. While too few of their true neighbors are found, it
// makes estimates more conservative; if these are then not faster, searches score every row.
// Concurrent searches continue with the previous state.
func (s *Set) Train() {
	s.training.Lock()
	defer s.training.Unlock()
	v := s.View()
	if v.live < MinTrained || s.dimensions < minCoded {
		return
	}
	c := newCoder(s.metric, v.mean())
	coded := &View{set: s, blocks: make([]*block, len(v.blocks)), n: v.n, live: v.live, dead: v.dead, coder: c}
	rest := make([]float32, 64*c.words)
	for i, b := range v.blocks {
		coded.blocks[i] = v.recode(c, b, rest)
	}
	c.noise = coded.noise()
	coded.measure(s.samples(coded))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range s.blocks {
		if i < len(v.blocks) && len(b.ids) == len(v.blocks[i].ids) {
			b = coded.blocks[i]
		} else {
			b = v.recode(c, b, rest)
		}
		if i == len(s.blocks)-1 {
			b = &block{ids: s.blocks[i].ids, revisions: s.blocks[i].revisions, vectors: s.blocks[i].vectors,
				columns: s.blocks[i].columns, codes: b.codes, factors: b.factors, packed: b.packed}
		}
		s.blocks[i] = b
	}
	s.coder, s.trained = c, s.n
	s.publish()
}

// recode returns a block with new codes.
func (v *View) recode(c *coder, b *block, rest []float32) *block {
	d := v.set.dimensions
	coded := &block{ids: b.ids, revisions: b.revisions, vectors: b.vectors, columns: b.columns,
		codes: make([]uint64, 0, c.words*len(b.ids)), packed: make([]byte, 0, len(b.ids)/groupRows*groupBytes(c.words))}
	for i := range b.ids {
		c.encode(coded, b.vectors[i*d:][:d], rest)
	}
	return coded
}

func (v *View) mean() []float32 {
	sums := make([]float64, v.set.dimensions)
	for at := range v.n {
		if v.isDead(at) {
			continue
		}
		for i, x := range v.vector(at) {
			sums[i] += float64(x)
		}
	}
	mean := make([]float32, len(sums))
	for i, sum := range sums {
		mean[i] = float32(sum / float64(v.live))
	}
	return mean
}

// noise returns the mean squared error of a row's signs, as a fraction of a query's squared length:
// the rotation makes it the same in every direction.
func (v *View) noise() float64 {
	var sum float64
	d := float64(64 * v.coder.words)
	rows := 0
	for number, b := range v.blocks {
		for i := range b.ids {
			scale := float64(b.factors.scale[i])
			if v.isDead(number*blockRows+i) || scale == 0 {
				continue
			}
			var square float64
			for j, x := range b.vectors[i*v.set.dimensions:][:v.set.dimensions] {
				r := float64(x - v.coder.mean[j])
				square += r * r
			}
			if v.set.metric == Euclidean {
				scale /= 2
			}
			sum += 1 - square/(scale*scale*d)
			rows++
		}
	}
	return max(sum/float64(max(rows, 1)), 0)
}

// samples returns rows, points between two rows, random points, and recent queries.
func (s *Set) samples(v *View) [][]float32 {
	dice := rand.New(rand.NewPCG(uint64(v.n), 11))
	row := func() []float32 {
		for {
			if at := dice.IntN(v.n); !v.isDead(at) {
				return v.vector(at)
			}
		}
	}
	asked := s.recent.all()
	list := asked[:min(len(asked), samples/2)]
	for len(list) < samples {
		sample := slices.Clone(row())
		other, share := row(), float32(len(list)%4)*0.25
		if len(list)%4 == 3 { // a direction unrelated to the rows
			other, share = v.stranger(dice, sample), 1
		}
		for i := range sample {
			sample[i] += share * (other[i] - sample[i])
		}
		if s.metric != Euclidean {
			normalize(sample)
		}
		list = append(list, sample)
	}
	return list
}

// stranger returns a random point as far from the mean as a row.
func (v *View) stranger(dice *rand.Rand, row []float32) []float32 {
	away := math.Sqrt(squared(row, v.coder.mean) / float64(len(row)))
	point := slices.Clone(v.coder.mean)
	for i := range point {
		point[i] += float32(away * dice.NormFloat64())
	}
	return point
}

// measure determines how conservative estimates must be to find the samples' neighbors, and whether
// they are then faster.
func (v *View) measure(samples [][]float32) {
	c := v.coder
	truth := make([]float64, len(samples))
	for i, sample := range samples {
		truth[i] = lowest(v.scan(neighbours, v.exact(sample, nil)))
	}
	for _, c.sure = range []float64{sureness, 1.3 * sureness, 1.8 * sureness} {
		found, scored := 0, 0
		for i, sample := range samples {
			candidates, rows := v.estimated(sample, neighbours, nil)
			scored += rows
			for _, hit := range v.refine(sample, candidates, neighbours) {
				if hit.Score >= truth[i]-1e-6*math.Abs(truth[i]) {
					found++
				}
			}
		}
		if float64(found) < goal*float64(neighbours*len(samples)) {
			continue
		}
		rows, words, width := float64(v.live), float64(c.words), float64(v.set.dimensions)
		cost := rows*words*costWord + float64(scored)/float64(len(samples))*width*costRandom
		c.coded = cost < rows*width
		return
	}
}
