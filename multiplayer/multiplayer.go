// Package multiplayer runs games whose truth is on the server: players join
// sessions, act, and see what the game's model lets each of them see.
//
// # What it promises
//
//   - An accepted action is durable when it is acknowledged, is in the log once,
//     and follows the one before without a gap, on any number of nodes. An
//     action with an id counts once, however often it is sent.
//   - The ledger effects of a transition, its log row, its deadline and, at the
//     end, the result, the ratings and the points commit together or not at all.
//     An effect counts once by its ref. A stake that a player does not cover
//     refuses the action, and nothing of it is kept. At the end no hold of the
//     session stays open.
//   - A session whose turn is not played in time ends, or goes on, as its model
//     says, and is abandoned where that says nothing; also when the node that it
//     was played on is gone. Players who come and go put no deadline off.
//   - Everything a player sees has passed the model's Redact. Views alone show
//     anything of a state, neither in errors nor in the log of the
//     process.
//   - Randomness can be checked: the hash of the seed is known before the first
//     draw, the seed once the session is over. See [Random].
//   - The log of a session, played again, gives the same bytes. See
//     [Multiplayer.Replay].
//
// # Models
//
// A game is a pure model; see [Definition]. Package modeltest holds one to it.
//
// # Phases
//
// A session is open while it waits for players, active while it is played, then
// resolved or abandoned. A match begins with its full roster and is played to
// its end. A table begins with as many as its model needs; players come and go,
// and the player who opened it closes it: the model resolves an active one. When
// that player has left, nobody closes it. A table that the last player leaves is
// closed.
//
// # Transactions
//
// An operation joins the transaction of its context and commits or rolls back
// with the caller's own rows; outside of one it is durable when it returns. In
// a caller's transaction a refusal leaves that usable, but for one by the ledger.
//
// # The socket
//
// A player's WebSocket carries JSON text frames that their member type tells
// apart. A page, which can set no headers, offers the subprotocols kit.v1 and
// kit.bearer.<access token>; the server selects the first one. It sends:
//
//	hello  {v, sessionId, you, version, heartbeatMs, resume, ts}
//	view   {version, view}        replaces what the client has
//	patch  {from, to, ops}        RFC 6902 add, remove, replace on the view of from
//	ack    {id, version}          the action is durable
//	error  {id?, code, message, details?, retryAfterMs?}
//	ping   {ts}                   every heartbeatMs; ts is the server's clock
//	closed {phase, result}        after the last view; the socket ends
//
// and takes:
//
//	action {id, expect?, data}    the id makes it count once over reconnects
//	resume {version}              asks for the whole view, after a patch that does not fit
//	ping, pong                    signs of life; pong replies to ping
//
// hello and view follow every connect, so a client that comes back needs no
// more than to send again what was not acknowledged. A client that reads slowly skips
// versions. A frame has at most 16 KiB, and 20 a second are taken, or as many as
// the game says. Close codes:
// 1000 after closed, 1012 and 1013 to come back when the reason's retryAfterMs
// have passed, 4001 when the proof has ended, 4003 when the player has left,
// 4008 when replies pile up unread, 4010 when the user opened too many newer
// sockets.
//
// # Who may call
//
// In process, every caller that has the *Multiplayer. Over HTTP every signed-in user
// creates sessions, at most [MaxOpen] of their own waiting at a time, and joins
// those whose id they were given; the players of a session do and see the rest.
// Nobody takes more than [MaxSeated] seats at a time.
package multiplayer

import (
	"context"
	"embed"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
	"github.com/kitbackend/kit/internal/strictjson"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/rating"
)

// Name is the capability's name.
const Name = "multiplayer"

// Bounds of what callers say.
const (
	// MaxOpen is how many sessions of one creator may wait for players at a time.
	MaxOpen = 20
	// MaxSeated is how many sessions that are not over one user can have a seat in
	// by [Multiplayer.Create] and [Multiplayer.Join].
	MaxSeated = 200
	// MaxActionID bounds an action id in bytes.
	MaxActionID = 64
)

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that multiplayer uses. They live in the same
// database.
type Peers struct {
	// Ledger settles the effects of models. Without it a model that declares one
	// has its action refused as a fault.
	Ledger *ledger.Ledger
	// Leaderboard takes the points of games that name a board.
	Leaderboard *leaderboard.Leaderboard
	// Rating rates the outcomes of the games it composes under the same key.
	Rating *rating.Rating
}

// Multiplayer runs sessions. It is safe for concurrent use, from several
// processes on PostgreSQL.
type Multiplayer struct {
	host   capability.Host
	cfg    Config
	games  map[string]Game
	models map[string]Model
	peers  Peers
	log    *slog.Logger
	store  store
	owners *owners
	hub    *hub
	moves  *queue.Queue[move, struct{}]
}

// New checks the configuration, all faults at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Multiplayer, error) {
	cfg = cfg.withDefaults()
	games, models, err := cfg.resolve(peers)
	if err != nil {
		return nil, err
	}
	host = host.Complete()
	m := &Multiplayer{host: host, cfg: cfg, games: games, models: models, peers: peers, log: host.Log, store: store{host.DB}}
	m.owners = newOwners(m)
	m.hub = newHub(m)
	m.moves = m.movers()
	return m, nil
}

// Capability describes multiplayer to the kit.
func (m *Multiplayer) Capability() capability.Capability {
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
		Close:      m.close,
	}
}

// close sends the sockets elsewhere and lets what is under way finish.
func (m *Multiplayer) close(ctx context.Context) error {
	return errors.Join(m.hub.close(ctx), m.owners.close(ctx))
}

func (m *Multiplayer) health() []capability.HealthKey {
	return []capability.HealthKey{
		{Key: "open", Read: func(ctx context.Context) (any, error) { return m.store.count(ctx, PhaseOpen) }},
		{Key: "active", Read: func(ctx context.Context) (any, error) { return m.store.count(ctx, PhaseActive) }},
	}
}

// Game returns a configured game. Refuses with multiplayer/game_not_found.
func (m *Multiplayer) Game(key string) (Game, error) {
	g, ok := m.games[key]
	if !ok {
		return Game{}, ErrGameNotFound
	}
	return g, nil
}

// Check returns what is wrong with a game that [Multiplayer.Start] is to take,
// all of it: for callers that have games of their own to check at assembly. The game it
// returns has its defaults filled in.
func (m *Multiplayer) Check(g Game) (Game, error) {
	faults := capability.Faults{Capability: Name}
	checked, list := g.withDefaults().check(m.models, m.peers)
	for _, f := range list {
		faults.AddFault(f)
	}
	return checked, faults.Err()
}

// Join takes a seat; a user who has one keeps it. Refuses with
// multiplayer/session_not_found, session_full, invalid_transition when the
// session is over, kit/rate_limited when the user has [MaxSeated] seats, and
// ledger/insufficient_funds.
func (m *Multiplayer) Join(ctx context.Context, sessionID, userID string) (View, error) {
	if err := capability.CheckUserID(userID); err != nil {
		return View{}, err
	}
	ack, err := m.do(ctx, sessionID, step{kind: stepJoin, actor: userID})
	if err != nil {
		return View{}, err
	}
	return m.viewAt(ctx, sessionID, userID, ack.Version)
}

// Leave gives up a seat at a table. Refuses with multiplayer/session_not_found,
// not_a_member and, in match mode and when the session is over,
// invalid_transition.
func (m *Multiplayer) Leave(ctx context.Context, sessionID, userID string) error {
	_, err := m.do(ctx, sessionID, step{kind: stepLeave, actor: userID})
	return err
}

// Close ends a table: one that waits for players is abandoned, an active one
// resolved. Refuses with multiplayer/session_not_found, not_a_member and, in
// match mode, to all but the player who opened the table and when the session
// is over, invalid_transition.
func (m *Multiplayer) Close(ctx context.Context, sessionID, userID string) (View, error) {
	ack, err := m.do(ctx, sessionID, step{kind: stepClose, actor: userID})
	if err != nil {
		return View{}, err
	}
	return m.viewAt(ctx, sessionID, userID, ack.Version)
}

// Abandon ends a session as if its deadline had passed: its open holds go back,
// and nobody wins. It is for operators, of sessions that cannot go on; one that
// is over stays as it is. Refuses with multiplayer/session_not_found.
func (m *Multiplayer) Abandon(ctx context.Context, sessionID string) error {
	_, err := m.do(ctx, sessionID, step{kind: stepAbandon})
	return err
}

// Act brings a player's action to the model. Refuses with
// multiplayer/session_not_found, not_a_member, invalid_move and
// invalid_transition, ledger/insufficient_funds, kit/invalid_request,
// kit/idempotency_conflict, and kit/rate_limited when too many act at once.
func (m *Multiplayer) Act(ctx context.Context, sessionID, userID string, a Action) (Ack, error) {
	switch err := strictjson.Valid(a.Data); {
	case len(a.Data) > MaxAction:
		return Ack{}, capability.ErrInvalidRequest.Saying("An action has at most %d bytes.", MaxAction)
	case err != nil:
		return Ack{}, capability.ErrInvalidRequest.Saying("%s", err.Error())
	}
	a.Data = slices.Clone(a.Data)
	return m.act(ctx, sessionID, userID, a)
}

// act is Act with data that is valid and that nobody else changes.
func (m *Multiplayer) act(ctx context.Context, sessionID, userID string, a Action) (Ack, error) {
	if !validActionID(a.ID) {
		return Ack{}, capability.ErrInvalidRequest.Saying("An action id is at most %d visible ASCII characters.", MaxActionID)
	}
	return m.do(ctx, sessionID, step{kind: stepAct, actor: userID, actionID: a.ID, expect: a.Expect, data: a.Data})
}

func validActionID(id string) bool {
	visible := func(c rune) bool { return c > ' ' && c <= '~' }
	return len(id) <= MaxActionID && strings.IndexFunc(id, func(c rune) bool { return !visible(c) }) < 0
}

// do brings a step to a session: through its queue on this node or, inside of a
// transaction, at once.
func (m *Multiplayer) do(ctx context.Context, sessionID string, st step) (Ack, error) {
	if !validName(sessionID) {
		return Ack{}, ErrSessionNotFound
	}
	if st.at == 0 {
		st.at = m.host.DB.Now(ctx).UnixMilli()
	}
	if !m.host.DB.InTransaction(ctx) {
		own, err := m.owners.existing(ctx, sessionID)
		if err != nil {
			return Ack{}, err
		}
		return own.do(ctx, st)
	}
	s, err := m.load(ctx, sessionID, m.store.lock)
	if err != nil {
		return Ack{}, err
	}
	c := &call{Op: st}
	known, err := m.known(ctx, sessionID, []*call{c})
	if err != nil {
		return Ack{}, err
	}
	b := m.plan(s, []*call{c}, known)
	if len(b.steps) == 0 {
		return c.Out, c.Err
	}
	after, err := m.commit(ctx, b)
	if err != nil {
		return Ack{}, err
	}
	database.AfterCommit(ctx, func() { m.owners.forget(sessionID) })
	m.announce(ctx, after)
	return c.Out, nil
}

// View returns a session as a player sees it. Refuses with
// multiplayer/session_not_found and not_a_member.
func (m *Multiplayer) View(ctx context.Context, sessionID, userID string) (View, error) {
	s, err := m.current(ctx, sessionID)
	if err != nil {
		return View{}, err
	}
	return m.show(s, userID)
}

// viewAt is View for a caller that knows that the session has come to a version: it may
// be older than the newest, but not than that one, and as a rule costs no query.
func (m *Multiplayer) viewAt(ctx context.Context, sessionID, userID string, version int64) (View, error) {
	if version < 1 || !validName(sessionID) || m.host.DB.InTransaction(ctx) {
		return m.View(ctx, sessionID, userID)
	}
	s, err := m.owners.of(sessionID).at(ctx, version)
	if err != nil {
		return View{}, err
	}
	return m.show(s, userID)
}

func (m *Multiplayer) show(s *session, userID string) (View, error) {
	if s.broken != nil {
		return View{}, s.broken
	}
	v, err := s.view(m.models[s.game.Kind], userID)
	m.blame(s, err)
	return v, err
}

// Result returns how a session ended; a user who had a seat may read it. Refuses
// with multiplayer/session_not_found, not_a_member and, before the end,
// invalid_transition.
func (m *Multiplayer) Result(ctx context.Context, sessionID, userID string) (Result, error) {
	if !validName(sessionID) {
		return Result{}, ErrSessionNotFound
	}
	r, members, err := m.store.result(ctx, sessionID)
	if err != nil {
		return Result{}, err
	}
	if r != nil {
		if !slices.Contains(members, userID) {
			return Result{}, ErrNotAMember
		}
		return *r, nil
	}
	s, err := m.current(ctx, sessionID)
	if err != nil {
		return Result{}, err
	}
	if !slices.Contains(s.players, userID) {
		return Result{}, ErrNotAMember
	}
	return Result{}, ErrInvalidTransition.Saying("The session is not over.")
}

// Seats returns how many seats of a session are free, and its phase. Refuses
// with multiplayer/session_not_found.
func (m *Multiplayer) Seats(ctx context.Context, sessionID string) (free int, phase Phase, err error) {
	s, err := m.current(ctx, sessionID)
	if err != nil {
		return 0, "", err
	}
	return s.game.Players - len(s.players), s.phase, nil
}

// Subscribe calls f with the version that a session came to, for the changes
// of every node, one call at a time, until cancel is called. Calls may be
// skipped; 0 means that some may have been missed. It is a hint: callers that
// need to be sure read the session now and then.
func (m *Multiplayer) Subscribe(sessionID string, f func(version int64)) (cancel func()) {
	return m.host.PubSub.Subscribe(topic(sessionID), func(payload []byte) {
		version, err := strconv.ParseInt(string(payload), 10, 64)
		if err != nil {
			version = 0
		}
		f(version)
	})
}

func topic(sessionID string) string { return "multiplayer/" + sessionID }

// announce tells all nodes, after the commit, which version a session came to.
func (m *Multiplayer) announce(ctx context.Context, s *session) {
	if err := m.host.PubSub.Publish(ctx, topic(s.id), strconv.AppendInt(nil, s.version, 10)); err != nil {
		m.log.Warn("multiplayer: a change was not announced", slog.String("session", s.id), slog.Any("error", err))
	}
}

// current returns the newest version of a session.
func (m *Multiplayer) current(ctx context.Context, sessionID string) (*session, error) {
	if !validName(sessionID) {
		return nil, ErrSessionNotFound
	}
	if m.host.DB.InTransaction(ctx) {
		return m.load(ctx, sessionID, m.store.load)
	}
	version, err := m.store.version(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return nil, ErrSessionNotFound
	}
	return m.owners.of(sessionID).at(ctx, version)
}

// load reads a session and holds what it read to the model's schemas.
func (m *Multiplayer) load(ctx context.Context, sessionID string, read func(context.Context, string) (*session, error)) (*session, error) {
	s, err := read(ctx, sessionID)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, ErrSessionNotFound
	}
	s.broken = m.checkStored(s)
	return s, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, ErrSessionNotFound) {
		return nil
	}
	return err
}
