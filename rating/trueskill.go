package rating

import (
	"math"

	"github.com/kitbackend/kit/rating/internal/detmath"
)

// gaussParams are the parameters of the algorithms that model a player's skill as a normal
// distribution; only trueskill uses the draw probability.
type gaussParams struct {
	Mu              float64 `json:"mu"`
	Sigma           float64 `json:"sigma"`
	Beta            float64 `json:"beta"`
	Tau             float64 `json:"tau"`
	DrawProbability float64 `json:"drawProbability"`
}

// gaussState is the mean and the standard deviation of a player's skill.
type gaussState struct {
	Mu    float64 `json:"mu"`
	Sigma float64 `json:"sigma"`
}

const (
	gaussParamSchemas = `
		"mu": {"type": "number", "minimum": -100000, "maximum": 100000, "default": 25},
		"sigma": {"type": "number", "minimum": 0.001, "maximum": 100000, "default": 8.333333333333334},
		"beta": {"type": "number", "minimum": 0.001, "maximum": 100000, "default": 4.166666666666667},
		"tau": {"type": "number", "minimum": 0, "maximum": 100000, "default": 0.08333333333333333}`
	gaussStateSchema = `{"type": "object", "additionalProperties": false, "required": ["mu", "sigma"], "properties": {
		"mu": {"type": "number", "minimum": -1e12, "maximum": 1e12},
		"sigma": {"type": "number", "minimum": 1e-9, "maximum": 1e9}}}`
)

func gaussInitial(p gaussParams) gaussState { return gaussState{p.Mu, p.Sigma} }

// gaussSkill returns the value that a player's skill exceeds with a probability of 99.9 %.
func gaussSkill(_ gaussParams, s gaussState) float64 { return s.Mu - float64(3*s.Sigma) }

func gaussRating(_ gaussParams, s gaussState) (float64, float64) { return s.Mu, s.Sigma }

// variance returns the variance of the skill before a game, which includes the change since the
// last one.
func (s gaussState) variance(p gaussParams) float64 { return square(s.Sigma) + square(p.Tau) }

// trueskill is a Bayesian rating in the style of TrueSkill (Herbrich, Minka and Graepel, 2006) for
// any number of teams, without partial play. A game's factor graph is a chain of teams by place, in
// which adjacent teams are linked by the observed result: a lead over the draw margin or one within
// it. Expectation propagation runs along that chain; the rest of the graph is a tree and computed
// in one step.
var trueskill = Definition[gaussParams, gaussState]{
	ID: "trueskill",
	Params: `{"type": "object", "additionalProperties": false, "properties": {` + gaussParamSchemas + `,
		"drawProbability": {"type": "number", "minimum": 0, "maximum": 0.999, "default": 0.1}}}`,
	State:   gaussStateSchema,
	Teams:   true,
	Initial: gaussInitial,
	Update:  trueskillUpdate,
	Skill:   gaussSkill,
	Rating:  gaussRating,
}

// gauss is a normal distribution, not normalized, by its precision and its precision times mean.
// The zero value carries no information.
type gauss struct{ precision, weight float64 }

func (g gauss) times(h gauss) gauss { return gauss{g.precision + h.precision, g.weight + h.weight} }

// plus returns the distribution of the sum with an independent variable.
func (g gauss) plus(mean, variance float64) gauss {
	scale := 1 + float64(g.precision*variance)
	return gauss{g.precision / scale, (g.weight + float64(g.precision*mean)) / scale}
}

// negative returns the distribution of the negated variable.
func (g gauss) negative() gauss { return gauss{g.precision, -g.weight} }

func (g gauss) variance() float64 { return 1 / g.precision }
func (g gauss) mean() float64     { return g.weight / g.precision }

// tsTeam is a team's performance in a game: its prior, and the messages from the adjacent teams in
// the chain.
type tsTeam struct {
	mean, variance float64
	prior          gauss
	better, worse  gauss
}

func trueskillUpdate(p gaussParams, sides []Side[gaussState]) [][]gaussState {
	teams := make([]tsTeam, len(sides))
	for i, side := range sides {
		t := &teams[i]
		for _, s := range side.Players {
			t.mean += s.Mu
			t.variance += s.variance(p) + square(p.Beta)
		}
		t.prior = gauss{1 / t.variance, t.mean / t.variance}
	}
	trueskillChain(teams, trueskillLinks(p, sides))
	after := make([][]gaussState, len(sides))
	for i, side := range sides {
		after[i] = trueskillPlayers(p, side.Players, teams[i])
	}
	return after
}

// tsLink links two adjacent teams in the chain.
type tsLink struct {
	draw   bool
	margin float64
}

// trueskillLinks computes the draw margin of each pair from the draw probability of two equal teams
// with as many players.
func trueskillLinks(p gaussParams, sides []Side[gaussState]) []tsLink {
	quantile := detmath.SymmetricQuantile(p.DrawProbability)
	links := make([]tsLink, len(sides)-1)
	for i := range links {
		players := float64(len(sides[i].Players) + len(sides[i+1].Players))
		links[i] = tsLink{
			draw:   sides[i].Place == sides[i+1].Place,
			margin: float64(float64(quantile*math.Sqrt(players)) * p.Beta),
		}
	}
	return links
}

// trueskillChain passes messages down and up the chain until they converge, which takes about ten
// rounds; after that only rounding errors change. One link needs no second pass.
func trueskillChain(teams []tsTeam, links []tsLink) {
	const rounds, still = 30, 1e-11
	for range rounds {
		moved := 0.0
		for i := range links {
			moved = max(moved, links[i].pass(&teams[i], &teams[i+1]))
		}
		if len(links) == 1 || moved < still {
			return
		}
		for i := len(links) - 2; i > 0; i-- {
			links[i].pass(&teams[i], &teams[i+1])
		}
	}
}

// pass updates the messages between the two teams of a link and returns how much they changed, in
// units of the prior.
func (l tsLink) pass(a, b *tsTeam) (moved float64) {
	ca, cb := a.prior.times(a.better), b.prior.times(b.worse)
	ma, va, mb, vb := ca.mean(), ca.variance(), cb.mean(), cb.variance()
	lead := l.observe(ma-mb, va+vb)
	worse, better := lead.plus(mb, vb), lead.negative().plus(ma, va)
	moved = max(a.distance(a.worse, worse), b.distance(b.better, better))
	a.worse, b.better = worse, better
	return moved
}

func (t *tsTeam) distance(was, is gauss) float64 {
	return max(
		math.Abs(float64((is.precision-was.precision)*t.variance)),
		math.Abs(float64((is.weight-was.weight)*math.Sqrt(t.variance))),
	)
}

// observe returns the message of the result about a lead with this mean and variance: the
// distribution that changes it to the moments of the truncated one.
func (l tsLink) observe(mean, variance float64) gauss {
	deviation := math.Sqrt(variance)
	t, margin := mean/deviation, l.margin/deviation
	var shift, shrink float64
	if l.draw {
		shift, shrink = truncatedWithin(t, margin)
	} else {
		shift, shrink = truncatedAbove(t, margin)
	}
	rest := float64(variance * (1 - shrink))
	return gauss{shrink / rest, (float64(deviation*shift) + float64(mean*shrink)) / rest}
}

// mostShrink leaves some variance after the most improbable results.
const mostShrink = 1 - 1e-9

// truncatedAbove returns how far the mean of a standard normal variable around t moves, and which
// part of its variance it loses, when it is known to be over the margin: the functions v and w of a
// win.
func truncatedAbove(t, margin float64) (shift, shrink float64) {
	hazard, excess := detmath.Hazard(margin - t)
	return hazard, min(max(float64(hazard*excess), 0), mostShrink)
}

// truncatedWithin is the same for a variable known to be within the margin on either side: v and w
// of a draw. If draws are almost impossible, a draw is rated as if the margin were a thousandth of
// a standard deviation.
func truncatedWithin(t, margin float64) (shift, shrink float64) {
	margin = max(margin, 1e-3)
	distance := math.Abs(t)
	near, far := distance-margin, distance+margin
	// All densities are relative to the one at the near edge.
	edge := detmath.Exp(float64(-2 * float64(distance*margin)))
	if edge < 1e-17 { // the far edge is negligible
		hazard, excess := detmath.Hazard(near)
		shift, shrink = hazard, float64(hazard*excess)
	} else {
		mass := detmath.Mills(near) - float64(edge*detmath.Mills(far))
		shift = (1 - edge) / mass
		shrink = square(shift) - (near-float64(edge*far))/mass
	}
	// A variable within the margins has a variance of at most their square.
	shrink = min(max(shrink, 0, 1-square(margin)), mostShrink)
	return math.Copysign(shift, -t), shrink
}

// trueskillPlayers distributes the posterior of a team's performance to its players, in proportion
// to their uncertainty.
func trueskillPlayers(p gaussParams, players []gaussState, team tsTeam) []gaussState {
	seen := team.better.times(team.worse)
	after := make([]gaussState, len(players))
	for i, s := range players {
		own := s.variance(p)
		performance := own + square(p.Beta)
		skill := seen.plus(-(team.mean-s.Mu), team.variance-performance).plus(0, square(p.Beta))
		precision := 1/own + skill.precision
		after[i] = gaussState{
			Mu:    s.Mu + (skill.weight-float64(skill.precision*s.Mu))/precision,
			Sigma: 1 / math.Sqrt(precision),
		}
	}
	return after
}
