package rating_test

import (
	"encoding/json"
	"testing"

	"github.com/kitbackend/kit/rating"
)

var algorithms = []string{"elo", "glicko", "trueskill", "openskill"}

// FuzzState checks that any content of a state column is rated or refused, the same against every
// opponent.
func FuzzState(f *testing.F) {
	for _, state := range []string{
		`{"rating":1500}`, `{"rating":1500,"deviation":350,"volatility":0.06}`, `{"mu":25,"sigma":8.333333333333334}`,
		`{"mu":-1e12,"sigma":1e-12}`, `{"rating":1e12,"deviation":5e-324,"volatility":1000}`, `{"mu":25,"mu":26,"sigma":1}`,
		`{"mu":25,"sigma":1}x`, `{"mu":1e999,"sigma":1}`, `{"MU":25,"sigma":1}`, `null`, `[]`, ``, `{"rating":"1500"}`,
	} {
		f.Add(state, state, true)
	}
	rules := make(map[string]rating.Rules)
	for _, id := range algorithms {
		rules[id] = bind(f, id, nil)
	}
	f.Fuzz(func(t *testing.T, a, b string, draw bool) {
		for id, r := range rules {
			sides := []rating.Side[string]{{Place: 1, Players: []string{a}}, {Place: 2, Players: []string{b}}}
			if draw {
				sides[1].Place = 1
			}
			_, err := r.Update(sides)
			sides[0].Players, sides[1].Players = sides[1].Players, sides[0].Players
			if _, swapped := r.Update(sides); (err == nil) != (swapped == nil) {
				t.Errorf("%s: %s against %s: %v, the other way round: %v", id, a, b, err, swapped)
			}
		}
	})
}

// FuzzParams checks that any parameters of a game are completed or refused, and that a player can
// be rated with completed ones.
func FuzzParams(f *testing.F) {
	for _, params := range []string{`{}`, `null`, `{"k":24}`, `{"tau":0.3}`, `{"mu":0,"sigma":1000,"beta":0.001,"tau":0}`, `{"drawProbability":0}`,
		`{"drawProbability":0.999}`, `{"volatility":0.5,"deviation":1000,"tau":2}`, `{"k":{}}`, `[]`} {
		f.Add(params)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var params map[string]any
		if json.Unmarshal([]byte(text), &params) != nil {
			return
		}
		for _, id := range algorithms {
			r, err := rating.Bind(id, params)
			if err != nil {
				continue
			}
			again := bind(t, id, decoded(t, r.Params()))
			if string(again.Params()) != string(r.Params()) {
				t.Errorf("%s: %s completed twice is %s", id, r.Params(), again.Params())
			}
			for _, place := range []int{1, 2} {
				state := r.Initial().State
				sides := []rating.Side[string]{{Place: 1, Players: []string{state}}, {Place: place, Players: []string{state}}}
				if _, err := r.Update(sides); err != nil {
					t.Errorf("%s with %s: %v", id, r.Params(), err)
				}
			}
		}
	})
}

func decoded(t *testing.T, params json.RawMessage) (m map[string]any) {
	if err := json.Unmarshal(params, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
