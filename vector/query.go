package vector

import (
	"cmp"
	"context"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/vector/internal/flat"
)

const (
	// fusion dampens the first ranks of a list, as in reciprocal rank fusion.
	fusion = 60
	// fused is the minimum length of each list to fuse.
	fused = 100
	// foundFirst is how many documents with a word a query with a filter reads first, and maxFound
	// how many in all.
	foundFirst, maxFound = 5000, 100_000
	// looks is how often a query starts over if documents change concurrently.
	looks = 3
)

// question is a checked query.
type question struct {
	Query
	index  *Index
	filter *condition
	words  textQuery
	vector []float32
}

// Query returns the nearest documents of a space, best first. Refuses with vector/index_not_found,
// vector/document_not_found for a DocumentID, vector/dimension_mismatch, vector/model_mismatch,
// vector/embedder_not_configured, vector/embedding_failed and kit/invalid_request.
func (v *Vector) Query(ctx context.Context, space Space, query Query) (Result, error) {
	began := v.now()
	x, err := v.index(space)
	if err != nil {
		return Result{}, err
	}
	q, err := x.ask(query)
	if err != nil {
		return Result{}, err
	}
	if err := v.resolve(ctx, space, q); err != nil {
		return Result{}, err
	}
	result := Result{Items: []Match{}, Mode: q.Mode, Exact: true}
	for look := 1; look <= looks; look++ {
		p, ok, err := v.store.partition(ctx, space)
		if err != nil {
			return Result{}, err
		}
		if !ok || p.documents == 0 {
			break
		}
		if q.comparesModels() && p.model != x.model() {
			return Result{}, ErrModelMismatch
		}
		found, exact, err := v.find(ctx, space, p, q)
		if err != nil {
			return Result{}, err
		}
		matches, whole, err := v.read(ctx, p, q, found)
		if err != nil {
			return Result{}, err
		}
		if result.Items, result.Exact = matches, exact; whole {
			break
		}
	}
	result.TookMS = v.now().Sub(began).Milliseconds()
	return result, nil
}

// ask checks a query.
func (x *Index) ask(query Query) (*question, error) {
	q := &question{Query: query, index: x}
	q.Mode = cmp.Or(q.Mode, ModeVector)
	q.TopK = cmp.Or(q.TopK, 10)
	q.Precision = cmp.Or(q.Precision, PrecisionDefault)
	if q.Include == nil {
		q.Include = []string{"metadata"}
	}
	if err := q.check(); err != nil {
		return nil, err
	}
	var err error
	if q.filter, err = parseFilter(q.Filter, x.Filterable); err != nil {
		return nil, err
	}
	if q.Mode != ModeVector {
		q.words = parseText(q.Text)
	}
	return q, nil
}

func (q *question) check() error {
	invalid := capability.ErrInvalidRequest
	if err := capability.CheckText("text", q.Text, 0, MaxQuery); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{q.Text != "", q.Vector != nil, q.DocumentID != ""} {
		if is {
			given++
		}
	}
	switch {
	case !slices.Contains([]Mode{ModeVector, ModeText, ModeHybrid}, q.Mode):
		return invalid.Saying("mode is vector, text or hybrid.")
	case q.Precision != PrecisionDefault && q.Precision != PrecisionExact:
		return invalid.Saying("precision is default or exact.")
	case q.TopK < 1 || q.TopK > MaxTopK:
		return invalid.Saying("topK is a number from 1 to %d.", MaxTopK)
	case slices.ContainsFunc(q.Include, func(s string) bool { return s != "metadata" && s != "text" && s != "vector" }):
		return invalid.Saying("include lists metadata, text and vector.")
	case q.Mode == ModeVector && given != 1:
		return invalid.Saying("Exactly one of text, vector and documentId is given.")
	case q.Mode != ModeVector && (q.Text == "" || q.DocumentID != ""):
		return invalid.Saying("A query by words takes a text, and no documentId.")
	case q.Mode == ModeText && q.Vector != nil:
		return invalid.Saying("A query by words alone takes no vector.")
	case q.Vector != nil:
		return q.index.checkVector("vector", q.Vector)
	}
	return nil
}

// comparesModels reports whether the query's vector is made by the index's embedder.
func (q *question) comparesModels() bool {
	return q.Mode != ModeText && q.Vector == nil && q.DocumentID == ""
}

// resolve sets the vector of a query.
func (v *Vector) resolve(ctx context.Context, space Space, q *question) error {
	switch {
	case q.Mode == ModeText:
		return nil
	case q.Vector != nil:
		q.vector = q.Vector
		return nil
	case q.DocumentID != "":
		d, err := v.Get(ctx, space, q.DocumentID)
		q.vector = d.Vector
		return err
	}
	vectors, _, err := v.embed(ctx, q.index, []string{q.Text})
	if err == nil {
		q.vector = vectors[0]
	}
	return err
}

// found is an ID in the order of a result.
type found struct {
	id       string
	revision int64 // 0: any
	score    float64
	distance *float64
}

// find returns the best IDs; exact reports that all were compared.
func (v *Vector) find(ctx context.Context, space Space, p partition, q *question) (list []found, exact bool, err error) {
	if v.cfg.Engine != nil {
		list, exact, ready, err := v.findInDatabase(ctx, p, q)
		if err != nil || ready {
			return list, exact, err
		}
	}
	return v.findInMemory(ctx, space, p, q)
}

func (v *Vector) findInMemory(ctx context.Context, space Space, p partition, q *question) (list []found, exact bool, err error) {
	var view *flat.View
	var among flat.Bitmap
	if q.Mode != ModeText || q.filter != nil {
		if view, err = v.cache.view(ctx, q.index, space, p); err != nil {
			return nil, false, err
		}
	}
	if q.filter != nil {
		among = q.filter.rows(view)
	}
	exact = true
	if q.Mode != ModeText {
		var hits []flat.Hit
		hits, exact = view.Search(q.vector, q.wanted(), among, q.Precision == PrecisionExact)
		list = q.scored(hits)
	}
	list, all, err := v.withWords(ctx, p, q, list, func(_ context.Context, ids []string) ([]string, error) { return view.Keep(ids, among), nil })
	return list, exact && all, err
}

// wanted returns how many of the nearest documents a query needs.
func (q *question) wanted() int {
	k := q.TopK
	if q.DocumentID != "" {
		k++ // the document itself
	}
	if q.Mode == ModeHybrid {
		k = max(k, fused)
	}
	return k
}

// scored returns hits with the scores and distances of the metric.
func (q *question) scored(hits []flat.Hit) []found {
	list := make([]found, 0, len(hits))
	for _, hit := range hits {
		if hit.ID == q.DocumentID {
			continue
		}
		score, distance := hit.Score, -hit.Score
		switch q.index.Metric {
		case MetricCosine:
			score = max(-1, min(1, score))
			distance = 1 - score
		case MetricEuclidean:
			score = 1 / (1 + distance)
		default:
		}
		list = append(list, found{hit.ID, hit.Revision, score, &distance})
	}
	return list
}

// withWords fuses the nearest documents with those that have the query's words, of which keep
// returns those that match the filter, and truncates the list. exact is false if the filter was not
// applied to all of them.
func (v *Vector) withWords(ctx context.Context, p partition, q *question, list []found, keep keeper) (_ []found, exact bool, err error) {
	exact = true
	if q.Mode != ModeVector {
		var named []string
		if named, exact, err = v.named(ctx, p, q, keep); err != nil {
			return nil, false, err
		}
		list = fuse(list, named)
	}
	if q.MinScore != nil {
		list = slices.DeleteFunc(list, func(f found) bool { return f.score < *q.MinScore })
	}
	return list[:min(len(list), q.TopK)], exact, nil
}

// keeper returns the IDs that match a filter, in their order.
type keeper func(ctx context.Context, ids []string) ([]string, error)

// named lists the documents that have the query's words.
func (v *Vector) named(ctx context.Context, p partition, q *question, keep keeper) (ids []string, exact bool, err error) {
	if len(q.words.words) == 0 {
		return nil, true, nil
	}
	limit := max(q.TopK, fused)
	if q.filter == nil {
		ids, err = v.store.byWords(ctx, p.id, q.words, 0, limit)
		return ids, true, err
	}
	err = v.db.Read(ctx, func(ctx context.Context) error { // one snapshot for all pages
		ids, exact = nil, false
		// Each page sorts all documents again, so there are few pages.
		for looked, size := 0, foundFirst; looked < maxFound; looked, size = looked+size, maxFound-looked-size {
			page, err := v.store.byWords(ctx, p.id, q.words, looked, size)
			if err != nil {
				return err
			}
			for some := range slices.Chunk(page, foundFirst) {
				kept, err := keep(ctx, some)
				if err != nil {
					return err
				}
				if ids = append(ids, kept...); len(ids) >= limit {
					ids, exact = ids[:limit], true
					return nil
				}
			}
			if len(page) < size {
				exact = true
				return nil
			}
		}
		return nil
	})
	return ids, exact, err
}

// fuse sums, for each document, the reciprocal of its rank in each list.
func fuse(near []found, named []string) []found {
	place := make(map[string]int, len(near)+len(named))
	list := slices.Clone(near)
	for i := range list {
		list[i].score = 1 / float64(fusion+i+1)
		place[list[i].id] = i
	}
	for i, id := range named {
		at, ok := place[id]
		if !ok {
			at = len(list)
			list = append(list, found{id: id})
		}
		list[at].score += 1 / float64(fusion+i+1)
	}
	slices.SortStableFunc(list, func(a, b found) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.id, b.id))
	})
	return list
}

// read fills in the included fields of matches. whole is false if a document was changed or deleted
// since it was found; it is then omitted.
func (v *Vector) read(ctx context.Context, p partition, q *question, list []found) (matches []Match, whole bool, err error) {
	ids := make([]string, len(list))
	for i, f := range list {
		ids[i] = f.id
	}
	rows, err := v.store.matched(ctx, p.id, ids, slices.Contains(q.Include, "vector"))
	if err != nil {
		return nil, false, err
	}
	byID := make(map[string]stored, len(rows))
	for _, row := range rows {
		byID[row.ID] = row
	}
	matches, whole = make([]Match, 0, len(list)), true
	for _, f := range list {
		row, ok := byID[f.id]
		if !ok || f.revision != 0 && f.revision != row.revision {
			whole = false
			continue
		}
		match := Match{ID: f.id, Score: f.score, Distance: f.distance}
		if slices.Contains(q.Include, "metadata") {
			match.Metadata = row.Metadata
		}
		if slices.Contains(q.Include, "text") {
			match.Text = row.Text
		}
		if slices.Contains(q.Include, "vector") {
			match.Vector = row.Vector
		}
		matches = append(matches, match)
	}
	return matches, whole, nil
}
