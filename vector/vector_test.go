package vector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/vector"
	"github.com/kitbackend/kit/vector/pgvector"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var config = vector.Config{Indexes: []vector.Index{
	{Name: "notes", Filterable: []string{"kind", "year", "done"}},
	{Name: "points", Dimensions: 2, Metric: vector.MetricEuclidean, VectorsOnly: true, MaxDocuments: 5},
	{Name: "weights", Dimensions: 2, Metric: vector.MetricDot, VectorsOnly: true},
	{Name: "angles", Dimensions: 2, VectorsOnly: true},
	{Name: "tagged", Dimensions: 1, VectorsOnly: true, Filterable: []string{"kind"}},
	{Name: "manual", Scope: vector.ScopeShared},
}}

// node is a Vector on a database, with its jobs.
type node struct {
	*vector.Vector
	db    *database.DB
	queue *jobs.Queue
	mu    sync.Mutex
	at    time.Time
}

func (n *node) now() time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at
}

func (n *node) advance(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at = n.at.Add(d)
}

func open(t testing.TB, db *database.DB, cfg vector.Config, peers vector.Peers) *node {
	t.Helper()
	n := &node{db: db, at: now}
	db.UseClock(n.now)
	log := slog.New(slog.DiscardHandler)
	n.queue = jobs.New(db, nil, jobs.Options{Log: log, Now: n.now})
	host := capability.Host{DB: db, Jobs: n.queue, Environment: "test", Now: n.now, Log: log}
	trail, err := audit.New(host, audit.Config{}, audit.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	peers.Audit = trail
	if n.Vector, err = vector.New(host, cfg, peers); err != nil {
		t.Fatal(err)
	}
	c := n.Capability()
	sets := []database.Migrations{jobs.Migrations()}
	for _, c := range []capability.Capability{trail.Capability(), c} {
		sets = append(sets, c.Lines()...)
	}
	if err := errors.Join(db.Migrate(context.Background(), sets...), n.queue.Register(c.Jobs...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func each(t *testing.T, fn func(t *testing.T, n *node)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, open(t, db, config, vector.Peers{})) })
	t.Run("pgvector", func(t *testing.T) {
		cfg := config
		cfg.Engine = pgvector.New(pgvector.Config{})
		fn(t, open(t, withExtension(t), cfg, vector.Peers{}))
	})
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		c := config
		c.BasePath = basePath
		v, err := vector.New(h, c, vector.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return v.Capability(), nil
	})
}

func ids(a vector.Result) (list []string) {
	for _, m := range a.Items {
		list = append(list, m.ID)
	}
	return list
}

// must returns a function that fails the test on an error.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func want(t testing.TB, err error, refusal *capability.Error) {
	t.Helper()
	if !errors.Is(err, refusal) {
		t.Errorf("got %v, want %s", err, refusal.Code)
	}
}

func equal(t testing.TB, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestStory writes notes, finds them by text, word and filter, and deletes one.
func TestStory(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, ada := t.Context(), vector.Space{Index: "notes", OwnerID: "ada"}
		out := must(n.Upsert(ctx, ada,
			vector.Document{ID: "bread", Text: "Bake bread with rye flour and a sourdough starter", Metadata: map[string]any{"kind": "recipe", "year": 2024}},
			vector.Document{ID: "soup", Text: "Cook a soup of lentils and carrots", Metadata: map[string]any{"kind": "recipe", "year": 2025}},
			vector.Document{ID: "tyres", Text: "Change the tyres of the car in November", Metadata: map[string]any{"kind": "task", "done": false}},
		))(t)
		equal(t, []bool{out.Items[0].Created, out.Items[1].Created, out.Items[2].Created}, []bool{true, true, true})
		if a := must(n.Query(ctx, ada, vector.Query{Text: "baking bread"}))(t); ids(a)[0] != "bread" || len(a.Items) != 3 || !a.Exact {
			t.Errorf("%+v", a)
		}
		a := must(n.Query(ctx, ada, vector.Query{Text: "bread", Filter: vector.Filter{"kind": "task"}, Include: []string{"text"}}))(t)
		if len(a.Items) != 1 || a.Items[0].Text != "Change the tyres of the car in November" || a.Items[0].Metadata != nil {
			t.Errorf("%+v", a)
		}
		for _, mode := range []vector.Mode{vector.ModeText, vector.ModeHybrid} {
			equal(t, ids(must(n.Query(ctx, ada, vector.Query{Text: "lentils", Mode: mode, TopK: 1}))(t)), []string{"soup"})
			equal(t, ids(must(n.Query(ctx, ada, vector.Query{Text: "lentils novem", Mode: mode, TopK: 1, Filter: vector.Filter{"kind": "task"}}))(t)), []string{"tyres"})
		}
		equal(t, ids(must(n.Query(ctx, ada, vector.Query{DocumentID: "bread"}))(t)), []string{"soup", "tyres"})
		out = must(n.Upsert(ctx, ada, vector.Document{ID: "soup", Text: "Boil noodles"}))(t)
		equal(t, out.Items[0].Created, false)
		equal(t, len(must(n.Query(ctx, ada, vector.Query{Text: "lentils", Mode: vector.ModeText}))(t).Items), 0)
		if err := n.Delete(ctx, ada, "bread"); err != nil {
			t.Fatal(err)
		}
		want(t, n.Delete(ctx, ada, "bread"), vector.ErrDocumentNotFound)
		equal(t, slices.Sorted(slices.Values(ids(must(n.Query(ctx, ada, vector.Query{Text: "bread"}))(t)))), []string{"soup", "tyres"})
		equal(t, len(must(n.Query(ctx, ada, vector.Query{Text: "sourdough", Mode: vector.ModeText}))(t).Items), 0)
		d := must(n.Get(ctx, ada, "soup"))(t)
		if d.Text != "Boil noodles" || d.Model != "hashing-v1" || d.Dimensions != 384 || len(d.Vector) != 384 || len(d.Metadata) != 0 {
			t.Errorf("%+v", d)
		}
	})
}

func TestScores(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx := t.Context()
		for index, c := range map[string]struct{ scores, distances []float64 }{
			"points":  {[]float64{1, 0.5, 1 / (1 + math.Sqrt2)}, []float64{0, 1, math.Sqrt2}},
			"weights": {[]float64{2, 1, 0}, []float64{-2, -1, 0}},
			"angles":  {[]float64{1, math.Sqrt2 / 2, 0}, []float64{0, 1 - math.Sqrt2/2, 1}},
		} {
			space := vector.Space{Index: index, OwnerID: "ada"}
			documents := map[string][]vector.Document{
				"points":  {{ID: "c", Vector: []float32{1, 3}}, {ID: "a", Vector: []float32{0, 2}}, {ID: "b", Vector: []float32{0, 3}}},
				"weights": {{ID: "c", Vector: []float32{1, 0}}, {ID: "a", Vector: []float32{5, 1}}, {ID: "b", Vector: []float32{5, 0.5}}},
				"angles":  {{ID: "c", Vector: []float32{1, 0}}, {ID: "a", Vector: []float32{0, 5}}, {ID: "b", Vector: []float32{1, 1}}},
			}[index]
			must(n.Upsert(ctx, space, documents...))(t)
			a := must(n.Query(ctx, space, vector.Query{Vector: []float32{0, 2}}))(t)
			equal(t, ids(a), []string{"a", "b", "c"})
			for i, m := range a.Items {
				if math.Abs(m.Score-c.scores[i]) > 1e-6 || math.Abs(*m.Distance-c.distances[i]) > 1e-6 {
					t.Errorf("%s: %d: score %v, distance %v", index, i, m.Score, *m.Distance)
				}
			}
			least := c.scores[1] - 1e-3
			equal(t, len(must(n.Query(ctx, space, vector.Query{Vector: []float32{0, 2}, MinScore: &least}))(t).Items), 2)
		}
	})
}

// TestOwners checks that two owners, and no owner, are separated.
func TestOwners(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx := t.Context()
		ada, bob := vector.Space{Index: "notes", OwnerID: "ada"}, vector.Space{Index: "notes", OwnerID: "bob"}
		must(n.Upsert(ctx, ada, vector.Document{ID: "a", Text: "secret of ada"}))(t)
		must(n.Upsert(ctx, bob, vector.Document{ID: "a", Text: "secret of bob", Metadata: map[string]any{"ownerId": "ada"}}))(t)
		must(n.Upsert(ctx, bob, vector.Document{ID: "b", Text: "another of bob"}))(t)
		for _, mode := range []vector.Mode{vector.ModeVector, vector.ModeText, vector.ModeHybrid} {
			a := must(n.Query(ctx, ada, vector.Query{Text: "secret of bob another", Mode: mode, Include: []string{"text"}}))(t)
			if len(a.Items) != 1 || a.Items[0].Text != "secret of ada" {
				t.Errorf("%s: %+v", mode, a)
			}
		}
		want(t, n.Delete(ctx, ada, "b"), vector.ErrDocumentNotFound)
		_, err := n.Get(ctx, ada, "b")
		want(t, err, vector.ErrDocumentNotFound)
		_, err = n.Query(ctx, ada, vector.Query{DocumentID: "b"})
		want(t, err, vector.ErrDocumentNotFound)
		want(t, n.UpdateMetadata(ctx, ada, "b", nil), vector.ErrDocumentNotFound)
		if err := n.Delete(ctx, ada, "a"); err != nil {
			t.Fatal(err)
		}
		equal(t, must(n.Get(ctx, bob, "a"))(t).Text, "secret of bob")
	})
}

func TestQuotaCountsDocuments(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, space := t.Context(), vector.Space{Index: "points", OwnerID: "ada"}
		one := func(id string) vector.Document { return vector.Document{ID: id, Vector: []float32{1, 2}} }
		must(n.Upsert(ctx, space, one("a"), one("b"), one("c"), one("d")))(t)
		_, err := n.Upsert(ctx, space, one("e"), one("f"))
		want(t, err, vector.ErrQuotaExceeded)
		must(n.Upsert(ctx, space, one("d"), one("e")))(t)
		equal(t, must(n.Count(ctx, space, nil))(t), int64(5))
		if err := n.Delete(ctx, space, "a"); err != nil {
			t.Fatal(err)
		}
		must(n.Upsert(ctx, space, one("f")))(t)
	})
}

// TestTransaction checks that a query sees the writes of its transaction, and that a rollback
// removes them.
func TestTransaction(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, space := t.Context(), vector.Space{Index: "angles", OwnerID: "ada"}
		query := func(ctx context.Context) []string {
			return ids(must(n.Query(ctx, space, vector.Query{Vector: []float32{0, 1}}))(t))
		}
		must(n.Upsert(ctx, space, vector.Document{ID: "a", Vector: []float32{0, 1}}, vector.Document{ID: "b", Vector: []float32{1, 1}}))(t)
		equal(t, query(ctx), []string{"a", "b"})
		broken := errors.New("broken")
		err := n.db.InTx(ctx, func(ctx context.Context) error {
			if err := n.Delete(ctx, space, "a"); err != nil {
				return err
			}
			_, err := n.Upsert(ctx, space, vector.Document{ID: "c", Vector: []float32{0, 2}})
			equal(t, query(ctx), []string{"c", "b"})
			return errors.Join(err, broken)
		})
		if !errors.Is(err, broken) {
			t.Fatal(err)
		}
		equal(t, query(ctx), []string{"a", "b"})
		must(n.Upsert(ctx, space, vector.Document{ID: "d", Vector: []float32{0, 1}}))(t)
		equal(t, query(ctx), []string{"a", "d", "b"})
	})
}

func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, notes, angles := t.Context(), vector.Space{Index: "notes", OwnerID: "ada"}, vector.Space{Index: "angles", OwnerID: "ada"}
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		for name, c := range map[string]struct {
			space    vector.Space
			document vector.Document
			want     *capability.Error
		}{
			"no index":           {vector.Space{Index: "nothing", OwnerID: "ada"}, vector.Document{Text: "x"}, vector.ErrIndexNotFound},
			"no owner":           {vector.Space{Index: "notes"}, vector.Document{Text: "x"}, capability.ErrInvalidRequest},
			"an owner too many":  {vector.Space{Index: "manual", OwnerID: "ada"}, vector.Document{Text: "x"}, capability.ErrInvalidRequest},
			"nothing":            {notes, vector.Document{}, capability.ErrInvalidRequest},
			"bad id":             {notes, vector.Document{ID: "a/b", Text: "x"}, capability.ErrInvalidRequest},
			"unicode id":         {notes, vector.Document{ID: "ä", Text: "x"}, capability.ErrInvalidRequest},
			"long text":          {notes, vector.Document{Text: strings.Repeat("x", vector.MaxText+1)}, capability.ErrInvalidRequest},
			"NUL":                {notes, vector.Document{Text: "a\x00b"}, capability.ErrInvalidRequest},
			"model of no vector": {notes, vector.Document{Text: "x", Model: "m"}, capability.ErrInvalidRequest},
			"many keys": {notes, vector.Document{Text: "x", Metadata: func() map[string]any {
				m := map[string]any{}
				for i := range vector.MaxKeys + 1 {
					m[fmt.Sprint(i)] = i
				}
				return m
			}()}, capability.ErrInvalidRequest},
			"large metadata":   {notes, vector.Document{Text: "x", Metadata: map[string]any{"a": strings.Repeat("x", vector.MaxMetadata)}}, capability.ErrInvalidRequest},
			"metadata no JSON": {notes, vector.Document{Text: "x", Metadata: map[string]any{"a": math.NaN()}}, capability.ErrInvalidRequest},
			"dimensions":       {angles, vector.Document{Vector: []float32{1, 2, 3}}, vector.ErrDimensionMismatch},
			"no dimensions":    {angles, vector.Document{Vector: []float32{}}, vector.ErrDimensionMismatch},
			"NaN":              {angles, vector.Document{Vector: []float32{1, nan}}, capability.ErrInvalidRequest},
			"infinite":         {angles, vector.Document{Vector: []float32{inf, 1}}, capability.ErrInvalidRequest},
			"zero":             {angles, vector.Document{Vector: []float32{0, 0}}, capability.ErrInvalidRequest},
			"too long":         {vector.Space{Index: "weights", OwnerID: "ada"}, vector.Document{Vector: []float32{1e38, 1}}, capability.ErrInvalidRequest},
			"no embedder":      {angles, vector.Document{Text: "x"}, vector.ErrEmbedderNotConfigured},
		} {
			t.Run(name, func(t *testing.T) {
				_, err := n.Upsert(ctx, c.space, vector.Document{ID: "fine", Text: "fine", Vector: make([]float32, len(c.document.Vector))}, c.document)
				if c.document.Vector == nil || c.want != vector.ErrDimensionMismatch && err == nil {
					_, err = n.Upsert(ctx, c.space, c.document)
				}
				want(t, err, c.want)
			})
		}
		_, err := n.Get(ctx, notes, "fine")
		want(t, err, vector.ErrDocumentNotFound)
		must(n.Upsert(ctx, angles, vector.Document{ID: "huge", Vector: []float32{1e38, 3e38}}, vector.Document{ID: "tiny", Vector: []float32{1e-38, 3e-38}}))(t)
		equal(t, ids(must(n.Query(ctx, angles, vector.Query{Vector: []float32{3e38, 1e38}}))(t)), []string{"huge", "tiny"})
		must(n.Upsert(ctx, notes, vector.Document{ID: "by text", Text: "x"}, vector.Document{}))
		must(n.Upsert(ctx, notes, vector.Document{ID: "text", Text: "x"}))(t)
		_, err = n.Upsert(ctx, notes, vector.Document{ID: "brought", Vector: slices.Repeat([]float32{1}, 384)})
		want(t, err, vector.ErrModelMismatch)
		_, err = n.Upsert(ctx, notes, vector.Document{ID: "other", Text: "x"}, vector.Document{ID: "brought", Vector: slices.Repeat([]float32{1}, 384)})
		want(t, err, vector.ErrModelMismatch)
		must(n.Upsert(ctx, notes, vector.Document{ID: "brought", Model: "hashing-v1", Vector: slices.Repeat([]float32{1}, 384)}))(t)
		bob := vector.Space{Index: "notes", OwnerID: "bob"}
		must(n.Upsert(ctx, bob, vector.Document{ID: "brought", Vector: slices.Repeat([]float32{1}, 384)}))(t)
		_, err = n.Query(ctx, bob, vector.Query{Text: "x"})
		want(t, err, vector.ErrModelMismatch)
		_, err = n.Query(ctx, angles, vector.Query{Text: "x"})
		want(t, err, vector.ErrEmbedderNotConfigured)
		for name, q := range map[string]vector.Query{
			"nothing": {}, "two": {Text: "x", DocumentID: "a"}, "mode": {Text: "x", Mode: "guess"}, "many": {Text: "x", TopK: 101},
			"none": {Text: "x", TopK: -1}, "include": {Text: "x", Include: []string{"owner"}}, "precision": {Text: "x", Precision: "some"},
			"words without text": {Vector: slices.Repeat([]float32{1}, 384), Mode: vector.ModeHybrid},
			"words and vector":   {Text: "x", Vector: slices.Repeat([]float32{1}, 384), Mode: vector.ModeText},
			"filter":             {Text: "x", Filter: vector.Filter{"unknown": 1}},
			"NaN":                {Vector: append(slices.Repeat([]float32{1}, 383), nan)},
			"infinite":           {Vector: append(slices.Repeat([]float32{1}, 383), -inf)},
			"zero":               {Vector: make([]float32, 384)},
		} {
			if _, err := n.Query(ctx, notes, q); !errors.Is(err, capability.ErrInvalidRequest) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err = n.Query(ctx, notes, vector.Query{Vector: []float32{1}})
		want(t, err, vector.ErrDimensionMismatch)
	})
}

// TestWordsWithAFilter checks that a filter finds a document that ranks after thousands of others
// with the words of the query.
func TestWordsWithAFilter(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, space := t.Context(), vector.Space{Index: "tagged", OwnerID: "ada"}
		must(n.Upsert(ctx, space, vector.Document{ID: "rare", Vector: []float32{1}, Text: "an apple among many other words", Metadata: map[string]any{"kind": "rare"}}))(t)
		for batch := range 51 {
			var list []vector.Document
			for i := range 100 {
				list = append(list, vector.Document{ID: fmt.Sprint(batch, "-", i), Vector: []float32{1}, Text: "apple"})
			}
			must(n.Upsert(ctx, space, list...))(t)
		}
		for kind, want := range map[string][]string{"rare": {"rare"}, "none": nil} {
			a := must(n.Query(ctx, space, vector.Query{Text: "apple", Mode: vector.ModeText, Filter: vector.Filter{"kind": kind}}))(t)
			equal(t, ids(a), want)
			equal(t, a.Exact, true)
		}
	})
}

func TestWordsWithAFilterInATransaction(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		space := vector.Space{Index: "tagged", OwnerID: "ada"}
		document := func(id string) vector.Document {
			return vector.Document{ID: id, Vector: []float32{1}, Text: "apple", Metadata: map[string]any{"kind": "fruit"}}
		}
		wantIDs := func(ctx context.Context, want ...string) {
			t.Helper()
			a := must(n.Query(ctx, space, vector.Query{Text: "apple", Mode: vector.ModeText, Filter: vector.Filter{"kind": "fruit"}}))(t)
			equal(t, slices.Sorted(slices.Values(ids(a))), want)
		}
		must(n.Upsert(t.Context(), space, document("a"), document("b"), document("c")))(t)
		wantIDs(t.Context(), "a", "b", "c")
		if err := n.db.InTx(t.Context(), func(ctx context.Context) error {
			must(n.Upsert(ctx, space, document("b"), document("d")))(t)
			if err := n.Delete(ctx, space, "c"); err != nil {
				return err
			}
			wantIDs(ctx, "a", "b", "d")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestInGo counts, scrolls, describes and deletes by filter.
func TestInGo(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, space := t.Context(), vector.Space{Index: "manual"}
		_, err := n.Count(ctx, space, vector.Filter{"kind": "x"})
		want(t, err, capability.ErrInvalidRequest)
		notes := vector.Space{Index: "notes", OwnerID: "ada"}
		for batch := range 12 {
			var list []vector.Document
			for i := range 100 {
				list = append(list, vector.Document{ID: fmt.Sprintf("d%02d%02d", batch, i), Text: fmt.Sprintf("number %d", i),
					Metadata: map[string]any{"year": i, "kind": "a"}})
			}
			must(n.Upsert(ctx, notes, list...))(t)
		}
		old := vector.Filter{"year": map[string]any{"lt": 50}}
		equal(t, must(n.Count(ctx, notes, old))(t), int64(600))
		equal(t, must(n.Count(ctx, notes, nil))(t), int64(1200))
		if err := n.UpdateMetadata(ctx, notes, "d0000", map[string]any{"year": 99}); err != nil {
			t.Fatal(err)
		}
		a := must(n.Query(ctx, notes, vector.Query{Text: "number 0", Filter: vector.Filter{"year": 99}, TopK: 100}))(t)
		if len(a.Items) != 13 || a.Items[0].ID != "d0000" {
			t.Errorf("%d %v", len(a.Items), ids(a))
		}
		equal(t, must(n.DeleteWhere(ctx, notes, old))(t), int64(599))
		_, err = n.DeleteWhere(ctx, notes, nil)
		want(t, err, capability.ErrInvalidRequest)
		equal(t, len(must(n.Query(ctx, notes, vector.Query{Text: "number 7", Filter: old}))(t).Items), 0)
		var seen []string
		for cursor := ""; ; {
			page := must(n.Scroll(ctx, notes, capability.NewPage(200, cursor)))(t)
			for _, d := range page.Items {
				seen = append(seen, d.ID)
			}
			if page.NextCursor == nil {
				break
			}
			cursor = *page.NextCursor
		}
		if len(seen) != 601 || !slices.IsSorted(seen) {
			t.Errorf("scrolled %d", len(seen))
		}
		equal(t, len(must(n.Scroll(ctx, notes, capability.Page{}))(t).Items), capability.DefaultLimit)
	})
}

// TestExportErase checks that a person's data is exported completely and then erased completely.
func TestExportErase(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx := t.Context()
		for _, owner := range []string{"ada", "bob"} {
			for i := range 7 {
				var list []vector.Document
				for j := range 100 {
					list = append(list, vector.Document{ID: fmt.Sprintf("%d-%d", i, j), Text: "of " + owner})
				}
				must(n.Upsert(ctx, vector.Space{Index: "notes", OwnerID: owner}, list...))(t)
			}
			must(n.Query(ctx, vector.Space{Index: "notes", OwnerID: owner}, vector.Query{Text: "of"}))(t)
		}
		must(n.Upsert(ctx, vector.Space{Index: "manual"}, vector.Document{ID: "a", Text: "for all"}))(t)
		ada, exported := capability.Person{ID: "ada"}, 0
		c := n.Capability()
		if err := c.Export(ctx, ada, func(kind string, record any) error { exported++; return nil }); err != nil || exported != 700 {
			t.Errorf("exported %d: %v", exported, err)
		}
		out := must(c.Erase(ctx, ada))(t)
		if out.Removed != 700 || len(out.Kept) != 0 {
			t.Errorf("%+v", out)
		}
		equal(t, must(c.Erase(ctx, ada))(t).Removed, int64(0))
		equal(t, len(must(n.Query(ctx, vector.Space{Index: "notes", OwnerID: "ada"}, vector.Query{Text: "of ada"}))(t).Items), 0)
		must(n.Upsert(ctx, vector.Space{Index: "notes", OwnerID: "ada"}, vector.Document{ID: "new", Text: "of ada"}))(t)
		equal(t, ids(must(n.Query(ctx, vector.Space{Index: "notes", OwnerID: "ada"}, vector.Query{Text: "of ada"}))(t)), []string{"new"})
		equal(t, must(n.Count(ctx, vector.Space{Index: "notes", OwnerID: "bob"}, nil))(t), int64(700))
		equal(t, must(n.Count(ctx, vector.Space{Index: "manual"}, nil))(t), int64(1))
	})
}
