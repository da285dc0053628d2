package matchmaking

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/multiplayer"
)

// Config configures matchmaking.
type Config struct {
	// Games is required: at least one, each key once.
	Games []Game
	// NoFriends leaves the friend routes out.
	NoFriends bool
	// Codes stores the room codes, under matchmaking:<code>; the specification's binding
	// MATCHMAKING. By default they are entries of the database, kv.NewSQL. A store whose
	// put-if-absent is not atomic is refused.
	Codes kv.Store
	// Database names the binding that holds everything else, by default "DB". Multiplayer must use
	// the same one.
	Database string
	// BasePath is the mount prefix, by default "/matchmaking".
	BasePath string
}

// Game is one game that has rooms, invites and a queue.
type Game struct {
	// Key names the game in paths: 1 to 64 letters, digits, hyphens and underscores.
	Key string `json:"key"`
	// Players is required: how many players form a match, 2 to [MaxPlayers].
	Players int `json:"players"`
	// SkillPool is the rating pool that players are matched by. Without one, and if rating is not
	// composed, players are matched by region only.
	SkillPool string `json:"skillPool,omitempty"`
	// Snapshot is the game that sessions are created from. Without one, and if multiplayer is not
	// composed, players are still paired, but no session is created, and there are neither rooms
	// nor invites. Its key and players are by default those of the game.
	Snapshot *multiplayer.Game `json:"snapshot"`
	// SnapshotFor, optional, returns the game for a session of the given players, such as Snapshot
	// with other rules. It must not change the key, the mode and the number of players. It runs in
	// the transaction of the session, which may be retried, so it must not have side effects. Its
	// error refuses the room, invite or match.
	SnapshotFor func(ctx context.Context, base multiplayer.Game, players []string) (multiplayer.Game, error) `json:"-"`
	// Regions are the separate queues of the game, by default one, "default". A request without a
	// region enters the first.
	Regions   []string  `json:"regions"`
	RoomCodes RoomCodes `json:"roomCodes"`
	Queue     Queue     `json:"queue"`
}

// MaxPlayers bounds the players of one match.
const MaxPlayers = 1000

// RoomCodes bounds the use of a room code.
type RoomCodes struct {
	// TTLSeconds is how long a code is valid and its session waits for players, 10 to 86,400, by
	// default 900.
	TTLSeconds int `json:"ttlSeconds"`
	// MaxUses is how many players can join by the code, 1 to 1,000, by default 9.
	MaxUses int `json:"maxUses"`
}

// Queue configures whom a waiting player can be matched with.
type Queue struct {
	// InitialBand is the largest difference of the skills in a match at first; zero matches equal
	// skills only. Nil means no bound: the nearest skills are matched at once.
	InitialBand *float64 `json:"initialBand,omitempty"`
	// WidenPerSecond is how much the band grows with every second of waiting.
	WidenPerSecond float64 `json:"widenPerSecond"`
	// MaxWaitSeconds is the waiting time after which there is no bound; zero means never.
	MaxWaitSeconds int `json:"maxWaitSeconds"`
	// SweepSeconds is how often matches are made, 1 to 60, by default 5.
	SweepSeconds int `json:"sweepSeconds"`
}

// band returns the largest difference of skills after some waiting, infinite if there is no bound.
func (q Queue) band(waited time.Duration) float64 {
	if q.InitialBand == nil || q.overdue(waited) {
		return math.Inf(1)
	}
	return *q.InitialBand + q.WidenPerSecond*max(waited, 0).Seconds()
}

func (q Queue) overdue(waited time.Duration) bool {
	return q.MaxWaitSeconds > 0 && waited >= q.maxWait()
}

func (q Queue) maxWait() time.Duration { return time.Duration(q.MaxWaitSeconds) * time.Second }
func (q Queue) sweep() time.Duration   { return time.Duration(q.SweepSeconds) * time.Second }

// patience is how long a ticket is kept if its player neither requests its status nor has a
// presence socket.
func (q Queue) patience() time.Duration { return max(time.Minute, q.maxWait()) }

const (
	maxRegions = 32
	maxWait    = 24 * 60 * 60
)

var keyForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

func (c Config) withDefaults() Config {
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/matchmaking")
	c.Games = slices.Clone(c.Games)
	for i := range c.Games {
		g := &c.Games[i]
		if len(g.Regions) == 0 {
			g.Regions = []string{"default"}
		}
		g.RoomCodes.TTLSeconds = cmp.Or(g.RoomCodes.TTLSeconds, 900)
		g.RoomCodes.MaxUses = cmp.Or(g.RoomCodes.MaxUses, 9)
		g.Queue.SweepSeconds = cmp.Or(g.Queue.SweepSeconds, 5)
		if g.Snapshot != nil {
			snapshot := *g.Snapshot
			snapshot.Key = cmp.Or(snapshot.Key, g.Key)
			snapshot.Mode = cmp.Or(snapshot.Mode, multiplayer.ModeMatch)
			snapshot.Players = cmp.Or(snapshot.Players, g.Players)
			g.Snapshot = &snapshot
		}
	}
	return c
}

func (c Config) validate(peers Peers) error {
	faults := capability.Faults{Capability: Name}
	if len(c.Games) == 0 {
		faults.Add("games", nil, "is empty", "declare at least one game")
	}
	if c.Codes != nil && !c.Codes.Atomic() {
		faults.Add("codes", nil, "has no atomic put-if-absent", "use a store whose Atomic is true: two rooms would get one code")
	}
	seen := make(map[string]bool)
	for i, g := range c.Games {
		at := fmt.Sprintf("games[%d].", i)
		if seen[g.Key] {
			faults.Add(at+"key", g.Key, "is declared twice", "declare each game once")
		}
		seen[g.Key] = true
		g.validate(&faults, at, peers)
	}
	return faults.Err()
}

func (g Game) validate(faults *capability.Faults, at string, peers Peers) {
	if !keyForm.MatchString(g.Key) {
		faults.Add(at+"key", g.Key, "is not a path segment", "use 1 to 64 letters, digits, hyphens and underscores")
	}
	between := func(key string, n, least, most int) {
		if n < least || n > most {
			faults.Add(at+key, n, "is out of range", fmt.Sprintf("use %d to %d", least, most))
		}
	}
	between("players", g.Players, 2, MaxPlayers)
	between("roomCodes.ttlSeconds", g.RoomCodes.TTLSeconds, 10, 24*60*60)
	between("roomCodes.maxUses", g.RoomCodes.MaxUses, 1, 1000)
	between("queue.maxWaitSeconds", g.Queue.MaxWaitSeconds, 0, maxWait)
	between("queue.sweepSeconds", g.Queue.SweepSeconds, 1, 60)
	width := func(key string, width float64) {
		if !(width >= 0) || math.IsInf(width, 1) {
			faults.Add(at+"queue."+key, width, "is not a width", "use a number of at least 0")
		}
	}
	if g.Queue.InitialBand != nil {
		width("initialBand", *g.Queue.InitialBand)
	}
	width("widenPerSecond", g.Queue.WidenPerSecond)
	if g.SkillPool != "" && peers.Rating != nil && !peers.Rating.HasPool(g.SkillPool) {
		faults.Add(at+"skillPool", g.SkillPool, "is no pool of rating", "name the pool of a rated game, or leave it out to match by region only")
	}
	g.validateRegions(faults, at)
	g.validateSnapshot(faults, at, peers)
}

func (g Game) validateRegions(faults *capability.Faults, at string) {
	if len(g.Regions) > maxRegions {
		faults.Add(at+"regions", len(g.Regions), "are too many", fmt.Sprintf("use at most %d", maxRegions))
	}
	for i, region := range g.Regions {
		if !keyForm.MatchString(region) || slices.Contains(g.Regions[:i], region) {
			faults.Add(fmt.Sprintf("%sregions[%d]", at, i), region, "is not a name of its own", "use 1 to 64 letters, digits, hyphens and underscores, each once")
		}
	}
}

func (c Config) keys() []capability.ConfigKey {
	friends := "on"
	if c.NoFriends {
		friends = "off"
	}
	codes := "database"
	if c.Codes != nil {
		codes = "own"
	}
	return []capability.ConfigKey{
		{Key: "games", Value: c.Games, Summary: "The games, their queues and room codes."},
		{Key: "friends", Value: friends, Choices: []string{"on", "off"}, Summary: "Whether the friend routes are mounted."},
		{Key: "codes", Value: codes, Choices: []string{"database", "own"}, Summary: "Where room codes are kept."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds rooms, invites, friends, queue and presence."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}
