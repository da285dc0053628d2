// Arcade shows boards and ratings: sign in as anybody, play, and watch your
// rank, your rating and the distribution of all scores move.
//
//	go run ./examples/arcade
//	go run ./examples/arcade -addr localhost:9000
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
	"time"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/rating"
)

//go:embed static
var static embed.FS

func main() {
	addr := flag.String("addr", "localhost:8080", "address to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	k, err := kit.New(options("http://" + *addr)...)
	if err != nil {
		log.Fatal(err)
	}
	if err := seed(ctx, k); err != nil {
		log.Fatal(err)
	}
	handler, err := application(k)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: *addr, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		_ = k.Run(ctx)
		_ = server.Shutdown(context.Background())
	}()
	log.Printf("open http://%s/", *addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	if err := k.Close(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func options(baseURL string) []kit.Option {
	return []kit.Option{
		kit.WithEnvironment(capability.Development),
		kit.WithBaseURL(baseURL),
		kit.WithAudit(audit.Config{}),
		kit.WithAuth(auth.Config{}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{
			{Key: bests, Direction: leaderboard.Descending, Aggregation: leaderboard.Best, Tiers: []leaderboard.Tier{
				{Key: "bronze", Min: 0}, {Key: "silver", Min: 800}, {Key: "gold", Min: 2000}, {Key: "legend", Min: 5000}}},
			{Key: daily, Direction: leaderboard.Descending, Aggregation: leaderboard.Sum, Window: "0 0 * * *", Retain: 30},
		}}),
		kit.WithRating(rating.Config{Games: []rating.Game{{
			Key: duel, Algorithm: "glicko", XP: &rating.XP{Win: 30, Draw: 15, Loss: 10},
			Levels: []rating.Level{{Key: "rookie", MinXP: 0}, {Key: "player", MinXP: 100}, {Key: "master", MinXP: 500}},
		}}}),
		kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) { return newArcade(k).capability(), nil }),
	}
}

// application is the page, with the kit's paths answered by the kit.
func application(k *kit.Kit) (http.Handler, error) {
	pages, err := fs.Sub(static, "static")
	if err != nil {
		return nil, err
	}
	return k.Before(http.FileServerFS(pages)), nil
}
