package rating

import "encoding/json"

// Rules are an algorithm with parameters, for tests of the algorithms alone.
type Rules struct{ r rules }

// Rated is a state and its skill.
type Rated struct {
	State string
	Skill float64
}

// Bind completes the parameters of a built-in algorithm.
func Bind(id string, params map[string]any) (Rules, error) {
	for _, a := range builtin() {
		if a.id == id {
			r, err := a.bind(params)
			return Rules{r}, err
		}
	}
	return Rules{}, ErrUnknownAlgorithm
}

func (r Rules) Params() json.RawMessage { return r.r.params }
func (r Rules) Initial() Rated          { return Rated{r.r.initial.state, r.r.initial.skill} }

// Update rates sides, ordered by place, with the states of their players.
func (r Rules) Update(sides []Side[string]) ([][]Rated, error) {
	after, err := r.r.update(sides)
	if err != nil {
		return nil, err
	}
	out := make([][]Rated, len(after))
	for i, side := range after {
		for _, p := range side {
			out[i] = append(out[i], Rated{p.state, p.skill})
		}
	}
	return out, nil
}

// GlickoPlayer is rating, deviation and volatility.
type GlickoPlayer [3]float64

// GlickoScale is the number of points in a unit of the paper's µ.
const GlickoScale = glickoScale

// GlickoPeriod rates a player over a period of games with the default parameters.
func GlickoPeriod(tau float64, self GlickoPlayer, opponents []GlickoPlayer, scores []float64) GlickoPlayer {
	games := make([]glickoGame, len(opponents))
	for i, o := range opponents {
		games[i] = glickoGame{glickoState{o[0], o[1], o[2]}, scores[i]}
	}
	s := glickoPeriod(glickoParams{Tau: tau, Deviation: 350}, glickoState{self[0], self[1], self[2]}, games...)
	return GlickoPlayer{s.Rating, s.Deviation, s.Volatility}
}

// GlickoWeight and GlickoExpected are g and E of the paper.
var (
	GlickoWeight   = glickoWeight
	GlickoExpected = glickoExpected
)

// DrawMargin returns the draw margin of a game between two players.
func DrawMargin(drawProbability, beta float64) float64 {
	p := gaussParams{Beta: beta, DrawProbability: drawProbability}
	one := []gaussState{{}}
	return trueskillLinks(p, []Side[gaussState]{{1, one}, {2, one}})[0].margin
}
