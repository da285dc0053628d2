// Arcade is two games for two browser tabs: a dice duel for coins, and a card table. Sign in as any
// user, find each other as friends, by a room code or in the queue, and verify every roll when the
// game is over.
//
//	go run ./examples/arcade
//	go run ./examples/arcade -addr localhost:9000
//	go run ./examples/arcade -db arcade.db
//	go run ./examples/arcade -db postgres://user:password@localhost/arcade
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/clients"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/postgres"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
)

//go:embed static
var static embed.FS

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	dsn := flag.String("db", "", "database: empty for memory, a file, or a PostgreSQL URL")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *addr, *dsn); err != nil {
		log.Fatal(err)
	}
}

// run serves until ctx ends, waits for calls in progress, and closes.
func run(ctx context.Context, addr, dsn string) error {
	db, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	k, err := kit.New(append(options("http://"+addr), kit.WithDatabase(db))...)
	if err != nil {
		return err
	}
	if err := seed(ctx, k); err != nil {
		return err
	}
	handler, err := application(k)
	if err != nil {
		return err
	}
	log.Printf("open http://%s/", addr)
	return errors.Join(k.Serve(ctx, addr, handler), db.Close())
}

// open opens the database that dsn names, by its form.
func open(ctx context.Context, dsn string) (*database.DB, error) {
	switch {
	case dsn == "":
		return database.OpenMemory()
	case strings.HasPrefix(dsn, "postgres://"), strings.HasPrefix(dsn, "postgresql://"):
		return postgres.Open(ctx, dsn)
	default:
		return database.OpenFile(dsn)
	}
}

func options(baseURL string) []kit.Option {
	points := &multiplayer.Scoring{Board: league, Points: multiplayer.Points{Win: 30, Draw: 15, Loss: 5}}
	duel := multiplayer.Game{Key: bones, Kind: bones, TurnTimeout: 90 * time.Second, Leaderboard: points,
		Rules: bonesRules{Currency: coins, Stake: 25}}
	table := multiplayer.Game{Key: eights, Kind: eights, Mode: multiplayer.ModeTable, Players: 4, TurnTimeout: 2 * time.Minute, Leaderboard: points}
	return []kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithAudit(audit.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: coins, Name: "Coins"}}}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{{
			Key: league, Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum, Window: "0 0 1 * *", Retain: 12,
			Tiers: []leaderboard.Tier{{Key: "bronze", Min: 0}, {Key: "silver", Min: 100}, {Key: "gold", Min: 300}, {Key: "legend", Min: 600}},
		}}}),
		kit.WithRating(rating.Config{Games: []rating.Game{{
			Key: bones, Algorithm: "glicko", XP: &rating.XP{Win: 30, Draw: 15, Loss: 10},
			Levels: []rating.Level{{Key: "rookie", MinXP: 0}, {Key: "player", MinXP: 100}, {Key: "master", MinXP: 500}},
		}}}),
		kit.WithMultiplayer(multiplayer.Config{
			Models: []multiplayer.Model{bonesModel(), eightsModel()}, Games: []multiplayer.Game{duel, table},
		}),
		kit.WithMatchmaking(matchmaking.Config{Games: []matchmaking.Game{
			{Key: bones, Players: 2, SkillPool: bones, Snapshot: &duel,
				Queue: matchmaking.Queue{InitialBand: new(150.0), WidenPerSecond: 25, MaxWaitSeconds: 20, SweepSeconds: 1}},
			{Key: eights, Players: 2, Snapshot: &table, Queue: matchmaking.Queue{SweepSeconds: 1}},
		}}),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) { return newArcade(k).capability(), nil }),
	}
}

// application serves the page and the client that it uses, and passes the paths of the kit to the
// kit.
func application(k *kit.Kit) (http.Handler, error) {
	pages, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	paths := http.NewServeMux()
	paths.Handle("/client/", clients.Browser())
	paths.Handle("/", http.FileServerFS(pages))
	return k.Before(paths), nil
}
