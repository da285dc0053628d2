package kit_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
)

type balance struct {
	Currency  string `json:"currency"`
	Balance   int64  `json:"balance"`
	Held      int64  `json:"held"`
	Available int64  `json:"available"`
}

// each runs a story on every database.
func each(t *testing.T, story func(t *testing.T, k *kittest.Kit)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		story(t, kittest.New(t, append(everything(), kit.WithDatabase(db))...))
	})
}

func credit(user string, amount int64, ref string) map[string]any {
	return map[string]any{"userId": user, "amount": amount, "ref": ref}
}

func TestLedgerStory(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		ada, staff := k.User("ada"), k.User("staff", "ledger:admin")
		want := func(b balance) {
			t.Helper()
			var got balance
			ada.Get("/ledger/coins").Want(200, "").JSON(&got)
			if diff := cmp.Diff(b, got); diff != "" {
				t.Error(diff)
			}
		}
		want(balance{Currency: "coins"}) // never opened: zeros
		ada.Get("/ledger/gems").Want(404, "ledger/currency_not_found")
		ada.Post("/ledger/coins/credit", credit("ada", 100, "r1")).Want(403, "auth/insufficient_scope")

		first := staff.Post("/ledger/coins/credit", credit("ada", 100, "r1")).Want(201, "")
		again := staff.Post("/ledger/coins/credit", credit("ada", 100, "r1")).Want(201, "")
		if string(first.Body) != string(again.Body) {
			t.Errorf("a replay returns something else:\n%s\n%s", first.Body, again.Body)
		}
		staff.Post("/ledger/coins/credit", credit("ada", 101, "r1")).Want(409, "ledger/ref_conflict")
		staff.Post("/ledger/coins/debit", credit("ada", 30, "r2")).Want(201, "")
		staff.Post("/ledger/coins/debit", credit("ada", 71, "r3")).Want(409, "ledger/insufficient_funds")
		staff.Post("/ledger/coins/debit", credit("ada", 31, "r2")).Want(409, "ledger/ref_conflict")
		staff.Post("/ledger/coins/debit", credit("nobody", 1, "r4")).Want(404, "ledger/account_not_found")
		want(balance{"coins", 70, 0, 70})

		if _, err := k.Ledger().Hold(context.Background(), hold("ada", 50, "stake")); err != nil {
			t.Fatal(err)
		}
		want(balance{"coins", 70, 50, 20})
		var list struct {
			Items      []struct{ Ref, Kind, UserID string }
			NextCursor *string
		}
		ada.Get("/ledger/coins/transactions?limit=1").Want(200, "").JSON(&list)
		if len(list.Items) != 1 || list.Items[0].Ref != "stake" || list.NextCursor == nil {
			t.Errorf("newest first: %+v", list)
		}
		ada.Get("/ledger/coins/transactions?limit=2&cursor="+*list.NextCursor).Want(200, "").JSON(&list)
		if len(list.Items) != 2 || list.Items[0].Ref != "r2" || list.Items[1].Ref != "r1" || list.NextCursor != nil {
			t.Errorf("last page: %+v", list)
		}
		if _, err := k.Ledger().Verify(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// TestSessionStory is CSRF and revocation as a browser meets them.
func TestSessionStory(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		page, other := k.Browser("ada"), k.Browser("eve")
		page.Get("/ledger/coins").Want(200, "")
		body := credit("ada", 5, "r1")
		page.With("X-CSRF-Token", "").Post("/ledger/coins/credit", body).Want(403, "auth/csrf")
		page.With("X-CSRF-Token", "AAAA").Post("/ledger/coins/credit", body).Want(403, "auth/csrf")
		page.With("Sec-Fetch-Site", "cross-site").Post("/ledger/coins/credit", body).Want(403, "auth/csrf")
		page.With("Origin", "https://evil.example").Post("/ledger/coins/credit", body).Want(403, "auth/csrf")
		// A session carries no scope, so the best a page can do is be told so.
		page.Post("/ledger/coins/credit", body).Want(403, "auth/insufficient_scope")
		if _, err := k.Auth().RevokeUser(context.Background(), "ada"); err != nil {
			t.Fatal(err)
		}
		page.Get("/ledger/coins").Want(401, "auth/unauthenticated")
		other.Get("/ledger/coins").Want(200, "")
	})
}

// TestTokenStory is an access token from its issue to its revocation.
func TestTokenStory(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		if err := k.Auth().EnsureUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		token, err := k.Auth().IssueToken(ctx, "ada", nil, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		ada := k.Bearing("Bearer " + token)
		ada.Get("/ledger/coins").Want(200, "")
		k.Bearing("Bearer "+strings.Replace(token, ".", ".A", 1)).Get("/ledger/coins").Want(401, "auth/unauthenticated")
		k.Clock.Advance(66 * time.Second)
		ada.Get("/ledger/coins").Want(401, "auth/unauthenticated")
		k.Clock.Advance(-time.Minute)
		ada.Get("/ledger/coins").Want(200, "")
		if _, err := k.Auth().RevokeUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		ada.Get("/ledger/coins").Want(401, "auth/unauthenticated")
	})
}

// TestMailStory sends a mail with the application's own row: both or neither.
func TestMailStory(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		ctx := context.Background()
		undo := errors.New("undo")
		send := func(subject string, err error) error {
			return k.Database().InTx(ctx, func(ctx context.Context) error {
				if _, failed := k.Email().Send(ctx, email.Message{To: "ada@example.com", Subject: subject, Text: "Hello."}); failed != nil {
					return failed
				}
				return err
			})
		}
		if err := send("kept", nil); err != nil {
			t.Fatal(err)
		}
		if err := send("lost", undo); !errors.Is(err, undo) {
			t.Fatal(err)
		}
		if got := k.LastMail("ada@example.com").Subject; got != "kept" {
			t.Errorf("the last mail is %q", got)
		}
	})
}

// TestManagementReadsAreAudited holds that the guard records every call of a
// verified machine, the refused ones too, and whose data it was about.
func TestManagementReadsAreAudited(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		k.User("staff", "ledger:admin").Post("/ledger/coins/credit", credit("ada", 5, "r1")).Want(201, "")
		k.Machine("ledger:accounts:read").Get("/ledger/admin/accounts").Want(200, "")
		k.Machine("ledger:accounts:read").Get("/ledger/admin/accounts/ada").Want(200, "")
		k.Machine("ledger:accounts:read").Get("/ledger/admin/accounts/nobody").Want(404, "ledger/account_not_found")
		k.Machine("ledger:accounts:read").Get("/ledger/admin/accounts/ada/coins/transactions").Want(403, "controlplane/insufficient_scope")
		k.Machine("ledger:transactions:read").Get("/ledger/admin/accounts/ada/coins/transactions").Want(200, "")
		k.Anonymous().Get("/ledger/admin/accounts").Want(401, "controlplane/invalid_credential")

		events, err := k.Audit().ListEvents(context.Background(), audit.Filter{}, capability.NewPage(50, ""))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range events.Items {
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Actor.Kind, e.Action, e.Outcome, e.Code)))
		}
		want := []string{ // newest first
			"control-plane ledger/transactions_read succeeded",
			"control-plane ledger/transactions_read refused controlplane/insufficient_scope",
			"control-plane ledger/accounts_read refused ledger/account_not_found",
			"control-plane ledger/accounts_read succeeded",
			"control-plane ledger/accounts_read succeeded",
			"system controlplane/connection_registered succeeded",
			"user ledger/credited succeeded",
			"system auth/user_created succeeded",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// TestHostileLedgerInput sends what attackers send: a clear refusal each,
// never a 500, and nothing is written.
func TestHostileLedgerInput(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		staff := func() *kittest.Client { return k.User("staff", "ledger:admin") }
		long := strings.Repeat("x", 10_000)
		for name, body := range map[string]string{
			"malformed": `{"userId":`, "empty": ``, "array": `[]`, "null": `null`, "two values": `{}{}`,
			"deep": strings.Repeat(`{"userId":`, 5000), "duplicate": `{"userId":"a","userId":"b","amount":1,"ref":"x"}`,
			"unknown": `{"userId":"a","amount":1,"ref":"x","scope":"ledger:admin"}`, "letter case": `{"UserId":"a","amount":1,"ref":"x"}`,
			"amount text": `{"userId":"a","amount":"1","ref":"x"}`, "amount fraction": `{"userId":"a","amount":1.5,"ref":"x"}`,
			"amount exponent": `{"userId":"a","amount":1e3,"ref":"x"}`, "amount missing": `{"userId":"a","ref":"x"}`,
			"zero": `{"userId":"a","amount":0,"ref":"x"}`, "negative": `{"userId":"a","amount":-5,"ref":"x"}`,
			"over 2^53-1": `{"userId":"a","amount":9007199254740992,"ref":"x"}`, "over int64": `{"userId":"a","amount":9223372036854775808,"ref":"x"}`,
			"huge":   `{"userId":"a","amount":1` + strings.Repeat("0", 400) + `,"ref":"x"}`,
			"no ref": `{"userId":"a","amount":1}`, "ref with #": `{"userId":"a","amount":1,"ref":"x#in"}`, "long ref": `{"userId":"a","amount":1,"ref":"` + long + `"}`,
			"no user": `{"amount":1,"ref":"x"}`, "long user": `{"userId":"` + long + `","amount":1,"ref":"x"}`, "NUL": `{"userId":"a\u0000","amount":1,"ref":"x"}`,
			"long memo": `{"userId":"a","amount":1,"ref":"x","memo":"` + long + `"}`, "not UTF-8": "{\"userId\":\"\xff\",\"amount\":1,\"ref\":\"x\"}",
			"over the limit": `{"memo":"` + strings.Repeat("x", 2<<20) + `"}`,
		} {
			for _, op := range []string{"credit", "debit"} {
				got := staff().Post("/ledger/coins/"+op, body)
				if got.Status < 400 || got.Status >= 500 || got.Code() == "" {
					t.Errorf("%s, %s: %d %.200s", op, name, got.Status, got.Body)
				}
			}
		}
		for _, segment := range []string{"%2F", "..%2f..", "%00", "%FF", long, "admin", "COINS", "coins%20", "'--", "%2e%2e", "💰"} {
			for _, path := range []string{"/ledger/" + segment, "/ledger/" + segment + "/transactions", "/ledger/coins%2Ftransactions" + segment} {
				if got := k.User("ada").Do(http.MethodGet, path, nil); got.Status != 404 || got.Code() == "" {
					t.Errorf("%.60s: %d %.200s", path, got.Status, got.Body)
				}
			}
		}
		for _, query := range []string{"limit=0", "limit=201", "limit=x", "cursor=x", "cursor=" + long} {
			if got := k.User("ada").Get("/ledger/coins/transactions?" + query); got.Status != 400 {
				t.Errorf("%.40s: %d %.200s", query, got.Status, got.Body)
			}
		}
		var list struct{ Items []any }
		k.Machine("ledger:accounts:read").Get("/ledger/admin/accounts").Want(200, "").JSON(&list)
		if len(list.Items) != 0 {
			t.Errorf("refused calls opened %d accounts", len(list.Items))
		}
	})
}

func hold(user string, amount int64, ref string) ledger.Entry {
	return ledger.Entry{UserID: user, Currency: "coins", Amount: amount, Ref: ref}
}

// TestGameStory is a board and a rating as a game server and its players use them.
func TestGameStory(t *testing.T) {
	each(t, func(t *testing.T, k *kittest.Kit) {
		server, ada := k.User("server", "leaderboard:submit", "rating:record"), k.User("ada")
		ada.Post("/leaderboard/arcade", `{"score":1}`).Want(403, "leaderboard/submit_forbidden")
		for user, score := range map[string]int{"ada": 70, "bob": 90, "eve": 80} {
			server.Post("/leaderboard/arcade", map[string]any{"userId": user, "score": score}).Want(200, "")
		}
		var mine struct{ Rank, Total int64 }
		ada.Get("/leaderboard/arcade/me").Want(200, "").JSON(&mine)
		if mine.Rank != 3 || mine.Total != 3 {
			t.Errorf("ada stands at %+v", mine)
		}
		ada.Get("/leaderboard/nowhere/me").Want(404, "leaderboard/board_not_found")

		outcome := map[string]any{"ranks": map[string]int{"ada": 1, "bob": 2}}
		ada.Post("/rating/games/duel/outcomes", outcome).Want(403, "rating/record_forbidden")
		once := server.With("Idempotency-Key", "game-1")
		for range 2 {
			once.Post("/rating/games/duel/outcomes", outcome).Want(200, "")
		}
		var rated struct {
			GamesPlayed, XP int64
			Skill           float64
		}
		ada.Get("/rating/games/duel/me").Want(200, "").JSON(&rated)
		if rated.GamesPlayed != 1 || rated.XP != 3 || rated.Skill <= 1500 {
			t.Errorf("ada is rated %+v", rated)
		}
	})
}

// TestManifestStory holds that the manifest describes what is composed, whole.
func TestManifestStory(t *testing.T) {
	k := kittest.New(t, everything()...)
	var manifest struct {
		Environment, ConnectionID, Version string
		GrantedScopes                      []string
		Capabilities                       []struct {
			Name, Version          string
			HealthKeys, ConfigKeys []any
			AdminRoutes            []struct{ Method, Path, Scope, Summary string }
			Config                 map[string]any
		}
	}
	k.Machine("manifest:read").Get("/control-plane/manifest").Want(200, "").JSON(&manifest)
	if len(manifest.Capabilities) != len(k.Capabilities()) || manifest.ConnectionID == "" || manifest.Environment != "test" {
		t.Errorf("%+v", manifest)
	}
	listed := make(map[string]bool)
	for _, c := range manifest.Capabilities {
		if c.HealthKeys == nil || c.ConfigKeys == nil || c.AdminRoutes == nil || c.Config == nil {
			t.Errorf("%s: something is omitted: %+v", c.Name, c)
		}
		for _, r := range c.AdminRoutes {
			listed[r.Method+" "+r.Path] = true
		}
	}
	for _, r := range k.Routes() {
		if r.Guard == "control-plane" && !listed[r.Method+" "+r.Path] {
			t.Errorf("not in the manifest: %s %s", r.Method, r.Path)
		}
	}
}
