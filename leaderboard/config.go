package leaderboard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/cron"
)

// Config configures the leaderboard.
type Config struct {
	// Boards is required: at least one, each key once.
	Boards []Board
	// Rank configures how ranks are computed; the zero value means live.
	Rank Rank
	// AdminScope is the scope of an access token that may hide players and remove entries over
	// HTTP, by default "leaderboard:admin".
	AdminScope string
	// SubmitScope is the scope of an access token that may submit to
	// server-authoritative boards, and for other users, by default
	// "leaderboard:submit".
	SubmitScope string
	// LockStale is the time without a sign of life after which a refresh of materialized ranks
	// counts as dead. By default it is the value of LEADERBOARD_LOCK_STALE_MS in milliseconds, or
	// else one hour.
	LockStale time.Duration
	// Database names the binding that holds the boards, by default "DB".
	Database string
	// BasePath is the mount prefix, by default "/leaderboard".
	BasePath string

	sizes sizes // zero means the usual ones
}

// Rank configures one of the two ways to compute ranks. Both keep the counts that live ranks are
// computed from, so a deployment may change between them at any time.
type Rank struct {
	// Materialize is a cron expression, in UTC, at whose instants all ranks are computed and
	// stored; reads return the rank of the last run. Empty means live: every read returns the
	// current rank.
	Materialize string
}

// MarshalJSON encodes the mode as in the specification's configuration.
func (r Rank) MarshalJSON() ([]byte, error) {
	if r.Materialize == "" {
		return json.Marshal("live")
	}
	return json.Marshal(map[string]string{"materialize": r.Materialize})
}

// Direction says whether a higher or a lower score is better.
type Direction string

// The directions: the highest score wins, or the lowest (as for lap times).
const (
	DirectionDescending Direction = "desc"
	DirectionAscending  Direction = "asc"
)

// Aggregation says how the score of a further submission is combined with the stored one.
type Aggregation string

// The aggregations: keep the better score, keep the new one, or add it.
const (
	AggregationBest   Aggregation = "best"
	AggregationLatest Aggregation = "latest"
	AggregationSum    Aggregation = "sum"
)

// Board is one ranked list of players or, with a window, a sequence of lists.
//
// Once a board has an entry, Store, Direction, Aggregation and Window are fixed; submissions under
// another definition are refused with leaderboard/board_immutable. A new definition needs a new
// key.
type Board struct {
	// Key names the board in paths: 1 to 64 letters, digits, and ._- except as the first.
	Key string `json:"key"`
	// Store is "d1", the relational store, which is also the default.
	Store string `json:"store"`
	// Direction is required.
	Direction Direction `json:"direction"`
	// Aggregation is required.
	Aggregation Aggregation `json:"aggregation"`
	// Window is a cron expression, in UTC, at whose instants a new window opens and the previous
	// one closes. Empty means one list for all time.
	Window string `json:"window,omitempty"`
	// Retain is how many closed windows are kept, RetainDays for how many days after its end each
	// one is, at most 36,500. Zero means all; only one of them may be set.
	Retain     int `json:"retain,omitempty"`
	RetainDays int `json:"retainDays,omitempty"`
	// Min and Max bound each submitted score; nil means no bound except [MaxScore].
	Min *int64 `json:"min,omitempty"`
	Max *int64 `json:"max,omitempty"`
	// TrackActivity counts the submissions to each entry and stores the time of the last one. It
	// makes every submission a write.
	TrackActivity bool `json:"trackActivity"`
	// Tiers name ranges of scores, at most 100 of them.
	Tiers []Tier `json:"tiers,omitempty"`
	// ServerAuthoritative requires the submit scope for scores; nil means true.
	ServerAuthoritative *bool `json:"serverAuthoritative"`
}

// Tier is the name of the scores from Min up to the Min of the next tier.
type Tier struct {
	Key string `json:"key"`
	Min int64  `json:"min"`
}

// MaxScore bounds scores, and sums of them, on both sides of zero: 2^53-1, the largest integer that
// every JSON client represents exactly.
const MaxScore = 1<<53 - 1

const (
	storeD1       = "d1"
	maxTiers      = 100
	maxRetainDays = 36_500 // a century; a time.Duration holds less than three
	defaultStale  = time.Hour
	staleEnv      = "LEADERBOARD_LOCK_STALE_MS"
)

var keyForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

func (c Config) withDefaults() Config {
	c.AdminScope = cmp.Or(c.AdminScope, "leaderboard:admin")
	c.SubmitScope = cmp.Or(c.SubmitScope, "leaderboard:submit")
	c.Database = cmp.Or(c.Database, "DB")
	c.BasePath = cmp.Or(c.BasePath, "/leaderboard")
	c.Boards = slices.Clone(c.Boards)
	for i := range c.Boards {
		b := &c.Boards[i]
		b.Store = cmp.Or(b.Store, storeD1)
		if b.ServerAuthoritative == nil {
			b.ServerAuthoritative = new(true)
		}
		b.Tiers = slices.Clone(b.Tiers)
		slices.SortStableFunc(b.Tiers, func(x, y Tier) int { return cmp.Compare(x.Min, y.Min) })
	}
	return c
}

// resolve checks the configuration and returns the boards in working form.
func (c Config) resolve(routes []capability.Route) (boards map[string]*board, stale time.Duration, err error) {
	faults := &capability.Faults{Capability: Name}
	if len(c.Boards) == 0 {
		faults.Add("boards", nil, "is empty", "declare at least one board")
	}
	boards = make(map[string]*board, len(c.Boards))
	reserved := capability.Reserved(routes, "board")
	for i, cfg := range c.Boards {
		at := func(field string) string { return fmt.Sprintf("boards[%d].%s", i, field) }
		switch {
		case !keyForm.MatchString(cfg.Key):
			faults.Add(at("key"), cfg.Key, "is not a path segment", "use 1 to 64 letters, digits, dots, hyphens and underscores, the first a letter or digit")
		case slices.Contains(reserved, cfg.Key):
			faults.Add(at("key"), cfg.Key, "is taken by a route", "choose another key")
		case boards[cfg.Key] != nil:
			faults.Add(at("key"), cfg.Key, "is declared twice", "declare each board once")
		}
		b := &board{Board: cfg}
		b.schedule = parseSchedule(faults, at("window"), cfg.Window)
		b.check(faults, at)
		boards[cfg.Key] = b
	}
	parseSchedule(faults, "rank.materialize", c.Rank.Materialize)
	return boards, c.stale(faults), faults.Err()
}

// check reports the faults of one board except those of its key and window.
func (b *board) check(faults *capability.Faults, at func(field string) string) {
	if b.Store != storeD1 {
		faults.Add(at("store"), b.Store, "is not a store", "use d1, or leave it empty")
	}
	if b.Direction != DirectionDescending && b.Direction != DirectionAscending {
		faults.Add(at("direction"), string(b.Direction), "is not a direction", "use desc or asc")
	}
	if b.Aggregation != AggregationBest && b.Aggregation != AggregationLatest && b.Aggregation != AggregationSum {
		faults.Add(at("aggregation"), string(b.Aggregation), "is not an aggregation", "use best, latest or sum")
	}
	if b.Retain < 0 {
		faults.Add(at("retain"), b.Retain, "is negative", "use 0 to keep all closed windows")
	}
	if b.RetainDays < 0 || b.RetainDays > maxRetainDays {
		faults.Add(at("retainDays"), b.RetainDays, "is out of range", "use up to 36500, or 0 to keep all closed windows")
	}
	if b.Retain != 0 && b.RetainDays != 0 {
		faults.Add(at("retain"), b.Retain, "is set together with retainDays", "set one of them")
	}
	if b.Window == "" && (b.Retain != 0 || b.RetainDays != 0) {
		faults.Add(at("retain"), nil, "is set on a board without windows", "set window too, or leave retain and retainDays out")
	}
	checkBound(faults, at("min"), b.Min)
	checkBound(faults, at("max"), b.Max)
	if b.Min != nil && b.Max != nil && *b.Min > *b.Max {
		faults.Add(at("min"), *b.Min, "is above max", "swap them")
	}
	b.checkTiers(faults, at("tiers"))
}

func checkBound(faults *capability.Faults, key string, bound *int64) {
	if bound != nil && !inRange(*bound) {
		faults.Add(key, *bound, "is out of range", "use -9007199254740991 to 9007199254740991")
	}
}

func (b *board) checkTiers(faults *capability.Faults, key string) {
	if len(b.Tiers) > maxTiers {
		faults.Add(key, len(b.Tiers), "has too many", "name at most 100 tiers")
	}
	keys, mins := make(map[string]bool), make(map[int64]bool)
	for _, tier := range b.Tiers {
		switch {
		case tier.Key == "" || len(tier.Key) > maxUserID:
			faults.Add(key, tier.Key, "is not the key of a tier", "use 1 to 128 bytes")
		case keys[tier.Key]:
			faults.Add(key, tier.Key, "is declared twice", "name each tier once")
		case mins[tier.Min]:
			faults.Add(key, tier.Key, "begins where another tier does", "give each tier its own min")
		case !inRange(tier.Min):
			faults.Add(key, tier.Min, "is out of range", "use -9007199254740991 to 9007199254740991")
		}
		keys[tier.Key], mins[tier.Min] = true, true
	}
}

// parseSchedule returns nil for no schedule, and for an invalid one.
func parseSchedule(faults *capability.Faults, key, text string) *cron.Schedule {
	if text == "" {
		return nil
	}
	schedule, err := cron.Parse(text)
	if err != nil {
		faults.AddFault(capability.Fault{
			Key: key, Value: text, Reason: err.Error(), Refusal: ErrInvalidSchedule,
			Fix: "write five fields like 0 0 * * 1: minute, hour, day of month, month, day of week, in UTC",
		})
		return nil
	}
	return &schedule
}

func (c Config) stale(faults *capability.Faults) time.Duration {
	if c.LockStale < 0 {
		faults.Add("lockStale", c.LockStale, "is negative", "leave it out for one hour")
	}
	text := os.Getenv(staleEnv)
	if c.LockStale != 0 || text == "" {
		return cmp.Or(c.LockStale, defaultStale)
	}
	ms, err := strconv.ParseInt(text, 10, 64)
	if err != nil || ms < 1 || ms > int64(24*365*time.Hour/time.Millisecond) {
		faults.Add("lockStale", text, "is not a number of milliseconds", "set "+staleEnv+" to one, up to a year's")
		return defaultStale
	}
	return time.Duration(ms) * time.Millisecond
}

func (c Config) keys() []capability.ConfigKey {
	return []capability.ConfigKey{
		{Key: "boards", Value: c.Boards, Summary: "The boards; store, direction, aggregation and window are fixed once one has an entry."},
		{Key: "rank", Value: c.Rank, Summary: "Whether ranks are live, or written down at the instants of a schedule."},
		{Key: "adminScope", Value: c.AdminScope, Summary: "The scope that may hide and remove entries over HTTP."},
		{Key: "submitScope", Value: c.SubmitScope, Summary: "The scope that may submit to server-authoritative boards, and for other users."},
		{Key: "lockStale", Value: c.LockStale.String(), Summary: "After how long a refresh of materialized ranks counts as dead."},
		{Key: "database", Value: c.Database, Summary: "The database binding that holds the boards."},
		{Key: "basePath", Value: c.BasePath, Summary: "Where the routes are mounted."},
	}
}

// Choices lists the values, for generated documents.
func (Direction) Choices() []string {
	return []string{string(DirectionDescending), string(DirectionAscending)}
}

// Choices lists the values, for generated documents.
func (Aggregation) Choices() []string {
	return []string{string(AggregationBest), string(AggregationLatest), string(AggregationSum)}
}
