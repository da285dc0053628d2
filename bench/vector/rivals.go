package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/philippgille/chromem-go"
	_ "modernc.org/sqlite"
	_ "modernc.org/sqlite/vec"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/vector"
	"github.com/kitbackend/kit/vector/pgvector"
)

func rivals() []rival {
	list := []rival{&naive{}, &kitRival{}, &chromemRival{}, &sqliteVec{}}
	if *pgvectorURL != "" {
		list = append(list, &kitRival{url: *pgvectorURL})
	}
	return list
}

// naive is a plain loop over the rows, with the best in a short list.
type naive struct{ rows [][]float32 }

func (n *naive) name() string                                   { return "naive" }
func (n *naive) quick() bool                                    { return false }
func (n *naive) close()                                         {}
func (n *naive) load(_ context.Context, rows [][]float32) error { n.rows = rows; return nil }

func (n *naive) search(_ context.Context, query []float32, below int) ([]int, error) {
	type hit struct {
		row   int
		score float32
	}
	var best []hit
	for i, row := range n.rows {
		if below > 0 && i%100 >= below {
			continue
		}
		var sum float32
		for j, x := range row {
			sum += x * query[j]
		}
		if len(best) < wanted || sum > best[wanted-1].score {
			at, _ := slices.BinarySearchFunc(best, sum, func(h hit, s float32) int { return cmp.Compare(s, h.score) })
			best = slices.Insert(best, at, hit{i, sum})
			best = best[:min(len(best), wanted)]
		}
	}
	rows := make([]int, len(best))
	for i, h := range best {
		rows[i] = h.row
	}
	return rows, nil
}

// kitRival is the kit, on a SQLite file or on PostgreSQL with pgvector.
type kitRival struct {
	url    string
	k      *kit.Kit
	folder string
}

var shared = vector.Space{Index: "x"}

func (r *kitRival) name() string {
	if r.url != "" {
		return "pgvector"
	}
	return "kit"
}

func (r *kitRival) quick() bool { return true }

func (r *kitRival) open(ctx context.Context) (err error) {
	cfg := vector.Config{MemoryBytes: 8 << 30, Indexes: []vector.Index{{Name: "x", Dimensions: dimensions, VectorsOnly: true,
		Scope: vector.ScopeShared, Filterable: []string{"n"}, MaxDocuments: 2_000_000}}}
	var db *database.DB
	if r.url != "" {
		cfg.Engine = pgvector.New(pgvector.Config{})
		db, err = postgres.Open(ctx, r.url)
	} else {
		path := *file
		if path == "" {
			if r.folder, err = os.MkdirTemp("", "kit-bench"); err != nil {
				return err
			}
			path = filepath.Join(r.folder, "kit.db")
		}
		db, err = database.OpenFile(path)
	}
	if err != nil {
		return err
	}
	r.k, err = kit.New(kit.WithDatabase(db), kit.WithVector(cfg))
	return err
}

func (r *kitRival) load(ctx context.Context, rows [][]float32) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	began := time.Now()
	for first := 0; first < len(rows); first += vector.MaxBatch {
		var list []vector.Document
		for i, row := range rows[first:min(first+vector.MaxBatch, len(rows))] {
			list = append(list, vector.Document{ID: strconv.Itoa(first + i), Vector: row, Metadata: map[string]any{"n": (first + i) % 100}})
		}
		if _, err := r.k.Vector().Upsert(ctx, shared, list...); err != nil {
			return err
		}
	}
	written := time.Since(began)
	began = time.Now()
	if _, err := r.search(ctx, rows[0], 0); err != nil {
		return err
	}
	loaded := time.Since(began)
	for range 1000 { // until the partition is trained, or the index created
		if a, err := r.k.Vector().Query(ctx, shared, vector.Query{Vector: rows[0]}); err != nil || !a.Exact {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Printf("%-22s written in %.1f s, first query %.2f s, ready after %.2f s more\n", "  "+r.name(), written.Seconds(), loaded.Seconds(),
		(time.Since(began) - loaded).Seconds())
	return nil
}

func (r *kitRival) search(ctx context.Context, query []float32, below int) ([]int, error) {
	q := vector.Query{Vector: query, TopK: wanted}
	if below > 0 {
		q.Filter = vector.Filter{"n": map[string]any{"lt": below}}
	}
	a, err := r.k.Vector().Query(ctx, shared, q)
	rows := make([]int, len(a.Items))
	for i, m := range a.Items {
		rows[i], _ = strconv.Atoi(m.ID)
	}
	return rows, err
}

// upserts measures durable upserts of existing documents, one and a hundred at a time.
func (r *kitRival) upserts(ctx context.Context, rows [][]float32) error {
	for _, size := range []int{1, vector.MaxBatch} {
		perSecond, err := callers(8, func(i int) error {
			list := make([]vector.Document, size)
			for j := range list {
				at := (i*size + j) % len(rows)
				list[j] = vector.Document{ID: strconv.Itoa(at), Vector: rows[at], Metadata: map[string]any{"n": at % 100}}
			}
			_, err := r.k.Vector().Upsert(ctx, shared, list...)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Printf("%-22s %.0f documents/s\n", fmt.Sprintf("  upserts of %d", size), perSecond*float64(size))
	}
	return nil
}

func (r *kitRival) close() {
	_ = r.k.Close(context.Background())
	_ = os.RemoveAll(r.folder)
}

// chromemRival is chromem-go.
type chromemRival struct{ c *chromem.Collection }

func (r *chromemRival) name() string { return "chromem" }
func (r *chromemRival) quick() bool  { return false }
func (r *chromemRival) close()       {}

func (r *chromemRival) load(ctx context.Context, rows [][]float32) (err error) {
	embed := func(context.Context, string) ([]float32, error) { return nil, fmt.Errorf("no text") }
	if r.c, err = chromem.NewDB().CreateCollection("x", nil, embed); err != nil {
		return err
	}
	documents := make([]chromem.Document, len(rows))
	for i, row := range rows {
		// Filters only compare for equality: a mark for each width.
		metadata := map[string]string{}
		for _, below := range []int{1, 10, 50} {
			metadata[fmt.Sprint("below", below)] = strconv.FormatBool(i%100 < below)
		}
		documents[i] = chromem.Document{ID: strconv.Itoa(i), Embedding: row, Metadata: metadata}
	}
	return r.c.AddDocuments(ctx, documents, 2)
}

func (r *chromemRival) search(ctx context.Context, query []float32, below int) ([]int, error) {
	var where map[string]string
	if below > 0 {
		where = map[string]string{fmt.Sprint("below", below): "true"}
	}
	found, err := r.c.QueryEmbedding(ctx, query, wanted, where, nil)
	rows := make([]int, len(found))
	for i, d := range found {
		rows[i], _ = strconv.Atoi(d.ID)
	}
	return rows, err
}

// sqliteVec is sqlite-vec in the kit's SQLite library.
type sqliteVec struct{ db *sql.DB }

func (r *sqliteVec) name() string { return "sqlite-vec" }
func (r *sqliteVec) quick() bool  { return false }
func (r *sqliteVec) close()       { _ = r.db.Close() }

func (r *sqliteVec) load(ctx context.Context, rows [][]float32) (err error) {
	if r.db, err = sql.Open("sqlite", ":memory:"); err != nil {
		return err
	}
	r.db.SetMaxOpenConns(1)
	if _, err := r.db.ExecContext(ctx, fmt.Sprintf(`CREATE VIRTUAL TABLE v USING vec0(embedding float[%d] distance_metric=cosine, n integer)`, dimensions)); err != nil {
		return err
	}
	tx, err := r.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	insert, err := tx.PrepareContext(ctx, `INSERT INTO v (rowid, embedding, n) VALUES (?, ?, ?)`)
	if err != nil {
		return err
	}
	for i, row := range rows {
		if _, err := insert.ExecContext(ctx, i, blob(row), i%100); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func blob(row []float32) string {
	text, _ := json.Marshal(row)
	return string(text)
}

func (r *sqliteVec) search(ctx context.Context, query []float32, below int) ([]int, error) {
	where := ""
	if below > 0 {
		where = fmt.Sprintf(" AND n < %d", below)
	}
	found, err := r.db.QueryContext(ctx, `SELECT rowid FROM v WHERE embedding MATCH ? AND k = ?`+where+` ORDER BY distance`, blob(query), wanted)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var rows []int
	for found.Next() {
		var row int
		if err := found.Scan(&row); err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, found.Err()
}
