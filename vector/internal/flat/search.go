package flat

import (
	"cmp"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Hit is a row of a result. Under Euclidean the score is minus the distance.
type Hit struct {
	ID       string
	Revision int64
	Score    float64
}

const (
	// exactBelow is the number of rows below which exact scores are faster than estimates.
	exactBelow = 2000
	// depth is the minimum number of rows that are scored first.
	depth = 50
	// together is the number of rows for which another goroutine is worth its cost.
	together = 32 * blockRows
)

// helpers bounds the goroutines of all searches in addition to the callers' own.
var helpers = make(chan struct{}, max(runtime.GOMAXPROCS(0)-1, 1))

// Search returns the k best rows of the bitmap, ties by ID; nil means all rows. whole makes it
// score every row; exact reports whether every row was scored.
func (v *View) Search(vector []float32, k int, among Bitmap, whole bool) (hits []Hit, exact bool) {
	direction, length := slices.Clone(vector), 1.0
	if v.set.metric != Euclidean {
		length = normalize(direction) // keeps products in range
	}
	if v.set.metric == Cosine {
		vector, length = direction, 1
	}
	rows := v.live
	if among != nil {
		rows = among.Count()
	}
	var found []candidate
	switch c := v.coder; {
	case whole:
		found = v.scan(k, v.whole(vector, direction, length, among))
	case c != nil && c.coded && rows > exactBelow:
		found, _ = v.estimated(direction, k, among)
		v.set.recent.add(direction)
		return v.refine(vector, found, k), false
	default:
		found = v.scan(k+k/8+8, v.exact(direction, among))
	}
	return v.refine(vector, found, k), true
}

// estimated estimates all rows, scores the best of them, and then all others that may be as good as
// the best found. It also returns how many rows it has scored.
func (v *View) estimated(vector []float32, k int, among Bitmap) ([]candidate, int) {
	q := v.coder.prepare(vector)
	buffer := buffers.Get().(*[]float32)
	defer buffers.Put(buffer)
	if len(*buffer) < len(v.blocks)*blockRows {
		*buffer = make([]float32, len(v.blocks)*blockRows*5/4)
	}
	first := v.scan(max(depth, 2*k), func(b *best, number int) {
		out := (*[blockRows]float32)((*buffer)[number*blockRows:])
		mask := v.mask(number, among)
		v.estimate(q, number, &mask, out)
		b.offer(out, &mask, int32(number*blockRows))
	})
	for i, c := range first {
		first[i].score = v.score(vector, int(c.row))
	}
	scored := atomic.Int64{}
	scored.Add(int64(len(first)))
	sure := (&best{view: v, keep: k, found: first}).take()
	if len(sure) < k {
		return sure, len(first)
	}
	bound := lowest(sure)
	found := v.scan(k+k/8+8, func(b *best, number int) {
		out := (*[blockRows]float32)((*buffer)[number*blockRows:])
		mask := v.mask(number, among)
		b.least = max(b.least, bound)
		scored.Add(v.hopeful(q, vector, number, &mask, out, b))
	})
	found = append(found, sure...)
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.row, b.row) })
	return slices.Compact(found), int(scored.Load())
}

// buffers holds the estimates of searches.
var buffers = sync.Pool{New: func() any { return new([]float32) }}

func lowest(list []candidate) float64 {
	least := math.Inf(1)
	for _, c := range list {
		least = min(least, c.score)
	}
	return least
}

// estimate writes the estimates of the rows of a block that are in the mask.
func (v *View) estimate(q *query, number int, mask *blockMask, out *[blockRows]float32) {
	blk := v.blocks[number]
	rows := min(blockRows, v.n-number*blockRows)
	switch many := mask.Count() >= rows/8; {
	case many && q.table == nil:
		q.estimate(out[:rows], blk.codes, blk.factors.along, blk.factors.scale)
	case many:
		for at := q.estimateTable(out[:rows], blk.packed, &blk.factors); at < rows; at++ {
			out[at] = q.whole(blk.codes[at*q.words:][:q.words], &blk.factors, at)
		}
	case q.table == nil:
		for at := range mask.All() {
			q.estimate(out[at:at+1], blk.codes[at*q.words:], blk.factors.along[at:], blk.factors.scale[at:])
		}
	default:
		for at := range mask.All() {
			out[at] = q.whole(blk.codes[at*q.words:][:q.words], &blk.factors, at)
		}
	}
}

// hopeful scores the rows of a block that may reach the current least score, and returns how many.
func (v *View) hopeful(q *query, vector []float32, number int, mask *blockMask, estimates *[blockRows]float32, b *best) (scored int64) {
	blk := v.blocks[number]
	reach := q.reach(v.set.metric, float32(b.least))
	hot := atLeast(estimates, reach)
	hot.and(mask)
	for at := range hot.All() {
		estimate := estimates[at]
		if estimate < reach {
			continue
		}
		if q.table != nil && !q.mayTable(estimate, reach, &blk.factors, at) ||
			q.table == nil && !q.may(estimate, reach, blk.codes[at*q.words:][:q.words], &blk.factors, at) {
			continue
		}
		scored++
		row := number*blockRows + at
		if score := v.score(vector, row); score >= b.least {
			b.push(candidate{score, int32(row)})
			reach = q.reach(v.set.metric, float32(b.least))
		}
	}
	return scored
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

// whole scores the rows of a block as float64, except those whose float32 score is too low even
// with the largest rounding error. The vector is length times the direction.
func (v *View) whole(vector, direction []float32, length float64, among Bitmap) func(*best, int) {
	loss := float64(len(vector)+8) * 0x1p-23
	return func(b *best, number int) {
		mask := v.mask(number, among)
		for at := range mask.All() {
			row := number*blockRows + at
			most := v.score(direction, row)
			switch x := v.vector(row); v.set.metric {
			case Euclidean:
				most -= most * 0x1p-22
			case Cosine:
				most += loss
			case Dot:
				most = length * (most + loss*math.Sqrt(float64(dot(x, x))+loss*0x1p-120))
			}
			if most < b.least {
				continue
			}
			if score := v.score64(vector, row); score >= b.least {
				b.push(candidate{score, int32(row)})
			}
		}
	}
}

// score is score64 in the precision of float32.
func (v *View) score(vector []float32, row int) float64 {
	if v.set.metric == Euclidean {
		return -math.Sqrt(squared(vector, v.vector(row)))
	}
	return float64(dot(vector, v.vector(row)))
}

func (v *View) score64(vector []float32, row int) float64 {
	if v.set.metric == Euclidean {
		return -math.Sqrt(squared64(vector, v.vector(row)))
	}
	return dot64(vector, v.vector(row))
}

// scan calls a function that offers the rows of every block, and returns the best ones, in no
// particular order. Free processors share the blocks of a large set.
func (v *View) scan(keep int, offer func(b *best, block int)) []candidate {
	newBest := func() *best { return &best{view: v, keep: keep, least: math.Inf(-1)} }
	var next atomic.Int64
	walk := func(b *best) {
		for number := next.Add(1) - 1; number < int64(len(v.blocks)); number = next.Add(1) - 1 {
			offer(b, int(number))
		}
	}
	mine := newBest()
	var wg sync.WaitGroup
	var others []*best
	for range min(v.n/together, runtime.GOMAXPROCS(0)-1) {
		select {
		case helpers <- struct{}{}:
		default:
			continue
		}
		theirs := newBest()
		others = append(others, theirs)
		wg.Go(func() {
			defer func() { <-helpers }()
			walk(theirs)
		})
	}
	walk(mine)
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
		hits = append(hits, Hit{v.id(c.row), v.revision(c.row), v.score64(vector, int(c.row))})
	}
	slices.SortFunc(hits, func(a, b Hit) int { return cmp.Or(cmp.Compare(b.Score, a.Score), cmp.Compare(a.ID, b.ID)) })
	return hits[:min(k, len(hits))]
}

// candidate is a row with its score or estimate.
type candidate struct {
	score float64
	row   int32
}

// best keeps the best candidates of a scan: up to twice as many as requested, after which the worse
// half is dropped.
type best struct {
	view  *View
	keep  int
	least float64 // minimum score of a candidate
	found []candidate
}

// offer pushes the rows of a block that are in the mask.
func (b *best) offer(scores *[blockRows]float32, mask *blockMask, first int32) {
	hot := atLeast(scores, float32(b.least))
	hot.and(mask)
	for at := range hot.All() {
		if score := float64(scores[at]); score >= b.least {
			b.push(candidate{score, first + int32(at)})
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

// cut moves the best candidates to the front and drops the others.
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

// mask returns the live rows of a block that are in the bitmap.
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

func (m *blockMask) and(other *blockMask) {
	for w := range m {
		m[w] &= other[w]
	}
}

// Count returns the number of rows in the mask.
func (m *blockMask) Count() (n int) {
	for _, word := range m {
		n += bits.OnesCount64(word)
	}
	return n
}

// All iterates over the rows in the mask.
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
