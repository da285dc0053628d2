package flat

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// rounds is how often a vector is rotated: enough to spread one dimension over all others.
const rounds = 3

// coder encodes vectors as signs.
type coder struct {
	metric Metric
	words  int // of 64 bits
	mean   []float32
	length float64           // squared length of the mean
	noise  float64           // squared error of the rows' signs, as a fraction of the query's length
	flips  [rounds][]float32 // 1 or -1 in each dimension
	coded  bool              // estimates are faster than exact scores
	sure   float64           // see sureness
}

// newCoder returns a coder for vectors around a mean.
func newCoder(metric Metric, mean []float32) *coder {
	c := &coder{metric: metric, words: (len(mean) + 127) / 128 * 2, mean: mean, length: dot64(mean, mean)}
	dice := rand.New(rand.NewPCG(7, 384)) // the same on every node and after a restart
	for r := range c.flips {
		c.flips[r] = make([]float32, 64*c.words)
		for i := range c.flips[r] {
			c.flips[r][i] = float32(1 - 2*dice.IntN(2))
		}
	}
	return c
}

// turn rotates a vector of 64*words dimensions: signs are flipped, and a Hadamard transform mixes
// the first dimensions, then the last ones, each time the largest power of two of them.
func (c *coder) turn(x []float32) {
	p := 1 << (bits.Len(uint(len(x))) - 1)
	for r := range c.flips {
		for i, flip := range c.flips[r] {
			x[i] *= flip
		}
		hadamard(x[:p])
		if p < len(x) {
			hadamard(x[len(x)-p:])
		}
	}
}

func hadamard(x []float32) {
	for h := 1; h < len(x); h *= 2 {
		for i := 0; i < len(x); i += 2 * h {
			a, b := x[i:i+h], x[i+h:i+2*h]
			for j, v := range a {
				a[j], b[j] = v+b[j], v-b[j]
			}
		}
	}
	scale := float32(1 / math.Sqrt(float64(len(x))))
	for i := range x {
		x[i] *= scale
	}
}

// factors are the inputs of a score in addition to the signs: the score is about shift*along +
// scale*(the signs times the query).
type factors struct {
	along, scale, set []float32 // set is the number of bits that are set
	distance          []float32 // from the mean
}

func (f *factors) append(along, scale, set, distance float64) {
	f.along = append(f.along, float32(along))
	f.scale = append(f.scale, float32(scale))
	f.set = append(f.set, float32(set))
	f.distance = append(f.distance, float32(distance))
}

// clipped returns factors that can grow without changing the original.
func (f factors) clipped() factors {
	n := len(f.along)
	return factors{f.along[:n:n], f.scale[:n:n], f.set[:n:n], f.distance[:n:n]}
}

// append adds the code of a vector to a block, and its factors.
func (c *coder) append(b *block, vector []float32) {
	rest := make([]float32, 64*c.words)
	c.encode(b, vector, rest)
}

func (c *coder) encode(b *block, vector, rest []float32) {
	clear(rest)
	var square, along float64
	for i, v := range vector {
		r := v - c.mean[i]
		rest[i] = r
		square += float64(r) * float64(r)
		along += float64(r) * float64(c.mean[i])
	}
	c.turn(rest)
	var sum float64
	set := 0
	for w := range c.words {
		var word uint64
		for i, v := range rest[64*w : 64*w+64] {
			if v > 0 {
				word |= 1 << i
			}
			sum += math.Abs(float64(v))
		}
		set += bits.OnesCount64(word)
		b.codes = append(b.codes, word)
	}
	scale := 0.0
	if sum > 0 {
		scale = square / sum
	}
	if c.metric == Euclidean {
		along, scale = -square, 2*scale
	}
	b.factors.append(along, scale, float64(set), math.Sqrt(square))
	if rows := len(b.factors.along); useTables && rows%groupRows == 0 {
		b.packed = pack(b.packed, b.codes[(rows-groupRows)*c.words:], c.words)
	}
}

// sureness is the minimum number of standard deviations that an estimate may be below the score it
// estimates; see [Set.Train].
const sureness = 4.2

// query is a query in the form for estimates.
type query struct {
	words  int
	offset float64 // between estimates and scores
	times  float64 // factor of the inner product in an estimate
	length float64 // of the query, without the mean
	noise  float64 // squared error of the rows' signs, as a fraction of the squared length
	sure   float64

	// At one bit. Estimates are raised, so that rows further from the mean, whose estimates are
	// less accurate, are not missed.
	signs             []uint64
	shift, base, step float32
	scale, raised     float64

	// At four bits.
	planes            [][4]uint64
	sum4, step4, low4 float64
	loss4             float64 // squared; includes the error of the table

	// At the precision of the table.
	table []byte
}

// reach returns the estimate that corresponds to a score.
func (q *query) reach(metric Metric, score float32) float32 {
	s := float64(score)
	if metric == Euclidean {
		return float32(q.offset - s*s)
	}
	return float32(s - q.offset)
}

// prepare encodes a query at one and at four bits.
func (c *coder) prepare(vector []float32) *query {
	q := &query{words: c.words, noise: c.noise, sure: c.sure}
	shift := 1.0
	if c.metric != Euclidean {
		shift = 0
		if c.length > 0 {
			shift = dot64(vector, c.mean) / c.length
		}
	}
	q.shift = float32(shift)
	rest := make([]float32, 64*c.words)
	var square float64
	for i, v := range vector {
		rest[i] = float32(float64(v) - shift*float64(c.mean[i]))
		square += float64(rest[i]) * float64(rest[i])
	}
	q.offset, q.times = square, 2
	if c.metric != Euclidean {
		q.offset, q.times = dot64(vector, c.mean), 1
	}
	q.length = math.Sqrt(square)
	c.turn(rest)
	q.takePlanes(rest)
	if useTables {
		q.takeTable(rest, square)
	} else {
		q.takeSigns(rest, square)
	}
	return q
}

func (q *query) takeSigns(rest []float32, square float64) {
	var sum float64
	q.signs = make([]uint64, q.words)
	for i, v := range rest {
		if v > 0 {
			q.signs[i/64] |= 1 << (i % 64)
		}
		sum += math.Abs(float64(v))
	}
	if sum == 0 {
		return
	}
	q.scale = square / sum
	loss := max(q.scale*q.scale*float64(len(rest))-square, 0)
	q.raised = q.sure * math.Sqrt(q.noise*square+loss)
	q.base, q.step = float32(q.scale*float64(len(rest))+q.raised), float32(2*q.scale)
}

func (q *query) takePlanes(rest []float32) {
	low, high := rest[0], rest[0]
	for _, v := range rest {
		low, high = min(low, v), max(high, v)
		q.sum4 -= float64(v)
	}
	q.planes = make([][4]uint64, q.words)
	step := (high - low) / 15
	q.step4, q.low4 = 2*float64(step), 2*float64(low)
	q.loss4 = float64(step) * float64(step) / 12 * float64(len(rest))
	if step == 0 {
		return
	}
	for i, v := range rest {
		level := uint64((v-low)/step + 0.5)
		for bit := range 4 {
			q.planes[i/64][bit] |= (level >> bit & 1) << (i % 64)
		}
	}
}

// may reports whether a row with an estimate may have at least the score that corresponds to reach.
// The nearer a row is to the query, the more accurate are its signs: the angle at which it would
// just reach the score determines how many may differ.
func (q *query) may(estimate, reach float32, code []uint64, f *factors, at int) bool {
	along, scale, distance := float64(q.shift*f.along[at]), float64(f.scale[at]), float64(f.distance[at])
	target := float64(reach) - along
	if target <= 0 || scale == 0 || distance == 0 || q.scale == 0 {
		return true
	}
	width := float64(64 * q.words)
	cosine := min(target/(q.times*q.length*distance), 0.9999)
	apart := math.Acos(cosine) / math.Pi
	signs := (float64(estimate)-along)/scale - q.raised
	if signs < q.scale*(width*(1-2*apart)-2*q.sure*math.Sqrt(width*apart*(1-apart))) {
		return false
	}
	loss := math.Sqrt(q.noise*q.length*q.length*(1-cosine*cosine) + q.loss4)
	return q.product(code, f.set[at]) >= target/scale-q.sure*loss
}
