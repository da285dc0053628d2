package multiplayer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

// TestOpenSessionsAreBoundedAtOnce checks that concurrent requests create no more sessions than the
// limit.
func TestOpenSessionsAreBoundedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var created, refused atomic.Int64
		var group sync.WaitGroup
		for range 3 * multiplayer.MaxOpen {
			group.Go(func() {
				switch _, err := r.Create(context.Background(), "duel", "ada"); {
				case err == nil:
					created.Add(1)
				case errors.Is(err, capability.ErrRateLimited):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if created.Load() != multiplayer.MaxOpen || refused.Load() != 2*multiplayer.MaxOpen {
			t.Errorf("%d created, %d refused; want %d created", created.Load(), refused.Load(), multiplayer.MaxOpen)
		}
	})
}

// TestSeatsAreBounded checks that active sessions count, too, and that those that are over do not.
func TestSeatsAreBounded(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), countConfig())
		ctx := t.Context()
		var last string
		for range multiplayer.MaxSeated {
			last = r.create("solo", "ada").ID
		}
		r.refuses(capability.ErrRateLimited, errorOf(r.Create(ctx, "solo", "ada")))
		other := r.create("count", "bob").ID
		r.refuses(capability.ErrRateLimited, errorOf(r.Join(ctx, other, "ada")))
		if v := r.view(other, "bob"); len(v.Players) != 1 {
			t.Errorf("the refused player has a seat: %v", v.Players)
		}
		r.ok(errorOf(r.play(last, "ada", -1)))
		r.join(other, "ada")
	})
}

// TestListRunning checks that a user's sessions are listed, the newest first, and none that is
// over.
func TestListRunning(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob")
		var ids []string
		for range 3 {
			r.clock.Advance(time.Second)
			ids = append(ids, r.create("staked", "ada").ID)
		}
		r.join(ids[1], "bob")
		r.ok(r.Abandon(ctx, ids[0]))
		var got []string
		page := capability.NewPage(1, "")
		for {
			items, err := r.ListRunning(ctx, "ada", page)
			r.ok(err)
			for _, s := range items.Items {
				got = append(got, s.ID+" "+string(s.Phase))
				if (s.TurnDeadline != nil) != (s.Phase == multiplayer.PhaseActive) {
					t.Errorf("%+v", s)
				}
			}
			if items.NextCursor == nil {
				break
			}
			page = capability.NewPage(1, *items.NextCursor)
		}
		if diff := cmp.Diff([]string{ids[2] + " open", ids[1] + " active"}, got); diff != "" {
			t.Error(diff)
		}
		if items, err := r.ListRunning(ctx, "bob", capability.Page{}); err != nil || len(items.Items) != 1 {
			t.Errorf("%+v %v", items, err)
		}
	})
}

// TestInventedSessionsTakeNoRoom checks that invented ids displace no session from the node's
// cache.
func TestInventedSessionsTakeNoRoom(t *testing.T) {
	r := node(t, databasetest.Memory(t), kittest.NewClock(), trickConfig())
	before := r.Warm()
	for i := range 100 {
		id := fmt.Sprint("invented-", i)
		r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.Join(t.Context(), id, "ada")))
		r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.play(id, "ada", trickMove{})))
	}
	if n := r.Warm(); n != before {
		t.Errorf("%d sessions are cached, want %d", n, before)
	}
}

// TestComingAndGoingPutsNoTurnOff checks that only an action sets the deadline of a turn.
func TestComingAndGoingPutsNoTurnOff(t *testing.T) {
	cfg := trickConfig()
	cfg.Games[2].TurnTimeout = 30 * time.Second
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), cfg)
		r.give(100, "ada", "bob", "cid")
		id := r.create("table", "ada").ID
		want := r.join(id, "bob").TurnDeadline
		r.clock.Advance(20 * time.Second)
		if got := r.join(id, "cid").TurnDeadline; !got.Equal(want.Time) {
			t.Errorf("joining put the deadline from %v to %v", want, got)
		}
		r.ok(r.Leave(t.Context(), id, "cid"))
		if got := r.view(id, "ada").TurnDeadline; !got.Equal(want.Time) {
			t.Errorf("leaving put the deadline from %v to %v", want, got)
		}
		r.ok(errorOf(r.play(id, "ada", trickMove{})))
		if got := r.view(id, "ada").TurnDeadline; got.Sub(want.Time) != 20*time.Second {
			t.Errorf("the action set the deadline %v after %v", got, want)
		}
		r.clock.Advance(29 * time.Second)
		r.join(id, "cid")
		r.clock.Advance(time.Second)
		r.runJobs()
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
		r.replays(id)
	})
}

// timed is a game in which a player who does not act in time loses a life; a player without lives
// loses.
func timed() multiplayer.Model {
	type state struct {
		Turn  int    `json:"turn"`
		Lives [2]int `json:"lives"`
		Fail  bool   `json:"fail"`
	}
	type gameContext = multiplayer.Context[struct{}]
	return multiplayer.Define(multiplayer.Definition[struct{}, state]{
		Kind: "timed", MinPlayers: 2, MaxPlayers: 2,
		Init: func(gameContext) (state, []multiplayer.Effect, error) { return state{Lives: [2]int{2, 2}}, nil, nil },
		Apply: func(_ gameContext, s state, m multiplayer.Move) (state, []multiplayer.Effect, error) {
			s.Turn = 1 - s.Turn
			s.Fail = string(m.Data) == `"fail"`
			return s, nil, nil
		},
		IsComplete: func(_ gameContext, s state) bool { return s.Lives[0] == 0 || s.Lives[1] == 0 },
		Resolve: func(c gameContext, s state) multiplayer.Outcome {
			winner := 0
			if s.Lives[0] == 0 {
				winner = 1
			}
			return multiplayer.Outcome{Ranks: map[string]int{c.Players[winner]: 1, c.Players[1-winner]: 2}}
		},
		Redact: func(_ gameContext, s state, _ string, _ bool) any { return s },
		OnTimeout: func(c gameContext, s state) (state, []multiplayer.Effect, error) {
			if s.Fail {
				return s, []multiplayer.Effect{multiplayer.Debit(c.Players[0], "coins", 1_000_000, c.Ref("late"))}, nil
			}
			s.Lives[s.Turn]--
			s.Turn = 1 - s.Turn
			return s, nil, nil
		},
	})
}

// TestTimeoutIsTheModels checks that the model decides who loses when the time is over, and that a
// refusal of the ledger does not keep the game from ending.
func TestTimeoutIsTheModels(t *testing.T) {
	cfg := multiplayer.Config{Models: []multiplayer.Model{timed()},
		Games: []multiplayer.Game{{Key: "timed", Kind: "timed", TurnTimeout: 30 * time.Second}}}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), cfg)
		r.give(1, "ada", "bob")
		id := r.create("timed", "ada").ID
		r.join(id, "bob")
		for range 2 { // first ada is late, then bob
			r.clock.Advance(30 * time.Second)
			r.runJobs()
			if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseActive || !v.TurnDeadline.Equal(r.clock.Now().Add(30*time.Second)) {
				t.Fatalf("%+v, want a game that goes on with the full time", v)
			}
		}
		r.clock.Advance(30 * time.Second)
		r.runJobs()
		result, err := r.Result(t.Context(), id, "ada")
		r.ok(err)
		if diff := cmp.Diff(map[string]int{"ada": 2, "bob": 1}, result.Ranks); diff != "" || result.Phase != multiplayer.PhaseResolved {
			t.Error(result.Phase, diff)
		}
		r.replays(id)

		id = r.create("timed", "ada").ID
		r.join(id, "bob")
		r.ok(errorOf(r.play(id, "ada", "fail")))
		r.clock.Advance(30 * time.Second)
		r.runJobs()
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
		r.replays(id)
	})
}

// TestMatchStartedHook checks that the hook runs once, when the last player that is needed joins, and
// can refuse that.
func TestMatchStartedHook(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var events []hooks.MatchStarted
		refuse := errors.New("not yet")
		r.hooks.MatchStarted.In(func(ctx context.Context, e hooks.MatchStarted) error {
			if !r.db.InTransaction(ctx) {
				t.Error("the hook runs outside of the transaction")
			}
			return refuse
		})
		r.hooks.MatchStarted.After(func(_ context.Context, e hooks.MatchStarted) { events = append(events, e) })
		id := r.create("duel", "ada").ID
		if _, err := r.Join(t.Context(), id, "bob"); !errors.Is(err, refuse) {
			t.Errorf("got %v, want the error of the hook", err)
		}
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseOpen || len(v.Players) != 1 || len(events) != 0 {
			t.Errorf("%s with %q, %d events after a refusal", v.Phase, v.Players, len(events))
		}
		refuse = nil
		r.join(id, "bob")
		r.finish(id, "ada", "bob")
		game, err := r.Game("duel")
		r.ok(err)
		for range 2 { // the second finds the session of the first
			_, err := r.Start(t.Context(), multiplayer.Start{SessionID: "whole", Game: game, Players: []string{"eve", "bob"}})
			r.ok(err)
		}
		want := []hooks.MatchStarted{
			{SessionID: id, Game: "duel", Players: []string{"ada", "bob"}},
			{SessionID: "whole", Game: "duel", Players: []string{"eve", "bob"}},
		}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMatchEndedHook checks that the hook runs with the end of a session and can refuse it.
func TestMatchEndedHook(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var events []hooks.MatchEnded
		refuse := errors.New("not yet")
		r.hooks.MatchEnded.In(func(ctx context.Context, e hooks.MatchEnded) error {
			if !r.db.InTransaction(ctx) {
				t.Error("the hook runs outside of the transaction")
			}
			return refuse
		})
		r.hooks.MatchEnded.After(func(_ context.Context, e hooks.MatchEnded) { events = append(events, e) })
		id := r.create("duel", "ada").ID
		r.join(id, "bob")
		if err := r.Abandon(t.Context(), id); !errors.Is(err, refuse) {
			t.Errorf("got %v, want what the hook said", err)
		}
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseActive || len(events) != 0 {
			t.Errorf("%s, %d events after a refusal", v.Phase, len(events))
		}
		refuse = nil
		result := r.finish(id, "ada", "bob").Result
		want := []hooks.MatchEnded{{SessionID: id, Game: "duel", Ranks: result.Ranks}}
		if diff := cmp.Diff(want, events); diff != "" {
			t.Error(diff)
		}
	})
}

// TestBrokenRatingDoesNotKeepAGame checks that the game ends, unrated, and can be rated under its
// key once the row is repaired.
func TestBrokenRatingDoesNotKeepAGame(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob")
		start := func() string {
			id := r.create("staked", "ada").ID
			r.join(id, "bob")
			return id
		}
		r.finish(start(), "ada", "bob")
		_, err := r.db.Exec(ctx, `UPDATE rating_player SET state = '{"broken":1}' WHERE user_id = 'ada'`)
		r.ok(err)
		id := start()
		if v := r.finish(id, "ada", "bob"); v.Phase != multiplayer.PhaseResolved || v.Result.Rating != nil {
			t.Errorf("%s, rated %+v", v.Phase, v.Result.Rating)
		}
		var keys int
		r.ok(r.db.QueryRow(ctx, `SELECT count(*) FROM rating_key WHERE key = $1`, "session/"+id).Scan(&keys))
		if keys != 0 {
			t.Errorf("%d keys are taken by an outcome that was not recorded", keys)
		}
	})
}

// TestCaptureOfNothing checks that Capture spends the whole hold, and that a capture of zero is a
// fault.
func TestCaptureOfNothing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
			Games: []multiplayer.Game{{Key: "script", Kind: "script", Players: 1}}})
		r.give(100, "ada")
		id := r.create("script", "ada").ID
		declare := func(effects ...multiplayer.Effect) error {
			return errorOf(r.play(id, "ada", scriptMove{Effects: effects}))
		}
		r.ok(declare(multiplayer.Hold("ada", "coins", 30, "stake"), multiplayer.Hold("ada", "coins", 20, "other")))
		if err := declare(multiplayer.CapturePart("stake", 0)); !capability.AsError(err).Is(capability.ErrInternal) {
			t.Errorf("got %v, want a fault of the model", err)
		}
		r.balance("ada", 100, 50)
		r.ok(declare(multiplayer.CapturePart("stake", 10), multiplayer.Capture("other")))
		r.balance("ada", 70, 0)
	})
}

// TestTwoNodesAreNeverTooFast checks that, however many act on two nodes, no call is refused
// because the session changes too fast.
func TestTwoNodesAreNeverTooFast(t *testing.T) {
	dbs := databasetest.Shared(t, 4)
	clock := kittest.NewClock()
	var nodes []*rig
	for _, db := range dbs {
		nodes = append(nodes, node(t, db, clock, countConfig()))
	}
	id, players := crowd(nodes[0])
	var group sync.WaitGroup
	for i, player := range players[:16] {
		group.Go(func() {
			for n := range 20 {
				_, err := nodes[i%4].Act(context.Background(), id, player,
					multiplayer.Action{ID: fmt.Sprint("a", n), Data: json.RawMessage("1")})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
