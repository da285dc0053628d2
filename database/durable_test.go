package database_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
)

// numbered opens a database file on f whose table holds 1, 2, 3 … in the order of commits.
func numbered(t *testing.T, f *faultFS, opts ...database.Option) (db *database.DB, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "kit.db")
	db, err := database.OpenFile(path, append(opts, database.WithVFS(f.name))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	execute(t, db, t.Context(), `CREATE TABLE log (n INTEGER PRIMARY KEY, pad TEXT NOT NULL)`)
	return db, path
}

// appendNumber adds the next number and returns it. A few transactions are larger than what is written to the log at
// once.
func appendNumber(ctx context.Context, db *database.DB) (n int64, err error) {
	length := rand.IntN(600)
	if rand.IntN(50) == 0 {
		length = rand.IntN(300 << 10)
	}
	err = db.InTx(ctx, func(ctx context.Context) error {
		return db.QueryRow(ctx, `INSERT INTO log (n, pad) SELECT coalesce(max(n), 0) + 1, $1 FROM log RETURNING n`,
			fmt.Sprintf("%0*d", length, 0)).Scan(&n)
	})
	return n, err
}

func TestEveryAcknowledgementFollowsASync(t *testing.T) {
	f := newFaultFS(t)
	db, path := numbered(t, f)
	for range 50 {
		before, _ := f.state(path + "-wal")
		if _, err := appendNumber(t.Context(), db); err != nil {
			t.Fatal(err)
		}
		if syncs, unsynced := f.state(path + "-wal"); syncs == before || unsynced > 0 {
			t.Fatal("acknowledged before the log was synced")
		}
	}
}

// With SyncFull a power cut takes nothing that was acknowledged; with SyncNormal it may take the last commits, but none
// before a kept one.
func TestPowerCut(t *testing.T) {
	for _, mode := range []database.Sync{database.SyncFull, database.SyncNormal} {
		t.Run(mode.String(), func(t *testing.T) {
			f := newFaultFS(t) // one after the other, as SQLite's list of VFSs wants it
			t.Parallel()
			db, path := numbered(t, f, database.WithSync(mode))
			ctx, stop := context.WithCancel(t.Context())
			var acknowledged atomic.Int64 // the highest number; those below are acknowledged or were committed with it
			var group sync.WaitGroup
			for range 16 {
				group.Go(func() {
					for ctx.Err() == nil {
						n, err := appendNumber(t.Context(), db)
						if err != nil {
							t.Error(err)
							return
						}
						for old := acknowledged.Load(); n > old && !acknowledged.CompareAndSwap(old, n); old = acknowledged.Load() {
						}
					}
				})
			}
			cuts := 30
			if testing.Short() {
				cuts = 5
			}
			for i := range cuts {
				for target := acknowledged.Load() + 1 + rand.Int64N(100); acknowledged.Load() < target && !t.Failed(); {
					runtime.Gosched()
				}
				promised := acknowledged.Load()
				folder := t.TempDir()
				f.cut(t, folder, []float64{0, 1, 0.5}[i%3])
				checkAfterCut(t, filepath.Join(folder, filepath.Base(path)), mode, promised)
			}
			stop()
			group.Wait()
		})
	}
}

func checkAfterCut(t *testing.T, path string, mode database.Sync, promised int64) {
	t.Helper()
	db, err := database.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	checkIntegrity(t, db)
	if mode == database.SyncNormal && count(t, db, t.Context(), `SELECT count(*) FROM sqlite_schema WHERE name = 'log'`) == 0 {
		return // even the table was among the last commits
	}
	numbers, err := database.All(t.Context(), db, scanInt, `SELECT n FROM log ORDER BY n`)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		if n != int64(i)+1 {
			t.Fatalf("number %d at place %d", n, i+1)
		}
	}
	if mode == database.SyncFull && int64(len(numbers)) < promised {
		t.Fatalf("%d commits left of %d", len(numbers), promised)
	}
}

func checkIntegrity(t testing.TB, db *database.DB) {
	t.Helper()
	faults, err := database.All(context.Background(), db, scanText, `PRAGMA integrity_check`)
	if diff := cmp.Diff([]string{"ok"}, faults); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
}

// A disk that refuses to sync makes no caller believe in success.
func TestCommitFails(t *testing.T) {
	f := newFaultFS(t)
	db, _ := numbered(t, f)
	if _, err := appendNumber(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	queued(t, db, 5, func(int) {
		f.refuse.Store(true)
		if n, err := appendNumber(t.Context(), db); !errors.Is(err, database.ErrUnknownOutcome) {
			t.Errorf("number %d: %v", n, err)
		}
	})()
	f.refuse.Store(false)
	if n, err := appendNumber(t.Context(), db); err != nil || n != 2 {
		t.Errorf("number %d: %v", n, err)
	}
	checkIntegrity(t, db)
}

// A full disk ends SQLite's whole transaction. Those whose rows fit are in, those whose rows do not are refused.
func TestFullDisk(t *testing.T) {
	for _, blob := range []string{"small", "big"} {
		t.Run(blob, func(t *testing.T) {
			f := newFaultFS(t)
			db, _ := numbered(t, f)
			execute(t, db, t.Context(), `CREATE TABLE big (id INTEGER PRIMARY KEY, data BLOB NOT NULL)`)
			pages := count(t, db, t.Context(), `PRAGMA page_count`)
			execute(t, db, t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages+30))
			var mu sync.Mutex
			kept := map[int64]bool{}
			size := map[string]int{"small": 9_000, "big": 50_000}[blob]
			var refused int
			queued(t, db, 20, func(i int) {
				n := size
				if i%4 == 3 {
					n = 100
				}
				err := db.InTx(t.Context(), func(ctx context.Context) error {
					_, err := db.Exec(ctx, `INSERT INTO big (id, data) VALUES ($1, $2)`, i, make([]byte, n))
					return err
				})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					kept[int64(i)] = true
				} else {
					refused++
				}
			})()
			ids, err := database.All(t.Context(), db, scanInt, `SELECT id FROM big`)
			if err != nil {
				t.Fatal(err)
			}
			got := map[int64]bool{}
			for _, id := range ids {
				got[id] = true
			}
			if diff := cmp.Diff(kept, got); diff != "" || refused == 0 || len(kept) == 0 {
				t.Error(diff, refused, len(kept))
			}
			checkIntegrity(t, db)
		})
	}
}
