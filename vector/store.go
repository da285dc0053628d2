package vector

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/vector/internal/flat"
)

// store is vector's SQL. Methods that write run inside a transaction.
type store struct{ db *database.DB }

// partition is a row of vector_partition.
type partition struct {
	id                         string
	revision, floor, documents int64
	model                      string
}

const selectPartition = `SELECT id, revision, floor, documents, model FROM vector_partition
	WHERE index_name = $1 AND owner_id = $2`

func scanPartition(row database.Scanner) (p partition, err error) {
	return p, row.Scan(&p.id, &p.revision, &p.floor, &p.documents, &p.model)
}

// partition returns a space's partition; ok is false while it has none.
func (s store) partition(ctx context.Context, space Space) (p partition, ok bool, err error) {
	return database.Get(ctx, s.db, scanPartition, selectPartition, space.Index, space.OwnerID)
}

// locked is partition for a transaction that changes it.
func (s store) locked(ctx context.Context, space Space) (p partition, ok bool, err error) {
	return database.Get(ctx, s.db, scanPartition, selectPartition+` `+database.ForUpdate, space.Index, space.OwnerID)
}

// lock is locked, and adds the partition if there is none.
func (s store) lock(ctx context.Context, space Space, now time.Time) (p partition, err error) {
	for range 3 { // a concurrent transaction may add or erase it between the two statements
		p, ok, err := s.locked(ctx, space)
		if err != nil || ok {
			return p, err
		}
		if _, err := s.db.Exec(ctx, `INSERT INTO vector_partition (id, index_name, owner_id, revision, floor, documents, model)
			VALUES ($1, $2, $3, 0, 0, 0, '') ON CONFLICT DO NOTHING`, id.New(now), space.Index, space.OwnerID); err != nil {
			return p, err
		}
	}
	return p, fmt.Errorf("vector: the partition of index %s does not stay", space.Index)
}

func (s store) save(ctx context.Context, p partition) error {
	_, err := s.db.Exec(ctx, `UPDATE vector_partition SET revision = $2, documents = $3, model = $4 WHERE id = $1`,
		p.id, p.revision, p.documents, p.model)
	return err
}

// known returns which of the IDs exist.
func (s store) known(ctx context.Context, partition string, ids []string) (map[string]bool, error) {
	found, err := database.All(ctx, s.db, scanString, `SELECT id FROM vector_document
		WHERE partition_id = $1 AND id `+database.InList(2), partition, database.List(ids))
	known := make(map[string]bool, len(found))
	for _, id := range found {
		known[id] = true
	}
	return known, err
}

func scanString(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

func (s store) put(ctx context.Context, p partition, d newDocument, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO vector_document
			(partition_id, id, revision, vector, model, text, words, metadata, created_at, updated_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
		ON CONFLICT (partition_id, id) DO UPDATE SET revision = excluded.revision, vector = excluded.vector,
			model = excluded.model, text = excluded.text, words = excluded.words, metadata = excluded.metadata,
			updated_at = excluded.updated_at`,
		p.id, d.ID, p.revision, encodeVector(d.Vector), d.Model, d.Text, d.words, d.metadata, now.UnixMilli())
	return err
}

// remove deletes documents and returns how many existed.
func (s store) remove(ctx context.Context, p partition, ids []string, now time.Time) (int64, error) {
	if _, err := s.db.Exec(ctx, `INSERT INTO vector_removal (partition_id, revision, id, removed_at)
		SELECT partition_id, $3, id, $4 FROM vector_document WHERE partition_id = $1 AND id `+database.InList(2),
		p.id, database.List(ids), p.revision, now.UnixMilli()); err != nil {
		return 0, err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM vector_embedding WHERE partition_id = $1 AND id `+database.InList(2),
		p.id, database.List(ids)); err != nil {
		return 0, err
	}
	return s.db.Exec(ctx, `DELETE FROM vector_document WHERE partition_id = $1 AND id `+database.InList(2),
		p.id, database.List(ids))
}

// describe replaces metadata; it returns false if there is no such document.
func (s store) describe(ctx context.Context, p partition, id, metadata string, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE vector_document SET metadata = $3, revision = $4, updated_at = $5
		WHERE partition_id = $1 AND id = $2`, p.id, id, metadata, p.revision, now.UnixMilli())
	return n == 1, err
}

// stored is a document with the revision it was read at.
type stored struct {
	Stored
	revision int64
}

const documentColumns = `d.id, d.revision, d.model, d.text, d.metadata, d.created_at, d.updated_at`

const ofSpace = ` FROM vector_partition p JOIN vector_document d ON d.partition_id = p.id
	WHERE p.index_name = $1 AND p.owner_id = $2`

// scanStored reads documentColumns and, after them, a vector.
func scanStored(row database.Scanner) (d stored, err error) {
	var metadata string
	var vector []byte
	var created, updated int64
	if err := row.Scan(&d.ID, &d.revision, &d.Model, &d.Text, &metadata, &created, &updated, &vector); err != nil {
		return d, err
	}
	d.CreatedAt, d.UpdatedAt = capability.Millis(created), capability.Millis(updated)
	d.Vector = decodeVector(vector)
	d.Dimensions = len(d.Vector)
	return d, json.Unmarshal([]byte(metadata), &d.Metadata)
}

func (s store) document(ctx context.Context, space Space, id string) (d stored, ok bool, err error) {
	return database.Get(ctx, s.db, scanStored, `SELECT `+documentColumns+`, d.vector`+ofSpace+` AND d.id = $3`,
		space.Index, space.OwnerID, id)
}

// matched returns the documents of a result, with their vectors if vectors is set.
func (s store) matched(ctx context.Context, partition string, ids []string, vectors bool) ([]stored, error) {
	vector := `NULL`
	if vectors {
		vector = `d.vector`
	}
	return database.All(ctx, s.db, scanStored, `SELECT `+documentColumns+`, `+vector+` FROM vector_document d
		WHERE d.partition_id = $1 AND d.id `+database.InList(2), partition, database.List(ids))
}

func (s store) scroll(ctx context.Context, space Space, after string, limit int) ([]Stored, error) {
	scan := func(row database.Scanner) (Stored, error) {
		d, err := scanStored(row)
		d.Dimensions, d.Vector = len(d.Vector), nil
		return d.Stored, err
	}
	return database.All(ctx, s.db, scan, `SELECT `+documentColumns+`, d.vector`+ofSpace+` AND d.id > $3 ORDER BY d.id LIMIT $4`,
		space.Index, space.OwnerID, after, limit)
}

// described is a document's id and metadata.
type described struct {
	id       string
	metadata map[string]any
}

func (s store) described(ctx context.Context, space Space, after string, limit int) ([]described, error) {
	scan := func(row database.Scanner) (d described, err error) {
		var metadata string
		if err := row.Scan(&d.id, &metadata); err != nil {
			return d, err
		}
		return d, json.Unmarshal([]byte(metadata), &d.metadata)
	}
	return database.All(ctx, s.db, scan, `SELECT d.id, d.metadata`+ofSpace+` AND d.id > $3 ORDER BY d.id LIMIT $4`,
		space.Index, space.OwnerID, after, limit)
}

// changed returns documents after a revision and ID, in that order, as rows for memory.
func (s store) changed(ctx context.Context, partition string, revision int64, id string, x *Index, limit int) ([]flat.Row, error) {
	scan := func(row database.Scanner) (r flat.Row, err error) {
		var vector []byte
		var metadata string
		if err := row.Scan(&r.ID, &r.Revision, &vector, &metadata); err != nil {
			return r, err
		}
		var values map[string]any
		if len(x.Filterable) > 0 {
			if err := json.Unmarshal([]byte(metadata), &values); err != nil {
				return r, err
			}
		}
		r.Values = valuesOf(values, x.Filterable)
		r.Vector = decodeVector(vector)
		if len(r.Vector) != x.Dimensions {
			return r, errDimensions(r, x)
		}
		return r, nil
	}
	return database.All(ctx, s.db, scan, `SELECT id, revision, vector, metadata FROM vector_document
		WHERE partition_id = $1 AND (revision, id) > ($2, $3) ORDER BY revision, id LIMIT $4`, partition, revision, id, limit)
}

// candidates returns the vectors of documents that an engine found.
func (s store) candidates(ctx context.Context, partition string, ids []string, x *Index) ([]flat.Row, error) {
	scan := func(row database.Scanner) (r flat.Row, err error) {
		var vector []byte
		err = row.Scan(&r.ID, &r.Revision, &vector)
		r.Vector, r.Values = decodeVector(vector), make([]flat.Value, len(x.Filterable))
		if err == nil && len(r.Vector) != x.Dimensions {
			err = errDimensions(r, x)
		}
		return r, err
	}
	return database.All(ctx, s.db, scan, `SELECT id, revision, vector FROM vector_document
		WHERE partition_id = $1 AND id `+database.InList(2), partition, database.List(ids))
}

func errDimensions(r flat.Row, x *Index) error {
	return fmt.Errorf("vector: document %q of index %s has %d dimensions: the index is configured with %d",
		r.ID, x.Name, len(r.Vector), x.Dimensions)
}

func (s store) removals(ctx context.Context, partition string, after int64, limit int) ([]flat.Removal, error) {
	scan := func(row database.Scanner) (r flat.Removal, err error) { return r, row.Scan(&r.ID, &r.Revision) }
	return database.All(ctx, s.db, scan, `SELECT id, revision FROM vector_removal
		WHERE partition_id = $1 AND revision > $2 ORDER BY revision, id LIMIT $3`, partition, after, limit)
}

// byWords lists the IDs of a partition's documents that have any of the words, the best first, from
// an offset.
func (s store) byWords(ctx context.Context, partition string, q textQuery, after, limit int) ([]string, error) {
	text := q.tsquery()
	if s.db.Dialect() == database.SQLite {
		text = q.fts5(partition)
	}
	return database.All(ctx, s.db, scanString, database.Text(
		`SELECT d.id FROM vector_text t JOIN vector_document d ON d.number = t.rowid WHERE t.vector_text MATCH $1 AND d.partition_id = $2 ORDER BY bm25(vector_text, 0.0, 1.0), d.id LIMIT $3 OFFSET $4`,
		`SELECT id FROM vector_document, to_tsquery('simple', $1) q WHERE search @@ q AND partition_id = $2
			ORDER BY ts_rank_cd(search, q, 1) DESC, id LIMIT $3 OFFSET $4`), text, partition, limit, after)
}

func (s store) countDocuments(ctx context.Context) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT CAST(COALESCE(sum(documents), 0) AS BIGINT) FROM vector_partition`).Scan(&n)
	return n, err
}

// encodeVector encodes float32, little-endian.
func encodeVector(vector []float32) []byte {
	raw := make([]byte, 0, 4*len(vector))
	for _, v := range vector {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
	}
	return raw
}

func decodeVector(raw []byte) []float32 {
	if len(raw) == 0 {
		return nil
	}
	vector := make([]float32, len(raw)/4)
	for i := range vector {
		vector[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return vector
}

// indexesOf lists the indexes in which an owner has a partition.
func (s store) indexesOf(ctx context.Context, ownerID string) ([]string, error) {
	return database.All(ctx, s.db, scanString, `SELECT index_name FROM vector_partition WHERE owner_id = $1 ORDER BY index_name`, ownerID)
}

// whole lists documents with their vectors.
func (s store) whole(ctx context.Context, space Space, after string, limit int) ([]Stored, error) {
	scan := func(row database.Scanner) (Stored, error) {
		d, err := scanStored(row)
		return d.Stored, err
	}
	return database.All(ctx, s.db, scan, `SELECT `+documentColumns+`, d.vector`+ofSpace+` AND d.id > $3 ORDER BY d.id LIMIT $4`,
		space.Index, space.OwnerID, after, limit)
}

// erase removes some of a partition's documents, and with the last of them the partition: its ID is
// never used again, so nodes drop it from memory.
func (s store) erase(ctx context.Context, space Space, limit int) (removed int64, more bool, err error) {
	p, ok, err := s.locked(ctx, space)
	if err != nil || !ok {
		return 0, false, err
	}
	p.revision++
	ids, err := database.All(ctx, s.db, scanString, `SELECT id FROM vector_document
		WHERE partition_id = $1 ORDER BY id LIMIT $2`, p.id, limit)
	if err != nil {
		return 0, false, err
	}
	if removed, err = s.remove(ctx, p, ids, s.db.Now(ctx)); err != nil {
		return 0, false, err
	}
	if len(ids) == limit {
		p.documents -= removed
		return removed, true, s.save(ctx, p)
	}
	for _, statement := range []string{
		`DELETE FROM vector_removal WHERE partition_id = $1`,
		`DELETE FROM vector_embedding WHERE partition_id = $1`, // of documents that were deleted while they were re-embedded
	} {
		if _, err := s.db.Exec(ctx, statement, p.id); err != nil {
			return 0, false, err
		}
	}
	_, err = s.db.Exec(ctx, `DELETE FROM vector_partition WHERE id = $1`, p.id)
	return removed, false, err
}

// oldest returns a partition with removals from before an instant, and the revision of the last of
// these.
func (s store) oldest(ctx context.Context, before time.Time) (space Space, revision int64, ok bool, err error) {
	scan := func(row database.Scanner) (Space, error) {
		return space, row.Scan(&space.Index, &space.OwnerID, &revision)
	}
	space, ok, err = database.Get(ctx, s.db, scan, `SELECT p.index_name, p.owner_id, max(r.revision)
		FROM vector_removal r JOIN vector_partition p ON p.id = r.partition_id
		WHERE r.removed_at < $1 GROUP BY p.index_name, p.owner_id LIMIT 1`, before.UnixMilli())
	return space, revision, ok, err
}

// forget deletes removals up to a revision.
func (s store) forget(ctx context.Context, space Space, revision int64) error {
	p, ok, err := s.locked(ctx, space)
	if err != nil || !ok {
		return err
	}
	if _, err := s.db.Exec(ctx, `UPDATE vector_partition SET floor = $2 WHERE id = $1 AND floor < $2`, p.id, revision); err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `DELETE FROM vector_removal WHERE partition_id = $1 AND revision <= $2`, p.id, revision)
	return err
}

// outdatedPartition selects the partitions embedded by another model.
const outdatedPartition = ` FROM vector_partition WHERE index_name = $1 AND model <> $2 AND model <> '' AND documents > 0`

func (s store) nextOutdated(ctx context.Context, index, model, after string) (space Space, p partition, ok bool, err error) {
	scan := func(row database.Scanner) (partition, error) {
		return p, row.Scan(&space.OwnerID, &p.id)
	}
	_, ok, err = database.Get(ctx, s.db, scan, `SELECT owner_id, id`+outdatedPartition+` AND id > $3 ORDER BY id LIMIT 1`,
		index, model, after)
	space.Index = index
	return space, p, ok, err
}

// countOutdated counts documents that are still to be re-embedded.
func (s store) countOutdated(ctx context.Context, index, model string) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT CAST(COALESCE(sum(documents), 0) AS BIGINT) - (SELECT count(*) FROM vector_embedding WHERE index_name = $1 AND model = $2)`+
		outdatedPartition, index, model).Scan(&n)
	return max(n, 0), err
}

// toEmbed lists documents without a new vector for their current revision.
func (s store) toEmbed(ctx context.Context, partition, model string, limit int) ([]stored, error) {
	return database.All(ctx, s.db, scanStored, `SELECT `+documentColumns+`, NULL FROM vector_document d
		WHERE d.partition_id = $1 AND NOT EXISTS (SELECT 1 FROM vector_embedding e
			WHERE e.partition_id = $1 AND e.id = d.id AND e.revision = d.revision AND e.model = $2)
		ORDER BY d.id LIMIT $3`, partition, model, limit)
}

// embedded stores a new vector for a document of a locked partition, unless the document was
// changed or removed in the meantime.
func (s store) embedded(ctx context.Context, partition string, d stored, model string, vector []float32) error {
	_, err := s.db.Exec(ctx, `INSERT INTO vector_embedding (partition_id, id, index_name, revision, model, vector)
		SELECT p.id, d.id, p.index_name, d.revision, $4, $5 FROM vector_partition p JOIN vector_document d ON d.partition_id = p.id
		WHERE p.id = $1 AND d.id = $2 AND d.revision = $3
		ON CONFLICT (partition_id, id) DO UPDATE SET revision = excluded.revision, model = excluded.model, vector = excluded.vector`,
		partition, d.ID, d.revision, model, encodeVector(vector))
	return err
}

// swap replaces the vectors of all documents of a partition by the new ones; it returns false if
// one is missing.
func (s store) swap(ctx context.Context, space Space, partition, model string) (bool, error) {
	p, ok, err := s.locked(ctx, space)
	if err != nil || !ok || p.id != partition || p.model == model {
		return err == nil, err
	}
	missing, err := s.toEmbed(ctx, p.id, model, 1)
	if err != nil || len(missing) > 0 {
		return false, err
	}
	p.revision++
	p.model = model
	if _, err := s.db.Exec(ctx, `UPDATE vector_document SET vector = e.vector, model = e.model, revision = $2
		FROM vector_embedding e WHERE e.partition_id = $1 AND vector_document.partition_id = $1 AND e.id = vector_document.id`,
		p.id, p.revision); err != nil {
		return false, err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM vector_embedding WHERE partition_id = $1`, p.id); err != nil {
		return false, err
	}
	return true, s.save(ctx, p)
}

// forgetWords rewrites SQLite's full-text index without deleted texts, which it otherwise keeps
// until its segments are merged.
func (s store) forgetWords(ctx context.Context) error {
	if s.db.Dialect() != database.SQLite {
		return nil
	}
	_, err := s.db.Exec(ctx, `INSERT INTO vector_text (vector_text) VALUES ('optimize')`)
	return err
}
