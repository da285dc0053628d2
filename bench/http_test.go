package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/media"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
	"github.com/kitbackend/kit/secrets"
	"github.com/kitbackend/kit/storage"
	"github.com/kitbackend/kit/support"
	"github.com/kitbackend/kit/testers"
	"github.com/kitbackend/kit/vector"
)

const connections = 32

// BenchmarkHTTP compares GET /ledger/:currency, with a bearer token and a read of a database file,
// with a bare echo handler that returns constant JSON.
func BenchmarkHTTP(b *testing.B) {
	b.Run("echo-constant", func(b *testing.B) {
		e := echo.New()
		e.GET("/ledger/:currency", func(c echo.Context) error {
			return c.JSON(http.StatusOK, map[string]any{"currency": "coins", "balance": 100, "held": 0, "available": 100})
		})
		load(b, e, constant("GET /ledger/coins", ""))
	})
	b.Run("kit-balance", func(b *testing.B) { balance(b, slog.New(slog.DiscardHandler)) })
	b.Run("kit-balance-access-log", func(b *testing.B) {
		file, err := os.Create(filepath.Join(b.TempDir(), "access.log"))
		if err != nil {
			b.Fatal(err)
		}
		defer file.Close()
		balance(b, slog.New(slog.NewJSONHandler(file, nil)))
	})
}

// balance reads the balance of one funded account.
func balance(b *testing.B, log *slog.Logger) {
	k := compose(b, append(bank(), kit.WithDatabase(databasetest.File(b)), kit.WithLogger(log))...)
	if _, err := k.Ledger().Credit(context.Background(), ledger.Entry{UserID: "ada", Currency: "coins", Amount: 100, Ref: "bench"}); err != nil {
		b.Fatal(err)
	}
	load(b, k, constant("GET /ledger/coins", token(b, k, "ada")))
}

// compose returns a kit that is closed after the benchmark.
func compose(b *testing.B, opts ...kit.Option) *kit.Kit {
	b.Helper()
	k, err := kit.New(opts...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := k.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return k
}

// token creates a user and returns an access token of that user.
func token(b *testing.B, k *kit.Kit, user string, scopes ...string) string {
	b.Helper()
	ctx := context.Background()
	if err := k.Auth().EnsureUser(ctx, user); err != nil {
		b.Fatal(err)
	}
	token, err := k.Auth().IssueToken(ctx, user, scopes, time.Hour)
	if err != nil {
		b.Fatal(err)
	}
	return token
}

func bank() []kit.Option {
	return []kit.Option{
		kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins", Name: "Coins"}}}),
	}
}

func everything() []kit.Option {
	return append(bank(),
		kit.WithSecrets(secrets.Config{}),
		kit.WithControlPlane(controlplane.Config{}),
		kit.WithEmail(email.Config{}),
		kit.WithVector(vector.Config{Indexes: []vector.Index{{Name: "notes"}}}),
		kit.WithStorage(storage.Config{}),
		kit.WithMedia(media.Config{}),
		kit.WithSupport(support.Config{}),
		kit.WithTesters(testers.Config{}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}}}),
		kit.WithRating(rating.Config{Games: []rating.Game{{Key: "duel", Algorithm: "elo", XP: &rating.XP{Win: 1}}}}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{nothing}}),
		kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{{Key: "duel", Players: 2, SkillPool: "duel"}}}),
	)
}

// nothing is a game that is over when it begins.
var nothing = multiplayer.Define(multiplayer.Definition[struct{}, struct{}]{
	Kind: "nothing",
	Init: func(game) (s struct{}, _ []multiplayer.Effect, _ error) { return s, nil, nil },
	Apply: func(_ game, s struct{}, _ multiplayer.Move) (struct{}, []multiplayer.Effect, error) {
		return s, nil, nil
	},
	IsComplete: func(game, struct{}) bool { return true },
	Resolve:    func(game, struct{}) multiplayer.Outcome { return multiplayer.Outcome{} },
	Redact:     func(game, struct{}, string, bool) any { return nil },
})

type game = multiplayer.Context[struct{}]

// requests appends the next request to its argument; it may be called concurrently.
type requests func([]byte) []byte

// constant returns the same request every time.
func constant(line, token string) requests {
	request := head(line, token) + "\r\n"
	return func(out []byte) []byte { return append(out, request...) }
}

// head returns a request line with its headers, without the empty line that ends them.
func head(line, token string) string {
	text := line + " HTTP/1.1\r\nHost: bench\r\n"
	if token != "" {
		text += "Authorization: Bearer " + token + "\r\n"
	}
	return text
}

// load is loadOver with 32 connections.
func load(b *testing.B, h http.Handler, next requests) {
	b.Helper()
	loadOver(b, connections, h, next)
}

// loadOver sends b.N requests over loopback connections with as little work of the client as
// possible: it writes bytes, and reads headers and a counted body. A response other than 200 or 201
// fails the benchmark.
func loadOver(b *testing.B, connections int, h http.Handler, next requests) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second * 10}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for range connections {
		wg.Go(func() {
			if err := client(listener.Addr().String(), next, &left); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

func client(addr string, next requests, left *atomic.Int64) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var request []byte
	for left.Add(-1) >= 0 {
		request = next(request[:0])
		if _, err := conn.Write(request); err != nil {
			return err
		}
		if err := readResponse(in); err != nil {
			return err
		}
	}
	return nil
}

func readResponse(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case first && !bytes.HasPrefix(line, statusOK):
			return fmt.Errorf("status line %q", line)
		case len(line) == 0:
			_, err := in.Discard(length)
			return err
		case bytes.HasPrefix(line, contentLength):
			length, err = strconv.Atoi(string(line[len(contentLength):]))
			if err != nil {
				return err
			}
		}
	}
}

var statusOK, contentLength = []byte("HTTP/1.1 20"), []byte("Content-Length: ")

// BenchmarkStart measures New with every capability, migrations included, in memory.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		k, err := kit.New(append(everything(), kit.WithLogger(slog.New(slog.DiscardHandler)))...)
		if err != nil {
			b.Fatal(err)
		}
		if err := k.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
}
