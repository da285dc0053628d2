package main

import (
	"context"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net/http"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
)

const (
	coins  = "coins"
	league = "league"
	// allowance is what a player gets on each day that they open the page.
	allowance = 100
	bots      = 200
)

// arcade is the capability of the application, besides its games.
type arcade struct{ k *kit.Kit }

func newArcade(k *kit.Kit) *arcade { return &arcade{k} }

func (a *arcade) capability() capability.Capability {
	return capability.Capability{
		Name: "arcade", Version: "2.0.0", Prefix: "/arcade", NoUserData: "it has no tables: the games are the kit's",
		Routes: capability.Mount("/arcade",
			capability.Route{Method: http.MethodPost, Path: "/welcome", Guard: capability.User(),
				Summary: "Today's coins, once.", Handle: capability.JSON(http.StatusOK, a.postWelcome)},
			capability.Route{Method: http.MethodGet, Path: "/running", Guard: capability.User(),
				Summary: "The caller's games that are not over.", Handle: capability.JSON(http.StatusOK, a.getRunning)},
			capability.Route{Method: http.MethodGet, Path: "/online/:session", Guard: capability.User(),
				Summary: "Which players of a session have a line.", Handle: capability.JSON(http.StatusOK, a.getOnline)},
			capability.Route{Method: http.MethodGet, Path: "/health", Guard: capability.Public("numbers of nobody in particular"),
				Summary: "The aggregates that the manifest shows.", Handle: capability.JSON(http.StatusOK, a.getHealth)},
		),
	}
}

// postWelcome credits the coins of the day. The ref makes it happen once, however often the page is
// opened.
func (a *arcade) postWelcome(c *capability.Call, _ capability.None) (ledger.Balance, error) {
	user, day := c.Caller.UserID, a.k.Host().Now().UTC().Format("2006-01-02")
	_, err := a.k.Ledger().Credit(c.Context(), ledger.Entry{
		UserID: user, Currency: coins, Amount: allowance, Ref: "allowance/" + day + "/" + user, Memo: "Welcome to the arcade",
	})
	if err != nil {
		return ledger.Balance{}, err
	}
	return a.k.Ledger().Balance(c.Context(), user, coins)
}

// running is a game that is not over.
type running struct {
	SessionID string            `json:"sessionId"`
	Game      string            `json:"game"`
	Phase     multiplayer.Phase `json:"phase"`
	Players   []string          `json:"players"`
}

// runningBody is the first page of running games.
type runningBody struct {
	Items []running `json:"items"`
}

func (a *arcade) getRunning(c *capability.Call, _ capability.None) (runningBody, error) {
	body := runningBody{Items: []running{}}
	list, err := a.k.Multiplayer().ListRunning(c.Context(), c.Caller.UserID, capability.NewPage(20, ""))
	for _, s := range list.Items {
		body.Items = append(body.Items, running{s.ID, s.Game, s.Phase, s.Players})
	}
	return body, err
}

// onlineBody lists players who have a presence socket.
type onlineBody struct {
	Online []string `json:"online"`
}

// getOnline returns which other players of the caller's session are online.
func (a *arcade) getOnline(c *capability.Call, _ capability.None) (onlineBody, error) {
	view, err := a.k.Multiplayer().View(c.Context(), c.Param("session"), c.Caller.UserID)
	if err != nil {
		return onlineBody{}, err
	}
	online, err := a.k.Matchmaking().Online(c.Context(), view.Players...)
	return onlineBody{Online: append([]string{}, online...)}, err
}

// getHealth returns the health of the capabilities.
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

// seed fills an empty arcade with players, always the same ones.
func seed(ctx context.Context, k *kit.Kit) error {
	top, err := k.Leaderboard().ListTop(ctx, leaderboard.View{Board: league}, capability.NewPage(1, ""))
	if err != nil || len(top.Items) > 0 {
		return err
	}
	dice := mathrand.New(mathrand.NewPCG(1, 2))
	for i := range bots {
		points := int64(math.Exp(dice.NormFloat64()*0.8+4.5)) + 1
		if _, err := k.Leaderboard().Submit(ctx, leaderboard.Submission{Board: league, UserID: bot(i), Score: points}); err != nil {
			return err
		}
		if i == 0 {
			continue
		}
		winner, loser := bot(i), bot(dice.IntN(i))
		if dice.IntN(2) == 0 {
			winner, loser = loser, winner
		}
		if _, err := k.Rating().Record(ctx, bones, rating.Outcome{Ranks: map[string]int{winner: 1, loser: 2}}); err != nil {
			return err
		}
	}
	return nil
}

func bot(i int) string { return fmt.Sprintf("bot-%03d", i) }
