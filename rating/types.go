package rating

import "github.com/kitbackend/kit/capability"

// Outcome is how a game ended. One of Ranks and Teams is given.
type Outcome struct {
	// Ranks maps the user id of every player to a finishing place: 1 wins, ties
	// share a place, nobody's place is beyond the number of players.
	Ranks map[string]int
	// Teams is the same for games between teams, which the algorithm must rate.
	Teams []Team
	// Key, optional and at most 200 bytes, makes the outcome count once: for
	// [KeyLifetime] the same outcome of the same game under it returns what the
	// first call did, another one is kit/idempotency_conflict.
	Key string
}

// Team finishes as one.
type Team struct {
	// Place counts from 1, the winner's; ties share a place.
	Place   int
	UserIDs []string
}

// Standing is where a player stands in a pool, as one game shows it.
type Standing struct {
	// Skill is nil where the game hides it.
	Skill *float64 `json:"skill,omitempty"`
	// Rating and Deviation are the numbers that people know of the algorithm, such
	// as 1500 and 350 of Glicko-2. They are nil where the game hides the skill, and
	// where the algorithm has none.
	Rating    *float64 `json:"rating,omitempty"`
	Deviation *float64 `json:"deviation,omitempty"`
	XP        int64    `json:"xp"`
	// Level is empty below the lowest.
	Level       string `json:"level,omitempty"`
	GamesPlayed int64  `json:"gamesPlayed"`
	// UpdatedAt is zero for a player who was never rated.
	UpdatedAt capability.Time `json:"updatedAt,omitzero"`
}

// Player is a player's rating.
type Player struct {
	UserID string `json:"userId"`
	Pool   string `json:"pool"`
	Standing
}

// Result is what an outcome did.
type Result struct {
	Game string `json:"game"`
	Pool string `json:"pool"`
	// Players are ordered by place, then by user id; those of a team together.
	Players []Change `json:"players"`
	// Replayed says that the outcome had been recorded under its key before.
	Replayed bool `json:"-"`
}

// Change is what an outcome did to one player.
type Change struct {
	UserID string   `json:"userId"`
	Place  int      `json:"place"`
	Before Standing `json:"before"`
	After  Standing `json:"after"`
}
