package matchmaking

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// The refusals of matchmaking. Ids and names that break their bounds are
// kit/invalid_request; a caller that asks too often, or guesses codes, gets
// kit/rate_limited with a [Pause] in its details.
var (
	ErrGameNotFound = capability.NewError(404, "matchmaking/game_not_found", "There is no such game.")
	// ErrRoomNotFound refuses a good code whose session has ended.
	ErrRoomNotFound = capability.NewError(404, "matchmaking/room_not_found", "This room is closed.")
	ErrRoomFull     = capability.NewError(409, "matchmaking/room_full", "Every seat of this room is taken.")
	// ErrInvalidCode does not tell unknown, expired and used-up codes apart.
	ErrInvalidCode    = capability.NewError(400, "matchmaking/invalid_code", "This room code is not valid.")
	ErrInviteNotFound = capability.NewError(404, "matchmaking/invite_not_found", "There is no such invite, or it has expired.")
	// ErrInviteForbidden refuses an invite to somebody else, and inviting a user
	// whom the caller blocks.
	ErrInviteForbidden       = capability.NewError(403, "matchmaking/invite_forbidden", "This invite is not yours.")
	ErrAlreadyFriends        = capability.NewError(409, "matchmaking/already_friends", "You are friends already.")
	ErrFriendRequestNotFound = capability.NewError(404, "matchmaking/friend_request_not_found", "This user has not asked to be your friend.")
	// ErrUserNotFound also refuses a screen name of several users, and a user
	// a user who blocks the caller.
	ErrUserNotFound  = capability.NewError(404, "matchmaking/user_not_found", "No such user, or not exactly one of this name.")
	ErrNotQueued     = capability.NewError(404, "matchmaking/not_queued", "You are not in the queue of this game.")
	ErrAlreadyQueued = capability.NewError(409, "matchmaking/already_queued", "A player of the party is in the queue of this game already.")
	// ErrLimitReached carries a [Limit] in its details.
	ErrLimitReached = capability.NewError(409, "matchmaking/limit_reached", "There are too many of these already.")
	// ErrNoSessions refuses what needs a game session where none can be created:
	// multiplayer is not composed, or the game has no snapshot.
	ErrNoSessions = capability.NewError(501, "matchmaking/no_sessions", "This game has no sessions here.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrGameNotFound, ErrRoomNotFound, ErrRoomFull, ErrInvalidCode, ErrInviteNotFound, ErrInviteForbidden,
		ErrAlreadyFriends, ErrFriendRequestNotFound, ErrUserNotFound, ErrNotQueued, ErrAlreadyQueued,
		ErrLimitReached, ErrNoSessions,
	}
}

// Limit says, in the details of [ErrLimitReached], how many there can be of what.
type Limit struct {
	Of  string `json:"of"`
	Max int64  `json:"max"`
}

// limited is the refusal when there are n of something already.
func limited(of string, n, most int64) error {
	if n < most {
		return nil
	}
	return ErrLimitReached.With(Limit{of, most})
}

// Pause says, in the details of kit/rate_limited, how long to wait.
type Pause struct {
	RetryAfterMs int64 `json:"retryAfterMs"`
}

// Wait is RetryAfterMs.
func (p Pause) Wait() time.Duration { return time.Duration(p.RetryAfterMs) * time.Millisecond }
