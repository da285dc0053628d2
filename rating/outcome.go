package rating

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
)

// maxKey bounds the key of an outcome, in bytes.
const maxKey = 200

// sides checks an outcome of the game and returns it in canonical order: sides by place, then by
// their first user id; the players of a side by user id.
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

// fingerprint returns a hash of an outcome that does not depend on the order in which its players
// are named.
func fingerprint(sides []Side[string]) string {
	text, err := json.Marshal(sides)
	if err != nil {
		panic(err) // integers and strings always encode
	}
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// event returns the audit event of an outcome: who played, at most the first audit.MaxTargets of
// them, and all places.
func event(result Result) audit.Event {
	e := audit.Event{Action: "rating/outcome_recorded", Subject: audit.Target{Type: "game", ID: result.Game}}
	places := make([]int, len(result.Players))
	for i, p := range result.Players {
		places[i] = p.Place
		if i < audit.MaxTargets {
			e.Targets = append(e.Targets, audit.Target{Type: "user", ID: p.UserID})
		}
	}
	e.Detail = recorded{result.Pool, places}
	return e
}

// recorded is the detail of an audit event: the places of all players, also of those beyond the
// targets.
type recorded struct {
	Pool   string `json:"pool"`
	Places []int  `json:"places"`
}
