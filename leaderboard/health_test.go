package leaderboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/leaderboard"
)

// maxHealthValue is the largest size of a value in the manifest, in bytes.
const maxHealthValue = 2 << 10

// health returns one of the health values.
func (n *node) health(ctx context.Context, name string) (any, error) {
	for _, key := range n.Capability().Health {
		if key.Key == name {
			return key.Read(ctx)
		}
	}
	return nil, fmt.Errorf("no health value %s", name)
}

// wantHealth compares the JSON of a health value.
func (n *node) wantHealth(t *testing.T, name, want string) {
	t.Helper()
	value, err := n.health(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

func (n *node) histogram(t *testing.T, board string) leaderboard.Histogram {
	t.Helper()
	value, err := n.health(t.Context(), "scores."+board)
	if err != nil {
		t.Fatal(err)
	}
	return value.(leaderboard.Histogram)
}

func TestHealth(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		const none = `{"from":[],"entries":[]}`
		n.wantHealth(t, "entries", `{"arcade":0,"daily":0,"laps":0,"mood":0,"weekly":0,"xp":0}`)
		n.wantHealth(t, "scores.arcade", none)

		n.submit(t, "arcade", "ada", 7)
		n.submit(t, "laps", "ada", 7)
		for _, board := range []string{"arcade", "laps"} {
			n.wantHealth(t, "scores."+board, `{"from":[7],"entries":[1]}`)
		}
		n.submit(t, "arcade", "bob", 7)
		n.submit(t, "arcade", "cyd", 9)
		n.submit(t, "laps", "cyd", -1)
		n.wantHealth(t, "scores.arcade", `{"from":[7,8,9],"entries":[2,0,1]}`)
		n.wantHealth(t, "scores.laps", `{"from":[-1,0,1,2,3,4,5,6,7],"entries":[1,0,0,0,0,0,0,0,1]}`)

		// The bars have the same width up to 1024, beyond it they grow with the scores.
		n.submit(t, "xp", "ada", 1)
		n.submit(t, "xp", "bob", 1024)
		h := n.histogram(t, "xp")
		if len(h.From) != 32 || h.From[0] != 1 || h.From[31] != 993 || h.From[16] != 513 {
			t.Errorf("from %v", h.From)
		}
		n.submit(t, "xp", "cyd", 1<<40)
		for i, h := 2, n.histogram(t, "xp"); i < len(h.From); i++ {
			if h.From[i]-h.From[i-1] < h.From[i-1]-h.From[i-2] {
				t.Errorf("from %v", h.From)
			}
		}

		// Hidden and removed entries do not count, nor those of closed windows.
		for _, user := range []string{"bob", "cyd"} {
			if _, err := n.SetHidden(t.Context(), "arcade", user, leaderboard.Player, true); err != nil {
				t.Fatal(err)
			}
		}
		n.wantHealth(t, "scores.arcade", `{"from":[7],"entries":[1]}`)
		if err := n.Remove(t.Context(), leaderboard.View{Board: "arcade"}, "ada"); err != nil {
			t.Fatal(err)
		}
		n.wantHealth(t, "scores.arcade", none)
		n.submit(t, "weekly", "ada", 1)
		n.wantHealth(t, "scores.weekly", `{"from":[1],"entries":[1]}`)
		n.wantHealth(t, "entries", `{"arcade":0,"daily":0,"laps":2,"mood":0,"weekly":1,"xp":3}`)
		n.clock.advance(7 * 24 * time.Hour)
		n.wantHealth(t, "scores.weekly", none)
		n.wantHealth(t, "entries", `{"arcade":0,"daily":0,"laps":2,"mood":0,"weekly":0,"xp":3}`)

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, key := range []string{"entries", "scores.laps"} {
			if value, err := n.health(ctx, key); err == nil {
				t.Errorf("%s returns %v to a caller that has gone", key, value)
			}
		}
	})
}

// TestHistogram compares the bars with the scores, counted one by one, in both directions, near
// zero and at the largest and smallest scores.
func TestHistogram(t *testing.T) {
	boards := 0
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		at := newClock()
		open(t, db, config, at)
		rapid.Check(t, func(t *rapid.T) {
			boards++
			direction := rapid.SampledFrom([]leaderboard.Direction{leaderboard.DirectionAscending, leaderboard.DirectionDescending}).Draw(t, "direction")
			cfg := leaderboard.Config{Boards: []leaderboard.Board{{Key: fmt.Sprint("h", boards), Direction: direction, Aggregation: leaderboard.AggregationBest}}}
			n, err := build(db, cfg, at)
			if err != nil {
				t.Fatal(err)
			}
			bound := rapid.SampledFrom([]int64{0, 1, 31, 600, 1 << 17, 1 << 40, leaderboard.MaxScore}).Draw(t, "bound")
			score := rapid.OneOf(rapid.Int64Range(-bound, bound), rapid.SampledFrom([]int64{-bound, bound}))
			scores := rapid.SliceOfN(score, 0, 40).Draw(t, "scores")
			hidden := rapid.IntRange(0, len(scores)).Draw(t, "hidden")
			if err := db.InTx(context.Background(), func(ctx context.Context) error {
				for i, score := range scores {
					user := fmt.Sprint("u", i)
					if _, err := n.Submit(ctx, leaderboard.Submission{Board: cfg.Boards[0].Key, UserID: user, Score: score}); err != nil {
						return err
					}
					if i >= hidden {
						continue
					}
					if _, err := n.SetHidden(ctx, cfg.Boards[0].Key, user, leaderboard.Player, true); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			drawn(t, n, cfg.Boards[0].Key, scores[hidden:])
		})
	})
}

// drawn compares the histogram of a board with its visible scores.
func drawn(t *rapid.T, n *node, board string, scores []int64) {
	value, err := n.health(context.Background(), "scores."+board)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := json.Marshal(value); err != nil || len(text) > maxHealthValue {
		t.Errorf("%d bytes: %v", len(text), err)
	}
	h := value.(leaderboard.Histogram)
	if len(h.From) > 32 || len(h.From) != len(h.Entries) || len(h.From) == 0 != (len(scores) == 0) {
		t.Fatalf("%d bars, %d counts, %d scores", len(h.From), len(h.Entries), len(scores))
	}
	if len(scores) == 0 {
		return
	}
	want := make([]int64, len(h.From))
	for i, from := range h.From {
		until := int64(math.MaxInt64)
		if i+1 < len(h.From) {
			until = h.From[i+1]
		}
		if from < -leaderboard.MaxScore || from > leaderboard.MaxScore || from >= until {
			t.Errorf("bar %d from %d up to %d", i, from, until)
		}
		for _, score := range scores {
			if from <= score && score < until {
				want[i]++
			}
		}
	}
	if diff := gocmp.Diff(want, h.Entries); diff != "" || h.From[0] > slices.Min(scores) {
		t.Errorf("%v from %v: %s", scores, h.From, diff)
	}
	if want[0] == 0 || want[len(want)-1] == 0 {
		t.Errorf("empty at an end: %v from %v", want, h.From)
	}
	entries, err := n.health(context.Background(), "entries")
	if diff := gocmp.Diff(map[string]int64{board: int64(len(scores))}, entries); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
}

// TestManyBoards checks that the values of the first 24 boards are shown, and that each fits into
// the manifest with the longest keys and counts of ten digits.
func TestManyBoards(t *testing.T) {
	var cfg leaderboard.Config
	for i := range 30 {
		b := oneBoard(func(b *leaderboard.Board) { b.Key = strings.Repeat("k", 62) + fmt.Sprintf("%02d", i) }).Boards[0]
		cfg.Boards = append(cfg.Boards, b)
	}
	n := open(t, databasetest.Memory(t), cfg, newClock())
	keys := n.Capability().Health
	if len(keys) != 25 || keys[0].Key != "entries" || keys[24].Key != "scores."+cfg.Boards[23].Key {
		t.Fatalf("%d values, the last is %s", len(keys), keys[len(keys)-1].Key)
	}
	totals, err := keys[0].Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(totals)
	if err != nil || len(text)+24*len("234567890") > maxHealthValue || strings.Count(string(text), ":") != 24 {
		t.Errorf("%d bytes: %s, %v", len(text), text, err)
	}
}

// TestHealthKeys checks that no two values have the same name.
func TestHealthKeys(t *testing.T) {
	n := open(t, databasetest.Memory(t), oneBoard(func(b *leaderboard.Board) { b.Key = "entries" }), newClock())
	var names []string
	for _, key := range n.Capability().Health {
		names = append(names, key.Key)
	}
	if diff := gocmp.Diff([]string{"entries", "scores.entries"}, names); diff != "" {
		t.Error(diff)
	}
}
