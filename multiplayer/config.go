package multiplayer

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/socket"
	"github.com/kitbackend/kit/leaderboard"
)

// Config configures multiplayer.
type Config struct {
	// Games are the games that sessions are created from, each key once. It may be empty if only
	// matchmaking creates sessions, from games of its own.
	Games []Game
	// Models are the models of the games, one for each kind. At least one is required.
	Models []Model
	// OpenTimeout is how long a session waits for players before it is abandoned, by default 24
	// hours, unless its [Start] says that it is shorter.
	OpenTimeout time.Duration
	// Retention is how long the log of a session is kept after its end, by
	// default 30 days; the result stays.
	Retention time.Duration
	// Database names the binding that holds the sessions, by default "DB". The ledger, the
	// leaderboard and rating must use the same one.
	Database string
	// BasePath is the mount prefix, by default "/multiplayer".
	BasePath string
}

// Mode says whether players can join and leave during the game.
type Mode string

// The two modes.
const (
	// ModeMatch has a fixed roster: it begins when the last player has joined.
	ModeMatch Mode = "match"
	// ModeTable begins with the players that its model needs; more join and leave while it is
	// played.
	ModeTable Mode = "table"
)

// MaxSeats bounds the players of one session.
const MaxSeats = 10_000

// Game is the configuration of one game. A session keeps the configuration that it was created
// with; later changes do not affect it.
type Game struct {
	// Key names the game in paths: 1 to 64 letters, digits, hyphens and underscores.
	Key string
	// Kind names the model.
	Kind string
	// Mode is [ModeMatch] by default.
	Mode Mode
	// Players is the roster of a match, and the most players of a table; by default 2, at most
	// [MaxSeats].
	Players int
	// Rules configure the model, whose schema they must fit: the model's own
	// type, or JSON. Nil means an empty object.
	Rules any
	// TurnTimeout is how long a session waits for the next action before the model's OnTimeout is
	// called or, without one, the session is abandoned, in whole milliseconds. Zero waits
	// indefinitely.
	TurnTimeout time.Duration
	// FramesPerSecond is how many frames of one socket are accepted per second, and how many at
	// once: by default 20, at most [MaxFramesPerSecond]. A real-time game that sends the input of
	// its players 60 times a second sets 60.
	FramesPerSecond int
	// Leaderboard, optional, configures the points of a finished game.
	Leaderboard *Scoring
}

// MaxFramesPerSecond bounds [Game].FramesPerSecond. A socket is read at no more than 512 KiB a
// second in any case.
const MaxFramesPerSecond = 500

// Scoring submits points to a board for every ranked player.
type Scoring struct {
	// Board is the key of a configured board, usually one that sums.
	Board  string `json:"board"`
	Points Points `json:"points"`
}

// Points are the points of an outcome. A player or team that is alone in first place wins; those
// who share first place draw; everybody else loses.
type Points struct {
	Win  int64 `json:"win"`
	Draw int64 `json:"draw"`
	Loss int64 `json:"loss"`
}

// needed is how many players begin the game: the roster of a match, or as many
// as the model of a table needs.
func (g Game) needed(model Model) int {
	if g.Mode == ModeTable {
		return model.min
	}
	return g.Players
}

// gameJSON is the JSON form of a game, stored and shown.
type gameJSON struct {
	Key           string          `json:"key"`
	Kind          string          `json:"kind"`
	Mode          Mode            `json:"mode"`
	Players       int             `json:"players"`
	Rules         json.RawMessage `json:"rules"`
	TurnTimeoutMs *int64          `json:"turnTimeoutMs"`
	Frames        int             `json:"framesPerSecond,omitempty"`
	Leaderboard   *Scoring        `json:"leaderboard"`
}

// MarshalJSON encodes the game with the member names of the specification.
func (g Game) MarshalJSON() ([]byte, error) {
	rules, err := rulesJSON(g.Rules)
	if err != nil {
		return nil, err
	}
	out := gameJSON{Key: g.Key, Kind: g.Kind, Mode: g.Mode, Players: g.Players, Rules: rules,
		Frames: g.FramesPerSecond, Leaderboard: g.Leaderboard}
	if ms := g.TurnTimeout.Milliseconds(); ms != 0 {
		out.TurnTimeoutMs = &ms
	}
	return json.Marshal(out)
}

// UnmarshalJSON decodes the output of MarshalJSON.
func (g *Game) UnmarshalJSON(data []byte) error {
	var in gameJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*g = Game{Key: in.Key, Kind: in.Kind, Mode: in.Mode, Players: in.Players, Rules: in.Rules,
		FramesPerSecond: in.Frames, Leaderboard: in.Leaderboard}
	if in.TurnTimeoutMs != nil {
		g.TurnTimeout = time.Duration(*in.TurnTimeoutMs) * time.Millisecond
	}
	return nil
}

func rulesJSON(rules any) (json.RawMessage, error) {
	if rules == nil {
		return json.RawMessage("{}"), nil
	}
	return json.Marshal(rules)
}

// validName reports whether a text can be a game's key, a kind or a session's
// id: 1 to 64 letters, digits, hyphens and underscores.
func validName(name string) bool {
	for _, c := range []byte(name) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return 1 <= len(name) && len(name) <= 64
}

func (c Config) withDefaults() Config {
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 24*time.Hour)
	c.Retention = cmp.Or(c.Retention, 30*24*time.Hour)
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/multiplayer")
	c.Games = slices.Clone(c.Games)
	for i, g := range c.Games {
		c.Games[i] = g.withDefaults()
	}
	return c
}

func (g Game) withDefaults() Game {
	g.Mode = cmp.Or(g.Mode, ModeMatch)
	g.Players = cmp.Or(g.Players, 2)
	return g
}

// resolve returns the games by key and the models by kind, or all faults.
func (c Config) resolve(peers Peers) (map[string]Game, map[string]Model, error) {
	faults := capability.Faults{Capability: Name}
	models := make(map[string]Model)
	if len(c.Models) == 0 {
		faults.Add("models", nil, "is empty", "define the model of each game with multiplayer.Define")
	}
	for i, model := range c.Models {
		at := fmt.Sprintf("models[%d]", i)
		_, taken := models[model.kind]
		switch {
		case model.engine == nil:
			faults.Add(at, nil, "is empty", "make it with multiplayer.Define")
		case model.fault != nil:
			faults.Add(at, model.kind, model.fault.Error(), "correct its definition")
		case taken:
			faults.Add(at, model.kind, "is defined twice", "give each model a kind of its own")
		default:
			models[model.kind] = model
		}
	}
	if c.OpenTimeout < time.Minute {
		faults.Add("openTimeout", c.OpenTimeout, "is less than a minute", "leave it out for the default")
	}
	if c.Retention < time.Minute {
		faults.Add("retention", c.Retention, "is less than a minute", "leave it out for the default")
	}
	games := make(map[string]Game)
	for i, g := range c.Games {
		at := fmt.Sprintf("games[%d].", i)
		if _, taken := games[g.Key]; taken {
			faults.Add(at+"key", g.Key, "is declared twice", "declare each game once")
		}
		g, list := g.check(models, peers)
		for _, fault := range list {
			fault.Key = at + fault.Key
			faults.AddFault(fault)
		}
		games[g.Key] = g
	}
	return games, models, faults.Err()
}

// check returns the game with its defaults and encoded rules, and its faults.
func (g Game) check(models map[string]Model, peers Peers) (Game, []capability.Fault) {
	var faults []capability.Fault
	add := func(key string, value any, reason, fix string) {
		faults = append(faults, capability.Fault{Key: key, Value: value, Reason: reason, Fix: fix})
	}
	if !validName(g.Key) {
		add("key", g.Key, "is not a path segment", "use 1 to 64 letters, digits, hyphens and underscores")
	}
	if g.Mode != ModeMatch && g.Mode != ModeTable {
		add("mode", g.Mode, "is not a mode", "use match or table")
	}
	if g.TurnTimeout < 0 || g.TurnTimeout%time.Millisecond != 0 {
		add("turnTimeoutMs", g.TurnTimeout, "is not a number of milliseconds", "leave it out to wait indefinitely")
	}
	if g.FramesPerSecond < 0 || g.FramesPerSecond > MaxFramesPerSecond {
		add("framesPerSecond", g.FramesPerSecond, fmt.Sprintf("is not within 1 to %d", MaxFramesPerSecond),
			fmt.Sprintf("leave it out for %d", socket.FramesPerSecond))
	}
	switch s := g.Leaderboard; {
	case s == nil:
	case peers.Leaderboard == nil:
		faults = append(faults, capability.Fault{Key: "leaderboard.board", Value: s.Board, Reason: "is of leaderboard, which is not composed",
			Fix: "compose leaderboard with this board, or leave it out", Peer: leaderboard.Name})
	case !peers.Leaderboard.Has(s.Board):
		add("leaderboard.board", s.Board, "is not a configured board", "add it to leaderboard, or leave it out")
	}
	model, ok := models[g.Kind]
	if !ok {
		fix := "give its model in Config.Models"
		if len(models) > 0 {
			fix += ", or use one of " + strings.Join(slices.Sorted(maps.Keys(models)), ", ")
		}
		add("kind", g.Kind, "has no model", fix)
		return g, faults
	}
	if g.Players < model.min || g.Players > model.max {
		add("players", g.Players, "cannot play "+g.Kind, fmt.Sprintf("use %d to %d", model.min, model.max))
	}
	if g.Mode == ModeTable && !model.table {
		add("mode", g.Mode, "needs OnJoin and OnLeave of the model "+g.Kind, "define them, or use match")
	}
	rules, err := rulesJSON(g.Rules)
	if err == nil {
		err = model.engine.checkRules(rules)
	}
	if err != nil {
		add("rules", nil, "are refused by the model "+g.Kind+": "+err.Error(), "see its Config")
	}
	g.Rules = rules
	return g, faults
}

// kinds lists the models.
func (c Config) kinds() []string {
	kinds := make([]string, len(c.Models))
	for i, model := range c.Models {
		kinds[i] = model.kind
	}
	return kinds
}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "games", Value: c.Games, Summary: "The games that sessions are created from."},
		{Key: "models", Value: c.kinds(), Summary: "The kinds of the models that games are played by."},
		{Key: "openTimeout", Value: c.OpenTimeout.String(), Summary: "How long a session waits for players."},
		{Key: "retention", Value: c.Retention.String(), Summary: "How long the log of a session is kept after its end."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the sessions."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}

// Choices lists the values, for generated documents.
func (Mode) Choices() []string { return []string{string(ModeMatch), string(ModeTable)} }
