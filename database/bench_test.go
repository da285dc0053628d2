package database_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
)

const insertBench = `INSERT INTO bench (id, name, n) VALUES ($1, $2, $3)`

func benchFile(b *testing.B, opts ...database.Option) *database.DB {
	b.Helper()
	db, err := database.OpenFile(filepath.Join(b.TempDir(), "kit.db"), opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	execute(b, db, b.Context(), `CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT NOT NULL, n BIGINT NOT NULL)`)
	return db
}

// spread shares b.N operations out to callers.
func spread(b *testing.B, callers int, op func(i int64) error) {
	var next atomic.Int64
	var group sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for range callers {
		group.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := op(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "op/s")
}

// BenchmarkInsert compares a commit for each insert with the group commit. exec is one statement, tx a callback.
func BenchmarkInsert(b *testing.B) {
	ctx := b.Context()
	run := func(name string, callers int, opts ...database.Option) {
		b.Run(fmt.Sprintf("exec/%s/callers=%d", name, callers), func(b *testing.B) {
			db := benchFile(b, opts...)
			spread(b, callers, func(i int64) error {
				_, err := db.Exec(ctx, insertBench, i, "name", i)
				return err
			})
		})
		b.Run(fmt.Sprintf("tx/%s/callers=%d", name, callers), func(b *testing.B) {
			db := benchFile(b, opts...)
			spread(b, callers, func(i int64) error {
				return db.InTx(ctx, func(ctx context.Context) error {
					_, err := db.Exec(ctx, insertBench, i, "name", i)
					return err
				})
			})
		})
	}
	run("each", 64, database.WithBatch(1))
	run("group", 64)
	run("group", 1)
	run("group", 8)
	run("group", 256)
	run("normal/each", 64, database.WithSync(database.SyncNormal), database.WithBatch(1))
	run("normal/group", 64, database.WithSync(database.SyncNormal))
}

// BenchmarkRefusals is BenchmarkInsert/tx with one callback in eight that fails after its insert.
func BenchmarkRefusals(b *testing.B) {
	db := benchFile(b)
	spread(b, 64, func(i int64) error {
		err := db.InTx(b.Context(), func(ctx context.Context) error {
			if _, err := db.Exec(ctx, insertBench, i, "name", i); err != nil {
				return err
			}
			if i%8 == 0 {
				return errRefused
			}
			return nil
		})
		if err == errRefused {
			return nil
		}
		return err
	})
}

func BenchmarkPointRead(b *testing.B) {
	const rows = 100_000
	fill := func(b *testing.B, db *database.DB) {
		b.Helper()
		err := db.InTx(b.Context(), func(ctx context.Context) error {
			for i := range rows {
				if _, err := db.Exec(ctx, insertBench, i, "name of the row", i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	read := func(db *database.DB, ctx context.Context) func(i int64) error {
		return func(i int64) error {
			var name string
			var n int64
			return db.QueryRow(ctx, `SELECT name, n FROM bench WHERE id = $1`, i*7919%rows).Scan(&name, &n)
		}
	}
	for _, callers := range []int{1, 64} {
		b.Run(fmt.Sprintf("file/callers=%d", callers), func(b *testing.B) {
			db := benchFile(b)
			fill(b, db)
			spread(b, callers, read(db, b.Context()))
		})
		b.Run(fmt.Sprintf("memory/callers=%d", callers), func(b *testing.B) {
			db, err := database.OpenMemory()
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			execute(b, db, b.Context(), `CREATE TABLE bench (id INTEGER PRIMARY KEY, name TEXT NOT NULL, n BIGINT NOT NULL)`)
			fill(b, db)
			spread(b, callers, read(db, b.Context()))
		})
	}
	b.Run("file/callers=64/writers=16", func(b *testing.B) {
		db := benchFile(b)
		fill(b, db)
		ctx, stop := context.WithCancel(b.Context())
		var writers sync.WaitGroup
		var next atomic.Int64
		for range 16 {
			writers.Go(func() {
				for ctx.Err() == nil {
					if _, err := db.Exec(b.Context(), insertBench, rows+next.Add(1), "name", 1); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		spread(b, 64, read(db, b.Context()))
		stop()
		writers.Wait()
		b.ReportMetric(float64(next.Load())/b.Elapsed().Seconds(), "write/s")
	})
}
