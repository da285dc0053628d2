package matchmaking

import (
	"context"

	"github.com/kitbackend/kit/jobs"
)

// ParseCode and NewCode are the form of room codes.
var (
	ParseCode = parseCode
	NewCode   = newCode
	Rude      = rude
)

// DrawCodes has the next rooms get these codes, then the last one for ever.
func (m *Matchmaking) DrawCodes(codes ...string) {
	m.drawCode = func() string {
		code := codes[0]
		if len(codes) > 1 {
			codes = codes[1:]
		}
		return code
	}
}

// Sweep is a sweep that stops wherever a test wants it to.
type Sweep struct {
	m       *Matchmaking
	g       *Game
	epoch   int64
	q       queue
	matches [][]int
}

// Lead takes the lease of a game and reads its queue; ok is false when another
// node has it.
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

// Matches counts what the sweep has found.
func (s *Sweep) Matches() int { return len(s.matches) }

// Claim is the rest of the sweep.
func (s *Sweep) Claim(ctx context.Context) error {
	return s.m.claim(ctx, s.g, s.epoch, s.q, s.matches)
}

// ErrDeposed is in the error of a Claim by a node that has lost the lease.
var ErrDeposed = errDeposed

// RunSweep is one whole sweep, as its job does it.
func (m *Matchmaking) RunSweep(ctx context.Context, game string) error {
	return m.runSweep(ctx, jobs.Job{Payload: []byte(`{"game":"` + game + `"}`)})
}

// EnqueueUnseen writes a ticket as a request does that saw none of the player.
func (m *Matchmaking) EnqueueUnseen(ctx context.Context, game, userID string) (written bool, err error) {
	return m.store.enqueue(ctx, player{game: game, userID: userID, ticketID: "unseen", party: 1, region: "eu"}, "")
}

// Forget has this node not know a game, as one of the version before, until
// remember is called.
func (m *Matchmaking) Forget(game string) (remember func()) {
	g := m.games[game]
	delete(m.games, game)
	return func() { m.games[game] = g }
}

// Tick is what presence does every second.
func (m *Matchmaking) Tick(ctx context.Context) { m.presence.tick(ctx) }

// Clean is the job of every minute.
func (m *Matchmaking) Clean(ctx context.Context) error { return m.runClean(ctx, jobs.Job{}) }

// Lost has presence believe that events were lost.
func (m *Matchmaking) Lost() { m.presence.receive(nil) }

// IsLeaving reports whether this node has seen the last socket of a user close.
func (m *Matchmaking) IsLeaving(userID string) bool {
	m.presence.mu.Lock()
	defer m.presence.mu.Unlock()
	return !m.presence.here[userID].IsZero()
}

// Kill has this node do nothing any more for presence.
func (m *Matchmaking) Kill() {
	m.presence.cancel()
	m.presence.work.Wait()
}
