// Package matchmaking brings players together: rooms with codes, invites,
// friends, a queue by skill and region, and presence.
//
// # What it promises
//
//   - A ticket of the queue is matched once, however many nodes there are. One
//     node at a time sweeps a game, under a lease whose epoch every claim
//     carries; when it dies another takes over and no ticket is lost.
//   - A match that was found becomes one session. The claim of its tickets and
//     the job that creates the session commit together, and the session has the
//     id of the match, so a job that runs again finds it.
//   - Nobody is matched outside of everybody's skill band, which widens with
//     waiting, unless somebody has waited past MaxWaitSeconds: then players who have
//     waited for a sweep may be taken, the nearest skill first.
//   - A room code is used at most MaxUses times, each use is a seat, and both or
//     neither are taken. Codes that were never given out, have expired or are
//     used up get the same refusal, and only some wrong ones a minute.
//   - To a user, those they block and those who block them do not exist: no requests, invites,
//     presence or matches. Only who gives out the code of a room, or offers free seats, may bring
//     the two together.
//   - Presence is by rows that are written when the first socket of a user on a
//     node opens and some seconds after the last has closed, never for a
//     heartbeat; a dead node's users go offline within 15 seconds.
//   - An operation joins the transaction of its context; what is pushed to
//     sockets leaves after its commit. Pushes are hints, at most once: the routes
//     read the truth.
//
// # Without a peer
//
// Without auth every route refuses, as all user routes do, and user ids are
// taken as they are. Without rating, and in a game without SkillPool, the queue
// goes by region only. Without multiplayer, and in a game without Snapshot,
// players are paired and the queue returns matched without a session id; rooms
// and invites are refused with matchmaking/no_sessions.
//
// # Who may call
//
// In process, every caller that has the *Matchmaking; blocking, parties, backfill and
// matches are there only. Over HTTP all signed-in users, for themselves.
package matchmaking

import (
	"context"
	"embed"
	"errors"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/rate"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
)

// Name is the capability's name.
const Name = "matchmaking"

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that matchmaking uses; each may be nil.
type Peers struct {
	// Auth knows which users there are, and by what names.
	Auth *auth.Auth
	// Rating knows how good players are.
	Rating *rating.Rating
	// Multiplayer holds the sessions that matches, rooms and invites become.
	Multiplayer *multiplayer.Multiplayer
	// Audit records who blocks whom.
	Audit *audit.Audit
}

// Matchmaking brings players together. It is safe for concurrent use, from
// several processes on PostgreSQL.
type Matchmaking struct {
	host  capability.Host
	cfg   Config
	games map[string]*Game
	peers Peers
	store store
	codes kv.Store
	// drawCode is newCode, except where a test wants two rooms to meet.
	drawCode func() string
	guesses  *guesses
	asks     *rate.Limiter // friend requests
	invites  *rate.Limiter
	sweeps   sweeps
	presence *presence
}

// How often a user may ask somebody.
var (
	friendRequests = rate.Limit{Events: 30, Per: time.Hour}
	inviteRate     = rate.Limit{Events: 30, Per: time.Minute}
)

// New checks the configuration, all faults at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Matchmaking, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(peers); err != nil {
		return nil, err
	}
	host = host.Complete()
	m := &Matchmaking{
		host: host, cfg: cfg, games: make(map[string]*Game), peers: peers, store: store{host.DB}, codes: cfg.Codes,
		drawCode: newCode, guesses: newGuesses(host.Now),
		asks: rate.New(friendRequests, host.Now), invites: rate.New(inviteRate, host.Now),
	}
	for i := range cfg.Games {
		m.games[cfg.Games[i].Key] = &cfg.Games[i]
	}
	if m.codes == nil {
		m.codes = kv.NewSQL(host.DB)
	}
	m.presence = newPresence(m)
	return m, nil
}

// Capability describes matchmaking to the kit.
func (m *Matchmaking) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   m.host.DB,
		Prefix:     m.cfg.BasePath,
		Routes:     m.routes(),
		Config:     m.cfg.keys(),
		Health:     m.health(),
		Migrations: migrations,
		Jobs:       m.jobs(),
		Refusals:   refusals(),
		Export:     m.export,
		Erase:      m.erase,
		Close:      m.presence.close,
	}
}

func (m *Matchmaking) jobs() []jobs.Binding {
	return []jobs.Binding{
		{Name: sweepBinding, MaxAttempts: 2, Run: m.runSweep},
		{Name: formBinding, Run: m.runForm},
		{Name: cleanBinding, Schedule: "* * * * *", Run: m.runClean},
	}
}

func (m *Matchmaking) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "waiting", Read: func(ctx context.Context) (any, error) { return m.store.countWaiting(ctx) }},
		{Key: "forming", Read: func(ctx context.Context) (any, error) { return m.store.countForming(ctx) }},
		{Key: "online", Read: func(ctx context.Context) (any, error) { return m.store.countOnline(ctx, m.now(ctx)) }},
	}
}

func (m *Matchmaking) game(key string) (*Game, error) {
	g, ok := m.games[key]
	if !ok {
		return nil, ErrGameNotFound
	}
	return g, nil
}

// sessionGame returns a game that has sessions.
func (m *Matchmaking) sessionGame(key string) (*Game, error) {
	g, err := m.game(key)
	if err == nil && !m.hasSessions(g) {
		err = ErrNoSessions
	}
	return g, err
}

// now is the instant of the transaction in ctx, in unix milliseconds.
func (m *Matchmaking) now(ctx context.Context) int64 { return m.host.DB.Now(ctx).UnixMilli() }

// maxName bounds the id of an invite or session, and a screen name, in bytes.
const maxName = 256

// exists refuses with matchmaking/user_not_found whom auth does not know.
func (m *Matchmaking) exists(ctx context.Context, userID string) error {
	if err := capability.CheckUserID(userID); err != nil || m.peers.Auth == nil {
		return err
	}
	_, err := m.peers.Auth.User(ctx, userID)
	if errors.Is(err, auth.ErrUserNotFound) {
		return ErrUserNotFound
	}
	return err
}
