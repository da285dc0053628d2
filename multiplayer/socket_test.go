package multiplayer_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/pubsub"
)

func TestSocketStory(t *testing.T) {
	n := newServed(t)
	id := n.start("pair", "ada", "bob")
	ada, bob := n.dial("ada", id), n.dial("bob", id)
	if f := ada.next(); f.Type != "view" || f.Version != 1 {
		t.Fatalf("%+v", f)
	}
	bob.reach(1)
	for i := range 4 {
		ada.say(`{"type":"action","id":"a%d","data":{"add":2}}`, i)
		if f := ada.reply(fmt.Sprintf("a%d", i)); f.Type != "ack" || f.Version != int64(i)+2 {
			t.Fatalf("%+v", f)
		}
		ada.reach(int64(i) + 2)
		n.same(ada, id)
		bob.reach(int64(i) + 2)
		n.same(bob, id)
	}
	patches := func(c *wsClient) bool {
		return slices.ContainsFunc(c.raw, func(raw []byte) bool { return bytes.Contains(raw, []byte(`"type":"patch"`)) })
	}
	if !patches(ada) || !patches(bob) {
		t.Error("views that change a little are sent whole")
	}

	bob.say(`{"type":"resume","version":1}`)
	if f := bob.next(); f.Type != "view" || f.Version != 5 {
		t.Errorf("%+v", f)
	}
	bob.say(`{"type":"action","id":"b","expect":5,"data":{"add":5}}`)
	for _, c := range []*wsClient{ada, bob} {
		f := c.until(func(f wsFrame) bool { return f.Type == "closed" })
		if f.Phase != multiplayer.PhaseResolved || f.Result == nil || f.Result.Fairness.Seed == nil || c.version != 6 {
			t.Errorf("%+v at %d", f, c.version)
		}
		n.same(c, id)
		if code, reason := c.closed(); code != websocket.CloseNormalClosure || reason != "resolved" {
			t.Errorf("%d %s", code, reason)
		}
	}
	late := n.dial("ada", id)
	if f := late.until(func(f wsFrame) bool { return f.Type == "closed" }); late.version != 6 || f.Result == nil {
		t.Errorf("%+v", f)
	}
	if bytes.Contains(late.raw[0], []byte(`"resume":true`)) {
		t.Errorf("%s", late.raw[0])
	}
}

// TestSocketAcknowledgesTheLastAction checks that the action that ends a session is acknowledged
// before the socket closes.
func TestSocketAcknowledgesTheLastAction(t *testing.T) {
	n := newServed(t)
	for range 100 {
		ada := n.dial("ada", n.start("pair", "ada", "bob"))
		ada.say(`{"type":"action","id":"last","data":{"add":10}}`)
		if f := ada.reply("last"); f.Type != "ack" {
			t.Fatalf("%+v", f)
		}
		ada.closed()
	}
}

func TestSocketRefusals(t *testing.T) {
	n := newServed(t)
	id := n.start("pair", "ada", "bob")
	ada := n.dial("ada", id)
	session, err := n.Auth().CreateSession(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	cookie := n.Auth().SessionCookie(session)
	from := func(origin string) http.Header {
		return http.Header{"Origin": {origin}, "Cookie": {cookie.Name + "=" + cookie.Value}}
	}
	for name, tt := range map[string]struct {
		user, session string
		header        http.Header
		status        int
		code          string
	}{
		"a spectator":        {"eve", id, nil, 403, "multiplayer/not_a_member"},
		"no session":         {"ada", "none", nil, 404, "multiplayer/session_not_found"},
		"nobody":             {"", id, http.Header{}, 401, "auth/unauthenticated"},
		"cookie, own page":   {"ada", id, from(n.server.URL), 101, ""},
		"cookie, other page": {"ada", id, from("https://evil.example"), 403, "auth/csrf"},
		"cookie, no page":    {"ada", id, http.Header{"Cookie": from("")["Cookie"]}, 403, "auth/csrf"},
		"a header's token":   {"ada", id, http.Header{"Authorization": {"Bearer " + n.token("ada")}}, 101, ""},
	} {
		if _, status, code := n.try(tt.user, tt.session, tt.header); status != tt.status || code != tt.code {
			t.Errorf("%s: %d %s", name, status, code)
		}
	}
	n.User("ada").Get("/multiplayer/sessions/"+id+"/socket").Want(400, "kit/invalid_request")

	for text, code := range map[string]string{
		`{"type":"action","id":"1","data":{"add":0}}`:              "multiplayer/invalid_move",
		`{"type":"action","id":"1","expect":9,"data":{"add":1}}`:   "multiplayer/invalid_transition",
		`{"type":"action","id":"1"}`:                               "kit/invalid_request",
		`{"type":"action","id":"1","data":{"add":1},"more":1}`:     "kit/invalid_request",
		`{"type":"action","id":"1","expect":"1","data":{"add":1}}`: "kit/invalid_request",
		`{"type":"resume","id":"1"}`:                               "kit/invalid_request",
		`{"type":"join","id":"1"}`:                                 "kit/invalid_request",
	} {
		ada.say("%s", text)
		if f := ada.reply("1"); f.Type != "error" || f.Code != code {
			t.Errorf("%s: %+v", text, f)
		}
	}
	ada.say(`{"type":"action","data":{"add":1}}`)
	if f := ada.until(func(f wsFrame) bool { return f.Type == "error" }); f.Code != "kit/invalid_request" {
		t.Errorf("%+v", f)
	}
	_ = ada.WriteMessage(websocket.BinaryMessage, []byte("{}"))
	if code, _ := ada.closed(); code != websocket.CloseUnsupportedData {
		t.Error(code)
	}
	ada = n.dial("ada", id)
	ada.say(`{"type":"action","id":"1","data":"%s"}`, strings.Repeat("x", 16<<10))
	if code, _ := ada.closed(); code != websocket.CloseMessageTooBig {
		t.Error(code)
	}
}

// TestSocketResume checks that an action whose acknowledgement was lost is sent again, on a new
// connection, and counts once.
func TestSocketResume(t *testing.T) {
	n := newServed(t)
	id := n.start("pair", "ada", "bob")
	killed := n.dial("ada", id)
	killed.say(`{"type":"action","id":"a","data":{"add":3}}`)
	if err := killed.NetConn().(*net.TCPConn).SetLinger(0); err != nil { // a reset, as of a killed process
		t.Fatal(err)
	}
	_ = killed.NetConn().Close()

	ada := n.dial("ada", id)
	ada.say(`{"type":"action","id":"a","data":{"add":3}}`)
	if f := ada.reply("a"); f.Type != "ack" || f.Version != 2 {
		t.Errorf("%+v", f)
	}
	ada.say(`{"type":"action","id":"a","data":{"add":3}}`)
	if f := ada.reply("a"); f.Type != "ack" || f.Version != 2 {
		t.Errorf("again: %+v", f)
	}
	ada.say(`{"type":"action","id":"a","data":{"add":4}}`)
	if f := ada.reply("a"); f.Code != "kit/idempotency_conflict" {
		t.Errorf("another under the same id: %+v", f)
	}
	bob := n.dial("bob", id)
	bob.say(`{"type":"action","id":"a","data":{"add":4}}`)
	if f := bob.reply("a"); f.Type != "ack" || f.Version != 3 {
		t.Errorf("ids are a player's own: %+v", f)
	}
	ada.reach(3)
	if sum := ada.view.(map[string]any)["state"].(map[string]any)["sum"]; sum != 7.0 {
		t.Errorf("the sum is %v", sum)
	}
}

func TestSocketsOfTwoNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	one, two := newServed(t, kit.WithDatabase(dbs[0]), kit.WithBaseURL("http://kit.example")), newServed(t, kit.WithDatabase(dbs[1]), kit.WithBaseURL("http://kit.example"))
	id := one.start("pair", "ada", "bob")
	ada, bob := one.dial("ada", id), two.dial("bob", id)
	ada.reach(1)
	bob.reach(1)
	for i := range 3 {
		ada.say(`{"type":"action","id":"a%d","data":{"add":1}}`, i)
		bob.reach(int64(2*i) + 2)
		bob.say(`{"type":"action","id":"b%d","data":{"add":2}}`, i)
		ada.reach(int64(2*i) + 3)
		one.same(ada, id)
	}
	bob.say(`{"type":"action","id":"b","data":{"add":2}}`)
	if f := ada.until(func(f wsFrame) bool { return f.Type == "closed" }); f.Phase != multiplayer.PhaseResolved {
		t.Errorf("%+v", f)
	}
}

// TestSocketsActAtOnce lets 64 clients act concurrently: every action is in the log once, in one
// order, and all clients have the same view in the end.
func TestSocketsActAtOnce(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		n := newServed(t, kit.WithDatabase(db))
		const players, actions = 64, 3
		names := make([]string, players)
		for i := range names {
			names[i] = fmt.Sprintf("player-%02d", i)
		}
		id := n.start("table", names...)
		clients := make([]*wsClient, players)
		for i, name := range names {
			clients[i] = n.dial(name, id)
		}
		versions := make([][]int64, players)
		var wg sync.WaitGroup
		for i, c := range clients {
			wg.Go(func() {
				for a := range actions {
					c.say(`{"type":"action","id":"%d","data":{"add":1}}`, a)
					f := c.reply(fmt.Sprint(a))
					if f.Type != "ack" {
						t.Errorf("%s: %+v", c.name, f)
						return
					}
					versions[i] = append(versions[i], f.Version)
				}
				c.reach(1 + players*actions)
			})
		}
		wg.Wait()
		all := slices.Concat(versions...)
		slices.Sort(all)
		want := make([]int64, players*actions)
		for i := range want {
			want[i] = int64(i) + 2
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Error(diff)
		}
		if steps, err := n.Multiplayer().Replay(t.Context(), id); err != nil || steps != 1+players*actions {
			t.Errorf("the log has %d steps: %v", steps, err)
		}
		for _, c := range clients {
			if sum := c.view.(map[string]any)["state"].(map[string]any)["sum"]; sum != float64(players*actions) {
				t.Errorf("%s sees %v", c.name, sum)
			}
		}
	})
}

// TestSlowSocketSkipsVersions checks that a client that hardly reads while others act skips
// versions.
func TestSlowSocketSkipsVersions(t *testing.T) {
	n := newServed(t)
	id := n.start("heavy", "ada", "bob")
	slow := n.dial("bob", id)
	if err := slow.NetConn().(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	slow.reach(1)
	const actions = 60 // with views of 200 kB: more than the kernel buffers
	read := time.Now()
	for i := range actions {
		if _, err := n.Multiplayer().Act(t.Context(), id, "ada", multiplayer.Action{Data: json.RawMessage(`{"add":1}`), ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
		if i%4 == 3 || time.Since(read) > time.Second { // slow, but not too slow on a busy machine
			slow.next()
			read = time.Now()
		}
	}
	slow.reach(actions + 1)
	n.same(slow, id)
	if got := len(slow.raw); got > actions*3/4 {
		t.Errorf("%d frames for %d versions", got, actions)
	}
}

func TestSocketOfWhoLeaves(t *testing.T) {
	n := newServed(t)
	id := n.start("table", "ada", "bob")
	bob := n.dial("bob", id)
	bob.reach(1)
	if err := n.Multiplayer().Leave(t.Context(), id, "bob"); err != nil {
		t.Fatal(err)
	}
	if code, reason := bob.closed(); code != 4003 || reason != "multiplayer/not_a_member" {
		t.Errorf("%d %s", code, reason)
	}
}

// TestSocketOfARemovedSession checks that, if the hint of the end was lost, the socket is closed by
// the first read that finds no session.
func TestSocketOfARemovedSession(t *testing.T) {
	n := newServed(t)
	id := n.start("pair", "ada", "bob")
	ada := n.dial("ada", id)
	ada.reach(1)
	if _, err := n.Database().Exec(t.Context(), `DELETE FROM multiplayer_session WHERE id = $1`, id); err != nil {
		t.Fatal(err)
	}
	if err := n.PubSub().Publish(t.Context(), "multiplayer/"+id, nil); err != nil { // as after lost events
		t.Fatal(err)
	}
	if code, reason := ada.closed(); code != 4003 || reason != "multiplayer/session_not_found" {
		t.Errorf("%d %s", code, reason)
	}
}

// TestOpponentOfAnErasedPlayerGetsTheEnd checks that the last view and the end reach the socket of the
// opponent even if its node hears of them when the erasure is complete, and that the session stays
// readable without what the players did.
func TestOpponentOfAnErasedPlayerGetsTheEnd(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		ctx := t.Context()
		node := func() *served { // with a bus of its own: it hears of nothing that the other one does
			return newServed(t, kit.WithDatabase(db), kit.WithBaseURL("http://kit.example"), kit.WithPubSub(pubsub.NewMemory()))
		}
		one, two := node(), node()
		id := one.start("pair", "ada", "bob")
		if _, err := one.Multiplayer().Act(ctx, id, "ada", multiplayer.Action{Data: json.RawMessage(`{"add":1}`)}); err != nil {
			t.Fatal(err)
		}
		bob := two.dial("bob", id)
		bob.reach(2)
		if err := one.EraseUser(ctx, "ada"); err != nil {
			t.Fatal(err)
		}
		one.RunJobs()
		if err := two.PubSub().Publish(ctx, "multiplayer/"+id, []byte("3")); err != nil {
			t.Fatal(err)
		}
		end := bob.until(func(f wsFrame) bool { return f.Type == "closed" })
		if end.Phase != multiplayer.PhaseAbandoned || end.Result == nil || len(end.Result.Players) != 2 {
			t.Errorf("%+v", end)
		}
		if view := bob.view.(map[string]any); view["phase"] != "abandoned" || view["state"] != nil {
			t.Errorf("the last view: %v", view)
		}
		if code, reason := bob.closed(); code != 1000 || reason != "abandoned" {
			t.Errorf("%d %s", code, reason)
		}
		one.same(bob, id)
		two.same(bob, id)
		for _, rows := range []string{
			`SELECT count(*) FROM multiplayer_action WHERE session_id = $1`,
			`SELECT count(*) FROM multiplayer_effect WHERE session_id = $1`,
			`SELECT count(*) FROM multiplayer_session WHERE id = $1 AND (state IS NOT NULL OR creator <> '')`,
			`SELECT count(*) FROM multiplayer_seat WHERE session_id = $1 AND user_id = 'ada'`,
		} {
			var n int
			if err := db.QueryRow(ctx, rows, id).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d, %v", rows, n, err)
			}
		}
	})
}

// TestSocketOfARevokedUser checks that a revocation reaches an open socket within a second of real
// time.
func TestSocketOfARevokedUser(t *testing.T) {
	n := newServed(t)
	id := n.start("pair", "ada", "bob")
	ada := n.dial("ada", id)
	if _, err := n.Auth().RevokeUser(t.Context(), "ada"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int)
	go func() { code, _ := ada.closed(); ended <- code }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = ada.WriteMessage(websocket.TextMessage, []byte(`{"type":"resume","version":0}`))
		case code := <-ended:
			if code != 4001 {
				t.Error(code)
			}
			return
		}
	}
}

// TestSocketFramesKeepSecrets checks that no frame that a player receives before the end contains
// the secret of another player or the seed: no view, no patch, no error.
func TestSocketFramesKeepSecrets(t *testing.T) {
	n := newServed(t)
	id := n.start("table", "ada", "bob")
	ada, bob := n.dial("ada", id), n.dial("bob", id)
	for i := range 6 {
		for _, c := range []*wsClient{ada, bob} {
			c.say(`{"type":"action","id":"%d","data":{"add":%d}}`, i, i%3)
			c.reply(fmt.Sprint(i))
			c.say(`{"type":"resume","version":0}`)
			c.until(func(f wsFrame) bool { return f.Type == "view" })
		}
	}
	if _, err := n.Multiplayer().Join(t.Context(), id, "eve"); err != nil {
		t.Fatal(err)
	}
	eve := n.dial("eve", id)
	eve.reach(1)
	ada.reach(eve.version)
	bob.reach(eve.version)
	before := map[*wsClient]int{ada: len(ada.raw), bob: len(bob.raw), eve: len(eve.raw)}
	if _, err := n.Multiplayer().Close(t.Context(), id, "ada"); err != nil {
		t.Fatal(err)
	}
	seed := *ada.until(func(f wsFrame) bool { return f.Type == "closed" }).Result.Fairness.Seed
	own := 0
	for c, count := range before {
		for _, raw := range c.raw[:count] {
			for _, other := range []string{"ada", "bob", "eve"} {
				switch held := bytes.Contains(raw, []byte("canary-"+other)); {
				case held && other != c.name:
					t.Errorf("%s received %s", c.name, raw)
				case held:
					own++
				}
			}
			if bytes.Contains(raw, []byte(seed)) {
				t.Errorf("%s received the seed: %s", c.name, raw)
			}
		}
	}
	if own == 0 {
		t.Error("the canaries are not in the views at all")
	}
}

// TestSocketsOfANodeThatStops checks that closing the kit asks every client to reconnect, with a
// time, and leaks no goroutine.
func TestSocketsOfANodeThatStops(t *testing.T) {
	n := newServed(t)
	before := runtime.NumGoroutine()
	id := n.start("table", "ada", "bob")
	var clients []*wsClient
	for range 8 {
		clients = append(clients, n.dial("ada", id), n.dial("bob", id))
	}
	var reading sync.WaitGroup
	for _, c := range clients { // concurrently with Close, which waits for their replies
		reading.Go(func() {
			code, reason := c.closed()
			var retry struct{ RetryAfterMs *int64 }
			if err := json.Unmarshal([]byte(reason), &retry); code != websocket.CloseServiceRestart || err != nil || retry.RetryAfterMs == nil {
				t.Errorf("%d %s", code, reason)
			}
		})
	}
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
	n.server.Close()
	deadline := time.Now().Add(20 * time.Second)
	for runtime.NumGoroutine() > before { // until the goroutines have ended
		if runtime.Gosched(); time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}

// TestGameSaysFramesPerSecond checks the rate of a game that accepts 60 frames per second, where
// the default is 20.
func TestGameSaysFramesPerSecond(t *testing.T) {
	n := newServed(t)
	ada := n.dial("ada", n.start("fast", "ada", "bob"))
	for range 2 {
		for range 30 { // as many replies may be queued
			ada.say(`{"type":"ping"}`)
		}
		for range 30 {
			if f := ada.until(func(f wsFrame) bool { return f.Type == "pong" || f.Code != "" }); f.Type != "pong" {
				t.Fatalf("of 60 frames at once one is answered %+v", f)
			}
		}
	}
}
