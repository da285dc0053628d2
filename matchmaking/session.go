package matchmaking

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/multiplayer"
)

// hasSessions reports whether matches of the game become game sessions.
func (m *Matchmaking) hasSessions(g *Game) bool {
	return m.peers.Multiplayer != nil && g.Snapshot != nil
}

// start creates a session of a game, or finds the one of an earlier attempt. If seats are left it
// waits for more players.
func (m *Matchmaking) start(ctx context.Context, g *Game, s multiplayer.Start) (err error) {
	if s.Game, err = g.snapshot(ctx, s.Players); err != nil {
		return err
	}
	s.Open = len(s.Players) < s.Game.Players
	_, err = m.peers.Multiplayer.Start(ctx, s)
	return err
}

// errNoSnapshot is wrapped by the error of players for whom there is no game.
var errNoSnapshot = errors.New("matchmaking: the game has no session for these players")

// snapshot returns the game for a session of these players.
func (g *Game) snapshot(ctx context.Context, players []string) (multiplayer.Game, error) {
	if g.SnapshotFor == nil {
		return *g.Snapshot, nil
	}
	game, err := g.SnapshotFor(ctx, *g.Snapshot, slices.Clone(players))
	if err != nil {
		return multiplayer.Game{}, fmt.Errorf("%w: %w", errNoSnapshot, err)
	}
	if game.Key != g.Snapshot.Key || game.Mode != g.Snapshot.Mode || game.Players != g.Snapshot.Players {
		return multiplayer.Game{}, fmt.Errorf("%w: the one made for %s has another key, mode or number of players", errNoSnapshot, g.Key)
	}
	return game, nil
}

// seat gives a user a seat in a session, which a user who has one keeps. Refuses with
// matchmaking/room_full and matchmaking/room_not_found.
func (m *Matchmaking) seat(ctx context.Context, sessionID, userID string) error {
	_, err := m.peers.Multiplayer.Join(ctx, sessionID, userID)
	switch {
	case errors.Is(err, multiplayer.ErrSessionFull):
		return ErrRoomFull.Because(err)
	case errors.Is(err, multiplayer.ErrSessionNotFound), errors.Is(err, multiplayer.ErrInvalidTransition):
		return ErrRoomNotFound.Because(err)
	}
	return err
}

// hasSeats reports whether a session has a free seat for a guest, besides the seat of the host, and
// the host has not left it.
func (m *Matchmaking) hasSeats(ctx context.Context, sessionID, host string) (bool, error) {
	free, phase, err := m.peers.Multiplayer.Seats(ctx, sessionID)
	if errors.Is(err, multiplayer.ErrSessionNotFound) || phase.Terminal() {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	seated, left, err := m.peers.Multiplayer.Seated(ctx, sessionID, host)
	if !seated {
		free-- // the seat of the host
	}
	return free > 0 && !left, err
}

// validateSnapshot checks that the snapshot is a game that seats a match.
func (g Game) validateSnapshot(faults *capability.Faults, at string, peers Peers) {
	if g.Snapshot == nil && g.SnapshotFor != nil {
		faults.Add(at+"snapshot", nil, "is missing with SnapshotFor", "give the game that the function starts from")
	}
	if g.Snapshot == nil || peers.Multiplayer == nil {
		return
	}
	if _, err := peers.Multiplayer.Check(*g.Snapshot); err != nil {
		faults.Add(at+"snapshot", g.Snapshot.Kind, "is refused by multiplayer: "+err.Error(), "correct the game")
	}
	if g.Snapshot.Mode != multiplayer.ModeTable && g.Snapshot.Players != g.Players || g.Snapshot.Players < g.Players {
		faults.Add(at+"snapshot.players", g.Snapshot.Players, "does not seat a match",
			fmt.Sprintf("use %d, the players of the game, or a table with more", g.Players))
	}
}
