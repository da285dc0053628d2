package matchmaking_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// A match whose session cannot be made fails by itself: those that the same job
// forms become sessions.
func TestMatchThatFailsTakesNoNeighbourAlong(t *testing.T) {
	cfg := games()
	cfg[3].SnapshotFor = func(_ context.Context, base multiplayer.Game, players []string) (multiplayer.Game, error) {
		if slices.Contains(players, "bad") {
			return base, errors.New("no game for these")
		}
		return base, nil
	}
	each(t, matchmaking.Config{Games: cfg}, func(t *testing.T, r *rig) {
		for _, user := range []string{"a", "b", "bad", "luck"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		for range 2 {
			r.step(5 * time.Second)
		}
		var states []string
		for _, q := range r.status("table", "a", "b", "bad", "luck") {
			states = append(states, q.State)
		}
		if diff := cmp.Diff([]string{"matched", "matched", "failed", "failed"}, states); diff != "" {
			t.Error(diff)
		}
	})
}
