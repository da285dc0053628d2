package multiplayer

import (
	"context"
	"errors"

	"github.com/kitbackend/kit/internal/queue"
)

// maxMoves is the most sessions that share a transaction.
const maxMoves = 64

// move takes a session from one version to a later one by steps that change neither its players nor
// its phase nor its alarm.
type move struct {
	before, after *session
	steps         []step
}

// movers returns the queue that writes the moves of several sessions in one transaction: they share
// the cost of a commit and, on PostgreSQL, of a round trip.
func (m *Multiplayer) movers() *queue.Queue[move, struct{}] {
	return &queue.Queue[move, struct{}]{Run: m.writeMoves, Size: maxMoves, Leaders: queue.WriteLeaders(m.host.DB)}
}

// writeMoves writes concurrent moves, all or none of them. If one of them is stale or repeats an
// action id, each is written by itself, so that none fails because of another.
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
