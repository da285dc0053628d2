package flat

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestScan compares the fast scan with the plain one, and that with the definition: the sum of the
// dimensions in which the query has the sign of the row.
func TestScan(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 1))
	for _, words := range []int{2, 4, 6, 12, 24, 64} {
		const rows = 5 * groupRows
		codes := make([]uint64, rows*words)
		for i := range codes {
			codes[i] = dice.Uint64()
		}
		var packed []byte
		for g := range rows / groupRows {
			packed = pack(packed, codes[g*groupRows*words:], words)
		}
		rest := make([]float32, 64*words)
		for i := range rest {
			rest[i] = float32(dice.NormFloat64())
		}
		q := &query{words: words}
		q.takeTable(rest, 1)
		plain, fast := make([]uint16, rows), make([]uint16, rows)
		scanGo(plain, packed, q.table)
		scan(fast, packed, q.table)
		if !slices.Equal(plain, fast) {
			t.Errorf("%d words: fast %v, want %v", words, fast, plain)
		}
		for row, got := range plain {
			var want float64
			for i, v := range rest {
				sign := -1.0
				if codes[row*words+i/64]>>(i%64)&1 == 1 {
					sign = 1
				}
				want += sign * float64(v)
			}
			if product := float64(q.base) + float64(q.step)*float64(got); math.Abs(product-want) > 5*math.Sqrt(q.loss4) {
				t.Errorf("%d words, row %d: %v, want %v", words, row, product, want)
			}
		}
	}
}

// TestEstimateSums and TestDot compare the assembly with Go.
func TestEstimateSums(t *testing.T) {
	dice := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{0, groupRows, 3 * groupRows, blockRows} {
		sums, along, scale := make([]uint16, n), make([]float32, n), make([]float32, n)
		for i := range n {
			sums[i], along[i], scale[i] = uint16(dice.Uint32()), float32(dice.NormFloat64()), float32(dice.NormFloat64())
		}
		plain, fast := make([]float32, n), make([]float32, n)
		estimateSumsGo(plain, sums, along, scale, 0.5, -3, 0.25)
		estimateSums(fast, sums, along, scale, 0.5, -3, 0.25)
		for i := range plain {
			if math.Abs(float64(plain[i]-fast[i])) > 1e-6*math.Abs(float64(plain[i]))+1e-3 {
				t.Fatalf("%d of %d: %v, want %v", i, n, fast[i], plain[i])
			}
		}
	}
}

func TestDot(t *testing.T) {
	dice := rand.New(rand.NewPCG(3, 3))
	for n := range 140 {
		a, b := make([]float32, n), make([]float32, n)
		for i := range n {
			a[i], b[i] = float32(dice.NormFloat64()), float32(dice.NormFloat64())
		}
		if got, want := dot(a, b), dot64(a, b); math.Abs(float64(got)-want) > 1e-4 {
			t.Errorf("%d dimensions: %v, want %v", n, got, want)
		}
	}
}

func TestAtLeast(t *testing.T) {
	dice := rand.New(rand.NewPCG(4, 4))
	var values [blockRows]float32
	for i := range values {
		values[i] = float32(dice.IntN(9) - 4)
	}
	values[7], values[77], values[777] = float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))
	for _, least := range []float32{float32(math.Inf(-1)), -4, 0, 4, 5, float32(math.Inf(1)), float32(math.NaN())} {
		if plain, fast := atLeastGo(&values, least), atLeast(&values, least); plain != fast {
			t.Errorf("at least %v: fast %x, want %x", least, fast, plain)
		}
	}
}
