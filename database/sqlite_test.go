package database_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

func TestFileSettings(t *testing.T) {
	db, err := database.OpenFile(filepath.Join(t.TempDir(), "kit.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	pragmas := func(ctx context.Context, names ...string) []string {
		values := []string{}
		for _, name := range names {
			value, _, err := database.Get(ctx, db, func(s database.Scanner) (text string, err error) {
				var value any
				err = s.Scan(&value)
				if n, ok := value.(int64); ok {
					return name + "=" + string(rune('0'+n)), err
				}
				return name + "=" + value.(string), err
			}, "PRAGMA "+name)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return values
	}
	err = db.InTx(t.Context(), func(ctx context.Context) error {
		want := []string{"journal_mode=wal", "synchronous=2", "foreign_keys=1", "query_only=0", "temp_store=2"}
		if diff := cmp.Diff(want, pragmas(ctx, "journal_mode", "synchronous", "foreign_keys", "query_only", "temp_store")); diff != "" {
			t.Error("the writer:", diff)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"query_only=1"}, pragmas(t.Context(), "query_only")); diff != "" {
		t.Error("a reader:", diff)
	}
}

func TestOneProcessAFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "odd name #?%.db")
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := database.OpenFile(path); err == nil {
		t.Error("opened twice")
		other.Close()
	}
	if runtime.GOOS != "windows" {
		link := filepath.Join(folder, "link.db")
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		if other, err := database.OpenFile(link); err == nil {
			t.Error("opened twice by way of a link")
			other.Close()
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
	}
	migrate(t, db)
	execute(t, db, t.Context(), insertAccount, "a", 1)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the log is left after Close: %v", err)
	}
	db, err = database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 1 {
		t.Errorf("%d accounts", n)
	}
}

func TestOpenFileRefuses(t *testing.T) {
	folder := t.TempDir()
	garbage := filepath.Join(folder, "garbage.db")
	if err := os.WriteFile(garbage, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(garbage, []byte("this is no database file, but it is longer than a header of SQLite, which has a hundred bytes or so"), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(folder, name) }
	if err := os.WriteFile(at("empty.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"unlocked.db.lock", "unmade.db.new"} {
		if err := os.Mkdir(at(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	open, err := database.OpenFile(at("open.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	refused := func(path string, opts ...database.Option) {
		db, err := database.OpenFile(path, opts...)
		if err == nil {
			t.Errorf("opened %s", path)
			db.Close()
			return
		}
		if text := err.Error(); !strings.HasPrefix(text, "database: "+path) || strings.Count(text, path) != 1 || strings.Count(text, "database: ") != 1 {
			t.Errorf("%v, want %s named, once", err, path)
		}
	}
	for _, path := range []string{garbage, at("missing/kit.db"), folder, at("empty.db"), at("unlocked.db"), at("unmade.db"), at("open.db")} {
		refused(path)
	}
	refused(at("kit.db"), database.WithVFS("none"))
}

func TestBackup(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, insertAccount, "a", 1)
		path := filepath.Join(t.TempDir(), "backup.db")
		err := db.Backup(ctx, path)
		if db.Dialect() == database.PostgreSQL {
			if !errors.Is(err, database.ErrUnsupported) {
				t.Error(err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the copy: %v %v, want it for its owner only", info.Mode(), err)
		}
		if err := db.Backup(ctx, path); err == nil {
			t.Error("a backup was overwritten")
		}
		execute(t, db, ctx, insertAccount, "b", 1)
		copied, err := database.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		defer copied.Close()
		checkIntegrity(t, copied)
		if n := count(t, copied, ctx, `SELECT count(*) FROM account`); n != 1 {
			t.Errorf("%d accounts", n)
		}
	})
}

func TestListenOnSQLite(t *testing.T) {
	db := databasetest.Memory(t)
	if err := db.Listen(t.Context(), "x", func() {}, func(string) {}); !errors.Is(err, database.ErrUnsupported) {
		t.Error(err)
	}
}

func TestQueryOutsideATransactionOnlyReads(t *testing.T) {
	for _, db := range []*database.DB{databasetest.Memory(t), databasetest.File(t)} {
		migrate(t, db)
		const insert = `INSERT INTO account (id, balance) VALUES ('a', 1) RETURNING id`
		if _, _, err := database.Get(t.Context(), db, scanText, insert); err == nil {
			t.Error("written by QueryRow")
		}
		if n := count(t, db, t.Context(), `SELECT count(*) FROM account`); n != 0 {
			t.Errorf("%d accounts", n)
		}
	}
}

// More queries than a connection keeps, and the same query in itself.
func TestStatementCache(t *testing.T) {
	db := databasetest.File(t)
	err := db.InTx(t.Context(), func(ctx context.Context) error {
		for range 2 {
			for i := range int64(1200) {
				if n := count(t, db, ctx, "SELECT "+string(rune('0'+i%10))+" + 0 * "+string(rune('0'+i/10%10))+" + 0 * "+string(rune('0'+i/100%10))+" -- "+string(rune('a'+i/1000))); n != i%10 {
					t.Fatalf("query %d returns %d", i, n)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
