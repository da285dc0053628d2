package multiplayer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

func eachBench(b *testing.B, fn func(b *testing.B, r *rig)) {
	for _, on := range []struct {
		name string
		open func(testing.TB) *database.DB
	}{
		{"sqlite", func(t testing.TB) *database.DB { return databasetest.File(t) }},
		{"postgres", func(t testing.TB) *database.DB { return databasetest.Postgres(t) }},
	} {
		b.Run(on.name, func(b *testing.B) { fn(b, node(b, on.open(b), kittest.NewClock(), countConfig())) })
	}
}

// benchCallers is how many callers act at the same time.
const benchCallers = 64

// BenchmarkAct measures durable actions per second, each with an id of its own, by 64 callers in as
// many sessions and in a single one.
//
//	go test ./multiplayer -run '^$' -bench Act -benchtime 3s
func BenchmarkAct(b *testing.B) {
	for _, load := range []string{"many", "hot"} {
		b.Run(load, func(b *testing.B) {
			eachBench(b, func(b *testing.B, r *rig) {
				hot, players := crowd(r)
				ids := make([]string, benchCallers)
				for i := range ids {
					if ids[i] = hot; load == "many" {
						ids[i] = r.create("solo", players[i]).ID
					}
				}
				var next atomic.Int64
				var group sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for i := range benchCallers {
					group.Go(func() {
						for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
							_, err := actUntilTaken(r, ids[i], players[i], multiplayer.Action{ID: fmt.Sprint(n), Data: json.RawMessage("1")})
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				group.Wait()
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "actions/s")
				r.replays(ids[0])
			})
		})
	}
}

// BenchmarkView measures reading a cached session as a player.
func BenchmarkView(b *testing.B) {
	eachBench(b, func(b *testing.B, r *rig) {
		id, players := crowd(r)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.View(context.Background(), id, players[0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
