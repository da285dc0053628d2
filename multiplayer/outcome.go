package multiplayer

import (
	"cmp"
	"slices"
	"strings"
)

// place is the finishing place of a player or their team.
type place struct {
	userID string
	place  int
	side   int // equal for the players of a team
}

// places lists the ranked players by user id.
func (r *Result) places() []place {
	var list []place
	for id, at := range r.Ranks {
		list = append(list, place{userID: id, place: at})
	}
	for i, team := range r.Teams {
		for _, id := range team.UserIDs {
			list = append(list, place{id, team.Place, i})
		}
	}
	slices.SortFunc(list, func(a, b place) int {
		return cmp.Or(strings.Compare(a.userID, b.userID), cmp.Compare(a.place, b.place))
	})
	if r.Ranks != nil { // every player is a side
		for i := range list {
			list[i].side = i
		}
	}
	return list
}

// of returns the points of a player.
func (p Points) of(places []place, mine place) int64 {
	drawn := slices.ContainsFunc(places, func(other place) bool { return other.place == 1 && other.side != mine.side })
	switch {
	case mine.place != 1:
		return p.Loss
	case drawn:
		return p.Draw
	default:
		return p.Win
	}
}
