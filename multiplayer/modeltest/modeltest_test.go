package modeltest_test

import (
	crand "crypto/rand"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/multiplayer/modeltest"
)

// rules configure a game in which players add up the numbers they are dealt.
type rules struct {
	Goal int `json:"goal"`
}

type state struct {
	Totals map[string]int `json:"totals"`
	Dealt  map[string]int `json:"dealt"`
	Turn   int            `json:"turn"`
	Note   string         `json:"note"`
	Staked []string       `json:"staked"`
}

type definition = multiplayer.Definition[rules, state]
type contextOf = multiplayer.Context[rules]

// pure returns a model without a fault.
func pure() definition {
	return definition{
		Kind: "sums", MinPlayers: 2, MaxPlayers: 6,
		Init: func(c contextOf) (state, []multiplayer.Effect, error) {
			s := state{Totals: map[string]int{}, Dealt: map[string]int{}, Staked: c.Players}
			var stakes []multiplayer.Effect
			for _, id := range c.Players {
				s.Dealt[id] = int(c.Random.Int(100_000, 999_999))
				stakes = append(stakes, multiplayer.Hold(id, "coins", 5, c.Ref("stake/"+id)))
			}
			return s, stakes, nil
		},
		Apply: func(c contextOf, s state, m multiplayer.Move) (state, []multiplayer.Effect, error) {
			var body struct {
				Add int `json:"add"`
			}
			if err := m.Decode(&body); err != nil {
				return s, nil, err
			}
			if body.Add < 1 || body.Add > 3 {
				return s, nil, multiplayer.Illegal("Add 1 to 3.")
			}
			s.Totals[m.UserID] += body.Add
			s.Dealt[m.UserID] = int(c.Random.Int(100_000, 999_999))
			s.Turn++
			return s, nil, nil
		},
		IsComplete: func(c contextOf, s state) bool {
			for _, total := range s.Totals {
				if total >= c.Config.Goal {
					return true
				}
			}
			return false
		},
		Resolve: func(c contextOf, s state) multiplayer.Outcome {
			o := multiplayer.Outcome{Ranks: map[string]int{}}
			for _, id := range c.Players {
				o.Ranks[id] = 2
				if s.Totals[id] >= c.Config.Goal {
					o.Ranks[id] = 1
				}
			}
			for _, id := range s.Staked {
				o.Effects = append(o.Effects, multiplayer.Capture(c.Ref("stake/"+id)))
			}
			return o
		},
		Redact: func(_ contextOf, s state, viewer string, revealed bool) any {
			if !revealed {
				s.Dealt = map[string]int{viewer: s.Dealt[viewer]}
			}
			return s
		},
		OnJoin: func(c contextOf, s state, id string) (state, []multiplayer.Effect, error) {
			s.Totals[id] = 0
			return s, nil, nil
		},
		OnLeave: func(c contextOf, s state, id string) (state, []multiplayer.Effect, error) {
			delete(s.Totals, id)
			return s, nil, nil
		},
	}
}

func suite(d definition) modeltest.Suite {
	return modeltest.Suite{
		Model: multiplayer.Define(d), Game: multiplayer.Game{Key: "sums", Kind: "sums", Players: 4, Rules: rules{Goal: 25}},
		Move: func(_ multiplayer.View, r *rand.Rand) any { return map[string]int{"add": r.IntN(5)} },
		Hidden: func(data json.RawMessage, viewer string) (texts []string) {
			var s state
			if json.Unmarshal(data, &s) != nil {
				return nil
			}
			for id, dealt := range s.Dealt {
				if raw, err := json.Marshal(dealt); err == nil && id != viewer {
					texts = append(texts, string(raw))
				}
			}
			return texts
		},
		Games: 3, Steps: 80,
	}
}

func TestPureModelPasses(t *testing.T) {
	modeltest.Run(t, suite(pure()))
	table := suite(pure())
	table.Game.Mode = multiplayer.ModeTable
	modeltest.Run(t, table)
}

// TestFaultsAreCaught breaks one rule at a time.
func TestFaultsAreCaught(t *testing.T) {
	apply := pure().Apply
	// after applies the pure Apply and then changes its state.
	after := func(f func(s *state, c contextOf)) definition {
		d := pure()
		d.Apply = func(c contextOf, s state, m multiplayer.Move) (state, []multiplayer.Effect, error) {
			s, effects, err := apply(c, s, m)
			if err == nil {
				f(&s, c)
			}
			return s, effects, err
		}
		return d
	}
	calls := 0
	broken := map[string]struct {
		definition
		says string
	}{
		"goes by the order of a map": {after(func(s *state, _ contextOf) {
			for id := range s.Dealt {
				s.Note = id
			}
		}), "on equal input"},
		"reads the clock": {after(func(s *state, _ contextOf) { s.Note = time.Now().Format(time.RFC3339Nano) }), "on equal input"},
		"reads the date":  {after(func(s *state, _ contextOf) { s.Turn += time.Now().Year() }), "by another clock"},
		"draws by itself": {after(func(s *state, _ contextOf) { s.Turn += rand.IntN(1000) }), "on equal input"},
		"draws securely":  {after(func(s *state, _ contextOf) { s.Note = crand.Text() }), "on equal input"},
		"keeps a count":   {after(func(s *state, _ contextOf) { calls++; s.Turn = calls }), "on equal input"},
		"panics":          {after(func(s *state, c contextOf) { s.Note = c.Players[s.Turn+3] }), "panicked"},
		"has no random to resolve": {func() definition {
			d := pure()
			d.Resolve = func(c contextOf, _ state) multiplayer.Outcome {
				return multiplayer.Outcome{Detail: c.Random.Next()}
			}
			return d
		}(), "panicked"},
		"shows what is hidden": {func() definition {
			d := pure()
			d.Redact = func(_ contextOf, s state, _ string, _ bool) any { return s }
			return d
		}(), "hidden from them"},
		"redacts by the order of a map": {func() definition {
			d := pure()
			d.Redact = func(_ contextOf, s state, _ string, _ bool) any {
				var ids []string
				for id := range s.Totals {
					ids = append(ids, id)
				}
				return ids
			}
			return d
		}(), "on equal input"},
		"uses a ref twice": {func() definition {
			d := pure()
			d.Resolve = func(c contextOf, _ state) multiplayer.Outcome {
				return multiplayer.Outcome{Effects: []multiplayer.Effect{
					multiplayer.Credit("player-1", "coins", 1, c.Ref("win")), multiplayer.Credit("player-2", "coins", 1, c.Ref("win"))}}
			}
			return d
		}(), "two effects"},
		"uses a ref of another session": {func() definition {
			d := pure()
			d.Resolve = func(contextOf, state) multiplayer.Outcome {
				return multiplayer.Outcome{Effects: []multiplayer.Effect{multiplayer.Capture("other/stake")}}
			}
			return d
		}(), "begin with the session's id"},
		"stakes again what is over": {func() definition {
			d := pure()
			d.Resolve = func(c contextOf, _ state) multiplayer.Outcome {
				ref := c.Ref("stake/player-1")
				return multiplayer.Outcome{Effects: []multiplayer.Effect{multiplayer.Release(ref), multiplayer.Hold("player-1", "coins", 5, ref)}}
			}
			return d
		}(), "after its end"},
		"leaves its bounds": {after(func(s *state, _ contextOf) { s.Note = strings.Repeat("x", multiplayer.MaxState) }), "more than"},
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			var caught error
			for seed := uint64(0); caught == nil && seed < 5; seed++ {
				caught = suite(b.definition).Play(t, seed)
			}
			if caught == nil || !strings.Contains(caught.Error(), b.says) {
				t.Errorf("not caught: %v", caught)
			}
		})
	}
}
