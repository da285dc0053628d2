package multiplayer_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
)

func TestRoutes(t *testing.T) {
	cfg := countConfig()
	cfg.BasePath = "/play"
	m, err := multiplayer.New(capability.Host{}, cfg, multiplayer.Peers{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range m.Capability().Routes {
		got = append(got, strings.Join([]string{r.Method, r.Path, r.Guard.Strategy().String(), r.Guard.Scope()}, " "))
	}
	want := []string{
		"POST /play/games/:game user ",
		"POST /play/sessions/:id/join user ",
		"POST /play/sessions/:id/action user ",
		"POST /play/sessions/:id/leave user ",
		"POST /play/sessions/:id/close user ",
		"GET /play/sessions/:id user ",
		"GET /play/sessions/:id/result user ",
		"GET /play/sessions/:id/socket user ",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// composed returns a whole kit with the games of the tests.
func composed(t *testing.T) *kittest.Kit {
	return kittest.New(t, kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithLeaderboard(leaderboard.Config{Boards: []leaderboard.Board{
			{Key: "wins", Direction: leaderboard.DirectionDescending, Aggregation: leaderboard.AggregationSum}}}),
		kit.WithMultiplayer(trickConfig()))
}

// TestOverHTTP plays a match over the routes.
func TestOverHTTP(t *testing.T) {
	k := composed(t)
	ada, bob, eve := k.User("ada"), k.User("bob"), k.User("eve")
	ada.Post("/multiplayer/games/chess", "{}").Want(404, "multiplayer/game_not_found")
	k.Anonymous().Post("/multiplayer/games/duel", "{}").Want(401, "auth/unauthenticated")
	var v multiplayer.View
	ada.Post("/multiplayer/games/duel", "{}").Want(201, "").JSON(&v)
	session := "/multiplayer/sessions/" + v.ID
	action := session + "/action"
	ada.Get("/multiplayer/sessions/none").Want(404, "multiplayer/session_not_found")
	bob.Get(session).Want(403, "multiplayer/not_a_member")
	ada.Post(action, trickMove{}).Want(409, "multiplayer/invalid_transition")
	bob.Post(session+"/join", nil).Want(200, "")
	eve.Post(session+"/join", nil).Want(409, "multiplayer/session_full")
	eve.Post(action, trickMove{}).Want(403, "multiplayer/not_a_member")
	eve.Post(session+"/leave", nil).Want(403, "multiplayer/not_a_member")
	eve.Post(session+"/close", nil).Want(403, "multiplayer/not_a_member")
	eve.Get(session+"/result").Want(403, "multiplayer/not_a_member")
	bob.Post(session+"/leave", nil).Want(409, "multiplayer/invalid_transition")
	ada.Post(session+"/close", nil).Want(409, "multiplayer/invalid_transition")
	ada.Get(session+"/result").Want(409, "multiplayer/invalid_transition")

	for body, want := range map[string]struct {
		status int
		code   string
	}{
		``: {400, "kit/invalid_request"}, `{`: {400, "kit/invalid_request"}, `{"card":0,"card":1}`: {400, "kit/invalid_request"},
		`{"card":7}`: {422, "multiplayer/invalid_move"}, `{"cards":0}`: {422, "multiplayer/invalid_move"},
		`"` + strings.Repeat("x", multiplayer.MaxAction) + `"`: {413, "kit/body_too_large"},
		`{"card":0,"panic":true}`:                              {500, "kit/internal"},
	} {
		if res := ada.Post(action, body); res.Status != want.status || res.Code() != want.code {
			t.Errorf("%.40s: %d %s", body, res.Status, res.Body)
		}
	}
	ada.With("Content-Type", "text/plain").Post(action, "{}").Want(415, "kit/unsupported_media_type")

	keyed := ada.With("Idempotency-Key", "first")
	first := keyed.Post(action, `{"card":1}`).Want(200, "")
	first.JSON(&v)
	again := keyed.Post(action, `{"card":1}`).Want(200, "")
	if again.Header.Get("Idempotency-Replayed") != "true" || string(again.Body) != string(first.Body) || v.Version != 3 {
		t.Errorf("%s\n%s", first.Body, again.Body)
	}
	keyed.Post(action, `{"card":0}`).Want(409, "kit/idempotency_conflict")
	ada.With("Idempotency-Key", strings.Repeat("k", 65)).Post(action, `{"card":0}`).Want(400, "kit/invalid_request")
	for _, c := range []*kittest.Client{bob, ada, bob, ada, bob} {
		c.Post(action, `{"card":0}`).Want(200, "").JSON(&v)
	}
	var result multiplayer.Result
	bob.Get(session+"/result").Want(200, "").JSON(&result)
	if v.Phase != multiplayer.PhaseResolved || result.Fairness.Seed == nil || len(result.Ranks) != 2 || v.Result == nil {
		t.Errorf("%+v\n%+v", v, result)
	}
	for _, what := range []string{"/action", "/leave", "/close"} {
		ada.Post(session+what, `{"card":0}`).Want(409, "multiplayer/invalid_transition")
		eve.Post(session+what, `{"card":0}`).Want(403, "multiplayer/not_a_member") // the refusal does not disclose that it is over
	}
	eve.Post(session+"/join", nil).Want(409, "multiplayer/invalid_transition")
	eve.Get(session+"/result").Want(403, "multiplayer/not_a_member")

	ada.Post("/multiplayer/games/table", "{}").Want(201, "").JSON(&v)
	table := "/multiplayer/sessions/" + v.ID
	eve.Post(table+"/join", "").Want(409, "ledger/insufficient_funds")
	ada.Post(table+"/close", "").Want(200, "").JSON(&v)
	if v.Phase != multiplayer.PhaseAbandoned {
		t.Errorf("%+v", v)
	}
	once := ada.With("Idempotency-Key", "one-table")
	once.Post("/multiplayer/games/table", "{}").Want(201, "").JSON(&v)
	var same multiplayer.View
	once.Post("/multiplayer/games/table", "{}").Want(201, "").JSON(&same)
	if same.ID != v.ID {
		t.Error("a repeated request opened two tables")
	}
	ada.Post("/multiplayer/sessions/"+v.ID+"/leave", nil).Want(204, "")
}

// TestOpenMatchIsLeftAndClosed checks that a match that waits for players can be left by each of
// them, and closed by the player who opened it, and that it is then no open session of theirs.
func TestOpenMatchIsLeftAndClosed(t *testing.T) {
	cfg := trickConfig()
	cfg.Games = append(cfg.Games, multiplayer.Game{Key: "trio", Kind: "tricks", Players: 3, Rules: trickRules{Cards: 3}})
	cfg.Games[1].Leaderboard = nil
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithMultiplayer(cfg))
	ada, bob := k.User("ada"), k.User("bob")
	open := func() (session string) {
		t.Helper()
		var v multiplayer.View
		ada.Post("/multiplayer/games/trio", nil).Want(201, "").JSON(&v)
		return "/multiplayer/sessions/" + v.ID
	}
	ended := func(session string) {
		t.Helper()
		var result multiplayer.Result
		ada.Get(session+"/result").Want(200, "").JSON(&result)
		if result.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", result)
		}
		k.User("cid").Post(session+"/join", nil).Want(409, "multiplayer/invalid_transition")
	}
	for range multiplayer.MaxOpen + 1 {
		session := open()
		ada.Post(session+"/leave", nil).Want(204, "")
		ended(session)
		ada.Post(session+"/leave", nil).Want(403, "multiplayer/not_a_member")
	}
	for range multiplayer.MaxOpen + 1 { // nor is one that goes on without them
		session := open()
		bob.Post(session+"/join", nil).Want(200, "")
		ada.Post(session+"/leave", nil).Want(204, "")
	}
	session := open()
	bob.Post(session+"/join", nil).Want(200, "")
	bob.Post(session+"/close", nil).Want(409, "multiplayer/invalid_transition")
	bob.Post(session+"/leave", nil).Want(204, "")
	bob.Post(session+"/join", nil).Want(200, "")
	var v multiplayer.View
	ada.Post(session+"/close", nil).Want(200, "").JSON(&v)
	if v.Phase != multiplayer.PhaseAbandoned || len(v.Players) != 2 {
		t.Errorf("%+v", v)
	}
	ended(session)

	session = open()
	bob.Post(session+"/join", nil).Want(200, "")
	ada.Post(session+"/leave", nil).Want(204, "")
	bob.Get(session).Want(200, "").JSON(&v)
	if v.Phase != multiplayer.PhaseOpen || len(v.Players) != 1 {
		t.Errorf("the player who stays: %+v", v)
	}
	for _, user := range []string{"ada", "cid"} {
		k.User(user).Post(session+"/join", nil).Want(200, "")
	}
	for _, client := range []*kittest.Client{ada, bob} {
		client.Post(session+"/leave", nil).Want(409, "multiplayer/invalid_transition")
		client.Post(session+"/close", nil).Want(409, "multiplayer/invalid_transition")
	}
}

// TestWithoutLedger checks that an effect is never dropped.
func TestWithoutLedger(t *testing.T) {
	cfg := trickConfig()
	cfg.Games[1].Leaderboard = nil
	k := kittest.New(t, kit.WithAuth(auth.Config{}), kit.WithMultiplayer(cfg))
	var v multiplayer.View
	k.User("ada").Post("/multiplayer/games/staked", "{}").Want(201, "").JSON(&v)
	k.User("bob").Post("/multiplayer/sessions/"+v.ID+"/join", "").Want(500, "kit/internal")
	k.User("ada").Get("/multiplayer/sessions/"+v.ID).Want(200, "").JSON(&v)
	if v.Phase != multiplayer.PhaseOpen {
		t.Errorf("%+v", v)
	}
}
