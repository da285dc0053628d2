package leaderboard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/leaderboard"
)

const (
	lastLevel  = 2 // of the count table
	rangeLevel = 3 // in findings
	entryLevel = 4
)

// bucketAt returns the bucket of a key at a level; a level merges 32 buckets of the one below.
func bucketAt(level int, key int64) int64 {
	return leaderboard.BucketOf(key) >> (5 * (lastLevel - level))
}

// tamper changes rows in the database directly: $1 is the window, and some row must change.
func (n *node) tamper(t testing.TB, v leaderboard.View, query string, args ...any) {
	t.Helper()
	rows, err := n.db.Exec(context.Background(), query, append([]any{n.windowOf(t, v)}, args...)...)
	if err != nil || rows == 0 {
		t.Fatalf("%d rows changed: %v: %s", rows, err, query)
	}
}

// windowOf returns the row id of a window, the newest if the view has none.
func (n *node) windowOf(t testing.TB, v leaderboard.View) (id int64) {
	t.Helper()
	before := int64(1) << 60
	if v.Window != "" {
		at, err := time.Parse("20060102T1504Z", v.Window)
		if err != nil {
			t.Fatal(err)
		}
		before = at.UnixMilli()
	}
	if err := n.db.QueryRow(context.Background(), `SELECT id FROM leaderboard_window WHERE board = $1 AND opened_at <= $2
		ORDER BY opened_at DESC LIMIT 1`, v.Board, before).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// tally reads one number.
func (n *node) tally(t testing.TB, query string, args ...any) (number int64) {
	t.Helper()
	if err := n.db.QueryRow(context.Background(), query, args...).Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

// ranksCount compares the rank of every entry of a window with a count of rows.
func (n *node) ranksCount(t testing.TB, v leaderboard.View) {
	t.Helper()
	rows, err := n.db.Query(context.Background(), `SELECT user_id FROM leaderboard_entry WHERE window_id = $1`, n.windowOf(t, v))
	if err != nil {
		t.Fatal(err)
	}
	var users []string
	for rows.Next() {
		var user string
		if err := rows.Scan(&user); err != nil {
			t.Fatal(err)
		}
		users = append(users, user)
	}
	if err := rows.Err(); err != nil || len(users) == 0 {
		t.Fatalf("%d users: %v", len(users), err)
	}
	for _, user := range users {
		me, err := n.Me(context.Background(), v, user)
		if err != nil {
			t.Fatal(err)
		}
		if counted := n.count(t, v, user); counted != me.Rank {
			t.Errorf("%v %s: rank %d, counted %d", v, user, me.Rank, counted)
		}
	}
}

// load imports entries named u0000, u0001, … with these scores, one each second.
func (n *node) load(t testing.TB, v leaderboard.View, scores ...int64) leaderboard.Report {
	t.Helper()
	report, err := n.Import(context.Background(), v, func(yield func(leaderboard.Entry) bool) {
		for i, score := range scores {
			e := leaderboard.Entry{UserID: fmt.Sprintf("u%04d", i), Score: score,
				AchievedAt: capability.Time{Time: n.clock.Now().Add(time.Duration(i-len(scores)) * time.Second)}}
			if !yield(e) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// spread returns scores of every size: some alone, some shared by ten, up to the bounds.
func spread() (scores []int64) {
	for _, score := range []int64{5, 70_000, 0, leaderboard.MaxScore, -leaderboard.MaxScore} {
		scores = append(scores, slices.Repeat([]int64{score}, 10)...)
	}
	return append(scores, 1, 2, 3, 4, 6, 7, 40, 300, 1000, -1, -2, -500, 1<<40, -1<<40)
}

var arcade = leaderboard.View{Board: "arcade"}

// damage is a fault of the board arcade, whose keys are -score.
type damage struct {
	name  string
	level int
	key   int64 // is in the bucket with the finding
	query string
	args  []any
	// alone reports that the repair finds nothing else.
	alone bool
}

func damages() (list []damage) {
	const nobodys = -12_345
	for level := range rangeLevel {
		for _, key := range []int64{-5, 0, 1, -leaderboard.MaxScore, leaderboard.MaxScore} {
			name, here := fmt.Sprintf("count of level %d of key %d ", level, key), []any{level, bucketAt(level, key)}
			const row = `window_id = $1 AND level = $2 AND bucket = $3`
			list = append(list,
				damage{name + "too high", level, key, `UPDATE leaderboard_count SET n = n + 1 WHERE ` + row, here, true},
				damage{name + "too low", level, key, `UPDATE leaderboard_count SET n = n - 1 WHERE ` + row, here, true},
				damage{name + "missing", level, key, `DELETE FROM leaderboard_count WHERE ` + row, here, true})
		}
		list = append(list, damage{fmt.Sprintf("count of level %d of nobody", level), level, nobodys << (8 * (lastLevel - level)),
			`INSERT INTO leaderboard_count (window_id, level, bucket, n) VALUES ($1, $2, $3, 1)`,
			[]any{level, bucketAt(level, nobodys<<(8*(lastLevel-level)))}, true})
	}
	for _, key := range []int64{-5, 0, -leaderboard.MaxScore, leaderboard.MaxScore} {
		bucket := leaderboard.BucketOf(key)
		name, here := fmt.Sprintf("range of key %d ", key), []any{leaderboard.FirstKey(bucket), leaderboard.FirstKey(bucket + 1)}
		const (
			inside = `window_id = $1 AND key >= $2 AND key < $3`
			first  = inside + ` AND achieved_at = 0`
			middle = inside + ` AND achieved_at = (SELECT MAX(achieved_at) FROM leaderboard_range WHERE ` + inside + `)`
		)
		list = append(list,
			damage{name + "too high", rangeLevel, key, `UPDATE leaderboard_range SET n = n + 1 WHERE ` + middle, here, true},
			damage{name + "too low", rangeLevel, key, `UPDATE leaderboard_range SET n = n - 1 WHERE ` + middle, here, true},
			damage{name + "too high, the first", rangeLevel, key, `UPDATE leaderboard_range SET n = n + 1 WHERE ` + first, here, true},
			damage{name + "too low, the first", rangeLevel, key, `UPDATE leaderboard_range SET n = n - 1 WHERE ` + first, here, true},
			damage{name + "missing", rangeLevel, key, `DELETE FROM leaderboard_range WHERE ` + middle, here, true},
			damage{name + "missing, the first", rangeLevel, key, `DELETE FROM leaderboard_range WHERE ` + first, here, true},
			damage{name + "beginning elsewhere", rangeLevel, key, `UPDATE leaderboard_range SET achieved_at = achieved_at + 1000 WHERE ` + middle, here, false},
			damage{name + "beginning elsewhere, the first", rangeLevel, key, `UPDATE leaderboard_range SET achieved_at = 1 WHERE ` + first, here, true})
	}
	const insert = `INSERT INTO leaderboard_entry (window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank) VALUES `
	return append(list,
		damage{"entry copied in", lastLevel, nobodys, insert + `($1, 'copied', $2, $3, 5, 0, 0, 0, 0)`, []any{nobodys, leaderboard.BucketOf(nobodys)}, false},
		damage{"entry copied into a crowd", lastLevel, -5, insert + `($1, 'crowded', -5, -5, 5, 0, 0, 0, 0)`, nil, false},
		damage{"entry deleted", lastLevel, -300, `DELETE FROM leaderboard_entry WHERE window_id = $1 AND key = -300`, nil, false},
		damage{"entry deleted in a crowd", lastLevel, -5, `DELETE FROM leaderboard_entry WHERE window_id = $1 AND user_id = 'u0004'`, nil, false},
		damage{"entry hidden", lastLevel, -5, `UPDATE leaderboard_entry SET hidden = 1 WHERE window_id = $1 AND user_id = 'u0005'`, nil, false},
		damage{"entry moved", lastLevel, 77, `UPDATE leaderboard_entry SET key = 77, bucket = 77 WHERE window_id = $1 AND user_id = 'u0006'`, nil, false},
		damage{"entry of another bucket", entryLevel, -40, `UPDATE leaderboard_entry SET bucket = bucket - 1 WHERE window_id = $1 AND key = -40`, nil, true},
		damage{"hidden entry of another bucket", entryLevel, -5, `UPDATE leaderboard_entry SET bucket = 999 WHERE window_id = $1 AND user_id = 'u0005'`, nil, true},
	)
}

// TestDamage makes every kind of damage, and checks that it is found, reported and repaired.
func TestDamage(t *testing.T) {
	config := leaderboard.SmallRanges(config, 4)
	eachWith(t, config, func(t *testing.T, n *node) {
		n.load(t, arcade, spread()...)
		n.addsUp(t)
		for i, d := range damages() {
			if testing.Short() && i%8 != 0 {
				continue
			}
			t.Run(d.name, func(t *testing.T) {
				n.tamper(t, arcade, d.query, d.args...)
				isIt := func(f leaderboard.Finding) bool {
					bucket := bucketAt(min(d.level, lastLevel), d.key)
					return f.Board == "arcade" && f.Window == "" && f.Level == d.level && f.Bucket == bucket
				}
				found, err := n.Verify(t.Context())
				if err != nil || !slices.ContainsFunc(found.Findings, isIt) || found.Err() == nil {
					t.Errorf("not found: %v %+v", err, found)
				}
				repaired, err := n.Rebuild(t.Context(), arcade)
				if err != nil || !slices.ContainsFunc(repaired.Findings, isIt) || repaired.Repaired == 0 {
					t.Errorf("not repaired: %v %+v", err, repaired)
				}
				if d.alone && len(repaired.Findings) != 1 {
					t.Errorf("also found: %+v", repaired.Findings)
				}
				n.addsUp(t)
				n.ranksCount(t, arcade)
			})
		}
	})
}

// TestFinding checks all fields of a finding, on a board with windows.
func TestFinding(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for i := range 3 {
			n.submit(t, "daily", fmt.Sprint("u", i), 1000)
		}
		closed := leaderboard.View{Board: "daily", Window: "20261121T0000Z"}
		n.clock.advance(24 * time.Hour)
		n.submit(t, "daily", "ada", 7)
		n.tamper(t, closed, `UPDATE leaderboard_count SET n = 9 WHERE window_id = $1 AND level = 0`)
		want := leaderboard.Report{Windows: 2, Entries: 4, Findings: []leaderboard.Finding{
			{Board: "daily", Window: "20261121T0000Z", Level: 0, Bucket: bucketAt(0, 1000), Stored: 9, Actual: 3}}}
		found, err := n.Verify(t.Context())
		if diff := gocmp.Diff(want, found); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if text := fmt.Sprint(found.Err()); !strings.Contains(text, "1 findings") || !strings.Contains(text, "Stored:9 Actual:3") {
			t.Error(text)
		}
		repaired, err := n.Rebuild(t.Context(), closed)
		want.Windows, want.Entries, want.Repaired = 1, 3, 1
		if diff := gocmp.Diff(want, repaired); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		n.addsUp(t)
	})
}

// TestManyFindings checks that the reported findings are bounded, but not the repairs.
func TestManyFindings(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		var scores []int64
		for i := range int64(3 * leaderboard.MaxFindings / 2) {
			scores = append(scores, i)
		}
		n.load(t, arcade, scores...)
		n.tamper(t, arcade, `UPDATE leaderboard_count SET n = 5 WHERE window_id = $1 AND level = 2`)
		found, err := n.Verify(t.Context())
		if err != nil || len(found.Findings) != leaderboard.MaxFindings || found.Repaired != 0 {
			t.Errorf("%v %d %d", err, len(found.Findings), found.Repaired)
		}
		repaired, err := n.Rebuild(t.Context(), arcade)
		if err != nil || len(repaired.Findings) != leaderboard.MaxFindings || repaired.Repaired != int64(len(scores)) {
			t.Errorf("%v %d %d", err, len(repaired.Findings), repaired.Repaired)
		}
		n.addsUp(t)
	})
}

// TestCrowd removes ranges of a crowded bucket: the remaining range is counted only as far as
// necessary.
func TestCrowd(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.load(t, arcade, make([]int64, 2500)...)
		n.tamper(t, arcade, `DELETE FROM leaderboard_range WHERE window_id = $1 AND achieved_at > 0`)
		const first = 64 // half of 128
		report, err := n.Rebuild(t.Context(), arcade)
		want := []leaderboard.Finding{{Board: "arcade", Level: rangeLevel, Bucket: 0, Stored: first, Actual: first + 1}}
		if diff := gocmp.Diff(want, report.Findings); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		n.addsUp(t)
		for _, user := range []string{"u0000", "u0063", "u0064", "u2499"} {
			me, err := n.Me(t.Context(), arcade, user)
			if counted := n.count(t, arcade, user); err != nil || counted != me.Rank {
				t.Errorf("%s: %v rank %d, counted %d", user, err, me.Rank, counted)
			}
		}
	})
}

// TestRebuildRefuses checks that an unknown board or window is refused.
func TestRebuildRefuses(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for _, v := range []leaderboard.View{{Board: "nothing"}, {Board: "arcade", Window: "20261121T0000Z"},
			{Board: "daily", Window: "yesterday"}, {Board: "daily", Window: "20261120T0000Z"}} {
			_, err := n.Rebuild(t.Context(), v)
			wantErr(t, err, leaderboard.ErrBoardNotFound)
		}
		report, err := n.Rebuild(t.Context(), leaderboard.View{Board: "daily"})
		if diff := gocmp.Diff(leaderboard.Report{}, report); err != nil || diff != "" {
			t.Errorf("the open window without an entry: %v %s", err, diff)
		}
	})
}

// TestUncut checks that a bucket that has grown and is not divided yet is no finding, and that
// Rebuild divides it.
func TestUncut(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		for i := range 20 {
			n.submit(t, "arcade", fmt.Sprintf("u%02d", i), 5)
		}
		small, err := build(n.db, leaderboard.SmallRanges(config, 4), n.clock)
		if err != nil {
			t.Fatal(err)
		}
		ranges := `SELECT COUNT(*) FROM leaderboard_range WHERE window_id = $1`
		if n := n.tally(t, ranges, n.windowOf(t, arcade)); n != 0 {
			t.Fatalf("%d ranges", n)
		}
		small.addsUp(t)
		report, err := small.Rebuild(t.Context(), arcade)
		if diff := gocmp.Diff(leaderboard.Report{Windows: 1, Entries: 20, Repaired: 1}, report); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
		if n := n.tally(t, ranges, n.windowOf(t, arcade)); n != 10 {
			t.Errorf("%d ranges, want 10 half full ones", n)
		}
		n.addsUp(t)
		n.ranksCount(t, arcade)
	})
}

// TestRangesGrowWhileWrong submits into ranges whose counts are wrong: ranges that grow are still
// halved, and the following check repairs them.
func TestRangesGrowWhileWrong(t *testing.T) {
	config := leaderboard.SmallRanges(config, 4)
	for _, wrong := range []string{`n = n + 100`, `n = 0`, `n = -3`} {
		eachWith(t, config, func(t *testing.T, n *node) {
			n.load(t, arcade, spread()...)
			n.tamper(t, arcade, `UPDATE leaderboard_range SET `+wrong+` WHERE window_id = $1`)
			for i := range 12 {
				n.submit(t, "arcade", fmt.Sprint("late", i), []int64{5, leaderboard.MaxScore, 0}[i%3])
			}
			if _, err := n.Rebuild(t.Context(), arcade); err != nil {
				t.Fatal(err)
			}
			n.addsUp(t)
			n.ranksCount(t, arcade)
			for i := range 12 {
				n.submit(t, "arcade", fmt.Sprint("later", i), 5)
			}
			n.addsUp(t)
			n.ranksCount(t, arcade)
		})
	}
}

// TestVerifyBesideWriters checks that Verify finds nothing on a correct board during concurrent
// changes.
func TestVerifyBesideWriters(t *testing.T) {
	config := leaderboard.SmallRanges(config, 8)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		nodes[0].load(t, arcade, spread()...)
		ctx, stop := context.WithCancel(t.Context())
		many(17, func(i int) {
			n := nodes[i%len(nodes)]
			if i > 0 {
				churn(ctx, t, n, i)
				return
			}
			defer stop()
			for range 8 {
				n.addsUp(t)
				if report, err := n.Rebuild(t.Context(), arcade); err != nil || report.Err() != nil {
					t.Error(err, report.Err())
				}
			}
		})
		nodes[0].ranksCount(t, arcade)
	})
}

// churn submits to, hides, shows and removes players of the board arcade until ctx ends.
func churn(ctx context.Context, t *testing.T, n *node, seed int) {
	rng := rand.New(rand.NewPCG(uint64(seed), 3))
	for ctx.Err() == nil {
		var err error
		user := fmt.Sprintf("u%04d", rng.IntN(60))
		switch rng.IntN(8) {
		case 0:
			_, err = n.SetHidden(t.Context(), "arcade", user, leaderboard.Player, rng.IntN(2) == 0)
		case 1:
			err = n.Remove(t.Context(), arcade, user)
		default:
			_, err = n.Submit(t.Context(), leaderboard.Submission{Board: "arcade", UserID: user, Score: rng.Int64N(8)})
		}
		if err != nil && !errors.Is(err, leaderboard.ErrEntryNotFound) {
			t.Error(err)
			return
		}
	}
}

// TestRebuildBesideWriters rebuilds all counts, in many parts, while other callers change counts
// that are still wrong.
func TestRebuildBesideWriters(t *testing.T) {
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		scores := make([]int64, 4500)
		for i := range scores {
			scores[i] = 3 // a crowd, whose bucket is divided
			if i%20 > 0 {
				scores[i] = leaderboard.FirstKey(int64(i)) // and many with a bucket of their own
			}
		}
		n := nodes[0]
		if report := n.load(t, arcade, scores...); report.Entries != 4500 {
			t.Errorf("%d entries", report.Entries)
		}
		for _, table := range []string{"leaderboard_count", "leaderboard_range"} {
			n.tamper(t, arcade, `DELETE FROM `+table+` WHERE window_id = $1`)
		}
		ctx, stop := context.WithCancel(t.Context())
		many(17, func(i int) {
			n := nodes[i%len(nodes)]
			if i > 0 {
				churn(ctx, t, n, i)
				return
			}
			defer stop()
			if _, err := n.Rebuild(t.Context(), arcade); err != nil {
				t.Error(err)
			}
			n.addsUp(t)
		})
		n.addsUp(t)
		for i := range 100 {
			user := fmt.Sprintf("u%04d", i*45)
			me, err := n.Me(t.Context(), arcade, user)
			if errors.Is(err, leaderboard.ErrEntryNotFound) {
				continue
			}
			if counted := n.count(t, arcade, user); err != nil || counted != me.Rank {
				t.Errorf("%s: %v rank %d, counted %d", user, err, me.Rank, counted)
			}
		}
	})
}

// TestVerifySwept checks that Verify finds nothing in a window that is swept concurrently, and that
// a repair restores nothing of it.
func TestVerifySwept(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		v := leaderboard.View{Board: "daily"}
		n.load(t, v, 1, 2, 3)
		sweeping := n.interrupted(t, config, func(chunk int) {
			if chunk == 1 {
				n.tamper(t, v, `UPDATE leaderboard_window SET swept = TRUE WHERE id = $1`)
				n.tamper(t, v, `DELETE FROM leaderboard_count WHERE window_id = $1`)
			}
		})
		report, err := sweeping.Rebuild(t.Context(), v)
		if err != nil || report.Err() != nil || report.Repaired != 0 {
			t.Errorf("%v %+v", err, report)
		}
		if counts := n.tally(t, `SELECT COUNT(*) FROM leaderboard_count`); counts != 0 {
			t.Errorf("%d counts", counts)
		}
	})
}

// TestVerifyJob checks the durable job: each night it repairs the open window and the last one that
// was closed, and any other window in its payload.
func TestVerifyJob(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		cfg := leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "daily", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationLatest, Window: "0 0 * * *"},
			{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
			{Key: "unused", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
		}}
		n := open(t, db, cfg, newClock())
		n.load(t, arcade, spread()...)
		for range 3 {
			n.submit(t, "daily", "ada", 7)
			n.clock.advance(24 * time.Hour)
		}
		n.submit(t, "daily", "ada", 7)
		for _, window := range []string{"20261121T0000Z", "20261123T0000Z", "20261124T0000Z"} {
			n.tamper(t, leaderboard.View{Board: "daily", Window: window}, `UPDATE leaderboard_count SET n = 5 WHERE window_id = $1`)
		}
		n.tamper(t, arcade, `DELETE FROM leaderboard_count WHERE window_id = $1`)

		n.runDue(t) // the nights that have passed
		report, err := n.Verify(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range report.Findings {
			if f.Board != "daily" || f.Window != "20261121T0000Z" {
				t.Errorf("%+v is left", f)
			}
		}
		if len(report.Findings) == 0 {
			t.Error("a window closed long ago is read every night")
		}
		if _, err := n.queue.Enqueue(t.Context(), "LEADERBOARD_VERIFY",
			map[string]string{"board": "daily", "window": "20261121T0000Z"}); err != nil {
			t.Fatal(err)
		}
		n.runDue(t)
		n.addsUp(t)
		n.ranksCount(t, arcade)

		if err := n.run(t, "LEADERBOARD_VERIFY", `{"board":"nothing"}`); !errors.Is(err, leaderboard.ErrBoardNotFound) {
			t.Error(err)
		}
		if err := n.run(t, "LEADERBOARD_VERIFY", `7`); err == nil {
			t.Error("a number is no payload")
		}
	})
}

// runDue runs the due jobs.
func (n *node) runDue(t testing.TB) {
	t.Helper()
	if _, err := n.queue.RunDue(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// run runs one durable job, outside of the queue.
func (n *node) run(t testing.TB, binding, payload string) error {
	t.Helper()
	return n.runUntil(context.Background(), t, binding, payload)
}

// runUntil is run that the end of ctx stops.
func (n *node) runUntil(ctx context.Context, t testing.TB, binding, payload string) error {
	t.Helper()
	list := n.Capability().Jobs
	i := slices.IndexFunc(list, func(b jobs.Binding) bool { return b.Name == binding })
	if i < 0 {
		t.Fatalf("there is no job %s", binding)
	}
	return list[i].Run(ctx, jobs.Job{Payload: []byte(payload)})
}
