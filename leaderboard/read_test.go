package leaderboard_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

func TestGetTop(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		wantBody(t, ada.Get("/leaderboard/arcade/top"), `{"items":[],"nextCursor":null}`)
		want := make([]string, 7)
		for i := range want {
			user := fmt.Sprint("p", i)
			referee(k, "arcade", user, 9-i/3) // three with the same score
			want[i] = fmt.Sprintf("%d %s:%d", i+1, user, 9-i/3)
		}
		lists(t, ada.Get("/leaderboard/arcade/top"), want...)
		lists(t, ada.Get("/leaderboard/arcade/top?limit=200"), want...)
		wantBody(t, ada.Get("/leaderboard/arcade/top?limit=1"), `{"items":[{"rank":1,"userId":"p0","score":9,"achievedAt":"2026-11-21T12:00:00.000Z"}],`+
			`"nextCursor":"Wy05LDE3OTUyNjI0MDAwMDAsInAwIl0"}`)

		for limit := 1; limit <= 7; limit++ {
			var got []string
			for cursor, more := "", true; more; {
				page, shown := listed(t, ada.Get(fmt.Sprintf("/leaderboard/arcade/top?limit=%d&cursor=%s", limit, cursor)))
				if got = append(got, shown...); len(shown) > limit {
					t.Errorf("a page of %d has %d", limit, len(shown))
				}
				if more = page.NextCursor != nil; more {
					cursor = *page.NextCursor
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("pages of %d: %s", limit, diff)
			}
		}

		// A cursor is a place: it stays valid when its entry has been removed, and ranks are
		// current.
		page, _ := listed(t, ada.Get("/leaderboard/arcade/top?limit=3"))
		k.User("root", "leaderboard:admin").Do("DELETE", "/leaderboard/arcade/entries/p2", nil).Want(204, "")
		lists(t, ada.Get("/leaderboard/arcade/top?limit=2&cursor="+*page.NextCursor), "3 p3:8", "4 p4:8")

		for _, limit := range []string{"0", "-1", "201", "x", "1.5"} {
			ada.Get("/leaderboard/arcade/top?limit="+limit).Want(400, "kit/invalid_request")
		}
		for name, cursor := range map[string]string{
			"not base64":        "!",
			"not JSON":          "eA",
			"too few keys":      forged(t, 1, 2),
			"before 1970":       forged(t, 1, -2, "ada"),
			"too many keys":     forged(t, 1, 2, "ada", 3),
			"a text for a key":  forged(t, "1", 2, "ada"),
			"a fraction":        forged(t, 1.5, 2, "ada"),
			"null":              forged(t, nil, 2, "ada"),
			"a key too large":   forged(t, int64(1)<<53, 2, "ada"),
			"a key too small":   forged(t, -int64(1)<<53, 2, "ada"),
			"a number for a id": forged(t, 1, 2, 3),
			"no user id":        forged(t, 1, 2, ""),
			"a long user id":    forged(t, 1, 2, strings.Repeat("u", 129)),
			"NUL":               forged(t, 1, 2, "a\x00"),
			"too long":          strings.Repeat("A", 2049),
		} {
			if r := ada.Get("/leaderboard/arcade/top?cursor=" + cursor); r.Status != 400 || r.Code() != "kit/invalid_request" {
				t.Errorf("%s: %d %s", name, r.Status, r.Body)
			}
		}
		// A well-formed cursor is a place, which may be outside of the list.
		lists(t, ada.Get("/leaderboard/arcade/top?cursor="+forged(t, int64(leaderboard.MaxScore), 0, "z")))
		lists(t, ada.Get("/leaderboard/arcade/top?limit=1&cursor="+forged(t, int64(-leaderboard.MaxScore), 0, "'; --")), "1 p0:9")
		ada.Get("/leaderboard/nowhere/top").Want(404, "leaderboard/board_not_found")
	})
}

// forged encodes a cursor.
func forged(t *testing.T, keys ...any) string {
	t.Helper()
	cursor := capability.Paged(capability.Page{Limit: 1}, make([]int, 2), func(int) []any { return keys }).NextCursor
	return *cursor
}

func TestGetMe(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		ada.Get("/leaderboard/arcade/me").Want(404, "leaderboard/entry_not_found")
		ada.Get("/leaderboard/nowhere/me").Want(404, "leaderboard/board_not_found")
		referee(k, "laps", "bob", 3, "ada", 2, "eve", 1, "zoe", 4)
		wantBody(t, ada.Get("/leaderboard/laps/me"), `{"entry":{"userId":"ada","score":2,"achievedAt":"2026-11-21T12:00:01.000Z",`+
			`"attempts":1,"lastActiveAt":"2026-11-21T12:00:01.000Z"},"rank":2,"total":4,"percentile":50}`)
		ada.Get("/leaderboard/arcade/me").Want(404, "leaderboard/entry_not_found")
		k.User("server").Get("/leaderboard/laps/me").Want(404, "leaderboard/entry_not_found")
	})
}

func TestGetAround(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		around := func(user, query string) *kittest.Response {
			return k.User(user).Get("/leaderboard/arcade/around" + query)
		}
		around("p1", "").Want(404, "leaderboard/entry_not_found")
		referee(k, "arcade", "p1", 1)
		wantBody(t, around("p1", ""), `{"items":[{"rank":1,"userId":"p1","score":1,"achievedAt":"2026-11-21T12:00:00.000Z"}],"total":1}`)
		for i := 2; i <= 14; i++ {
			referee(k, "arcade", fmt.Sprint("p", i), i) // p14 leads
		}
		rows := func(first, last int) (rows []string) {
			for i := first; i <= last; i++ {
				rows = append(rows, fmt.Sprintf("%d p%d:%d", i, 15-i, 15-i))
			}
			return rows
		}
		// Half of them are ahead; at an end of the board more are from the other side.
		lists(t, around("p8", ""), rows(2, 12)...)
		lists(t, around("p8", "?limit=1"), rows(7, 7)...)
		lists(t, around("p8", "?limit=2"), rows(6, 7)...)
		lists(t, around("p8", "?limit=3"), rows(6, 8)...)
		lists(t, around("p8", "?limit=4"), rows(5, 8)...)
		lists(t, around("p14", "?limit=3"), rows(1, 3)...)
		lists(t, around("p13", "?limit=5"), rows(1, 5)...)
		lists(t, around("p2", "?limit=5"), rows(10, 14)...)
		lists(t, around("p1", "?limit=3"), rows(12, 14)...)
		lists(t, around("p1", "?limit=14"), rows(1, 14)...)
		lists(t, around("p14", "?limit=200"), rows(1, 14)...)
		for _, limit := range []string{"0", "-1", "201", "x", "1.5", "1e1", "9223372036854775808"} {
			around("p8", "?limit="+limit).Want(400, "kit/invalid_request")
		}
		k.User("p8").Get("/leaderboard/nowhere/around").Want(404, "leaderboard/board_not_found")
		around("nobody", "").Want(404, "leaderboard/entry_not_found")

		// A hidden player is in the player's own list, with the rank of the next one, and in no
		// other.
		k.User("p8").Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		lists(t, around("p8", "?limit=3"), "6 p9:9", "7 p8:8 hidden", "7 p7:7")
		lists(t, around("p8", "?limit=1"), "7 p8:8 hidden")
		lists(t, around("p7", "?limit=3"), "6 p9:9", "7 p7:7", "8 p6:6")
		if l, _ := listed(t, around("p8", "")); l.Total != 13 {
			t.Errorf("of %d", l.Total)
		}
		k.User("p14").Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		lists(t, around("p14", "?limit=3"), "1 p14:14 hidden", "1 p13:13", "2 p12:12")
		k.User("p1").Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		lists(t, around("p1", "?limit=3"), "10 p3:3", "11 p2:2", "12 p1:1 hidden")
	})
}

func TestPostSegment(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		segment := func(users ...string) *kittest.Response {
			return ada.Post("/leaderboard/arcade/segment", map[string][]string{"userIds": users})
		}
		wantBody(t, segment("ada"), `{"items":[],"total":0}`)
		referee(k, "arcade", "ada", 3, "bob", 2, "cyd", 1)
		wantBody(t, segment("cyd", "ada"), `{"items":[{"rank":1,"userId":"ada","score":3,"achievedAt":"2026-11-21T12:00:00.000Z"},`+
			`{"rank":3,"userId":"cyd","score":1,"achievedAt":"2026-11-21T12:00:02.000Z"}],"total":3}`)
		wantBody(t, segment([]string{}...), `{"items":[],"total":3}`)
		wantBody(t, segment("nobody", "ADA", "ada "), `{"items":[],"total":3}`)
		lists(t, segment("cyd", "bob", "cyd", "nobody", "bob"), "2 bob:2", "3 cyd:1")

		// 80 at once, each with the longest id; one more is refused, repeated or not.
		var many []string
		for i := range 80 {
			many = append(many, fmt.Sprintf("%0128d", i))
		}
		referee(k, "arcade", many[0], 5, many[79], 4)
		lists(t, segment(many...), "1 "+many[0]+":5", "2 "+many[79]+":4")
		segment(append(many, "ada")...).Want(400, "kit/invalid_request")
		segment(append(many, many[0])...).Want(400, "kit/invalid_request")

		// A hidden player is in no segment, not even the player's own.
		ada.Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		lists(t, segment("ada", "bob", "cyd"), "3 bob:2", "4 cyd:1")
		ada.Post("/leaderboard/nowhere/segment", `{"userIds":["ada"]}`).Want(404, "leaderboard/board_not_found")
	})
}

func TestWindowKeys(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		reads := func(window string) []*kittest.Response {
			query := "?window=" + window
			return []*kittest.Response{
				ada.Get("/leaderboard/weekly/top" + query), ada.Get("/leaderboard/weekly/around" + query),
				ada.Post("/leaderboard/weekly/segment"+query, `{"userIds":["ada"]}`),
			}
		}
		// An open window without submissions is empty, not unknown.
		lists(t, ada.Get("/leaderboard/weekly/top"))
		wantBody(t, ada.Post("/leaderboard/weekly/segment", `{"userIds":["ada"]}`), `{"items":[],"total":0}`)
		ada.Get("/leaderboard/weekly/me").Want(404, "leaderboard/entry_not_found")
		lists(t, ada.Get("/leaderboard/weekly/top?window=20261116T0000Z"))

		referee(k, "weekly", "ada", 10)
		for _, r := range reads("20261116T0000Z") {
			lists(t, r, "1 ada:10")
		}
		k.Clock.Advance(7 * 24 * time.Hour)
		ada.Get("/leaderboard/weekly/me").Want(404, "leaderboard/entry_not_found")
		referee(k, "weekly?window=20261116T0000Z", "ada", 20) // a closed window accepts no scores
		for _, window := range []string{"", "20261123T0000Z"} {
			for _, r := range reads(window) {
				lists(t, r, "1 ada:20")
			}
		}
		for _, r := range reads("20261116T0000Z") {
			lists(t, r, "1 ada:10")
		}
		wantBody(t, ada.Get("/leaderboard/weekly/me?window=20261116T0000Z"),
			`{"entry":{"userId":"ada","score":10,"achievedAt":"2026-11-21T12:00:00.000Z"},"rank":1,"total":1,"percentile":0}`)
		k.User("bob").Get("/leaderboard/weekly/me?window=20261116T0000Z").Want(404, "leaderboard/entry_not_found")
		k.User("bob").Get("/leaderboard/weekly/around?window=20261116T0000Z").Want(404, "leaderboard/entry_not_found")
		wantBody(t, ada.Post("/leaderboard/weekly/segment?window=20261116T0000Z", `{"userIds":["bob"]}`), `{"items":[],"total":1}`)

		for name, window := range map[string]string{
			"never was":       "20261109T0000Z",
			"to come":         "20261130T0000Z",
			"not its instant": "20261116T0001Z",
			"seconds":         "20261116T000000Z",
			"no zone":         "20261116T0000",
			"another zone":    "20261116T0000%2B01",
			"lower case":      "20261116t0000z",
			"no such month":   "20261316T0000Z",
			"no such minute":  "20261116T0060Z",
			"a date":          "2026-11-16",
			"milliseconds":    "1794787200000",
			"a space":         "%2020261116T0000Z",
			"a word":          "latest",
		} {
			for _, r := range append(reads(window), ada.Get("/leaderboard/weekly/me?window="+window)) {
				if r.Status != 404 || r.Code() != "leaderboard/board_not_found" {
					t.Errorf("%s: %d %s", name, r.Status, r.Body)
				}
			}
		}
		// A board without windows has no window keys.
		referee(k, "arcade", "ada", 1)
		for _, window := range []string{"20261116T0000Z", "19700101T0000Z"} {
			ada.Get("/leaderboard/arcade/top?window="+window).Want(404, "leaderboard/board_not_found")
		}
	})
}

func TestListBoards(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		ada := k.User("ada")
		const plain = `{"items":[{"key":"arcade","direction":"desc","aggregation":"best","window":null,"closed":[]},` +
			`{"key":"laps","direction":"asc","aggregation":"best","window":null,"closed":[]},` +
			`{"key":"mood","direction":"desc","aggregation":"latest","window":null,"closed":[]},` +
			`{"key":"xp","direction":"desc","aggregation":"sum","window":null,"closed":[]},`
		wantBody(t, ada.Get("/leaderboard"), plain+
			`{"key":"weekly","direction":"desc","aggregation":"best","window":"0 0 * * 1","open":"20261116T0000Z","closesAt":"2026-11-23T00:00:00.000Z","closed":[]},`+
			`{"key":"daily","direction":"asc","aggregation":"latest","window":"0 0 * * *","open":"20261121T0000Z","closesAt":"2026-11-22T00:00:00.000Z","closed":[]}],`+
			`"nextCursor":null}`)

		// One board keeps two closed windows, the other three days; a day without a score has no
		// window.
		for range 4 {
			referee(k, "weekly", "ada", 1)
			referee(k, "daily", "ada", 1)
			k.Clock.Advance(24 * time.Hour)
			referee(k, "daily", "ada", 1)
			k.Clock.Advance(6 * 24 * time.Hour)
		}
		referee(k, "daily", "ada", 1)
		k.Clock.Advance(48 * time.Hour)
		k.RunJobs()
		wantBody(t, ada.Get("/leaderboard"), plain+
			`{"key":"weekly","direction":"desc","aggregation":"best","window":"0 0 * * 1","open":"20261221T0000Z","closesAt":"2026-12-28T00:00:00.000Z",`+
			`"closed":["20261207T0000Z","20261130T0000Z"]},`+
			`{"key":"daily","direction":"asc","aggregation":"latest","window":"0 0 * * *","open":"20261221T0000Z","closesAt":"2026-12-22T00:00:00.000Z",`+
			`"closed":["20261219T0000Z"]}],"nextCursor":null}`)
		lists(t, ada.Get("/leaderboard/weekly/top?window=20261130T0000Z"), "1 ada:1")
		ada.Get("/leaderboard/weekly/top?window=20261123T0000Z").Want(404, "leaderboard/board_not_found")
		ada.Get("/leaderboard/weekly/me?window=20261123T0000Z").Want(404, "leaderboard/board_not_found")
		ada.Get("/leaderboard/daily/top?window=20261213T0000Z").Want(404, "leaderboard/board_not_found")
	})
}

// TestMaxClosed checks that the latest of many closed windows are listed, and that all can be read.
func TestMaxClosed(t *testing.T) {
	k := stage(t, databasetest.Memory(t), leaderboard.Config{Boards: []leaderboard.Board{
		{Key: "hourly", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum, Window: "0 * * * *"}}})
	for range leaderboard.MaxClosed + 3 {
		referee(k, "hourly", "ada", 1)
		k.Clock.Advance(time.Hour - time.Second)
	}
	var boards struct{ Items []leaderboard.Info }
	k.User("ada").Get("/leaderboard").Want(200, "").JSON(&boards)
	closed := boards.Items[0].Closed
	if len(closed) != leaderboard.MaxClosed || closed[0] != "20261123T1600Z" || closed[49] != "20261121T1500Z" {
		t.Errorf("%d closed windows: %v", len(closed), closed)
	}
	lists(t, k.User("ada").Get("/leaderboard/hourly/top?window=20261121T1200Z"), "1 ada:1")
}

// TestReadMaterialized checks that an entry has no rank before the first walk and the rank of the
// last walk after it, except in the top list and for hidden players. A deployment may change
// between the modes.
func TestReadMaterialized(t *testing.T) {
	cfg := config
	cfg.Rank.Materialize = "*/5 * * * *"
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		k := stage(t, db, cfg)
		server, bob := k.User("server", "leaderboard:submit"), k.User("bob")
		const entry = `{"entry":{"userId":"bob","score":2,"achievedAt":"2026-11-21T12:00:00.000Z"`
		wantBody(t, server.Post("/leaderboard/arcade", `{"score":2,"userId":"bob"}`), entry+`},"total":1,"percentile":0}`)
		wantBody(t, bob.Get("/leaderboard/arcade/me"), entry+`},"total":1,"percentile":0}`)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 bob:2")
		lists(t, bob.Get("/leaderboard/arcade/around"), "0 bob:2")
		lists(t, bob.Post("/leaderboard/arcade/segment", `{"userIds":["bob"]}`), "0 bob:2")

		k.Clock.Advance(5 * time.Minute)
		k.RunJobs()
		referee(k, "arcade", "ada", 3, "cyd", 1)
		wantBody(t, bob.Get("/leaderboard/arcade/me"), entry+`},"rank":1,"total":3,"percentile":66.67}`)
		lists(t, bob.Get("/leaderboard/arcade/top"), "1 ada:3", "2 bob:2", "3 cyd:1")
		lists(t, bob.Get("/leaderboard/arcade/around"), "0 ada:3", "1 bob:2", "0 cyd:1")
		bob.Do("PUT", "/leaderboard/arcade/me/visibility", `{"hidden":true}`).Want(200, "")
		wantBody(t, bob.Get("/leaderboard/arcade/me"), entry+`,"hidden":true},"rank":2,"total":2,"percentile":50}`)

		k.Clock.Advance(5 * time.Minute)
		k.RunJobs()
		lists(t, bob.Post("/leaderboard/arcade/segment", `{"userIds":["ada","bob","cyd"]}`), "1 ada:3", "2 cyd:1")

		// Counts are always kept: the next deployment may read live ranks, and the one after it
		// walk again.
		referee(k, "arcade", "dan", 4)
		lists(t, stage(t, db, config).User("dan").Get("/leaderboard/arcade/around"), "1 dan:4", "2 ada:3", "3 cyd:1")
		lists(t, stage(t, db, cfg).User("dan").Get("/leaderboard/arcade/around"), "0 dan:4", "1 ada:3", "2 cyd:1")
	})
}

// TestReadsSeek checks that reads seek: among many players with the same score, divided into many
// ranges, no statement scans the entries, the ranges or the counts.
func TestReadsSeek(t *testing.T) {
	const players = 20_000
	config := leaderboard.SmallRanges(config, 10)
	everywhere(t, config, func(t *testing.T, nodes ...*node) {
		n := nodes[0]
		if n.db.Dialect() == database.PostgreSQL { // the plan of SQLite is the same without
			var entries []leaderboard.Entry
			for i := range players {
				entries = append(entries, entryOf(player(i), 7, int64(i)))
			}
			if err := n.bring(t, arcade, entries...); err != nil {
				t.Fatal(err)
			}
			// After a vacuum an index-only scan does not read the table, as nobody else has a
			// transaction in this database.
			if _, err := n.db.Exec(t.Context(), `VACUUM leaderboard_entry`); err != nil {
				t.Fatal(err)
			}
		}
		for name, read := range leaderboard.Reads(n.db.Dialect(), player(players/2), -7, players/2) {
			t.Run(name, func(t *testing.T) {
				plan := databasetest.Seeks(t, n.db, "m side", read[0].(string), append([]any{"arcade", 0}, read[1:]...)...)
				// Nor a part of them: SQLite seeks by the whole place.
				if part := regexp.MustCompile(`\(window_id=\?( AND key[<>]\?)?\)`).FindString(plan); part != "" && name != "top" {
					t.Errorf("%s in\n%s", part, plan)
				}
			})
		}
	})
}
