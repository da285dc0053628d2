package rating

import (
	"math"

	"github.com/kitbackend/kit/rating/internal/detmath"
)

type eloParams struct {
	K       float64 `json:"k"`
	Initial float64 `json:"initial"`
}

type eloState struct {
	Rating float64 `json:"rating"`
}

// elo is Arpad Elo's system on the logistic curve, as FIDE uses it: a player
// 400 points ahead is expected to score 10 to 1.
var elo = Definition[eloParams, eloState]{
	ID: "elo",
	Params: `{"type": "object", "additionalProperties": false, "properties": {
		"k": {"type": "number", "exclusiveMinimum": 0, "maximum": 1000, "default": 32},
		"initial": {"type": "number", "minimum": -100000, "maximum": 100000, "default": 1500}}}`,
	State: `{"type": "object", "additionalProperties": false, "required": ["rating"], "properties": {
		"rating": {"type": "number"}}}`,
	MinPlayers: 2,
	MaxPlayers: 2,
	Initial:    func(p eloParams) eloState { return eloState{p.Initial} },
	Update:     eloUpdate,
	Skill:      func(_ eloParams, s eloState) float64 { return s.Rating },
	Rating:     func(_ eloParams, s eloState) (float64, float64) { return s.Rating, 0 },
}

// eloUpdate adds as many points to one player as it takes from the other.
func eloUpdate(p eloParams, sides []Side[eloState]) [][]eloState {
	a, b := sides[0].Players[0], sides[1].Players[0]
	points := float64(p.K * (score(sides[0].Place, sides[1].Place) - eloExpected(a.Rating, b.Rating)))
	a.Rating += points
	b.Rating -= points
	return [][]eloState{{a}, {b}}
}

// eloExpected returns the expected score of a against b.
func eloExpected(a, b float64) float64 {
	return 1 / (1 + detmath.Exp(float64((b-a)*math.Ln10)/400))
}

// score returns 1 for a win, 0.5 for a draw and 0 for a loss.
func score(place, opponent int) float64 {
	switch {
	case place < opponent:
		return 1
	case place > opponent:
		return 0
	default:
		return 0.5
	}
}
