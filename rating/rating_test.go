package rating_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/rating"
)

var (
	noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	xp   = &rating.XP{Win: 30, Draw: 20, Loss: 10}
)

var config = rating.Config{Games: []rating.Game{
	{Key: "chess", Algorithm: "elo", XP: xp, Levels: []rating.Level{{Key: "pawn", MinXP: 10}, {Key: "knight", MinXP: 40}, {Key: "king", MinXP: 90}}},
	{Key: "blitz", Algorithm: "elo", XP: &rating.XP{Win: 3, Draw: 2, Loss: 1}, Pool: "chess", SharedRoomCounts: true},
	{Key: "go", Algorithm: "glicko", XP: xp, HideSkill: true},
	{Key: "race", Algorithm: "openskill", Players: 4, XP: xp},
	{Key: "duo", Algorithm: "trueskill", Players: 4, XP: xp},
	{Key: "royale", Algorithm: "trueskill", Players: 8, XP: xp},
}}

// open returns a migrated rating with a clock that stands still.
func open(t testing.TB, db *database.DB, cfg rating.Config, peers rating.Peers) *rating.Rating {
	t.Helper()
	db.UseClock(func() time.Time { return noon })
	r := build(t, db, cfg, peers)
	if err := db.Migrate(context.Background(), database.Migrations{Name: rating.Name, FS: r.Capability().Migrations}); err != nil {
		t.Fatal(err)
	}
	return r
}

func build(t testing.TB, db *database.DB, cfg rating.Config, peers rating.Peers) *rating.Rating {
	t.Helper()
	r, err := rating.New(capability.Host{DB: db, Environment: "test", Now: func() time.Time { return noon }}, cfg, peers)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func record(t testing.TB, r *rating.Rating, game string, o rating.Outcome) rating.Result {
	t.Helper()
	result, err := r.Record(t.Context(), game, o)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestSuite(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		cfg := config
		cfg.BasePath = basePath
		r, err := rating.New(h, cfg, rating.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return r.Capability(), nil
	})
}

func standing(skill float64, xp int64, level string, games int64) rating.Standing {
	s := rating.Standing{Skill: &skill, Rating: &skill, XP: xp, Level: level, GamesPlayed: games}
	if games > 0 {
		s.UpdatedAt = capability.Time{Time: noon}
	}
	return s
}

func TestRecord(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		got := record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"bob": 2, "ada": 1}})
		want := rating.Result{Game: "chess", Pool: "chess", Players: []rating.Change{
			{UserID: "ada", Place: 1, Before: standing(1500, 0, "", 0), After: standing(1516, 30, "pawn", 1)},
			{UserID: "bob", Place: 2, Before: standing(1500, 0, "", 0), After: standing(1484, 10, "pawn", 1)},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		// Another game of the same pool continues from there, with its own levels and points.
		got = record(t, r, "blitz", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 1}})
		if before := got.Players[0].Before; *before.Skill != 1516 || before.XP != 30 || before.Level != "" {
			t.Errorf("blitz shows %+v before", before)
		}
		if after := got.Players[1].After; *after.Skill <= 1484 || after.XP != 12 || after.GamesPlayed != 2 {
			t.Errorf("bob drew with a stronger player: %+v", after)
		}
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
		players, err := r.Ratings(t.Context(), "chess", "nobody", "ada", "bob", "ada")
		if err != nil {
			t.Fatal(err)
		}
		ada := players[1]
		if ada.XP != 62 || ada.Level != "knight" || ada.GamesPlayed != 3 || ada.UserID != "ada" || ada.Pool != "chess" {
			t.Errorf("ada stands at %+v", ada)
		}
		unrated := rating.Player{UserID: "nobody", Pool: "chess", Standing: standing(1500, 0, "", 0)}
		if diff := cmp.Diff([]rating.Player{unrated, ada, {UserID: "bob", Pool: "chess", Standing: players[2].Standing}, ada}, players); diff != "" {
			t.Error(diff)
		}
		alone, err := r.Rating(t.Context(), "chess", "ada")
		if diff := cmp.Diff(ada, alone); err != nil || diff != "" {
			t.Error(err, diff)
		}
	})
}

func TestHideSkill(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		result := record(t, r, "go", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
		if p := result.Players[0]; p.Before.Skill != nil || p.After.Skill != nil {
			t.Error("the outcome shows the skill")
		}
		player, err := r.Rating(t.Context(), "go", "ada")
		if err != nil || player.Skill != nil {
			t.Errorf("the rating shows the skill: %+v, %v", player, err)
		}
		// Players are still matched by it.
		skill, err := r.Skill(t.Context(), "go", "ada")
		if err != nil {
			t.Fatal(err)
		}
		near(t, "skill", skill, 1662.3108950330-2*290.3189620179, tolerance)
		if skill, err := r.Skill(t.Context(), "go", "nobody"); err != nil || skill != 800 {
			t.Errorf("the skill of the unrated: %v, %v", skill, err)
		}
		if _, err := r.Skill(t.Context(), "poker", "ada"); !errors.Is(err, rating.ErrPoolNotFound) {
			t.Errorf("an unknown pool: %v", err)
		}
		if !r.HasPool("chess") || r.HasPool("blitz") || r.HasPool("poker") {
			t.Error("the pools are those that games name")
		}
	})
}

func TestTeams(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		got := record(t, r, "duo", rating.Outcome{Teams: []rating.Team{
			{Place: 2, UserIDs: []string{"dan", "cleo"}}, {Place: 1, UserIDs: []string{"bob", "ada"}},
		}})
		var names []string
		for _, p := range got.Players {
			names = append(names, p.UserID)
			mu, sigma, points := 28.10832239907, 7.77436345109, int64(30)
			if p.Place == 2 {
				mu, points = 21.89167760093, 10
			}
			near(t, p.UserID, *p.After.Skill, mu-3*sigma, tolerance)
			if p.After.XP != points {
				t.Errorf("%s has %d points", p.UserID, p.After.XP)
			}
		}
		if diff := cmp.Diff([]string{"ada", "bob", "cleo", "dan"}, names); diff != "" {
			t.Error(diff)
		}
	})
}

// TestXP checks that a sole first wins, several firsts draw, and everybody else loses.
func TestXP(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		for _, c := range []struct {
			places [4]int
			points [4]int64
		}{
			{[4]int{1, 2, 3, 4}, [4]int64{30, 10, 10, 10}},
			{[4]int{1, 2, 2, 2}, [4]int64{30, 10, 10, 10}},
			{[4]int{1, 1, 3, 4}, [4]int64{20, 20, 10, 10}},
			{[4]int{1, 1, 1, 1}, [4]int64{20, 20, 20, 20}},
		} {
			ranks := make(map[string]int)
			for i, place := range c.places {
				ranks[fmt.Sprint("p", i)] = place
			}
			for i, p := range record(t, r, "race", rating.Outcome{Ranks: ranks}).Players {
				if got := p.After.XP - p.Before.XP; got != c.points[i] {
					t.Errorf("%v: place %d earned %d", c.places, p.Place, got)
				}
			}
		}
	})
}

// TestXPStopsGrowing checks that points stop at the largest exact JavaScript integer.
func TestXPStopsGrowing(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		ranks := map[string]int{"ada": 1, "bob": 2}
		record(t, r, "chess", rating.Outcome{Ranks: ranks})
		if _, err := db.Exec(t.Context(), `UPDATE rating_player SET xp = $1`, int64(rating.MaxXP-5)); err != nil {
			t.Fatal(err)
		}
		if got := record(t, r, "chess", rating.Outcome{Ranks: ranks}).Players[0].After.XP; got != rating.MaxXP {
			t.Errorf("ada has %d", got)
		}
	})
}

func TestFriends(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var asked []string
		broken := errors.New("no response")
		var err error
		r := open(t, db, config, rating.Peers{Friends: func(_ context.Context, ids []string) ([]string, error) {
			asked = ids
			return []string{"ada", "cleo"}, err
		}})
		four := rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2, "cleo": 3, "dan": 4}}
		var earned []int64
		for _, p := range record(t, r, "race", four).Players {
			earned = append(earned, p.After.XP)
			if p.After.GamesPlayed != 1 || *p.After.Skill == 0 {
				t.Errorf("%s was not rated: %+v", p.UserID, p.After)
			}
		}
		if diff := cmp.Diff([]int64{0, 10, 0, 10}, earned); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"ada", "bob", "cleo", "dan"}, asked); diff != "" {
			t.Error(diff)
		}
		// With SharedRoomCounts the peer is not called.
		asked = nil
		if got := record(t, r, "blitz", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}}); got.Players[0].After.XP != 3 || asked != nil {
			t.Errorf("blitz: %+v, asked %v", got, asked)
		}
		err = broken
		if _, err := r.Record(t.Context(), "race", four); !errors.Is(err, broken) {
			t.Errorf("without a response: %v", err)
		}
	})
}

func TestRefusals(t *testing.T) {
	db := databasetest.Memory(t)
	r := open(t, db, config, rating.Peers{})
	ranks := func(pairs ...any) rating.Outcome {
		m := make(map[string]int)
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1].(int)
		}
		return rating.Outcome{Ranks: m}
	}
	team := func(place int, ids ...string) rating.Team { return rating.Team{Place: place, UserIDs: ids} }
	invalid, count := capability.ErrInvalidRequest, rating.ErrUnsupportedPlayerCount
	for name, c := range map[string]struct {
		game    string
		outcome rating.Outcome
		want    error
	}{
		"unknown game":         {"poker", ranks("a", 1, "b", 2), rating.ErrGameNotFound},
		"nothing":              {"chess", rating.Outcome{}, invalid},
		"ranks and teams":      {"chess", rating.Outcome{Ranks: map[string]int{}, Teams: []rating.Team{}}, invalid},
		"nobody":               {"chess", ranks(), count},
		"alone":                {"chess", ranks("a", 1), count},
		"three":                {"chess", ranks("a", 1, "b", 2, "c", 3), count},
		"place 0":              {"chess", ranks("a", 0, "b", 1), invalid},
		"a place below":        {"chess", ranks("a", -1, "b", 1), invalid},
		"a place beyond":       {"chess", ranks("a", 1, "b", 3), invalid},
		"nobody first":         {"chess", ranks("a", 2, "b", 2), invalid},
		"no id":                {"chess", ranks("", 1, "b", 2), invalid},
		"a long id":            {"chess", ranks(strings.Repeat("a", 129), 1, "b", 2), invalid},
		"not text":             {"chess", ranks("\xff", 1, "b", 2), invalid},
		"NUL":                  {"chess", ranks("a\x00", 1, "b", 2), invalid},
		"a long key":           {"chess", rating.Outcome{Ranks: map[string]int{"a": 1, "b": 2}, Key: strings.Repeat("k", 201)}, invalid},
		"no teams in elo":      {"chess", rating.Outcome{Teams: []rating.Team{team(1, "a", "b")}}, count},
		"one team":             {"duo", rating.Outcome{Teams: []rating.Team{team(1, "a", "b", "c", "d")}}, invalid},
		"an empty team":        {"duo", rating.Outcome{Teams: []rating.Team{team(1, "a", "b", "c", "d"), team(2)}}, invalid},
		"in both teams":        {"duo", rating.Outcome{Teams: []rating.Team{team(1, "a", "b"), team(2, "b", "c")}}, invalid},
		"twice in a team":      {"duo", rating.Outcome{Teams: []rating.Team{team(1, "a", "a"), team(2, "b", "c")}}, invalid},
		"a place beyond teams": {"duo", rating.Outcome{Teams: []rating.Team{team(1, "a", "b"), team(3, "c", "d")}}, invalid},
	} {
		if _, err := r.Record(t.Context(), c.game, c.outcome); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := r.Rating(t.Context(), "poker", "ada"); !errors.Is(err, rating.ErrGameNotFound) {
		t.Errorf("unknown game: %v", err)
	}
	if _, err := r.Rating(t.Context(), "chess", ""); !errors.Is(err, invalid) {
		t.Errorf("no id: %v", err)
	}
	if _, err := r.Ratings(t.Context(), "chess", make([]string, rating.MaxRatings+1)...); !errors.Is(err, invalid) {
		t.Errorf("too many: %v", err)
	}
	if n := count1(t, db, `SELECT COUNT(*) FROM rating_player`); n != 0 {
		t.Errorf("refusals left %d rows", n)
	}
}

func count1(t testing.TB, db *database.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestJoins checks that an outcome commits or rolls back with its caller, who can read it before.
func TestJoins(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		changed := errors.New("changed my mind")
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			for range 2 {
				if _, err := r.Record(ctx, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}}); err != nil {
					return err
				}
			}
			if _, err := r.Record(ctx, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1}}); !errors.Is(err, rating.ErrUnsupportedPlayerCount) {
				t.Errorf("a refusal: %v", err)
			}
			ada, err := r.Rating(ctx, "chess", "ada")
			if err != nil || ada.GamesPlayed != 2 {
				t.Errorf("inside: %+v, %v", ada, err)
			}
			return changed
		})
		if !errors.Is(err, changed) {
			t.Fatal(err)
		}
		if ada, err := r.Rating(t.Context(), "chess", "ada"); err != nil || ada.GamesPlayed != 0 {
			t.Errorf("after a rollback: %+v, %v", ada, err)
		}
	})
}

// TestKey checks that an outcome counts once under its key, and that another one is refused.
func TestKey(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		now := noon
		r := open(t, db, config, rating.Peers{})
		db.UseClock(func() time.Time { return now })
		outcome := rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2, "cleo": 3, "dan": 4}, Key: "session 1"}
		first := record(t, r, "race", outcome)
		again := record(t, r, "race", rating.Outcome{Key: "session 1", Teams: []rating.Team{
			{4, []string{"dan"}}, {2, []string{"bob"}}, {1, []string{"ada"}}, {3, []string{"cleo"}}}})
		if first.Replayed || !again.Replayed {
			t.Errorf("replayed: first %v, again %v", first.Replayed, again.Replayed)
		}
		again.Replayed = false
		if diff := cmp.Diff(first, again); diff != "" {
			t.Error(diff)
		}
		other := rating.Outcome{Ranks: map[string]int{"ada": 2, "bob": 1, "cleo": 3, "dan": 4}, Key: "session 1"}
		if _, err := r.Record(t.Context(), "race", other); !errors.Is(err, capability.ErrIdempotencyConflict) {
			t.Errorf("another outcome: %v", err)
		}
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}, Key: "session 1"}) // keys are separate for each game
		if ada, _ := r.Rating(t.Context(), "race", "ada"); ada.GamesPlayed != 1 {
			t.Errorf("ada played %d times", ada.GamesPlayed)
		}
		// A call that failed leaves its key free.
		err := db.InTx(t.Context(), func(ctx context.Context) error {
			outcome.Key = "session 2"
			if _, err := r.Record(ctx, "race", outcome); err != nil {
				return err
			}
			return errors.New("no")
		})
		if err == nil || record(t, r, "race", outcome).Replayed {
			t.Error("the key of a rolled back outcome was kept")
		}

		sweep := r.Capability().Jobs[0].Run
		now = now.Add(rating.KeyLifetime - time.Millisecond)
		if err := sweep(t.Context(), jobs.Job{}); err != nil {
			t.Fatal(err)
		}
		if n := count1(t, db, `SELECT COUNT(*) FROM rating_key`); n != 3 {
			t.Errorf("%d keys within their lifetime", n)
		}
		now = now.Add(time.Millisecond)
		if record(t, r, "race", outcome).Replayed {
			t.Error("a key outlives its lifetime")
		}
		if err := sweep(t.Context(), jobs.Job{}); err != nil {
			t.Fatal(err)
		}
		if n := count1(t, db, `SELECT COUNT(*) FROM rating_key`); n != 1 {
			t.Errorf("%d keys after the sweep", n)
		}
	})
}

// TestChangedAlgorithm checks that a pool stays with its algorithm.
func TestChangedAlgorithm(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
		for _, algorithm := range []string{"glicko", "trueskill", "elo"} {
			changed := build(t, db, rating.Config{Games: []rating.Game{{Key: "chess", Algorithm: algorithm, XP: xp}}}, rating.Peers{})
			_, known := changed.Rating(t.Context(), "chess", "ada")
			_, shared := changed.Record(t.Context(), "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "eve": 2}})
			_, fresh := changed.Record(t.Context(), "chess", rating.Outcome{Ranks: map[string]int{"eve": 1, "fay": 2}})
			_, health := changed.Capability().Health[0].Read(t.Context())
			for what, err := range map[string]error{"read": known, "shared": shared, "fresh": fresh, "health": health} {
				if (err == nil) != (algorithm == "elo") {
					t.Errorf("%s %s: %v", algorithm, what, err)
				}
			}
		}
	})
}

// TestBrokenState checks that a stored state is validated against the algorithm's schema when it is
// rated.
func TestBrokenState(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		outcome := rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}}
		record(t, r, "chess", outcome)
		for _, state := range []string{``, `{}`, `{"rating": "high"}`, `{"rating": 1500, "more": 1}`, `[1500]`, `null`, `{"Rating": 1500}`} {
			if _, err := db.Exec(t.Context(), `UPDATE rating_player SET state = $1 WHERE user_id = 'ada'`, state); err != nil {
				t.Fatal(err)
			}
			before := dump(t, db)
			if _, err := r.Record(t.Context(), "chess", outcome); err == nil {
				t.Errorf("%s was rated on", state)
			}
			if diff := cmp.Diff(before, dump(t, db)); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// dump reads all rows, with floats as their bits.
func dump(t testing.TB, db *database.DB) []string {
	t.Helper()
	rows, err := database.All(context.Background(), db, func(s database.Scanner) (string, error) {
		var pool, user, algorithm, state string
		var skill float64
		var points, games, at int64
		err := s.Scan(&pool, &user, &algorithm, &state, &skill, &points, &games, &at)
		return fmt.Sprintf("%s %s %s %s %x %d %d %d", pool, user, algorithm, state, skill, points, games, at), err
	}, `SELECT pool, user_id, algorithm, state, skill, xp, games_played, updated_at FROM rating_player ORDER BY pool, user_id`)
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestReplay plays one random history on every database, naming the players in another order each
// time: all end with the same bits.
func TestReplay(t *testing.T) {
	var want []string
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		history, shuffle := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(rand.Uint64(), 1))
		for range 150 {
			game, size := "chess", 2
			switch history.IntN(4) {
			case 1:
				game = "go"
			case 2:
				game, size = "race", 4
			case 3:
				game, size = "royale", 8
			}
			var teams []rating.Team
			for i, p := range history.Perm(10)[:size] {
				place := i + 1
				if i > 0 && history.IntN(4) == 0 {
					place = teams[i-1].Place
				}
				teams = append(teams, rating.Team{Place: place, UserIDs: []string{fmt.Sprint("player ", p)}})
			}
			shuffle.Shuffle(len(teams), func(i, j int) { teams[i], teams[j] = teams[j], teams[i] })
			record(t, r, game, rating.Outcome{Teams: teams})
		}
		got := dump(t, db)
		if want == nil {
			want = got
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestPermutations checks that the order in which teams and their members are named does not
// matter.
func TestPermutations(t *testing.T) {
	db := databasetest.Memory(t)
	r := open(t, db, config, rating.Peers{})
	random := rand.New(rand.NewPCG(3, 3))
	rollback := errors.New("rollback")
	var want *rating.Result
	record(t, r, "duo", rating.Outcome{Teams: []rating.Team{{1, []string{"b", "c"}}, {2, []string{"a", "d"}}}})
	for range 20 {
		teams := []rating.Team{{2, []string{"a", "b"}}, {1, []string{"c", "d"}}}
		random.Shuffle(2, func(i, j int) { teams[i], teams[j] = teams[j], teams[i] })
		for _, team := range teams {
			random.Shuffle(2, func(i, j int) { team.UserIDs[i], team.UserIDs[j] = team.UserIDs[j], team.UserIDs[i] })
		}
		var got rating.Result
		err := db.InTx(t.Context(), func(ctx context.Context) (err error) {
			if got, err = r.Record(ctx, "duo", rating.Outcome{Teams: teams}); err != nil {
				return err
			}
			return rollback
		})
		if !errors.Is(err, rollback) {
			t.Fatal(err)
		}
		if want == nil {
			want = &got
		}
		if diff := cmp.Diff(*want, got); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestHealth(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		read := func() (value struct {
			Players   int64
			Min, Max  float64
			Histogram []int64
		}, text string) {
			key := r.Capability().Health[0]
			if key.Key != "pool.chess" {
				t.Fatalf("the first key is %s", key.Key)
			}
			v, err := key.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(raw, &value); err != nil {
				t.Fatal(err)
			}
			return value, string(raw)
		}
		if _, text := read(); text != `{"players":0,"min":0,"max":0,"histogram":[]}` {
			t.Errorf("nobody: %s", text)
		}
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 1}})
		if _, text := read(); text != `{"players":2,"min":1500,"max":1500,"histogram":[2]}` {
			t.Errorf("equals: %s", text)
		}
		if _, err := db.Exec(t.Context(), `DELETE FROM rating_player`); err != nil {
			t.Fatal(err)
		}
		want := make([]int64, 32)
		for i := range 100 {
			skill := -50 + float64(i)*1.5
			want[min(int((skill+50)*32/148.5), 31)]++
			if _, err := db.Exec(t.Context(), `INSERT INTO rating_player VALUES ('chess', $1, 'elo', '{}', $2, 0, 1, 0)`, fmt.Sprint(i), skill); err != nil {
				t.Fatal(err)
			}
		}
		got, text := read()
		if diff := cmp.Diff(want, got.Histogram); diff != "" || got.Players != 100 || got.Min != -50 || got.Max != 98.5 || len(text) > 2048 {
			t.Errorf("a hundred: %s\n%s", text, diff)
		}
	})
}

// TestStateIsHeldToItsSchema checks that an invalid state is not returned as a rating.
func TestStateIsHeldToItsSchema(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
		for _, state := range []string{`{"x":1}`, `{`, `null`} {
			if _, err := db.Exec(t.Context(), `UPDATE rating_player SET state = $1 WHERE user_id = 'ada'`, state); err != nil {
				t.Fatal(err)
			}
			if p, err := r.Rating(t.Context(), "chess", "ada"); err == nil {
				t.Errorf("%s: read %+v", state, p)
			}
			if _, err := r.Record(t.Context(), "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}}); err == nil {
				t.Errorf("%s: rated", state)
			}
		}
		if p, err := r.Rating(t.Context(), "chess", "bob"); err != nil || p.GamesPlayed != 1 {
			t.Errorf("%+v %v", p, err)
		}
	})
}

// TestOtherAlgorithmLeavesTheTransaction checks that a caller's transaction stays usable after the
// refusal.
func TestOtherAlgorithmLeavesTheTransaction(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		if _, err := db.Exec(t.Context(), `INSERT INTO rating_player (pool, user_id, algorithm, state, skill, xp, games_played, updated_at)
			VALUES ('chess', 'eve', 'glicko', '{}', 1, 0, 1, 0)`); err != nil {
			t.Fatal(err)
		}
		if err := db.InTx(t.Context(), func(ctx context.Context) error {
			if _, err := r.Record(ctx, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}, Key: "k"}); !errors.Is(err, rating.ErrOtherAlgorithm) {
				t.Error(err)
			}
			_, err := r.Record(ctx, "go", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
			return err
		}); err != nil {
			t.Error(err)
		}
		if p, err := r.Rating(t.Context(), "go", "ada"); err != nil || p.GamesPlayed != 1 {
			t.Errorf("%+v %v", p, err)
		}
	})
}

// TestRatingNextToSkill checks that the conventional rating of an algorithm is shown next to the
// skill, and hidden with it.
func TestRatingNextToSkill(t *testing.T) {
	cfg := rating.Config{Games: []rating.Game{
		{Key: "elo", Algorithm: "elo", XP: xp}, {Key: "glicko", Algorithm: "glicko", XP: xp},
		{Key: "trueskill", Algorithm: "trueskill", XP: xp}, {Key: "hidden", Algorithm: "glicko", XP: xp, HideSkill: true},
	}}
	r := open(t, databasetest.Memory(t), cfg, rating.Peers{})
	for game, want := range map[string][3]float64{
		"elo": {1500, 1500, 0}, "glicko": {800, 1500, 350}, "trueskill": {0, 25, 8.333333333333334}, "hidden": {},
	} {
		p, err := r.Rating(t.Context(), game, "ada")
		if err != nil {
			t.Fatal(err)
		}
		var got [3]float64
		for i, value := range []*float64{p.Skill, p.Rating, p.Deviation} {
			if value != nil {
				got[i] = *value
			}
		}
		if got != want {
			t.Errorf("%s: skill, rating and deviation are %v, want %v", game, got, want)
		}
	}
}

// TestListTop lists a pool from the top, page by page, with ties in a fixed order.
func TestListTop(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		for i := range 7 {
			if _, err := db.Exec(t.Context(), `INSERT INTO rating_player VALUES ('chess', $1, 'elo', '{"rating":1500}', $2, 0, 1, 0)`,
				fmt.Sprint("p", i), 1500.1*float64(1+i/3)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		page := capability.NewPage(2, "")
		for {
			items, err := r.ListTop(t.Context(), "chess", page)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range items.Items {
				got = append(got, p.UserID)
			}
			if items.NextCursor == nil {
				break
			}
			page = capability.NewPage(2, *items.NextCursor)
		}
		if diff := cmp.Diff([]string{"p6", "p5", "p4", "p3", "p2", "p1", "p0"}, got); diff != "" {
			t.Error(diff)
		}
		if items, err := r.ListTop(t.Context(), "chess", capability.Page{}); err != nil || len(items.Items) != 7 {
			t.Errorf("a zero page: %d items, %v", len(items.Items), err)
		}
		if _, err := r.ListTop(t.Context(), "poker", page); !errors.Is(err, rating.ErrGameNotFound) {
			t.Errorf("got %v, want rating/game_not_found", err)
		}
	})
}

// TestLargePoolIsCountedByAJob checks that health reads a bounded number of rows.
func TestLargePoolIsCountedByAJob(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		for from := 0; from < 12_000; from += 3000 {
			if _, err := db.Exec(t.Context(), `WITH RECURSIVE n (i) AS (SELECT $1 + 0 UNION ALL SELECT i + 1 FROM n WHERE i < $1 + 2999)
				INSERT INTO rating_player SELECT 'chess', 'p' || i, 'elo', '{"rating":1500}', 1000 + i, 0, 1, 0 FROM n`, from); err != nil {
				t.Fatal(err)
			}
		}
		c := r.Capability()
		read := func() (d struct {
			Players   int64
			Histogram []int64
			AsOf      string
		}) {
			t.Helper()
			v, err := c.Health[0].Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			raw, err := json.Marshal(v)
			if err == nil {
				err = json.Unmarshal(raw, &d)
			}
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if d := read(); d.Players != 10_001 || len(d.Histogram) != 0 {
			t.Errorf("before the job: %+v, want at least 10,001", d)
		}
		for _, job := range c.Jobs {
			if job.Name == "RATING_COUNT" {
				if err := job.Run(t.Context(), jobs.Job{}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if d := read(); d.Players != 12_000 || len(d.Histogram) != 32 || d.AsOf == "" {
			t.Errorf("after the job: %+v, want 12,000 players", d)
		}
	})
}

// TestExportAndErase checks that all rows of a user are emitted and removed, also of pools that are
// no longer configured, and that those of others stay.
func TestExportAndErase(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := open(t, db, config, rating.Peers{})
		record(t, r, "chess", rating.Outcome{Ranks: map[string]int{"ada": 1, "bob": 2}})
		if _, err := db.Exec(t.Context(), `INSERT INTO rating_player VALUES ('old', 'ada', 'elo', '{"rating":1500}', 1500, 0, 1, 0)`); err != nil {
			t.Fatal(err)
		}
		c := r.Capability()
		exported := func(user string) (n int) {
			t.Helper()
			if err := c.Export(t.Context(), capability.Person{ID: user}, func(kind string, record any) error {
				if _, err := json.Marshal(record); err != nil || kind != "rating" {
					t.Errorf("%s %+v %v", kind, record, err)
				}
				n++
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := exported("ada"); n != 2 {
			t.Errorf("%d records of ada, want 2", n)
		}
		for i, want := range []int64{2, 0} {
			out, err := c.Erase(t.Context(), capability.Person{ID: "ada"})
			if err != nil || out.Removed != want {
				t.Errorf("erasure %d removed %d, %v; want %d", i, out.Removed, err, want)
			}
		}
		if ada, bob := exported("ada"), exported("bob"); ada != 0 || bob != 1 {
			t.Errorf("%d records of ada and %d of bob are left", ada, bob)
		}
	})
}
