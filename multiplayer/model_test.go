package multiplayer_test

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/multiplayer/modeltest"
)

// TestModels runs modeltest on the models of these tests.
func TestModels(t *testing.T) {
	modeltest.Run(t, modeltest.Suite{
		Model: duel, Game: multiplayer.Game{Key: "guess", Kind: "guess"},
		Move: func(_ multiplayer.View, r *rand.Rand) any { return map[string]int{"Number": r.IntN(8)} },
	})
	for _, game := range trickConfig().Games {
		modeltest.Run(t, modeltest.Suite{
			Model: tricks, Game: game, Games: 3, Steps: 60,
			Move: func(_ multiplayer.View, r *rand.Rand) any { return trickMove{Card: r.IntN(4) - 1} },
			Hidden: func(state json.RawMessage, viewer string) (cards []string) {
				var s trickState
				if err := json.Unmarshal(state, &s); err != nil {
					t.Error(err)
				}
				for id, hand := range s.Hands {
					if id != viewer {
						cards = append(cards, hand...)
					}
				}
				return cards
			},
		})
	}
}

// TestSimulation checks that a simulation with the same seed plays as a session on a database does.
func TestSimulation(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	game := trickConfig().Games[2]
	game.Leaderboard = &multiplayer.Scoring{Board: "tricks"} // no boards are composed here
	s, err := multiplayer.Simulate(tricks, game, vectorSeed(), at, "ada")
	if err != nil || s.Phase() != multiplayer.PhaseOpen {
		t.Fatal(s.Phase(), err)
	}
	for _, err := range []error{
		s.Join("bob", at), s.Act("ada", json.RawMessage(`{"card":0}`), at), s.Join("cid", at), s.Leave("bob", at), s.Close("ada", at),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	v, err := s.View("cid")
	if err != nil || s.Phase() != multiplayer.PhaseResolved || v.Version != 6 || s.Cursor() != 150 || len(s.Effects()) != 8 {
		t.Errorf("%+v %v, %d words, %d effects", v, err, s.Cursor(), len(s.Effects()))
	}
	if _, err := multiplayer.Simulate(tricks, multiplayer.Game{Key: "a/b", Kind: "chess"}, vectorSeed(), at); len(faultKeys(err)) != 2 {
		t.Error(err)
	}
}
