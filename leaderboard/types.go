package leaderboard

import (
	"math"

	"github.com/kitbackend/kit/capability"
)

// Submission is one score of one player, for the open window of a board.
type Submission struct {
	// Board is the key of a configured board.
	Board string
	// UserID is 1 to 128 bytes.
	UserID string
	// Score is within Min and Max of the board and within [MaxScore]. On a sum board it is added.
	Score int64
}

// View selects a board, or one window of it.
type View struct {
	// Board is the key of a configured board.
	Board string
	// Window is the key of a window, YYYYMMDDTHHMMZ in UTC, the instant it
	// opened at. Empty means the open one.
	Window string
}

// Entry is the score of one player.
type Entry struct {
	UserID string `json:"userId"`
	Score  int64  `json:"score"`
	// AchievedAt is when the score got its value. A repeated submission of the same score does not
	// change it.
	AchievedAt capability.Time `json:"achievedAt"`
	// Tier is the key of the board's tier for the score, if any.
	Tier string `json:"tier,omitempty"`
	// Hidden reports that other players do not see the entry and that it does
	// not count in their ranks.
	Hidden bool `json:"hidden,omitempty"`
	// Attempts is the number of submissions, LastActiveAt the time of the last one; zero unless the
	// board tracks activity.
	Attempts     int64           `json:"attempts,omitempty"`
	LastActiveAt capability.Time `json:"lastActiveAt,omitzero"`
}

// Ranked is an entry in a list.
type Ranked struct {
	// Rank counts from 1. It is 0, and left out of JSON, for an entry that the last run of
	// materialized ranks has not ranked.
	Rank int64 `json:"rank,omitempty"`
	Entry
}

// Standing is a player's entry and its position among the visible ones. The rank of a hidden player
// is the one it would have.
type Standing struct {
	Entry Entry `json:"entry"`
	// Rank is as in [Ranked].
	Rank int64 `json:"rank,omitempty"`
	// Total counts the visible entries.
	Total int64 `json:"total"`
	// Percentile is the share of the visible entries that are behind this one, from 0 to 100 with
	// two decimals; 0 without a rank.
	Percentile float64 `json:"percentile"`
}

// percentile returns the percentile of a rank; own is 1 if total includes the ranked entry.
func percentile(rank, total, own int64) float64 {
	if rank == 0 || total == 0 {
		return 0
	}
	behind := max(0, total-own-(rank-1))
	return math.Round(float64(behind)/float64(total)*10000) / 100
}

// Neighbours is a list of entries, such as those around a player, in the board's order.
type Neighbours struct {
	Items []Ranked `json:"items"`
	// Total counts the visible entries.
	Total int64 `json:"total"`
}

// Hider is who hides a player.
type Hider int64

// The two that can hide a player. Each can undo only its own: a player whom an administrator has
// hidden stays hidden.
const (
	Player        Hider = 1
	Administrator Hider = 2
)

// Visibility reports whether a player is hidden on a board.
type Visibility struct {
	UserID string `json:"userId"`
	// Hidden reports that at least one of the two hides the player.
	Hidden bool `json:"hidden"`
}

// Definition is the part of a board's configuration that is fixed once it has an entry.
type Definition struct {
	Store       string      `json:"store"`
	Direction   Direction   `json:"direction"`
	Aggregation Aggregation `json:"aggregation"`
	// Window is empty on a board without windows.
	Window string `json:"window,omitempty"`
}

// Info is the public description of a board.
type Info struct {
	Key         string      `json:"key"`
	Direction   Direction   `json:"direction"`
	Aggregation Aggregation `json:"aggregation"`
	// Window is the schedule, nil on a board without windows.
	Window *string `json:"window"`
	// Open is the key of the open window and ClosesAt its end; zero on a board
	// without windows.
	Open     string          `json:"open,omitempty"`
	ClosesAt capability.Time `json:"closesAt,omitzero"`
	// Closed lists the keys of the closed windows that had entries and are
	// kept, the latest [MaxClosed] of them, newest first.
	Closed []string `json:"closed"`
}
