package flat

import (
	"math"
	"math/bits"
	"math/rand/v2"
)

// rounds is how often a vector is turned: enough that one dimension alone
// reaches all others.
const rounds = 3

// coder makes signs of vectors.
type coder struct {
	metric Metric
	words  int // of 64 bits
	mean   []float32
	length float64           // of the mean, squared
	noise  float64           // of the rows' signs, squared, as a part of the query's length
	flips  [rounds][]float32 // 1 or -1 in each dimension
	plan   plan
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

// turn rotates a vector of 64*words dimensions: signs are flipped and a
// Hadamard transform mixes the first dimensions, then the last ones, as many
// as are a power of two.
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

// append adds the code of a vector to a block, and its three factors: a score
// is about shift*factor0 + factor1*(the signs times the query), and factor2 is
// the number of set bits.
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
	b.factors = append(b.factors, float32(along), float32(scale), float32(set))
}

// sureness is how many standard deviations an estimate is raised by, so that
// it is below the score it stands for five times in a thousand.
const sureness = 2.6

// query is a query as the estimates take it. They are raised by sureness.
type query struct {
	words, bits            int
	signs                  []uint64
	planes                 [][4]uint64
	shift, base, step, low float32
	offset                 float64 // between estimates and scores
}

// reach returns the estimate that stands for a score.
func (q *query) reach(metric Metric, score float32) float32 {
	s := float64(score)
	if metric == Euclidean {
		return float32(q.offset - s*s)
	}
	return float32(s - q.offset)
}

// prepare takes a query at one or four bits.
func (c *coder) prepare(vector []float32, atBits int) *query {
	q := &query{words: c.words, bits: atBits}
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
	q.offset = square
	if c.metric != Euclidean {
		q.offset = dot64(vector, c.mean)
	}
	c.turn(rest)
	noise := c.noise * square
	if atBits == 1 {
		noise += q.takeSigns(rest)
	} else {
		noise += q.takePlanes(rest)
	}
	q.base += float32(sureness * math.Sqrt(noise))
	return q
}

// takeSigns returns the square of what the query loses.
func (q *query) takeSigns(rest []float32) float64 {
	var square, sum float64
	q.signs = make([]uint64, q.words)
	for i, v := range rest {
		if v > 0 {
			q.signs[i/64] |= 1 << (i % 64)
		}
		square += float64(v) * float64(v)
		sum += math.Abs(float64(v))
	}
	if sum == 0 {
		return 0
	}
	scale := square / sum
	q.base, q.step = float32(scale*float64(len(rest))), float32(2*scale)
	return max(scale*scale*float64(len(rest))-square, 0)
}

// takePlanes returns the square of what the query loses.
func (q *query) takePlanes(rest []float32) float64 {
	low, high, sum := rest[0], rest[0], 0.0
	for _, v := range rest {
		low, high = min(low, v), max(high, v)
		sum += float64(v)
	}
	q.planes = make([][4]uint64, q.words)
	step := (high - low) / 15
	q.base, q.step, q.low = float32(-sum), 2*step, 2*low
	if step == 0 {
		return 0
	}
	for i, v := range rest {
		level := uint64((v-low)/step + 0.5)
		for bit := range 4 {
			q.planes[i/64][bit] |= (level >> bit & 1) << (i % 64)
		}
	}
	return float64(step) * float64(step) / 12 * float64(len(rest))
}
