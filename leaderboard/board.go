package leaderboard

import (
	"cmp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/cron"
)

// board is a configured board in working form.
type board struct {
	Board
	schedule *cron.Schedule // nil without windows
	entered  atomic.Int64   // submissions, on this node
}

func inRange(score int64) bool { return -MaxScore <= score && score <= MaxScore }

// definition returns the definition of the board by its configuration.
func (b *board) definition() Definition {
	d := Definition{Store: b.Store, Direction: b.Direction, Aggregation: b.Aggregation}
	if b.schedule != nil {
		d.Window = b.schedule.String()
	}
	return d
}

// sign converts scores to keys, which sort ascending, and back, by multiplication.
func (b *board) sign() int64 {
	if b.Direction == DirectionDescending {
		return -1
	}
	return 1
}

// accept refuses a score that is out of the bounds of the board.
func (b *board) accept(score int64) error {
	if !inRange(score) || b.Min != nil && score < *b.Min || b.Max != nil && score > *b.Max {
		return ErrScoreRejected
	}
	return nil
}

// tier returns the key of the tier with the highest min not above the score, or "".
func (b *board) tier(score int64) (key string) {
	for _, tier := range b.Tiers { // sorted by min
		if tier.Min > score {
			break
		}
		key = tier.Key
	}
	return key
}

// place is the position of an entry in the order of its window.
type place struct {
	key, achievedAt int64
	userID          string
}

func (p place) bucket() int64 { return bucketOf(p.key) }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.key, q.key), cmp.Compare(p.achievedAt, q.achievedAt), strings.Compare(p.userID, q.userID))
}

// next returns the first place after p: no user id sorts between p's and this one, because none
// contains a NUL.
func (p place) next() place {
	p.userID += "\x01"
	return p
}

// entry is a stored entry.
type entry struct {
	place
	hidden       int64
	attempts     int64
	lastActiveAt int64
}

// seat returns the place that counts in the ranks of others, nil for a hidden entry.
func (e *entry) seat() *place {
	if e == nil || e.hidden != 0 {
		return nil
	}
	return &e.place
}

// operation is one submission. A single submission and a batch decide it by the same rules, below.
type operation struct {
	board  *board
	userID string
	score  int64
}

// outcome is the result of an operation: the entry, and its window.
type outcome struct {
	window int64
	entry  entry
}

// apply decides an operation on the given state.
func (op *operation) apply(st state, now int64) (entry, error) {
	e := entry{place: place{op.board.sign() * op.score, now, op.userID}, hidden: st.hidden}
	if old := st.entry; old != nil {
		key, err := op.board.aggregate(old.key, e.key)
		if err != nil {
			return entry{}, err
		}
		e = *old
		if key != old.key {
			e.key, e.achievedAt = key, now
		}
	}
	if op.board.TrackActivity {
		e.attempts++
		e.lastActiveAt = now
	}
	return e, nil
}

// aggregate combines an old and a submitted key.
func (b *board) aggregate(old, submitted int64) (int64, error) {
	switch b.Aggregation {
	case AggregationBest:
		return min(old, submitted), nil
	case AggregationLatest:
		return submitted, nil
	default:
		if !inRange(old + submitted) {
			return 0, ErrScoreRejected.Saying("The sum would pass %d.", int64(MaxScore))
		}
		return old + submitted, nil
	}
}

// show returns a stored entry in its public form.
func (b *board) show(e entry, score int64) Entry {
	shown := Entry{
		UserID: e.userID, Score: score, AchievedAt: capability.Millis(e.achievedAt), Tier: b.tier(score),
		Hidden: e.hidden != 0,
	}
	if b.TrackActivity && e.lastActiveAt != 0 {
		shown.Attempts, shown.LastActiveAt = e.attempts, capability.Millis(e.lastActiveAt)
	}
	return shown
}

// windowForm is the format of window keys: the instant at which the window opened.
const windowForm = "20060102T1504Z"

func windowKey(openedAt int64) string { return time.UnixMilli(openedAt).UTC().Format(windowForm) }

// openedAt returns the instant at which the current window opened, 0 without windows.
func (b *board) openedAt(now time.Time) int64 {
	if b.schedule == nil {
		return 0
	}
	return b.schedule.Latest(now).UnixMilli()
}

// closesAt returns the end of a window.
func (b *board) closesAt(openedAt int64) time.Time {
	return b.schedule.Next(time.UnixMilli(openedAt))
}

// parseWindow parses the key of a window; closed is false for the open one.
func (b *board) parseWindow(key string, now time.Time) (openedAt int64, closed bool, err error) {
	open := b.openedAt(now)
	if key == "" {
		return open, false, nil
	}
	at, err := time.Parse(windowForm, key)
	if err != nil || b.schedule == nil || windowKey(at.UnixMilli()) != key {
		return 0, false, ErrBoardNotFound
	}
	return at.UnixMilli(), at.UnixMilli() != open, nil
}
