package flat

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// data generates n vectors and some queries of a distribution.
type data func(dice *rand.Rand, n, d int) (rows, queries [][]float32)

func vectors(n, d int, component func(i, j int) float64) [][]float32 {
	list := make([][]float32, n)
	for i := range list {
		list[i] = make([]float32, d)
		for j := range list[i] {
			list[i][j] = float32(component(i, j))
		}
	}
	return list
}

const queries = 40

// clustered returns Gaussian clusters on the sphere, with an inner cosine of 0.67.
func clustered(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	centres := vectors(max(n/100, 1), d, func(int, int) float64 { return dice.NormFloat64() })
	pick := 0
	make := func(_, j int) float64 {
		if j == 0 {
			pick = dice.IntN(len(centres))
		}
		return float64(centres[pick][j]) + 0.7*dice.NormFloat64()
	}
	return vectors(n, d, make), vectors(queries, d, make)
}

// hard returns points of a latent space of 64 dimensions with decaying variance, clusters and a
// strong common mean, like those of embedding models.
func hard(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	const latent = 64
	centres := vectors(200, latent, func(_, j int) float64 { return dice.NormFloat64() / math.Sqrt(float64(j+1)) })
	mix := vectors(latent, d, func(int, int) float64 { return dice.NormFloat64() })
	mean := vectors(1, d, func(int, int) float64 { return 2 * dice.NormFloat64() })[0]
	point := func(n int) [][]float32 {
		list := vectors(n, d, func(_, j int) float64 { return float64(mean[j]) })
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
	return point(n), point(queries)
}

func gaussian(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	f := func(int, int) float64 { return dice.NormFloat64() }
	return vectors(n, d, f), vectors(queries, d, f)
}

func uniform(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	f := func(int, int) float64 { return dice.Float64() }
	return vectors(n, d, f), vectors(queries, d, f)
}

// duplicated returns each vector ten times.
func duplicated(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	some, asked := clustered(dice, n/10, d)
	for i := range n {
		rows = append(rows, some[i%len(some)])
	}
	return rows, asked
}

func alike(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	one := vectors(1, d, func(int, int) float64 { return dice.NormFloat64() })[0]
	_, asked = gaussian(dice, 1, d)
	return vectors(n, d, func(_, j int) float64 { return float64(one[j]) }), append(asked, one)
}

func oneHot(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	rows = vectors(n, d, func(i, j int) float64 {
		if i%d == j {
			return 1 + float64(i%7)
		}
		return 0
	})
	_, asked = gaussian(dice, 1, d)
	return rows, append(asked, rows[:20]...)
}

func tiny(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	rows, asked = hard(dice, n, d)
	for _, list := range [][][]float32{rows, asked} {
		for _, row := range list {
			for j := range row {
				row[j] *= 1e-25
			}
		}
	}
	return rows, asked
}

// norms returns directions of a cluster and lengths over six orders of magnitude.
func norms(dice *rand.Rand, n, d int) (rows, asked [][]float32) {
	rows, asked = clustered(dice, n, d)
	for _, row := range rows {
		by := float32(math.Pow(10, 6*dice.Float64()-3))
		for j := range row {
			row[j] *= by
		}
	}
	return rows, asked
}

// fill returns a trained set.
func fill(metric Metric, rows [][]float32) *Set {
	s := New(metric, len(rows[0]), 0)
	list := make([]Row, len(rows))
	for i, row := range rows {
		list[i] = Row{ID: fmt.Sprintf("%06d", i), Revision: int64(i + 1), Vector: row}
	}
	s.Apply(list, nil)
	s.Publish()
	s.Train()
	return s
}

// norms64 returns the lengths of the rows.
func norms64(rows [][]float32) []float64 {
	lengths := make([]float64, len(rows))
	for i, row := range rows {
		lengths[i] = math.Sqrt(dot64(row, row))
	}
	return lengths
}

// truth scores every row as float64; lengths are those of the rows.
func truth(metric Metric, rows [][]float32, lengths []float64, query []float32) []float64 {
	scores := make([]float64, len(rows))
	length := math.Sqrt(dot64(query, query))
	for i, row := range rows {
		switch metric {
		case Euclidean:
			scores[i] = -math.Sqrt(squared(query, row))
		case Dot:
			scores[i] = dot64(query, row)
		case Cosine:
			scores[i] = dot64(query, row) / length / lengths[i]
		}
	}
	return scores
}

// least returns the score of the k-th best, minus a tolerance for rounding.
func least(scores []float64, k int) float64 {
	best := slices.Clone(scores[:k])
	slices.Sort(best)
	for _, score := range scores[k:] {
		if score > best[0] {
			at, _ := slices.BinarySearch(best, score)
			copy(best, best[1:at])
			best[at-1] = score
		}
	}
	return best[0] - 1e-6*math.Abs(best[0])
}

// recall counts the hits that score at least least.
func recall(scores []float64, hits []Hit, least float64) (good int) {
	for _, hit := range hits {
		var at int
		_, _ = fmt.Sscanf(hit.ID, "%d", &at)
		if scores[at] >= least {
			good++
		}
	}
	return good
}

// TestRecall compares the results for every distribution under every metric with scoring each row.
// KIT_SOAK makes the sets larger.
func TestRecall(t *testing.T) {
	const k = 10
	n := 12_000
	if os.Getenv("KIT_SOAK") != "" {
		n = 40_000
	}
	for name, make := range map[string]data{"clustered": clustered, "hard": hard, "gaussian": gaussian, "uniform": uniform,
		"duplicated": duplicated, "alike": alike, "one-hot": oneHot, "tiny": tiny, "norms": norms} {
		rows, asked := make(rand.New(rand.NewPCG(1, 2)), n, 128)
		lengths := norms64(rows)
		for metric, metricName := range []string{"cosine", "dot", "euclidean"} {
			if testing.Short() && metricName != "euclidean" { // euclidean has the hardest case
				continue
			}
			t.Run(name+"/"+metricName, func(t *testing.T) {
				v := fill(Metric(metric), rows).View()
				var found, sure, exacts int
				for _, query := range asked {
					scores := truth(Metric(metric), rows, lengths, query)
					enough := least(scores, k)
					hits, exact := v.Search(query, k, nil, false)
					if exact {
						exacts++
					}
					found += recall(scores, hits, enough)
					whole, exact := v.Search(query, k, nil, true)
					if !exact {
						t.Fatal("a whole search is not exact")
					}
					sure += recall(scores, whole, enough)
				}
				got := float64(found) / float64(k*len(asked))
				t.Logf("recall %.4f, coded %v, %d of %d exact", got, v.coder.coded, exacts, len(asked))
				if got < 0.995 {
					t.Errorf("recall %.4f, want 0.995", got)
				}
				if sure != k*len(asked) {
					t.Errorf("an exact search finds %d of %d", sure, k*len(asked))
				}
			})
		}
	}
}

// TestWholeIsExact checks that a whole search orders rows whose scores are equal, or in another
// order, as float32.
func TestWholeIsExact(t *testing.T) {
	for metric, c := range map[Metric]struct {
		query []float32
		row   func(i int) []float32
	}{
		Dot:       {[]float32{3, 1, 1}, func(i int) []float32 { far := 1e8 * float32(i*7%5+1); return []float32{far, float32(i), -3 * far} }},
		Euclidean: {[]float32{1e8, 0, 0}, func(i int) []float32 { return []float32{float32(i) * 0.05, 0, 0} }},
	} {
		s := New(metric, 3, 0)
		for i := range 100 {
			s.Apply([]Row{{ID: fmt.Sprintf("%02d", i), Revision: 1, Vector: c.row(i)}}, nil)
		}
		s.Publish()
		hits, exact := s.View().Search(c.query, 3, nil, true)
		if len(hits) != 3 || !exact || hits[0].ID != "99" || hits[1].ID != "98" || hits[2].ID != "97" {
			t.Errorf("%d: found %+v", metric, hits)
		}
	}
}

// TestAViewKeepsWhatItHas checks a view of a set that has changed since, and no longer knows where
// a row was.
func TestAViewKeepsWhatItHas(t *testing.T) {
	s := New(Dot, 1, 0)
	put := func(revision int64, ids ...string) (rows []Row) {
		for _, id := range ids {
			rows = append(rows, Row{ID: id, Revision: revision, Vector: []float32{1}})
		}
		return rows
	}
	s.Apply(put(1, "a", "b", "c"), nil)
	s.Publish()
	before := s.View()
	s.Apply(put(2, "b", "d"), []Removal{{ID: "c", Revision: 2}})
	s.Publish()
	own := s.With(put(3, "a", "e"), []Removal{{ID: "d", Revision: 3}})
	now := s.View()
	s.Apply(put(4, "f", "a"), nil)
	all := []string{"f", "e", "d", "c", "b", "a"}
	for name, c := range map[string]struct {
		view *View
		want []string
	}{"before": {before, []string{"c", "b", "a"}}, "now": {now, []string{"d", "b", "a"}}, "of a transaction": {own, []string{"e", "b", "a"}}} {
		if got := c.view.Keep(all, c.view.All()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
