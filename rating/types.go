package rating

import "github.com/kitbackend/kit/capability"

// Outcome is how a game ended. Exactly one of Ranks and Teams is set.
type Outcome struct {
	// Ranks maps the user id of every player to a finishing place: 1 wins, ties share a place, and
	// no place exceeds the number of players.
	Ranks map[string]int
	// Teams is the same for games between teams, which the algorithm must rate.
	Teams []Team
	// Key, optional and at most 200 bytes, makes the outcome count once: for [KeyLifetime] the same
	// outcome of the same game with this key returns the first result, another one is
	// kit/idempotency_conflict.
	Key string
}

// Team is a team of an outcome, whose players share a place.
type Team struct {
	// Place counts from 1, the place of the winner; ties share a place.
	Place   int
	UserIDs []string
}

// Standing is a player's rating in a pool, as shown by one game.
type Standing struct {
	// Skill is nil if the game hides it.
	Skill *float64 `json:"skill,omitempty"`
	// Rating and Deviation are the conventional numbers of the algorithm, such as 1500 and 350 of
	// Glicko-2. They are nil if the game hides the skill, or the algorithm has none.
	Rating    *float64 `json:"rating,omitempty"`
	Deviation *float64 `json:"deviation,omitempty"`
	XP        int64    `json:"xp"`
	// Level is empty below the lowest level.
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

// Result is the result of an outcome.
type Result struct {
	Game string `json:"game"`
	Pool string `json:"pool"`
	// Players are ordered by place, with the players of a team together, then by user id.
	Players []Change `json:"players"`
	// Replayed reports that the outcome had been recorded under its key before.
	Replayed bool `json:"-"`
}

// Change is the change of one player's rating by an outcome.
type Change struct {
	UserID string   `json:"userId"`
	Place  int      `json:"place"`
	Before Standing `json:"before"`
	After  Standing `json:"after"`
}
