package leaderboard_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/internal/cron"
	"github.com/kitbackend/kit/leaderboard"
)

// difference describes how values differ, "" if they do not; it is faster than go-cmp for equal
// values.
func difference(want, got any) string {
	if reflect.DeepEqual(want, got) {
		return ""
	}
	return gocmp.Diff(want, got)
}

// model is a simple implementation of a board, with the expected result of every call.
type model struct {
	leaderboard.Board
	windows map[string]map[string]leaderboard.Entry // by window key and user id
	hidden  map[string]leaderboard.Hider
}

// open returns the key of the open window.
func (m *model) open(now time.Time) string {
	if m.Window == "" {
		return ""
	}
	schedule, err := cron.Parse(m.Window)
	if err != nil {
		panic(err)
	}
	return schedule.Latest(now).Format("20060102T1504Z")
}

func (m *model) submit(user string, score int64, now time.Time) error {
	if m.windows[m.open(now)] == nil {
		m.windows[m.open(now)] = make(map[string]leaderboard.Entry)
	}
	entries := m.windows[m.open(now)]
	at := capability.Time{Time: now}
	e, known := entries[user]
	if !known {
		e = leaderboard.Entry{UserID: user, Score: score, AchievedAt: at, Hidden: m.hidden[user] != 0}
	} else {
		better := score > e.Score
		if m.Direction == leaderboard.DirectionAscending {
			better = score < e.Score
		}
		after := e.Score
		switch m.Aggregation {
		case leaderboard.AggregationBest:
			if better {
				after = score
			}
		case leaderboard.AggregationLatest:
			after = score
		case leaderboard.AggregationSum:
			after += score
		}
		if max(after, -after) > leaderboard.MaxScore {
			return leaderboard.ErrScoreRejected
		}
		if after != e.Score {
			e.Score, e.AchievedAt = after, at
		}
	}
	if m.TrackActivity {
		e.Attempts++
		e.LastActiveAt = at
	}
	entries[user] = e
	return nil
}

func (m *model) hide(user string, by leaderboard.Hider, hidden bool) error {
	known := m.hidden[user] != 0
	for _, entries := range m.windows {
		_, in := entries[user]
		known = known || in
	}
	if !known {
		return leaderboard.ErrEntryNotFound
	}
	m.hidden[user] &^= by
	if hidden {
		m.hidden[user] |= by
	}
	for _, entries := range m.windows {
		if e, ok := entries[user]; ok {
			e.Hidden = m.hidden[user] != 0
			entries[user] = e
		}
	}
	return nil
}

func (m *model) remove(window, user string, now time.Time) error {
	if window == "" {
		window = m.open(now)
	}
	if _, ok := m.windows[window][user]; !ok {
		return leaderboard.ErrEntryNotFound
	}
	delete(m.windows[window], user)
	return nil
}

// compare compares entries in the order of the board.
func (m *model) compare(a, b leaderboard.Entry) int {
	byScore := cmp.Compare(b.Score, a.Score)
	if m.Direction == leaderboard.DirectionAscending {
		byScore = -byScore
	}
	return cmp.Or(byScore, a.AchievedAt.Compare(b.AchievedAt.Time), strings.Compare(a.UserID, b.UserID))
}

// visible lists the visible entries of a window, ranked.
func (m *model) visible(window string) []leaderboard.Ranked {
	ranked := []leaderboard.Ranked{}
	for _, e := range slices.SortedFunc(maps.Values(m.windows[window]), m.compare) {
		if !e.Hidden {
			ranked = append(ranked, leaderboard.Ranked{Rank: int64(len(ranked) + 1), Entry: e})
		}
	}
	return ranked
}

// standing returns a player's standing: the rank is one more than the visible entries ahead.
func (m *model) standing(window string, e leaderboard.Entry) (s leaderboard.Standing) {
	s = leaderboard.Standing{Entry: e, Rank: 1}
	var behind int64
	for _, other := range m.visible(window) {
		switch c := m.compare(other.Entry, e); {
		case c < 0:
			s.Rank++
		case c > 0:
			behind++
		}
		s.Total++
	}
	if s.Total > 0 {
		s.Percentile = float64(int64(float64(behind)/float64(s.Total)*10000+0.5)) / 100
	}
	return s
}

var (
	players = []string{"ada", "bob", "Cyd", "dan", "é", "z"}
	scores  = []int64{0, 1, 1, 2, 2, 3, -1, -2, 100, 1023, 1024, 1025, 1026, 2050, -1025, 65535, 65537, -65537, 1 << 40, 1<<40 + 1,
		1<<40 + 1, 1<<40 + 1<<23, -1 << 40, -1<<40 - 1, leaderboard.MaxScore, leaderboard.MaxScore - 1, -leaderboard.MaxScore}
	worlds int
)

// newWorld returns one board of each kind, with keys that no other run uses.
func newWorld() (cfg leaderboard.Config, models []*model) {
	worlds++
	for _, direction := range []leaderboard.Direction{leaderboard.DirectionAscending, leaderboard.DirectionDescending} {
		for _, aggregation := range []leaderboard.Aggregation{leaderboard.AggregationBest, leaderboard.AggregationLatest, leaderboard.AggregationSum} {
			b := leaderboard.Board{
				Key: fmt.Sprintf("w%d-%s-%s", worlds, direction, aggregation), Direction: direction, Aggregation: aggregation,
				TrackActivity: direction == leaderboard.DirectionAscending,
			}
			if aggregation != leaderboard.AggregationSum {
				b.Window = "0 0 * * *"
			}
			cfg.Boards = append(cfg.Boards, b)
			models = append(models, &model{b, make(map[string]map[string]leaderboard.Entry), make(map[string]leaderboard.Hider)})
		}
	}
	return cfg, models
}

// step makes one change, to the leaderboard and to the model.
func step(ctx context.Context, t *rapid.T, n *node, m *model) {
	user := rapid.SampledFrom(players).Draw(t, "user")
	var got, want error
	switch op := rapid.SampledFrom([]string{"submit", "submit", "submit", "submit", "hide", "show", "remove", "wait", "day"}).Draw(t, "op"); op {
	case "submit":
		score := rapid.SampledFrom(scores).Draw(t, "score")
		_, got = n.Submit(ctx, leaderboard.Submission{Board: m.Key, UserID: user, Score: score})
		want = m.submit(user, score, n.clock.Now())
	case "hide", "show":
		by := rapid.SampledFrom([]leaderboard.Hider{leaderboard.Player, leaderboard.Administrator}).Draw(t, "by")
		_, got = n.SetHidden(ctx, m.Key, user, by, op == "hide")
		want = m.hide(user, by, op == "hide")
	case "remove":
		window := rapid.SampledFrom(append(slices.Sorted(maps.Keys(m.windows)), "")).Draw(t, "window")
		got = n.Remove(ctx, leaderboard.View{Board: m.Key, Window: window}, user)
		want = m.remove(window, user, n.clock.Now())
	case "wait":
		n.clock.advance(time.Second)
	case "day":
		n.clock.advance(rapid.SampledFrom([]time.Duration{6 * time.Hour, 24 * time.Hour, -time.Hour}).Draw(t, "time"))
	}
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

// same compares all reads of a board with the model.
func same(t *rapid.T, n *node, m *model) {
	ctx := context.Background()
	for window, entries := range m.windows {
		v := leaderboard.View{Board: m.Key, Window: window}
		visible := m.visible(window)
		if diff := difference(visible, all(t, n, v)); diff != "" {
			t.Fatalf("%v: %s", v, diff)
		}
		for _, user := range players {
			got, err := n.Me(ctx, v, user)
			e, known := entries[user]
			if !known {
				if !errors.Is(err, leaderboard.ErrEntryNotFound) {
					t.Fatalf("%v %s: %v", v, user, err)
				}
				continue
			}
			if diff := difference(m.standing(window, e), got); err != nil || diff != "" {
				t.Fatalf("%v %s: %v %s", v, user, err, diff)
			}
			if counted := n.count(t, v, user); counted != got.Rank {
				t.Fatalf("%v %s: rank %d, counted %d", v, user, got.Rank, counted)
			}
			around(t, n, v, m, got)
		}
		segment, err := n.Segment(ctx, v, append(players, "nobody", "ada")...)
		if diff := difference(leaderboard.Neighbours{Items: visible, Total: int64(len(visible))}, segment); err != nil || diff != "" {
			t.Fatalf("%v: %v %s", v, err, diff)
		}
	}
	report, err := n.Verify(ctx)
	if err == nil {
		err = report.Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// all reads a list page by page.
func all(t *rapid.T, n *node, v leaderboard.View) []leaderboard.Ranked {
	list, cursor := []leaderboard.Ranked{}, ""
	for {
		page, err := n.ListTop(context.Background(), v, capability.NewPage(2, cursor))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page.Items...)
		if page.NextCursor == nil {
			return list
		}
		cursor = *page.NextCursor
	}
}

// around compares the entries around a player with the model's.
func around(t *rapid.T, n *node, v leaderboard.View, m *model, me leaderboard.Standing) {
	const limit = 3
	got, err := n.Around(context.Background(), v, me.Entry.UserID, limit)
	if err != nil {
		t.Fatal(err)
	}
	list := m.visible(v.Window)
	at := int(me.Rank - 1)
	if me.Entry.Hidden {
		list = slices.Insert(list, at, leaderboard.Ranked{Rank: me.Rank, Entry: me.Entry})
	}
	first := max(0, min(at-1, len(list)-limit))
	want := leaderboard.Neighbours{Items: list[first:min(first+limit, len(list))], Total: me.Total}
	if diff := difference(want, got); diff != "" {
		t.Fatalf("%v around %s: %s", v, me.Entry.UserID, diff)
	}
}

// count returns a player's rank by its definition: by counting rows.
func (n *node) count(t rapid.TB, v leaderboard.View, user string) (rank int64) {
	openedAt := int64(0)
	if v.Window != "" {
		at, err := time.Parse("20060102T1504Z", v.Window)
		if err != nil {
			t.Fatal(err)
		}
		openedAt = at.UnixMilli()
	}
	err := n.db.QueryRow(context.Background(), `SELECT 1 + COUNT(*) FROM leaderboard_window w
		JOIN leaderboard_entry me ON me.window_id = w.id AND me.user_id = $3
		JOIN leaderboard_entry e ON e.window_id = w.id AND e.hidden = 0 AND e.user_id <> me.user_id
			AND (e.key, e.achieved_at, e.user_id) < (me.key, me.achieved_at, me.user_id)
		WHERE w.board = $1 AND w.opened_at = $2`, v.Board, openedAt, user).Scan(&rank)
	if err != nil {
		t.Fatal(err)
	}
	return rank
}

// fewer makes rapid try a quarter of its histories until the test ends: those of a database in
// memory, each transaction of which runs twice, are tried in full, and other databases differ only
// in dialect and durability. With KIT_SOAK all are tried on each.
func fewer(t *testing.T) {
	t.Helper()
	if strings.HasSuffix(t.Name(), "/memory") || os.Getenv("KIT_SOAK") != "" {
		return
	}
	all := flag.Lookup("rapid.checks").Value.String()
	n, err := strconv.Atoi(all)
	if err == nil {
		err = flag.Set("rapid.checks", strconv.Itoa(max(n/4, 1)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := flag.Set("rapid.checks", all); err != nil {
			t.Error(err)
		}
	})
}

// TestModel compares all reads with the model after every step of random histories, with ranges of
// two entries so that buckets are divided and merged.
func TestModel(t *testing.T) {
	for _, maxRange := range []int64{2, 128} {
		t.Run(fmt.Sprint("ranges of ", maxRange), func(t *testing.T) {
			databasetest.Each(t, func(t *testing.T, db *database.DB) {
				fewer(t)
				at := newClock()
				open(t, db, config, at)
				rapid.Check(t, func(t *rapid.T) {
					cfg, models := newWorld()
					m := rapid.SampledFrom(models).Draw(t, "board")
					n, err := build(db, leaderboard.SmallRanges(cfg, maxRange), at)
					if err != nil {
						t.Fatal(err)
					}
					ctx := context.Background()
					for range rapid.IntRange(1, 25).Draw(t, "steps") {
						step(ctx, t, n, m)
						same(t, n, m)
					}
				})
			})
		})
	}
}
