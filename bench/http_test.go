package bench

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/controlplane"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/load"
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
		serve(b, e, load.Constant("GET /ledger/coins", ""))
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
	serve(b, k, load.Constant("GET /ledger/coins", token(b, k, "ada")))
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

// serve is serveOver with 32 connections.
func serve(b *testing.B, h http.Handler, next load.Requests) {
	b.Helper()
	serveOver(b, connections, h, next)
}

// serveOver sends b.N requests over loopback connections to a server of the handler.
func serveOver(b *testing.B, connections int, h http.Handler, next load.Requests) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Second * 10}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()

	b.ResetTimer()
	err = load.Send(listener.Addr().String(), connections, b.N, next)
	b.StopTimer()
	if err != nil {
		b.Error(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

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
