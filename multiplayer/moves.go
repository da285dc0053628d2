package multiplayer

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/internal/queue"
)

// maxMoves is how many sessions share a transaction at most.
const maxMoves = 64

// move is a session on its way from one version to a later one by steps that
// change neither its players nor its phase nor its alarm.
type move struct {
	before, after *session
	steps         []step
}

// movers has the moves of several sessions written in one transaction: what a
// commit costs is shared, on PostgreSQL the way to the server too.
func (m *Multiplayer) movers() *queue.Queue[move, struct{}] {
	return &queue.Queue[move, struct{}]{Run: m.writeMoves, Size: maxMoves, Leaders: queue.WriteLeaders(m.host.DB)}
}

// writeMoves writes moves that came at the same time, all or none of them. What
// one of them is refused for, having been overtaken or repeating an action id,
// takes no neighbour along: then each is written by itself.
func (m *Multiplayer) writeMoves(ctx context.Context, calls []*queue.Call[move, struct{}]) int {
	moves := make([]move, len(calls))
	for i, c := range calls {
		moves[i] = c.Op
	}
	err := m.store.move(ctx, moves)
	alone := len(calls) > 1 && (errors.Is(err, errStale) || idTaken(err))
	for _, c := range calls {
		if c.Err = err; alone {
			c.Err = m.store.move(ctx, []move{c.Op})
		}
	}
	return len(calls)
}
