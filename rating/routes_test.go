package rating_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/rating"
)

// serve runs a test with a kit with rating on every database.
func serve(t *testing.T, cfg rating.Config, story func(t *testing.T, k *kittest.Kit, r *rating.Rating)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		var r *rating.Rating
		k := kittest.New(t, kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}),
			kit.WithCapability(func(k *kit.Kit) (capability.Capability, error) {
				var err error
				if r, err = rating.New(k.Host(), cfg, rating.Peers{Audit: k.Audit()}); err != nil {
					return capability.Capability{}, err
				}
				return r.Capability(), nil
			}))
		story(t, k, r)
	})
}

const outcomes = "/rating/games/chess/outcomes"

type ranks map[string]int

func body(r ranks) map[string]ranks { return map[string]ranks{"ranks": r} }

func TestHTTP(t *testing.T) {
	serve(t, config, func(t *testing.T, k *kittest.Kit, _ *rating.Rating) {
		ada, server := k.User("ada"), k.User("server", "rating:record")
		k.Anonymous().Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(401, "auth/unauthenticated")
		k.Anonymous().Get("/rating/games/chess/me").Want(401, "auth/unauthenticated")
		ada.Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(403, "rating/record_forbidden")
		k.User("eve", "rating:recorded").Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(403, "rating/record_forbidden")

		want := func(path, json string) {
			t.Helper()
			if got := strings.TrimSpace(string(ada.Get(path).Want(200, "").Body)); got != json {
				t.Errorf("%s returned %s", path, got)
			}
		}
		want("/rating/games/chess/me", `{"userId":"ada","pool":"chess","skill":1500,"rating":1500,"xp":0,"gamesPlayed":0}`)
		want("/rating/games/go/me", `{"userId":"ada","pool":"go","xp":0,"gamesPlayed":0}`)

		got := strings.TrimSpace(string(server.Post(outcomes, body(ranks{"bob": 2, "ada": 1})).Want(200, "").Body))
		const at = `"updatedAt":"2026-11-21T12:00:00.000Z"`
		if diff := cmp.Diff(`{"game":"chess","pool":"chess","players":[`+
			`{"userId":"ada","place":1,"before":{"skill":1500,"rating":1500,"xp":0,"gamesPlayed":0},"after":{"skill":1516,"rating":1516,"xp":30,"level":"pawn","gamesPlayed":1,`+at+`}},`+
			`{"userId":"bob","place":2,"before":{"skill":1500,"rating":1500,"xp":0,"gamesPlayed":0},"after":{"skill":1484,"rating":1484,"xp":10,"level":"pawn","gamesPlayed":1,`+at+`}}]}`,
			got); diff != "" {
			t.Error(diff)
		}
		want("/rating/games/chess/me", `{"userId":"ada","pool":"chess","skill":1516,"rating":1516,"xp":30,"level":"pawn","gamesPlayed":1,`+at+`}`)
		want("/rating/games/chess/players/bob", `{"userId":"bob","pool":"chess","skill":1484,"rating":1484,"xp":10,"level":"pawn","gamesPlayed":1,`+at+`}`)
		want("/rating/games/blitz/players/bob", `{"userId":"bob","pool":"chess","skill":1484,"rating":1484,"xp":10,"gamesPlayed":1,`+at+`}`)

		ada.Get("/rating/games/poker/me").Want(404, "rating/game_not_found")
		ada.Get("/rating/games/poker/players/bob").Want(404, "rating/game_not_found")
		server.Post("/rating/games/poker/outcomes", body(ranks{"ada": 1, "bob": 2})).Want(404, "rating/game_not_found")
		server.Post(outcomes, body(ranks{"ada": 1, "bob": 2, "cleo": 3})).Want(422, "rating/unsupported_player_count")
	})
}

// TestHostileBodies checks that any invalid body gets a clear refusal and changes nothing.
func TestHostileBodies(t *testing.T) {
	serve(t, config, func(t *testing.T, k *kittest.Kit, r *rating.Rating) {
		server := k.User("server", "rating:record")
		for _, b := range []string{
			``, `null`, `[]`, `{`, `{}`, `{"ranks":null}`, `{"ranks":[]}`, `{"ranks":"ada"}`, `{"ranks":{"ada":1,"bob":2},"pool":"go"}`,
			`{"Ranks":{"ada":1,"bob":2}}`, `{"ranks":{"ada":1,"bob":2},"ranks":{"ada":2,"bob":1}}`, `{"ranks":{"ada":1,"bob":2,"bob":1}}`,
			`{"ranks":{"ada":1,"bob":"2"}}`, `{"ranks":{"ada":1,"bob":1.5}}`, `{"ranks":{"ada":1,"bob":null}}`, `{"ranks":{"ada":1,"bob":1e99}}`,
			`{"ranks":{"ada":1,"bob":-9223372036854775808}}`, `{"ranks":{"ada":0,"bob":1}}`, `{"ranks":{"ada":1,"bob":9223372036854775807}}`,
			`{"ranks":{"ada":1,"":2}}`, `{"ranks":{"ada":1,"b\u0000b":2}}`, "{\"ranks\":{\"ada\":1,\"\xff\":2}}",
			`{"ranks":{"ada":1,"` + strings.Repeat("b", 129) + `":2}}`, strings.Repeat(`{"ranks":`, 40) + "1" + strings.Repeat("}", 40),
		} {
			server.Post(outcomes, b).Want(400, "kit/invalid_request")
		}
		many := make(ranks)
		for i := range 1000 {
			many[fmt.Sprint("player ", i)] = 1
		}
		server.Post(outcomes, body(many)).Want(422, "rating/unsupported_player_count")
		server.Post(outcomes, `{"ranks":{"`+strings.Repeat("b", 256<<10)+`":1}}`).Want(413, "kit/body_too_large")
		server.With("Content-Type", "text/plain").Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(415, "kit/unsupported_media_type")
		for _, part := range []string{"%2F", "..", "%00", "%ff", strings.Repeat("x", 10_000)} {
			for _, path := range []string{"/rating/games/" + part + "/me", "/rating/games/chess/players/" + part} {
				if got := server.Get(path); got.Status >= 500 || got.Status < 400 && part != "%2F" && part != ".." {
					t.Errorf("%.40s: %d %s", path, got.Status, got.Body)
				}
			}
		}
		if got, err := r.Rating(context.Background(), "chess", "ada"); err != nil || got.GamesPlayed != 0 {
			t.Errorf("ada: %+v, %v", got, err)
		}
	})
}

// TestIdempotencyKey checks that the response is repeated and the game counts once.
func TestIdempotencyKey(t *testing.T) {
	serve(t, config, func(t *testing.T, k *kittest.Kit, r *rating.Rating) {
		server := k.User("server", "rating:record").With("Idempotency-Key", "game 1")
		server.Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(400, "kit/invalid_request") // no spaces
		server = k.User("server", "rating:record").With("Idempotency-Key", "game-1")
		first := server.Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(200, "")
		again := server.Post(outcomes, body(ranks{"ada": 1, "bob": 2})).Want(200, "")
		if diff := cmp.Diff(string(first.Body), string(again.Body)); diff != "" {
			t.Error(diff)
		}
		server.Post(outcomes, body(ranks{"ada": 2, "bob": 1})).Want(409, "kit/idempotency_conflict")
		if got, err := r.Rating(context.Background(), "chess", "ada"); err != nil || got.GamesPlayed != 1 {
			t.Errorf("ada: %+v, %v", got, err)
		}
	})
}

// TestPlayersReport checks that without server authority a player may record an outcome, and that
// other users still need the scope.
func TestPlayersReport(t *testing.T) {
	cfg := config
	cfg.ServerAuthoritative, cfg.RecordScope = new(false), "referee"
	serve(t, cfg, func(t *testing.T, k *kittest.Kit, _ *rating.Rating) {
		game := body(ranks{"ada": 1, "bob": 2})
		k.User("ada").Post(outcomes, game).Want(200, "")
		k.User("bob").Post(outcomes, game).Want(200, "")
		k.User("eve").Post(outcomes, game).Want(403, "rating/record_forbidden")
		k.User("eve", "rating:record").Post(outcomes, game).Want(403, "rating/record_forbidden")
		k.User("eve", "referee").Post(outcomes, game).Want(200, "")
		k.Anonymous().Post(outcomes, game).Want(401, "auth/unauthenticated")
	})
}

// TestAudited checks that an outcome is audited, with the caller who recorded it.
func TestAudited(t *testing.T) {
	serve(t, config, func(t *testing.T, k *kittest.Kit, r *rating.Rating) {
		server := k.User("server", "rating:record")
		server.Post(outcomes, body(ranks{"ada": 2, "bob": 1})).Want(200, "")
		server.Post(outcomes, body(ranks{"ada": 3, "bob": 1})).Want(400, "kit/invalid_request")
		if _, err := r.Record(context.Background(), "chess", rating.Outcome{Ranks: ranks{"ada": 1, "bob": 2}}); err != nil {
			t.Fatal(err)
		}
		events, err := k.Audit().ListEvents(context.Background(), audit.Filter{Action: "rating/outcome_recorded"}, capability.NewPage(0, ""))
		if err != nil || len(events.Items) != 2 {
			t.Fatalf("%d events, %v, want those of the call over HTTP and of the one in Go", len(events.Items), err)
		}
		if in := events.Items[0].Actor.Kind; in != audit.ActorSystem {
			t.Errorf("the call in Go is on the trail as %s", in)
		}
		e := events.Items[1]
		user := func(id string) audit.Target { return audit.Target{Type: "user", ID: id} }
		if e.Actor.ID != "server" || e.Subject.ID != "chess" || string(e.Detail) != `{"pool":"chess","places":[1,2]}` {
			t.Errorf("%+v %s", e, e.Detail)
		}
		if diff := cmp.Diff([]audit.Target{user("bob"), user("ada")}, e.Targets); diff != "" {
			t.Error(diff)
		}
	})
}

// TestLargestOutcome checks that the largest number of players with the longest ids fits the body,
// the audit event and the response.
func TestLargestOutcome(t *testing.T) {
	cfg := rating.Config{Games: []rating.Game{{Key: "chess", Algorithm: "trueskill", Players: rating.MaxPlayers, XP: xp}}}
	serve(t, cfg, func(t *testing.T, k *kittest.Kit, _ *rating.Rating) {
		all := make(ranks)
		for i := range rating.MaxPlayers {
			all[fmt.Sprintf("%0128d", i)] = i + 1
		}
		var result rating.Result
		k.User("server", "rating:record").Post(outcomes, body(all)).Want(200, "").JSON(&result)
		last := rating.MaxPlayers - 1
		if len(result.Players) != last+1 || *result.Players[0].After.Skill <= *result.Players[last].After.Skill {
			t.Errorf("%d players", len(result.Players))
		}
	})
}

// TestTable compares the routes with the specification.
func TestTable(t *testing.T) {
	r := build(t, databasetest.Memory(t), config, rating.Peers{})
	var got []string
	for _, route := range r.Capability().Routes {
		got = append(got, fmt.Sprint(route.Method, " ", route.Path, " ", route.Guard.Strategy(), " ", route.Guard.Note(), " ", route.Idempotent))
	}
	if diff := cmp.Diff([]string{
		"POST /rating/games/:game/outcomes user recordScope if serverAuthoritative true",
		"GET /rating/games/:game/me user  false",
		"GET /rating/games/:game/players/:userId user  false",
	}, got); diff != "" {
		t.Error(diff)
	}
}
