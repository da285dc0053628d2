package matchmaking_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
	"github.com/kitbackend/kit/rating"
)

// duelRules configure the stake of each player.
type duelRules struct {
	Stake int64 `json:"stake"`
}

type duel struct {
	Over bool `json:"over"`
}

type duelContext = multiplayer.Context[duelRules]

// duelModel is a game that ends with the first move.
func duelModel() multiplayer.Model {
	come := func(c duelContext, userID string) []multiplayer.Effect {
		if c.Config.Stake == 0 {
			return nil
		}
		return []multiplayer.Effect{multiplayer.Hold(userID, "coins", c.Config.Stake, c.Ref("stake/"+userID))}
	}
	return multiplayer.Define(multiplayer.Definition[duelRules, duel]{
		Kind: "duel",
		Init: func(c duelContext) (duel, []multiplayer.Effect, error) {
			var effects []multiplayer.Effect
			for _, userID := range c.Players {
				effects = append(effects, come(c, userID)...)
			}
			return duel{}, effects, nil
		},
		Apply: func(_ duelContext, s duel, _ multiplayer.Move) (duel, []multiplayer.Effect, error) {
			s.Over = true
			return s, nil, nil
		},
		IsComplete: func(_ duelContext, s duel) bool { return s.Over },
		Resolve: func(c duelContext, _ duel) multiplayer.Outcome {
			return multiplayer.Outcome{Ranks: map[string]int{c.Players[0]: 1, c.Players[1]: 2}}
		},
		Redact: func(_ duelContext, s duel, _ string, _ bool) any { return s },
		OnJoin: func(c duelContext, s duel, userID string) (duel, []multiplayer.Effect, error) {
			return s, come(c, userID), nil
		},
		OnLeave: func(_ duelContext, s duel, _ string) (duel, []multiplayer.Effect, error) { return s, nil, nil },
	})
}

// games returns the games of most tests.
func games() []matchmaking.Game {
	snapshot := func(stake int64) *multiplayer.Game {
		return &multiplayer.Game{Kind: "duel", Rules: duelRules{stake}}
	}
	quick := matchmaking.Queue{InitialBand: new(50.0), WidenPerSecond: 10, MaxWaitSeconds: 30}
	return []matchmaking.Game{
		{Key: "duel", Players: 2, SkillPool: "duel", Snapshot: snapshot(0), Queue: quick},
		{Key: "staked", Players: 2, Snapshot: snapshot(10)},
		{Key: "four", Players: 4, Snapshot: snapshot(0), RoomCodes: matchmaking.RoomCodes{TTLSeconds: 60, MaxUses: 2}},
		{Key: "table", Players: 2, Regions: []string{"eu", "us"}, Snapshot: &multiplayer.Game{Kind: "duel", Mode: multiplayer.ModeTable, Players: 6, Rules: duelRules{}}},
		{Key: "alone", Players: 2},
	}
}

// rig is a composed kit of these tests.
type rig struct {
	*kittest.Kit
	*matchmaking.Matchmaking
	t testing.TB
}

// newRig composes matchmaking with all its peers.
func newRig(t testing.TB, cfg matchmaking.Config, opts ...kit.Option) *rig {
	t.Helper()
	return compose(t, cfg, append([]kit.Option{
		kit.WithAuth(auth.Config{}),
		kit.WithLedger(ledger.Config{Currencies: []ledger.Currency{{Code: "coins"}}}),
		kit.WithRating(rating.Config{Games: []rating.Game{{Key: "duel", Algorithm: "elo", XP: &rating.XP{}}}}),
		kit.WithMultiplayer(multiplayer.Config{Models: []multiplayer.Model{duelModel()}}),
	}, opts...)...)
}

func compose(t testing.TB, cfg matchmaking.Config, opts ...kit.Option) *rig {
	t.Helper()
	if cfg.Games == nil {
		cfg.Games = games()
	}
	k := kittest.New(t, append(opts, kit.WithMatchmaking(cfg))...)
	return &rig{Kit: k, Matchmaking: k.Matchmaking(), t: t}
}

// each runs a test on SQLite in memory, in test mode, and on PostgreSQL.
func each(t *testing.T, cfg matchmaking.Config, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { f(t, newRig(t, cfg)) })
	if os.Getenv("KIT_TEST_POSTGRES") != "" {
		t.Run("postgres", func(t *testing.T) { f(t, newRig(t, cfg, kit.WithDatabase(databasetest.Postgres(t)))) })
	}
}

// nodes composes n kits on one PostgreSQL database and one clock, connected by pubsub.
func nodes(t testing.TB, n int, cfg matchmaking.Config) []*rig {
	t.Helper()
	clock := kittest.NewClock()
	var list []*rig
	for _, db := range databasetest.Shared(t, n) {
		r := newRig(t, cfg, kit.WithDatabase(db), kit.WithClock(clock.Now), kit.WithMasterKeys(masterKeys))
		r.Clock = clock
		r.hear()
		list = append(list, r)
	}
	return list
}

// hear waits until the node receives the events of the others.
func (r *rig) hear() {
	heard := make(chan struct{}, 1)
	defer r.PubSub().Subscribe("tests/connected", func([]byte) { // the nil of the first connect
		select {
		case heard <- struct{}{}:
		default:
		}
	})()
	<-heard
}

func masterKeys(context.Context) (string, error) {
	return "1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", nil
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) refuses(want *capability.Error, err error) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("got %v, want %s", err, want.Code)
	}
}

func errorOf[T any](_ T, err error) error { return err }

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// users creates users with these ids.
func (r *rig) users(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.ok(r.Auth().EnsureUser(context.Background(), id))
	}
}

// named gives a user a display name.
func (r *rig) named(id, name string) {
	r.t.Helper()
	r.users(id)
	r.ok(errorOf(r.Auth().UpdateUser(context.Background(), id, auth.UserPatch{Name: &name})))
}

// befriend makes two users friends.
func (r *rig) befriend(a, b string) {
	r.t.Helper()
	ctx := context.Background()
	r.users(a, b)
	r.ok(errorOf(r.RequestFriend(ctx, a, b)))
	r.ok(errorOf(r.AcceptFriend(ctx, b, a)))
}

// bonds gives a user n bonds that the user has begun, with others who need not exist. Those of state
// "none" are blocks.
func (r *rig) bonds(userID, state string, n int) {
	r.t.Helper()
	r.ok(errorOf(r.Database().Exec(context.Background(), `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < $3)
		INSERT INTO matchmaking_friend (low, high, state, requester, low_blocks, high_blocks, since)
		SELECT $1, 'z' || i, $2, CASE $2 WHEN 'none' THEN '' ELSE $1 END, $2 = 'none', FALSE, 0 FROM n`, userID, state, n)))
}

// step advances the clock to the next sweep and runs the due jobs.
func (r *rig) step(d time.Duration) {
	r.t.Helper()
	r.Clock.Advance(d)
	r.RunJobs()
}

// rate gives a player wins in the pool duel, and so a skill.
func (r *rig) rate(userID string, wins int) {
	r.t.Helper()
	for range wins {
		r.ok(errorOf(r.Rating().Record(context.Background(), "duel", rating.Outcome{Ranks: map[string]int{userID: 1, "somebody": 2}})))
	}
}

// serve starts a real server for a rig.
func (r *rig) serve() *httptest.Server {
	server := httptest.NewServer(r.Kit)
	r.t.Cleanup(server.Close)
	return server
}

// frame is an event of the presence socket.
type frame struct {
	Type      string
	SessionID string
	GameKey   string
	InviteID  string
	From      string
	Online    []string
	Offline   []string
	Code      string
}

// ear is a presence socket.
type ear struct {
	*websocket.Conn
	t     testing.TB
	heard map[string]bool // the invites
}

// listen opens a presence socket and returns it with its first frame, the friends who are online.
func (r *rig) listen(server *httptest.Server, userID string) (*ear, frame) {
	r.t.Helper()
	r.users(userID)
	token := must(r.Auth().IssueToken(context.Background(), userID, nil, time.Hour))
	conn, resp, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(server.URL, "http")+"/matchmaking/presence",
		http.Header{"Authorization": {"Bearer " + token}})
	r.ok(err)
	_ = resp.Body.Close()
	r.t.Cleanup(func() { _ = conn.Close() })
	e := &ear{conn, r.t, make(map[string]bool)}
	return e, e.next("friends_online", "friend_request") // an earlier request may arrive late
}

// next reads the next event, which must have the given type; events of the other types are skipped.
// The online friends and pending invites may be sent again at any time, because the node sends them
// when it has begun to listen on PostgreSQL.
func (e *ear) next(kind string, others ...string) frame {
	e.t.Helper()
	if kind != "pong" {
		others = append(others, "friends_online")
	}
	_ = e.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		_, raw, err := e.ReadMessage()
		if err != nil {
			e.t.Fatalf("waiting for %s: %v", kind, err)
		}
		var f frame
		if err := json.Unmarshal(raw, &f); err != nil {
			e.t.Fatal(err)
		}
		again := f.Type == "invite" && e.heard[f.InviteID]
		if e.heard[f.InviteID] = true; again || f.Type == "ping" || f.Type != kind && slices.Contains(others, f.Type) {
			continue
		}
		if f.Type != kind {
			e.t.Fatalf("got %s, want %s", raw, kind)
		}
		return f
	}
}

// hears waits for the event that these friends have come online or gone offline.
func (e *ear) hears(online, offline []string) {
	e.t.Helper()
	e.find("friends_online", func(f frame) bool {
		return slices.Equal(f.Online, online) && slices.Equal(f.Offline, offline)
	})
}

// silent checks, by a ping and its pong, that no events were sent except of these types.
func (e *ear) silent(but ...string) {
	e.t.Helper()
	if err := e.WriteMessage(websocket.TextMessage, []byte(`{"type":"ping"}`)); err != nil {
		e.t.Fatal(err)
	}
	e.next("pong", but...)
}

func ids(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s-%04d", prefix, i)
	}
	return list
}

// find reads events of a type until one matches.
func (e *ear) find(kind string, wanted func(frame) bool) {
	e.t.Helper()
	for !wanted(e.next(kind)) {
	}
}

func page() capability.Page { return capability.NewPage(50, "") }
