package vector_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/vector"
	"github.com/kitbackend/kit/vector/pgvector"
)

// withExtension opens the PostgreSQL with pgvector that KIT_TEST_PGVECTOR names, emptied, with a
// single connection.
func withExtension(t testing.TB) *database.DB {
	t.Helper()
	url := os.Getenv("KIT_TEST_PGVECTOR")
	if url == "" {
		t.Skip("KIT_TEST_PGVECTOR is not set")
	}
	db, err := postgres.Open(t.Context(), url, postgres.WithConnections(1))
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

// cloud returns random points of the unit cube.
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

// TestEngineIndex checks that an index finds what comparing all finds, with filters of every
// selectivity, on vector and halfvec, for each metric.
func TestEngineIndex(t *testing.T) {
	for _, c := range []struct {
		metric   vector.Metric
		n, width int
	}{{vector.MetricCosine, 200, 16}, {vector.MetricDot, 200, 8}, {vector.MetricEuclidean, 200, 12}, {vector.MetricCosine, 40, 2100}} {
		metric, n, width := c.metric, c.n, c.width
		t.Run(fmt.Sprint(metric, width), func(t *testing.T) {
			ctx, db := t.Context(), withExtension(t)
			cfg := vector.Config{Engine: pgvector.New(pgvector.Config{ExactBelow: 20, Scanned: 100}), Indexes: []vector.Index{
				{Name: "many", Dimensions: width, Metric: metric, VectorsOnly: true, Filterable: []string{"n"}}}}
			v, space := open(t, db, cfg, vector.Peers{}), vector.Space{Index: "many", OwnerID: "ada"}
			rows := cloud(rand.New(rand.NewPCG(1, 2)), n, width)
			for first := 0; first < n; first += 40 {
				var list []vector.Document
				for i, row := range rows[first : first+40] {
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
			for _, keeps := range []int{3, 30, n} {
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

// TestEngineCatchesUp checks that documents from before the engine, and those that a node without
// it has written, are found immediately, in memory, and by the engine after the job.
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

// TestEngineFilters compares filters in SQL with their plain evaluation.
func TestEngineFilters(t *testing.T) {
	ctx, db := t.Context(), withExtension(t)
	cfg := vector.Config{Engine: pgvector.New(pgvector.Config{}), Indexes: []vector.Index{
		{Name: "x", Dimensions: 2, VectorsOnly: true, Filterable: []string{"a", "b"}}}}
	v, space := open(t, db, cfg, vector.Peers{}), vector.Space{Index: "x", OwnerID: "ada"}
	values := []any{"", "x", "X", "\u00e9", "1", 1.0, -1.5, 1e300, 0.0, true, false, nil, []any{1.0}, map[string]any{"a": 1.0}}
	var list []vector.Document
	for i := range 60 {
		metadata := map[string]any{}
		if i%(len(values)+1) < len(values) {
			metadata["a"] = values[i%(len(values)+1)]
		}
		if i%5 > 0 {
			metadata["b"] = values[(i*7+i/5)%len(values)]
		}
		list = append(list, vector.Document{ID: fmt.Sprint(i), Vector: []float32{1, float32(i)}, Metadata: metadata})
	}
	must(v.Upsert(ctx, space, list...))(t)
	for _, text := range []string{`{"a":"x"}`, `{"a":1}`, `{"a":true}`, `{"a":{"ne":"x"}}`, `{"a":{"exists":true}}`, `{"a":{"exists":false}}`,
		`{"a":{"gt":"X"}}`, `{"a":{"lte":"x"}}`, `{"a":{"gte":-1.5,"lt":1e300}}`, `{"a":{"gt":-1e308}}`, `{"a":{"in":["x",1,true,"1"]}}`,
		`{"a":{"nin":["x",1,true]}}`, `{"or":[{"a":"1"},{"b":{"gt":0}}]}`, `{"not":{"a":{"lt":"z"},"b":{"ne":false}}}`, `{"a":-0}`,
		`{"and":[{"a":{"exists":true}},{"not":{"b":{"exists":true}}}]}`, `{"a":"'; DROP TABLE vector_point --"}`, `{"b":{"gt":"\\"}}`} {
		var filter vector.Filter
		if err := json.Unmarshal([]byte(text), &filter); err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, d := range list {
			if keeps(filter, d.Metadata) {
				want = append(want, d.ID)
			}
		}
		slices.Sort(want)
		got := ids(must(v.Query(ctx, space, vector.Query{Vector: []float32{1, 1}, TopK: 100, Filter: filter}))(t))
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s keeps %v, want %v", text, got, want)
		}
	}
	for _, metadata := range []map[string]any{{"a": "x\x00"}, {"a": []any{"\x00"}}, {"a": map[string]any{"\x00": 1}}, {"a": json.Number("1e999")}} {
		_, err := v.Upsert(ctx, space, vector.Document{Vector: []float32{1, 1}, Metadata: metadata})
		equal(t, errors.Is(err, capability.ErrInvalidRequest), true)
	}
	_, err := v.Query(ctx, space, vector.Query{Vector: []float32{1, 1}, Filter: vector.Filter{"a": "x\x00"}})
	equal(t, errors.Is(err, capability.ErrInvalidRequest), true)
}

// TestEngineElsewhere checks that an engine for PostgreSQL is refused on SQLite.
func TestEngineElsewhere(t *testing.T) {
	_, err := vector.New(capabilitytest.NewHost(t, databasetest.Memory(t)), vector.Config{Engine: pgvector.New(pgvector.Config{}),
		Indexes: []vector.Index{{Name: "x"}}}, vector.Peers{})
	if err == nil {
		t.Error("pgvector runs on SQLite")
	}
}
