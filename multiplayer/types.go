package multiplayer

import (
	"encoding/json"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/rating"
)

// Phase is the phase of a session.
type Phase string

// The phases. The last two are terminal.
const (
	PhaseOpen      Phase = "open"      // waits for players
	PhaseActive    Phase = "active"    // is played
	PhaseResolved  Phase = "resolved"  // has ended by the rules
	PhaseAbandoned Phase = "abandoned" // its deadline passed, or it was closed before it began
)

// Terminal reports whether the session is over and does not change any more.
func (p Phase) Terminal() bool { return p == PhaseResolved || p == PhaseAbandoned }

// View is a session as one of its players sees it.
type View struct {
	ID   string `json:"id"`
	Game string `json:"game"`
	Kind string `json:"kind"`
	Mode Mode   `json:"mode"`
	// Phase and State are those of Version, which every change increments by one.
	Phase   Phase `json:"phase"`
	Version int64 `json:"version"`
	// Players are user ids in the order they joined, which is turn order.
	Players []string `json:"players"`
	// Seats is how many can play: the exact roster of a match, the most players of a table.
	Seats int `json:"seats"`
	// You is the user id of the player whose view this is.
	You string `json:"you"`
	// TurnDeadline is when the time for the turn of an active session ends, nil if there is no time
	// limit.
	TurnDeadline *capability.Time `json:"turnDeadline"`
	Fairness     Fairness         `json:"fairness"`
	// State is what the model lets this player see; null before the start, and in a session that is
	// over and that had a seat of a user who was erased.
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

// Result is how a session ended. It is kept indefinitely.
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
	// Detail is set by the model and visible to every player.
	Detail  json.RawMessage `json:"detail,omitempty"`
	EndedAt capability.Time `json:"endedAt"`
	// Fairness includes the seed.
	Fairness Fairness `json:"fairness"`
	// Rating holds the changes of the players' ratings, if rating has composed the same game.
	Rating []rating.Change `json:"rating,omitempty"`
}

// Team is a team of an outcome, whose players share a place.
type Team struct {
	// Place counts from 1, the place of the winner; ties share a place.
	Place   int      `json:"place"`
	UserIDs []string `json:"userIds"`
}

// Action is an action of a player.
type Action struct {
	// ID, chosen by the client and at most 64 visible ASCII characters, makes the action count
	// once: a repetition returns the outcome of the first one. With an empty id every repetition is
	// another action.
	ID string
	// Expect, unless zero, refuses the action if the session has another version.
	Expect int64
	// Data is JSON of at most [MaxAction] bytes. It is passed to the model unchanged.
	Data json.RawMessage
}

// Ack acknowledges an action that was accepted and is durable.
type Ack struct {
	ID string `json:"id"`
	// Version is the version of the session right after the action.
	Version int64 `json:"version"`
	// Replayed reports that the action had been accepted before.
	Replayed bool `json:"-"`
}

// Start holds the arguments of [Multiplayer.Start].
type Start struct {
	// SessionID is chosen by the caller, 1 to 64 letters, digits, hyphens and underscores; a caller
	// that repeats it gets the existing session. It is only as hard to guess as the caller makes
	// it. If it is empty, a new one is generated.
	SessionID string
	// Game is the game to play; it need not be a configured one.
	Game Game
	// Players are seated in this order.
	Players []string
	// Open lets the session wait for missing players.
	Open bool
	// Until, unless zero, is when a session that has not begun is abandoned, if that is before
	// [Config].OpenTimeout has passed.
	Until time.Time
	// Unasked are players who have not requested this session now. If its beginning, now or once
	// all players have joined, would take money from one of them, it is refused with [ErrUnasked].
	Unasked []string
}

// Session is the summary of a session that [Multiplayer.Start] and [Multiplayer.ListRunning]
// return.
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

// Choices lists the values, for generated documents.
func (Phase) Choices() []string {
	return []string{string(PhaseOpen), string(PhaseActive), string(PhaseResolved), string(PhaseAbandoned)}
}
