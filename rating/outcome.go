package rating

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbackend/kit/capability"
)

// maxKey bounds the key of an outcome, in bytes.
const maxKey = 200

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

// sides checks an outcome of the game and brings it into its one order: sides
// by place, then by their first user id; the players of a side by user id.
func (g *game) sides(o Outcome) ([]Side[string], error) {
	if (o.Ranks == nil) == (o.Teams == nil) {
		return nil, capability.ErrInvalidRequest.Saying("One of ranks and teams is needed.")
	}
	if err := capability.CheckText("key", o.Key, 0, maxKey); err != nil {
		return nil, err
	}
	sides := make([]Side[string], 0, len(o.Ranks)+len(o.Teams))
	for id, place := range o.Ranks {
		sides = append(sides, Side[string]{place, []string{id}})
	}
	for _, team := range o.Teams {
		sides = append(sides, Side[string]{team.Place, slices.Sorted(slices.Values(team.UserIDs))})
	}
	if err := g.check(sides); err != nil {
		return nil, err
	}
	slices.SortFunc(sides, func(a, b Side[string]) int {
		return cmp.Or(cmp.Compare(a.Place, b.Place), strings.Compare(a.Players[0], b.Players[0]))
	})
	if sides[0].Place != 1 {
		return nil, capability.ErrInvalidRequest.Saying("Nobody is on place 1.")
	}
	return sides, nil
}

func (g *game) check(sides []Side[string]) error {
	players := 0
	for _, side := range sides {
		players += len(side.Players)
		switch {
		case len(side.Players) == 0:
			return capability.ErrInvalidRequest.Saying("A team has no players.")
		case len(side.Players) > 1 && !g.teams:
			return ErrUnsupportedPlayerCount.Saying("%s does not rate teams.", g.Algorithm)
		case side.Place < 1 || side.Place > len(sides):
			return capability.ErrInvalidRequest.Saying("A place is a number from 1 to %d here.", len(sides))
		}
	}
	if players != g.Players {
		return ErrUnsupportedPlayerCount.Saying("%s takes %d players.", g.Key, g.Players)
	}
	if len(sides) < 2 {
		return capability.ErrInvalidRequest.Saying("There is nobody to play against.")
	}
	ids := playersOf(sides)
	for i, id := range ids {
		if err := capability.CheckUserID(id); err != nil {
			return err
		}
		if i > 0 && ids[i-1] == id {
			return capability.ErrInvalidRequest.Saying("A player plays once.")
		}
	}
	return nil
}

// playersOf lists the user ids in order.
func playersOf(sides []Side[string]) []string {
	var ids []string
	for _, side := range sides {
		ids = append(ids, side.Players...)
	}
	slices.Sort(ids)
	return ids
}

// fingerprint tells outcomes apart, whatever the order they were given in.
func fingerprint(sides []Side[string]) string {
	text, err := json.Marshal(sides)
	if err != nil {
		panic(err) // integers and strings always encode
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
