package database_test

import (
	"context"
	"database/sql"
	"os"
	"testing"
	"testing/fstest"

	_ "modernc.org/sqlite" // what tools open files with

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(killedChild); path != "" {
		writeUntilKilled(path)
	}
	os.Exit(m.Run())
}

// schema is what the tests here work on.
const schema = `
CREATE TABLE account (
	id      TEXT PRIMARY KEY,
	balance BIGINT NOT NULL CONSTRAINT account_balance_not_negative CHECK (balance >= 0),
	name    TEXT CONSTRAINT account_name_unique UNIQUE
);
CREATE TABLE parent (id TEXT PRIMARY KEY);
CREATE TABLE child (
	id     TEXT PRIMARY KEY,
	parent TEXT NOT NULL CONSTRAINT child_parent REFERENCES parent (id),
	later  TEXT CONSTRAINT child_later REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED
);
CREATE TABLE kinds (
	id    TEXT PRIMARY KEY,
	ok    BOOLEAN,
	n     BIGINT,
	ratio DOUBLE PRECISION,
	bytes BYTEA,
	text  TEXT
);
`

func migrate(t testing.TB, db *database.DB) {
	t.Helper()
	err := db.Migrate(t.Context(), database.Migrations{Name: "test", FS: fstest.MapFS{"0001_test.sql": {Data: []byte(schema)}}})
	if err != nil {
		t.Fatal(err)
	}
}

// each runs fn on every database with the schema in place.
func each(t *testing.T, fn func(t *testing.T, db *database.DB)) {
	t.Helper()
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		migrate(t, db)
		fn(t, db)
	})
}

func execute(t testing.TB, db *database.DB, ctx context.Context, query string, args ...any) int64 {
	t.Helper()
	n, err := db.Exec(ctx, query, args...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func scanInt(s database.Scanner) (n int64, err error) {
	err = s.Scan(&n)
	return n, err
}

func scanText(s database.Scanner) (text string, err error) {
	err = s.Scan(&text)
	return text, err
}

func count(t testing.TB, db *database.DB, ctx context.Context, query string, args ...any) int64 {
	t.Helper()
	n, ok, err := database.Get(ctx, db, scanInt, query, args...)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return n
}

// toolOn opens a file as another program would.
func toolOn(t *testing.T, path string) *sql.DB {
	t.Helper()
	tool, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tool.Close() })
	return tool
}
