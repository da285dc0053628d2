package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

// ParseCode and NewCode parse and draw room codes.
var (
	ParseCode = parseCode
	NewCode   = newCode
	Rude      = rude
)

// DrawCodes sets the codes of the next rooms; the last one is repeated.
func (m *Matchmaking) DrawCodes(codes ...string) {
	m.drawCode = func() string {
		code := codes[0]
		if len(codes) > 1 {
			codes = codes[1:]
		}
		return code
	}
}

// Sweep is a sweep that a test can interrupt.
type Sweep struct {
	m       *Matchmaking
	g       *Game
	epoch   int64
	q       queue
	matches [][]int
}

// Lead takes the lease of a game and reads its queue; ok is false if another node has the lease.
func (m *Matchmaking) Lead(ctx context.Context, game string) (s *Sweep, ok bool, err error) {
	s = &Sweep{m: m, g: m.games[game]}
	if s.epoch, err = m.lead(ctx, s.g); err != nil || s.epoch == 0 {
		return nil, false, err
	}
	if s.q, err = m.read(ctx, s.g); err != nil {
		return nil, false, err
	}
	s.matches = sweep(s.q.tickets, s.q.rules, s.q.at)
	return s, true, nil
}

// Matches returns the number of matches of the sweep.
func (s *Sweep) Matches() int { return len(s.matches) }

// Claim completes the sweep.
func (s *Sweep) Claim(ctx context.Context) error {
	return s.m.claim(ctx, s.g, s.epoch, s.q, s.matches)
}

// ErrDeposed is wrapped by the error of a Claim by a node that has lost the lease.
var ErrDeposed = errDeposed

// RunSweep runs the job of a sweep.
func (m *Matchmaking) RunSweep(ctx context.Context, game string) error {
	return m.runSweep(ctx, jobs.Job{Payload: []byte(`{"game":"` + game + `"}`)})
}

// EnqueueUnseen writes a ticket as a request does that found no ticket of the player.
func (m *Matchmaking) EnqueueUnseen(ctx context.Context, game, userID string) (written bool, err error) {
	return m.store.enqueue(ctx, player{game: game, userID: userID, ticketID: "unseen", party: 1, region: "eu"}, "")
}

// Forget removes a game from this node, as on a node of the previous version, until remember is
// called.
func (m *Matchmaking) Forget(game string) (remember func()) {
	g := m.games[game]
	delete(m.games, game)
	return func() { m.games[game] = g }
}

// Tick runs what presence does every second.
func (m *Matchmaking) Tick(ctx context.Context) { m.presence.tick(ctx) }

// Clean runs the job that runs every minute.
func (m *Matchmaking) Clean(ctx context.Context) error { return m.runClean(ctx, jobs.Job{}) }

// Lost signals a loss of events to presence.
func (m *Matchmaking) Lost() { m.presence.receive(nil) }

// IsLeaving reports whether this node has seen the last socket of a user close.
func (m *Matchmaking) IsLeaving(userID string) bool {
	m.presence.mu.Lock()
	defer m.presence.mu.Unlock()
	return !m.presence.here[userID].IsZero()
}

// Kill stops the background work of presence, as on a dead node.
func (m *Matchmaking) Kill() {
	m.presence.cancel()
	m.presence.work.Wait()
}
