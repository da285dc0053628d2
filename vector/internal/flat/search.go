package flat

import (
	"cmp"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
)

// Hit is a row that was found. Under Euclidean the score is minus the distance.
type Hit struct {
	ID       string
	Revision int64
	Score    float64
}

// plan says how a set is searched: at how many bits of the query, and how many
// rows are scored exactly for ten neighbours. No bits: all rows are.
type plan struct{ bits, depth int }

const (
	// exactBelow is the number of rows that are scored faster than estimated.
	exactBelow = 2000
	minDepth   = 200
	// together is the number of rows that is worth a goroutine more.
	together = 32 * blockRows
)

// helpers bounds the goroutines of all searches beside their callers'.
var helpers = make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))

// Search returns the k best rows, ties by id, of those in the bitmap; nil is
// all. whole asks to score every row; exact reports whether that was done.
func (v *View) Search(vector []float32, k int, among Bitmap, whole bool) (hits []Hit, exact bool) {
	vector = slices.Clone(vector)
	length := 1.0
	if v.set.metric != Euclidean {
		length = normalize(vector) // which changes no order, and keeps products in range
	}
	rows := v.live
	if among != nil {
		rows = among.Count()
	}
	exact = true
	if c := v.coder; c != nil && c.plan.bits > 0 && !whole {
		depth := max(c.plan.depth, c.plan.depth*k/10, minDepth)
		exact = rows <= max(exactBelow, 2*depth)
		if !exact {
			hits = v.coded(vector, k, among, c.plan.bits, depth)
			v.set.recent.add(vector)
		}
	}
	if exact {
		hits = v.refine(vector, v.scan(k+k/8+8, v.exact(vector, among)), k)
	}
	if v.set.metric == Dot {
		for i := range hits {
			hits[i].Score *= length
		}
	}
	return hits, exact
}

// coded estimates all rows and scores the best. When one that was left out may
// be better than what was found, all that may be are scored.
func (v *View) coded(vector []float32, k int, among Bitmap, atBits, depth int) []Hit {
	q := v.coder.prepare(vector, atBits)
	found := v.scan(depth, v.estimates(q, among))
	least := lowest(found)
	for i, c := range found {
		found[i].score = v.score(vector, int(c.row))
	}
	keep := k + k/8 + 8
	b := best{view: v, keep: keep, least: float32(math.Inf(-1)), found: found}
	found = b.take()
	reached := found
	if len(found) > k {
		top := best{view: v, keep: k, found: slices.Clone(found)}
		reached = top.take()
	}
	if bound := lowest(reached); least >= q.reach(v.set.metric, bound) {
		found = v.scan(keep, v.hopeful(q, vector, among, bound))
	}
	return v.refine(vector, found, k)
}

func lowest(list []candidate) float32 {
	least := float32(math.Inf(1))
	for _, c := range list {
		least = min(least, c.score)
	}
	return least
}

// estimates offers the rows of a block with their estimates.
func (v *View) estimates(q *query, among Bitmap) func(*best, int) {
	return func(b *best, number int) {
		var out [blockRows]float32
		mask := v.mask(number, among)
		rows := v.estimate(q, number, &mask, &out)
		b.offer(out[:rows], mask[:], int32(number*blockRows))
	}
}

// estimate writes the estimates of the rows of a block that are in the mask.
func (v *View) estimate(q *query, number int, mask *blockMask, out *[blockRows]float32) (rows int) {
	blk := v.blocks[number]
	rows = min(blockRows, v.n-number*blockRows)
	if mask.Count() >= rows/8 {
		q.estimate(out[:rows], blk.codes, blk.factors)
		return rows
	}
	for at := range mask.All() {
		q.estimate(out[at:at+1], blk.codes[at*q.words:], blk.factors[3*at:])
	}
	return rows
}

// hopeful scores the rows of a block whose estimate is up to the least score
// that is looked for.
func (v *View) hopeful(q *query, vector []float32, among Bitmap, least float32) func(*best, int) {
	return func(b *best, number int) {
		var out [blockRows]float32
		mask := v.mask(number, among)
		v.estimate(q, number, &mask, &out)
		reach := q.reach(v.set.metric, max(b.least, least))
		for at := range mask.All() {
			if out[at] < reach {
				continue
			}
			row := number*blockRows + at
			if score := v.score(vector, row); score >= b.least {
				b.push(candidate{score, int32(row)})
			}
		}
	}
}

// exact scores the rows of a block.
func (v *View) exact(vector []float32, among Bitmap) func(*best, int) {
	return func(b *best, number int) {
		mask := v.mask(number, among)
		for at := range mask.All() {
			row := number*blockRows + at
			if score := v.score(vector, row); score >= b.least {
				b.push(candidate{score, int32(row)})
			}
		}
	}
}

func (v *View) score(vector []float32, row int) float32 {
	if v.set.metric == Euclidean {
		return float32(-math.Sqrt(squared(vector, v.vector(row))))
	}
	return dot(vector, v.vector(row))
}

// scan lets a function offer the rows of every block and returns the best
// ones, in no order. Large sets are split between processors that are free.
func (v *View) scan(keep int, offer func(b *best, block int)) []candidate {
	newBest := func() *best { return &best{view: v, keep: keep, least: float32(math.Inf(-1))} }
	mine := newBest()
	parts := min(v.n/together+1, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	var others []*best
	from := 0
	for parts > 1 {
		select {
		case helpers <- struct{}{}:
		default:
			parts = 1
			continue
		}
		to := from + (len(v.blocks)-from)/parts
		theirs, first := newBest(), from
		others = append(others, theirs)
		wg.Go(func() {
			defer func() { <-helpers }()
			for number := first; number < to; number++ {
				offer(theirs, number)
			}
		})
		from = to
		parts--
	}
	for number := from; number < len(v.blocks); number++ {
		offer(mine, number)
	}
	wg.Wait()
	for _, theirs := range others {
		for _, c := range theirs.found {
			mine.push(c)
		}
	}
	return mine.take()
}

// refine scores candidates as float64 and returns the k best, in order.
func (v *View) refine(vector []float32, found []candidate, k int) []Hit {
	hits := make([]Hit, 0, len(found))
	for _, c := range found {
		hit := Hit{ID: v.id(c.row), Revision: v.revision(c.row)}
		if v.set.metric == Euclidean {
			hit.Score = -math.Sqrt(squared(vector, v.vector(int(c.row))))
		} else {
			hit.Score = dot64(vector, v.vector(int(c.row)))
		}
		hits = append(hits, hit)
	}
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
	return hits[:min(k, len(hits))]
}

// candidate is a row with its score or estimate.
type candidate struct {
	score float32
	row   int32
}

// best keeps the best candidates of a walk: up to twice as many as are wanted,
// then the worse half goes.
type best struct {
	view  *View
	keep  int
	least float32 // what a candidate must reach
	found []candidate
}

// offer pushes the rows of a block that are in the mask.
func (b *best) offer(scores []float32, mask []uint64, first int32) {
	for w := 0; w*64 < len(scores); w++ {
		word := mask[w]
		if word == 0 {
			continue
		}
		for i, score := range scores[w*64 : min(w*64+64, len(scores))] {
			if score >= b.least && word>>i&1 == 1 {
				b.push(candidate{score, first + int32(w*64+i)})
			}
		}
	}
}

func (b *best) push(c candidate) {
	b.found = append(b.found, c)
	if len(b.found) >= 2*b.keep {
		b.cut()
	}
}

func (b *best) take() []candidate {
	if len(b.found) > b.keep {
		b.cut()
	}
	return b.found
}

func (b *best) before(x, y candidate) bool {
	if x.score != y.score {
		return x.score > y.score
	}
	return b.view.id(x.row) < b.view.id(y.row)
}

// cut moves the best to the front and drops the others.
func (b *best) cut() {
	list, low, high := b.found, 0, len(b.found)-1
	for low < high {
		pivot := list[low+(high-low)/2]
		i, j := low, high
		for i <= j {
			for b.before(list[i], pivot) {
				i++
			}
			for b.before(pivot, list[j]) {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i++
				j--
			}
		}
		switch {
		case b.keep-1 <= j:
			high = j
		case b.keep-1 >= i:
			low = i
		default:
			low = high
		}
	}
	b.found = list[:b.keep]
	b.least = list[0].score
	for _, c := range b.found {
		b.least = min(b.least, c.score)
	}
}

// mask returns the rows of a block that live and are in the bitmap.
func (v *View) mask(number int, among Bitmap) blockMask {
	var m blockMask
	first := number * blockRows / 64
	rows := min(blockRows, v.n-number*blockRows)
	for w := 0; w*64 < rows; w++ {
		word := ^v.dead[first+w]
		if among != nil {
			word &= among[first+w]
		}
		if left := rows - w*64; left < 64 {
			word &= 1<<left - 1
		}
		m[w] = word
	}
	return m
}

type blockMask [blockRows / 64]uint64

// Count returns the number of rows in the mask.
func (m *blockMask) Count() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}

// All walks the rows in the mask.
func (m *blockMask) All() func(func(int) bool) {
	return func(yield func(int) bool) {
		for w, word := range m {
			for ; word != 0; word &= word - 1 {
				if !yield(w*64 + bits.TrailingZeros64(word)) {
					return
				}
			}
		}
	}
}
