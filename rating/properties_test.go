package rating_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/kitbackend/kit/rating"
)

func gaussians(lowest, highest float64) *rapid.Generator[gauss] {
	return rapid.Custom(func(t *rapid.T) gauss {
		return gauss{rapid.Float64Range(lowest, highest).Draw(t, "mu"), rapid.Float64Range(0.1, 20).Draw(t, "sigma")}
	})
}

// places draws the places of n sides, in order.
func places(t *rapid.T, n int) []int {
	list := []int{1}
	for i := 1; i < n; i++ {
		if rapid.Bool().Draw(t, "tie") {
			list = append(list, list[i-1])
		} else {
			list = append(list, i+1)
		}
	}
	return list
}

// TestEloZeroSum checks that one player loses what the other wins.
func TestEloZeroSum(t *testing.T) {
	r := bind(t, "elo", nil)
	rapid.Check(t, func(rt *rapid.T) {
		ratings := rapid.Float64Range(-5000, 5000)
		a, b := ratings.Draw(rt, "a"), ratings.Draw(rt, "b")
		after := update(rt, r, places(rt, 2), [][]elo{{{a}}, {{b}}})
		won, lost := after[0][0].Rating-a, b-after[1][0].Rating
		if math.Abs(won-lost) > 1e-11 || math.Abs(won) > 32 {
			rt.Errorf("%v against %v: %v won, %v lost", a, b, won, lost)
		}
	})
}

// TestMonotone checks that the rating of a sole winner does not fall, and that of a loser to all
// others does not rise.
func TestMonotone(t *testing.T) {
	two := []int{1, 2}
	rapid.Check(t, func(rt *rapid.T) {
		ratings := rapid.Float64Range(-3000, 6000)
		a, b := ratings.Draw(rt, "a"), ratings.Draw(rt, "b")
		points := update(rt, bind(rt, "elo", nil), two, [][]elo{{{a}}, {{b}}})
		ordered(rt, "elo", points[0][0].Rating, a, points[1][0].Rating, b)

		deviations, volatilities := rapid.Float64Range(1, 350), rapid.Float64Range(0.01, 0.2)
		x := glicko{a, deviations.Draw(rt, "rd a"), volatilities.Draw(rt, "v a")}
		y := glicko{b, deviations.Draw(rt, "rd b"), volatilities.Draw(rt, "v b")}
		periods := update(rt, bind(rt, "glicko", nil), two, [][]glicko{{x}, {y}})
		ordered(rt, "glicko", periods[0][0].Rating, x.Rating, periods[1][0].Rating, y.Rating)

		players := rapid.SliceOfN(gaussians(-100, 200), 2, 10).Draw(rt, "players")
		sides, order := make([][]gauss, len(players)), make([]int, len(players))
		for i, p := range players {
			sides[i], order[i] = []gauss{p}, i+1
		}
		last := len(players) - 1
		for _, id := range []string{"trueskill", "openskill"} {
			after := update(rt, bind(rt, id, nil), order, sides)
			ordered(rt, id, after[0][0].Mu, players[0].Mu, after[last][0].Mu, players[last].Mu)
		}
	})
}

func ordered(t *rapid.T, id string, winnerAfter, winner, loserAfter, loser float64) {
	if winnerAfter < winner || loserAfter > loser {
		t.Errorf("%s: the winner went from %v to %v, the loser from %v to %v", id, winner, winnerAfter, loser, loserAfter)
	}
}

// TestSymmetry checks that adding the same number to all means only shifts the results.
func TestSymmetry(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		teams := rapid.SliceOfN(rapid.SliceOfN(gaussians(0, 50), 2, 2), 2, 6).Draw(rt, "teams")
		order, shift := places(rt, len(teams)), rapid.Float64Range(-50, 50).Draw(rt, "shift")
		shifted := make([][]gauss, len(teams))
		for i, team := range teams {
			for _, p := range team {
				shifted[i] = append(shifted[i], gauss{p.Mu + shift, p.Sigma})
			}
		}
		for _, id := range []string{"trueskill", "openskill"} {
			r := bind(rt, id, nil)
			after, afterShift := update(rt, r, order, teams), update(rt, r, order, shifted)
			for i, team := range after {
				for j := range team {
					team[j].Mu += shift
					if math.Abs(team[j].Mu-afterShift[i][j].Mu) > 1e-8 || math.Abs(team[j].Sigma-afterShift[i][j].Sigma) > 1e-8 {
						rt.Errorf("%s: %v shifted is %v", id, team[j], afterShift[i][j])
					}
				}
			}
		}
	})
}

// TestEqualsShare checks that equal players who tie stay equal, whatever their number.
func TestEqualsShare(t *testing.T) {
	for _, id := range []string{"trueskill", "openskill"} {
		for n := 2; n <= 64; n++ {
			sides, order := make([][]gauss, n), make([]int, n)
			for i := range n {
				sides[i], order[i] = []gauss{fresh}, 1
			}
			for i, side := range update(t, bind(t, id, nil), order, sides) {
				if math.Abs(side[0].Mu-25) > 1e-9 {
					t.Fatalf("%s: of %d equals the %dth is %v", id, n, i, side[0])
				}
			}
		}
	}
}

// TestCorners checks that the most improbable results that parameters and states allow give states
// that can be rated further, which Update checks.
func TestCorners(t *testing.T) {
	magnitudes := []float64{-1e9, 1500, 1e9}
	for _, tau := range []float64{0.1, 2} {
		r := bind(t, "glicko", map[string]any{"tau": tau})
		var states []glicko
		for _, x := range magnitudes {
			for _, deviation := range []float64{1e-6, 1, 350, 1000} {
				for _, volatility := range []float64{1e-6, 0.06, 1} {
					states = append(states, glicko{x, deviation, volatility})
				}
			}
		}
		corners(t, r, states)
	}
	for _, beta := range []float64{0.001, 25. / 6, 100_000} {
		for _, tau := range []float64{0, 100_000} {
			params := map[string]any{"beta": beta, "tau": tau}
			var states []gauss
			for _, x := range magnitudes {
				for _, sigma := range []float64{1e-6, 25. / 3, 1e6} {
					states = append(states, gauss{x, sigma})
				}
			}
			corners(t, bind(t, "openskill", params), states)
			for _, draws := range []float64{0, 0.1, 0.999} {
				params["drawProbability"] = draws
				corners(t, bind(t, "trueskill", params), states)
			}
		}
	}
}

// corners lets all of the states win and draw against each other, twice.
func corners[S any](t *testing.T, r rating.Rules, states []S) {
	t.Helper()
	for _, a := range states {
		for _, b := range states {
			for _, order := range [][]int{{1, 2}, {1, 1}} {
				update(t, r, order, update(t, r, order, [][]S{{a}, {b}}))
			}
		}
	}
}
