package vector

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
)

var idForm = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)

// maxNorm bounds the length of a vector for the metrics that depend on it, so that no product or
// square of two exceeds the range of float32.
const maxNorm = 1e18

var errEmbedInTransaction = errors.New("vector: text is embedded by a service, which cannot be waited for in a transaction; call Embed before it")

func sortedKeys[M ~map[string]V, V any](m M) []string { return slices.Sorted(maps.Keys(m)) }

func checkID(id string) error {
	if !idForm.MatchString(id) {
		return capability.ErrInvalidRequest.Saying("id is 1 to 128 letters, digits, _, ., : and -.")
	}
	return nil
}

// checkVector refuses what the metric or the engine cannot compare.
func (x *Index) checkVector(field string, vector []float32) error {
	if len(vector) != x.Dimensions {
		return ErrDimensionMismatch.With(Mismatch{Want: x.Dimensions, Got: len(vector)})
	}
	var sum float64
	for _, v := range vector {
		sum += float64(v) * float64(v)
		if x.maxComponent > 0 && (v > x.maxComponent || v < -x.maxComponent) {
			return capability.ErrInvalidRequest.Saying("%s has a component beyond %v, the most that this index takes.", field, x.maxComponent)
		}
	}
	switch {
	case math.IsNaN(sum) || math.IsInf(sum, 0):
		return capability.ErrInvalidRequest.Saying("%s has a component that is no finite number.", field)
	case x.Metric == MetricCosine && sum == 0:
		return capability.ErrInvalidRequest.Saying("%s is zero, which has no direction.", field)
	case x.Metric != MetricCosine && sum > maxNorm*maxNorm:
		return capability.ErrInvalidRequest.Saying("%s is longer than 1e18.", field)
	}
	return nil
}

func checkMetadata(field string, metadata map[string]any) (string, error) {
	if len(metadata) > MaxKeys {
		return "", capability.ErrInvalidRequest.Saying("%s has more than %d keys.", field, MaxKeys)
	}
	if metadata == nil {
		return "{}", nil
	}
	for _, key := range sortedKeys(metadata) {
		if err := capability.CheckText(field+" key", key, 1, 64); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return "", capability.ErrInvalidRequest.Saying("%s is not JSON.", field).Because(err)
	}
	if len(text) > MaxMetadata {
		return "", capability.ErrInvalidRequest.Saying("%s has more than %d bytes.", field, MaxMetadata)
	}
	var back any
	if err := json.Unmarshal(text, &back); err != nil { // such as a json.Number beyond float64
		return "", capability.ErrInvalidRequest.Saying("%s has a number that is too large.", field).Because(err)
	}
	if hasNUL(back) {
		return "", capability.ErrInvalidRequest.Saying("%s has a NUL character.", field)
	}
	return string(text), nil
}

// hasNUL reports whether a string in a JSON value has a NUL character, which PostgreSQL cannot
// store.
func hasNUL(value any) bool {
	switch v := value.(type) {
	case string:
		return strings.Contains(v, "\x00")
	case []any:
		return slices.ContainsFunc(v, hasNUL)
	case map[string]any:
		for key, inner := range v {
			if strings.Contains(key, "\x00") || hasNUL(inner) {
				return true
			}
		}
	}
	return false
}

// check refuses invalid documents; those without an ID get a new one.
func (v *Vector) check(x *Index, documents []Document) ([]newDocument, error) {
	if len(documents) == 0 || len(documents) > MaxBatch {
		return nil, capability.ErrInvalidRequest.Saying("An upsert has 1 to %d documents.", MaxBatch)
	}
	seen := make(map[string]bool, len(documents))
	rows := make([]newDocument, len(documents))
	for i, d := range documents {
		at := func(field string) string { return fmt.Sprintf("documents[%d].%s", i, field) }
		d.ID = cmp.Or(d.ID, id.New(v.now()))
		if err := checkID(d.ID); err != nil {
			return nil, err
		}
		if seen[d.ID] {
			return nil, capability.ErrInvalidRequest.Saying("%s is given twice.", at("id"))
		}
		seen[d.ID] = true
		if err := errors.Join(capability.CheckText(at("text"), d.Text, 0, MaxText),
			capability.CheckText(at("model"), d.Model, 0, maxModel)); err != nil {
			return nil, err
		}
		switch {
		case d.Vector != nil:
			if err := x.checkVector(at("vector"), d.Vector); err != nil {
				return nil, err
			}
		case d.Text == "":
			return nil, capability.ErrInvalidRequest.Saying("%s or vector is missing.", at("text"))
		case d.Model != "":
			return nil, capability.ErrInvalidRequest.Saying("%s is the model of a vector, and there is none.", at("model"))
		case x.Embedder == nil:
			return nil, ErrEmbedderNotConfigured
		}
		metadata, err := checkMetadata(at("metadata"), d.Metadata)
		if err != nil {
			return nil, err
		}
		rows[i] = newDocument{Document: d, metadata: metadata, words: strings.Join(wordsOf(d.Text), " ")}
	}
	return rows, nil
}

// newDocument is a document to be stored.
type newDocument struct {
	Document
	metadata, words string
}

// Upsert adds 1 to 100 documents to a space, or replaces those with the same IDs; all of them or
// none. Refuses with vector/index_not_found, vector/dimension_mismatch, vector/model_mismatch,
// vector/quota_exceeded, vector/embedder_not_configured, vector/embedding_failed and
// kit/invalid_request.
func (v *Vector) Upsert(ctx context.Context, space Space, documents ...Document) (out Upserted, err error) {
	x, err := v.index(space)
	if err != nil {
		return out, err
	}
	rows, err := v.check(x, documents)
	if err != nil {
		return out, err
	}
	if out.Usage, err = v.embedRows(ctx, x, rows); err != nil {
		return out, err
	}
	for _, row := range rows {
		if row.Model != rows[0].Model {
			return out, ErrModelMismatch.Saying("The documents of one request are of several models.")
		}
	}
	err = v.inTx(ctx, func(ctx context.Context) (err error) {
		out.Items, err = v.put(ctx, space, x, rows)
		return err
	})
	return out, err
}

func (v *Vector) put(ctx context.Context, space Space, x *Index, rows []newDocument) ([]Written, error) {
	p, err := v.store.lock(ctx, space, v.now())
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	known, err := v.store.known(ctx, p.id, ids)
	if err != nil {
		return nil, err
	}
	added := int64(len(rows) - len(known))
	switch {
	case p.documents > 0 && p.model != rows[0].Model:
		return nil, ErrModelMismatch
	case p.documents+added > x.MaxDocuments && added > 0:
		return nil, ErrQuotaExceeded
	}
	now := v.db.Now(ctx)
	p.revision++
	p.documents += added
	p.model = rows[0].Model
	written := make([]Written, len(rows))
	points := make([]Point, len(rows))
	for i, row := range rows {
		if err := v.store.put(ctx, p, row, now); err != nil {
			return nil, err
		}
		written[i] = Written{ID: row.ID, Created: !known[row.ID], UpdatedAt: capability.Time{Time: now}}
		points[i] = Point{row.ID, row.Vector, row.Metadata}
	}
	return written, v.save(ctx, x, p, points...)
}

// save completes a change of a partition: points are the added or replaced documents; others may
// have been removed.
func (v *Vector) save(ctx context.Context, x *Index, p partition, points ...Point) error {
	if err := v.store.save(ctx, p); err != nil || v.cfg.Engine == nil {
		return err
	}
	for i := range points {
		points[i].Metadata = facts(points[i].Metadata)
	}
	return v.cfg.Engine.Put(ctx, v.db, p.forEngine(x), points)
}

// embedRows embeds the rows without a vector.
func (v *Vector) embedRows(ctx context.Context, x *Index, rows []newDocument) (usage Usage, err error) {
	var texts []string
	for _, row := range rows {
		if row.Vector == nil {
			texts = append(texts, row.Text)
		}
	}
	if len(texts) == 0 {
		return usage, nil
	}
	vectors, tokens, err := v.embed(ctx, x, texts)
	if err != nil {
		return usage, err
	}
	for i := range rows {
		if rows[i].Vector == nil {
			rows[i].Vector, vectors = vectors[0], vectors[1:]
			rows[i].Model = x.Embedder.Model()
		}
	}
	return Usage{EmbeddedTokens: tokens}, nil
}

// embed embeds texts and checks the number and form of the vectors.
func (v *Vector) embed(ctx context.Context, x *Index, texts []string) ([][]float32, int64, error) {
	if x.Embedder == nil {
		return nil, 0, ErrEmbedderNotConfigured
	}
	if _, local := x.Embedder.(hashing); !local && v.db.InTransaction(ctx) {
		return nil, 0, errEmbedInTransaction
	}
	vectors, tokens, err := x.Embedder.Embed(ctx, texts)
	if err != nil {
		if ctx.Err() != nil {
			return nil, 0, ctx.Err()
		}
		return nil, 0, ErrEmbeddingFailed.Because(err)
	}
	if len(vectors) != len(texts) {
		return nil, 0, ErrEmbeddingFailed.Because(fmt.Errorf("%d vectors of %d texts", len(vectors), len(texts)))
	}
	for _, vector := range vectors {
		if err := x.checkVector("the embedding", vector); err != nil {
			return nil, 0, ErrEmbeddingFailed.Because(err)
		}
	}
	return vectors, tokens, nil
}

// Embed returns the documents with vectors added where they are missing, to be upserted in a
// transaction. Refuses as [Vector.Upsert] does.
func (v *Vector) Embed(ctx context.Context, index string, documents ...Document) ([]Document, error) {
	x, ok := v.indexes[index]
	if !ok {
		return nil, ErrIndexNotFound
	}
	rows, err := v.check(x, documents)
	if err != nil {
		return nil, err
	}
	if _, err := v.embedRows(ctx, x, rows); err != nil {
		return nil, err
	}
	embedded := make([]Document, len(rows))
	for i, row := range rows {
		embedded[i] = row.Document
	}
	return embedded, nil
}

// Get returns a document, with its vector. Refuses with vector/index_not_found
// and vector/document_not_found.
func (v *Vector) Get(ctx context.Context, space Space, id string) (Stored, error) {
	if _, err := v.index(space); err != nil {
		return Stored{}, err
	}
	if checkID(id) != nil {
		return Stored{}, ErrDocumentNotFound
	}
	d, ok, err := v.store.document(ctx, space, id)
	if err == nil && !ok {
		err = ErrDocumentNotFound
	}
	return d.Stored, err
}

// Delete removes a document. Refuses with vector/index_not_found and
// vector/document_not_found.
func (v *Vector) Delete(ctx context.Context, space Space, id string) error {
	if _, err := v.index(space); err != nil {
		return err
	}
	if checkID(id) != nil {
		return ErrDocumentNotFound
	}
	return v.inTx(ctx, func(ctx context.Context) error {
		n, err := v.remove(ctx, space, func(context.Context) ([]string, error) { return []string{id}, nil })
		if err == nil && n == 0 {
			err = ErrDocumentNotFound
		}
		return err
	})
}

// portion reads the IDs of the affected documents.
type portion func(context.Context) (ids []string, err error)

// remove deletes documents and records removals for other nodes. It reads the IDs after it has
// locked the partition, when no other transaction can change the documents.
func (v *Vector) remove(ctx context.Context, space Space, read portion) (int64, error) {
	p, ok, err := v.store.locked(ctx, space)
	if err != nil || !ok {
		return 0, err
	}
	ids, err := read(ctx)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	p.revision++
	n, err := v.store.remove(ctx, p, ids, v.db.Now(ctx))
	if err != nil || n == 0 {
		return 0, err
	}
	p.documents -= n
	return n, v.save(ctx, v.indexes[space.Index], p)
}

// UpdateMetadata replaces the metadata of a document and nothing else. Refuses
// with vector/index_not_found, vector/document_not_found and
// kit/invalid_request.
func (v *Vector) UpdateMetadata(ctx context.Context, space Space, id string, metadata map[string]any) error {
	x, err := v.index(space)
	if err != nil {
		return err
	}
	text, err := checkMetadata("metadata", metadata)
	if err != nil {
		return err
	}
	if checkID(id) != nil {
		return ErrDocumentNotFound
	}
	return v.inTx(ctx, func(ctx context.Context) error {
		p, ok, err := v.store.locked(ctx, space)
		if err != nil {
			return err
		}
		p.revision++
		changed := false
		if ok {
			changed, err = v.store.describe(ctx, p, id, text, v.db.Now(ctx))
		}
		switch {
		case err != nil:
			return err
		case !changed:
			return ErrDocumentNotFound
		case v.cfg.Engine == nil:
			return v.store.save(ctx, p)
		}
		d, _, err := v.store.document(ctx, space, id)
		if err != nil {
			return err
		}
		return v.save(ctx, x, p, Point{id, d.Vector, d.Metadata})
	})
}

// walkSize is how many documents a statement of a walk reads.
const walkSize = 500

// Count returns how many documents of a space match a filter; a nil filter matches all. Refuses
// with vector/index_not_found and kit/invalid_request.
func (v *Vector) Count(ctx context.Context, space Space, filter Filter) (n int64, err error) {
	err = v.walk(ctx, space, filter, func(ctx context.Context, read portion) error {
		ids, err := read(ctx)
		n += int64(len(ids))
		return err
	})
	return n, err
}

// DeleteWhere removes the documents that match a filter, which must not be empty, and returns how
// many. Outside of a transaction every 500 documents are a transaction of their own. Refuses as
// [Vector.Count] does.
func (v *Vector) DeleteWhere(ctx context.Context, space Space, filter Filter) (n int64, err error) {
	if len(filter) == 0 {
		return 0, capability.ErrInvalidRequest.Saying("A deletion by filter needs a filter.")
	}
	err = v.walk(ctx, space, filter, func(ctx context.Context, read portion) error {
		ids, err := read(ctx)
		if err != nil || len(ids) == 0 {
			return err
		}
		var removed int64
		err = v.inTx(ctx, func(ctx context.Context) (err error) {
			removed, err = v.remove(ctx, space, read)
			return err
		})
		n += removed
		return err
	})
	return n, err
}

// walk calls fn with the documents that match a filter, in portions, which fn may read more than
// once.
func (v *Vector) walk(ctx context.Context, space Space, filter Filter, fn func(context.Context, portion) error) error {
	x, err := v.index(space)
	if err != nil {
		return err
	}
	keeps, err := parseFilter(filter, x.Filterable)
	if err != nil {
		return err
	}
	for after, last := "", ""; ; after = last {
		err := fn(ctx, func(ctx context.Context) (ids []string, err error) {
			rows, err := v.store.described(ctx, space, after, walkSize)
			last = ""
			for _, row := range rows {
				last = row.id
				if keeps == nil || keeps.holds(valuesOf(row.metadata, x.Filterable)) {
					ids = append(ids, row.id)
				}
			}
			return ids, err
		})
		if err != nil || last == "" {
			return err
		}
	}
}

// Scroll lists the documents of a space by ID, without their vectors. Refuses with
// vector/index_not_found.
func (v *Vector) Scroll(ctx context.Context, space Space, page capability.Page) (items capability.Items[Stored], err error) {
	page = page.Bounded()
	if _, err := v.index(space); err != nil {
		return items, err
	}
	var after string
	if _, err := page.After(&after); err != nil {
		return items, err
	}
	rows, err := v.store.scroll(ctx, space, after, page.Limit+1)
	return capability.Paged(page, rows, func(d Stored) []any { return []any{d.ID} }), err
}
