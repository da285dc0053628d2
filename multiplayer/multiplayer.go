// Package multiplayer runs server-authoritative games: players join sessions, act, and see what the
// game's model lets each of them see.
//
// # Guarantees
//
//   - An accepted action is durable when it is acknowledged, is in the log exactly once, and
//     follows the previous one without a gap, on any number of nodes. An action with an id counts
//     once, however often it is sent.
//   - The ledger effects of a transition, its log row, its deadline and, at the end, the result,
//     the ratings and the points commit together or not at all. An effect counts once by its ref.
//     If a player cannot cover a stake, the action is refused and nothing of it is stored. At the
//     end no hold of the session stays open.
//   - When a turn is not played in time, the model decides whether the session ends or continues,
//     and the session is abandoned if the model does not decide; also when the node that it was
//     played on is gone. Joining and leaving do not postpone a deadline.
//   - Everything a player sees has passed the model's Redact. Only views show anything of a state;
//     neither errors nor the log of the process do.
//   - Randomness can be checked: the hash of the seed is known before the first draw, the seed once
//     the session is over. See [Random].
//   - Replaying the log of a session gives the same bytes. See [Multiplayer.Replay].
//
// # Models
//
// A game is a pure model; see [Definition]. Package modeltest checks that a model is one.
//
// # Phases
//
// A session is open while it waits for players, active while it is played, then resolved or
// abandoned. While it is open every player can leave, and the player who opened it can close it; it
// is abandoned when it is closed, when its last player leaves, and after [Config].OpenTimeout. A
// match begins with its full roster and is played to its end. A table begins with as many players as
// its model needs; players come and go, and the player who opened it can close it: the model then
// resolves it. After that player has left, nobody can close a session. A table is closed when its
// last player leaves.
//
// # Erased users
//
// Erasing a user abandons the matches that they play, and the tables that hold a stake of theirs; in
// other sessions they leave their seat, and what they did stays until [Config].Retention after the
// end. Their sessions that are over keep only who played and how they ended: the state of every view
// is null, and the log is gone. The other players can read that, the sockets get it as the last view,
// and the results are as after any other end.
//
// # Transactions
//
// An operation joins the transaction of its context and commits or rolls back with the caller's own
// rows; outside of one it is durable when it returns. A refusal leaves the caller's transaction
// usable, unless the ledger refused.
//
// # The socket
//
// A player's WebSocket carries JSON text frames, distinguished by their member type. A page, which
// can set no headers, offers the subprotocols kit.v1 and kit.bearer.<access token>; the server
// selects the first one. The server sends:
//
//	hello  {v, sessionId, you, version, heartbeatMs, resume, ts}
//	view   {version, view}        replaces the client's view
//	patch  {from, to, ops}        RFC 6902 add, remove, replace on the view of from
//	ack    {id, version}          the action is durable
//	error  {id?, code, message, details?, retryAfterMs?}
//	ping   {ts}                   every heartbeatMs; ts is the server's clock
//	closed {phase, result}        after the last view; the socket ends
//
// The client sends:
//
//	action {id, expect?, data}    the id makes it count once across reconnects
//	resume {version}              requests the whole view, after a patch that does not apply
//	ping, pong                    signs of life; pong replies to ping
//
// hello and view follow every connect, so a client that reconnects only has to resend the actions
// that were not acknowledged. A client that reads slowly skips versions. A frame has at most 16
// KiB, and 20 a second are accepted unless the game sets another rate. Close codes: 1000 after
// closed; 1012 and 1013 ask the client to reconnect after the retryAfterMs of the reason; 4001 when
// the proof has ended, 4003 when the player has left, 4008 when the client does not read its
// replies, 4010 when the user opened too many newer sockets.
//
// # Who may call
//
// In process, every caller that has the *Multiplayer. Over HTTP every signed-in user creates
// sessions, at most [MaxOpen] of which wait for players at a time, and joins sessions whose id they
// know; the other routes of a session are for its players. Nobody takes more than [MaxSeated] seats
// at a time.
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

// Bounds of the arguments of callers.
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

// Peers are the capabilities that multiplayer uses. They must use the same database.
type Peers struct {
	// Ledger settles the effects of models. Without it, an action for which the model declares an
	// effect fails as a fault.
	Ledger *ledger.Ledger
	// Leaderboard receives the points of games that name a board.
	Leaderboard *leaderboard.Leaderboard
	// Rating rates the outcomes of games that it has composed under the same key.
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

// New checks the configuration and reports all faults at once; it does no I/O.
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

// close tells the clients of the sockets to reconnect and waits for the calls under way.
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

// Check returns the game with its defaults filled in, and all faults of a game that is meant for
// [Multiplayer.Start]. It is for callers that check games of their own at assembly.
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

// Leave gives up a seat at a table, or in a session that waits for players, which is abandoned with
// its last player. Refuses with multiplayer/session_not_found, not_a_member and, when a match has
// begun and when the session is over, invalid_transition.
func (m *Multiplayer) Leave(ctx context.Context, sessionID, userID string) error {
	_, err := m.do(ctx, sessionID, step{kind: stepLeave, actor: userID})
	return err
}

// Close ends a session that waits for players, which is abandoned, or an active table, which is
// resolved. Refuses with multiplayer/session_not_found, multiplayer/not_a_member and
// multiplayer/invalid_transition: when a match has begun, when the session is over, and to every
// player except the one who opened the session.
func (m *Multiplayer) Close(ctx context.Context, sessionID, userID string) (View, error) {
	ack, err := m.do(ctx, sessionID, step{kind: stepClose, actor: userID})
	if err != nil {
		return View{}, err
	}
	return m.viewAt(ctx, sessionID, userID, ack.Version)
}

// Abandon ends a session as if its deadline had passed, without the model: its open holds are
// released, and nobody wins. It is for operators, for sessions that cannot continue; a session that
// is over stays as it is. Refuses with multiplayer/session_not_found.
func (m *Multiplayer) Abandon(ctx context.Context, sessionID string) error {
	_, err := m.do(ctx, sessionID, step{kind: stepAbandon})
	return err
}

// Act applies a player's action by the model. Refuses with multiplayer/session_not_found,
// not_a_member, invalid_move and invalid_transition, ledger/insufficient_funds,
// kit/invalid_request, kit/idempotency_conflict, and kit/rate_limited when too many players act at
// once.
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

// act is Act with valid data that nobody else changes.
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

// do applies a step to a session: through its queue on this node or, inside of a transaction, at
// once.
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

// viewAt is View for a caller that knows a version of the session. The view may be older than the
// newest one, but not older than that version, and usually costs no query.
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

// Subscribe calls f with each new version of a session, for the changes of every node, one call at
// a time, until cancel is called. Calls may be skipped; version 0 means that some may have been
// missed. It is a hint: callers that must not miss a change also read the session now and then.
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

// announce notifies all nodes, after the commit, of the new version of a session.
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

// load reads a session and checks it against the model's schemas.
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
