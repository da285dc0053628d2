package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/internal/load"
	"github.com/kitbackend/kit/leaderboard"
)

// BenchmarkLeaderboardHTTP measures a board of 500 users over HTTP, each with a bearer token and an
// entry, in turn. The composition is that of examples/quickstart, with running jobs and an access
// log, on a file and on PostgreSQL. The server and its 32 connections, each of which waits for its
// response, share the processors. The rate classes "read" and "write" are unlimited, as they are by
// default.
func BenchmarkLeaderboardHTTP(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { arcade(b, databasetest.File(b)) })
	b.Run("postgres", func(b *testing.B) {
		arcade(b, databasetest.Postgres(b, postgres.WithConnections(16))) // as many as by default
	})
}

func arcade(b *testing.B, db *database.DB) {
	k := quickstart(b, db)
	p := newPlayers(b, k)
	for _, c := range []struct {
		name string
		next load.Requests
	}{
		{"submit", p.submit()},
		{"top10", p.get("/top?limit=10")},
		{"top100", p.get("/top?limit=100")},
		{"around", p.get("/around?limit=11")},
		{"me", p.get("/me")},
	} {
		b.Run(c.name, func(b *testing.B) { serve(b, k, c.next) })
	}
}

// quickstart returns a kit that runs its jobs and logs a line for each request.
func quickstart(b *testing.B, db *database.DB) *kit.Kit {
	file, err := os.Create(filepath.Join(b.TempDir(), "access.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = file.Close() })
	k := compose(b, append(everything(), kit.WithDatabase(db), kit.WithEnvironment(capability.Development),
		kit.WithLogger(slog.New(slog.NewTextHandler(file, nil))))...)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- k.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
	})
	return k
}

// players take turns, each with a token that may submit, because the board is server-authoritative.
type players struct {
	tokens []string
	turn   atomic.Int64
}

func newPlayers(b *testing.B, k *kit.Kit) *players {
	p := &players{tokens: make([]string, 500)}
	for i := range p.tokens {
		user := fmt.Sprintf("user-%021d", i)
		p.tokens[i] = token(b, k, user, "leaderboard:submit")
		first := leaderboard.Submission{Board: "arcade", UserID: user, Score: p.score(int64(i))}
		if _, err := k.Leaderboard().Submit(context.Background(), first); err != nil {
			b.Fatal(err)
		}
	}
	p.turn.Store(int64(len(p.tokens)))
	return p
}

// score returns the score of a turn. The next one of a player is higher by more than the distance
// between two players, so every submission is a durable write, which moves the entry and its
// counts.
func (p *players) score(turn int64) int64 {
	n := int64(len(p.tokens))
	return turn%n*2000 + turn/n*3000
}

func (p *players) submit() load.Requests {
	heads := p.heads("POST /leaderboard/arcade")
	return func(out []byte) []byte {
		turn := p.turn.Add(1)
		body := fmt.Sprintf(`{"score":%d}`, p.score(turn))
		out = append(out, heads[turn%int64(len(heads))]...)
		return fmt.Appendf(out, "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

// get returns requests for a path of the board, by the players in turn.
func (p *players) get(path string) load.Requests {
	heads := p.heads("GET /leaderboard/arcade" + path)
	return func(out []byte) []byte {
		out = append(out, heads[p.turn.Add(1)%int64(len(heads))]...)
		return append(out, "\r\n"...)
	}
}

// heads returns the head of a request by each player.
func (p *players) heads(line string) []string {
	heads := make([]string, len(p.tokens))
	for i, token := range p.tokens {
		heads[i] = load.Head(line, token)
	}
	return heads
}
