package database

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// copyPage is how many rows are written at a time; the largest rows have a megabyte.
const copyPage = 100

// Copy copies the rows of a SQLite database into a new PostgreSQL database, all or none, and returns how many. It
// first applies the migrations of sets to both. Every table of from must exist in into. A row of into is replaced
// by that of from with the same primary key; into may have others only where a migration inserted them. No other
// program may use either database meanwhile.
//
// Columns of PostgreSQL are BOOLEAN, SMALLINT, INTEGER, BIGINT, DOUBLE PRECISION, TEXT and BYTEA; those that it
// generates are not copied. Triggers do not run.
func Copy(ctx context.Context, into, from *DB, sets ...Migrations) (rows int64, err error) {
	if into.Dialect() != PostgreSQL || from.Dialect() != SQLite {
		return 0, fmt.Errorf("%w: rows are copied from SQLite into PostgreSQL", ErrUnsupported)
	}
	if err := from.Migrate(ctx, sets...); err != nil {
		return 0, fmt.Errorf("the database to copy: %w", err)
	}
	if err := into.Migrate(ctx, sets...); err != nil {
		return 0, err
	}
	files, err := into.filesOf(sets)
	if err != nil {
		return 0, err
	}
	filled := filledBy(files)
	err = into.exclusive(ctx, func(ctx context.Context, into *DB) error {
		tables, err := into.tablesOf(ctx, from)
		if err != nil {
			return err
		}
		copied := map[string]int64{}
		rows = 0 // the transaction may run again
		for _, table := range tables {
			n, err := into.copyTable(ctx, from, table)
			if err != nil {
				return fmt.Errorf("database: table %s: %w", table, err)
			}
			copied[table] = n
			rows += n
		}
		return into.checkNew(ctx, copied, filled)
	})
	if err != nil {
		return 0, err
	}
	return rows, nil
}

// filledBy returns the tables that the migrations insert rows into.
func filledBy(files [][]migration) []string {
	tables := []string{"kit_migrations"}
	for _, file := range slices.Concat(files...) {
		for rest := tokenize(adapt(PostgreSQL, file.text)); len(rest) > 0; {
			end := statementEnd(rest)
			if into, ok := follows(significant(rest[:end]), "INSERT", "INTO"); ok && len(into) > 0 {
				tables = append(tables, strings.ToLower(into[0].text))
			}
			rest = rest[end:]
		}
	}
	return tables
}

// tablesOf returns the tables of from, each behind those that it refers to.
func (d *DB) tablesOf(ctx context.Context, from *DB) ([]string, error) {
	tables, err := All(ctx, from, scanText, `SELECT name FROM pragma_table_list
		WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' AND name <> 'kit_migrations' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	there, err := d.tables(ctx)
	if err != nil {
		return nil, err
	}
	for _, table := range tables {
		if !slices.Contains(there, table) {
			return nil, fmt.Errorf("database: the table %s is not in PostgreSQL: create it there, or drop it from the copy", table)
		}
	}
	return d.inOrder(ctx, tables)
}

// tables returns the tables of PostgreSQL.
func (d *DB) tables(ctx context.Context) ([]string, error) {
	return All(ctx, d, scanText, `SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()`)
}

// checkNew refuses rows that were not copied, in tables that no migration fills.
func (d *DB) checkNew(ctx context.Context, copied map[string]int64, filled []string) error {
	tables, err := d.tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		if slices.Contains(filled, table) {
			continue
		}
		var rows int64
		if err := d.QueryRow(ctx, `SELECT count(*) FROM `+quote(table)).Scan(&rows); err != nil {
			return err
		}
		if rows != copied[table] {
			return fmt.Errorf("database: the table %s has %d rows of its own: copy into a new database", table, rows-copied[table])
		}
	}
	return nil
}

// inOrder sorts tables so that each is behind those that its foreign keys refer to.
func (d *DB) inOrder(ctx context.Context, tables []string) (list []string, err error) {
	keys, err := All(ctx, d, func(s Scanner) (key [2]string, err error) { return key, s.Scan(&key[0], &key[1]) },
		`SELECT c.relname::text, r.relname::text FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid
			WHERE k.contype = 'f' AND k.connamespace = current_schema()::regnamespace AND c.oid <> r.oid`)
	if err != nil {
		return nil, err
	}
	waits := func(table string) bool {
		return slices.ContainsFunc(keys, func(key [2]string) bool { return key[0] == table && !slices.Contains(list, key[1]) })
	}
	for len(list) < len(tables) {
		before := len(list)
		for _, table := range tables {
			if !slices.Contains(list, table) && !waits(table) {
				list = append(list, table)
			}
		}
		if len(list) == before {
			return nil, fmt.Errorf("database: foreign keys of %d tables refer to each other", len(tables)-before)
		}
	}
	return list, nil
}

// copyTable copies the rows of a table while its triggers are off.
func (d *DB) copyTable(ctx context.Context, from *DB, table string) (rows int64, err error) {
	columns, err := d.columnsOf(ctx, table)
	if err != nil {
		return 0, err
	}
	after, err := d.stopTriggers(ctx, table)
	if err != nil {
		return 0, err
	}
	if rows, err = d.copyRows(ctx, from, table, columns); err != nil {
		return 0, err
	}
	for _, c := range columns {
		if c.identity && rows > 0 {
			after = append(after, fmt.Sprintf(`SELECT setval(pg_get_serial_sequence('%s', '%s'), max(%s)) FROM %s`,
				quote(table), c.name, quote(c.name), quote(table)))
		}
	}
	for _, statement := range after {
		if _, err := d.Exec(ctx, statement); err != nil {
			return 0, err
		}
	}
	return rows, nil
}

func (d *DB) copyRows(ctx context.Context, from *DB, table string, columns []copiedColumn) (rows int64, err error) {
	list, err := from.Query(ctx, `SELECT `+namesOf(columns)+` FROM `+quote(table))
	if err != nil {
		return 0, err
	}
	defer list.Close()
	insert := insertOf(table, columns)
	for {
		var page [][]any
		for len(page) < copyPage && list.Next() {
			row, err := scanRow(list, len(columns))
			if err != nil {
				return 0, err
			}
			page = append(page, row)
		}
		if len(page) == 0 {
			return rows, list.Err()
		}
		args, err := arraysOf(columns, page)
		if err != nil {
			return 0, err
		}
		if _, err := d.Exec(ctx, insert, args...); err != nil {
			return 0, err
		}
		rows += int64(len(page))
	}
}

// stopTriggers turns the triggers of a table off and returns the statements that turn them on again as they were.
func (d *DB) stopTriggers(ctx context.Context, table string) (on []string, err error) {
	on, err = All(ctx, d, scanText, `SELECT format('ALTER TABLE %I ENABLE %s TRIGGER %I', c.relname,
			CASE tgenabled WHEN 'A' THEN 'ALWAYS' WHEN 'R' THEN 'REPLICA' ELSE '' END, tgname)
		FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = $1 AND NOT tgisinternal AND tgenabled <> 'D'`, table)
	if err != nil || len(on) == 0 {
		return nil, err
	}
	_, err = d.Exec(ctx, `ALTER TABLE `+quote(table)+` DISABLE TRIGGER USER`)
	return on, err
}

// copiedColumn is a column of PostgreSQL that is copied.
type copiedColumn struct {
	name, kind        string
	identity, primary bool
}

func (d *DB) columnsOf(ctx context.Context, table string) ([]copiedColumn, error) {
	return All(ctx, d, func(s Scanner) (c copiedColumn, err error) {
		return c, s.Scan(&c.name, &c.kind, &c.identity, &c.primary)
	}, `SELECT column_name::text, data_type::text, is_identity = 'YES', EXISTS (
			SELECT 1 FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
			WHERE i.indisprimary AND c.relnamespace = current_schema()::regnamespace AND c.relname = table_name AND a.attname = column_name)
		FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1 AND is_generated = 'NEVER'
		ORDER BY ordinal_position`, table)
}

// insertOf returns the statement that inserts one array for each column.
func insertOf(table string, columns []copiedColumn) string {
	var arrays, primary, set []string
	for i, c := range columns {
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.kind))
		if c.primary {
			primary = append(primary, quote(c.name))
		} else {
			set = append(set, quote(c.name)+" = excluded."+quote(c.name))
		}
	}
	conflict := ""
	switch {
	case len(primary) > 0 && len(set) > 0:
		conflict = " ON CONFLICT (" + strings.Join(primary, ", ") + ") DO UPDATE SET " + strings.Join(set, ", ")
	case len(primary) > 0:
		conflict = " ON CONFLICT DO NOTHING"
	}
	return "INSERT INTO " + quote(table) + " (" + namesOf(columns) + ") OVERRIDING SYSTEM VALUE SELECT * FROM unnest(" +
		strings.Join(arrays, ", ") + ")" + conflict
}

func namesOf(columns []copiedColumn) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quote(c.name)
	}
	return strings.Join(names, ", ")
}

// quote quotes a name; SQLite and PostgreSQL do it alike.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func scanText(s Scanner) (text string, err error) { return text, s.Scan(&text) }

func scanRow(s Scanner, n int) ([]any, error) {
	row, dest := make([]any, n), make([]any, n)
	for i := range row {
		dest[i] = &row[i]
	}
	return row, s.Scan(dest...)
}

// arraysOf returns the array of each column of a page.
func arraysOf(columns []copiedColumn, page [][]any) (args []any, err error) {
	for i, c := range columns {
		var array any
		switch c.kind {
		case "boolean":
			array, err = arrayOf(page, i, func(n int64) bool { return n != 0 })
		case "smallint", "integer", "bigint":
			array, err = arrayOf(page, i, func(n int64) int64 { return n })
		case "double precision":
			array, err = arrayOf(page, i, func(f float64) float64 { return f })
		case "text":
			array, err = arrayOf(page, i, func(text string) string { return text })
		case "bytea":
			array, err = arrayOf(page, i, func(b []byte) []byte { return b })
		default:
			err = fmt.Errorf("%s is not copied", c.kind)
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		args = append(args, array)
	}
	return args, nil
}

// arrayOf converts a column of a page; NULL becomes nil.
func arrayOf[V, T any](page [][]any, i int, convert func(V) T) ([]*T, error) {
	array := make([]*T, len(page))
	for j, row := range page {
		switch v := row[i].(type) {
		case nil:
		case V:
			converted := convert(v)
			array[j] = &converted
		default:
			return nil, fmt.Errorf("a row has a %T", v)
		}
	}
	return array, nil
}
