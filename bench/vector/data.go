package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
)

// data generates unit vectors and 40 queries of a kind; vector/internal/flat tests recall on the
// same data.
func data(kind string, n int) (rows, queries [][]float32, err error) {
	dice := rand.New(rand.NewPCG(1, 2))
	normal := func(int, int) float64 { return dice.NormFloat64() }
	var point func(n int) [][]float32
	switch kind {
	case "clustered": // Gaussian clusters with an inner cosine of 0.67
		centres := matrix(max(n/100, 1), dimensions, normal)
		point = func(n int) [][]float32 {
			pick := 0
			return matrix(n, dimensions, func(_, j int) float64 {
				if j == 0 {
					pick = dice.IntN(len(centres))
				}
				return float64(centres[pick][j]) + 0.7*dice.NormFloat64()
			})
		}
	case "hard": // 64 latent dimensions of decaying variance, clusters, a strong common mean
		const latent = 64
		centres := matrix(200, latent, func(_, j int) float64 { return dice.NormFloat64() / math.Sqrt(float64(j+1)) })
		mix := matrix(latent, dimensions, normal)
		mean := matrix(1, dimensions, func(int, int) float64 { return 2 * dice.NormFloat64() })[0]
		point = func(n int) [][]float32 {
			list := matrix(n, dimensions, func(_, j int) float64 { return float64(mean[j]) })
			for i := range list {
				centre := centres[dice.IntN(len(centres))]
				for l := range latent {
					x := centre[l] + float32(0.6*dice.NormFloat64()/math.Sqrt(float64(l+1)))
					for j := range list[i] {
						list[i][j] += x * mix[l][j]
					}
				}
			}
			return list
		}
	case "gaussian":
		point = func(n int) [][]float32 { return matrix(n, dimensions, normal) }
	case "uniform":
		point = func(n int) [][]float32 {
			return matrix(n, dimensions, func(int, int) float64 { return dice.Float64() })
		}
	default:
		return nil, nil, fmt.Errorf("there is no data of kind %q", kind)
	}
	rows, queries = point(n), point(40)
	for _, list := range [][][]float32{rows, queries} {
		for _, row := range list {
			length := float32(math.Sqrt(dot(row, row)))
			for j := range row {
				row[j] /= length
			}
		}
	}
	return rows, queries, nil
}

func matrix(n, d int, component func(i, j int) float64) [][]float32 {
	list := make([][]float32, n)
	for i := range list {
		list[i] = make([]float32, d)
		for j := range list[i] {
			list[i][j] = float32(component(i, j))
		}
	}
	return list
}

func dot(a, b []float32) (sum float64) {
	for i, v := range a {
		sum += float64(v) * float64(b[i])
	}
	return sum
}

// last returns the score of the lowest of the wanted rows.
func last(rows [][]float32, query []float32) float64 {
	scores := make([]float64, len(rows))
	for i, row := range rows {
		scores[i] = dot(row, query)
	}
	slices.Sort(scores)
	return scores[len(scores)-wanted]
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
