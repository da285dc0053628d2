package pgvector

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/vector"
)

// store is pgvector's SQL for an index. Methods that write run inside a transaction.
type store struct {
	db     *database.DB
	index  vector.Index
	schema string // of the extension, quoted
}

func (e *engine) store(ctx context.Context, db *database.DB, x vector.Index) (store, error) {
	if known, ok := e.schemas.Load(db); ok {
		return store{db, x, known.(string)}, nil
	}
	var schema string
	err := db.QueryRow(ctx, `SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
		WHERE e.extname = 'vector'`).Scan(&schema)
	if err != nil {
		return store{}, fmt.Errorf("pgvector: the extension: %w", err)
	}
	e.schemas.Store(db, schema)
	return store{db, x, schema}, nil
}

// row is a point to be stored.
type row struct {
	ID        string         `json:"id"`
	Embedding string         `json:"embedding"`
	Facts     map[string]any `json:"facts"`
}

func newRow(x vector.Index, id string, v []float32, facts map[string]any) row {
	if facts == nil {
		facts = map[string]any{}
	}
	return row{id, text(prepared(x, v)), facts}
}

// text returns a vector in the text form of the extension.
func text(v []float32) string {
	b := append(make([]byte, 0, 12*len(v)+2), '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return string(append(b, ']'))
}

func (s store) put(ctx context.Context, partition string, rows []row) error {
	if len(rows) == 0 {
		return nil
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `INSERT INTO vector_point (number, partition_id, id, kind, revision, facts, embedding)
		SELECT d.number, d.partition_id, d.id, $2, d.revision, r.facts, r.embedding::`+s.schema+`.vector
		FROM jsonb_to_recordset($3::jsonb) AS r (id TEXT, facts JSONB, embedding TEXT)
		JOIN vector_document d ON d.partition_id = $1 AND d.id = r.id
		ON CONFLICT (number) DO UPDATE SET kind = excluded.kind, revision = excluded.revision, facts = excluded.facts,
			embedding = excluded.embedding`, partition, kind(s.index), string(list))
	return err
}

// moved records that a partition has all its points at a revision, if it had them at the one
// before.
func (s store) moved(ctx context.Context, partition string, revision int64) error {
	if revision == 1 {
		return s.done(ctx, partition, revision)
	}
	_, err := s.db.Exec(ctx, `UPDATE vector_point_state SET revision = $2 WHERE partition_id = $1 AND revision = $2 - 1 AND kind = $3`,
		partition, revision, kind(s.index))
	return err
}

func (s store) done(ctx context.Context, partition string, revision int64) error {
	_, err := s.db.Exec(ctx, `INSERT INTO vector_point_state (partition_id, kind, revision) VALUES ($1, $2, $3)
		ON CONFLICT (partition_id) DO UPDATE SET kind = excluded.kind, revision = excluded.revision`, partition, kind(s.index), revision)
	return err
}

// state is whether a partition has all its points, and whether its kind has an HNSW index.
type state struct{ ready, indexed bool }

// begin configures the search for the rest of the transaction.
func (s store) begin(ctx context.Context, partition string, candidates, scanned int) (now state, err error) {
	var set string
	err = s.db.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM vector_point_state s JOIN vector_partition p ON p.id = s.partition_id
			WHERE p.id = $1 AND s.revision = p.revision AND s.kind = $2),
		to_regclass($3) IS NOT NULL,
		set_config('hnsw.ef_search', $4, true) || set_config('hnsw.max_scan_tuples', $5, true) ||
			set_config('hnsw.iterative_scan', 'strict_order', true) || set_config('plan_cache_mode', 'force_custom_plan', true)`,
		partition, kind(s.index), hnsw(s.index), strconv.Itoa(min(candidates, 1000)), strconv.Itoa(scanned)).Scan(&now.ready, &now.indexed, &set)
	return now, err
}

// expression returns the type, the operator and the operator class of an HNSW index of the kind.
func (s store) expression() (typed, operator, class string) {
	name := "vector"
	if s.index.Dimensions > maxVector {
		name = "halfvec"
	}
	operator, class = "<#>", "_ip_ops"
	if s.index.Metric == vector.MetricEuclidean {
		operator, class = "<->", "_l2_ops"
	}
	return fmt.Sprintf("%s.%s(%d)", s.schema, name, s.index.Dimensions),
		fmt.Sprintf("OPERATOR(%s.%s)", s.schema, operator), s.schema + "." + name + class
}

// ofKind returns the kind as a literal, which the partial index requires: names of indexes and
// metrics need no escaping.
func (s store) ofKind() string { return "kind = '" + kind(s.index) + "'" }

// nearest lists IDs in the order of the HNSW index.
func (s store) nearest(ctx context.Context, partition string, v []float32, filter *vector.Condition, limit int) ([]string, error) {
	typed, operator, _ := s.expression()
	args := []any{partition, text(v), limit}
	where := keeps(filter, &args)
	return database.All(ctx, s.db, scanString, `SELECT id FROM vector_point WHERE `+s.ofKind()+` AND partition_id = $1`+where+`
		ORDER BY embedding::`+typed+` `+operator+` $2::`+s.schema+`.vector::`+typed+` LIMIT $3`, args...)
}

// all lists IDs by comparing all points of a partition: zero is added so that no index is used for
// the order.
func (s store) all(ctx context.Context, partition string, v []float32, filter *vector.Condition, limit int) ([]string, error) {
	_, operator, _ := s.expression()
	args := []any{partition, text(v), limit}
	where := keeps(filter, &args)
	return database.All(ctx, s.db, scanString, `SELECT id FROM vector_point WHERE `+s.ofKind()+` AND partition_id = $1`+where+`
		ORDER BY (embedding `+operator+` $2::`+s.schema+`.vector) + 0, id LIMIT $3`, args...)
}

func (s store) kept(ctx context.Context, partition string, filter *vector.Condition, ids []string) ([]string, error) {
	args := []any{partition, database.List(ids)}
	where := keeps(filter, &args)
	return database.All(ctx, s.db, scanString, `SELECT id FROM vector_point WHERE partition_id = $1 AND id `+database.InList(2)+where, args...)
}

func scanString(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// makeIndex creates the HNSW index of the kind, if there is none.
func (s store) makeIndex(ctx context.Context, cfg Config) error {
	var there bool
	if err := s.db.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL OR set_config('statement_timeout', '0', true) = ''`,
		hnsw(s.index)).Scan(&there); err != nil || there {
		return err
	}
	typed, _, class := s.expression()
	_, err := s.db.Exec(ctx, fmt.Sprintf(`CREATE INDEX IF NOT EXISTS %s ON vector_point USING hnsw ((embedding::%s) %s)
		WITH (m = %d, ef_construction = %d) WHERE %s`, hnsw(s.index), typed, class, cfg.Links, cfg.Effort, s.ofKind()))
	return err
}

// nextBehind returns the next partition that does not have all its points.
func (s store) nextBehind(ctx context.Context, after string) (partition string, ok bool, err error) {
	return database.Get(ctx, s.db, scanString, `SELECT p.id FROM vector_partition p LEFT JOIN vector_point_state s ON s.partition_id = p.id
		WHERE p.index_name = $1 AND p.id > $2 AND p.documents > 0
			AND (s.revision IS DISTINCT FROM p.revision OR s.kind IS DISTINCT FROM $3) ORDER BY p.id LIMIT 1`,
		s.index.Name, after, kind(s.index))
}

// lock returns the revision of a partition, which does not change until the end of the transaction.
func (s store) lock(ctx context.Context, partition string) (revision int64, ok bool, err error) {
	scan := func(row database.Scanner) (revision int64, err error) { return revision, row.Scan(&revision) }
	return database.Get(ctx, s.db, scan, `SELECT revision FROM vector_partition WHERE id = $1 FOR UPDATE`, partition)
}

// document is the input of a point.
type document struct {
	id     string
	vector []float32
	facts  map[string]any
}

// behind lists documents that have no point of their revision and kind.
func (s store) behind(ctx context.Context, partition string, limit int) ([]document, error) {
	scan := func(row database.Scanner) (d document, err error) {
		var raw []byte
		var metadata string
		if err := row.Scan(&d.id, &raw, &metadata); err != nil {
			return d, err
		}
		d.vector = vector.DecodeVector(raw)
		d.facts, err = vector.Facts(metadata)
		return d, err
	}
	return database.All(ctx, s.db, scan, `SELECT d.id, d.vector, d.metadata FROM vector_document d
		LEFT JOIN vector_point t ON t.number = d.number AND t.revision = d.revision AND t.kind = $2
		WHERE d.partition_id = $1 AND t.number IS NULL ORDER BY d.id LIMIT $3`, partition, kind(s.index), limit)
}

// keeps returns a condition as SQL that begins with AND; the operands become arguments.
func keeps(c *vector.Condition, args *[]any) string {
	if c == nil {
		return ""
	}
	return " AND " + condition(*c, args)
}

func condition(c vector.Condition, args *[]any) string {
	parts := make([]string, len(c.Parts))
	for i, part := range c.Parts {
		parts[i] = condition(part, args)
	}
	switch c.Group {
	case "and":
		return "(" + strings.Join(parts, " AND ") + ")"
	case "or":
		return "(" + strings.Join(parts, " OR ") + ")"
	case "not":
		return "(NOT " + parts[0] + ")"
	}
	return test(c, args)
}

// test returns the test of a key. It is true or false, never null.
func test(c vector.Condition, args *[]any) string {
	argument := func(value any, typed string) string {
		*args = append(*args, value)
		return fmt.Sprintf("$%d::%s", len(*args), typed)
	}
	key := argument(c.Key, "text")
	encoded, _ := json.Marshal(c.Operands) // cannot fail: strings, finite numbers and booleans
	among := func() string {
		return "facts -> " + key + " = ANY (ARRAY(SELECT jsonb_array_elements(" + argument(string(encoded), "jsonb") + ")))"
	}
	switch c.Operator {
	case "exists":
		return fmt.Sprintf("(jsonb_exists(facts, %s) = %v)", key, c.Operands[0])
	case "eq", "in":
		return "((" + among() + ") IS TRUE)"
	case "ne", "nin":
		return "((" + among() + ") IS NOT TRUE)"
	}
	sign := map[string]string{"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}[c.Operator]
	if _, ok := c.Operands[0].(string); ok {
		return "(CASE jsonb_typeof(facts -> " + key + ") WHEN 'string' THEN (facts ->> " + key + ") COLLATE \"C\" " + sign + " " +
			argument(c.Operands[0], "text") + " ELSE false END)"
	}
	return "(CASE jsonb_typeof(facts -> " + key + ") WHEN 'number' THEN (facts ->> " + key + ")::float8 " + sign + " " +
		argument(c.Operands[0], "float8") + " ELSE false END)"
}
