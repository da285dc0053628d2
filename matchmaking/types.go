package matchmaking

import "github.com/kitbackend/kit/capability"

// Friend is a friend of a user, or another user with a friend request.
type Friend struct {
	UserID string `json:"userId"`
	State  string `json:"state"`
	// Since is when they became friends, or the request was made.
	Since capability.Time `json:"since"`
	// Online reports whether a friend has a presence socket.
	Online bool `json:"online"`
}

// The states of a friendship, as seen by one of the two users.
const (
	FriendAccepted = "accepted"
	FriendIncoming = "incoming" // the other user has sent a request
	FriendOutgoing = "outgoing" // the other user has not decided
)

// Invite invites a user into a game with another one.
type Invite struct {
	ID      string `json:"id"`
	GameKey string `json:"gameKey"`
	From    string `json:"from"`
	To      string `json:"to"`
	State   string `json:"state"`
	// SessionID is set once the invite is accepted.
	SessionID string          `json:"sessionId,omitempty"`
	CreatedAt capability.Time `json:"createdAt"`
	ExpiresAt capability.Time `json:"expiresAt"`
}

// Invitee identifies the user to invite, by exactly one of the two.
type Invitee struct {
	UserID     string `json:"userId,omitempty"`
	ScreenName string `json:"screenName,omitempty"`
}

// Queued is the state of a player in a queue.
type Queued struct {
	State  string `json:"state"`
	Region string `json:"region"`
	// Band is the current largest difference of skills; nil means no bound.
	Band *float64 `json:"band"`
	// WaitedMs is the waiting time, which ends with the match.
	WaitedMs int64 `json:"waitedMs"`
	// SessionID is set when the player is matched, if the game has sessions.
	SessionID string `json:"sessionId,omitempty"`
	// MatchID is the id of the match, for [Matchmaking.Match].
	MatchID string `json:"-"`
}

// Match is a group of players formed by the sweep.
type Match struct {
	ID      string
	GameKey string
	Region  string
	// Players are the user ids in turn order.
	Players []string
	// State is [Forming], [Matched] or [Failed].
	State string
	// SessionID is empty while the match is forming, and if the game has no sessions.
	SessionID string
}

// Backfill offers free seats of a session that is under way, usually a table.
type Backfill struct {
	GameKey   string
	Region    string
	SessionID string
	Seats     int
	// Skill is the skill of the seated players, for a game with a SkillPool.
	Skill float64
}

// Room is a session that others join by a code.
type Room struct {
	Code      string          `json:"code"`
	ExpiresAt capability.Time `json:"expiresAt"`
	SessionID string          `json:"sessionId"`
}

// Joined is the session of a code.
type Joined struct {
	SessionID string `json:"sessionId"`
	GameKey   string `json:"gameKey"`
}
