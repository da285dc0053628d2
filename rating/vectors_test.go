package rating_test

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/kitbackend/kit/rating"
)

// The published values. Glicko-2: Glickman's "Example of the Glicko-2 system",
// whose printed results are rounded on the way; to ten digits computed with the
// scale 400/ln 10 and with the paper's 173.7178. Glicko-1: Glickman's "The Glicko
// system". Elo: the FIDE examples. TrueSkill: the cases that implementations
// share, solved to a fixed point in extended precision. OpenSkill: openskill
// 5.0.1 from npm, by testdata/openskill.mjs.

const tolerance = 1e-9

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: got %.12f, want %.12f", what, got, want)
	}
}

// tb is a test, or a check of a property.
type tb interface {
	Helper()
	Fatal(args ...any)
}

func bind(t tb, id string, params map[string]any) rating.Rules {
	t.Helper()
	r, err := rating.Bind(id, params)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// update rates sides with the given places and states.
func update[S any](t tb, r rating.Rules, places []int, sides [][]S) [][]S {
	t.Helper()
	states := make([]rating.Side[string], len(sides))
	for i, side := range sides {
		states[i].Place = places[i]
		for _, s := range side {
			text, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			states[i].Players = append(states[i].Players, string(text))
		}
	}
	rated, err := r.Update(states)
	if err != nil {
		t.Fatal(err)
	}
	after := make([][]S, len(sides))
	for i, side := range rated {
		for _, p := range side {
			var s S
			if err := json.Unmarshal([]byte(p.State), &s); err != nil {
				t.Fatal(err)
			}
			after[i] = append(after[i], s)
		}
	}
	return after
}

type elo struct {
	Rating float64 `json:"rating"`
}

type glicko struct {
	Rating     float64 `json:"rating"`
	Deviation  float64 `json:"deviation"`
	Volatility float64 `json:"volatility"`
}

type gauss struct {
	Mu    float64 `json:"mu"`
	Sigma float64 `json:"sigma"`
}

func TestEloVectors(t *testing.T) {
	for _, c := range []struct {
		name         string
		k            float64
		better, then float64 // the first and the other player's rating
		draw         bool
		want         [2]float64
	}{
		{"equals", 32, 1500, 1500, false, [2]float64{1516, 1484}},
		{"equals draw", 32, 1500, 1500, true, [2]float64{1500, 1500}},
		{"upset", 32, 1200, 1500, false, [2]float64{1227.1686541692, 1472.8313458308}},
		{"upset draw", 32, 1200, 1500, true, [2]float64{1211.1686541692, 1488.8313458308}},
		{"favourite", 32, 2400, 2000, false, [2]float64{2400 + 32./11, 2000 - 32./11}},
		{"favourite lost", 32, 2000, 2400, false, [2]float64{2000 + 320./11, 2400 - 320./11}},
		{"FIDE win", 25, 1200, 1500, false, [2]float64{1221.2255110697, 1478.7744889303}},
		{"FIDE draw", 25, 1200, 1500, true, [2]float64{1208.7255110697, 1491.2744889303}},
		{"FIDE loss", 25, 1500, 1200, false, [2]float64{1503.7744889303, 1196.2255110697}},
	} {
		places := []int{1, 2}
		if c.draw {
			places[1] = 1
		}
		got := update(t, bind(t, "elo", map[string]any{"k": c.k}), places, [][]elo{{{c.better}}, {{c.then}}})
		near(t, c.name, got[0][0].Rating, c.want[0], tolerance)
		near(t, c.name, got[1][0].Rating, c.want[1], tolerance)
	}
}

// TestEloTournament is the usual example of five games rated from one rating.
func TestEloTournament(t *testing.T) {
	r, sum := bind(t, "elo", nil), 1613.0
	for _, g := range []struct {
		opponent float64
		places   []int
	}{{1609, []int{2, 1}}, {1477, []int{1, 1}}, {1388, []int{1, 2}}, {1586, []int{1, 2}}, {1720, []int{2, 1}}} {
		me, other := elo{1613}, elo{g.opponent}
		if g.places[0] > g.places[1] {
			sum += update(t, r, []int{1, 2}, [][]elo{{other}, {me}})[1][0].Rating - 1613
		} else {
			sum += update(t, r, g.places, [][]elo{{me}, {other}})[0][0].Rating - 1613
		}
	}
	near(t, "after five games", sum, 1601.26988, 5e-6)
}

var (
	paper       = rating.GlickoPlayer{1500, 200, 0.06}
	paperOthers = []rating.GlickoPlayer{{1400, 30, 0}, {1550, 100, 0}, {1700, 300, 0}}
	paperScores = []float64{1, 0, 0}
)

func TestGlickoPaper(t *testing.T) {
	got := rating.GlickoPeriod(0.5, paper, paperOthers, paperScores)
	near(t, "rating", got[0], 1464.0506708195, tolerance)
	near(t, "deviation", got[1], 151.5165219264, tolerance)
	near(t, "volatility", got[2], 0.059995984400839, 1e-12)
	// The values printed in the paper.
	near(t, "rating", got[0], 1464.06, 0.011)
	near(t, "deviation", got[1], 151.52, 0.005)
	near(t, "volatility", got[2], 0.05999, 1e-5)

	// With the paper's rounded scale: the same numbers, scaled there and back.
	const stretch = rating.GlickoScale / 173.7178
	scaled := func(p rating.GlickoPlayer, by float64) rating.GlickoPlayer {
		return rating.GlickoPlayer{1500 + (p[0]-1500)*by, p[1] * by, p[2]}
	}
	others := make([]rating.GlickoPlayer, len(paperOthers))
	for i, p := range paperOthers {
		others[i] = scaled(p, stretch)
	}
	got = scaled(rating.GlickoPeriod(0.5, scaled(paper, stretch), others, paperScores), 1/stretch)
	near(t, "rating", got[0], 1464.0506705391, tolerance)
	near(t, "deviation", got[1], 151.5165241243, tolerance)
	near(t, "volatility", got[2], 0.059995984400678, 1e-12)
}

// TestGlicko1 compares g and E, which Glicko-2 shares with Glicko-1, with the paper on Glicko-1.
func TestGlicko1(t *testing.T) {
	for i, want := range [][2]float64{{0.9954980, 0.6394677}, {0.9531490, 0.4318424}, {0.7242355, 0.3028407}} {
		g := rating.GlickoWeight(paperOthers[i][1])
		near(t, "g", g, want[0], 5e-8)
		near(t, "E", rating.GlickoExpected(g, paper[0], paperOthers[i][0]), want[1], 5e-8)
	}
}

func TestGlickoVectors(t *testing.T) {
	r := bind(t, "glicko", nil)
	fresh := glicko{1500, 350, 0.06}
	won := update(t, r, []int{1, 2}, [][]glicko{{fresh}, {fresh}})
	near(t, "winner", won[0][0].Rating, 1662.3108950330, tolerance)
	near(t, "loser", won[1][0].Rating, 1337.6891049670, tolerance)
	near(t, "deviation", won[0][0].Deviation, 290.3189620179, tolerance)
	near(t, "deviation", won[1][0].Deviation, 290.3189620179, tolerance)
	near(t, "volatility", won[0][0].Volatility, 0.0599996754, 5e-11)
	drawn := update(t, r, []int{1, 1}, [][]glicko{{fresh}, {fresh}})
	near(t, "drawn", drawn[0][0].Rating, 1500, 0)
	near(t, "deviation", drawn[0][0].Deviation, 290.3189599138, tolerance)
	near(t, "volatility", drawn[0][0].Volatility, 0.0599989615, 5e-11)
	near(t, "skill of the unrated", r.Initial().Skill, 800, 0)
}

// game is a test case for the algorithms on normal distributions.
type game struct {
	name   string
	places []int
	sides  [][]gauss
	want   [][]gauss
}

func (g game) check(t *testing.T, r rating.Rules) {
	t.Helper()
	got := update(t, r, g.places, g.sides)
	for i, side := range g.want {
		for j, want := range side {
			near(t, g.name+" mu", got[i][j].Mu, want.Mu, tolerance)
			near(t, g.name+" sigma", got[i][j].Sigma, want.Sigma, tolerance)
		}
	}
}

var fresh = gauss{25, 25. / 3}

func TestTrueSkillVectors(t *testing.T) {
	for _, g := range []game{
		{"1v1", []int{1, 2}, [][]gauss{{fresh}, {fresh}},
			[][]gauss{{{29.39583169299, 7.17147580701}}, {{20.60416830701, 7.17147580701}}}},
		{"1v1 draw", []int{1, 1}, [][]gauss{{fresh}, {fresh}},
			[][]gauss{{{25, 6.45751568325}}, {{25, 6.45751568325}}}},
		{"draw of unequals", []int{1, 1}, [][]gauss{{fresh}, {{50, 12.5}}},
			[][]gauss{{{31.66230193167, 7.13744598958}}, {{35.01065335822, 7.91007711599}}}},
		{"2v2", []int{1, 2}, [][]gauss{{fresh, fresh}, {fresh, fresh}},
			[][]gauss{
				{{28.10832239907, 7.77436345109}, {28.10832239907, 7.77436345109}},
				{{21.89167760093, 7.77436345109}, {21.89167760093, 7.77436345109}}}},
		{"1v2", []int{1, 2}, [][]gauss{{fresh}, {fresh, fresh}},
			[][]gauss{
				{{33.73067114900, 7.31736536287}},
				{{16.26932885100, 7.31736536287}, {16.26932885100, 7.31736536287}}}},
		{"3v2", []int{1, 2}, [][]gauss{{{28, 7}, {27, 6}, {26, 5}}, {{30, 4}, {31, 3}}},
			[][]gauss{
				{{28.65819574618, 6.77022189805}, {27.48359712965, 5.85620362615}, {26.33585983874, 4.91744569329}},
				{{29.78501612655, 3.95836372839}, {30.87903076622, 2.98325855933}}}},
		{"free for all", []int{1, 2, 3, 4, 5, 6, 7, 8},
			[][]gauss{{fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}, {fresh}},
			[][]gauss{
				{{36.77109579040, 5.74928383390}}, {{32.24234338603, 5.13291279990}},
				{{29.07398246951, 4.94271504416}}, {{26.32217884219, 4.87454906226}},
				{{50 - 26.32217884219, 4.87454906226}}, {{50 - 29.07398246951, 4.94271504416}},
				{{50 - 32.24234338603, 5.13291279990}}, {{50 - 36.77109579040, 5.74928383390}}}},
	} {
		g.check(t, bind(t, "trueskill", nil))
	}
}

// TestDrawMargins compares with the exact inverse of the error function, and with the values of
// Moserware's tests, whose approximation has seven digits.
func TestDrawMargins(t *testing.T) {
	for p, published := range map[float64]float64{0.10: 0.74046637542690541, 0.25: 1.87760059883033, 0.33: 2.5111010132487492} {
		got := rating.DrawMargin(p, 25./6)
		near(t, "margin", got, 2*math.Erfinv(p)*25/6, tolerance)
		near(t, "margin", got, published, 1e-6)
	}
}

// sidesOf returns sides of one player each.
func sidesOf(places, players []int, states []string) []rating.Side[string] {
	sides := make([]rating.Side[string], len(places))
	for i, place := range places {
		sides[i] = rating.Side[string]{Place: place, Players: []string{states[players[i]]}}
	}
	return sides
}
