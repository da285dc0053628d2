package matchmaking

import "github.com/kitbackend/kit/capability"

// Friend is another user.
type Friend struct {
	UserID string `json:"userId"`
	State  string `json:"state"`
	// Since is when they became friends, or the request was made.
	Since capability.Time `json:"since"`
	// Online is whether a friend has a presence socket.
	Online bool `json:"online"`
}

// The states of a friendship, as one of the two users sees it.
const (
	FriendAccepted = "accepted"
	FriendIncoming = "incoming" // the other one has asked
	FriendOutgoing = "outgoing" // the other user has not decided
)

// Invite asks one user into a game with another.
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

// Invitee names whom to invite, by one of the two.
type Invitee struct {
	UserID     string `json:"userId,omitempty"`
	ScreenName string `json:"screenName,omitempty"`
}

// Queued says how a player stands in a queue.
type Queued struct {
	State  string `json:"state"`
	Region string `json:"region"`
	// Band is how far apart skills may be by now; nil: no bound.
	Band *float64 `json:"band"`
	// WaitedMs ends with the match.
	WaitedMs int64 `json:"waitedMs"`
	// SessionID is set when matched, where there are sessions.
	SessionID string `json:"sessionId,omitempty"`
	// MatchID is the match that was found, for [Matchmaking.Match].
	MatchID string `json:"-"`
}

// Match is players that the sweep has put together.
type Match struct {
	ID      string
	GameKey string
	Region  string
	// Players are the user ids in turn order.
	Players []string
	// State is [Forming], [Matched] or [Failed].
	State string
	// SessionID is empty while forming, and where there are no sessions.
	SessionID string
}

// Backfill is free seats of a session that plays already: a table, as a rule.
type Backfill struct {
	GameKey   string
	Region    string
	SessionID string
	Seats     int
	// Skill is that of the players who are there, for a game with a SkillPool.
	Skill float64
}

// Room is a session that others join by a code.
type Room struct {
	Code      string          `json:"code"`
	ExpiresAt capability.Time `json:"expiresAt"`
	SessionID string          `json:"sessionId"`
}

// Joined says which session a code led to.
type Joined struct {
	SessionID string `json:"sessionId"`
	GameKey   string `json:"gameKey"`
}
