package matchmaking_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/matchmaking"
)

// databases runs a benchmark on a file, whose commits are durable, and on PostgreSQL.
func databases(b *testing.B, run func(b *testing.B, db *database.DB)) {
	b.Run("file", func(b *testing.B) { run(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) { run(b, databasetest.Postgres(b)) })
}

// BenchmarkSweepSQL sweeps 10,000 players of normally distributed skill into matches of two, from
// the lease to the claim, without creating the sessions.
func BenchmarkSweepSQL(b *testing.B) {
	databases(b, func(b *testing.B, db *database.DB) {
		cfg := games()
		cfg[0].Regions = []string{"a", "b", "c", "d", "e", "f"}
		r := newRig(b, matchmaking.Config{Games: cfg}, kit.WithDatabase(db))
		r.ok(errorOf(r.Enqueue(ctx, "duel", "", "first"))) // schedules
		for b.Loop() {
			b.StopTimer()
			r.fill("duel", 10_000)
			b.StartTimer()
			sweep, ok, err := r.Lead(ctx, "duel")
			r.ok(err)
			if !ok || sweep.Matches() < 4_900 {
				b.Fatalf("leads %v, %d matches", ok, sweep.Matches())
			}
			r.ok(sweep.Claim(ctx))
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/sweep")
	})
}

// fill replaces the queue by n players who have been waiting for 0 to 30 seconds.
func (r *rig) fill(game string, n int) {
	r.t.Helper()
	now := r.Clock.Now().UnixMilli()
	for _, table := range []string{"matchmaking_ticket", "matchmaking_match", "kit_job"} {
		r.ok(errorOf(r.Database().Exec(ctx, `DELETE FROM `+table)))
	}
	r.ok(r.Database().InTx(ctx, func(ctx context.Context) error {
		for from := 0; from < n; from += 500 {
			var values []string
			for i := from; i < from+500; i++ {
				skill := 1500 + float64((i*7919)%1201-600)*0.8
				values = append(values, fmt.Sprintf("('%s','player-%06d','ticket-%06d',1,'%c','waiting',%f,%d,%d,%d,'',0)",
					game, i, i, 'a'+i%6, skill, now, now-int64(i%30)*1000, now))
			}
			if _, err := r.Database().Exec(ctx, `INSERT INTO matchmaking_ticket (game, user_id, ticket_id, party, region, state, skill,
				skill_at, enqueued_at, seen_at, match_id, matched_at) VALUES `+strings.Join(values, ",")); err != nil {
				return err
			}
		}
		return nil
	}))
	if r.Database().Dialect() == database.PostgreSQL {
		r.ok(errorOf(r.Database().Exec(ctx, `ANALYZE matchmaking_ticket`)))
	}
}

// BenchmarkEnqueue enqueues new players from 16 concurrent clients.
func BenchmarkEnqueue(b *testing.B) {
	databases(b, func(b *testing.B, db *database.DB) {
		r := newRig(b, matchmaking.Config{}, kit.WithDatabase(db))
		var n atomic.Int64
		b.SetParallelism(8)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := r.Enqueue(ctx, "table", "", fmt.Sprint("user-", n.Add(1))); err != nil {
					b.Error(err)
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "enqueues/s")
	})
}

// BenchmarkForm creates the sessions of matches of two, 100 per job, one job at a time.
func BenchmarkForm(b *testing.B) {
	databases(b, func(b *testing.B, db *database.DB) {
		r := newRig(b, matchmaking.Config{}, kit.WithDatabase(db))
		for b.Loop() {
			b.StopTimer()
			r.fill("duel", 500)
			sweep, _, err := r.Lead(ctx, "duel")
			r.ok(err)
			r.ok(sweep.Claim(ctx))
			b.StartTimer()
			r.RunJobs()
		}
		b.ReportMetric(float64(b.N)*250/b.Elapsed().Seconds(), "sessions/s")
	})
}

// BenchmarkPresenceConnect opens presence sockets of new users from 32 concurrent clients, until
// each has received its first event.
func BenchmarkPresenceConnect(b *testing.B) {
	databases(b, func(b *testing.B, db *database.DB) {
		r := newRig(b, matchmaking.Config{}, kit.WithDatabase(db))
		server := r.serve()
		url := "ws" + strings.TrimPrefix(server.URL, "http") + "/matchmaking/presence"
		tokens := make([]string, b.N)
		for i := range tokens {
			user := fmt.Sprint("user-", i)
			r.users(user)
			tokens[i] = must(r.Auth().IssueToken(ctx, user, nil, time.Hour))
		}
		var n atomic.Int64
		var mu sync.Mutex
		var open []*websocket.Conn
		b.SetParallelism(16)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				conn, resp, err := websocket.DefaultDialer.Dial(url, http.Header{"Authorization": {"Bearer " + tokens[n.Add(1)-1]}})
				if err != nil {
					b.Error(err)
					return
				}
				_ = resp.Body.Close()
				var f frame
				_, raw, err := conn.ReadMessage()
				if err != nil || json.Unmarshal(raw, &f) != nil || f.Type != "friends_online" {
					b.Errorf("got %s, %v", raw, err)
				}
				mu.Lock()
				open = append(open, conn)
				mu.Unlock()
			}
		})
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "connects/s")
		for _, conn := range open {
			_ = conn.Close()
		}
	})
}
