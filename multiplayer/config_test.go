package multiplayer_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/multiplayer"
)

func faultKeys(err error) (keys []string) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return nil
	}
	for _, err := range joined.Unwrap() {
		var fault *capability.Fault
		if errors.As(err, &fault) {
			keys = append(keys, fault.Key)
		}
	}
	slices.Sort(keys)
	return keys
}

func TestConfigFaults(t *testing.T) {
	broken := func(change func(*multiplayer.Definition[trickRules, trickState])) multiplayer.Model {
		d := trickDefinition()
		change(&d)
		return multiplayer.Define(d)
	}
	matchOnly := trickDefinition()
	matchOnly.Kind, matchOnly.OnJoin, matchOnly.OnLeave = "matches", nil, nil
	_, err := multiplayer.New(capability.Host{}, multiplayer.Config{
		OpenTimeout: time.Second, Retention: -time.Hour,
		Models: []multiplayer.Model{
			tricks, tricks, {}, multiplayer.Define(matchOnly),
			broken(func(d *multiplayer.Definition[trickRules, trickState]) { d.Kind = "a/b" }),
			broken(func(d *multiplayer.Definition[trickRules, trickState]) { d.Redact = nil }),
			broken(func(d *multiplayer.Definition[trickRules, trickState]) { d.OnJoin = nil }),
			broken(func(d *multiplayer.Definition[trickRules, trickState]) { d.MinPlayers = 9 }),
			broken(func(d *multiplayer.Definition[trickRules, trickState]) { d.State = &jsonschema.Schema{Pattern: "("} }),
			multiplayer.Define(multiplayer.Definition[func(), trickState]{Kind: "x"}),
		},
		Games: []multiplayer.Game{
			{Key: "ok", Kind: "tricks", Rules: trickRules{}},
			{Key: "ok", Kind: "tricks", Rules: json.RawMessage(`{"stake":1,"cards":2}`)},
			{Key: "a/b", Kind: "none"},
			{Key: "c", Kind: "tricks", Rules: trickRules{}, Mode: "solo", Players: 9, TurnTimeout: -1},
			{Key: "d", Kind: "matches", Rules: trickRules{}, Mode: multiplayer.ModeTable},
			{Key: "e", Kind: "tricks", Rules: map[string]int{"stake": 1}},
			{Key: "f", Kind: "tricks", Rules: trickRules{}, FramesPerSecond: multiplayer.MaxFramesPerSecond + 1, Leaderboard: &multiplayer.Scoring{Board: "wins"}},
		},
	}, multiplayer.Peers{})
	want := []string{
		"games[1].key", "games[2].key", "games[2].kind", "games[3].mode", "games[3].players", "games[3].turnTimeoutMs",
		"games[4].mode", "games[5].rules", "games[6].framesPerSecond", "games[6].leaderboard.board",
		"models[1]", "models[2]", "models[4]", "models[5]", "models[6]", "models[7]", "models[8]", "models[9]",
		"openTimeout", "retention",
	}
	if diff := cmp.Diff(want, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
	_, err = multiplayer.New(capability.Host{}, multiplayer.Config{}, multiplayer.Peers{})
	if diff := cmp.Diff([]string{"models"}, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
}

func TestFaultOfAMissingModelSaysWhatToDo(t *testing.T) {
	for want, models := range map[string][]multiplayer.Model{
		"has no model (give its model in Config.Models)":                       nil,
		"has no model (give its model in Config.Models, or use one of tricks)": {tricks},
	} {
		_, err := multiplayer.New(capability.Host{}, multiplayer.Config{Models: models,
			Games: []multiplayer.Game{{Key: "duel", Kind: "chess"}}}, multiplayer.Peers{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected it to say %q", err, want)
		}
	}
}

// TestGameJSON checks that a game is stored and shown with the member names of the specification.
func TestGameJSON(t *testing.T) {
	game := multiplayer.Game{Key: "duel", Kind: "tricks", Mode: multiplayer.ModeMatch, Players: 2, Rules: trickRules{Stake: 5, Cards: 3},
		TurnTimeout: 30 * time.Second, Leaderboard: &multiplayer.Scoring{Board: "wins", Points: multiplayer.Points{Win: 3, Draw: 1}}}
	raw, err := json.Marshal(game)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"key":"duel","kind":"tricks","mode":"match","players":2,"rules":{"stake":5,"cards":3},"turnTimeoutMs":30000,` +
		`"leaderboard":{"board":"wins","points":{"win":3,"draw":1,"loss":0}}}`
	if diff := cmp.Diff(want, string(raw)); diff != "" {
		t.Error(diff)
	}
	var back multiplayer.Game
	if err := json.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil || string(again) != want {
		t.Errorf("%s %v", again, err)
	}
}

// TestStatesOfEveryShape checks that nil maps and slices, bytes and raw JSON are stored and read by
// the inferred schema.
func TestStatesOfEveryShape(t *testing.T) {
	type inner struct {
		Tags map[string][]int `json:"tags"`
	}
	type state struct {
		Map   map[string]inner `json:"map"`
		Slice []inner          `json:"slice"`
		Bytes []byte           `json:"bytes"`
		Raw   json.RawMessage  `json:"raw"`
		At    time.Time        `json:"at"`
		Maybe *inner           `json:"maybe"`
	}
	type c = multiplayer.Context[struct{}]
	model := multiplayer.Define(multiplayer.Definition[struct{}, state]{
		Kind: "shapes", MinPlayers: 1,
		Init: func(c) (state, []multiplayer.Effect, error) { return state{}, nil, nil },
		Apply: func(x c, s state, m multiplayer.Move) (state, []multiplayer.Effect, error) {
			in := inner{Tags: map[string][]int{"a": nil, "b": {1}}}
			return state{map[string]inner{"x": in, "y": {}}, []inner{in, {}}, []byte("x"), m.Data, x.Now, &in}, nil, nil
		},
		IsComplete: func(c, state) bool { return false },
		Resolve:    func(c, state) multiplayer.Outcome { return multiplayer.Outcome{} },
		Redact:     func(_ c, s state, _ string, _ bool) any { return s },
	})
	s, err := multiplayer.Simulate(model, multiplayer.Game{Key: "g", Kind: "shapes", Players: 1}, vectorSeed(), time.Unix(1e9, 0), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Act("ada", json.RawMessage(`{"any":[1]}`), time.Unix(1e9, 0)); err != nil {
		t.Fatal(err)
	}
	again, err := s.Reencode()
	if err != nil || string(again) != string(s.State()) || !strings.Contains(string(again), `{"any":[1]}`) {
		t.Errorf("%s\n%s\n%v", again, s.State(), err)
	}
}
