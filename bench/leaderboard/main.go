// Command leaderboard compares the kit's leaderboard with COUNT(*) on the same table, with a Redis
// sorted set over loopback, and with a transaction for each call, in one run.
//
//	go run ./bench/leaderboard -entries 1000000
//	go run ./bench/leaderboard -entries 1000000 -db postgres://...
//
// It starts its own redis-server, which must be installed. Redis keeps its set in memory and is
// called over one connection; the kit is called in process and reads a durable database.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/leaderboard"
)

var (
	entries = flag.Int("entries", 1_000_000, "how many entries the read comparison has")
	address = flag.String("db", "", "a postgres:// URL, or empty for a SQLite file")
	players = flag.Int("players", 100_000, "how many entries the boards of the write comparison have")
	samples = flag.Int("samples", 20_000, "reads measured of each kind, in ten rounds")
	seconds = flag.Float64("seconds", 2, "how long each kind of write is measured, per round")
	parts   = flag.String("parts", "reads,writes", "what to compare")
)

func main() {
	flag.Parse()
	log.SetFlags(log.Ltime)
	ctx := context.Background()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	if strings.Contains(*parts, "reads") {
		if err := withBoard(ctx, compareReads); err != nil {
			return err
		}
	}
	if strings.Contains(*parts, "writes") {
		return withBoard(ctx, compareWrites)
	}
	return nil
}

// bench is an open leaderboard.
type bench struct {
	*leaderboard.Leaderboard
	db *database.DB
}

// boards are those of the comparison: one to read, and empty ones to write to.
var boards = []leaderboard.Board{
	{Key: "big", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
	{Key: "grouped", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum},
	{Key: "single", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum},
}

// withBoard runs a comparison on an empty database.
func withBoard(ctx context.Context, compare func(context.Context, *bench) error) error {
	folder, err := os.MkdirTemp("", "kit-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	db, drop, err := openDatabase(ctx, folder)
	if err != nil {
		return err
	}
	defer drop()
	base, err := url.Parse("http://localhost")
	if err != nil {
		return err
	}
	host := capability.Host{DB: db, Now: time.Now, Log: slog.New(slog.DiscardHandler), BaseURL: base, Environment: "bench"}
	l, err := leaderboard.New(host, leaderboard.Config{Boards: boards}, leaderboard.Peers{})
	if err != nil {
		return err
	}
	if err := migrate(ctx, db, leaderboard.Name, l.Capability().Migrations); err != nil {
		return err
	}
	defer l.Capability().Close(ctx)
	return compare(ctx, &bench{l, db})
}

func openDatabase(ctx context.Context, folder string) (db *database.DB, drop func(), err error) {
	if *address == "" {
		db, err = database.OpenFile(filepath.Join(folder, "bench.db"))
		return db, func() { db.Close() }, err
	}
	admin, err := postgres.Open(ctx, *address)
	if err != nil {
		return nil, nil, err
	}
	schema := fmt.Sprintf("kit_bench_%d", time.Now().UnixNano())
	if _, err := admin.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return nil, nil, err
	}
	db, err = postgres.Open(ctx, *address, postgres.WithSchema(schema))
	return db, func() {
		db.Close()
		admin.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
		admin.Close()
	}, err
}

func migrate(ctx context.Context, db *database.DB, name string, files fs.FS) error {
	return db.Migrate(ctx, database.Migrations{Name: name, FS: files})
}

func userID(i int) string { return fmt.Sprintf("user-%021d", i) }

// scoreOf returns a log-normal score, so ties are common and the tail is long.
func scoreOf(rng *rand.Rand) int64 { return int64(math.Exp(rng.NormFloat64()*1.5 + 9)) }

// timings are the durations of many calls.
type timings []time.Duration

func (t timings) mean() time.Duration {
	var sum time.Duration
	for _, d := range t {
		sum += d
	}
	return sum / time.Duration(max(len(t), 1))
}

func (t timings) quantile(q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(t))
	return sorted[int(q*float64(len(sorted)-1))]
}

func (t timings) String() string {
	return fmt.Sprintf("mean %9.1f us   p50 %9.1f us   p99 %9.1f us   (%d calls)",
		micros(t.mean()), micros(t.quantile(0.5)), micros(t.quantile(0.99)), len(t))
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }

// measure times n calls of f, with i from 0.
func measure(n int, f func(i int) error) (t timings, err error) {
	t = make(timings, n)
	for i := range t {
		began := time.Now()
		if err := f(i); err != nil {
			return nil, err
		}
		t[i] = time.Since(began)
	}
	return t, nil
}
