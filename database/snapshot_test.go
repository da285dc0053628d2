package database_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
)

// Readers that keep their snapshots never return less than what was acknowledged before they began.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		execute(t, db, ctx, insertAccount, "a", 0)
		var acknowledged atomic.Int64
		var readers sync.WaitGroup
		done := make(chan struct{})
		for i := range 4 {
			readers.Go(func() {
				whileOpen(done, func() bool {
					least := acknowledged.Load()
					var balance int64
					read := func() error { return db.QueryRow(ctx, `SELECT balance FROM account WHERE id = 'a'`).Scan(&balance) }
					if i%2 == 1 {
						read = func() error {
							return db.Read(ctx, func(ctx context.Context) error {
								return db.QueryRow(ctx, `SELECT balance FROM account WHERE id = 'a'`).Scan(&balance)
							})
						}
					}
					if err := read(); err != nil || balance < least {
						t.Errorf("a read returns %d, %v, after %d was acknowledged", balance, err, least)
						return false
					}
					return true
				})
			})
		}
		for n := range int64(500) {
			execute(t, db, ctx, `UPDATE account SET balance = $1 WHERE id = 'a'`, n)
			acknowledged.Store(n)
			for range n % 7 { // pauses in which snapshots are kept
				count(t, db, ctx, `SELECT balance FROM account WHERE id = 'a'`)
			}
		}
		close(done)
		readers.Wait()
	})
}

// The log starts over although readers kept snapshots and did not come back.
func TestKeptSnapshotsLetTheLogStartOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	db, err := database.OpenFile(path, database.WithSync(database.SyncNormal))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	execute(t, db, ctx, `CREATE TABLE blob (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)`)
	const size, writes = int64(1 << 20), int64(120)
	for n := range writes {
		execute(t, db, ctx, `INSERT INTO blob (id, bytes) VALUES (1, zeroblob($1)) ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes`, size+n)
		if n%40 != 0 {
			continue
		}
		for range 12 { // by all of them, more than once
			if got := count(t, db, ctx, `SELECT length(bytes) FROM blob`); got != size+n {
				t.Fatalf("%d bytes, want %d", got, size+n)
			}
		}
	}
	log, err := os.Stat(path + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	if log.Size() > 48<<20 { // it is copied at 8,000 pages
		t.Errorf("the log has %d MiB after %d writes of one", log.Size()>>20, writes)
	}
}

// What a tool writes into the file is seen soon, though this process wrote nothing.
func TestRowsFromOutsideAreSeen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ctx := t.Context()
	execute(t, db, ctx, `CREATE TABLE note (id INTEGER PRIMARY KEY)`)
	tool := toolOn(t, path)
	for n := range int64(20) {
		if _, err := tool.ExecContext(ctx, fmt.Sprintf(`INSERT INTO note (id) VALUES (%d)`, n)); err != nil {
			t.Fatal(err)
		}
		for tries := 0; count(t, db, ctx, `SELECT count(*) FROM note`) != n+1; tries++ {
			if tries == 1_000_000 {
				t.Fatalf("row %d is not seen", n)
			}
		}
	}
}

// An application that does nothing any more does not keep a tool from the log.
func TestIdleReadersKeepNoSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kit.db")
	tool := toolOn(t, path)
	run := func(query string) {
		t.Helper()
		if _, err := tool.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
	}
	run(`CREATE TABLE note (id INTEGER PRIMARY KEY)`)
	db, err := database.OpenFile(path) // and its writer has nothing to do
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for range 12 { // by every reader, more than once
		count(t, db, t.Context(), `SELECT count(*) FROM note`)
	}
	run(`INSERT INTO note (id) VALUES (1)`)
	for tries, busy := 0, 1; busy == 1; tries++ {
		if err := tool.QueryRowContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`).Scan(&busy, new(int), new(int)); err != nil {
			t.Fatal(err)
		}
		if tries == 100_000 {
			t.Fatal("the log is still read")
		}
	}
}
