package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/leaderboard"
)

// clock is a clock that only moves when a test advances it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

var config = leaderboard.Config{Boards: []leaderboard.Board{
	{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
	{Key: "laps", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationBest, TrackActivity: true},
	{Key: "mood", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationLatest, ServerAuthoritative: new(false),
		Min: new(int64(-100)), Max: new(int64(100)),
		Tiers: []leaderboard.Tier{{Key: "gold", Min: 50}, {Key: "bronze", Min: -100}, {Key: "silver", Min: 0}}},
	{Key: "xp", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum},
	{Key: "weekly", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0 0 * * 1", Retain: 2},
	{Key: "daily", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationLatest, Window: "0 0 * * *", RetainDays: 3},
}}

// node is a leaderboard on a database, with its audit trail and queue.
type node struct {
	*leaderboard.Leaderboard
	db    *database.DB
	clock *clock
	trail *audit.Audit
	queue *jobs.Queue
}

func open(t testing.TB, db *database.DB, cfg leaderboard.Config, at *clock) *node {
	t.Helper()
	n, err := build(db, cfg, at)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.migrate(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Capability().Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func build(db *database.DB, cfg leaderboard.Config, at *clock) (*node, error) {
	db.UseClock(at.Now)
	log := slog.New(slog.DiscardHandler)
	queue := jobs.New(db, nil, jobs.Options{Log: log, Now: at.Now})
	host := capability.Host{DB: db, Jobs: queue, Environment: "test", Now: at.Now, Log: log}
	trail, err := audit.New(host, audit.Config{}, audit.Peers{})
	if err != nil {
		return nil, err
	}
	l, err := leaderboard.New(host, cfg, leaderboard.Peers{Audit: trail})
	if err != nil {
		return nil, err
	}
	return &node{l, db, at, trail, queue}, queue.Register(l.Capability().Jobs...)
}

func (n *node) migrate() error {
	sets := []database.Migrations{jobs.Migrations()}
	for _, c := range []capability.Capability{n.trail.Capability(), n.Capability()} {
		sets = append(sets, database.Migrations{Name: c.Name, FS: c.Migrations})
	}
	return n.db.Migrate(context.Background(), sets...)
}

// each runs fn with a node on every database and its clock.
func each(t *testing.T, fn func(t *testing.T, n *node)) { eachWith(t, config, fn) }

func eachWith(t *testing.T, config leaderboard.Config, fn func(t *testing.T, n *node)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { fn(t, open(t, db, config, newClock())) })
}

func (n *node) submit(t testing.TB, board, user string, score int64) leaderboard.Entry {
	t.Helper()
	e, err := n.Submit(context.Background(), leaderboard.Submission{Board: board, UserID: user, Score: score})
	if err != nil {
		t.Fatalf("%s submits %d to %s: %v", user, score, board, err)
	}
	n.clock.advance(time.Second)
	return e
}

// top returns a window as "user:score" in order, and checks that the ranks are 1, 2, 3, ...
func (n *node) top(t testing.TB, v leaderboard.View) (shown []string) {
	t.Helper()
	cursor := ""
	for {
		page, err := n.ListTop(context.Background(), v, capability.NewPage(2, cursor))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Items {
			shown = append(shown, fmt.Sprintf("%s:%d", r.UserID, r.Score))
			if r.Rank != int64(len(shown)) {
				t.Errorf("%s has rank %d at position %d", r.UserID, r.Rank, len(shown))
			}
		}
		if page.NextCursor == nil {
			return shown
		}
		cursor = *page.NextCursor
	}
}

func (n *node) wantTop(t testing.TB, v leaderboard.View, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, n.top(t, v)); diff != "" {
		t.Errorf("%v: %s", v, diff)
	}
}

func (n *node) addsUp(t testing.TB) {
	t.Helper()
	report, err := n.Verify(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		c := config
		c.BasePath = basePath
		l, err := leaderboard.New(h, c, leaderboard.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return l.Capability(), nil
	})
}

func TestAggregations(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for _, s := range []int64{10, 30, 20} {
			n.submit(t, "arcade", "ada", s)
			n.submit(t, "laps", "ada", s)
			n.submit(t, "mood", "ada", s)
			n.submit(t, "xp", "ada", s)
		}
		n.wantTop(t, leaderboard.View{Board: "arcade"}, "ada:30")
		n.wantTop(t, leaderboard.View{Board: "laps"}, "ada:10")
		n.wantTop(t, leaderboard.View{Board: "mood"}, "ada:20")
		n.wantTop(t, leaderboard.View{Board: "xp"}, "ada:60")
		n.addsUp(t)
	})
}

func TestOrder(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		// First by score, then by the earlier time; the third at the same instant, by user id.
		n.submit(t, "arcade", "eve", 5)
		n.submit(t, "arcade", "bob", 7)
		n.submit(t, "arcade", "ada", 7)
		at := n.clock.Now()
		n.submit(t, "arcade", "zoe", 6)
		n.clock.advance(at.Sub(n.clock.Now()))
		n.submit(t, "arcade", "Zed", 6)
		n.wantTop(t, leaderboard.View{Board: "arcade"}, "bob:7", "ada:7", "Zed:6", "zoe:6", "eve:5")
		// A repeated score keeps its time; a change to another score and back does not.
		n.submit(t, "arcade", "bob", 7)
		n.wantTop(t, leaderboard.View{Board: "arcade"}, "bob:7", "ada:7", "Zed:6", "zoe:6", "eve:5")
		n.submit(t, "mood", "bob", 7)
		n.submit(t, "mood", "ada", 7)
		n.submit(t, "mood", "bob", 7)
		n.wantTop(t, leaderboard.View{Board: "mood"}, "bob:7", "ada:7")
		n.submit(t, "mood", "bob", 8)
		n.submit(t, "mood", "bob", 7)
		n.wantTop(t, leaderboard.View{Board: "mood"}, "ada:7", "bob:7")
		n.submit(t, "xp", "bob", 7)
		n.submit(t, "xp", "ada", 7)
		n.submit(t, "xp", "bob", 0)
		n.wantTop(t, leaderboard.View{Board: "xp"}, "bob:7", "ada:7")
		n.addsUp(t)
	})
}
