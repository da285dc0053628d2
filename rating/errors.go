package rating

import (
	"errors"

	"github.com/kitbackend/kit/capability"
)

// The refusals of rating. [ErrUnknownAlgorithm] and [ErrInvalidParams] are faults of the
// configuration, found by errors.Is in the error of New. Places, user ids and keys out of bounds
// are kit/invalid_request; a key used for another outcome is kit/idempotency_conflict.
var (
	ErrGameNotFound = capability.NewError(404, "rating/game_not_found", "There is no such game.")
	ErrPoolNotFound = capability.NewError(404, "rating/pool_not_found", "There is no such pool.")
	// ErrRecordForbidden refuses callers over HTTP without Config.RecordScope, except a player of
	// the outcome if Config.ServerAuthoritative is false.
	ErrRecordForbidden  = capability.NewError(403, "rating/record_forbidden", "You may not record this outcome.")
	ErrUnknownAlgorithm = capability.NewError(422, "rating/unknown_algorithm", "No algorithm of this name is registered.")
	// ErrUnsupportedPlayerCount refuses an outcome with more or fewer players than the game takes,
	// and is a fault of a game with a number of players that its algorithm cannot rate.
	ErrUnsupportedPlayerCount = capability.NewError(422, "rating/unsupported_player_count", "This number of players cannot be rated.")
	ErrInvalidParams          = capability.NewError(422, "rating/invalid_params", "The algorithm refused its parameters.")
)

// ErrOtherAlgorithm reports that a pool has ratings by another algorithm than the configured one.
// It is a fault of the deployment, not a response for clients.
var ErrOtherAlgorithm = errors.New("rating: a changed algorithm needs a new pool")

// ErrBroken reports that a player's stored state, or the result of an algorithm, is invalid. It is
// a fault of the algorithm or of the rows; the outcome is not recorded, and can be recorded under
// the same key later.
var ErrBroken = errors.New("rating: a player's state is broken")

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrGameNotFound, ErrPoolNotFound, ErrRecordForbidden,
		ErrUnknownAlgorithm, ErrUnsupportedPlayerCount, ErrInvalidParams,
	}
}
