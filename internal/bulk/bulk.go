// Package bulk writes many rows of a table at once.
package bulk

import (
	"context"
	"fmt"
	"strings"

	"github.com/kitbackend/kit/database"
)

// Insert is an INSERT of any number of rows: on PostgreSQL one statement, which
// gets each column as an array. On SQLite it is one statement for each row: there a statement costs
// no round trip, while one of many rows keeps them in a temporary table if there are triggers.
// Those statements say OR FAIL, so that SQLite need not copy pages to undo a statement alone; the
// transaction undoes it.
type Insert struct{ sqlite, postgres string }

// New returns the statement for a table and its columns, each with its PostgreSQL type after the
// name: "ref TEXT". conflict is the ON CONFLICT clause, or "".
func New(table string, columns []string, conflict string) Insert {
	names, arrays, places := make([]string, len(columns)), make([]string, len(columns)), make([]string, len(columns))
	for i, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
		names[i], arrays[i], places[i] = name, fmt.Sprintf("$%d::%s[]", i+1, kind), fmt.Sprintf("$%d", i+1)
	}
	into := "INTO " + table + " (" + strings.Join(names, ", ") + ") "
	return Insert{
		sqlite:   "INSERT OR FAIL " + into + "VALUES (" + strings.Join(places, ", ") + ") " + conflict,
		postgres: "INSERT " + into + "SELECT * FROM unnest(" + strings.Join(arrays, ", ") + ") " + conflict,
	}
}

// Write inserts the rows, in their order, in the transaction of ctx and returns
// how many it wrote. The values of a column are all of one type: string, int64,
// *int64 or []byte.
func (i Insert) Write(ctx context.Context, db *database.DB, rows [][]any) (written int64, err error) {
	if db.Dialect() == database.PostgreSQL && len(rows) > 0 {
		return db.Exec(ctx, i.postgres, Columns(rows)...)
	}
	for _, row := range rows {
		n, err := db.Exec(ctx, i.sqlite, row...)
		if written += n; err != nil {
			return written, err
		}
	}
	return written, nil
}

// Columns turns rows into one array for each column, as PostgreSQL's unnest takes them.
func Columns(rows [][]any) []any {
	columns := make([]any, len(rows[0]))
	for i, value := range rows[0] {
		switch value.(type) {
		case string:
			columns[i] = column[string](rows, i)
		case []byte:
			columns[i] = column[[]byte](rows, i)
		case *int64:
			columns[i] = column[*int64](rows, i)
		default:
			columns[i] = column[int64](rows, i)
		}
	}
	return columns
}

func column[T any](rows [][]any, i int) []T {
	values := make([]T, len(rows))
	for j, row := range rows {
		values[j] = row[i].(T)
	}
	return values
}
