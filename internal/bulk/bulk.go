// Package bulk writes many rows of a table by one statement.
package bulk

import (
	"context"
	"fmt"
	"strings"

	"github.com/kitbackend/kit/database"
)

// chunk is how many rows one statement writes on SQLite: enough that the cost of
// a statement is that of its rows.
const chunk = 16

// Insert is an INSERT of any number of rows: on PostgreSQL one statement, which
// gets each column as an array, on SQLite one for every sixteen rows. On SQLite
// it says OR FAIL: what the statement has written before a row fails stays, so
// that SQLite need not keep a copy of every page to undo it, and goes with the
// transaction.
type Insert struct {
	one, many, postgres string
}

// New makes the statement for a table and its columns, each with the type of
// PostgreSQL after its name: "ref TEXT". What follows the rows is the conflict
// clause, or nothing.
func New(table string, columns []string, conflict string) Insert {
	names, arrays, places := make([]string, len(columns)), make([]string, len(columns)), make([]string, chunk)
	for i, column := range columns {
		name, kind, _ := strings.Cut(column, " ")
		names[i], arrays[i] = name, fmt.Sprintf("$%d::%s[]", i+1, kind)
	}
	for row := range places {
		parameters := make([]string, len(columns))
		for i := range columns {
			parameters[i] = fmt.Sprintf("$%d", row*len(columns)+i+1)
		}
		places[row] = "(" + strings.Join(parameters, ", ") + ")"
	}
	into := "INTO " + table + " (" + strings.Join(names, ", ") + ") "
	return Insert{
		one:      "INSERT OR FAIL " + into + "VALUES " + places[0] + " " + conflict,
		many:     "INSERT OR FAIL " + into + "VALUES " + strings.Join(places, ", ") + " " + conflict,
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
	for len(rows) > 0 {
		query, args, n := i.one, rows[0], 1
		if len(rows) >= chunk {
			query, args, n = i.many, make([]any, 0, chunk*len(rows[0])), chunk
			for _, row := range rows[:chunk] {
				args = append(args, row...)
			}
		}
		changed, err := db.Exec(ctx, query, args...)
		if written += changed; err != nil {
			return written, err
		}
		rows = rows[n:]
	}
	return written, nil
}

// Columns turns rows into one array a column, as unnest of PostgreSQL takes them.
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
