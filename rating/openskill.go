package rating

import (
	"math"

	"github.com/kitbackend/kit/rating/internal/detmath"
)

// openskill is the Plackett-Luce model of Weng and Lin, "A Bayesian Approximation Method for Online
// Ranking", Journal of Machine Learning Research 12 (2011), Algorithm 4, with the defaults of the
// OpenSkill libraries. In practice it rates as well as trueskill, in closed form.
var openskill = Definition[gaussParams, gaussState]{
	ID:      "openskill",
	Params:  `{"type": "object", "additionalProperties": false, "properties": {` + gaussParamSchemas + `}}`,
	State:   gaussStateSchema,
	Teams:   true,
	Initial: gaussInitial,
	Update:  openskillUpdate,
	Skill:   gaussSkill,
	Rating:  gaussRating,
}

// osTeam is a team in a game: the sums over its players, and the paper's omega and delta of the
// outcome, in units of its deviation.
type osTeam struct {
	mean, variance float64
	omega, delta   float64
}

func openskillUpdate(p gaussParams, sides []Side[gaussState]) [][]gaussState {
	const kappa = 1e-4 // a game leaves at least this part of the variance
	teams := make([]osTeam, len(sides))
	c2 := 0.0
	for i, side := range sides {
		for _, s := range side.Players {
			teams[i].mean += s.Mu
			teams[i].variance += s.variance(p)
		}
		c2 += teams[i].variance + square(p.Beta)
	}
	c := math.Sqrt(c2)
	openskillCompare(teams, sides, c)
	after := make([][]gaussState, len(sides))
	for i, side := range sides {
		t := teams[i]
		gamma := math.Sqrt(t.variance) / c
		after[i] = make([]gaussState, len(side.Players))
		for j, s := range side.Players {
			own := s.variance(p) // the team's variance cancels out
			left := 1 - float64(float64(own*t.delta)*gamma)/c2
			after[i][j] = gaussState{
				Mu:    s.Mu + float64(own*t.omega)/c,
				Sigma: math.Sqrt(float64(own * max(left, kappa))),
			}
		}
	}
	return after
}

// openskillCompare computes omega and delta: place by place the winner is drawn among the teams
// that are not placed yet, as from an urn.
func openskillCompare(teams []osTeam, sides []Side[gaussState], c float64) {
	for first := 0; first < len(sides); {
		tied := 1
		for first+tied < len(sides) && sides[first+tied].Place == sides[first].Place {
			tied++
		}
		urn := teams[first:]
		chances := openskillChances(urn, c)
		for i, chance := range chances {
			// Each of the tied teams is one draw, which counts a part.
			won := 0.0
			if i < tied {
				won = 1 / float64(tied)
			}
			urn[i].omega += won - chance
			urn[i].delta += float64(chance * (1 - chance))
		}
		first += tied
	}
}

// openskillChances returns the probability of each team to be drawn next.
func openskillChances(teams []osTeam, c float64) []float64 {
	best := teams[0].mean
	for _, t := range teams {
		best = max(best, t.mean)
	}
	chances, sum := make([]float64, len(teams)), 0.0
	for i, t := range teams {
		chances[i] = detmath.Exp((t.mean - best) / c)
		sum += chances[i]
	}
	for i := range chances {
		chances[i] /= sum
	}
	return chances
}
