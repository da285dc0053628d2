package audit

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
)

// TestWritersAndSealers runs writers, two sealers and a verifier concurrently: nothing is sealed
// twice or lost, and concurrent writes are never reported as a break.
func TestWritersAndSealers(t *testing.T) {
	run := func(t *testing.T, nodes ...*database.DB) {
		const writers, each = 8, 100
		trails := make([]*Audit, len(nodes))
		for i, db := range nodes {
			trails[i] = newNode(t, db)
		}
		var writing, sealing sync.WaitGroup
		done := make(chan struct{})
		for _, a := range append([]*Audit{trails[0]}, trails...) {
			sealing.Go(func() {
				for {
					if _, err := a.Seal(context.Background()); err != nil {
						t.Error(err)
					}
					if report, err := a.Verify(context.Background()); err != nil || report.Break != nil {
						t.Error(report.Break, err)
					}
					select {
					case <-done:
						return
					default:
					}
				}
			})
		}
		for w := range writers {
			writing.Go(func() {
				for i := range each {
					e := Event{Action: "test/done", Subject: Target{"board", string(rune('a' + w))}, Detail: i}
					if err := trails[w%len(trails)].Record(context.Background(), e); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writing.Wait()
		close(done)
		sealing.Wait()
		if _, err := trails[0].Seal(context.Background()); err != nil {
			t.Fatal(err)
		}
		report, err := trails[0].Verify(context.Background())
		if err != nil || report.Break != nil || report.Sealed != writers*each || report.Waiting != 0 {
			t.Errorf("%+v %v", report, err)
		}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) { run(t, db) })
	t.Run("two nodes", func(t *testing.T) { run(t, databasetest.Shared(t, 2)...) })
}

func newNode(t testing.TB, db *database.DB) *Audit {
	t.Helper()
	a, err := New(capability.Host{DB: db, Environment: "test", Log: slog.New(slog.DiscardHandler), Sealing: sealing(masterKeys(t, "k"))}, Config{}, Peers{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Migrate(context.Background(), database.Migrations{Name: Name, FS: a.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	return a
}

// TestChainDoesNotFork checks that each link has one successor, whatever sealers believe.
func TestChainDoesNotFork(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		tr := newTrail(t, db)
		tr.record(2)
		tr.seal()
		shard, links := tr.links()
		for name, row := range map[string][]any{
			"same number":      {shard, int64(2), "other", make([]byte, 32), make([]byte, 32)},
			"same predecessor": {shard, int64(3), "other", links[1].prev, make([]byte, 32)},
			"same event":       {shard, int64(3), links[0].eventID, links[1].hash, make([]byte, 32)},
		} {
			if _, err := db.Exec(context.Background(), `INSERT INTO audit_seal (shard, seq, event_id, prev, hash)
				VALUES ($1, $2, $3, $4, $5)`, row...); err == nil {
				t.Errorf("%s: not refused", name)
			}
		}
		tr.wantSound(Report{Sealed: 2, Checkpoints: 1})
	})
}

// BenchmarkSeal measures the cost of the chain, in comparison with BenchmarkRecord, whose events
// are never sealed.
func BenchmarkSeal(b *testing.B) {
	for name, open := range map[string]func(b *testing.B) *database.DB{
		"file":     func(b *testing.B) *database.DB { return databasetest.File(b) },
		"postgres": func(b *testing.B) *database.DB { return databasetest.Postgres(b) },
	} {
		b.Run(name, func(b *testing.B) {
			a := newNode(b, open(b))
			ctx := context.Background()
			record := func(n int) {
				for n > 0 {
					batch := min(n, 200)
					err := a.host.DB.InTx(ctx, func(ctx context.Context) error {
						for i := range batch {
							if err := a.Record(ctx, Event{Action: "test/done", Subject: Target{"board", string(rune('a' + i%26))}}); err != nil {
								return err
							}
						}
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
					n -= batch
				}
			}
			record(b.N)
			b.ResetTimer()
			n, err := a.Seal(ctx)
			if err != nil || n != int64(b.N) {
				b.Fatal(n, err)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
