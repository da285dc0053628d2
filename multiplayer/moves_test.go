package multiplayer_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/multiplayer"
)

// TestMovesShareATransaction checks that moves of several sessions are written together. One whose
// session another node has changed, and one that repeats an action id, fail no other.
func TestMovesShareATransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		clock := kittest.NewClock()
		here, there := node(t, db, clock, countConfig()), node(t, db, clock, countConfig())
		ids := make([]string, 5)
		act := func(r *rig, i int, action string) (multiplayer.Ack, error) {
			return r.Act(t.Context(), ids[i], fmt.Sprint("player-", i), multiplayer.Action{ID: action, Data: json.RawMessage("1")})
		}
		for i := range ids {
			ids[i] = here.create("solo", fmt.Sprint("player-", i)).ID
			_, err := act(here, i, "first")
			here.ok(err)
		}
		_, err := act(there, 1, "elsewhere")
		here.ok(err)
		release := here.HoldMoves()
		acks, errs := make([]multiplayer.Ack, len(ids)), make([]error, len(ids))
		var group sync.WaitGroup
		for i := range ids {
			action := "second"
			if i == 2 {
				action = "first"
			}
			group.Go(func() { acks[i], errs[i] = act(here, i, action) })
		}
		for deadline := time.Now().Add(time.Minute); here.Moves() < len(ids); {
			if time.Now().After(deadline) {
				t.Fatalf("%d moves wait, not %d", here.Moves(), len(ids))
			}
			time.Sleep(time.Millisecond) //nolint:forbidigo // until the callers in other goroutines have queued
		}
		release()
		group.Wait()
		for i, want := range []int64{3, 4, 2, 3, 3} {
			if here.ok(errs[i]); acks[i].Version != want || acks[i].Replayed != (i == 2) {
				t.Errorf("session %d: %+v, want version %d", i, acks[i], want)
			}
			here.replays(ids[i])
		}
	})
}
