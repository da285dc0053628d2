package main

import (
	"github.com/kitbackend/kit/multiplayer"
)

// pile is the state of a game of Nim: players take one to three stones in turn, and the player who
// takes the last one wins.
type pile struct {
	Stones int    `json:"stones"`
	Turn   int    `json:"turn"`
	Winner string `json:"winner"`
}

type rules struct {
	Stones int `json:"stones"`
}

type take struct {
	Take int `json:"take"`
}

type table = multiplayer.Context[rules]

// nim returns the model: pure functions that the kit calls with what they may know.
func nim() multiplayer.Model {
	return multiplayer.Define(multiplayer.Definition[rules, pile]{
		Kind:       "nim",
		MaxPlayers: 2,
		Init: func(t table) (pile, []multiplayer.Effect, error) {
			return pile{Stones: max(t.Config.Stones, 1), Turn: int(t.Random.Int(0, 1))}, nil, nil
		},
		Apply: func(t table, p pile, m multiplayer.Move) (pile, []multiplayer.Effect, error) {
			var move take
			if err := m.Decode(&move); err != nil {
				return p, nil, err
			}
			if t.Players[p.Turn] != m.UserID {
				return p, nil, multiplayer.ErrInvalidTransition
			}
			if move.Take < 1 || move.Take > min(3, p.Stones) {
				return p, nil, multiplayer.Illegal("Take 1 to 3 stones of those that are left.")
			}
			p.Stones, p.Turn = p.Stones-move.Take, 1-p.Turn
			if p.Stones == 0 {
				p.Winner = m.UserID
			}
			return p, nil, nil
		},
		IsComplete: func(_ table, p pile) bool { return p.Winner != "" },
		Resolve: func(t table, p pile) multiplayer.Outcome {
			ranks := make(map[string]int)
			for _, player := range t.Players {
				if ranks[player] = 2; player == p.Winner {
					ranks[player] = 1
				}
			}
			return multiplayer.Outcome{Ranks: ranks}
		},
		Redact: func(_ table, p pile, _ string, _ bool) any { return p },
	})
}
