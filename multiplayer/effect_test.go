package multiplayer_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
)

type scriptState struct {
	Done  bool               `json:"done"`
	Size  int                `json:"size"`
	Ranks map[string]int     `json:"ranks"`
	Teams []multiplayer.Team `json:"teams"`
}

type scriptMove struct {
	Effects []multiplayer.Effect `json:"effects"`
	// Foreign keeps refs as they are; otherwise they get the session's prefix.
	Foreign bool   `json:"foreign,omitempty"`
	End     bool   `json:"end,omitempty"`
	Grow    string `json:"grow,omitempty"`
	// Ranks and Teams are the outcome.
	Ranks map[string]int     `json:"ranks,omitempty"`
	Teams []multiplayer.Team `json:"teams,omitempty"`
}

type scriptContext = multiplayer.Context[struct{}]

// script is a model that declares the effects in its moves.
var script = multiplayer.Define(multiplayer.Definition[struct{}, scriptState]{
	Kind: "script", MinPlayers: 1,
	Init: func(scriptContext) (scriptState, []multiplayer.Effect, error) { return scriptState{}, nil, nil },
	Apply: func(c scriptContext, s scriptState, m multiplayer.Move) (scriptState, []multiplayer.Effect, error) {
		var move scriptMove
		if err := m.Decode(&move); err != nil {
			return s, nil, err
		}
		for i := range move.Effects {
			if !move.Foreign {
				move.Effects[i].Ref = c.Ref(move.Effects[i].Ref)
			}
		}
		return scriptState{move.End, len(move.Grow), move.Ranks, move.Teams}, move.Effects, nil
	},
	IsComplete: func(_ scriptContext, s scriptState) bool { return s.Done },
	Resolve: func(_ scriptContext, s scriptState) multiplayer.Outcome {
		return multiplayer.Outcome{Ranks: s.Ranks, Teams: s.Teams}
	},
	Redact: func(_ scriptContext, s scriptState, _ string, _ bool) any { return strings.Repeat("x", s.Size*20) },
})

// TestEffects settles every kind of effect in a session, once by its ref.
func TestEffects(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
			Games: []multiplayer.Game{{Key: "script", Kind: "script", Players: 1}}})
		r.give(100, "ada", "bob")
		id := r.create("script", "ada").ID
		declare := func(effects ...multiplayer.Effect) error {
			return errorOf(r.play(id, "ada", scriptMove{Effects: effects}))
		}
		r.ok(declare(multiplayer.Hold("ada", "coins", 30, "stake"), multiplayer.Hold("bob", "coins", 5, "other"), multiplayer.Hold("ada", "coins", 2, "left")))
		r.balance("ada", 100, 32)
		r.ok(declare(multiplayer.Hold("ada", "coins", 30, "stake"))) // already settled by this session
		r.balance("ada", 100, 32)
		part := multiplayer.Capture("stake")
		part.Amount, part.Memo = 20, "lost"
		r.ok(declare(part, multiplayer.Release("other")))
		r.balance("ada", 80, 2)
		r.balance("bob", 100, 0)
		r.ok(declare(part))
		r.ok(declare(multiplayer.Debit("ada", "coins", 10, "fee"), multiplayer.Credit("bob", "coins", 7, "prize"),
			multiplayer.Transfer("bob", "ada", "coins", 1, "tip")))
		r.balance("ada", 71, 2)
		r.balance("bob", 106, 0)

		before := r.view(id, "ada").Version
		for name, effect := range map[string]multiplayer.Effect{
			"another amount":      multiplayer.Credit("bob", "coins", 8, "prize"),
			"another end":         multiplayer.Release("stake"),
			"a hold that is over": multiplayer.Hold("ada", "coins", 30, "stake"),
			"no such hold":        multiplayer.Capture("none"),
			"no such currency":    multiplayer.Credit("ada", "gold", 1, "gold"),
			"no amount":           multiplayer.Credit("ada", "coins", 0, "nothing"),
			"no such kind":        {Kind: "gift", Ref: "gift"},
		} {
			if err := declare(multiplayer.Debit("ada", "coins", 1, "before "+name), effect); !capability.AsError(err).Is(capability.ErrInternal) {
				t.Errorf("%s: %v", name, err)
			}
		}
		err := errorOf(r.play(id, "ada", scriptMove{Foreign: true, Effects: []multiplayer.Effect{multiplayer.Credit("ada", "coins", 1, "gift-ada")}}))
		r.refuses(capability.ErrInternal, capability.AsError(err))
		for _, poor := range []error{
			declare(multiplayer.Debit("ada", "coins", 70, "much")), declare(multiplayer.Hold("ada", "coins", 1000, "more")),
			declare(multiplayer.Transfer("eve", "ada", "coins", 1, "none")),
		} {
			r.refuses(ledger.ErrInsufficientFunds, poor)
		}
		if v := r.view(id, "ada"); v.Version != before {
			t.Errorf("a refused action was kept: version %d, then %d", before, v.Version)
		}
		r.balance("ada", 71, 2)
		r.ok(errorOf(r.play(id, "ada", scriptMove{End: true})))
		r.balance("ada", 71, 0) // the open rest was released
		r.replays(id)
	})
}

// TestLimits checks that a view that is too large is a fault of the model, and that the length of a
// log is bounded.
func TestLimits(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		cfg := multiplayer.Config{Models: []multiplayer.Model{script, tricks},
			Games: append(trickConfig().Games[:1:1], multiplayer.Game{Key: "script", Kind: "script", Players: 1})}
		r := node(t, db, kittest.NewClock(), cfg)
		id := r.create("script", "ada").ID
		r.ok(errorOf(r.play(id, "ada", scriptMove{Grow: strings.Repeat("x", 15_000)})))
		if err := errorOf(r.View(t.Context(), id, "ada")); !capability.AsError(err).Is(capability.ErrInternal) {
			t.Error(err)
		}
		r.ok(errorOf(r.play(id, "ada", scriptMove{})))
		r.view(id, "ada")
		_, err := r.db.Exec(t.Context(), `UPDATE multiplayer_session SET version = 100000 WHERE id = $1`, id)
		r.ok(err)
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Act(t.Context(), id, "ada", multiplayer.Action{Data: json.RawMessage(`{"effects":[]}`)})))
	})
}

// TestTableLimit checks that joining and leaving cannot grow the log of a table without bound.
func TestTableLimit(t *testing.T) {
	r := node(t, databasetest.Memory(t), kittest.NewClock(), trickConfig())
	r.give(100, "ada", "bob", "cid")
	id := r.create("table", "ada").ID
	r.join(id, "bob")
	_, err := r.db.Exec(t.Context(), `UPDATE multiplayer_session SET version = 100000 WHERE id = $1`, id)
	r.ok(err)
	r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Join(t.Context(), id, "cid")))
	r.ok(r.Leave(t.Context(), id, "bob"))
}

// TestPoolOfAnotherAlgorithm checks that a fault of rating's configuration does not keep a game,
// and its stakes, from ending, and that the outcome can be recorded once it is fixed.
func TestPoolOfAnotherAlgorithm(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
			Games: []multiplayer.Game{{Key: "staked", Kind: "script", Players: 1}}})
		_, err := r.db.Exec(t.Context(), `INSERT INTO rating_player (pool, user_id, algorithm, state, skill, xp, games_played, updated_at)
			VALUES ('staked', 'eve', 'glicko', '{}', 1, 0, 1, 0)`)
		r.ok(err)
		id := r.create("staked", "a").ID
		outcome := map[string]int{"a": 1, "b": 2}
		r.ok(errorOf(r.play(id, "a", scriptMove{End: true, Ranks: outcome})))
		result, err := r.Result(t.Context(), id, "a")
		r.ok(err)
		if result.Phase != multiplayer.PhaseResolved || result.Rating != nil || !strings.Contains(r.log.text(), "not rated") {
			t.Errorf("%+v", result)
		}
		r.replays(id)
		_, err = r.db.Exec(t.Context(), `DELETE FROM rating_player`)
		r.ok(err)
		rated, err := r.rating.Record(t.Context(), "staked", rating.Outcome{Ranks: outcome, Key: "session/" + id})
		if err != nil || rated.Replayed || len(rated.Players) != 2 {
			t.Errorf("%+v %v", rated, err)
		}
	})
}

// TestOutcomes checks who gets which points, and that an outcome which rating or the board refuses
// still ends the game.
func TestOutcomes(t *testing.T) {
	type ranks = map[string]int
	team := func(place int, users ...string) multiplayer.Team {
		return multiplayer.Team{Place: place, UserIDs: users}
	}
	for name, c := range map[string]struct {
		move   scriptMove
		points multiplayer.Points
		want   map[string]int64
		rated  int
		logs   string
	}{
		"a winner":        {move: scriptMove{Ranks: ranks{"a": 1, "b": 2}}, want: map[string]int64{"a": 3, "b": 0}, rated: 2},
		"a draw":          {move: scriptMove{Ranks: ranks{"a": 1, "b": 1}}, want: map[string]int64{"a": 1, "b": 1}, rated: 2},
		"single teams":    {move: scriptMove{Teams: []multiplayer.Team{team(2, "a"), team(1, "b")}}, want: map[string]int64{"a": 0, "b": 3}, rated: 2},
		"teams":           {move: scriptMove{Teams: []multiplayer.Team{team(1, "a", "b"), team(2, "c", "d")}}, want: map[string]int64{"a": 3, "b": 3, "c": 0, "d": 0}, logs: "rating/unsupported_player_count"},
		"a draw of teams": {move: scriptMove{Teams: []multiplayer.Team{team(1, "a", "b"), team(1, "c", "d")}}, want: map[string]int64{"a": 1, "b": 1, "c": 1, "d": 1}, logs: "rating/unsupported_player_count"},
		"four players":    {move: scriptMove{Ranks: ranks{"a": 1, "b": 2, "c": 3, "d": 4}}, want: map[string]int64{"a": 3, "b": 0, "c": 0, "d": 0}, logs: "rating/unsupported_player_count"},
		"nobody":          {want: map[string]int64{}},
		"strange places":  {move: scriptMove{Ranks: ranks{"a": 7, "b": 8}}, want: map[string]int64{"a": 0, "b": 0}, logs: "kit/invalid_request"},
		"too many points": {move: scriptMove{Ranks: ranks{"a": 1, "b": 2}}, points: multiplayer.Points{Win: 1 << 60}, want: map[string]int64{"b": 0}, rated: 2, logs: "leaderboard/score_rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			points := multiplayer.Points{Win: 3, Draw: 1}
			if c.points.Win != 0 {
				points = c.points
			}
			r := node(t, databasetest.Memory(t), kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
				Games: []multiplayer.Game{{Key: "staked", Kind: "script", Players: 1, Leaderboard: &multiplayer.Scoring{Board: "wins", Points: points}}}})
			id := r.create("staked", "a").ID
			c.move.End = true
			r.ok(errorOf(r.play(id, "a", c.move)))
			result, err := r.Result(t.Context(), id, "a")
			r.ok(err)
			if result.Phase != multiplayer.PhaseResolved || len(result.Rating) != c.rated {
				t.Errorf("%+v", result)
			}
			got := map[string]int64{}
			for _, user := range []string{"a", "b", "c", "d"} {
				if entry, err := r.boards.Me(t.Context(), leaderboard.View{Board: "wins"}, user); err == nil {
					got[user] = entry.Entry.Score
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(r.log.text(), c.logs) {
				t.Errorf("the log has no %s", c.logs)
			}
			r.replays(id)
		})
	}
}
