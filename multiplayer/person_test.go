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
	"github.com/kitbackend/kit/multiplayer"
)

// exported counts the records of a user by kind, and returns them all as JSON.
func (r *rig) exported(user string) (kinds map[string]int, text string) {
	r.t.Helper()
	kinds = map[string]int{}
	r.ok(r.Capability().Export(r.t.Context(), capability.Person{ID: user}, func(kind string, record any) error {
		raw, err := json.Marshal(record)
		kinds[kind]++
		text += string(raw)
		return err
	}))
	return kinds, text
}

// TestErase checks that a match ends, a seat at a table is given up, holds are released, and of
// sessions that are over only the players and the results stay.
func TestErase(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob", "cid")
		over := r.create("duel", "ada").ID
		r.join(over, "bob")
		r.finish(over, "ada", "bob")
		match := r.create("staked", "ada").ID
		r.join(match, "bob")
		table := r.create("table", "ada").ID
		r.join(table, "bob")
		r.join(table, "cid")
		waiting := r.create("duel", "ada").ID
		others := r.create("duel", "bob").ID
		r.balance("ada", 100, 15)

		kinds, text := r.exported("ada")
		if diff := cmp.Diff(map[string]int{"session": 4, "action": 3, "result": 1}, kinds); diff != "" {
			t.Error(diff)
		}
		if strings.Contains(text, others) {
			t.Error("the export holds a session of others")
		}
		for round := range 2 {
			out, err := r.Capability().Erase(ctx, capability.Person{ID: "ada"})
			r.ok(err)
			if (out.Removed > 0) != (round == 0) || len(out.Kept) == 0 {
				t.Errorf("erasure %d: %+v", round, out)
			}
		}
		r.balance("ada", 100, 0)
		r.balance("bob", 100, 5)
		if v := r.view(table, "bob"); v.Phase != multiplayer.PhaseActive || len(v.Players) != 2 {
			t.Errorf("the table: %+v", v)
		}
		if v := r.view(others, "bob"); v.Phase != multiplayer.PhaseOpen {
			t.Errorf("a session of others: %+v", v)
		}
		for id, phase := range map[string]multiplayer.Phase{over: multiplayer.PhaseResolved, match: multiplayer.PhaseAbandoned} {
			if v := r.view(id, "bob"); v.Phase != phase || v.State != nil || v.Result == nil {
				t.Errorf("%+v", v)
			}
		}
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.View(ctx, waiting, "bob")))
		if result, err := r.Result(ctx, over, "bob"); err != nil || result.Phase != multiplayer.PhaseResolved {
			t.Errorf("%+v %v", result, err)
		}
		if kinds, _ := r.exported("ada"); len(kinds) != 0 {
			t.Errorf("after the erasure there is %v", kinds)
		}
		if running, err := r.ListRunning(ctx, "ada", capability.Page{}); err != nil || len(running.Items) != 0 {
			t.Errorf("%+v %v", running, err)
		}
		r.replays(table)
	})
}

// TestErasedStakeEndsTheTable checks that at a table where the stake of a player who leaves stays
// in the pot, erasing the user releases it and the stakes of all others, because the game can no
// longer be paid out.
func TestErasedStakeEndsTheTable(t *testing.T) {
	forfeit := trickDefinition()
	forfeit.Kind = "forfeit"
	forfeit.OnLeave = func(_ trickContext, s trickState, id string) (trickState, []multiplayer.Effect, error) {
		delete(s.Hands, id)
		return s, nil, nil
	}
	cfg := multiplayer.Config{Models: []multiplayer.Model{multiplayer.Define(forfeit)}, Games: []multiplayer.Game{
		{Key: "table", Kind: "forfeit", Mode: multiplayer.ModeTable, Players: 4, Rules: trickRules{Stake: 5, Cards: 50}}}}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx, r := t.Context(), node(t, db, kittest.NewClock(), cfg)
		r.give(100, "ada", "bob", "cid")
		var tables []string
		for range 2 {
			id := r.create("table", "bob").ID
			r.join(id, "cid")
			r.join(id, "ada")
			tables = append(tables, id)
		}
		r.ok(r.Leave(ctx, tables[0], "ada")) // and keeps the seat at the other one
		r.balance("ada", 100, 10)
		for _, c := range []capability.Capability{r.Capability(), r.ledger.Capability()} {
			_, err := c.Erase(ctx, capability.Person{ID: "ada"})
			r.ok(err)
		}
		for _, id := range tables {
			if v := r.view(id, "bob"); v.Phase != multiplayer.PhaseAbandoned {
				t.Errorf("the table is %s", v.Phase)
			}
		}
		for _, id := range []string{"ada", "bob", "cid"} {
			r.balance(id, 100, 0)
		}
	})
}
