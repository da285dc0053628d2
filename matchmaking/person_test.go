package matchmaking_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/matchmaking"
)

// TestExportAndErase checks that everything about a user is exported, and that after an erasure no
// row names the user.
func TestExportAndErase(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.users("ada", "bob", "cid", "dan")
		r.befriend("ada", "bob")
		r.ok(errorOf(r.RequestFriend(ctx, "cid", "ada")))
		r.ok(r.Block(ctx, "ada", "dan"))
		r.ok(errorOf(r.SendInvite(ctx, "duel", "ada", toUser("bob"))))
		r.ok(errorOf(r.SendInvite(ctx, "duel", "cid", toUser("ada"))))
		r.ok(errorOf(r.OpenRoom(ctx, "duel", "ada")))
		room, err := r.OpenRoom(ctx, "four", "bob")
		r.ok(err)
		r.ok(errorOf(r.JoinRoom(ctx, room.Code, "ada")))
		r.ok(errorOf(r.EnqueueParty(ctx, "four", "", "ada", "bob")))
		e, _ := r.listen(r.serve(), "ada")
		defer func() { _ = e.Close() }()

		c := r.Matchmaking.Capability()
		exported := func(user string) map[string]int {
			t.Helper()
			kinds := map[string]int{}
			r.ok(c.Export(ctx, capability.Person{ID: user}, func(kind string, record any) error {
				_, err := json.Marshal(record)
				kinds[kind]++
				return err
			}))
			return kinds
		}
		if diff := cmp.Diff(map[string]int{"friend": 2, "blocked": 1, "invite": 2, "room": 2, "queue": 1}, exported("ada")); diff != "" {
			t.Error(diff)
		}
		for round := range 2 {
			out, err := c.Erase(ctx, capability.Person{ID: "ada"})
			r.ok(err)
			if (out.Removed > 0) != (round == 0) {
				t.Errorf("erasure %d removed %d", round, out.Removed)
			}
		}
		if kinds := exported("ada"); len(kinds) != 0 {
			t.Errorf("after the erasure there is %v", kinds)
		}
		r.refuses(matchmaking.ErrNotQueued, errorOf(r.Status(ctx, "four", "bob"))) // was in the party of ada
		if diff := cmp.Diff(map[string]int{"room": 1, "queue": 1}, exported("bob")); diff != "" {
			t.Error(diff)
		}
		for table, column := range map[string]string{
			"room": "host", "guest": "user_id", "ticket": "user_id", "presence": "user_id", "match": "players",
			"invite": "inviter || ' ' || invitee", "friend": "low || ' ' || high || ' ' || requester",
		} {
			var n int
			r.ok(r.Database().QueryRow(ctx, `SELECT count(*) FROM matchmaking_`+table+` WHERE `+column+` LIKE '%ada%'`).Scan(&n))
			if n > 0 {
				t.Errorf("%d rows of %s still name the user", n, table)
			}
		}
	})
}

// TestErasedPlayerGetsNoSession checks that a player who is erased between the claim and the
// session gets no seat, and that the others wait again and keep their waiting time.
func TestErasedPlayerGetsNoSession(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"ada", "bob"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		sweep, _, err := r.Lead(ctx, "table")
		r.ok(err)
		r.ok(sweep.Claim(ctx))
		for _, c := range []capability.Capability{r.Matchmaking.Capability(), r.Multiplayer().Capability()} { // in the order of an erasure
			r.ok(errorOf(c.Erase(ctx, capability.Person{ID: "ada"})))
		}
		r.step(5 * time.Second)
		running, err := r.Multiplayer().ListRunning(ctx, "ada", page())
		r.ok(err)
		if len(running.Items) > 0 {
			t.Errorf("the erased user plays %+v", running.Items)
		}
		want := []matchmaking.Queued{{State: "waiting", Region: "eu", WaitedMs: 5000}}
		if diff := cmp.Diff(want, r.status("table", "bob")); diff != "" {
			t.Error(diff)
		}
	})
}
