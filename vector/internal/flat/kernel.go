package flat

import "math/bits"

// dotGo returns the inner product of two vectors of the same length. It uses four independent sums,
// so that additions need not wait for each other.
func dotGo(a, b []float32) float32 {
	var s0, s1, s2, s3 float32
	b = b[:len(a)]
	i := 0
	for ; i+8 <= len(a); i += 8 {
		x, y := (*[8]float32)(a[i:]), (*[8]float32)(b[i:])
		s0 += x[0]*y[0] + x[4]*y[4]
		s1 += x[1]*y[1] + x[5]*y[5]
		s2 += x[2]*y[2] + x[6]*y[6]
		s3 += x[3]*y[3] + x[7]*y[7]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// squared returns the squared distance of two vectors, summed as float64: the squares of small
// differences are below the range of float32.
func squared(a, b []float32) float64 {
	var s0, s1, s2, s3 float64
	b = b[:len(a)]
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := (*[4]float32)(a[i:]), (*[4]float32)(b[i:])
		d0, d1, d2, d3 := float64(x[0]-y[0]), float64(x[1]-y[1]), float64(x[2]-y[2]), float64(x[3]-y[3])
		s0 += d0 * d0
		s1 += d1 * d1
		s2 += d2 * d2
		s3 += d3 * d3
	}
	for ; i < len(a); i++ {
		d := float64(a[i] - b[i])
		s0 += d * d
	}
	return (s0 + s1) + (s2 + s3)
}

// squared64 is squared with float64 differences too.
func squared64(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		d := float64(v) - float64(b[i])
		sum += d * d
	}
	return sum
}

// atLeastGo returns which values of a block are at least least.
func atLeastGo(values *[blockRows]float32, least float32) (m blockMask) {
	for i, v := range values {
		if v >= least {
			m[i/64] |= 1 << (i % 64)
		}
	}
	return m
}

func dot64(a, b []float32) float64 {
	var sum float64
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// estimate writes the estimated scores of rows, for a query at one bit.
func (q *query) estimate(out []float32, codes []uint64, along, scale []float32) {
	if q.words == 6 {
		q.estimate6(out, codes, along, scale)
		return
	}
	for i := range out {
		row := codes[i*q.words:][:q.words]
		h := 0
		for j := 0; j+2 <= len(row); j += 2 {
			x, y := (*[2]uint64)(row[j:]), (*[2]uint64)(q.signs[j:])
			h += bits.OnesCount64(x[0]^y[0]) + bits.OnesCount64(x[1]^y[1])
		}
		out[i] = q.shift*along[i] + scale[i]*(q.base-q.step*float32(h))
	}
}

// estimate6 is the case of 384 dimensions, which are the most common.
func (q *query) estimate6(out []float32, codes []uint64, along, scale []float32) {
	y := (*[6]uint64)(q.signs)
	y0, y1, y2, y3, y4, y5 := y[0], y[1], y[2], y[3], y[4], y[5]
	shift, base, step := q.shift, q.base, q.step
	along, scale = along[:len(out)], scale[:len(out)]
	for i := range out {
		x := (*[6]uint64)(codes[6*i:])
		h := bits.OnesCount64(x[0]^y0) + bits.OnesCount64(x[1]^y1) + bits.OnesCount64(x[2]^y2) +
			bits.OnesCount64(x[3]^y3) + bits.OnesCount64(x[4]^y4) + bits.OnesCount64(x[5]^y5)
		out[i] = shift*along[i] + scale[i]*(base-step*float32(h))
	}
}

// product returns the inner product of the signs of a row and the query at four bits, by one plane
// of bits each.
func (q *query) product(row []uint64, set float32) float64 {
	h := 0
	for j, x := range row {
		y := &q.planes[j]
		h += bits.OnesCount64(x&y[0]) + bits.OnesCount64(x&y[1])<<1 +
			bits.OnesCount64(x&y[2])<<2 + bits.OnesCount64(x&y[3])<<3
	}
	return q.sum4 + q.step4*float64(h) + q.low4*float64(set)
}
