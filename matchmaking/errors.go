package matchmaking

import (
	"time"

	"github.com/kitbackend/kit/capability"
)

// The refusals of matchmaking. Ids and names out of bounds are kit/invalid_request; a caller that
// calls too often, or tries too many wrong codes, gets kit/rate_limited with a [Pause] in its
// details.
var (
	ErrGameNotFound = capability.NewError(404, "matchmaking/game_not_found", "There is no such game.")
	// ErrRoomNotFound refuses a valid code whose session has ended.
	ErrRoomNotFound = capability.NewError(404, "matchmaking/room_not_found", "This room is closed.")
	ErrRoomFull     = capability.NewError(409, "matchmaking/room_full", "Every seat of this room is taken.")
	// ErrInvalidCode refuses unknown, expired and used-up codes alike.
	ErrInvalidCode    = capability.NewError(400, "matchmaking/invalid_code", "This room code is not valid.")
	ErrInviteNotFound = capability.NewError(404, "matchmaking/invite_not_found", "There is no such invite, or it has expired.")
	// ErrInviteForbidden refuses to accept or decline the invite of another user, and to invite a
	// user whom the caller blocks.
	ErrInviteForbidden       = capability.NewError(403, "matchmaking/invite_forbidden", "This invite is not yours.")
	ErrAlreadyFriends        = capability.NewError(409, "matchmaking/already_friends", "You are friends already.")
	ErrFriendRequestNotFound = capability.NewError(404, "matchmaking/friend_request_not_found", "This user has not asked to be your friend.")
	// ErrUserNotFound also refuses a screen name that several users have, and a user who blocks the
	// caller.
	ErrUserNotFound  = capability.NewError(404, "matchmaking/user_not_found", "No such user, or not exactly one of this name.")
	ErrNotQueued     = capability.NewError(404, "matchmaking/not_queued", "You are not in the queue of this game.")
	ErrAlreadyQueued = capability.NewError(409, "matchmaking/already_queued", "A player of the party is in the queue of this game already.")
	// ErrLimitReached carries a [Limit] in its details.
	ErrLimitReached = capability.NewError(409, "matchmaking/limit_reached", "There are too many of these already.")
	// ErrNoSessions refuses calls that need a game session if none can be created: multiplayer is
	// not composed, or the game has no snapshot.
	ErrNoSessions = capability.NewError(501, "matchmaking/no_sessions", "This game has no sessions here.")
)

func refusals() []*capability.Error {
	return []*capability.Error{
		ErrGameNotFound, ErrRoomNotFound, ErrRoomFull, ErrInvalidCode, ErrInviteNotFound, ErrInviteForbidden,
		ErrAlreadyFriends, ErrFriendRequestNotFound, ErrUserNotFound, ErrNotQueued, ErrAlreadyQueued,
		ErrLimitReached, ErrNoSessions,
	}
}

// Limit is the details of [ErrLimitReached]: the kind of thing and how many there can be.
type Limit struct {
	Of  string `json:"of"`
	Max int64  `json:"max"`
}

// limited returns the refusal if n has reached the limit.
func limited(of string, n, most int64) error {
	if n < most {
		return nil
	}
	return ErrLimitReached.With(Limit{of, most})
}

// Pause is the details of kit/rate_limited: how long to wait.
type Pause struct {
	RetryAfterMs int64 `json:"retryAfterMs"`
}

// Wait returns RetryAfterMs as a duration.
func (p Pause) Wait() time.Duration { return time.Duration(p.RetryAfterMs) * time.Millisecond }
