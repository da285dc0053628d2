package vector_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/vector"
	"github.com/kitbackend/kit/vector/pgvector"
)

// withExtension opens the PostgreSQL with pgvector that KIT_TEST_PGVECTOR names,
// emptied. One backend serves the whole of it, so there is one connection.
func withExtension(t testing.TB) *database.DB {
	t.Helper()
	url := os.Getenv("KIT_TEST_PGVECTOR")
	if url == "" {
		t.Skip("KIT_TEST_PGVECTOR is not set")
	}
	db, err := postgres.Open(t.Context(), url, postgres.WithConnections(1), postgres.WithTestMode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for _, statement := range []string{"DISCARD ALL", "DROP SCHEMA public CASCADE", "CREATE SCHEMA public"} {
		if _, err := db.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

// cloud is points of the unit cube.
func cloud(dice *rand.Rand, n, d int) [][]float32 {
	list := make([][]float32, n)
	for i := range list {
		list[i] = make([]float32, d)
		for j := range list[i] {
			list[i][j] = float32(dice.Float64())
		}
	}
	return list
}

// TestEngineIndex: an index finds what comparing all finds, with filters of every
// width, on vector and halfvec, for each metric.
func TestEngineIndex(t *testing.T) {
	for metric, width := range map[vector.Metric]int{vector.MetricCosine: 2100, vector.MetricDot: 8, vector.MetricEuclidean: 12} {
		t.Run(string(metric), func(t *testing.T) {
			ctx, db, n := t.Context(), withExtension(t), 300
			cfg := vector.Config{Engine: pgvector.New(pgvector.Config{ExactBelow: 100, Scanned: 100}), Indexes: []vector.Index{
				{Name: "many", Dimensions: width, Metric: metric, VectorsOnly: true, Filterable: []string{"n"}}}}
			v, space := open(t, db, cfg, vector.Peers{}), vector.Space{Index: "many", OwnerID: "ada"}
			rows := cloud(rand.New(rand.NewPCG(1, 2)), n, width)
			for first := 0; first < n; first += 100 {
				var list []vector.Document
				for i, row := range rows[first : first+100] {
					list = append(list, vector.Document{ID: fmt.Sprintf("%03d", first+i), Vector: row, Metadata: map[string]any{"n": first + i}})
				}
				must(v.Upsert(ctx, space, list...))(t)
			}
			asked := vector.Query{Vector: rows[7], TopK: 10}
			if !must(v.Query(ctx, space, asked))(t).Exact {
				t.Error("there is an index already")
			}
			must(v.queue.RunDue(ctx))(t)
			v.advance(2 * vector.PreparePause)
			found, all := 0, 0
			for _, row := range cloud(rand.New(rand.NewPCG(3, 4)), 10, width) {
				asked := vector.Query{Vector: row, TopK: 10}
				near := must(v.Query(ctx, space, asked))(t)
				asked.Precision = vector.PrecisionExact
				exact := must(v.Query(ctx, space, asked))(t)
				if near.Exact || !exact.Exact {
					t.Errorf("exact is %v and %v", near.Exact, exact.Exact)
				}
				for _, id := range ids(exact) {
					if all++; slices.Contains(ids(near), id) {
						found++
					}
				}
			}
			if float64(found) < 0.995*float64(all) {
				t.Errorf("found %d of %d", found, all)
			}
			for _, keeps := range []int{3, 30, 250} {
				asked := vector.Query{Vector: rows[7], TopK: 10, Filter: vector.Filter{"n": map[string]any{"gte": n - keeps}}}
				near := must(v.Query(ctx, space, asked))(t)
				asked.Precision = vector.PrecisionExact
				equal(t, ids(near), ids(must(v.Query(ctx, space, asked))(t)))
				equal(t, len(near.Items), min(10, keeps))
			}
			if err := v.Delete(ctx, space, "007"); err != nil {
				t.Fatal(err)
			}
			if slices.Contains(ids(must(v.Query(ctx, space, asked))(t)), "007") {
				t.Error("a deleted document is found")
			}
		})
	}
}

// TestEngineCatchesUp: documents from before the engine, and those that a node
// without it has written, are found at once, in memory, and by the engine after
// the job.
func TestEngineCatchesUp(t *testing.T) {
	ctx, db := t.Context(), withExtension(t)
	plain := vector.Config{Indexes: []vector.Index{{Name: "x", Dimensions: 2, VectorsOnly: true}}}
	with := plain
	with.Engine = pgvector.New(pgvector.Config{})
	old, v, space := open(t, db, plain, vector.Peers{}), open(t, db, with, vector.Peers{}), vector.Space{Index: "x", OwnerID: "ada"}
	point := func(n *node, id string) {
		must(n.Upsert(ctx, space, vector.Document{ID: id, Vector: []float32{1, float32(id[0])}}))(t)
	}
	finds := func(want ...string) {
		t.Helper()
		equal(t, slices.Sorted(slices.Values(ids(must(v.Query(ctx, space, vector.Query{Vector: []float32{1, 1}}))(t)))), want)
	}
	points := func() (n int) {
		if err := db.QueryRow(ctx, `SELECT count(*) FROM vector_point t JOIN vector_document d ON d.number = t.number AND d.revision = t.revision`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	prepared := func(want int) {
		t.Helper()
		v.advance(2 * vector.PreparePause)
		finds(ids(must(v.Query(ctx, space, vector.Query{Vector: []float32{1, 1}}))(t))...)
		must(v.queue.RunDue(ctx))(t)
		equal(t, points(), want)
	}
	point(old, "a")
	point(old, "b")
	finds("a", "b")
	prepared(2)
	point(v, "c")
	equal(t, points(), 3)
	finds("a", "b", "c")
	point(old, "b")
	point(old, "d")
	finds("a", "b", "c", "d")
	prepared(4)
	if err := old.Delete(ctx, space, "a"); err != nil {
		t.Fatal(err)
	}
	finds("b", "c", "d")
	prepared(3)
}

// TestEngineElsewhere: an engine of PostgreSQL is refused on SQLite.
func TestEngineElsewhere(t *testing.T) {
	_, err := vector.New(capabilitytest.NewHost(t, databasetest.Memory(t)), vector.Config{Engine: pgvector.New(pgvector.Config{}),
		Indexes: []vector.Index{{Name: "x"}}}, vector.Peers{})
	if err == nil {
		t.Error("pgvector runs on SQLite")
	}
}
