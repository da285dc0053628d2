package rating

import (
	"math"

	"github.com/kitbackend/kit/rating/internal/detmath"
)

type glickoParams struct {
	Tau        float64 `json:"tau"`
	Rating     float64 `json:"rating"`
	Deviation  float64 `json:"deviation"`
	Volatility float64 `json:"volatility"`
}

type glickoState struct {
	Rating     float64 `json:"rating"`
	Deviation  float64 `json:"deviation"`
	Volatility float64 `json:"volatility"`
}

// glicko is Glicko-2 (Mark Glickman, "Example of the Glicko-2 system", 2013) with one outcome as
// the rating period of both players. A deviation never exceeds that of a new player, a volatility
// never exceeds 1.
var glicko = Definition[glickoParams, glickoState]{
	ID: "glicko",
	Params: `{"type": "object", "additionalProperties": false, "properties": {
		"tau": {"type": "number", "minimum": 0.1, "maximum": 2, "default": 0.5},
		"rating": {"type": "number", "minimum": -100000, "maximum": 100000, "default": 1500},
		"deviation": {"type": "number", "minimum": 1, "maximum": 1000, "default": 350},
		"volatility": {"type": "number", "minimum": 0.0001, "maximum": 0.5, "default": 0.06}}}`,
	State: `{"type": "object", "additionalProperties": false, "required": ["rating", "deviation", "volatility"], "properties": {
		"rating": {"type": "number"},
		"deviation": {"type": "number", "minimum": 1e-9, "maximum": 1e9},
		"volatility": {"type": "number", "minimum": 1e-9, "maximum": 1}}}`,
	MinPlayers: 2,
	MaxPlayers: 2,
	Initial:    func(p glickoParams) glickoState { return glickoState{p.Rating, p.Deviation, p.Volatility} },
	Update:     glickoUpdate,
	Rating:     func(_ glickoParams, s glickoState) (float64, float64) { return s.Rating, s.Deviation },
	Skill:      func(_ glickoParams, s glickoState) float64 { return s.Rating - float64(2*s.Deviation) },
}

func glickoUpdate(p glickoParams, sides []Side[glickoState]) [][]glickoState {
	a, b := sides[0].Players[0], sides[1].Players[0]
	won := score(sides[0].Place, sides[1].Place)
	return [][]glickoState{
		{glickoPeriod(p, a, glickoGame{b, won})},
		{glickoPeriod(p, b, glickoGame{a, 1 - won})},
	}
}

// glickoGame is a game from the view of one of its players.
type glickoGame struct {
	opponent glickoState
	score    float64
}

const (
	// glickoScale is rounded to 173.7178 in the paper.
	glickoScale = 400 / math.Ln10
	// glickoFar keeps expectations away from 0 and 1: it caps a lead at about 5,000 points.
	glickoFar = 30
	// glickoWildest bounds the volatility. The equation of step 5 has further roots, up to beyond
	// 1e6, which a series of improbable results could reach.
	glickoWildest = 1

	piSquared = math.Pi * math.Pi
)

// glickoPeriod computes the paper's eight steps for a period of games.
func glickoPeriod(p glickoParams, s glickoState, games ...glickoGame) glickoState {
	phi2 := square(s.Deviation / glickoScale)
	var precision, surprise float64 // 1/v and delta/v of steps 3 and 4
	for _, game := range games {
		g := glickoWeight(game.opponent.Deviation)
		expected := glickoExpected(g, s.Rating, game.opponent.Rating)
		precision += float64(float64(g*g) * float64(expected*(1-expected)))
		surprise += float64(g * (game.score - expected))
	}
	v := 1 / precision
	s.Volatility = glickoVolatility(p.Tau, s.Volatility, phi2, v, float64(v*surprise))
	phi2 = 1 / (1/(phi2+square(s.Volatility)) + precision)
	s.Rating += float64(glickoScale * float64(phi2*surprise))
	s.Deviation = min(float64(glickoScale*math.Sqrt(phi2)), p.Deviation)
	return s
}

// glickoWeight is g(φ): the weight of a game against an opponent of this deviation.
func glickoWeight(deviation float64) float64 {
	return 1 / math.Sqrt(1+float64(3*square(deviation/glickoScale))/piSquared)
}

// glickoExpected is E(µ, µj, φj).
func glickoExpected(g, rating, opponent float64) float64 {
	lead := float64(g*(rating-opponent)) / glickoScale
	return 1 / (1 + detmath.Exp(-min(max(lead, -glickoFar), glickoFar)))
}

// glickoVolatility is step 5: it finds the root of f by the Illinois variant of regula falsi.
func glickoVolatility(tau, sigma, phi2, v, delta float64) float64 {
	const rounds, epsilon = 100, 1e-12
	a, delta2 := float64(2*detmath.Log(sigma)), float64(delta*delta)
	f := func(x float64) float64 {
		ex := detmath.Exp(x)
		d := phi2 + v + ex
		return float64(ex*(delta2-d))/float64(2*float64(d*d)) - (x-a)/float64(tau*tau)
	}
	A, B := a, a
	if delta2 > phi2+v {
		B = detmath.Log(delta2 - phi2 - v)
	} else {
		for k := 1.0; k <= rounds; k++ {
			if B = a - float64(k*tau); f(B) >= 0 {
				break
			}
		}
	}
	fA, fB := f(A), f(B)
	for i := 0; i < rounds && math.Abs(B-A) > epsilon; i++ {
		C := A + float64((A-B)*fA)/(fB-fA)
		fC := f(C)
		if float64(fC*fB) <= 0 {
			A, fA = B, fB
		} else {
			fA /= 2
		}
		B, fB = C, fC
	}
	return min(detmath.Exp(A/2), glickoWildest)
}

func square(x float64) float64 { return float64(x * x) }
