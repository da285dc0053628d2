package kv_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/kv/kvtest"
)

func TestMemory(t *testing.T) {
	kvtest.Run(t, func(_ *testing.T, now func() time.Time) []kv.Store { return []kv.Store{kv.NewMemory(now)} })
}

func open(t *testing.T, now func() time.Time, dbs ...*database.DB) []kv.Store {
	stores := make([]kv.Store, len(dbs))
	for i, db := range dbs {
		db.UseClock(now)
		if err := db.Migrate(t.Context(), kv.Migrations()); err != nil {
			t.Fatal(err)
		}
		stores[i] = kv.NewSQL(db)
	}
	return stores
}

func TestSQL(t *testing.T) {
	for name, fresh := range map[string]func(*testing.T) []*database.DB{
		"memory":   func(t *testing.T) []*database.DB { return []*database.DB{databasetest.Memory(t)} },
		"file":     func(t *testing.T) []*database.DB { return []*database.DB{databasetest.File(t)} },
		"postgres": func(t *testing.T) []*database.DB { return databasetest.Shared(t, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			kvtest.Run(t, func(t *testing.T, now func() time.Time) []kv.Store { return open(t, now, fresh(t)...) })
		})
	}
}

// TestSweep checks that later writes delete expired entries, a bounded number at a time.
func TestSweep(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		s := open(t, func() time.Time { return now }, db)[0]
		put := func(key string, ttl time.Duration) {
			t.Helper()
			if err := s.Put(t.Context(), key, nil, ttl); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 150 {
			put(fmt.Sprint(i), time.Minute)
		}
		now = now.Add(2 * time.Minute)
		for _, want := range []int{51, 2, 3} {
			put(fmt.Sprint("kept until ", want), time.Hour)
			var n int
			if err := db.QueryRow(t.Context(), `SELECT count(*) FROM kv_entry`).Scan(&n); err != nil || n != want {
				t.Errorf("%d entries, want %d (%v)", n, want, err)
			}
			now = now.Add(time.Second)
		}
	})
}

// TestSweepKeepsUp checks that entries are deleted as fast as they expire, however fast they were
// written.
func TestSweepKeepsUp(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
		s := open(t, func() time.Time { return now }, db)[0]
		const rate, seconds = 300, 10
		for i := range rate * seconds {
			if err := s.Put(t.Context(), fmt.Sprint(i), nil, time.Second); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second / rate)
		}
		var n int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM kv_entry`).Scan(&n); err != nil || n > 3*rate {
			t.Errorf("%d entries are kept, of which %d live (%v)", n, rate, err)
		}
	})
}
