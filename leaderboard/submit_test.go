package leaderboard_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

func TestPostScore(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada, server := k.User("ada"), k.User("server", "leaderboard:submit")
		const noon = `"achievedAt":"2026-11-21T12:00:00.000Z"`

		// Boards are server-authoritative by default; no other scope is enough.
		ada.Post("/leaderboard/arcade", `{"score":70}`).Want(403, "leaderboard/submit_forbidden")
		k.User("eve", "leaderboard:admin", "leaderboard:submitted").Post("/leaderboard/arcade", `{"score":70}`).
			Want(403, "leaderboard/submit_forbidden")
		wantBody(t, server.Post("/leaderboard/arcade", `{"score":70,"userId":"ada"}`),
			`{"entry":{"userId":"ada","score":70,`+noon+`},"rank":1,"total":1,"percentile":0}`)
		wantBody(t, server.Post("/leaderboard/arcade", `{"score":50}`),
			`{"entry":{"userId":"server","score":50,`+noon+`},"rank":2,"total":2,"percentile":0}`)
		wantBody(t, server.Post("/leaderboard/arcade", `{"score":60,"userId":"bob"}`),
			`{"entry":{"userId":"bob","score":60,`+noon+`},"rank":2,"total":3,"percentile":33.33}`)
		wantBody(t, ada.Get("/leaderboard/arcade/me"),
			`{"entry":{"userId":"ada","score":70,`+noon+`},"rank":1,"total":3,"percentile":66.67}`)

		// Otherwise players submit for themselves, and only for themselves.
		wantBody(t, ada.Post("/leaderboard/mood", `{"score":50}`),
			`{"entry":{"userId":"ada","score":50,`+noon+`,"tier":"gold"},"rank":1,"total":1,"percentile":0}`)
		wantBody(t, ada.Post("/leaderboard/mood", `{"score":-1,"userId":null}`),
			`{"entry":{"userId":"ada","score":-1,`+noon+`,"tier":"bronze"},"rank":1,"total":1,"percentile":0}`)
		for _, user := range []string{"ada", "bob", ""} {
			ada.Post("/leaderboard/mood", map[string]any{"score": 50, "userId": user}).Want(403, "leaderboard/submit_forbidden")
		}
		wantBody(t, server.Post("/leaderboard/mood", `{"score":0,"userId":"bob"}`),
			`{"entry":{"userId":"bob","score":0,`+noon+`,"tier":"silver"},"rank":1,"total":2,"percentile":50}`)

		// A cookie session has no scope, and its request needs a CSRF token.
		browser := k.Browser("ada")
		browser.Post("/leaderboard/mood", `{"score":7}`).Want(200, "")
		browser.With("X-CSRF-Token", "").Post("/leaderboard/mood", `{"score":8}`).Want(403, "auth/csrf")
		browser.Post("/leaderboard/arcade", `{"score":7}`).Want(403, "leaderboard/submit_forbidden")
		lists(t, ada.Get("/leaderboard/mood/top"), "1 ada:7", "2 bob:0")

		// A board that tracks activity returns the last submission, whether it changed the score or
		// not.
		server.Post("/leaderboard/laps", `{"score":9000,"userId":"ada"}`).Want(200, "")
		k.Clock.Advance(time.Minute)
		wantBody(t, server.Post("/leaderboard/laps", `{"score":9001,"userId":"ada"}`),
			`{"entry":{"userId":"ada","score":9000,`+noon+`,"attempts":2,"lastActiveAt":"2026-11-21T12:01:00.000Z"},"rank":1,"total":1,"percentile":0}`)

		server.Post("/leaderboard/nowhere", `{"score":1}`).Want(404, "leaderboard/board_not_found")
		ada.Post("/leaderboard/Arcade", `{"score":1}`).Want(404, "leaderboard/board_not_found")
	})
}

// TestBounds checks that a score out of bounds is refused and changes nothing.
func TestBounds(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		server := k.User("server", "leaderboard:submit")
		for _, score := range []string{"-101", "101", "9007199254740992"} {
			server.Post("/leaderboard/mood", `{"score":`+score+`}`).Want(422, "leaderboard/score_rejected")
		}
		lists(t, server.Get("/leaderboard/mood/top"))
		referee(k, "mood", "low", -100, "high", 100)
		lists(t, server.Get("/leaderboard/mood/top"), "1 high:100", "2 low:-100")

		for _, score := range []string{"9007199254740992", "-9007199254740992", "9223372036854775807", "-9223372036854775808"} {
			server.Post("/leaderboard/arcade", `{"score":`+score+`}`).Want(422, "leaderboard/score_rejected")
			server.Post("/leaderboard/xp", `{"score":`+score+`}`).Want(422, "leaderboard/score_rejected")
		}
		const most = int64(leaderboard.MaxScore)
		referee(k, "xp", "low", -most, "high", most, "ada", most-1, "ada", 1)
		for user, score := range map[string]string{"low": "-1", "high": "1", "ada": "1"} {
			server.Post("/leaderboard/xp", `{"userId":"`+user+`","score":`+score+`}`).Want(422, "leaderboard/score_rejected")
		}
		lists(t, server.Get("/leaderboard/xp/top"), "1 high:9007199254740991", "2 ada:9007199254740991", "3 low:-9007199254740991")
	})
}

// TestIdempotencyKey checks that a repeated request with the same key adds once.
func TestIdempotencyKey(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		server := k.User("server", "leaderboard:submit")
		const ten = `{"userId":"ada","score":10}`
		once := server.With("Idempotency-Key", "match-1")
		first := once.Post("/leaderboard/xp", ten).Want(200, "")
		server.Post("/leaderboard/xp", ten).Want(200, "") // without the key it adds
		again := once.Post("/leaderboard/xp", ten).Want(200, "")
		if string(first.Body) != string(again.Body) || again.Header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("first %s, then %s", first.Body, again.Body)
		}
		lists(t, server.Get("/leaderboard/xp/top"), "1 ada:20")

		once.Post("/leaderboard/xp", `{"userId":"ada","score":11}`).Want(409, "kit/idempotency_conflict")
		once.Post("/leaderboard/xp", `{"userId":"bob","score":10}`).Want(409, "kit/idempotency_conflict")
		once.Post("/leaderboard/arcade", ten).Want(409, "kit/idempotency_conflict") // the same key for another board
		server.With("Idempotency-Key", "match 1").Post("/leaderboard/xp", ten).Want(400, "kit/invalid_request")
		lists(t, server.Get("/leaderboard/xp/top"), "1 ada:20")

		// Keys are separate for each caller, and a refused request does not use up its key.
		k.User("other", "leaderboard:submit").With("Idempotency-Key", "match-1").Post("/leaderboard/xp", ten).Want(200, "")
		second := server.With("Idempotency-Key", "match-2")
		second.Post("/leaderboard/xp", `{"userId":"ada","score":9007199254740991}`).Want(422, "leaderboard/score_rejected")
		second.Post("/leaderboard/xp", ten).Want(200, "")
		lists(t, server.Get("/leaderboard/xp/top"), "1 ada:40")

		// Of many concurrent requests one adds, and all get the same response.
		third, bodies := server.With("Idempotency-Key", "match-3"), make([]string, 8)
		many(len(bodies), func(i int) { bodies[i] = string(third.Post("/leaderboard/xp", ten).Body) })
		if slices.ContainsFunc(bodies, func(body string) bool { return body != bodies[0] }) {
			t.Errorf("the bodies are %q, want one", bodies)
		}
		lists(t, server.Get("/leaderboard/xp/top"), "1 ada:50")
	})
}

// TestImmutable checks that a board with an entry refuses scores under another definition and stays
// readable; one without an entry is redefined.
func TestImmutable(t *testing.T) {
	was := leaderboard.Board{Key: "b", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationBest, Window: "0  0 * * 1", ServerAuthoritative: new(false)}
	changed := func(change func(*leaderboard.Board)) leaderboard.Config {
		b := was
		change(&b)
		return leaderboard.Config{Boards: []leaderboard.Board{b}}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		stage(t, db, changed(func(*leaderboard.Board) {})).User("ada").Post("/leaderboard/b", `{"score":1}`).Want(200, "")
		for name, change := range map[string]func(*leaderboard.Board){
			"direction":   func(b *leaderboard.Board) { b.Direction = leaderboard.DirectionAscending },
			"aggregation": func(b *leaderboard.Board) { b.Aggregation = leaderboard.AggregationLatest },
			"window":      func(b *leaderboard.Board) { b.Window = "0 0 * * 2" },
			"no window":   func(b *leaderboard.Board) { b.Window = "" },
		} {
			k := stage(t, db, changed(change))
			refused := k.User("bob").Post("/leaderboard/b", `{"score":2}`).Want(409, "leaderboard/board_immutable")
			var body struct {
				Error struct{ Details json.RawMessage }
			}
			refused.JSON(&body)
			if got := string(body.Error.Details); got != `{"store":"d1","direction":"desc","aggregation":"best","window":"0 0 * * 1"}` {
				t.Errorf("%s: %s", name, got)
			}
			k.User("ada").Get("/leaderboard/b/top").Want(200, "")
			k.User("bob").Get("/leaderboard/b/me").Want(404, "leaderboard/entry_not_found")
		}
		// Everything but the four fixed properties may change, and the spacing of a schedule is not
		// a change.
		k := stage(t, db, changed(func(b *leaderboard.Board) {
			b.Store, b.Window, b.Retain, b.Min, b.TrackActivity = "d1", "0 0 * * 1", 3, new(int64(2)), true
			b.Tiers = []leaderboard.Tier{{Key: "all", Min: 0}}
		}))
		k.User("bob").Post("/leaderboard/b", `{"score":1}`).Want(422, "leaderboard/score_rejected")
		k.User("bob").Post("/leaderboard/b", `{"score":2}`).Want(200, "")
		wantBody(t, k.User("ada").Get("/leaderboard/b/me"), `{"entry":{"userId":"ada","score":1,"achievedAt":"2026-11-21T12:00:00.000Z","tier":"all"},`+
			`"rank":2,"total":2,"percentile":0}`)

		admin := k.User("root", "leaderboard:admin")
		admin.Do("DELETE", "/leaderboard/b/entries/ada", nil).Want(204, "")
		admin.Do("DELETE", "/leaderboard/b/entries/bob", nil).Want(204, "")
		k = stage(t, db, changed(func(b *leaderboard.Board) { b.Direction, b.Window = leaderboard.DirectionAscending, "" }))
		for user, score := range map[string]string{"ada": "2", "bob": "1"} {
			k.User(user).Post("/leaderboard/b", `{"score":`+score+`}`).Want(200, "")
		}
		lists(t, k.User("ada").Get("/leaderboard/b/top"), "1 bob:1", "2 ada:2")
	})
}

// TestLastInstant checks that a score whose window closes before its rank is read is stored, and
// that its response has no rank.
func TestLastInstant(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		n.db.UseClock(func() time.Time {
			n.clock.advance(7 * 24 * time.Hour) // each read of the clock is in another window
			return n.clock.Now()
		})
		i := slices.IndexFunc(n.Capability().Routes, func(r capability.Route) bool { return r.Method == "POST" && r.Path == "/leaderboard/:board" })
		route := n.Capability().Routes[i]
		r := httptest.NewRequest("POST", "/leaderboard/weekly", strings.NewReader(`{"score":7}`))
		r.Header.Set("Content-Type", "application/json")
		origin := &capability.RequestInfo{Caller: capability.Caller{Strategy: capability.StrategyBearer, UserID: "ada", Scopes: []string{"leaderboard:submit"}}}
		reply, err := route.Handle.Reply(capability.NewCall(httptest.NewRecorder(), r, &route, origin, func(string) string { return "weekly" }))
		if err != nil {
			t.Fatal(err)
		}
		s := reply.(leaderboard.Standing)
		if s.Entry.UserID != "ada" || s.Entry.Score != 7 || s.Rank != 0 || s.Total != 0 {
			t.Errorf("%+v", s)
		}
		n.db.UseClock(n.clock.Now)
		boards, err := n.Boards(t.Context())
		if err != nil || len(boards[4].Closed) != 1 {
			t.Fatalf("%v %v", boards, err)
		}
		n.wantTop(t, leaderboard.View{Board: "weekly", Window: boards[4].Closed[0]}, "ada:7")
	})
}
