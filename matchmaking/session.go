package matchmaking

import (
	"context"
	"errors"
	"fmt"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/multiplayer"
)

// hasSessions reports whether matches of the game become game sessions.
func (m *Matchmaking) hasSessions(g *Game) bool {
	return m.peers.Multiplayer != nil && g.Snapshot != nil
}

// start creates a session, or finds the one of an earlier attempt. Where seats
// are left it waits for more players.
func (m *Matchmaking) start(ctx context.Context, g *Game, sessionID string, players []string) error {
	_, err := m.peers.Multiplayer.Start(ctx, multiplayer.Start{
		SessionID: sessionID, Game: *g.Snapshot, Players: players, Open: len(players) < g.Snapshot.Players,
	})
	return err
}

// seat gives a user a seat in a session; whoever has one keeps it. Refuses with
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

// hasSeats reports whether a guest can still join a session and the host, should
// he have left it, can come back.
func (m *Matchmaking) hasSeats(ctx context.Context, sessionID, host string) (bool, error) {
	free, phase, err := m.peers.Multiplayer.Seats(ctx, sessionID)
	if errors.Is(err, multiplayer.ErrSessionNotFound) || phase.Terminal() {
		return false, nil
	}
	if err != nil || free != 1 {
		return free > 0, err
	}
	_, err = m.peers.Multiplayer.View(ctx, sessionID, host)
	if errors.Is(err, multiplayer.ErrNotAMember) {
		return false, nil
	}
	return err == nil, err
}

// validateSnapshot holds the session that a match becomes to the match.
func (g Game) validateSnapshot(faults *capability.Faults, at string, peers Peers) {
	if g.Snapshot == nil || peers.Multiplayer == nil {
		return
	}
	if _, err := peers.Multiplayer.Check(*g.Snapshot); err != nil {
		faults.Add(at+"snapshot", g.Snapshot.Kind, "is refused by multiplayer: "+err.Error(), "correct the game")
	}
	if g.Snapshot.Mode != multiplayer.Table && g.Snapshot.Players != g.Players || g.Snapshot.Players < g.Players {
		faults.Add(at+"snapshot.players", g.Snapshot.Players, "does not seat a match",
			fmt.Sprintf("use %d, the players of the game, or a table with more", g.Players))
	}
}
