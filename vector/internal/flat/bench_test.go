package flat

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkSearch compares a plain loop over 100,000 vectors of 384 dimensions with the engine,
// single-threaded if GOMAXPROCS is 1, and prints recall.
func BenchmarkSearch(b *testing.B) {
	const n, d, k = 100_000, 384, 10
	for _, c := range []struct {
		name string
		make data
	}{{"clustered", clustered}, {"hard", hard}, {"gaussian", gaussian}, {"uniform", uniform}} {
		b.Run(c.name, func(b *testing.B) {
			rows, asked := c.make(rand.New(rand.NewPCG(1, 2)), n, d)
			s := New(Cosine, d, 1)
			list := make([]Row, n)
			for i, row := range rows {
				list[i] = Row{ID: fmt.Sprintf("%06d", i), Revision: int64(i + 1), Vector: row, Values: []Value{{Kind: Number, Number: float64(i % 100)}}}
			}
			began := time.Now()
			s.Apply(list, nil)
			s.Publish()
			loaded := time.Since(began)
			s.Train()
			trained := time.Since(began) - loaded
			v := s.View()
			b.Logf("load %v, train %v, coded %v, %.0f bytes a document", loaded, trained, v.coder.coded, float64(s.Bytes())/n)
			b.Run("naive", func(b *testing.B) {
				for i := range b.N {
					q, top, at := asked[i%len(asked)], [k]float32{}, 0
					for _, row := range rows {
						var sum float32
						for j, x := range row {
							sum += x * q[j]
						}
						if sum > top[at] {
							top[at], at = sum, (at+1)%k
						}
					}
				}
			})
			b.Run("engine", func(b *testing.B) {
				for i := range b.N {
					v.Search(asked[i%len(asked)], k, nil, false)
				}
				b.StopTimer()
				found := 0
				for _, q := range asked[:20] {
					hits, _ := v.Search(q, k, nil, false)
					scores := truth(Cosine, rows, norms64(rows), q)
					found += recall(scores, hits, least(scores, k))
				}
				b.ReportMetric(float64(found)/20/k, "recall")
			})
			b.Run("exact", func(b *testing.B) {
				for i := range b.N {
					v.Search(asked[i%len(asked)], k, nil, true)
				}
			})
			for _, percent := range []float64{1, 10, 50} {
				b.Run(fmt.Sprintf("keeps-%v%%", percent), func(b *testing.B) {
					for i := range b.N {
						among := v.Where(0, func(v Value) bool { return v.Kind == Number && v.Number < percent })
						v.Search(asked[i%len(asked)], k, among, false)
					}
				})
			}
		})
	}
}
