package multiplayer

import (
	"encoding/json"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/rating"
)

// Phase is how far a session is.
type Phase string

// The phases. The last two are terminal.
const (
	PhaseOpen      Phase = "open"      // waits for players
	PhaseActive    Phase = "active"    // is played
	PhaseResolved  Phase = "resolved"  // came to its end
	PhaseAbandoned Phase = "abandoned" // its deadline passed, or it was closed before it began
)

// Terminal reports whether nothing changes any more.
func (p Phase) Terminal() bool { return p == PhaseResolved || p == PhaseAbandoned }

// View is a session as one of its players sees it.
type View struct {
	ID   string `json:"id"`
	Game string `json:"game"`
	Kind string `json:"kind"`
	Mode Mode   `json:"mode"`
	// Phase and State are those of Version, which every change raises by one.
	Phase   Phase `json:"phase"`
	Version int64 `json:"version"`
	// Players are user ids in the order they joined, which is turn order.
	Players []string `json:"players"`
	// Seats is how many can play: the exact roster of a match, the most that a
	// table takes.
	Seats int `json:"seats"`
	// You is whose view this is.
	You string `json:"you"`
	// TurnDeadline is when an active session is abandoned unless somebody acts,
	// nil where nobody is waited for.
	TurnDeadline *capability.Time `json:"turnDeadline"`
	Fairness     Fairness         `json:"fairness"`
	// State is what the model lets this player see; null before the start.
	State json.RawMessage `json:"state"`
	// Result is nil until the session is terminal.
	Result *Result `json:"result"`
}

// Fairness lets a player check, after the end, every random draw of a session.
type Fairness struct {
	// Algorithm names the stream, see [Random].
	Algorithm string `json:"algorithm"`
	// SeedHash is the SHA-256 of the seed, in hex, known from the start.
	SeedHash string `json:"seedHash"`
	// Cursor counts the words drawn so far.
	Cursor int64 `json:"cursor"`
	// Seed is 128 bits in hex; nil until the session is terminal.
	Seed *string `json:"seed"`
}

// Result is how a session ended. It is kept for good.
type Result struct {
	SessionID string   `json:"sessionId"`
	Game      string   `json:"game"`
	Phase     Phase    `json:"phase"`
	Players   []string `json:"players"`
	// Ranks maps user ids to finishing places: 1 wins, ties share a place. It is
	// empty when nobody was ranked.
	Ranks map[string]int `json:"ranks,omitempty"`
	// Teams is the same for a game between teams.
	Teams []Team `json:"teams,omitempty"`
	// Detail is what the model adds, for everybody to see.
	Detail  json.RawMessage `json:"detail,omitempty"`
	EndedAt capability.Time `json:"endedAt"`
	// Fairness carries the seed.
	Fairness Fairness `json:"fairness"`
	// Rating is what the outcome did to the players' ratings, where rating
	// composes the same game.
	Rating []rating.Change `json:"rating,omitempty"`
}

// Team finishes as one.
type Team struct {
	// Place counts from 1, the winner's; ties share a place.
	Place   int      `json:"place"`
	UserIDs []string `json:"userIds"`
}

// Action is what a player does.
type Action struct {
	// ID, chosen by the client and at most 64 visible ASCII characters, makes
	// the action count once: the same again returns what the first one did.
	// Empty means that a repetition is another action.
	ID string
	// Expect, unless zero, refuses the action when the session has another
	// version.
	Expect int64
	// Data is JSON of at most [MaxAction] bytes. It goes to the model as it is.
	Data json.RawMessage
}

// Ack says that an action was accepted and is durable.
type Ack struct {
	ID string `json:"id"`
	// Version is the session's right after the action.
	Version int64 `json:"version"`
	// Replayed reports that the action had been accepted before.
	Replayed bool `json:"-"`
}

// Start says what a session begins with; see [Multiplayer.Start].
type Start struct {
	// SessionID is chosen by the caller, 1 to 64 letters, digits, hyphens and
	// underscores; a caller that repeats it gets the session that there is. It is as
	// hard to guess as the caller makes it. Empty means a new one.
	SessionID string
	// Game is taken as it is; it need not be a configured one.
	Game Game
	// Players are seated in this order.
	Players []string
	// Open lets the session wait for the players that are missing.
	Open bool
	// Unasked are players who have not asked for this session now. Where its
	// beginning, now or once it has its players, would take money of one, it is
	// refused with [ErrUnasked].
	Unasked []string
}

// Session is what [Multiplayer.Start] and [Multiplayer.ListRunning] return.
type Session struct {
	ID      string
	Game    string
	Phase   Phase
	Version int64
	Players []string
	// Seats is how many can play.
	Seats int
	// TurnDeadline is as in [View].
	TurnDeadline *capability.Time
}

// Choices lists the values, for documents.
func (Phase) Choices() []string {
	return []string{string(PhaseOpen), string(PhaseActive), string(PhaseResolved), string(PhaseAbandoned)}
}
