package leaderboard_test

import (
	"context"
	"strings"
	"testing"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
)

// TestHostileBodies checks that any invalid body gets a clear refusal and changes nothing.
func TestHostileBodies(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		all := k.User("server", "leaderboard:submit", "leaderboard:admin")
		referee(k, "arcade", "ada", 5)
		long := strings.Repeat("u", 129)
		for path, bodies := range map[string][]string{
			"POST /leaderboard/arcade": {
				`{}`, `{"score":null}`, `{"score":"7"}`, `{"score":7.5}`, `{"score":7.0}`, `{"score":1e3}`, `{"score":true}`, `{"score":[7]}`,
				`{"score":9223372036854775808}`, `{"score":1e999}`, `{"score":NaN}`, `{"score":07}`, `{"Score":7}`, `{"score":7,"score":8}`,
				`{"score":7,"board":"arcade"}`, `{"score":7,"achievedAt":0}`, `{"score":7} {"score":8}`,
				`{"score":7,"userId":""}`, `{"score":7,"userId":5}`, `{"score":7,"userId":"` + long + `"}`,
				`{"score":7,"userId":"a\u0000b"}`, "{\"score\":7,\"userId\":\"\xff\"}", `{"score":7,"userId":["ada"]}`,
			},
			"POST /leaderboard/arcade/segment": {
				`{}`, `{"userIds":null}`, `{"userIds":"ada"}`, `{"userIds":{"ada":1}}`, `{"userIds":[1]}`, `{"userIds":[null]}`, `{"userIds":[""]}`,
				`{"userIds":["` + long + `"]}`, `{"userIds":["a\u0000"]}`, `{"userIds":["ada"],"limit":1}`, `{"userids":["ada"]}`,
			},
			"PUT /leaderboard/arcade/me/visibility": {
				`{}`, `{"hidden":null}`, `{"hidden":"true"}`, `{"hidden":1}`, `{"Hidden":true}`, `{"hidden":true,"userId":"ada"}`,
			},
			"PUT /leaderboard/arcade/entries/ada/hidden": {
				`{}`, `{"hidden":null}`, `{"hidden":"true"}`, `{"hidden":1}`, `{"Hidden":true}`, `{"hidden":true,"by":"player"}`,
			},
		} {
			method, path, _ := strings.Cut(path, " ")
			for _, body := range append(bodies, ``, `null`, `[]`, `{`, `7`, strings.Repeat("[", 40)+strings.Repeat("]", 40)) {
				if r := all.Do(method, path, body); r.Status != 400 || r.Code() != "kit/invalid_request" {
					t.Errorf("%s %s %.60s: %d %s", method, path, body, r.Status, r.Body)
				}
			}
			all.Do(method, path, `{"userId":"`+strings.Repeat("u", 1<<20)+`"}`).Want(413, "kit/body_too_large")
			all.With("Content-Type", "text/plain").Do(method, path, `{}`).Want(415, "kit/unsupported_media_type")
		}
		lists(t, all.Get("/leaderboard/arcade/top"), "1 ada:5")
	})
}

// TestHostilePaths checks that any text in a path, a query or a user id is treated as plain text.
func TestHostilePaths(t *testing.T) {
	overHTTP(t, func(t *testing.T, k *kittest.Kit) {
		admin := k.User("root", "leaderboard:admin")
		for _, part := range []string{"%2F", "..", "%00", "%ff", "%27--", "arcade%20", strings.Repeat("x", 10_000)} {
			for _, r := range []*kittest.Response{
				admin.Get("/leaderboard/" + part + "/top"),
				admin.Get("/leaderboard/arcade/top?window=" + part),
				admin.Get("/leaderboard/arcade/top?cursor=" + part),
				admin.Get("/leaderboard/arcade/me?window=" + part),
				admin.Get("/leaderboard/arcade/around?limit=" + part),
				admin.Do("DELETE", "/leaderboard/arcade/entries/"+part, nil),
				admin.Do("PUT", "/leaderboard/arcade/entries/"+part+"/hidden", `{"hidden":true}`),
			} {
				if r.Status < 400 || r.Status >= 500 {
					t.Errorf("%.20s: %d %s", part, r.Status, r.Body)
				}
			}
		}
		long := strings.Repeat("u", 129)
		admin.Do("DELETE", "/leaderboard/arcade/entries/"+long, nil).Want(400, "kit/invalid_request")
		admin.Do("PUT", "/leaderboard/arcade/entries/"+long+"/hidden", `{"hidden":true}`).Want(400, "kit/invalid_request")
		// The longest user id is accepted everywhere, including the audit trail.
		user, path := strings.Repeat("é", 64), "/leaderboard/arcade/entries/"+strings.Repeat("%C3%A9", 64)
		referee(k, "arcade", user, 5)
		admin.Do("PUT", path+"/hidden", `{"hidden":true}`).Want(200, "")
		lists(t, admin.Get("/leaderboard/arcade/top"))
		admin.Do("PUT", path+"/hidden", `{"hidden":false}`).Want(200, "")
		lists(t, admin.Get("/leaderboard/arcade/top"), "1 "+user+":5")
		admin.Do("DELETE", path, nil).Want(204, "")
	})
}

// TestInProcess checks that in-process calls have the same bounds as HTTP requests, and that a
// refusal leaves the caller's transaction usable.
func TestInProcess(t *testing.T) {
	each(t, func(t *testing.T, n *node) {
		arcade, nowhere := leaderboard.View{Board: "arcade"}, leaderboard.View{Board: "nowhere"}
		if !n.Has("arcade") || n.Has("nowhere") || n.Has("") {
			t.Error("not the configured boards")
		}
		err := n.db.InTx(t.Context(), func(ctx context.Context) error {
			calls := func(v leaderboard.View, user string) (errs []error) {
				_, submit := n.Submit(ctx, leaderboard.Submission{Board: v.Board, UserID: user, Score: 1})
				_, me := n.Me(ctx, v, user)
				_, around := n.Around(ctx, v, user, 1)
				_, segment := n.Segment(ctx, v, "ada", user)
				_, hide := n.SetHidden(ctx, v.Board, user, leaderboard.Player, true)
				return []error{submit, me, around, segment, hide, n.Remove(ctx, v, user)}
			}
			for _, user := range []string{"", strings.Repeat("u", 129), "a\x00b", "a\xffb"} {
				for _, err := range calls(arcade, user) {
					wantErr(t, err, capability.ErrInvalidRequest)
				}
			}
			for _, err := range calls(nowhere, "ada") {
				wantErr(t, err, leaderboard.ErrBoardNotFound)
			}
			_, err := n.ListTop(ctx, nowhere, capability.NewPage(1, ""))
			wantErr(t, err, leaderboard.ErrBoardNotFound)
			_, err = n.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: "ada", Score: leaderboard.MaxScore + 1})
			wantErr(t, err, leaderboard.ErrScoreRejected)
			_, err = n.Submit(ctx, leaderboard.Submission{Board: "arcade", UserID: "ada", Score: 1})
			wantErr(t, err, nil)
			for _, limit := range []int{-1, 0, leaderboard.MaxAround + 1} {
				_, err = n.Around(ctx, arcade, "ada", limit)
				wantErr(t, err, capability.ErrInvalidRequest)
			}
			_, err = n.Segment(ctx, arcade, make([]string, leaderboard.MaxSegment+1)...)
			wantErr(t, err, capability.ErrInvalidRequest)
			for _, by := range []leaderboard.Hider{0, 3, -1} {
				_, err = n.SetHidden(ctx, "arcade", "ada", by, true)
				wantErr(t, err, capability.ErrInvalidRequest)
			}
			wantErr(t, n.Remove(ctx, arcade, "bob"), leaderboard.ErrEntryNotFound)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		n.wantTop(t, arcade, "ada:1")
		n.addsUp(t)
	})
}
