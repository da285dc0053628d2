// Package rating rates players: a skill rating by Elo, Glicko-2, TrueSkill, OpenSkill or an
// algorithm of the application's own, and experience points with levels.
//
// # Guarantees
//
//   - An outcome changes all of its players or none. Outcomes that share players are applied one
//     after another, on any number of nodes: none is lost, none counts twice, and they do not
//     deadlock. (Two transactions that each record several outcomes may deadlock; the database then
//     aborts one, which is repeated.)
//   - An operation joins the transaction of its context and commits or rolls back with the caller's
//     own rows; outside of one it is durable when it returns. A refusal of the arguments changes
//     nothing.
//   - The same history gives the same ratings, to the last bit, on every database and every
//     processor. Players are sorted before they are rated, so the order in which an outcome names
//     them does not matter; products are rounded before they are added, so that no processor fuses
//     them; logarithms and exponentials are the module's own.
//   - Experience points never decrease.
//
// # Pools
//
// A game counts for a pool, by default one of its own; games that name the same pool share a
// ladder. A player has one row per pool, and a pool is always rated by the same algorithm: a row
// names its algorithm, and a pool that has rows of another algorithm than the configured one
// refuses outcomes and is reported as unhealthy. A changed algorithm needs a new pool.
//
// # Algorithms
//
//	id         players  teams  skill                 parameters and their defaults
//	elo        2        no     rating                k 32, initial 1500
//	glicko     2        no     rating - 2 deviation  tau 0.5, rating 1500, deviation 350, volatility 0.06
//	trueskill  2 and up yes    mu - 3 sigma          mu 25, sigma 25/3, beta 25/6, tau 25/300, drawProbability 0.1
//	openskill  2 and up yes    mu - 3 sigma          mu 25, sigma 25/3, beta 25/6, tau 25/300
//
// One outcome has at most [MaxPlayers] players.
//
// A player who was never rated has the algorithm's initial values and no games. [Define] adds
// algorithms.
//
// # Who may call
//
// In process, every caller that has the *Rating. Over HTTP every user reads every player's rating.
// Recording an outcome requires an access token with the scope Config.RecordScope, whose bearer
// need not have played; if Config.ServerAuthoritative is false, a player of the outcome may record
// it, too.
package rating

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/jobs"
)

// Name is the capability's name.
const Name = "rating"

// MaxRatings is the most players that one call of [Rating.Ratings] reads.
const MaxRatings = 1000

// KeyLifetime is how long an outcome's key is remembered.
const KeyLifetime = 7 * 24 * time.Hour

//go:embed migrations/*.sql
var migrations embed.FS

// Peers are the capabilities that rating uses.
type Peers struct {
	// Audit records outcomes; nil records nothing.
	Audit *audit.Audit
	// Friends returns which of the players have a friend among them: those earn no experience
	// points, unless the game's SharedRoomCounts is set. It may look up its capability when it is
	// called. Without it every game earns points.
	Friends func(ctx context.Context, userIDs []string) ([]string, error)
}

// Rating rates players. It is safe for concurrent use, from several processes
// on PostgreSQL.
type Rating struct {
	cfg   Config
	games map[string]*game
	pools map[string]*pool
	db    *database.DB
	store store
	peers Peers
}

// New checks the configuration and reports all faults at once; it does no I/O.
func New(host capability.Host, cfg Config, peers Peers) (*Rating, error) {
	cfg = cfg.withDefaults()
	games, pools, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	return &Rating{cfg: cfg, games: games, pools: pools, db: host.DB, store: store{host.DB}, peers: peers}, nil
}

// Capability describes rating to the kit.
func (r *Rating) Capability() capability.Capability {
	return capability.Capability{
		Name:       Name,
		Version:    "1.0.0",
		Database:   r.db,
		Prefix:     r.cfg.BasePath,
		Routes:     r.routes(),
		Config:     r.cfg.keys(r.games),
		Health:     r.health(),
		Migrations: migrations,
		Jobs: []jobs.Binding{
			{Name: "RATING_SWEEP", Schedule: "41 * * * *", Run: r.sweep},
			{Name: "RATING_COUNT", Schedule: "*/10 * * * *", Run: func(ctx context.Context, _ jobs.Job) error { return r.count(ctx) }},
		},
		Refusals: refusals(),
		Export:   r.export,
		Erase:    r.erase,
	}
}

// HasPool reports whether a game counts for a pool of this name.
func (r *Rating) HasPool(name string) bool {
	_, ok := r.pools[name]
	return ok
}

// Record rates the players of a game by its outcome, which is audited. Refuses with
// rating/game_not_found, rating/unsupported_player_count, kit/invalid_request and
// kit/idempotency_conflict; the last one fails the transaction that it joined.
func (r *Rating) Record(ctx context.Context, game string, o Outcome) (Result, error) {
	g, ok := r.games[game]
	if !ok {
		return Result{}, ErrGameNotFound
	}
	sides, err := g.sides(o)
	if err != nil {
		return Result{}, err
	}
	friends, err := r.friends(ctx, g, sides)
	if err != nil {
		return Result{}, err
	}
	if err := r.check(ctx, g.pool); err != nil { // before the caller's transaction is joined, which stays usable
		return Result{}, err
	}
	var result Result
	var broken error
	joined := r.db.InTransaction(ctx)
	err = r.db.InTx(ctx, func(ctx context.Context) (err error) {
		broken = nil
		result, err = r.once(ctx, g, sides, o.Key, func() (Result, error) { return r.record(ctx, g, sides, friends) })
		if joined && errors.Is(err, ErrBroken) { // the caller's transaction stays usable
			broken, err = err, nil
		}
		return err
	})
	if err = cmp.Or(err, broken); err != nil {
		return Result{}, err
	}
	return result, nil
}

// friends returns the players who do not earn points because they play with a friend.
func (r *Rating) friends(ctx context.Context, g *game, sides []Side[string]) ([]string, error) {
	if g.SharedRoomCounts || r.peers.Friends == nil {
		return nil, nil
	}
	return r.peers.Friends(ctx, playersOf(sides))
}

// once records an outcome, or returns the result of the first use of its key. The key is claimed
// before any player is locked, so that a concurrent call waits for the key.
func (r *Rating) once(ctx context.Context, g *game, sides []Side[string], key string, record func() (Result, error)) (Result, error) {
	if key == "" {
		return record()
	}
	hash := fingerprint(sides)
	claimed, err := r.store.claim(ctx, g.Key, key, hash, r.db.Now(ctx))
	if err != nil {
		return Result{}, err
	}
	if !claimed {
		return r.replay(ctx, g, key, hash)
	}
	result, err := record()
	if errors.Is(err, ErrBroken) { // the key stays free for a later attempt
		if failed := r.store.unclaim(ctx, g.Key, key); failed != nil {
			return Result{}, failed
		}
	}
	if err != nil {
		return Result{}, err
	}
	encoded, err := json.Marshal(result)
	if err != nil {
		return Result{}, err
	}
	return result, r.store.keep(ctx, g.Key, key, string(encoded))
}

func (r *Rating) replay(ctx context.Context, g *game, key, hash string) (result Result, err error) {
	first, encoded, err := r.store.recall(ctx, g.Key, key)
	if err != nil {
		return result, err
	}
	if first != hash {
		return result, capability.ErrIdempotencyConflict.Saying("This key was used for another outcome.")
	}
	result.Replayed = true
	return result, json.Unmarshal([]byte(encoded), &result)
}

// check refuses a pool with rows of another algorithm. Committed rows of the pool's own algorithm
// keep others out, so the check is not repeated once there are some.
func (r *Rating) check(ctx context.Context, p *pool) error {
	if p.checked.Load() {
		return nil
	}
	own, err := r.store.check(ctx, p)
	if err == nil && own {
		database.AfterCommit(ctx, func() { p.checked.Store(true) })
	}
	return err
}

// record rates the sides with all of their players locked.
func (r *Rating) record(ctx context.Context, g *game, sides []Side[string], friends []string) (Result, error) {
	now := r.db.Now(ctx).UnixMilli()
	if !g.pool.checked.Load() {
		if err := r.store.first(ctx, g.pool); err != nil {
			return Result{}, err
		}
		if err := r.check(ctx, g.pool); err != nil {
			return Result{}, err
		}
	}
	rows, err := r.store.lock(ctx, g.pool, playersOf(sides), now)
	if err != nil {
		return Result{}, err
	}
	states := make([]Side[string], len(sides))
	for i, side := range sides {
		states[i] = Side[string]{side.Place, make([]string, len(side.Players))}
		for j, id := range side.Players {
			states[i].Players[j] = rows[id].state
		}
	}
	after, err := g.pool.updated(states)
	if err != nil {
		return Result{}, err
	}
	result := Result{Game: g.Key, Pool: g.pool.name}
	for i, side := range sides {
		points := g.XP.of(sides, i)
		for j, id := range side.Players {
			row := rows[id]
			before := g.standing(row)
			row.rated = after[i][j]
			row.games++
			row.updatedAt = now
			if !slices.Contains(friends, id) {
				row.xp = min(row.xp+points, MaxXP)
			}
			rows[id] = row
			result.Players = append(result.Players, Change{UserID: id, Place: side.Place, Before: before, After: g.standing(row)})
		}
	}
	if err := r.store.save(ctx, g.pool, rows); err != nil {
		return Result{}, err
	}
	return result, r.peers.Audit.Record(ctx, event(result))
}

// updated calls the algorithm's update and returns a panic as an error.
func (p *pool) updated(states []Side[string]) (after [][]rated, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = p.broken(fmt.Errorf("%s panicked: %v", p.algorithm, value))
		}
	}()
	if after, err = p.update(states); err != nil {
		return nil, p.broken(err)
	}
	return after, nil
}

func (p *pool) broken(err error) error { return fmt.Errorf("%w: pool %s: %w", ErrBroken, p.name, err) }

// standing returns a row as shown by the game.
func (g *game) standing(row row) Standing {
	s := Standing{XP: row.xp, Level: g.level(row.xp), GamesPlayed: row.games}
	if !g.HideSkill {
		s.Skill = &row.skill
		s.Rating, s.Deviation = g.pool.known(row.state)
	}
	if row.games > 0 {
		s.UpdatedAt = capability.Millis(row.updatedAt)
	}
	return s
}

// Rating returns one player's rating in a game. Refuses with
// rating/game_not_found and kit/invalid_request.
func (r *Rating) Rating(ctx context.Context, game, userID string) (Player, error) {
	players, err := r.Ratings(ctx, game, userID)
	if err != nil {
		return Player{}, err
	}
	return players[0], nil
}

// Ratings returns many players by one query, in the order of the ids. It takes at most [MaxRatings]
// ids; refuses as [Rating.Rating] does.
func (r *Rating) Ratings(ctx context.Context, game string, userIDs ...string) ([]Player, error) {
	g, ok := r.games[game]
	if !ok {
		return nil, ErrGameNotFound
	}
	rows, err := r.rows(ctx, g.pool, userIDs)
	if err != nil {
		return nil, err
	}
	players := make([]Player, len(userIDs))
	for i, row := range rows {
		players[i] = Player{UserID: userIDs[i], Pool: g.pool.name, Standing: g.standing(row)}
	}
	return players, nil
}

// ListTop lists the players of a game's pool, the most skilled first. With equal skill the greater
// user id comes first. Refuses with rating/game_not_found and kit/invalid_request.
func (r *Rating) ListTop(ctx context.Context, game string, page capability.Page) (capability.Items[Player], error) {
	var none capability.Items[Player]
	g, ok := r.games[game]
	if !ok {
		return none, ErrGameNotFound
	}
	page = page.Bounded()
	var skill, below string
	later, err := page.After(&skill, &below)
	if err != nil {
		return none, err
	}
	from := math.Inf(1)
	if later {
		if from, err = strconv.ParseFloat(skill, 64); err != nil || math.IsNaN(from) || math.IsInf(from, 0) {
			return none, capability.ErrInvalidRequest.Saying("The cursor is not one of this list.")
		}
	}
	rows, err := r.store.top(ctx, g.pool, from, below, later, page.Limit+1)
	if err != nil {
		return none, err
	}
	paged := capability.Paged(page, rows, func(row row) []any {
		return []any{strconv.FormatFloat(row.skill, 'g', -1, 64), row.userID}
	})
	players := make([]Player, len(paged.Items))
	for i, row := range paged.Items {
		players[i] = Player{UserID: row.userID, Pool: g.pool.name, Standing: g.standing(row)}
	}
	return capability.Items[Player]{Items: players, NextCursor: paged.NextCursor}, nil
}

// Skill returns the number that a player is matched by, hidden or not. Refuses with
// rating/pool_not_found and kit/invalid_request.
func (r *Rating) Skill(ctx context.Context, pool, userID string) (float64, error) {
	p, ok := r.pools[pool]
	if !ok {
		return 0, ErrPoolNotFound
	}
	rows, err := r.rows(ctx, p, []string{userID})
	if err != nil {
		return 0, err
	}
	return rows[0].skill, nil
}

// rows returns the players' rows in the order of the ids, with the initial values for players
// without a row.
func (r *Rating) rows(ctx context.Context, p *pool, userIDs []string) ([]row, error) {
	if len(userIDs) > MaxRatings {
		return nil, capability.ErrInvalidRequest.Saying("At most %d players at once.", MaxRatings)
	}
	for _, id := range userIDs {
		if err := capability.CheckUserID(id); err != nil {
			return nil, err
		}
	}
	stored, err := r.store.read(ctx, p, selectRows, userIDs)
	if err != nil {
		return nil, err
	}
	rows := make([]row, len(userIDs))
	for i, id := range userIDs {
		var ok bool
		if rows[i], ok = stored[id]; !ok {
			rows[i] = row{userID: id, rated: p.initial}
		} else if err := p.valid(rows[i].state); err != nil {
			return nil, p.broken(err)
		}
	}
	return rows, nil
}

// poolNames lists the pools in order.
func (r *Rating) poolNames() []string { return slices.Sorted(maps.Keys(r.pools)) }
