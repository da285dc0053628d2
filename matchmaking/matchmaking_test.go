package matchmaking_test

import (
	"errors"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit"
	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/kv"
	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		m, err := matchmaking.New(h, matchmaking.Config{BasePath: basePath, Games: []matchmaking.Game{{Key: "duel", Players: 2}}}, matchmaking.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return m.Capability(), nil
	})
}

// routes lists the route table as "METHOD path guard".
func routes(r *rig) []string {
	var list []string
	for _, route := range r.Routes() {
		if route.Capability == matchmaking.Name {
			list = append(list, route.Method+" "+route.Path+" "+route.Guard)
		}
	}
	return list
}

func TestRoutes(t *testing.T) {
	others := []string{
		"POST /matchmaking/games/:game/rooms user",
		"POST /matchmaking/rooms/:code/join user",
		"POST /matchmaking/games/:game/invites user",
		"GET /matchmaking/invites user",
		"POST /matchmaking/invites/:id/accept user",
		"POST /matchmaking/invites/:id/decline user",
	}
	friends := []string{
		"GET /matchmaking/friends user",
		"POST /matchmaking/friends/:userId/request user",
		"POST /matchmaking/friends/:userId/accept user",
		"POST /matchmaking/friends/:userId/decline user",
		"DELETE /matchmaking/friends/:userId user",
	}
	queue := []string{
		"POST /matchmaking/games/:game/queue user",
		"GET /matchmaking/games/:game/queue user",
		"DELETE /matchmaking/games/:game/queue user",
		"GET /matchmaking/presence user",
	}
	if diff := cmp.Diff(slices.Concat(others, friends, queue), routes(newRig(t, matchmaking.Config{}))); diff != "" {
		t.Error(diff)
	}
	r := newRig(t, matchmaking.Config{NoFriends: true})
	if diff := cmp.Diff(slices.Concat(others, queue), routes(r)); diff != "" {
		t.Error(diff)
	}
	r.User("ada").Get("/matchmaking/friends").Want(404, "kit/not_found")
}

// faultKeys lists the keys of the faults of a composition.
func faultKeys(err error) []string {
	var keys []string
	var walk func(error)
	walk = func(err error) {
		var fault *capability.Fault
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range many.Unwrap() {
				walk(e)
			}
		} else if errors.As(err, &fault) {
			keys = append(keys, fault.Key)
		}
	}
	walk(err)
	slices.Sort(keys)
	return keys
}

func TestConfigFaults(t *testing.T) {
	r := newRig(t, matchmaking.Config{})
	_, err := matchmaking.New(r.Host(), matchmaking.Config{Codes: eventual{}, Games: []matchmaking.Game{
		{Key: "a b", Players: 1, SkillPool: "none", Regions: []string{"eu", "eu", ""}, RoomCodes: matchmaking.RoomCodes{TTLSeconds: 1, MaxUses: 1001}},
		{Key: "x", Players: 1001, Queue: matchmaking.Queue{InitialBand: new(-1.0), WidenPerSecond: math.NaN(), MaxWaitSeconds: -1, SweepSeconds: 61}},
		{Key: "x", Players: 4, Snapshot: &multiplayer.Game{Kind: "duel", Players: 2, Rules: duelRules{}}},
		{Key: "y", Players: 2, Snapshot: &multiplayer.Game{Kind: "unknown"}, Regions: ids("region", 33)},
	}}, matchmaking.Peers{Rating: r.Rating(), Multiplayer: r.Multiplayer()})
	want := []string{
		"codes", "games[0].key", "games[0].players", "games[0].regions[1]", "games[0].regions[2]", "games[0].roomCodes.maxUses",
		"games[0].roomCodes.ttlSeconds", "games[0].skillPool", "games[1].players", "games[1].queue.initialBand",
		"games[1].queue.maxWaitSeconds", "games[1].queue.sweepSeconds", "games[1].queue.widenPerSecond", "games[2].key",
		"games[2].snapshot.players", "games[3].regions", "games[3].snapshot",
	}
	if diff := cmp.Diff(want, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
	_, err = matchmaking.New(r.Host(), matchmaking.Config{}, matchmaking.Peers{})
	if diff := cmp.Diff([]string{"games"}, faultKeys(err)); diff != "" {
		t.Error(diff)
	}
}

type eventual struct{ kv.Store }

func (eventual) Atomic() bool { return false }

// TestConfigDefaults checks the defaults against the specification.
func TestConfigDefaults(t *testing.T) {
	r := newRig(t, matchmaking.Config{Games: []matchmaking.Game{{Key: "duel", Players: 3, Snapshot: &multiplayer.Game{Kind: "duel", Rules: duelRules{}}}}})
	for _, c := range r.Capabilities() {
		if c.Name != matchmaking.Name {
			continue
		}
		game := c.Config[0].Value.([]matchmaking.Game)[0]
		want := matchmaking.Game{
			Key: "duel", Players: 3, Regions: []string{"default"}, RoomCodes: matchmaking.RoomCodes{TTLSeconds: 900, MaxUses: 9},
			Queue:    matchmaking.Queue{SweepSeconds: 5},
			Snapshot: &multiplayer.Game{Key: "duel", Kind: "duel", Mode: multiplayer.ModeMatch, Players: 3, Rules: duelRules{}},
		}
		if diff := cmp.Diff(want, game); diff != "" {
			t.Error(diff)
		}
		if c.Config[1].Value != "on" || c.Prefix != "/matchmaking" {
			t.Errorf("friends %v under %s", c.Config[1].Value, c.Prefix)
		}
	}
}

// TestHTTP calls every route, and covers most refusals, over HTTP.
func TestHTTP(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		const games, roomsOf, inviteList, friends = "/matchmaking/games/", "/matchmaking/rooms/", "/matchmaking/invites", "/matchmaking/friends"
		ada, bob, eve := r.User("ada"), r.User("bob"), r.User("eve")
		r.named("sam", "Sam")
		r.named("sam2", "Sam")

		var room matchmaking.Room
		ada.Post(games+"duel/rooms", nil).Want(201, "").JSON(&room)
		if want := r.Clock.Now().Add(15 * time.Minute); !room.ExpiresAt.Equal(want) {
			t.Errorf("the code expires at %s, want %s", room.ExpiresAt, want)
		}
		var joined matchmaking.Joined
		spoken := url.PathEscape(strings.ToLower(strings.ReplaceAll(room.Code, "-", " ")))
		bob.Post(roomsOf+spoken+"/join", nil).Want(200, "").JSON(&joined)
		if diff := cmp.Diff(matchmaking.Joined{SessionID: room.SessionID, GameKey: "duel"}, joined); diff != "" {
			t.Error(diff)
		}
		eve.Post(roomsOf+room.Code+"/join", nil).Want(409, "matchmaking/room_full")
		ada.Post("/multiplayer/sessions/"+room.SessionID+"/action", "{}").Want(200, "")
		eve.Post(roomsOf+room.Code+"/join", nil).Want(404, "matchmaking/room_not_found")
		eve.Post(roomsOf+"ABCD-2345/join", nil).Want(400, "matchmaking/invalid_code")
		ada.Post(games+"chess/rooms", nil).Want(404, "matchmaking/game_not_found")
		ada.Post(games+"alone/rooms", nil).Want(501, "matchmaking/no_sessions")
		for range 9 {
			ada.Post(games+"duel/rooms", nil).Want(201, "")
		}
		ada.Post(games+"duel/rooms", nil).Want(409, "matchmaking/limit_reached")
		for range 9 {
			eve.Post(roomsOf+"nonsense/join", nil).Want(400, "matchmaking/invalid_code")
		}
		limited := eve.Post(roomsOf+"nonsense/join", nil).Want(429, "kit/rate_limited")
		if wait := limited.Header.Get("Retry-After"); wait != "60" {
			t.Errorf("Retry-After is %q, want 60", wait)
		}

		var v matchmaking.Invite
		ada.Post(games+"duel/invites", map[string]string{"userId": "bob"}).Want(201, "").JSON(&v)
		ada.Post(games+"duel/invites", map[string]string{"screenName": "Sam"}).Want(404, "matchmaking/user_not_found")
		ada.Post(games+"duel/invites", map[string]string{"name": "Sam"}).Want(400, "kit/invalid_request")
		ada.Post(inviteList+"/"+v.ID+"/accept", nil).Want(403, "matchmaking/invite_forbidden")
		bob.Post(inviteList+"/nothing/accept", nil).Want(404, "matchmaking/invite_not_found")
		bob.Post(inviteList+"/"+v.ID+"/accept", nil).Want(200, "").JSON(&v)
		var list capability.Items[matchmaking.Invite]
		bob.Get(inviteList).Want(200, "").JSON(&list)
		if len(list.Items) != 1 || list.Items[0].SessionID == "" || list.Items[0].SessionID != v.SessionID {
			t.Errorf("got %+v, want the accepted invite with its session", list.Items)
		}
		ada.Post(games+"duel/invites", map[string]string{"userId": "eve"}).Want(201, "").JSON(&v)
		eve.Post(inviteList+"/"+v.ID+"/decline", nil).Want(204, "")
		eve.Post(inviteList+"/"+v.ID+"/decline", nil).Want(404, "matchmaking/invite_not_found")

		ada.Post(friends+"/bob/request", nil).Want(200, "")
		bob.Post(friends+"/ada/accept", nil).Want(200, "")
		ada.Post(friends+"/bob/request", nil).Want(409, "matchmaking/already_friends")
		ada.Post(friends+"/nobody/request", nil).Want(404, "matchmaking/user_not_found")
		ada.Post(friends+"/eve/accept", nil).Want(404, "matchmaking/friend_request_not_found")
		eve.Post(friends+"/ada/request", nil).Want(200, "")
		ada.Post(friends+"/eve/decline", nil).Want(204, "")
		var fellows capability.Items[matchmaking.Friend]
		ada.Get(friends).Want(200, "").JSON(&fellows)
		if len(fellows.Items) != 1 || fellows.Items[0].UserID != "bob" || fellows.Items[0].State != "accepted" {
			t.Errorf("got %+v, want bob", fellows.Items)
		}
		ada.Do("DELETE", friends+"/bob", nil).Want(204, "")
		ada.Do("DELETE", friends+"/bob", nil).Want(404, "matchmaking/user_not_found")

		ada.Get(games+"duel/queue").Want(404, "matchmaking/not_queued")
		ada.Do("DELETE", games+"duel/queue", nil).Want(404, "matchmaking/not_queued")
		ada.Post(games+"chess/queue", "{}").Want(404, "matchmaking/game_not_found")
		ada.Post(games+"table/queue", map[string]string{"region": "mars"}).Want(400, "kit/invalid_request")
		waiting := ada.Post(games+"table/queue", map[string]string{"region": "us"}).Want(202, "")
		if got, want := strings.TrimSpace(string(waiting.Body)), `{"state":"waiting","region":"us","band":null,"waitedMs":0}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		r.ok(errorOf(r.EnqueueParty(ctx, "table", "eu", "x", "y")))
		r.refuses(matchmaking.ErrAlreadyQueued, errorOf(r.EnqueueParty(ctx, "table", "eu", "x", "z"))) // parties are available in process only
		ada.Get(games+"table/queue").Want(200, "")
		ada.Do("DELETE", games+"table/queue", nil).Want(204, "")

		ada.Get("/matchmaking/presence").Want(400, "kit/invalid_request")
		r.Anonymous().Get("/matchmaking/presence").Want(401, "auth/unauthenticated")
	})
}

// TestSeams checks matchmaking without its peers: without auth every route refuses; without rating
// only the region counts; without multiplayer players are paired and no session is created. With
// audit a block is recorded.
func TestSeams(t *testing.T) {
	bare := compose(t, matchmaking.Config{})
	for _, route := range bare.Routes() {
		if route.Capability == matchmaking.Name {
			path := strings.NewReplacer(":game", "duel", ":code", "ABCD-2345", ":id", "x", ":userId", "x").Replace(route.Path)
			bare.Anonymous().Do(route.Method, path, nil).Want(401, "auth/unauthenticated")
		}
	}
	bare.refuses(matchmaking.ErrNoSessions, errorOf(bare.OpenRoom(ctx, "duel", "a")))
	bare.refuses(matchmaking.ErrNoSessions, errorOf(bare.SendInvite(ctx, "duel", "a", toUser("b"))))
	bare.refuses(matchmaking.ErrInvalidCode, errorOf(bare.JoinRoom(ctx, "ABCD-2345", "a")))
	for _, user := range []string{"a", "b"} {
		q, err := bare.Enqueue(ctx, "duel", "", user)
		bare.ok(err)
		if q.Band != nil {
			t.Errorf("a band of %v without rating", *q.Band)
		}
	}
	bare.step(5 * time.Second)
	q := bare.status("duel", "a")[0]
	if q.State != matchmaking.Matched || q.SessionID != "" {
		t.Errorf("got %+v, want a match without a session", q)
	}
	match, ok, err := bare.Match(ctx, q.MatchID)
	bare.ok(err)
	slices.Sort(match.Players)
	if diff := cmp.Diff(matchmaking.Match{ID: q.MatchID, GameKey: "duel", Region: "default", Players: []string{"a", "b"}, State: "matched"}, match); diff != "" || !ok {
		t.Error(diff)
	}

	r := newRig(t, matchmaking.Config{}, kit.WithAudit(audit.Config{}))
	r.users("ada", "eve")
	r.ok(r.Block(ctx, "ada", "eve"))
	events, err := r.Audit().ListEvents(ctx, audit.Filter{Action: "matchmaking/user_blocked"}, page())
	r.ok(err)
	if len(events.Items) != 1 {
		t.Errorf("got %+v, want the block", events.Items)
	}
}

// TestBasePath checks that the prefix applies to every route.
func TestBasePath(t *testing.T) {
	r := newRig(t, matchmaking.Config{BasePath: "/play"})
	r.User("ada").Get("/play/invites").Want(http.StatusOK, "")
	r.User("ada").Get("/matchmaking/invites").Want(http.StatusNotFound, "kit/not_found")
}
