// Package databasetest opens the databases that a test of a store runs on, and closes and removes them after it.
package databasetest

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
)

// connections of a DB on PostgreSQL: a server for tests has to do for many packages at once.
const connections = 8

// Each runs fn on every database: SQLite in memory in test mode, a SQLite file, and PostgreSQL in a schema of its own
// when KIT_TEST_POSTGRES is set.
func Each(t *testing.T, fn func(t *testing.T, db *database.DB)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { fn(t, Memory(t)) })
	t.Run("file", func(t *testing.T) { fn(t, File(t)) })
	if os.Getenv("KIT_TEST_POSTGRES") != "" {
		t.Run("postgres", func(t *testing.T) { fn(t, Postgres(t)) })
	}
}

// Memory opens a SQLite database in memory in test mode, closed after the test.
func Memory(t testing.TB, opts ...database.Option) *database.DB {
	t.Helper()
	db, err := database.OpenMemory(append([]database.Option{database.WithTestMode()}, opts...)...)
	return opened(t, db, err)
}

// File opens a SQLite file in a temporary folder, closed after the test. In tests, not in benchmarks, its commits survive
// the end of the process, not that of the machine, unless an option says otherwise: no test of a store ends the machine.
func File(t testing.TB, opts ...database.Option) *database.DB {
	t.Helper()
	if _, ok := t.(*testing.T); ok {
		opts = append([]database.Option{database.WithSync(database.SyncNormal)}, opts...)
	}
	db, err := database.OpenFile(filepath.Join(t.TempDir(), "kit.db"), opts...)
	return opened(t, db, err)
}

// Postgres opens PostgreSQL in a schema of its own, dropped after the test. Without KIT_TEST_POSTGRES it skips.
func Postgres(t testing.TB, opts ...postgres.Option) *database.DB {
	t.Helper()
	return shared(t, 1, opts)[0]
}

// Shared opens n databases on one PostgreSQL schema, as n nodes of one deployment would. Without KIT_TEST_POSTGRES it
// skips.
func Shared(t testing.TB, n int) []*database.DB {
	t.Helper()
	return shared(t, n, nil)
}

func shared(t testing.TB, n int, opts []postgres.Option) []*database.DB {
	t.Helper()
	url := os.Getenv("KIT_TEST_POSTGRES")
	if url == "" {
		t.Skip("KIT_TEST_POSTGRES is not set")
	}
	ctx := context.Background()
	schema := "kit_test_" + strings.ToLower(rand.Text())
	admin, err := postgres.Open(ctx, url, postgres.WithConnections(1))
	opened(t, admin, err)
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE"); err != nil {
			t.Error(err)
		}
	})
	opts = append([]postgres.Option{postgres.WithConnections(connections), postgres.WithSchema(schema)}, opts...)
	dbs := make([]*database.DB, n)
	for i := range dbs {
		db, err := postgres.Open(ctx, url, opts...)
		dbs[i] = opened(t, db, err)
	}
	return dbs
}

func opened(t testing.TB, db *database.DB, err error) *database.DB {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}
