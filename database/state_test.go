package database_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func openFile(t *testing.T, path string) *database.DB {
	t.Helper()
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestEmptyFileIsRefusedByName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := database.OpenFile(path); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "empty") {
		t.Errorf("an empty file: %v, want an error that names it", err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Error("the file was written to")
	}
}

// A process that is killed while it makes a file leaves none that is refused later.
func TestHalfMadeFileIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, openFile(t, path), t.Context(), `CREATE TABLE log (n INTEGER NOT NULL)`)
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was half made is still there: %v", err)
	}
}

func TestFileThatCannotBeWrittenIsNotInUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(file, "kit.db"), filepath.Join(filepath.Dir(file), "missing", "kit.db")} {
		if _, err := database.OpenFile(path); err == nil || strings.Contains(err.Error(), "in use") || !strings.Contains(err.Error(), "cannot be written") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestCheckPasses(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		for range 3 {
			if err := db.Check(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestFullDiskIsUnavailable(t *testing.T) {
	db := openFile(t, filepath.Join(t.TempDir(), "kit.db"))
	execute(t, db, t.Context(), `CREATE TABLE big (data BLOB NOT NULL)`)
	execute(t, db, t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, count(t, db, t.Context(), `PRAGMA page_count`)+2))
	for name, write := range map[string]func() error{
		"Exec": func() error {
			_, err := db.Exec(t.Context(), `INSERT INTO big (data) VALUES ($1)`, make([]byte, 50_000))
			return err
		},
		"InTx": func() error {
			return db.InTx(t.Context(), func(ctx context.Context) error {
				_, err := db.Exec(ctx, `INSERT INTO big (data) VALUES ($1)`, make([]byte, 50_000))
				return err
			})
		},
	} {
		if err := write(); !errors.Is(err, database.ErrFull) || !errors.Is(err, database.ErrUnavailable) {
			t.Errorf("%s: %v, want ErrFull", name, err)
		}
		if err := db.Check(t.Context()); !errors.Is(err, database.ErrFull) {
			t.Errorf("Check after %s: %v, want ErrFull", name, err)
		}
	}
}

// A file whose pages something has overwritten while it was open.
func TestDamagedFileIsNotReady(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	db := openFile(t, path)
	execute(t, db, t.Context(), `CREATE TABLE big (id INTEGER PRIMARY KEY, data BLOB NOT NULL)`)
	for range 50 {
		execute(t, db, t.Context(), `INSERT INTO big (data) VALUES (randomblob(3000))`)
	}
	if err := db.Close(); err != nil { // all of it is in the file
		t.Fatal(err)
	}
	db = openFile(t, path)
	if err := db.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	noise := []byte(strings.Repeat("noise", 4096))
	if _, err := f.WriteAt(noise, 8*4096); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("Check of a damaged file: %v", err)
		}
	}
}

func TestFileShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	db := openFile(t, path)
	execute(t, db, t.Context(), `CREATE TABLE big (id INTEGER PRIMARY KEY, data BLOB NOT NULL)`)
	execute(t, db, t.Context(), `INSERT INTO big (data) SELECT zeroblob(100000) FROM json_each('[`+strings.Repeat("1,", 99)+`1]')`)
	pages := count(t, db, t.Context(), `PRAGMA page_count`)
	execute(t, db, t.Context(), `DELETE FROM big`)
	database.ShrinkNow(db)
	if now := count(t, db, t.Context(), `PRAGMA page_count`); now > pages/2 {
		t.Errorf("%d pages of %d are left after all rows were deleted", now, pages)
	}
	checkIntegrity(t, db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > pages*4096/2 {
		t.Errorf("the file has %d bytes (%v), had %d pages", info.Size(), err, pages)
	}
}
