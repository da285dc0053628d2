package database_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

var imaged = database.Migrations{Name: "imaged", FS: fstest.MapFS{
	"0001_thing.sql": {Data: []byte(`CREATE TABLE imaged_thing (id TEXT PRIMARY KEY, n BIGINT NOT NULL);
		INSERT INTO imaged_thing (id, n) VALUES ('first', 1);`)},
	"0002_index.sql": {Data: []byte(`CREATE INDEX imaged_thing_n ON imaged_thing (n);`)},
}}

func things(t *testing.T, db *database.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(t.Context(), `SELECT count(*) FROM imaged_thing`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Databases that are migrated with the same files start from copies of one image.
func TestCopiesOfAnImageAreIndependent(t *testing.T) {
	for year := range 4 {
		db := databasetest.Memory(t)
		if year%2 == 1 {
			db = databasetest.File(t)
		}
		now := time.Date(2030+year, 1, 1, 0, 0, 0, 0, time.UTC)
		db.UseClock(func() time.Time { return now })
		if err := db.Migrate(t.Context(), imaged); err != nil {
			t.Fatal(err)
		}
		if n := things(t, db); n != 1 {
			t.Fatalf("database %d starts with %d rows, want the one of the migration", year, n)
		}
		if _, err := db.Exec(t.Context(), `INSERT INTO imaged_thing (id, n) VALUES ($1, $2)`, "second", 2); err != nil {
			t.Fatal(err)
		}
		if n := things(t, db); n != 2 {
			t.Errorf("database %d: %d rows after an insert, want 2", year, n)
		}
		var applied, at int64
		if err := db.QueryRow(t.Context(), `SELECT count(*), min(applied_at) FROM kit_migrations`).Scan(&applied, &at); err != nil {
			t.Fatal(err)
		}
		if applied != 2 || at != now.UnixMilli() {
			t.Errorf("database %d: %d files applied at %d, want 2 at its own time %d", year, applied, at, now.UnixMilli())
		}
		var vacuum int
		var sound string
		if err := db.QueryRow(t.Context(), `SELECT auto_vacuum, integrity_check FROM pragma_auto_vacuum, pragma_integrity_check`).Scan(&vacuum, &sound); err != nil {
			t.Fatal(err)
		}
		if vacuum != 2 || sound != "ok" {
			t.Errorf("database %d: auto_vacuum is %d and the check says %q, want 2, as files are made, and ok", year, vacuum, sound)
		}
	}
}

// A file that was copied from an image keeps its log: it opens again with what was committed.
func TestAFileFromAnImageOpensAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	for round := range 2 {
		db, err := database.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Migrate(t.Context(), imaged); err != nil {
			t.Fatal(err)
		}
		if n := things(t, db); n != 1+round {
			t.Errorf("opened for the %d. time: %d rows, want %d", round+1, n, 1+round)
		}
		if _, err := db.Exec(t.Context(), `INSERT INTO imaged_thing (id, n) VALUES ($1, $2)`, fmt.Sprint(round), round); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnImageReplacesNothing(t *testing.T) {
	db := databasetest.Memory(t)
	if _, err := db.Exec(t.Context(), `CREATE TABLE own (id INTEGER PRIMARY KEY)`); err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(t.Context(), imaged); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(t.Context(), `INSERT INTO own (id) VALUES ($1)`, 1); err != nil {
		t.Errorf("the table made before Migrate: %v", err)
	}
}

// A database that cannot be read, or that somebody has prepared, is not taken for an empty one.
func TestAnImageReplacesOnlyWhatIsKnownToBeEmpty(t *testing.T) {
	fs := newFaultFS(t)
	path := filepath.Join(t.TempDir(), "kit.db")
	db, err := database.OpenFile(path, database.WithVFS(fs.name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if err := db.Migrate(t.Context(), imaged); err != nil {
		t.Fatal(err)
	}
	tool := toolOn(t, path)
	for fails := range int64(16) {
		if _, err := tool.ExecContext(t.Context(), `INSERT INTO imaged_thing (id, n) VALUES (?1, 1)`, fails); err != nil { // the first page is read again
			t.Fatal(err)
		}
		fs.unread.Store(fails)
		_ = db.Migrate(t.Context(), imaged) // may fail
		fs.unread.Store(0)
		if n := things(t, db); n != int(fails)+2 {
			t.Fatalf("%d rows after %d reads that failed, want %d", n, fails, fails+2)
		}
	}

	prepared := databasetest.File(t)
	if _, err := prepared.Exec(t.Context(), `PRAGMA user_version = 5`); err != nil {
		t.Fatal(err)
	}
	if err := prepared.Migrate(t.Context(), imaged); err != nil {
		t.Fatal(err)
	}
	var version int
	if err := prepared.QueryRow(t.Context(), `PRAGMA user_version`).Scan(&version); err != nil || version != 5 {
		t.Errorf("user_version is %d, %v, want the 5 of before", version, err)
	}
}

func TestMigrationsOfOneDatabaseAtOnceLoseNoRow(t *testing.T) {
	db := databasetest.Memory(t)
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			if err := db.Migrate(context.Background(), imaged); err != nil {
				t.Error(err)
			}
			if _, err := db.Exec(context.Background(), `INSERT INTO imaged_thing (id, n) VALUES ($1, $2)`, i, i); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if n := things(t, db); n != 17 {
		t.Errorf("%d rows, want that of the migration and 16", n)
	}
}

// What a set of files did before the one with a fault stays, as on every database.
func TestAFaultyFileMakesNoImage(t *testing.T) {
	faulty := database.Migrations{Name: "imaged", FS: fstest.MapFS{
		"0001_thing.sql": imaged.FS.(fstest.MapFS)["0001_thing.sql"],
		"0002_wrong.sql": {Data: []byte(`CREATE INDEX wrong ON nowhere (n);`)},
	}}
	for range 2 {
		db := databasetest.Memory(t)
		if err := db.Migrate(t.Context(), faulty); err == nil {
			t.Fatal("the faulty file was applied")
		}
		if n := things(t, db); n != 1 {
			t.Errorf("%d rows of the file before, want 1", n)
		}
	}
}
