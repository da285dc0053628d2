package rating_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/rating"
)

// sum is an application's own algorithm: points for places, and a bonus.
func sum() rating.Definition[sumParams, sumState] {
	return rating.Definition[sumParams, sumState]{
		ID: "sum",
		Params: `{"type": "object", "additionalProperties": false, "properties": {
			"bonus": {"type": "integer", "minimum": 0, "maximum": 5, "default": 2}}}`,
		State: `{"type": "object", "additionalProperties": false, "required": ["points"], "properties": {
			"points": {"type": "integer", "minimum": 0, "maximum": 100}, "best": {"type": "string"}}}`,
		MinPlayers: 3, MaxPlayers: 5,
		Initial: func(p sumParams) sumState { return sumState{Points: p.Bonus} },
		Update: func(p sumParams, sides []rating.Side[sumState]) [][]sumState {
			after := make([][]sumState, len(sides))
			for i, side := range sides {
				s := side.Players[0]
				s.Points += len(sides) - side.Place + p.Bonus
				after[i] = []sumState{s}
			}
			return after
		},
		Skill: func(_ sumParams, s sumState) float64 { return float64(s.Points) },
	}
}

type sumParams struct {
	Bonus int `json:"bonus"`
}

type sumState struct {
	Points int    `json:"points"`
	Best   string `json:"best,omitempty"`
}

func TestOwnAlgorithm(t *testing.T) {
	r := open(t, databasetest.Memory(t), rating.Config{
		Algorithms: []rating.Algorithm{rating.Define(sum())},
		Games:      []rating.Game{{Key: "quiz", Algorithm: "sum", Players: 3, XP: xp, AlgoParams: map[string]any{"bonus": 1}}},
	}, rating.Peers{})
	outcome := rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2, "cleo": 2}}
	var skills []float64
	for _, p := range record(t, r, "quiz", outcome).Players {
		skills = append(skills, *p.Before.Skill, *p.After.Skill)
	}
	if diff := cmp.Diff([]float64{1, 4, 1, 3, 1, 3}, skills); diff != "" {
		t.Error(diff)
	}
	two := []rating.Team{{Place: 1, UserIDs: []string{"ada", "bob"}}, {Place: 2, UserIDs: []string{"cleo"}}}
	if _, err := r.Record(t.Context(), "quiz", rating.Outcome{Teams: two}); !errors.Is(err, rating.ErrUnsupportedPlayerCount) {
		t.Errorf("teams: %v", err)
	}
	// A state that does not match the schema is never stored.
	var err error
	for range 100 {
		if _, err = r.Record(t.Context(), "quiz", outcome); err != nil {
			break
		}
	}
	ada, _ := r.Rating(t.Context(), "quiz", "ada")
	if err == nil || *ada.Skill != 100 {
		t.Errorf("ada has %v points: %v", *ada.Skill, err)
	}
}

// TestWrongAlgorithms checks that an algorithm that violates its definition causes an error and
// changes nothing.
func TestWrongAlgorithms(t *testing.T) {
	for name, update := range map[string]func(sumParams, []rating.Side[sumState]) [][]sumState{
		"forgets a side": func(_ sumParams, s []rating.Side[sumState]) [][]sumState {
			return [][]sumState{s[0].Players, s[1].Players}
		},
		"forgets a player": func(sumParams, []rating.Side[sumState]) [][]sumState { return make([][]sumState, 3) },
	} {
		db := databasetest.Memory(t)
		d := sum()
		d.Update = update
		r := open(t, db, rating.Config{
			Algorithms: []rating.Algorithm{rating.Define(d)},
			Games:      []rating.Game{{Key: "quiz", Algorithm: "sum", Players: 3, XP: xp}},
		}, rating.Peers{})
		if _, err := r.Record(t.Context(), "quiz", rating.Outcome{Ranks: map[string]int{"a": 1, "b": 2, "c": 3}}); err == nil {
			t.Errorf("an algorithm that %s was believed", name)
		}
		if n := count1(t, db, `SELECT COUNT(*) FROM rating_player`); n != 0 {
			t.Errorf("an algorithm that %s left %d rows", name, n)
		}
	}
}

// TestRatingsAreFinite checks that a state whose conventional rating cannot be shown is not stored,
// and that a caller's transaction continues without the outcome.
func TestRatingsAreFinite(t *testing.T) {
	for name, known := range map[string]func() (rating, deviation float64){
		"no number":             func() (float64, float64) { return math.NaN(), 0 },
		"an infinite deviation": func() (float64, float64) { return 1, math.Inf(1) },
		"a panic":               func() (float64, float64) { panic("no rating") },
	} {
		db := databasetest.Memory(t)
		d := sum()
		d.Rating = func(p sumParams, s sumState) (float64, float64) {
			if s.Points == p.Bonus {
				return 0, 0
			}
			return known()
		}
		r := open(t, db, rating.Config{
			Algorithms: []rating.Algorithm{rating.Define(d)},
			Games:      []rating.Game{{Key: "quiz", Algorithm: "sum", Players: 3, XP: xp}},
		}, rating.Peers{})
		if err := db.InTx(t.Context(), func(ctx context.Context) error {
			_, err := r.Record(ctx, "quiz", rating.Outcome{Ranks: map[string]int{"a": 1, "b": 2, "c": 3}, Key: "k"})
			if !errors.Is(err, rating.ErrBroken) {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if n := count1(t, db, `SELECT COALESCE(SUM(games_played), 0) FROM rating_player`); n != 0 {
			t.Errorf("%s: %d games were counted", name, n)
		}
	}
}

// TestFaults checks that each fault is reported at assembly, at its key, with its code.
func TestFaults(t *testing.T) {
	game := func(change func(*rating.Game)) rating.Config {
		g := rating.Game{Key: "chess", Algorithm: "elo", XP: xp}
		change(&g)
		return rating.Config{Games: []rating.Game{g}}
	}
	two := func(change func(*rating.Game)) rating.Config {
		cfg := game(func(g *rating.Game) { g.Key, g.Pool = "blitz", "chess" })
		cfg.Games = append(cfg.Games, game(change).Games...)
		return cfg
	}
	own := func(change func(*rating.Definition[sumParams, sumState])) rating.Config {
		d := sum()
		change(&d)
		return rating.Config{Algorithms: []rating.Algorithm{rating.Define(d)}, Games: game(func(*rating.Game) {}).Games}
	}
	params := func(name string, value any) func(*rating.Game) {
		return func(g *rating.Game) { g.AlgoParams = map[string]any{name: value} }
	}
	for name, c := range map[string]struct {
		cfg     rating.Config
		key     string
		refusal error
	}{
		"no games":           {rating.Config{}, "games", nil},
		"no key":             {game(func(g *rating.Game) { g.Key = "" }), "games[0].key", nil},
		"not a segment":      {game(func(g *rating.Game) { g.Key = "a/b" }), "games[0].key", nil},
		"dots":               {game(func(g *rating.Game) { g.Key = ".." }), "games[0].key", nil},
		"a long key":         {game(func(g *rating.Game) { g.Key = strings.Repeat("k", 65) }), "games[0].key", nil},
		"twice":              {two(func(g *rating.Game) { g.Key = "blitz" }), "games[1].key", nil},
		"a bad pool":         {game(func(g *rating.Game) { g.Pool = "a b" }), "games[0].pool", nil},
		"no XP":              {game(func(g *rating.Game) { g.XP = nil }), "games[0].xp", nil},
		"negative XP":        {game(func(g *rating.Game) { g.XP = &rating.XP{Loss: -1} }), "games[0].xp", nil},
		"too many XP":        {game(func(g *rating.Game) { g.XP = &rating.XP{Win: rating.MaxXPPerGame + 1} }), "games[0].xp", nil},
		"levels upside down": {game(func(g *rating.Game) { g.Levels = []rating.Level{{"a", 5}, {"b", 5}} }), "games[0].levels[1].minXp", nil},
		"a level twice":      {game(func(g *rating.Game) { g.Levels = []rating.Level{{"a", 5}, {"a", 6}} }), "games[0].levels[1].key", nil},
		"a nameless level":   {game(func(g *rating.Game) { g.Levels = []rating.Level{{"", 5}} }), "games[0].levels[0].key", nil},

		"no algorithm":          {game(func(g *rating.Game) { g.Algorithm = "" }), "games[0].algorithm", rating.ErrUnknownAlgorithm},
		"unknown algorithm":     {game(func(g *rating.Game) { g.Algorithm = "whr" }), "games[0].algorithm", rating.ErrUnknownAlgorithm},
		"three in elo":          {game(func(g *rating.Game) { g.Players = 3 }), "games[0].players", rating.ErrUnsupportedPlayerCount},
		"one in trueskill":      {game(func(g *rating.Game) { g.Algorithm, g.Players = "trueskill", 1 }), "games[0].players", rating.ErrUnsupportedPlayerCount},
		"too many in trueskill": {game(func(g *rating.Game) { g.Algorithm, g.Players = "trueskill", rating.MaxPlayers+1 }), "games[0].players", rating.ErrUnsupportedPlayerCount},
		"negative players":      {game(func(g *rating.Game) { g.Players = -2 }), "games[0].players", rating.ErrUnsupportedPlayerCount},

		"a text for K":      {game(params("k", "high")), "games[0].algoParams", rating.ErrInvalidParams},
		"K of 0":            {game(params("k", 0)), "games[0].algoParams", rating.ErrInvalidParams},
		"upper case K":      {game(params("K", 24)), "games[0].algoParams", rating.ErrInvalidParams},
		"null for K":        {game(params("k", nil)), "games[0].algoParams", rating.ErrInvalidParams},
		"tau of elo":        {game(params("tau", 0.5)), "games[0].algoParams", rating.ErrInvalidParams},
		"not JSON":          {game(params("k", func() {})), "games[0].algoParams", rating.ErrInvalidParams},
		"tau of 3":          {game(func(g *rating.Game) { g.Algorithm = "glicko"; params("tau", 3)(g) }), "games[0].algoParams", rating.ErrInvalidParams},
		"always drawn":      {game(func(g *rating.Game) { g.Algorithm = "trueskill"; params("drawProbability", 1)(g) }), "games[0].algoParams", rating.ErrInvalidParams},
		"draws in the urn":  {game(func(g *rating.Game) { g.Algorithm = "openskill"; params("drawProbability", 0.1)(g) }), "games[0].algoParams", rating.ErrInvalidParams},
		"sigma of 0":        {game(func(g *rating.Game) { g.Algorithm = "openskill"; params("sigma", 0)(g) }), "games[0].algoParams", rating.ErrInvalidParams},
		"another algorithm": {two(func(g *rating.Game) { g.Algorithm = "glicko" }), "games[1].pool", nil},
		"other params":      {two(params("k", 24)), "games[1].pool", nil},

		"not defined":  {rating.Config{Algorithms: make([]rating.Algorithm, 1), Games: game(func(*rating.Game) {}).Games}, "algorithms[0]", nil},
		"an id taken":  {own(func(d *rating.Definition[sumParams, sumState]) { d.ID = "elo" }), "algorithms[0]", nil},
		"a bad id":     {own(func(d *rating.Definition[sumParams, sumState]) { d.ID = "My Own" }), "algorithms[0]", nil},
		"no update":    {own(func(d *rating.Definition[sumParams, sumState]) { d.Update = nil }), "algorithms[0]", nil},
		"no state":     {own(func(d *rating.Definition[sumParams, sumState]) { d.State = "" }), "algorithms[0]", nil},
		"a bad schema": {own(func(d *rating.Definition[sumParams, sumState]) { d.State = `{"type": 7}` }), "algorithms[0]", nil},
		"a bad default": {own(func(d *rating.Definition[sumParams, sumState]) {
			d.Params = `{"properties": {"bonus": {"type": "integer", "default": "x"}}}`
		}), "algorithms[0]", nil},
		"too many":        {own(func(d *rating.Definition[sumParams, sumState]) { d.MaxPlayers = rating.MaxPlayers + 1 }), "algorithms[0]", nil},
		"fewer than many": {own(func(d *rating.Definition[sumParams, sumState]) { d.MaxPlayers = 2 }), "algorithms[0]", nil},
	} {
		_, err := rating.New(capability.Host{}, c.cfg, rating.Peers{})
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Key != c.key || fault.Capability != "rating" {
			t.Errorf("%s: %v", name, err)
		}
		for _, code := range []error{rating.ErrUnknownAlgorithm, rating.ErrUnsupportedPlayerCount, rating.ErrInvalidParams} {
			if errors.Is(err, code) != errors.Is(c.refusal, code) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestFaultsTogether checks that all faults are reported at once.
func TestFaultsTogether(t *testing.T) {
	_, err := rating.New(capability.Host{}, rating.Config{Games: []rating.Game{
		{Key: "a", Algorithm: "whr"}, {Key: "b", Algorithm: "elo", Players: 9, AlgoParams: map[string]any{"k": -1}},
	}}, rating.Peers{})
	for _, want := range []error{rating.ErrUnknownAlgorithm, rating.ErrUnsupportedPlayerCount, rating.ErrInvalidParams} {
		if !errors.Is(err, want) {
			t.Errorf("%v is missing from: %v", want, err)
		}
	}
}

// TestManifest checks that parameters are shown as completed by the algorithms.
func TestManifest(t *testing.T) {
	r := build(t, databasetest.Memory(t), rating.Config{Games: []rating.Game{{Key: "chess", Algorithm: "elo", XP: xp, AlgoParams: map[string]any{"k": 24}}}}, rating.Peers{})
	shown := make(map[string]string)
	for _, key := range r.Capability().Config {
		value, err := json.Marshal(key.Value)
		if err != nil {
			t.Fatal(err)
		}
		shown[key.Key] = string(value)
	}
	want := map[string]string{
		"games": `[{"key":"chess","algorithm":"elo","players":2,"pool":"chess","xp":{"win":30,"draw":20,"loss":10},` +
			`"hideSkill":false,"sharedRoomCounts":false,"algoParams":{"initial":1500,"k":24}}]`,
		"serverAuthoritative": `true`, "recordScope": `"rating:record"`, "algorithms": `[]`, "database": `"DB"`, "basePath": `"/rating"`,
	}
	if diff := cmp.Diff(want, shown); diff != "" {
		t.Error(diff)
	}
}
