package database

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Dialect names the database behind a [DB].
type Dialect int

// The two databases. The zero value is SQLite, the default of the kit.
const (
	SQLite Dialect = iota
	PostgreSQL
)

// String returns "sqlite" or "postgres", the words used in migration file names.
func (d Dialect) String() string {
	if d == PostgreSQL {
		return "postgres"
	}
	return "sqlite"
}

// ForUpdate ends a SELECT whose rows the transaction is going to change; it does nothing on SQLite,
// which has one writer. SkipLocked also skips rows that other transactions hold.
const (
	ForUpdate  = "/*pg FOR UPDATE --*/ \n"
	SkipLocked = "/*pg FOR UPDATE SKIP LOCKED --*/ \n"
)

// Text returns SQL that differs between the two databases: the first on SQLite, where it is one line, the second on
// PostgreSQL. It may be a whole statement or a part of one.
func Text(sqlite, postgres string) string {
	return "/*pg " + postgres + " --*/ " + sqlite + "\n"
}

// InList returns the SQL to write after a TEXT column to select the rows whose value is in the JSON
// list given as parameter n; [List] makes that argument. One parameter serves any number of values,
// so the statement stays cached. On PostgreSQL they become an array, which is looked up in an index
// that begins with the column rather than joined.
//
//	db.Query(ctx, `SELECT id FROM users WHERE id `+database.InList(1), database.List(ids))
func InList(n int) string {
	return Text(fmt.Sprintf("IN (SELECT value FROM json_each($%d))", n), fmt.Sprintf("= ANY (ARRAY(SELECT jsonb_array_elements_text($%d::jsonb)))", n))
}

// List returns values as the JSON argument that [InList] expects.
func List(values []string) string {
	if len(values) == 0 {
		return "[]"
	}
	b, err := json.Marshal(values)
	if err != nil {
		panic(err) // strings always encode
	}
	return string(b)
}

var (
	pgEscape = regexp.MustCompile(`(?s)/\*pg\s(.*?)\*/`)
	expanded sync.Map // query text to its PostgreSQL form
)

// Expand makes the /*pg … */ escapes of a query live. Drivers for PostgreSQL call it; results are cached, because
// queries are constants of the program.
func Expand(query string) string {
	if !strings.Contains(query, "/*pg") {
		return query
	}
	if text, ok := expanded.Load(query); ok {
		return text.(string)
	}
	text := pgEscape.ReplaceAllString(query, " $1 ")
	expanded.Store(query, text)
	return text
}
