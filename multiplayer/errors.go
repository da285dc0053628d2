package multiplayer

import (
	"errors"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/ledger"
)

// The refusals of multiplayer. Ids and bodies out of bounds are kit/invalid_request, an action id
// used for another action is kit/idempotency_conflict, a session with too many waiting callers is
// kit/rate_limited, and a stake that is not covered is ledger/insufficient_funds.
var (
	ErrSessionNotFound = capability.NewError(404, "multiplayer/session_not_found", "There is no such session.")
	ErrGameNotFound    = capability.NewError(404, "multiplayer/game_not_found", "There is no such game.")
	ErrNotAMember      = capability.NewError(403, "multiplayer/not_a_member", "You are not a player of this session.")
	ErrSessionFull     = capability.NewError(409, "multiplayer/session_full", "Every seat of this session is taken.")
	// ErrInvalidMove refuses an action that the rules of the model forbid.
	ErrInvalidMove = capability.NewError(422, "multiplayer/invalid_move", "The rules do not allow this action.")
	// ErrInvalidTransition carries a [Stale] in its details when the action
	// expected another version.
	ErrInvalidTransition = capability.NewError(409, "multiplayer/invalid_transition", "The session does not take this now.")
)

// ErrUnasked reports that the beginning of a session would take money from a player who is in
// [Start].Unasked. It is for callers in process and is not sent to clients.
var ErrUnasked = errors.New("multiplayer: the session would take money of a player who has not asked for it")

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrSessionNotFound, ErrGameNotFound, ErrNotAMember, ErrSessionFull, ErrInvalidMove, ErrInvalidTransition,
	}
}

// PlayRefusals lists the refusals by the rules, the ledger and the limits of a user when a session
// begins or continues: for the routes of capabilities that start and fill sessions on a user's
// request.
func PlayRefusals() []*capability.Error {
	return []*capability.Error{ErrInvalidMove, ledger.ErrInsufficientFunds, capability.ErrRateLimited}
}

// Stale is the details of [ErrInvalidTransition]: the version that the session has.
type Stale struct {
	Version int64 `json:"version"`
}

// Uncovered is wrapped by the ledger/insufficient_funds of an operation that was refused because a
// player does not cover a stake; use errors.As to find it.
type Uncovered struct{ UserID string }

func (u *Uncovered) Error() string {
	return "multiplayer: player " + u.UserID + " does not cover the stake"
}
