package leaderboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

// TestRoutes compares the routes with the specification.
func TestRoutes(t *testing.T) {
	l, err := leaderboard.New(capability.Host{}, leaderboard.Config{
		Boards: config.Boards, AdminScope: "umpire", SubmitScope: "server", BasePath: "/scores",
	}, leaderboard.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range l.Capability().Routes {
		got = append(got, fmt.Sprintf("%s %s %s %d scope=%q note=%q once=%t",
			r.Method, r.Path, r.Guard.Strategy(), r.Handle.Status(), r.Guard.Scope(), r.Guard.Note(), r.Idempotent))
	}
	want := []string{
		`GET /scores user 200 scope="" note="" once=false`,
		`POST /scores/:board user 200 scope="" note="submitScope if serverAuthoritative" once=true`,
		`GET /scores/:board/top user 200 scope="" note="" once=false`,
		`GET /scores/:board/me user 200 scope="" note="" once=false`,
		`GET /scores/:board/around user 200 scope="" note="" once=false`,
		`POST /scores/:board/segment user 200 scope="" note="" once=false`,
		`PUT /scores/:board/me/visibility user 200 scope="" note="" once=false`,
		`PUT /scores/:board/entries/:userId/hidden user 200 scope="umpire" note="" once=false`,
		`DELETE /scores/:board/entries/:userId user 204 scope="umpire" note="" once=false`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestWindowIsDeclared checks that the routes that declare the parameter window are those that read
// it.
func TestWindowIsDeclared(t *testing.T) {
	k := stage(t, databasetest.Memory(t), config)
	referee(k, "weekly", "ada", 1)
	ada := k.User("ada", "leaderboard:admin", "leaderboard:submit")
	bodies := map[string]any{
		"POST /leaderboard/:board": `{"score":1}`, "POST /leaderboard/:board/segment": `{"userIds":["ada"]}`,
		"PUT /leaderboard/:board/me/visibility": `{"hidden":false}`, "PUT /leaderboard/:board/entries/:userId/hidden": `{"hidden":false}`,
	}
	for _, row := range k.Leaderboard().Capability().Routes {
		path := strings.NewReplacer(":board", "weekly", ":userId", "ada").Replace(row.Path)
		reads := ada.Do(row.Method, path+"?window=never", bodies[row.Method+" "+row.Path]).Code() == "leaderboard/board_not_found"
		if declared := slices.ContainsFunc(row.Query, func(p capability.Param) bool { return p.Name == "window" }); declared != reads {
			t.Errorf("%s %s: declared %v, read %v", row.Method, row.Path, declared, reads)
		}
	}
}

// stage composes a kit with the boards on a database.
func stage(t *testing.T, db *database.DB, cfg leaderboard.Config) *kittest.Kit {
	return kittest.New(t, kit.WithDatabase(db), kit.WithAudit(audit.Config{}), kit.WithAuth(auth.Config{}), kit.WithLeaderboard(cfg))
}

// overHTTP runs a test with a kit on every database.
func overHTTP(t *testing.T, story func(t *testing.T, k *kittest.Kit)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { story(t, stage(t, db, config)) })
}

// wantBody fails the test unless a response is 200 with this body.
func wantBody(t *testing.T, r *kittest.Response, body string) {
	t.Helper()
	if diff := cmp.Diff(body, strings.TrimSpace(string(r.Want(200, "").Body))); diff != "" {
		t.Error(diff)
	}
}

// list is the response of any route that lists entries.
type list struct {
	Items      []leaderboard.Ranked
	NextCursor *string
	Total      int64
}

// listed returns a list as "rank user:score", with the other properties of each entry.
func listed(t *testing.T, r *kittest.Response) (l list, shown []string) {
	t.Helper()
	r.Want(200, "").JSON(&l)
	for _, item := range l.Items {
		text := fmt.Sprintf("%d %s:%d", item.Rank, item.UserID, item.Score)
		if item.Hidden {
			text += " hidden"
		}
		shown = append(shown, text)
	}
	return l, shown
}

// lists compares a list with the expected rows.
func lists(t *testing.T, r *kittest.Response, rows ...string) {
	t.Helper()
	if _, shown := listed(t, r); !cmp.Equal(rows, shown) {
		t.Error(cmp.Diff(rows, shown))
	}
}

// referee submits scores for players, a second apart.
func referee(k *kittest.Kit, board string, scores ...any) {
	server := k.User("server", "leaderboard:submit")
	for i := 0; i < len(scores); i += 2 {
		server.Post("/leaderboard/"+board, map[string]any{"userId": scores[i], "score": scores[i+1]}).Want(200, "")
		k.Clock.Advance(time.Second)
	}
}

func TestAnonymous(t *testing.T) {
	k := stage(t, databasetest.Memory(t), config)
	for _, row := range k.Leaderboard().Capability().Routes {
		path := strings.NewReplacer(":board", "arcade", ":userId", "ada").Replace(row.Path)
		k.Anonymous().Do(row.Method, path, `{}`).Want(401, "auth/unauthenticated")
	}
}

func TestPutVisibility(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		bob, admin := k.User("bob"), k.User("root", "leaderboard:admin")
		own := func(board string, hidden bool) *kittest.Response {
			return bob.Do("PUT", "/leaderboard/"+board+"/me/visibility", map[string]bool{"hidden": hidden})
		}
		theirs := func(board string, hidden bool) *kittest.Response {
			return admin.Do("PUT", "/leaderboard/"+board+"/entries/bob/hidden", map[string]bool{"hidden": hidden})
		}
		const yes, no = `{"userId":"bob","hidden":true}`, `{"userId":"bob","hidden":false}`

		for _, hide := range []func(string, bool) *kittest.Response{own, theirs} {
			hide("nowhere", true).Want(404, "leaderboard/board_not_found")
			hide("arcade", true).Want(404, "leaderboard/entry_not_found")
			hide("arcade", false).Want(404, "leaderboard/entry_not_found")
		}
		referee(k, "arcade", "ada", 30, "bob", 20, "cyd", 10)
		for _, scopes := range [][]string{nil, {"leaderboard:submit"}, {"leaderboard"}} {
			k.User("eve", scopes...).Do("PUT", "/leaderboard/arcade/entries/bob/hidden", `{"hidden":true}`).Want(403, "auth/insufficient_scope")
		}

		wantBody(t, own("arcade", false), no)
		wantBody(t, own("arcade", true), yes)
		wantBody(t, own("arcade", true), yes)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 ada:30", "2 cyd:10")
		wantBody(t, bob.Get("/leaderboard/arcade/me"), `{"entry":{"userId":"bob","score":20,"achievedAt":"2026-11-21T12:00:01.000Z","hidden":true},`+
			`"rank":2,"total":2,"percentile":50}`)
		wantBody(t, k.User("cyd").Get("/leaderboard/arcade/me"), `{"entry":{"userId":"cyd","score":10,"achievedAt":"2026-11-21T12:00:02.000Z"},`+
			`"rank":2,"total":2,"percentile":0}`)
		referee(k, "arcade", "bob", 40) // hidden, but the score still changes the player's own entry
		wantBody(t, bob.Get("/leaderboard/arcade/me"), `{"entry":{"userId":"bob","score":40,"achievedAt":"2026-11-21T12:00:03.000Z","hidden":true},`+
			`"rank":1,"total":2,"percentile":100}`)

		// Each of the two undoes only its own.
		wantBody(t, theirs("arcade", false), yes)
		wantBody(t, theirs("arcade", true), yes)
		wantBody(t, own("arcade", false), yes)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 ada:30", "2 cyd:10")
		wantBody(t, theirs("arcade", false), no)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 bob:40", "2 ada:30", "3 cyd:10")
		wantBody(t, theirs("arcade", true), yes)
		wantBody(t, own("arcade", true), yes)
		wantBody(t, theirs("arcade", false), yes)
		wantBody(t, own("arcade", false), no)

		// Hiding applies to one board only, and a new entry after a removal is still hidden.
		wantBody(t, theirs("arcade", true), yes)
		referee(k, "xp", "bob", 1)
		lists(t, bob.Get("/leaderboard/xp/top"), "1 bob:1")
		admin.Do("DELETE", "/leaderboard/arcade/entries/bob", nil).Want(204, "")
		referee(k, "arcade", "bob", 50)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 ada:30", "2 cyd:10")
		admin.Do("DELETE", "/leaderboard/arcade/entries/bob", nil).Want(204, "")
		wantBody(t, theirs("arcade", false), no)
		theirs("arcade", false).Want(404, "leaderboard/entry_not_found")

		// On a board with windows it applies to all of them, including future ones.
		referee(k, "weekly", "ada", 2, "bob", 1)
		k.Clock.Advance(7 * 24 * time.Hour)
		referee(k, "weekly", "ada", 2, "bob", 1)
		wantBody(t, own("weekly", true), yes)
		k.Clock.Advance(7 * 24 * time.Hour)
		referee(k, "weekly", "ada", 2, "bob", 1)
		for _, window := range []string{"20261116T0000Z", "20261123T0000Z", "20261130T0000Z"} {
			lists(t, bob.Get("/leaderboard/weekly/top?window="+window), "1 ada:2")
			lists(t, bob.Get("/leaderboard/weekly/around?window="+window), "1 ada:2", "2 bob:1 hidden")
		}
	})
}

func TestDeleteEntry(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		admin, ada := k.User("root", "leaderboard:admin"), k.User("ada")
		remove := func(path string) *kittest.Response { return admin.Do("DELETE", "/leaderboard/"+path, nil) }
		remove("nowhere/entries/ada").Want(404, "leaderboard/board_not_found")
		remove("arcade/entries/ada").Want(404, "leaderboard/entry_not_found")
		referee(k, "arcade", "ada", 3, "bob", 2)
		for _, scopes := range [][]string{nil, {"leaderboard:submit"}} {
			k.User("ada", scopes...).Do("DELETE", "/leaderboard/arcade/entries/ada", nil).Want(403, "auth/insufficient_scope")
		}
		if r := remove("arcade/entries/ada").Want(204, ""); len(r.Body) != 0 {
			t.Errorf("removed with %s", r.Body)
		}
		remove("arcade/entries/ada").Want(404, "leaderboard/entry_not_found")
		ada.Get("/leaderboard/arcade/me").Want(404, "leaderboard/entry_not_found")
		lists(t, ada.Get("/leaderboard/arcade/top"), "1 bob:2")
		referee(k, "arcade", "ada", 1)
		lists(t, ada.Get("/leaderboard/arcade/top"), "1 bob:2", "2 ada:1")

		// Only one window: the open one, or the one in the query.
		referee(k, "weekly", "ada", 1)
		k.Clock.Advance(7 * 24 * time.Hour)
		referee(k, "weekly", "ada", 2)
		remove("weekly/entries/ada").Want(204, "")
		lists(t, ada.Get("/leaderboard/weekly/top"))
		lists(t, ada.Get("/leaderboard/weekly/top?window=20261116T0000Z"), "1 ada:1")
		remove("weekly/entries/ada?window=20261109T0000Z").Want(404, "leaderboard/board_not_found")
		remove("weekly/entries/bob?window=20261116T0000Z").Want(404, "leaderboard/entry_not_found")
		remove("weekly/entries/ada?window=20261116T0000Z").Want(204, "")
		lists(t, ada.Get("/leaderboard/weekly/top?window=20261116T0000Z"))
	})
}

// TestAudited checks that operations of administrators are audited once, with the administrator;
// refusals and operations of players are not.
func TestAudited(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		admin, ada := k.User("root", "leaderboard:admin"), k.User("ada")
		referee(k, "arcade", "ada", 1)
		referee(k, "weekly", "ada", 1)
		ada.Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		ada.Do("DELETE", "/leaderboard/arcade/entries/ada", nil).Want(403, "auth/insufficient_scope")
		admin.Do("PUT", "/leaderboard/arcade/entries/bob/hidden", `{"hidden":true}`).Want(404, "leaderboard/entry_not_found")
		admin.Do("DELETE", "/leaderboard/weekly/entries/ada?window=20261109T0000Z", nil).Want(404, "leaderboard/board_not_found")
		admin.Do("PUT", "/leaderboard/arcade/entries/ada/hidden?window=all", `{"hidden":true}`).Want(200, "")
		admin.Do("PUT", "/leaderboard/arcade/entries/ada/hidden", `{"hidden":false}`).Want(200, "")
		admin.Do("DELETE", "/leaderboard/arcade/entries/ada", nil).Want(204, "")
		admin.Do("DELETE", "/leaderboard/weekly/entries/ada?window=20261116T0000Z", nil).Want(204, "")

		events, err := k.Audit().ListEvents(context.Background(), audit.Filter{Namespace: "leaderboard"}, capability.NewPage(10, ""))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events.Items {
			got = append(got, strings.Join([]string{e.Action, e.Actor.ID, e.Subject.Type, e.Subject.ID, string(e.Detail)}, " "))
		}
		want := []string{
			`leaderboard/entry_removed root user ada {"board":"weekly","window":"20261116T0000Z"}`,
			`leaderboard/entry_removed root user ada {"board":"arcade"}`,
			`leaderboard/player_shown root user ada {"board":"arcade"}`,
			`leaderboard/player_hidden root user ada {"board":"arcade"}`, // in all windows, whatever the query says
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestScopes checks that the configured scopes replace the default ones.
func TestScopes(t *testing.T) {
	cfg := config
	cfg.AdminScope, cfg.SubmitScope, cfg.BasePath = "umpire", "server", "/scores"
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := stage(t, db, cfg)
		old, now := k.User("x", "leaderboard:submit", "leaderboard:admin"), k.User("y", "server", "umpire")
		old.Post("/leaderboard/arcade", `{"score":1}`).Want(404, "kit/not_found")
		old.Post("/scores/arcade", `{"score":1}`).Want(403, "leaderboard/submit_forbidden")
		now.Post("/scores/arcade", `{"score":1,"userId":"ada"}`).Want(200, "")
		old.Do("PUT", "/scores/arcade/entries/ada/hidden", `{"hidden":true}`).Want(403, "auth/insufficient_scope")
		now.Do("PUT", "/scores/arcade/entries/ada/hidden", `{"hidden":true}`).Want(200, "")
		old.Do("DELETE", "/scores/arcade/entries/ada", nil).Want(403, "auth/insufficient_scope")
		now.Do("DELETE", "/scores/arcade/entries/ada", nil).Want(204, "")
	})
}
