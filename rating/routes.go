package rating

import (
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

// outcomeBody is the request body of an outcome. The server sets pool, algorithm and time.
type outcomeBody struct {
	Ranks map[string]int `json:"ranks"`
}

func (r *Rating) postOutcome(c *capability.Call, body outcomeBody) (Result, error) {
	if !r.mayRecord(c.Caller, body) {
		return Result{}, ErrRecordForbidden
	}
	return r.Record(c.Context(), c.Param("game"), Outcome{Ranks: body.Ranks})
}

// mayRecord admits callers with the scope and, unless Config.ServerAuthoritative is true, the
// players of the outcome.
func (r *Rating) mayRecord(caller capability.Caller, body outcomeBody) bool {
	if caller.HasScope(r.cfg.RecordScope) {
		return true
	}
	_, plays := body.Ranks[caller.UserID]
	return !*r.cfg.ServerAuthoritative && plays
}

func (r *Rating) getMe(c *capability.Call, _ capability.None) (Player, error) {
	return r.Rating(c.Context(), c.Param("game"), c.Caller.UserID)
}

func (r *Rating) getPlayer(c *capability.Call, _ capability.None) (Player, error) {
	return r.Rating(c.Context(), c.Param("game"), c.Param("userId"))
}
