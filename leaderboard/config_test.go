package leaderboard_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

const staleEnv = "LEADERBOARD_LOCK_STALE_MS"

// oneBoard returns a configuration of one board, which change makes from a valid one.
func oneBoard(change func(*leaderboard.Board)) leaderboard.Config {
	b := leaderboard.Board{Key: "b", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest}
	change(&b)
	return leaderboard.Config{Boards: []leaderboard.Board{b}}
}

// TestFaults checks that each fault is reported at assembly, at its key, and a fault of a schedule
// with its code.
func TestFaults(t *testing.T) {
	type board = leaderboard.Board
	twice := oneBoard(func(*board) {})
	twice.Boards = append(twice.Boards, twice.Boards[0])
	materialized, stale := oneBoard(func(*board) {}), oneBoard(func(*board) {})
	materialized.Rank.Materialize, stale.LockStale = "@hourly", -time.Second
	tiers := func(list ...leaderboard.Tier) leaderboard.Config {
		return oneBoard(func(b *board) { b.Tiers = list })
	}
	many := make([]leaderboard.Tier, 101)
	for i := range many {
		many[i] = leaderboard.Tier{Key: fmt.Sprint("t", i), Min: int64(i)}
	}
	for name, c := range map[string]struct {
		cfg leaderboard.Config
		key string
	}{
		"no boards":      {leaderboard.Config{}, "boards"},
		"no key":         {oneBoard(func(b *board) { b.Key = "" }), "boards[0].key"},
		"not a segment":  {oneBoard(func(b *board) { b.Key = "a/b" }), "boards[0].key"},
		"dots":           {oneBoard(func(b *board) { b.Key = ".." }), "boards[0].key"},
		"a space":        {oneBoard(func(b *board) { b.Key = "a b" }), "boards[0].key"},
		"not ASCII":      {oneBoard(func(b *board) { b.Key = "bögen" }), "boards[0].key"},
		"a new line":     {oneBoard(func(b *board) { b.Key = "b\n" }), "boards[0].key"},
		"a long key":     {oneBoard(func(b *board) { b.Key = strings.Repeat("k", 65) }), "boards[0].key"},
		"twice":          {twice, "boards[1].key"},
		"another store":  {oneBoard(func(b *board) { b.Store = "redis" }), "boards[0].store"},
		"no direction":   {oneBoard(func(b *board) { b.Direction = "" }), "boards[0].direction"},
		"up":             {oneBoard(func(b *board) { b.Direction = "up" }), "boards[0].direction"},
		"no aggregation": {oneBoard(func(b *board) { b.Aggregation = "" }), "boards[0].aggregation"},
		"average":        {oneBoard(func(b *board) { b.Aggregation = "average" }), "boards[0].aggregation"},

		"four fields":    {oneBoard(func(b *board) { b.Window = "0 0 * *" }), "boards[0].window"},
		"six fields":     {oneBoard(func(b *board) { b.Window = "0 0 0 * * *" }), "boards[0].window"},
		"a descriptor":   {oneBoard(func(b *board) { b.Window = "@daily" }), "boards[0].window"},
		"a time zone":    {oneBoard(func(b *board) { b.Window = "CRON_TZ=Asia/Tokyo 0 0 * * *" }), "boards[0].window"},
		"minute 60":      {oneBoard(func(b *board) { b.Window = "60 0 * * *" }), "boards[0].window"},
		"never":          {oneBoard(func(b *board) { b.Window = "0 0 30 2 *" }), "boards[0].window"},
		"a blank":        {oneBoard(func(b *board) { b.Window = " " }), "boards[0].window"},
		"ranked @hourly": {materialized, "rank.materialize"},

		"negative retain":   {oneBoard(func(b *board) { b.Window, b.Retain = "0 0 * * *", -1 }), "boards[0].retain"},
		"negative days":     {oneBoard(func(b *board) { b.Window, b.RetainDays = "0 0 * * *", -1 }), "boards[0].retainDays"},
		"centuries":         {oneBoard(func(b *board) { b.Window, b.RetainDays = "0 0 * * *", 36501 }), "boards[0].retainDays"},
		"an age":            {oneBoard(func(b *board) { b.Window, b.RetainDays = "0 0 * * *", 1_000_000 }), "boards[0].retainDays"},
		"both":              {oneBoard(func(b *board) { b.Window, b.Retain, b.RetainDays = "0 0 * * *", 1, 1 }), "boards[0].retain"},
		"nothing to retain": {oneBoard(func(b *board) { b.Retain = 1 }), "boards[0].retain"},
		"no days to retain": {oneBoard(func(b *board) { b.RetainDays = 1 }), "boards[0].retain"},

		"min too small":    {oneBoard(func(b *board) { b.Min = new(int64(-leaderboard.MaxScore - 1)) }), "boards[0].min"},
		"max too large":    {oneBoard(func(b *board) { b.Max = new(int64(leaderboard.MaxScore + 1)) }), "boards[0].max"},
		"min above max":    {oneBoard(func(b *board) { b.Min, b.Max = new(int64(2)), new(int64(1)) }), "boards[0].min"},
		"too many tiers":   {tiers(many...), "boards[0].tiers"},
		"a nameless tier":  {tiers(leaderboard.Tier{Min: 1}), "boards[0].tiers"},
		"a long tier":      {tiers(leaderboard.Tier{Key: strings.Repeat("t", 129)}), "boards[0].tiers"},
		"a tier twice":     {tiers(leaderboard.Tier{Key: "a", Min: 1}, leaderboard.Tier{Key: "a", Min: 2}), "boards[0].tiers"},
		"tiers of one min": {tiers(leaderboard.Tier{Key: "a", Min: 1}, leaderboard.Tier{Key: "b", Min: 1}), "boards[0].tiers"},
		"a tier too high":  {tiers(leaderboard.Tier{Key: "a", Min: leaderboard.MaxScore + 1}), "boards[0].tiers"},
		"stale before":     {stale, "lockStale"},
	} {
		_, err := leaderboard.New(capability.Host{}, c.cfg, leaderboard.Peers{})
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Key != c.key || fault.Capability != "leaderboard" || fault.Reason == "" || fault.Fix == "" {
			t.Errorf("%s: %v", name, err)
		}
		if lines := strings.Count(fmt.Sprint(err), "\n"); lines != 0 {
			t.Errorf("%s is %d faults: %v", name, lines+1, err)
		}
		schedule := strings.HasSuffix(c.key, ".window") || strings.HasPrefix(c.key, "rank.")
		if errors.Is(err, leaderboard.ErrInvalidSchedule) != schedule {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargest checks that bounds are inclusive.
func TestLargest(t *testing.T) {
	tiers := make([]leaderboard.Tier, 100)
	for i := range tiers {
		tiers[i] = leaderboard.Tier{Key: fmt.Sprintf("%0128d", i), Min: leaderboard.MaxScore - int64(i)}
	}
	for _, days := range []int{0, 36500} {
		cfg := oneBoard(func(b *leaderboard.Board) {
			b.Key, b.Window, b.RetainDays, b.Tiers = "0"+strings.Repeat("-", 63), "*/59 23 31 DEC *", days, tiers
			b.Min, b.Max = new(int64(-leaderboard.MaxScore)), new(int64(leaderboard.MaxScore))
		})
		if _, err := leaderboard.New(capability.Host{}, cfg, leaderboard.Peers{}); err != nil {
			t.Error(err)
		}
	}
	one := oneBoard(func(b *leaderboard.Board) { b.Min, b.Max = new(int64(7)), new(int64(7)) })
	if _, err := leaderboard.New(capability.Host{}, one, leaderboard.Peers{}); err != nil {
		t.Error(err)
	}
}

// TestFaultsTogether checks that all faults are reported at once.
func TestFaultsTogether(t *testing.T) {
	t.Setenv(staleEnv, "soon")
	_, err := leaderboard.New(capability.Host{}, leaderboard.Config{
		Boards: []leaderboard.Board{
			{Key: "..", Store: "kv", Direction: "down", Aggregation: "mean", Window: "daily", Retain: -1, RetainDays: 2},
			{Key: "laps", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationSum, Window: "@daily", Min: new(int64(1) << 53), Max: new(int64(-1) << 53),
				Tiers: []leaderboard.Tier{{Key: "a", Min: 1}, {Key: "a", Min: 2}, {Key: "b", Min: 2}}},
			{Key: "laps", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationSum},
		},
		Rank: leaderboard.Rank{Materialize: "hourly"},
	}, leaderboard.Peers{})
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatal(err)
	}
	var got []string
	for _, err := range joined.Unwrap() {
		var fault *capability.Fault
		if !errors.As(err, &fault) {
			t.Fatal(err)
		}
		got = append(got, fault.Key)
	}
	want := []string{
		"boards[0].key", "boards[0].window", "boards[0].store", "boards[0].direction", "boards[0].aggregation",
		"boards[0].retain", "boards[0].retain", "boards[1].window", "boards[1].min", "boards[1].max", "boards[1].min",
		"boards[1].tiers", "boards[1].tiers", "boards[2].key", "rank.materialize", "lockStale",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAssembly checks that the kit reports the code of an invalid schedule.
func TestAssembly(t *testing.T) {
	_, err := kittest.Compose(t, kit.WithLeaderboard(oneBoard(func(b *leaderboard.Board) { b.Window = "weekly" })))
	wantErr(t, err, leaderboard.ErrInvalidSchedule)
}

// TestManifest checks that the manifest shows the defaults, and tiers in their order.
func TestManifest(t *testing.T) {
	cfg := leaderboard.Config{
		Boards: []leaderboard.Board{
			{Key: "arcade", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest},
			{Key: "laps", Store: "d1", Direction: leaderboard.DirectionAscending, Aggregation: leaderboard.AggregationLatest, Window: "0 0 * * 1", Retain: 4,
				Min: new(int64(0)), Max: new(int64(9)), TrackActivity: true, ServerAuthoritative: new(false),
				Tiers: []leaderboard.Tier{{Key: "slow", Min: 5}, {Key: "fast", Min: 0}}},
			{Key: "xp", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum, Window: "0 0 1 * *", RetainDays: 90},
		},
	}
	shown := func() map[string]string {
		l, err := leaderboard.New(capability.Host{}, cfg, leaderboard.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		values := make(map[string]string)
		for _, key := range l.Capability().Config {
			text, err := json.Marshal(key.Value)
			if err != nil {
				t.Fatal(err)
			}
			values[key.Key] = string(text)
		}
		return values
	}
	want := map[string]string{
		"boards": `[{"key":"arcade","store":"d1","direction":"desc","aggregation":"best","trackActivity":false,"serverAuthoritative":true},` +
			`{"key":"laps","store":"d1","direction":"asc","aggregation":"latest","window":"0 0 * * 1","retain":4,"min":0,"max":9,"trackActivity":true,` +
			`"tiers":[{"key":"fast","min":0},{"key":"slow","min":5}],"serverAuthoritative":false},` +
			`{"key":"xp","store":"d1","direction":"desc","aggregation":"sum","window":"0 0 1 * *","retainDays":90,"trackActivity":false,"serverAuthoritative":true}]`,
		"rank": `"live"`, "adminScope": `"leaderboard:admin"`, "submitScope": `"leaderboard:submit"`, "database": `"DB"`, "basePath": `"/leaderboard"`,
		"lockStale": `"1h0m0s"`,
	}
	if diff := cmp.Diff(want, shown()); diff != "" {
		t.Error(diff)
	}
	if cfg.Boards[0].Store != "" || cfg.Boards[0].ServerAuthoritative != nil || cfg.Boards[1].Tiers[0].Key != "slow" {
		t.Errorf("the caller's configuration was changed: %+v", cfg.Boards)
	}

	cfg.Boards = cfg.Boards[:0:0]
	cfg.Boards = append(cfg.Boards, oneBoard(func(*leaderboard.Board) {}).Boards...)
	cfg.Rank.Materialize, cfg.AdminScope, cfg.SubmitScope, cfg.Database, cfg.BasePath = "*/5 * * * *", "a", "s", "GAMES", "/g"
	want = map[string]string{
		"boards": `[{"key":"b","store":"d1","direction":"desc","aggregation":"best","trackActivity":false,"serverAuthoritative":true}]`,
		"rank":   `{"materialize":"*/5 * * * *"}`, "adminScope": `"a"`, "submitScope": `"s"`, "database": `"GAMES"`, "basePath": `"/g"`,
		"lockStale": `"1h0m0s"`,
	}
	if diff := cmp.Diff(want, shown()); diff != "" {
		t.Error(diff)
	}
}

// TestNeededJobs checks that ranks are stored and windows swept only if the configuration requires
// it.
func TestNeededJobs(t *testing.T) {
	type board = leaderboard.Board
	walked := oneBoard(func(*board) {})
	walked.Rank.Materialize = "*/5 * * * *"
	const verify, rank, sweep = "LEADERBOARD_VERIFY 41 3 * * *", "LEADERBOARD_RANK */5 * * * *", "LEADERBOARD_SWEEP 11 * * * *"
	for name, c := range map[string]struct {
		cfg  leaderboard.Config
		want []string
	}{
		"live":             {oneBoard(func(*board) {}), []string{verify}},
		"windows all kept": {oneBoard(func(b *board) { b.Window = "0 0 * * *" }), []string{verify}},
		"materialized":     {walked, []string{verify, rank}},
		"a few windows":    {oneBoard(func(b *board) { b.Window, b.Retain = "0 0 * * *", 1 }), []string{verify, sweep}},
		"some days":        {oneBoard(func(b *board) { b.Window, b.RetainDays = "0 0 * * *", 1 }), []string{verify, sweep}},
	} {
		l, err := leaderboard.New(capability.Host{}, c.cfg, leaderboard.Peers{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, job := range l.Capability().Jobs {
			got = append(got, job.Name+" "+job.Schedule)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestStaleSources checks the time after which a walk without a sign of life counts as dead: an
// hour, or the value of the environment, or the value of the configuration.
func TestStaleSources(t *testing.T) {
	for name, c := range map[string]struct {
		env   string
		field time.Duration
		want  time.Duration
	}{
		"default":            {"", 0, time.Hour},
		"environment":        {"90000", 0, 90 * time.Second},
		"the shortest":       {"1", 0, time.Millisecond},
		"configuration":      {"90000", 2 * time.Minute, 2 * time.Minute},
		"not looked at":      {"soon", 2 * time.Minute, 2 * time.Minute},
		"a year and no more": {"31536000000", 0, 365 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(staleEnv, c.env)
			cfg := oneBoard(func(*leaderboard.Board) {})
			cfg.Rank.Materialize, cfg.LockStale = "0 0 1 1 *", c.field
			n := open(t, databasetest.Memory(t), cfg, newClock())
			for _, key := range n.Capability().Config {
				if key.Key == "lockStale" && key.Value != c.want.String() {
					t.Errorf("the manifest says %v", key.Value)
				}
			}
			if _, err := n.db.Exec(t.Context(), `INSERT INTO leaderboard_lock (name, token, renewed_at) VALUES ('rank', 'lost', $1)`,
				n.clock.Now().UnixMilli()); err != nil {
				t.Fatal(err)
			}
			n.submit(t, "b", "ada", 1) // a second passes
			walk := func() int64 {
				for _, job := range n.Capability().Jobs {
					if job.Name == "LEADERBOARD_RANK" {
						if err := job.Run(t.Context(), jobs.Job{}); err != nil {
							t.Fatal(err)
						}
					}
				}
				me, err := n.Me(t.Context(), leaderboard.View{Board: "b"}, "ada")
				if err != nil {
					t.Fatal(err)
				}
				return me.Rank
			}
			n.clock.advance(c.want - time.Second - time.Millisecond)
			if walk() != 0 {
				t.Error("a lock was taken over before its time")
			}
			n.clock.advance(time.Millisecond)
			if walk() != 1 {
				t.Error("a lock was not taken over")
			}
		})
	}
	for _, text := range []string{"0", "-1", "1h", "1.5", " 1", "31536000001", "9223372036854775808"} {
		t.Setenv(staleEnv, text)
		_, err := leaderboard.New(capability.Host{}, oneBoard(func(*leaderboard.Board) {}), leaderboard.Peers{})
		var fault *capability.Fault
		if !errors.As(err, &fault) || fault.Key != "lockStale" || fault.Value != text {
			t.Errorf("%q: %v", text, err)
		}
	}
}
