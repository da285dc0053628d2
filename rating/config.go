package rating

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/kitbackend/kit/capability"
)

// Config configures rating.
type Config struct {
	// Games is required: at least one, each key once.
	Games []Game
	// Algorithms are the application's own, in addition to elo, glicko, trueskill and openskill.
	Algorithms []Algorithm
	// ServerAuthoritative requires the record scope for outcomes over HTTP; nil means true. If it
	// is false, a player of the outcome may record it, too.
	ServerAuthoritative *bool
	// RecordScope is the scope of an access token that may record any outcome
	// over HTTP, by default "rating:record".
	RecordScope string
	// Database names the binding that holds the ratings, by default "DB".
	Database string
	// BasePath is the mount prefix, by default "/rating".
	BasePath string
}

// Game is one kind of game.
type Game struct {
	// Key names the game in paths: 1 to 64 letters, digits, hyphens and underscores.
	Key string `json:"key"`
	// Algorithm is required: elo, glicko, trueskill, openskill or one of
	// [Config].Algorithms.
	Algorithm string `json:"algorithm"`
	// Players is the number of players, including those of teams; by default 2, at most
	// [MaxPlayers] and what the algorithm supports.
	Players int `json:"players"`
	// Pool is the ladder that the game counts for, by default one of its own with the game's key as
	// name. Games that name the same pool share it; they must have the same algorithm with the same
	// parameters. A changed algorithm needs a new pool.
	Pool string `json:"pool"`
	// XP is required.
	XP *XP `json:"xp"`
	// Levels, from worst to best, are the levels of experience points.
	Levels []Level `json:"levels,omitempty"`
	// HideSkill hides the skill from clients; players are still matched by it, through
	// [Rating.Skill].
	HideSkill bool `json:"hideSkill"`
	// SharedRoomCounts gives experience points for games with a friend, too.
	SharedRoomCounts bool `json:"sharedRoomCounts"`
	// AlgoParams are the algorithm's parameters; those left out have its defaults.
	AlgoParams map[string]any `json:"algoParams"`
}

// XP is the experience points for an outcome, each at least 0 and at most [MaxXPPerGame]. A player
// or team that is alone in first place wins; those who share first place draw; everybody else
// loses.
type XP struct {
	Win  int64 `json:"win"`
	Draw int64 `json:"draw"`
	Loss int64 `json:"loss"`
}

// Bounds of experience points.
const (
	MaxXPPerGame = 1_000_000_000
	// MaxXP is the most points of a player: the largest integer that a JavaScript number represents
	// exactly.
	MaxXP = 1<<53 - 1
)

// Level is reached with MinXP experience points.
type Level struct {
	Key   string `json:"key"`
	MinXP int64  `json:"minXp"`
}

// of returns the points of the i-th side of an outcome.
func (x XP) of(sides []Side[string], i int) int64 {
	switch {
	case sides[i].Place > 1:
		return x.Loss
	case sides[1].Place == 1:
		return x.Draw
	default:
		return x.Win
	}
}

// game is a resolved Game.
type game struct {
	Game
	pool *pool
	// teams reports whether a side may have several players.
	teams bool
}

// pool is a ladder: one algorithm with its parameters.
type pool struct {
	name, algorithm string
	rules
	checked atomic.Bool // it has committed rows of its own algorithm, and so none of another
}

// level returns the best level that the points reach, "" if there is none.
func (g *game) level(xp int64) string {
	for _, l := range slices.Backward(g.Levels) {
		if xp >= l.MinXP {
			return l.Key
		}
	}
	return ""
}

var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c Config) withDefaults() Config {
	if c.ServerAuthoritative == nil {
		c.ServerAuthoritative = new(true)
	}
	c.RecordScope = cmp.Or(c.RecordScope, "rating:record")
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/rating")
	c.Games = slices.Clone(c.Games)
	for i := range c.Games {
		g := &c.Games[i]
		g.Players = cmp.Or(g.Players, 2)
		g.Pool = cmp.Or(g.Pool, g.Key)
	}
	return c
}

// resolver checks a configuration and binds games to pools.
type resolver struct {
	capability.Faults
	algorithms map[string]Algorithm
	games      map[string]*game
	pools      map[string]*pool
}

// resolve returns the games by key and the pools by name, or all faults.
func (c Config) resolve() (map[string]*game, map[string]*pool, error) {
	r := resolver{
		Faults:     capability.Faults{Capability: Name},
		algorithms: make(map[string]Algorithm), games: make(map[string]*game), pools: make(map[string]*pool),
	}
	for i, a := range append(builtin(), c.Algorithms...) {
		r.algorithm(fmt.Sprintf("algorithms[%d]", i-len(builtin())), a)
	}
	if len(c.Games) == 0 {
		r.Add("games", nil, "is empty", "declare at least one game")
	}
	for i, g := range c.Games {
		r.game(fmt.Sprintf("games[%d].", i), g)
	}
	return r.games, r.pools, r.Err()
}

func (r *resolver) algorithm(key string, a Algorithm) {
	_, taken := r.algorithms[a.id]
	switch {
	case a.bind == nil:
		r.Add(key, nil, "is empty", "make it with rating.Define")
	case a.fault != nil:
		r.Add(key, a.id, a.fault.Error(), "correct its definition")
	case taken:
		r.Add(key, a.id, "is registered twice", "choose another id")
	default:
		r.algorithms[a.id] = a
	}
}

func (r *resolver) game(at string, g Game) {
	if !keyForm.MatchString(g.Key) {
		r.Add(at+"key", g.Key, "is not a path segment", "use 1 to 64 letters, digits, hyphens and underscores")
	}
	if !keyForm.MatchString(g.Pool) && g.Pool != g.Key {
		r.Add(at+"pool", g.Pool, "is not a name", "use 1 to 64 letters, digits, hyphens and underscores")
	}
	if _, ok := r.games[g.Key]; ok {
		r.Add(at+"key", g.Key, "is declared twice", "declare each game once")
	}
	r.xp(at, g)
	r.levels(at, g.Levels)
	r.games[g.Key] = &game{Game: g}
	a, ok := r.algorithms[g.Algorithm]
	if !ok {
		r.AddFault(capability.Fault{Key: at + "algorithm", Value: g.Algorithm, Refusal: ErrUnknownAlgorithm,
			Reason: "is not registered", Fix: "use one of " + strings.Join(slices.Sorted(maps.Keys(r.algorithms)), ", ")})
		return
	}
	if g.Players < a.min || g.Players > a.max {
		r.AddFault(capability.Fault{Key: at + "players", Value: g.Players, Refusal: ErrUnsupportedPlayerCount,
			Reason: "cannot be rated by " + a.id, Fix: fmt.Sprintf("use %d to %d, or another algorithm", a.min, a.max)})
	}
	r.games[g.Key].teams = a.teams
	r.bind(at, r.games[g.Key], a)
}

// bind gives the game its pool, a new one or one that it shares with earlier games.
func (r *resolver) bind(at string, g *game, a Algorithm) {
	rules, err := a.bind(g.AlgoParams)
	if err != nil {
		r.AddFault(capability.Fault{Key: at + "algoParams", Value: g.AlgoParams, Refusal: ErrInvalidParams,
			Reason: "are refused by " + a.id + ": " + err.Error(), Fix: "see the parameters of " + a.id})
		return
	}
	p, ok := r.pools[g.Pool]
	switch {
	case !ok:
		p = &pool{name: g.Pool, algorithm: a.id, rules: rules}
		r.pools[g.Pool] = p
	case p.algorithm != a.id:
		r.Add(at+"pool", g.Pool, "is rated by "+p.algorithm+" in another game", "use the same algorithm, or another pool")
	case !bytes.Equal(p.params, rules.params):
		r.Add(at+"pool", g.Pool, "has other algoParams in another game", "use the same parameters, or another pool")
	}
	g.pool = p
}

func (r *resolver) xp(at string, g Game) {
	if g.XP == nil {
		r.Add(at+"xp", nil, "is missing", "say what a win, a draw and a loss earn; that may be nothing")
		return
	}
	for _, points := range []int64{g.XP.Win, g.XP.Draw, g.XP.Loss} {
		if points < 0 || points > MaxXPPerGame {
			r.Add(at+"xp", points, "is out of range", "use 0 to 1000000000")
		}
	}
}

func (r *resolver) levels(at string, levels []Level) {
	seen := make(map[string]bool)
	for i, l := range levels {
		at := fmt.Sprintf("%slevels[%d]", at, i)
		if !keyForm.MatchString(l.Key) || seen[l.Key] {
			r.Add(at+".key", l.Key, "is not a name of its own", "use 1 to 64 letters, digits, hyphens and underscores, each once")
		}
		seen[l.Key] = true
		if l.MinXP < 0 || l.MinXP > MaxXP || i > 0 && l.MinXP <= levels[i-1].MinXP {
			r.Add(at+".minXp", l.MinXP, "is not more than the level before takes", "list the levels from worst to best")
		}
	}
}

// own lists the algorithms of the application.
func (c Config) own() []string {
	ids := make([]string, len(c.Algorithms))
	for i, a := range c.Algorithms {
		ids[i] = a.id
	}
	return ids
}

// keys returns the configuration with the parameters completed by the algorithms.
func (c Config) keys(games map[string]*game) []capability.ConfigKey {
	type shown struct {
		Game
		AlgoParams json.RawMessage `json:"algoParams"`
	}
	list := make([]shown, len(c.Games))
	for i, g := range c.Games {
		list[i] = shown{g, games[g.Key].pool.params}
	}
	return []capability.ConfigKey{
		{Key: "games", Value: list, Summary: "The games, and how each is rated."},
		{Key: "algorithms", Value: c.own(), Summary: "The application's own algorithms, in addition to the built-in ones."},
		{Key: "serverAuthoritative", Value: *c.ServerAuthoritative, Summary: "Whether recording an outcome over HTTP takes the scope."},
		{Key: "recordScope", Value: c.RecordScope, Summary: "The scope that may record outcomes over HTTP."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the ratings."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
