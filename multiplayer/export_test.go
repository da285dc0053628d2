package multiplayer

import "context"

// Warm returns how many sessions this node has cached.
func (m *Multiplayer) Warm() int {
	m.owners.mu.Lock()
	defer m.owners.mu.Unlock()
	return len(m.owners.warm)
}

// Waiting returns how many callers of a session are waiting.
func (m *Multiplayer) Waiting(id string) int { return m.owners.of(id).queue.Waiting() }

// Busy returns how many sessions of this node are under way.
func (m *Multiplayer) Busy() (n int) {
	m.owners.mu.Lock()
	defer m.owners.mu.Unlock()
	for _, o := range m.owners.warm {
		if o.queue.Busy() {
			n++
		}
	}
	return n
}

// HoldMoves lets moves queue up until release is called, to be written in one transaction.
func (m *Multiplayer) HoldMoves() (release func()) { return m.moves.Hold() }

// Moves returns how many moves are waiting to be written.
func (m *Multiplayer) Moves() int { return m.moves.Waiting() }

// Expire runs the alarm of a session.
func (m *Multiplayer) Expire(ctx context.Context, id string) error { return m.expire(ctx, id) }

// MaxStates is the bound of StateBytes, apart from the last session.
const MaxStates = maxStates

// StateBytes returns how many bytes of states this node has cached, and how many it has counted.
func (m *Multiplayer) StateBytes() (cached, counted int64) {
	m.owners.mu.Lock()
	defer m.owners.mu.Unlock()
	for _, o := range m.owners.warm {
		cached += o.known().size()
	}
	return cached, m.owners.states.Load()
}
