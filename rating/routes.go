package rating

import (
	"context"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// maxOutcome bounds the body of an outcome, in bytes.
const maxOutcome = 256 << 10

func (r *Rating) routes() []capability.Route {
	user := capability.User()
	return capability.Mount(r.cfg.BasePath,
		capability.Route{Method: "POST", Path: "/games/:game/outcomes", Guard: user.Conditional("recordScope if serverAuthoritative"),
			Summary: "Record how a game ended.", MaxBody: maxOutcome, Idempotent: true,
			Refusals: []*capability.Error{ErrGameNotFound, ErrRecordForbidden, ErrUnsupportedPlayerCount},
			Handle:   capability.JSON(200, r.postOutcome)},
		capability.Route{Method: "GET", Path: "/games/:game/me", Guard: user,
			Summary:  "The caller's rating.",
			Refusals: []*capability.Error{ErrGameNotFound},
			Handle:   capability.JSON(200, r.getMe)},
		capability.Route{Method: "GET", Path: "/games/:game/players/:userId", Guard: user,
			Summary:  "A player's rating.",
			Refusals: []*capability.Error{ErrGameNotFound},
			Handle:   capability.JSON(200, r.getPlayer)},
	)
}

// outcomeBody is an outcome as it is sent. Pool, algorithm and time are the server's.
type outcomeBody struct {
	Ranks map[string]int `json:"ranks"`
}

// postOutcome records an outcome and who reported it, both or neither.
func (r *Rating) postOutcome(c *capability.Call, body outcomeBody) (result Result, err error) {
	if !r.mayRecord(c.Caller, body) {
		return result, ErrRecordForbidden
	}
	err = r.db.InTx(c.Context(), func(ctx context.Context) error {
		if result, err = r.Record(ctx, c.Param("game"), Outcome{Ranks: body.Ranks}); err != nil {
			return err
		}
		return r.peers.Audit.Record(ctx, event(result))
	})
	return result, err
}

// mayRecord admits the scope and, unless the server alone decides, the players.
func (r *Rating) mayRecord(caller capability.Caller, body outcomeBody) bool {
	if caller.HasScope(r.cfg.RecordScope) {
		return true
	}
	_, plays := body.Ranks[caller.UserID]
	return !*r.cfg.ServerAuthoritative && plays
}

// event tells who played and how it ended; of many players the first ones.
func event(result Result) audit.Event {
	e := audit.Event{Action: "rating/outcome_recorded", Subject: audit.Target{Type: "game", ID: result.Game}}
	places := make([]int, len(result.Players))
	for i, p := range result.Players {
		places[i] = p.Place
		if i < audit.MaxTargets {
			e.Targets = append(e.Targets, audit.Target{Type: "user", ID: p.UserID})
		}
	}
	e.Detail = recorded{result.Pool, places}
	return e
}

// recorded is the detail of an audit event: the places of its targets, and of
// those there was no room for.
type recorded struct {
	Pool   string `json:"pool"`
	Places []int  `json:"places"`
}

func (r *Rating) getMe(c *capability.Call, _ capability.None) (Player, error) {
	return r.Rating(c.Context(), c.Param("game"), c.Caller.UserID)
}

func (r *Rating) getPlayer(c *capability.Call, _ capability.None) (Player, error) {
	return r.Rating(c.Context(), c.Param("game"), c.Param("userId"))
}
