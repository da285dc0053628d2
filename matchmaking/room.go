package matchmaking

import (
	"context"
	"errors"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/multiplayer"
)

// maxRooms bounds the rooms of one host whose codes are valid.
const maxRooms = 10

// OpenRoom creates a session that waits for players, seats the host and returns a code for it. If
// the game has not begun when the code expires, the session is abandoned; before that the host can
// close it, and everybody in it can leave, see [multiplayer.Multiplayer.Close]. Refuses with
// matchmaking/game_not_found, matchmaking/no_sessions, matchmaking/limit_reached if the host has 10
// valid codes, kit/rate_limited if the host has as many seats as one user can have, and as
// [multiplayer.Multiplayer.Start] does.
func (m *Matchmaking) OpenRoom(ctx context.Context, game, host string) (Room, error) {
	g, err := m.sessionGame(game)
	if err != nil {
		return Room{}, err
	}
	if err := capability.CheckUserID(host); err != nil {
		return Room{}, err
	}
	if err := m.mayOpen(ctx, host); err != nil {
		return Room{}, err
	}
	// The codes may be in another store, so the code is written before the room: a code without a
	// room is not valid, and expires.
	sessionID, ttl := id.New(m.host.DB.Now(ctx)), time.Duration(g.RoomCodes.TTLSeconds)*time.Second
	code, err := m.reserve(ctx, sessionID, ttl)
	if err != nil {
		return Room{}, err
	}
	r := room{sessionID: sessionID, game: game, host: host, usesLeft: int64(g.RoomCodes.MaxUses)}
	err = m.host.DB.InTx(ctx, func(ctx context.Context) error {
		if err := m.store.lockUsers(ctx, host); err != nil {
			return err
		}
		if err := m.mayOpen(ctx, host); err != nil { // others may have been opened concurrently
			return err
		}
		r.expiresAt = m.now(ctx) + ttl.Milliseconds()
		if err := m.store.insertRoom(ctx, r); err != nil {
			return err
		}
		return m.start(ctx, g, multiplayer.Start{SessionID: sessionID, Players: []string{host}, Until: time.UnixMilli(r.expiresAt)})
	})
	if err != nil {
		return Room{}, err
	}
	return Room{Code: code, ExpiresAt: capability.Millis(r.expiresAt), SessionID: sessionID}, nil
}

func (m *Matchmaking) mayOpen(ctx context.Context, host string) error {
	open, err := m.store.countRooms(ctx, host, m.now(ctx))
	if err != nil {
		return err
	}
	if err := limited("rooms", open, maxRooms); err != nil {
		return err
	}
	return m.peers.Multiplayer.CheckSeats(ctx, host)
}

// JoinRoom takes a use of a code and a seat of its session, both or neither. Joining again takes
// nothing and returns the same. The code may be written in any case, with spaces and without its
// dash. Refuses with matchmaking/invalid_code, matchmaking/room_full, matchmaking/room_not_found
// and, after too many invalid codes, kit/rate_limited.
func (m *Matchmaking) JoinRoom(ctx context.Context, code, userID string) (Joined, error) {
	if err := capability.CheckUserID(userID); err != nil {
		return Joined{}, err
	}
	who := guessers(ctx, userID)
	if err := m.guesses.try(who); err != nil {
		return Joined{}, err
	}
	r, err := m.joinRoom(ctx, code, userID)
	if !errors.Is(err, ErrInvalidCode) {
		m.guesses.spare(who)
	}
	if err != nil {
		return Joined{}, err
	}
	return Joined{SessionID: r.sessionID, GameKey: r.game}, nil
}

func (m *Matchmaking) joinRoom(ctx context.Context, text, userID string) (r room, err error) {
	code, ok := parseCode(text)
	if !ok {
		return r, ErrInvalidCode
	}
	sessionID, ok, err := m.codes.Get(ctx, codeKey(code))
	if err != nil {
		return r, err
	}
	if !ok {
		return r, ErrInvalidCode
	}
	err = m.host.DB.InTx(ctx, func(ctx context.Context) error {
		r, ok, err = m.store.lockRoom(ctx, string(sessionID), m.now(ctx))
		switch {
		case err != nil:
			return err
		case !ok || m.peers.Multiplayer == nil:
			return ErrInvalidCode
		}
		if err := m.use(ctx, r, userID); err != nil {
			return err
		}
		return m.seat(ctx, r.sessionID, userID)
	})
	return r, err
}

// use takes one of the uses that a room has left, unless the user has one.
func (m *Matchmaking) use(ctx context.Context, r room, userID string) error {
	if userID == r.host {
		return nil
	}
	first, err := m.store.insertGuest(ctx, r.sessionID, userID)
	if err != nil || !first {
		return err
	}
	if r.usesLeft == 0 {
		return ErrInvalidCode
	}
	return m.store.setUsesLeft(ctx, r.sessionID, r.usesLeft-1)
}
