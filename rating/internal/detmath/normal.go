package detmath

import "math"

const (
	sqrtHalfPi = 1.25331413731550025120788264240552263
	sqrtTwoPi  = 2.50662827463100050241576528481104525
)

// Hazard returns φ(x)/Q(x), where φ is the density of the standard normal distribution and Q its
// upper tail, and the excess of that over x, which for large x would otherwise be lost to
// cancellation.
func Hazard(x float64) (hazard, excess float64) {
	if x > far {
		excess = tail(x)
		return x + excess, excess
	}
	hazard = 1 / Mills(x)
	return hazard, hazard - x
}

// Mills returns Q(x)/φ(x), the reciprocal of the hazard.
func Mills(x float64) float64 {
	switch {
	case x > far:
		return 1 / (x + tail(x))
	case x < -far:
		return float64(sqrtTwoPi*Exp(float64(x*x)/2)) - Mills(-x)
	default:
		return float64(sqrtHalfPi*Exp(float64(x*x)/2)) - center(x)
	}
}

// far is where the continued fraction replaces the series.
const far = 2.5

// tail returns the continued fraction 1/(x+2/(x+3/(x+…))) for x >= far: the larger x, the fewer
// steps it takes.
func tail(x float64) float64 {
	t := 0.0
	for n := math.Floor(500/float64(x*x)) + 5; n > 0; n-- {
		t = n / (x + t)
	}
	return t
}

// center returns (1/2 - Q(x))/φ(x), the series x + x³/3 + x⁵/15 + …, whose terms all have one sign.
func center(x float64) float64 {
	x2 := float64(x * x)
	sum, term := x, x
	for n := 3.0; n < 200; n += 2 {
		term = float64(term*x2) / n
		if sum+term == sum {
			break
		}
		sum += term
	}
	return sum
}

// SymmetricQuantile returns the x for which a standard normal variable is between -x and x with
// probability p, 0 <= p < 1.
func SymmetricQuantile(p float64) float64 {
	// Newton's steps approach the root from below, as the integral of the density is concave.
	x := 0.0
	for range 200 {
		step := float64(p*sqrtHalfPi*Exp(float64(x*x)/2)) - center(x)
		if step <= 0 || x+step == x {
			break
		}
		x += step
	}
	return x
}
