package multiplayer_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/multiplayer"
)

// A guessing duel: a die is thrown, both players guess without seeing the other's guess, and the
// closer one wins.
type duelState struct {
	Die     int64          `json:"die"`
	Guesses map[string]int `json:"guesses"`
}

type duelContext = multiplayer.Context[struct{}]

var duel = multiplayer.Define(multiplayer.Definition[struct{}, duelState]{
	Kind: "guess", MaxPlayers: 2,
	Init: func(c duelContext) (duelState, []multiplayer.Effect, error) {
		return duelState{Die: c.Random.Int(1, 6), Guesses: map[string]int{}}, nil, nil
	},
	Apply: func(_ duelContext, s duelState, m multiplayer.Move) (duelState, []multiplayer.Effect, error) {
		var guess struct{ Number int }
		if err := m.Decode(&guess); err != nil {
			return s, nil, err
		}
		if _, done := s.Guesses[m.UserID]; done || guess.Number < 1 || guess.Number > 6 {
			return s, nil, multiplayer.Illegal("Guess once, a number from 1 to 6.")
		}
		s.Guesses[m.UserID] = guess.Number
		return s, nil, nil
	},
	IsComplete: func(c duelContext, s duelState) bool { return len(s.Guesses) == len(c.Players) },
	Resolve: func(c duelContext, s duelState) multiplayer.Outcome {
		off := func(id string) int { return max(s.Guesses[id]-int(s.Die), int(s.Die)-s.Guesses[id]) }
		a, b := c.Players[0], c.Players[1]
		o := multiplayer.Outcome{Ranks: map[string]int{a: 1, b: 1}, Detail: s.Die}
		switch {
		case off(a) < off(b):
			o.Ranks[b] = 2
		case off(b) < off(a):
			o.Ranks[a] = 2
		}
		return o
	},
	Redact: func(_ duelContext, s duelState, viewer string, revealed bool) any {
		if !revealed {
			s.Die = 0
			s.Guesses = map[string]int{viewer: s.Guesses[viewer]}
		}
		return s
	},
})

// Two players guess; afterwards the throw is repeated from the revealed seed.
func Example() {
	ctx := context.Background()
	m, done := exampleMultiplayer()
	defer done()

	v, _ := m.Create(ctx, "guess", "ada")
	_, _ = m.Join(ctx, v.ID, "bob")
	_, _ = m.Act(ctx, v.ID, "ada", multiplayer.Action{ID: "1", Data: json.RawMessage(`{"Number": 3}`)})
	v, _ = m.View(ctx, v.ID, "bob")
	fmt.Println(v.Phase, string(v.State), v.Fairness.Seed == nil)

	_, _ = m.Act(ctx, v.ID, "bob", multiplayer.Action{ID: "1", Data: json.RawMessage(`{"Number": 4}`)})
	result, err := m.Result(ctx, v.ID, "bob")
	seed, _ := hex.DecodeString(*result.Fairness.Seed)
	thrown := multiplayer.NewRandom(seed, 0).Int(1, 6)
	fmt.Println(result.Phase, err, multiplayer.SeedHash(seed) == v.Fairness.SeedHash, fmt.Sprint(thrown) == string(result.Detail))
	// Output:
	// active {"die":0,"guesses":{"bob":0}} true
	// resolved <nil> true true
}

// exampleMultiplayer does what kit.New does with kit.WithMultiplayer.
func exampleMultiplayer() (m *multiplayer.Multiplayer, done func()) {
	db, err := database.OpenMemory()
	if err != nil {
		panic(err)
	}
	queue := jobs.New(db, nil, jobs.Options{})
	m, err = multiplayer.New(capability.Host{DB: db, Jobs: queue}, multiplayer.Config{
		Models: []multiplayer.Model{duel},
		Games:  []multiplayer.Game{{Key: "guess", Kind: "guess", TurnTimeout: time.Minute}},
	}, multiplayer.Peers{})
	if err != nil {
		panic(err)
	}
	own := m.Capability()
	if err := queue.Register(own.Jobs...); err != nil {
		panic(err)
	}
	if err := db.Migrate(context.Background(), jobs.Migrations(), database.Migrations{Name: own.Name, FS: own.Migrations}); err != nil {
		panic(err)
	}
	return m, func() { _ = db.Close() }
}
