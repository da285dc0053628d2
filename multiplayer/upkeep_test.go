package multiplayer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

// TestDeadline checks that an alarm that fires early snoozes, that one that fires late does
// nothing, and that at the deadline a session is abandoned and its stakes are released.
func TestDeadline(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id := r.create("staked", "ada").ID
		r.join(id, "bob")
		r.clock.Advance(20 * time.Second)
		if _, err := r.play(id, "ada", trickMove{}); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(20 * time.Second) // the first alarm is due, the turn is not
		r.runJobs()
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseActive {
			t.Fatalf("%+v", v)
		}
		r.clock.Advance(10 * time.Second) // exactly
		_, err := r.play(id, "bob", trickMove{})
		r.refuses(multiplayer.ErrInvalidTransition, err)
		r.runJobs()
		v := r.view(id, "bob")
		if v.Phase != multiplayer.PhaseAbandoned || v.Fairness.Seed == nil || v.Result.Ranks != nil {
			t.Fatalf("%+v", v)
		}
		r.balance("ada", 100, 0)
		r.balance("bob", 100, 0)
		version := v.Version
		r.clock.Advance(time.Hour)
		r.runJobs()
		if v := r.view(id, "bob"); v.Version != version {
			t.Errorf("something happened after the end: %+v", v)
		}
		if result, err := r.Result(t.Context(), id, "ada"); err != nil || result.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v %v", result, err)
		}
		r.replays(id)
	})
}

// TestNothingPutsOffADeadline checks that, while the alarm of a passed deadline is late, nobody can
// join, leave or close the table.
func TestNothingPutsOffADeadline(t *testing.T) {
	cfg := trickConfig()
	cfg.Games[2].TurnTimeout = 30 * time.Second
	r := node(t, databasetest.Memory(t), kittest.NewClock(), cfg)
	r.give(100, "ada", "bob", "cid")
	open, id := r.create("table", "ada").ID, r.create("table", "ada").ID
	r.join(id, "bob")
	r.clock.Advance(24 * time.Hour)
	ctx := t.Context()
	for _, err := range []error{
		errorOf(r.Join(ctx, open, "cid")), errorOf(r.Join(ctx, id, "cid")), r.Leave(ctx, id, "bob"), errorOf(r.Close(ctx, id, "ada")),
	} {
		r.refuses(multiplayer.ErrInvalidTransition, err)
	}
	r.join(id, "bob") // a player who has a seat keeps it
	r.runJobs()
	for _, id := range []string{open, id} {
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
	}
}

// TestNobodyComes checks that a session stops waiting for players after the timeout, and that an
// active one without a time limit does not end.
func TestNobodyComes(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		waiting, patient := r.create("duel", "ada").ID, r.create("duel", "bob").ID
		r.join(patient, "ada")
		r.clock.Advance(24*time.Hour - time.Second)
		r.runJobs()
		if v := r.view(waiting, "ada"); v.Phase != multiplayer.PhaseOpen {
			t.Errorf("%+v", v)
		}
		r.clock.Advance(time.Second)
		r.runJobs()
		if v := r.view(waiting, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
		r.clock.Advance(24 * time.Hour)
		r.runJobs()
		if v := r.view(patient, "ada"); v.Phase != multiplayer.PhaseActive {
			t.Errorf("%+v", v)
		}
		for range 2 {
			r.ok(r.Abandon(t.Context(), patient))
		}
		if v := r.view(patient, "ada"); v.Phase != multiplayer.PhaseAbandoned || v.Version != 3 {
			t.Errorf("%+v", v)
		}
		r.replays(patient)
		r.refuses(multiplayer.ErrSessionNotFound, r.Abandon(t.Context(), "none"))
	})
}

// TestLostAlarm checks that the sweep abandons a session whose alarm was lost.
func TestLostAlarm(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id := r.create("staked", "ada").ID
		r.join(id, "bob")
		_, err := r.db.Exec(t.Context(), `DELETE FROM kit_job`)
		r.ok(err)
		r.clock.Advance(2 * time.Hour)
		r.runJobs()
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
		r.balance("ada", 100, 0)
	})
}

// TestCrowdAtADeadline checks that a session with too many callers when a turn ends is not
// abandoned because of them, and that actions sent in time are accepted.
func TestCrowdAtADeadline(t *testing.T) {
	cfg := multiplayer.Config{Models: []multiplayer.Model{timed()},
		Games: []multiplayer.Game{{Key: "timed", Kind: "timed", TurnTimeout: 30 * time.Second}}}
	r := node(t, databasetest.File(t), kittest.NewClock(), cfg)
	id := r.create("timed", "ada").ID
	r.join(id, "bob")
	r.clock.Advance(10 * time.Second)

	held, release := make(chan struct{}), make(chan struct{})
	var writer, actors sync.WaitGroup
	writer.Go(func() { // holds the only writer of the database
		if err := r.db.InTx(context.Background(), func(context.Context) error {
			close(held)
			<-release
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-held
	full := make(chan struct{})
	var refused atomic.Int64
	for range 200 {
		actors.Go(func() {
			_, err := r.play(id, "ada", "go")
			if errors.Is(err, capability.ErrRateLimited) {
				if refused.Add(1) == 200-96 { // 64 wait, at most 32 are under way
					close(full)
				}
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	<-full
	r.clock.Advance(20 * time.Second)
	letGo := sync.OnceFunc(func() { close(release); writer.Wait(); actors.Wait() })
	r.log.line = func([]byte) { letGo() } // with the first log line about it
	if err := r.Expire(t.Context(), id); !errors.Is(err, capability.ErrRateLimited) {
		t.Errorf("got %v, want to be asked again", err)
	}
	r.log.line = nil
	letGo()
	if v := r.view(id, "bob"); v.Phase != multiplayer.PhaseActive {
		t.Errorf("the session is %s", v.Phase)
	}
	r.replays(id)
}

// TestTampering checks that Replay detects changes to the stored data.
func TestTampering(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id := r.create("staked", "ada").ID
		r.join(id, "bob")
		r.finish(id, "ada", "bob")
		r.replays(id)
		undo := errors.New("undo")
		for change, says := range map[string]string{
			`UPDATE multiplayer_action SET data = '{"card":7}' WHERE session_id = $1 AND version = 3`:                      "not accepted again",
			`UPDATE multiplayer_action SET kind = 'join' WHERE session_id = $1 AND version = 3`:                            "no step to version 3",
			`DELETE FROM multiplayer_action WHERE session_id = $1 AND version > 3`:                                         "ends at version 3",
			`UPDATE multiplayer_session SET state = REPLACE(state, '"round":2', '"round":3') WHERE id = $1`:                "another state",
			`UPDATE multiplayer_session SET players = '["bob","ada"]' WHERE id = $1`:                                       "other players",
			`UPDATE multiplayer_session SET words = words + 1 WHERE id = $1`:                                               "another cursor",
			`UPDATE multiplayer_session SET updated_at = updated_at + 1 WHERE id = $1`:                                     "other times",
			`UPDATE multiplayer_session SET phase = 'abandoned' WHERE id = $1`:                                             "another phase",
			`UPDATE multiplayer_effect SET effect = '{"kind":"credit","ref":"x"}' WHERE session_id = $1 AND kind = 'hold'`: "another effect",
			`DELETE FROM multiplayer_effect WHERE session_id = $1 AND kind = 'hold'`:                                       "was not settled",
		} {
			err := r.db.InTx(t.Context(), func(ctx context.Context) error {
				if _, err := r.db.Exec(ctx, change, id); err != nil {
					return err
				}
				if _, err := r.Replay(ctx, id); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v", change, err)
				}
				return undo
			})
			if !errors.Is(err, undo) {
				t.Error(err)
			}
		}
		r.replays(id)
	})
}

// TestRetention checks that the log is removed and the result stays.
func TestRetention(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id, live := r.create("staked", "ada").ID, r.create("duel", "ada").ID
		r.join(id, "bob")
		r.join(live, "bob")
		r.finish(id, "ada", "bob")
		r.clock.Advance(29 * 24 * time.Hour)
		r.runJobs()
		r.view(id, "ada")
		r.clock.Advance(25 * time.Hour)
		r.runJobs()
		r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.View(t.Context(), id, "ada")))
		if result, err := r.Result(t.Context(), id, "ada"); err != nil || result.Phase != multiplayer.PhaseResolved {
			t.Errorf("%+v %v", result, err)
		}
		r.view(live, "ada")
		game, err := r.Game("staked")
		r.ok(err)
		_, err = r.Start(t.Context(), multiplayer.Start{SessionID: id, Game: game, Players: []string{"ada", "bob"}})
		r.refuses(capability.ErrIdempotencyConflict, err) // its refs have moved money
		var rows int
		r.ok(r.db.QueryRow(t.Context(), `SELECT (SELECT COUNT(*) FROM multiplayer_action WHERE session_id = $1) +
			(SELECT COUNT(*) FROM multiplayer_effect WHERE session_id = $1)`, id).Scan(&rows))
		if rows != 0 {
			t.Errorf("%d rows are left", rows)
		}
	})
}

func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.create("duel", "ada")
		r.join(r.create("duel", "ada").ID, "bob")
		r.join(r.create("duel", "ada").ID, "bob")
		got := map[string]any{}
		for _, key := range r.Capability().Health {
			value, err := key.Read(t.Context())
			r.ok(err)
			got[key.Key] = value
		}
		if diff := cmp.Diff(map[string]any{"open": int64(1), "active": int64(2)}, got); diff != "" {
			t.Error(diff)
		}
	})
}
