// Package matchmaking brings players together: rooms with codes, invites, friends, a queue by skill
// and region, and presence.
//
// # Guarantees
//
//   - A ticket of the queue is matched once, however many nodes there are. One node at a time
//     sweeps a game, under a lease whose epoch every claim checks; when that node dies another one
//     takes over and no ticket is lost.
//   - A match becomes one session. The claim of its tickets and the job that creates the session
//     commit together, and the session has the id of the match, so a repeated job finds it.
//   - Players are matched only within the skill bands of all of them, which widen with waiting,
//     unless one has waited longer than MaxWaitSeconds: then players who have waited for a sweep
//     may be taken regardless of skill, the nearest skill first.
//   - A room code is used at most MaxUses times. Each use is a seat; both are taken or neither is.
//     Codes that were never issued, have expired or are used up get the same refusal, and only some
//     wrong codes per minute are checked.
//   - Users do not see users whom they block or who block them: no requests, invites, presence or
//     matches. The two can only meet through the code of a room, or through free seats that a
//     caller offers.
//   - Presence is stored in rows that are written when the first socket of a user on a node opens
//     and some seconds after the last one has closed, never for a heartbeat; the users of a dead
//     node go offline within 15 seconds.
//   - An operation joins the transaction of its context; events are pushed to sockets after its
//     commit. Pushes are hints, delivered at most once: the routes read the stored state.
//
// # Without a peer
//
// Without auth every route refuses, as all user routes do, and user ids are not checked. Without
// rating, and in a game without SkillPool, the queue matches by region only. Without multiplayer,
// and in a game without Snapshot, players are paired and the queue returns matched without a
// session id; rooms and invites are refused with matchmaking/no_sessions.
//
// # Who may call
//
// In process, every caller that has the *Matchmaking; blocking, parties, backfill and matches are
// available only there. Over HTTP all signed-in users, for themselves.
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
	// Auth looks up users, by id and by name.
	Auth *auth.Auth
	// Rating provides the skills of players.
	Rating *rating.Rating
	// Multiplayer holds the sessions of matches, rooms and invites.
	Multiplayer *multiplayer.Multiplayer
	// Audit records blocks.
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
	// drawCode is newCode, except in a test of code collisions.
	drawCode func() string
	guesses  *guesses
	asks     *rate.Limiter // limits friend requests
	invites  *rate.Limiter
	sweeps   sweeps
	presence *presence
}

// The rates of a user's friend requests and invites.
var (
	friendRequests = rate.Limit{Events: 30, Per: time.Hour}
	inviteRate     = rate.Limit{Events: 30, Per: time.Minute}
)

// New checks the configuration and reports all faults at once; it does no I/O.
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

// now returns the instant of the transaction in ctx, in unix milliseconds.
func (m *Matchmaking) now(ctx context.Context) int64 { return m.host.DB.Now(ctx).UnixMilli() }

// maxName bounds the id of an invite or session, and a screen name, in bytes.
const maxName = 256

// exists refuses users unknown to auth with matchmaking/user_not_found.
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
