package multiplayer

import (
	"encoding/json"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
)

func (m *Multiplayer) routes() []capability.Route {
	user := capability.User()
	played := slices.Clip(append(PlayRefusals(), ErrInvalidTransition))
	return capability.Mount(m.cfg.BasePath,
		capability.Route{Method: "POST", Path: "/games/:game", Guard: user,
			Summary: "Create a session of a game and take its first seat.", Idempotent: true,
			Refusals: append(played, ErrGameNotFound),
			Handle:   capability.JSON(201, m.postGame)},
		capability.Route{Method: "POST", Path: "/sessions/:id/join", Guard: user,
			Summary:  "Take a seat.",
			Refusals: append(played, ErrSessionNotFound, ErrSessionFull),
			Handle:   capability.JSON(200, m.postJoin)},
		capability.Route{Method: "POST", Path: "/sessions/:id/action", Guard: user,
			Summary: "Act. The body goes to the model as it is; Idempotency-Key is the action's id.", MaxBody: MaxAction,
			Headers:  []capability.Param{{Name: "Idempotency-Key", Summary: "The action's id, of at most 64 visible ASCII characters, by which it counts once."}},
			Refusals: append(played, ErrSessionNotFound, ErrNotAMember, capability.ErrIdempotencyConflict),
			Handle:   capability.JSON(200, m.postAction)},
		capability.Route{Method: "POST", Path: "/sessions/:id/leave", Guard: user,
			Summary:  "Leave a table, or a session that waits for players.",
			Refusals: append(played, ErrSessionNotFound, ErrNotAMember),
			Handle:   capability.JSON(204, m.postLeave)},
		capability.Route{Method: "POST", Path: "/sessions/:id/close", Guard: user,
			Summary: "Close a table, or a session that waits for players.",
			Refusals: []*capability.Error{ErrSessionNotFound, ErrNotAMember, ErrInvalidTransition, ledger.ErrInsufficientFunds,
				capability.ErrRateLimited},
			Handle: capability.JSON(200, m.postClose)},
		capability.Route{Method: "GET", Path: "/sessions/:id", Guard: user,
			Summary:  "The session as the caller sees it.",
			Refusals: []*capability.Error{ErrSessionNotFound, ErrNotAMember},
			Handle:   capability.JSON(200, m.getSession)},
		capability.Route{Method: "GET", Path: "/sessions/:id/result", Guard: user,
			Summary:  "How the session ended.",
			Refusals: []*capability.Error{ErrSessionNotFound, ErrNotAMember, ErrInvalidTransition},
			Handle:   capability.JSON(200, m.getResult)},
		capability.Route{Method: "GET", Path: "/sessions/:id/socket", Guard: user,
			Summary:  "Play over a WebSocket.",
			Refusals: []*capability.Error{ErrSessionNotFound, ErrNotAMember},
			Handle: capability.Socket(m.socket).Sends(helloFrame{}, viewFrame{}, patchFrame{}, ackFrame{}, closedFrame{}).
				Takes(actionFrame{}, resumeFrame{})},
	)
}

func (m *Multiplayer) postGame(c *capability.Call, _ capability.None) (View, error) {
	return m.Create(c.Context(), c.Param("game"), c.Caller.UserID)
}

func (m *Multiplayer) postJoin(c *capability.Call, _ capability.None) (View, error) {
	return m.Join(c.Context(), c.Param("id"), c.Caller.UserID)
}

// postAction returns the view after the action, or a newer one.
func (m *Multiplayer) postAction(c *capability.Call, body json.RawMessage) (View, error) {
	key, err := c.IdempotencyKey()
	if err != nil {
		return View{}, err
	}
	ack, err := m.Act(c.Context(), c.Param("id"), c.Caller.UserID, Action{ID: key, Data: body})
	if err != nil {
		return View{}, err
	}
	if ack.Replayed {
		c.Writer().Header().Set("Idempotency-Replayed", "true")
	}
	return m.viewAt(c.Context(), c.Param("id"), c.Caller.UserID, ack.Version)
}

func (m *Multiplayer) postLeave(c *capability.Call, _ capability.None) (capability.None, error) {
	return capability.None{}, m.Leave(c.Context(), c.Param("id"), c.Caller.UserID)
}

func (m *Multiplayer) postClose(c *capability.Call, _ capability.None) (View, error) {
	return m.Close(c.Context(), c.Param("id"), c.Caller.UserID)
}

func (m *Multiplayer) getSession(c *capability.Call, _ capability.None) (View, error) {
	return m.View(c.Context(), c.Param("id"), c.Caller.UserID)
}

func (m *Multiplayer) getResult(c *capability.Call, _ capability.None) (Result, error) {
	return m.Result(c.Context(), c.Param("id"), c.Caller.UserID)
}
