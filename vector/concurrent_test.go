package vector_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/vector"
)

// TestConcurrent runs writers, deleters and readers on one partition: the next query finds what was
// added, and never what was deleted.
func TestConcurrent(t *testing.T) {
	each(t, func(t *testing.T, n *node) { concurrent(t, n, n) })
}

// TestNodes is TestConcurrent with each caller on another node.
func TestNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	concurrent(t, open(t, dbs[0], config, vector.Peers{}), open(t, dbs[1], config, vector.Peers{}))
}

func concurrent(t *testing.T, nodes ...*node) {
	ctx, space := t.Context(), vector.Space{Index: "angles", OwnerID: "ada"}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(w), 1))
			own := []float32{float32(w) + 1, 1}
			for i := range 15 {
				id := fmt.Sprintf("%d-%d", w, i%3)
				writes, reads := nodes[dice.IntN(len(nodes))], nodes[dice.IntN(len(nodes))]
				if _, err := writes.Upsert(ctx, space, vector.Document{ID: id, Vector: own}); err != nil {
					t.Error(err)
					return
				}
				find := func(want bool) {
					a, err := reads.Query(ctx, space, vector.Query{Vector: own, TopK: 100})
					if err != nil {
						t.Error(err)
					} else if slices.Contains(ids(a), id) != want {
						t.Errorf("%s after its change: found is %v", id, !want)
					}
				}
				find(true)
				if dice.IntN(2) == 0 {
					if err := writes.Delete(ctx, space, id); err != nil {
						t.Error(err)
					}
					find(false)
				}
			}
		})
	}
	wg.Wait()
	first := must(nodes[0].Query(ctx, space, vector.Query{Vector: []float32{1, 1}, TopK: 100}))(t)
	count := must(nodes[0].Count(ctx, space, nil))(t)
	if int64(len(first.Items)) != count {
		t.Errorf("finds %d of %d", len(first.Items), count)
	}
}

// TestDeleteWhereLeavesWhatChanged checks that a document stays if it was changed so that the
// filter no longer matches.
func TestDeleteWhereLeavesWhatChanged(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		ctx, space := t.Context(), vector.Space{Index: "notes", OwnerID: "ada"}
		for range 5 {
			var list []vector.Document
			for i := range 50 {
				list = append(list, vector.Document{ID: fmt.Sprint(i), Text: "x", Metadata: map[string]any{"kind": "old"}})
			}
			must(n.Upsert(ctx, space, list...))(t)
			var wg sync.WaitGroup
			for _, d := range list {
				wg.Go(func() {
					err := n.UpdateMetadata(ctx, space, d.ID, map[string]any{"kind": "new"})
					if errors.Is(err, vector.ErrDocumentNotFound) {
						return // deleted before the change
					}
					if _, got := n.Get(ctx, space, d.ID); err != nil || got != nil {
						t.Errorf("%s after its change: %v, %v", d.ID, err, got)
					}
				})
			}
			wg.Go(func() { must(n.DeleteWhere(ctx, space, vector.Filter{"kind": "old"}))(t) })
			wg.Wait()
			equal(t, must(n.Count(ctx, space, vector.Filter{"kind": "old"}))(t), int64(0))
		}
	})
}

// TestRestart checks that a new node returns what the old one did, also for a partition that is
// read in pages and estimated.
func TestRestart(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		cfg := vector.Config{Indexes: []vector.Index{{Name: "many", Dimensions: 64, VectorsOnly: true, Filterable: []string{"n"}}}}
		n, space, ctx := open(t, db, cfg, vector.Peers{}), vector.Space{Index: "many", OwnerID: "ada"}, t.Context()
		dice := rand.New(rand.NewPCG(3, 4))
		point := func() []float32 {
			p := make([]float32, 64)
			for i := range p {
				p[i] = float32(dice.NormFloat64())
			}
			return p
		}
		for batch := range 45 {
			var list []vector.Document
			for i := range 100 {
				list = append(list, vector.Document{ID: fmt.Sprintf("%d", batch*100+i), Vector: point(), Metadata: map[string]any{"n": i}})
			}
			must(n.Upsert(ctx, space, list...))(t)
		}
		query := vector.Query{Vector: point(), TopK: 20, Precision: vector.PrecisionExact}
		must(n.Query(ctx, space, query))(t)
		for i := range 10 {
			if err := n.Delete(ctx, space, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		before := must(n.Query(ctx, space, query))(t)
		fresh := open(t, db, cfg, vector.Peers{})
		after := must(fresh.Query(ctx, space, query))(t)
		before.TookMS, after.TookMS = 0, 0
		equal(t, after, before)
		query.Filter = vector.Filter{"n": map[string]any{"in": []any{1, 2}}}
		equal(t, ids(must(fresh.Query(ctx, space, query))(t)), ids(must(n.Query(ctx, space, query))(t)))
		n.advance(vector.KeepRemovals + 1)
		fresh.advance(vector.KeepRemovals + 1)
		must(n.queue.RunDue(ctx))(t)
		equal(t, ids(must(open(t, db, cfg, vector.Peers{}).Query(ctx, space, query))(t)), ids(must(n.Query(ctx, space, query))(t)))
	})
}

// TestTransactionCatchesUp checks that a query in a transaction reads everything that its node does
// not have in memory, however much, and whatever the current maxDocuments.
func TestTransactionCatchesUp(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		with := func(most int64) *node {
			return open(t, db, vector.Config{Indexes: []vector.Index{
				{Name: "x", Dimensions: 2, VectorsOnly: true, Filterable: []string{"gone"}, MaxDocuments: most}}}, vector.Peers{})
		}
		writes, reads := with(2000), with(1)
		ctx, space := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
		inside := func(y float32) (found []string) {
			if err := db.InTx(ctx, func(ctx context.Context) error {
				found = ids(must(reads.Query(ctx, space, vector.Query{Vector: []float32{1, y}, TopK: 1}))(t))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return found
		}
		must(writes.Upsert(ctx, space, vector.Document{ID: "a", Vector: []float32{1, 1}}, vector.Document{ID: "b", Vector: []float32{1, 2}}))(t)
		equal(t, inside(2), []string{"b"})
		for _, batches := range []int{1, 11} { // less than a page, and more
			must(writes.Upsert(ctx, space, vector.Document{ID: "near", Vector: []float32{1, -2}}))(t)
			equal(t, ids(must(reads.Query(ctx, space, vector.Query{Vector: []float32{1, -2}, TopK: 1}))(t)), []string{"near"})
			for batch := range batches {
				var list []vector.Document
				for i := range 100 {
					list = append(list, vector.Document{ID: fmt.Sprint(batch, "-", i), Vector: []float32{1, float32(batch + 3)}, Metadata: map[string]any{"gone": true}})
				}
				must(writes.Upsert(ctx, space, list...))(t)
			}
			equal(t, inside(float32(batches+2)), []string{fmt.Sprint(batches-1, "-", 0)})
			must(writes.DeleteWhere(ctx, space, vector.Filter{"gone": true}))(t)
			if err := writes.Delete(ctx, space, "near"); err != nil {
				t.Fatal(err)
			}
			equal(t, inside(-2), []string{"a"})
		}
	})
}

// TestSweptRemovals checks that a node that was idle longer than removals are kept reads the whole
// partition.
func TestSweptRemovals(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	awake, asleep := open(t, dbs[0], config, vector.Peers{}), open(t, dbs[1], config, vector.Peers{})
	ctx, space := t.Context(), vector.Space{Index: "angles", OwnerID: "ada"}
	must(awake.Upsert(ctx, space, vector.Document{ID: "a", Vector: []float32{1, 1}}, vector.Document{ID: "b", Vector: []float32{1, 2}}))(t)
	all := vector.Query{Vector: []float32{1, 1}}
	equal(t, ids(must(asleep.Query(ctx, space, all))(t)), []string{"a", "b"})
	if err := awake.Delete(ctx, space, "a"); err != nil {
		t.Fatal(err)
	}
	awake.advance(2 * vector.KeepRemovals)
	must(awake.queue.RunDue(ctx))(t)
	equal(t, ids(must(asleep.Query(ctx, space, all))(t)), []string{"b"})
}

// TestMemoryLimit checks that partitions over the limit are dropped and reloaded.
func TestMemoryLimit(t *testing.T) {
	db := databasetest.Memory(t)
	n := open(t, db, vector.Config{MemoryBytes: 4 << 10, Indexes: []vector.Index{{Name: "small", Dimensions: 2, VectorsOnly: true, MaxDocuments: 10}}}, vector.Peers{})
	for round := range 3 {
		for owner := range 30 {
			space := vector.Space{Index: "small", OwnerID: fmt.Sprint(owner)}
			must(n.Upsert(t.Context(), space, vector.Document{ID: fmt.Sprint(round), Vector: []float32{1, float32(owner)}}))(t)
			equal(t, len(must(n.Query(t.Context(), space, vector.Query{Vector: []float32{1, 1}}))(t).Items), round+1)
		}
	}
	for _, key := range n.Capability().Health {
		if value := must(key.Read(t.Context()))(t); key.Key == "memoryBytes" && value.(int64) > 4<<10 {
			t.Errorf("%v bytes in memory", value)
		}
	}
}

// fake is an embedder with a model name.
type fake struct {
	model string
	err   error
	// during is called by the next Embed, if not nil.
	during func()
}

func (f *fake) Model() string   { return f.model }
func (f *fake) Dimensions() int { return 8 }
func (f *fake) Embed(_ context.Context, texts []string) ([][]float32, int64, error) {
	if during := f.during; during != nil {
		f.during = nil
		during()
	}
	vectors := make([][]float32, len(texts))
	for i, text := range texts {
		vectors[i] = []float32{1, float32(len(f.model)), float32(len(text)), 0, 0, 0, 0, 0}
	}
	return vectors, int64(len(texts)), f.err
}

// embedder opens a node whose index x is embedded by a fake model.
func embedder(t *testing.T, db *database.DB, f *fake) *node {
	t.Helper()
	return open(t, db, vector.Config{Indexes: []vector.Index{{Name: "x", Embedder: f}}}, vector.Peers{})
}

// TestReembed checks that a new model is refused until the job has embedded all texts again.
func TestReembed(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, ada, bob := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}, vector.Space{Index: "x", OwnerID: "bob"}
		old := embedder(t, db, &fake{model: "old"})
		for batch := range 2 {
			var list []vector.Document
			for i := range 80 {
				list = append(list, vector.Document{ID: fmt.Sprintf("%d-%d", batch, i), Text: fmt.Sprintf("text %d", i)})
			}
			equal(t, must(old.Upsert(ctx, ada, list...))(t).Usage.EmbeddedTokens, int64(80))
		}
		must(old.Upsert(ctx, bob, vector.Document{ID: "no-text", Model: "old", Vector: []float32{1, 1, 1, 1, 1, 1, 1, 1}}))(t)
		f := &fake{model: "newer"}
		n := embedder(t, db, f)
		_, err := n.Query(ctx, ada, vector.Query{Text: "text"})
		want(t, err, vector.ErrModelMismatch)
		_, err = n.Upsert(ctx, ada, vector.Document{Text: "text"})
		want(t, err, vector.ErrModelMismatch)
		want(t, n.Reembed(ctx, "none"), vector.ErrIndexNotFound)
		outdated := func() any {
			for _, key := range n.Capability().Health {
				if key.Key == "outdated" {
					return must(key.Read(ctx))(t)
				}
			}
			return nil
		}
		equal(t, outdated(), any(map[string]int64{"x": 161}))
		if err := n.Reembed(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		must(n.queue.RunDue(ctx))(t)
		equal(t, outdated(), any(map[string]int64{"x": 1}))
		a := must(n.Query(ctx, ada, vector.Query{Text: "text 1", Include: []string{"vector"}}))(t)
		if len(a.Items) != 10 || a.Items[0].Vector[1] != 5 {
			t.Errorf("%+v", a)
		}
		d := must(n.Get(ctx, ada, "0-0"))(t)
		equal(t, d.Model, "newer")
		f.err = errors.New("down")
		_, err = n.Query(ctx, ada, vector.Query{Text: "text"})
		want(t, err, vector.ErrEmbeddingFailed)
		f.err = nil
		err = n.db.InTx(ctx, func(ctx context.Context) error {
			_, err := n.Upsert(ctx, ada, vector.Document{Text: "text"})
			return err
		})
		if err == nil || errors.As(err, new(*capability.Error)) {
			t.Errorf("embedded in a transaction: %v", err)
		}
		documents := must(n.Embed(ctx, "x", vector.Document{ID: "before", Text: "text"}))(t)
		if err := n.db.InTx(ctx, func(ctx context.Context) error {
			_, err := n.Upsert(ctx, ada, documents...)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestReembedKeepsNothingOfADocumentThatIsDeletedMeanwhile(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, ada := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
		old := embedder(t, db, &fake{model: "old"})
		for i := range 64 { // the size of a batch
			must(old.Upsert(ctx, ada, vector.Document{ID: fmt.Sprintf("a%02d", i), Text: "text"}))(t)
		}
		must(old.Upsert(ctx, ada, vector.Document{ID: "no-text", Model: "old", Vector: []float32{1, 1, 1, 1, 1, 1, 1, 1}}))(t)
		f := &fake{model: "newer"}
		n := embedder(t, db, f)
		f.during = func() {
			if err := n.Delete(ctx, ada, "a00"); err != nil {
				t.Error(err)
			}
		}
		if err := n.Reembed(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		must(n.queue.RunDue(ctx))(t)
		rows := func(of string) (count int64) {
			if err := n.db.QueryRow(ctx, `SELECT count(*) FROM vector_embedding`+of).Scan(&count); err != nil {
				t.Fatal(err)
			}
			return count
		}
		equal(t, rows(``), int64(63))
		equal(t, rows(` WHERE id = 'a00'`), int64(0))
		if _, err := n.db.Exec(ctx, `UPDATE vector_embedding SET id = 'gone' WHERE id = 'a01'`); err != nil { // as older versions left them
			t.Fatal(err)
		}
		if _, err := n.Capability().Erase(ctx, capability.Person{ID: "ada"}); err != nil {
			t.Fatal(err)
		}
		equal(t, rows(``), int64(0))
	})
}

func TestReembedWaitsForANodeOfItsModel(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, ada := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
		old := embedder(t, db, &fake{model: "old"})
		must(old.Upsert(ctx, ada, vector.Document{ID: "a", Text: "text"}))(t)
		newer, newest := embedder(t, db, &fake{model: "newer"}), embedder(t, db, &fake{model: "newest"})
		run := func(n *node, after time.Duration, model string) {
			t.Helper()
			n.advance(after)
			must(n.queue.RunDue(ctx))(t)
			equal(t, must(n.Get(ctx, ada, "a"))(t).Model, model)
		}
		for _, n := range []*node{newer, newest} { // the second starts before the first is done
			if err := n.Reembed(ctx, "x"); err != nil {
				t.Fatal(err)
			}
		}
		run(old, time.Minute, "old")
		run(newest, time.Hour, "newest")
	})
}

func TestReembedOfALaterModelComesLast(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, ada := t.Context(), vector.Space{Index: "x", OwnerID: "ada"}
		old := embedder(t, db, &fake{model: "old"})
		must(old.Upsert(ctx, ada, vector.Document{ID: "a", Text: "text"}))(t)
		f := &fake{model: "newer"}
		newer, newest := embedder(t, db, f), embedder(t, db, &fake{model: "newest"})
		if err := newer.Reembed(ctx, "x"); err != nil {
			t.Fatal(err)
		}
		f.during = func() {
			if err := newest.Reembed(ctx, "x"); err != nil {
				t.Error(err)
			}
			must(newest.queue.RunDue(ctx))(t)
		}
		must(newer.queue.RunDue(ctx))(t)
		newest.advance(time.Hour)
		must(newest.queue.RunDue(ctx))(t)
		equal(t, must(newest.Get(ctx, ada, "a"))(t).Model, "newest")
	})
}
