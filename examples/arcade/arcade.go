package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/rating"
)

const (
	bests   = "bests"
	daily   = "daily"
	duel    = "duel"
	players = 200
)

// arcade is the application's own capability: the game itself. Scores are the
// server's, so a page can ask for a game but never for a score.
type arcade struct{ k *kit.Kit }

func newArcade(k *kit.Kit) *arcade { return &arcade{k} }

func (a *arcade) capability() capability.Capability {
	post := func(path, summary string, h capability.Handler) capability.Route {
		return capability.Route{Method: http.MethodPost, Path: path, Guard: capability.User(), Summary: summary, Handle: h}
	}
	return capability.Capability{
		Name: "arcade", Version: "1.0.0", Prefix: "/arcade",
		Routes: capability.Mount("/arcade",
			post("/play", "Play one round.", capability.JSON(http.StatusOK, a.postPlay)),
			post("/duel", "Play a duel against somebody of about your skill.", capability.JSON(http.StatusOK, a.postDuel)),
			capability.Route{Method: http.MethodGet, Path: "/health", Guard: capability.Public("numbers of nobody in particular"),
				Summary: "The aggregates that the manifest shows.", Handle: capability.JSON(http.StatusOK, a.getHealth)},
		),
	}
}

type played struct {
	Score int64 `json:"score"`
	leaderboard.Standing
}

func (a *arcade) postPlay(c *capability.Call, _ capability.None) (p played, err error) {
	p.Score = score()
	p.Standing, err = a.submit(c.Context(), c.Caller.UserID, p.Score)
	return p, err
}

// submit enters a score on both boards, or on neither.
func (a *arcade) submit(ctx context.Context, user string, score int64) (best leaderboard.Standing, err error) {
	err = a.k.Database().InTx(ctx, func(ctx context.Context) error {
		for _, board := range []string{bests, daily} {
			if _, err := a.k.Leaderboard().Submit(ctx, leaderboard.Submission{Board: board, UserID: user, Score: score}); err != nil {
				return err
			}
		}
		best, err = a.k.Leaderboard().Me(ctx, leaderboard.View{Board: bests}, user)
		return err
	})
	return best, err
}

type fought struct {
	Against string        `json:"against"`
	Won     bool          `json:"won"`
	Rating  rating.Player `json:"rating"`
}

func (a *arcade) postDuel(c *capability.Call, _ capability.None) (f fought, err error) {
	me := c.Caller.UserID
	f.Against = bot(int(draw(players)))
	if f.Against == me {
		f.Against = bot(0)
	}
	f.Won = draw(2) == 0
	if _, err := a.k.Rating().Record(c.Context(), duel, rating.Outcome{Ranks: places(me, f.Against, f.Won)}); err != nil {
		return f, err
	}
	f.Rating, err = a.k.Rating().Rating(c.Context(), duel, me)
	return f, err
}

func places(me, other string, won bool) map[string]int {
	if won {
		return map[string]int{me: 1, other: 2}
	}
	return map[string]int{me: 2, other: 1}
}

// getHealth answers what the capabilities tell about themselves.
func (a *arcade) getHealth(c *capability.Call, _ capability.None) (map[string]any, error) {
	all := make(map[string]any)
	for _, part := range a.k.Capabilities() {
		for _, key := range part.Health {
			value, err := key.Read(c.Context())
			if err != nil {
				return nil, err
			}
			all[part.Name+"."+key.Key] = value
		}
	}
	return all, nil
}

// seed fills an empty arcade with players, the same ones every time.
func seed(ctx context.Context, k *kit.Kit) error {
	a, dice := newArcade(k), mathrand.New(mathrand.NewPCG(1, 2))
	for i := range players {
		score := int64(math.Exp(dice.NormFloat64()*0.8+7)) + 1
		if _, err := a.submit(ctx, bot(i), score); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		if _, err := k.Rating().Record(ctx, duel, rating.Outcome{Ranks: places(bot(i), bot(dice.IntN(i)), dice.IntN(2) == 0)}); err != nil {
			return err
		}
	}
	return nil
}

func bot(i int) string { return fmt.Sprintf("bot-%03d", i) }

// score is log-normal: most rounds are modest, a few are not.
func score() int64 {
	sum := int64(0)
	for range 12 {
		sum += draw(1000)
	}
	return int64(math.Exp(float64(sum-6000)/1000*0.8+7)) + 1
}

// draw answers a number from 0 to n-1.
func draw(n int64) int64 {
	v, err := rand.Int(rand.Reader, big.NewInt(n))
	if err != nil {
		panic(err) // crypto/rand's reader does not fail
	}
	return v.Int64()
}
