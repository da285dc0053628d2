// Package detmath is the mathematics of ratings, the same to the last bit on every platform. The
// functions of package math are not: some have an assembly version for one processor, and where the
// processor can fuse a multiplication and an addition into one rounding, the compiler does so.
//
// This package uses only operations that IEEE 754 defines exactly (addition, multiplication,
// division, square root and scaling by powers of two), and converts every product explicitly, which
// prevents fusing according to the language specification.
package detmath

import "math"

const (
	// ln2 in two parts; a product of the first with an integer up to 2^20 is exact.
	ln2Hi = 0x1.62e42feep-1
	ln2Lo = math.Ln2 - ln2Hi

	expOverflow  = 709.782712893384
	expUnderflow = -745.1332191019412
)

// inverseFactorials are 1/n!, from 1/13! down to 1/0!.
var inverseFactorials = [...]float64{
	1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,
	1. / 720, 1. / 120, 1. / 24, 1. / 6, 1. / 2, 1, 1,
}

// Exp returns e to the power of x, within 2 units in the last place.
func Exp(x float64) float64 {
	switch {
	case x > expOverflow:
		return math.Inf(1)
	case x < expUnderflow:
		return 0
	}
	k := math.Floor(x/math.Ln2 + 0.5)
	r := x - float64(k*ln2Hi) - float64(k*ln2Lo)
	sum := 0.0
	for _, c := range inverseFactorials {
		sum = float64(sum*r) + c
	}
	return math.Ldexp(sum, int(k))
}

// Log returns the natural logarithm of x > 0, within 2 units in the last place.
func Log(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m+m, e-1
	}
	// log m = 2 artanh s, a series in odd powers of |s| < 0.18.
	s := (m - 1) / (m + 1)
	s2 := float64(s * s)
	sum := 0.0
	for n := 23.0; n > 1; n -= 2 {
		sum = float64((sum + 1/n) * s2)
	}
	k := float64(e)
	return float64(k*ln2Hi) + (s + s + float64((s+s)*sum) + float64(k*ln2Lo))
}
