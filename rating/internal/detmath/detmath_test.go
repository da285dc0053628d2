package detmath_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/kitbackend/kit/rating/internal/detmath"
)

// near compares with a relative tolerance.
func near(t *testing.T, name string, x, got, want, tolerance float64) {
	t.Helper()
	if got == want {
		return
	}
	if d := math.Abs(got-want) / math.Abs(want); !(d <= tolerance) {
		t.Errorf("%s(%v) = %v, want %v: off by %.2g", name, x, got, want, d)
	}
}

func TestExp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		x := (r.Float64() - 0.5) * 1400
		near(t, "Exp", x, detmath.Exp(x), math.Exp(x), 1e-15)
		near(t, "Exp", x/1000, detmath.Exp(x/1000), math.Exp(x/1000), 5e-16)
	}
	for x, want := range map[float64]float64{0: 1, 710: math.Inf(1), math.Inf(1): math.Inf(1), -746: 0, math.Inf(-1): 0} {
		if got := detmath.Exp(x); got != want {
			t.Errorf("Exp(%v) = %v, want %v", x, got, want)
		}
	}
}

func TestLog(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100_000 {
		x := math.Exp((r.Float64() - 0.5) * 1400)
		near(t, "Log", x, detmath.Log(x), math.Log(x), 5e-16)
		x = 0.5 + r.Float64()
		near(t, "Log", x, detmath.Log(x), math.Log(x), 5e-16)
	}
	if got := detmath.Log(1); got != 0 {
		t.Errorf("Log(1) = %v", got)
	}
}

// TestMills compares with the complementary error function where that has not underflowed.
func TestMills(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 100_000 {
		x := r.Float64()*38 - 12
		want := math.Erfc(x/math.Sqrt2) / 2 / (math.Exp(-x*x/2) / math.Sqrt(2*math.Pi))
		tolerance := 1e-13 + x*x*5e-16 // the reference rounds its squares, too
		near(t, "Mills", x, detmath.Mills(x), want, tolerance)
		hazard, excess := detmath.Hazard(x)
		near(t, "Hazard", x, hazard, 1/want, tolerance)
		if x < 5 {
			near(t, "excess of Hazard", x, excess, 1/want-x, 1e-12)
		}
	}
	// Far out the first terms of the asymptotic series are exact.
	for _, x := range []float64{1e4, 1e6, 1e9} {
		_, excess := detmath.Hazard(x)
		near(t, "excess of Hazard", x, excess, 1/x-2/(x*x*x), 1e-14)
	}
	if hazard, excess := detmath.Hazard(-50); hazard != 0 || excess != 50 {
		t.Errorf("Hazard(-50) = %v, %v", hazard, excess)
	}
}

func TestSymmetricQuantile(t *testing.T) {
	for p := 0.0; p < 0.9999; p += 0.0007 {
		near(t, "SymmetricQuantile", p, detmath.SymmetricQuantile(p), math.Sqrt2*math.Erfinv(p), 1e-12)
	}
}

var sink float64

func BenchmarkExp(b *testing.B) {
	for b.Loop() {
		sink = detmath.Exp(1.25)
	}
}

func BenchmarkMills(b *testing.B) {
	for b.Loop() {
		sink = detmath.Mills(1.25)
	}
}
