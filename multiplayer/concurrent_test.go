package multiplayer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
)

// countState is the state of a game in which everybody counts.
type countState struct {
	Counts map[string]int `json:"counts"`
	Total  int            `json:"total"`
}

// counting is a model that accepts every number and ends when there is nothing to count.
func counting(kind string, players int) multiplayer.Model {
	type countContext = multiplayer.Context[struct{}]
	return multiplayer.Define(multiplayer.Definition[struct{}, countState]{
		Kind: kind, MinPlayers: players,
		Init: func(countContext) (countState, []multiplayer.Effect, error) {
			return countState{Counts: map[string]int{}}, nil, nil
		},
		Apply: func(_ countContext, s countState, m multiplayer.Move) (countState, []multiplayer.Effect, error) {
			var n int
			if err := m.Decode(&n); err != nil {
				return s, nil, err
			}
			if n == 0 {
				return s, nil, multiplayer.Illegal("Nothing to count.")
			}
			s.Counts[m.UserID] += n
			s.Total += n
			return s, nil, nil
		},
		IsComplete: func(_ countContext, s countState) bool { return s.Total < 0 },
		Resolve:    func(countContext, countState) multiplayer.Outcome { return multiplayer.Outcome{} },
		Redact:     func(_ countContext, s countState, _ string, _ bool) any { return s },
	})
}

func countConfig() multiplayer.Config {
	return multiplayer.Config{
		Models: []multiplayer.Model{counting("count", 1), tricks},
		Games:  []multiplayer.Game{{Key: "count", Kind: "count", Players: 64}, {Key: "solo", Kind: "count", Players: 1}},
	}
}

// countConfigWithoutTricks is the configuration of a node that lacks a model.
func countConfigWithoutTricks() multiplayer.Config {
	c := countConfig()
	c.Models = c.Models[:1]
	return c
}

// crowd starts a session of 64 players.
func crowd(r *rig) (id string, players []string) {
	r.t.Helper()
	for i := range 64 {
		players = append(players, fmt.Sprintf("player-%02d", i))
	}
	game, err := r.Game("count")
	r.ok(err)
	s, err := r.Start(context.Background(), multiplayer.Start{Game: game, Players: players})
	r.ok(err)
	return s.ID, players
}

const actsOfEach = 10

// actAtOnce lets every player act, on all nodes in turn, with an id each time and every action sent
// twice. It returns the versions of the accepted actions.
func actAtOnce(t *testing.T, id string, players []string, nodes ...*rig) map[int64]string {
	t.Helper()
	var mu sync.Mutex
	versions := make(map[int64]string)
	var group sync.WaitGroup
	for i, player := range players {
		group.Go(func() {
			for n := range actsOfEach {
				a := multiplayer.Action{ID: fmt.Sprint("a", n), Data: json.RawMessage("1")}
				first, err := actUntilTaken(nodes[(i+n)%len(nodes)], id, player, a)
				if err != nil {
					t.Error(err)
					return
				}
				again, err := actUntilTaken(nodes[(i+n+1)%len(nodes)], id, player, a)
				if err != nil || again.Version != first.Version {
					t.Errorf("%+v, then %+v, %v", first, again, err)
				}
				mu.Lock()
				if other, taken := versions[first.Version]; taken {
					t.Errorf("version %d is of %s and %s", first.Version, other, player)
				}
				versions[first.Version] = player
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return versions
}

// actUntilTaken repeats an action until the session has room for it, as a client may do with an id.
func actUntilTaken(r *rig, id, user string, a multiplayer.Action) (multiplayer.Ack, error) {
	for {
		ack, err := r.Act(context.Background(), id, user, a)
		if !errors.Is(err, capability.ErrRateLimited) && !errors.Is(err, capability.ErrUnavailable) {
			return ack, err
		}
	}
}

// oneOrder checks that every accepted action is in the log once, without a gap.
func oneOrder(r *rig, id string, players []string, versions map[int64]string) {
	r.t.Helper()
	want := int64(len(players) * actsOfEach)
	for version := int64(2); version <= want+1; version++ {
		if versions[version] == "" {
			r.t.Errorf("nobody was told version %d", version)
		}
	}
	var rows, least, most int64
	r.ok(r.db.QueryRow(context.Background(), `SELECT COUNT(*), MIN(version), MAX(version) FROM multiplayer_action WHERE session_id = $1`, id).
		Scan(&rows, &least, &most))
	if rows != want+1 || least != 1 || most != want+1 {
		r.t.Errorf("the log has %d rows from %d to %d; want %d", rows, least, most, want+1)
	}
	var s countState
	r.ok(json.Unmarshal(r.view(id, players[0]).State, &s))
	if s.Total != int(want) {
		r.t.Errorf("the total is %d; want %d", s.Total, want)
	}
	r.replays(id)
}

// Test64AtOnce lets 64 players act concurrently in one session.
func Test64AtOnce(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), countConfig())
		id, players := crowd(r)
		oneOrder(r, id, players, actAtOnce(t, id, players, r))
	})
}

// TestTwoNodes lets them act on two nodes.
func TestTwoNodes(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	clock := kittest.NewClock()
	a, b := node(t, dbs[0], clock, countConfig()), node(t, dbs[1], clock, countConfig())
	id, players := crowd(a)
	versions := actAtOnce(t, id, players, a, b)
	oneOrder(a, id, players, versions)
	oneOrder(b, id, players, versions)
}

// TestNodesTakeTurns checks that a node sees the changes of another one at once.
func TestNodesTakeTurns(t *testing.T) {
	dbs := databasetest.Shared(t, 2)
	clock := kittest.NewClock()
	nodes := []*rig{node(t, dbs[0], clock, trickConfig()), node(t, dbs[1], clock, trickConfig())}
	nodes[0].give(100, "ada", "bob")
	id := nodes[0].create("staked", "ada").ID
	nodes[1].join(id, "bob")

	stale := nodes[0].create("duel", "ada").ID
	nodes[0].join(stale, "bob")
	_, err := nodes[1].play(stale, "bob", trickMove{}) // now cached there
	nodes[0].ok(err)
	_, err = nodes[0].play(stale, "ada", trickMove{})
	nodes[0].ok(err)
	_, err = nodes[1].play(stale, "bob", trickMove{}) // the cached version would refuse it
	nodes[0].ok(err)

	for i := range 4 {
		user := []string{"ada", "bob"}[i%2]
		ack, err := nodes[i/2].play(id, user, trickMove{})
		nodes[0].ok(err)
		if v := nodes[1-i/2].view(id, user); v.Version != ack.Version {
			t.Errorf("version %d on the other node, %d here", v.Version, ack.Version)
		}
	}
	if v := nodes[0].view(id, "ada"); v.Phase != multiplayer.PhaseResolved {
		t.Errorf("%+v", v)
	}
	nodes[1].replays(id)
}

// TestOneSeatLeft checks that only one of many who join concurrently gets the last seat.
func TestOneSeatLeft(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.create("duel", "ada").ID
		var seated, full atomic.Int64
		var group sync.WaitGroup
		for i := range 16 {
			group.Go(func() {
				switch _, err := r.Join(context.Background(), id, fmt.Sprint("guest-", i)); {
				case err == nil:
					seated.Add(1)
				case errors.Is(err, multiplayer.ErrSessionFull):
					full.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		group.Wait()
		if seated.Load() != 1 || full.Load() != 15 {
			t.Errorf("%d have a seat, %d do not", seated.Load(), full.Load())
		}
		r.replays(id)
	})
}

// TestOpenerLeavesAsTheOtherJoins checks that a match that its opener leaves while another player
// joins, on two nodes, either begins with the stakes of both or ends without any.
func TestOpenerLeavesAsTheOtherJoins(t *testing.T) {
	two := func(t *testing.T, dbs ...*database.DB) {
		clock := kittest.NewClock()
		one, other := node(t, dbs[0], clock, trickConfig()), node(t, dbs[1], clock, trickConfig())
		one.give(1000, "ada", "bob")
		var held int64
		for range 20 {
			id := one.create("staked", "ada").ID
			var left, joined error
			var group sync.WaitGroup
			group.Go(func() { left = one.Leave(t.Context(), id, "ada") })
			group.Go(func() { _, joined = other.Join(t.Context(), id, "bob") })
			group.Wait()
			_, phase, err := one.Seats(t.Context(), id)
			one.ok(err)
			switch {
			case joined == nil && phase == multiplayer.PhaseActive:
				one.refuses(multiplayer.ErrInvalidTransition, left)
				held += 10
			case left == nil && phase == multiplayer.PhaseAbandoned:
				one.refuses(multiplayer.ErrInvalidTransition, joined)
			default:
				t.Fatalf("it is %s: %v, %v", phase, left, joined)
			}
			one.balance("ada", 1000, held)
			one.balance("bob", 1000, held)
			one.replays(id)
		}
	}
	databasetest.Each(t, func(t *testing.T, db *database.DB) { two(t, db, db) })
	t.Run("nodes", func(t *testing.T) { two(t, databasetest.Shared(t, 2)...) })
}

// TestStartAtOnce checks that all who start a session under one id concurrently get the same
// session, and that its stakes are held once.
func TestStartAtOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		game, err := r.Game("staked")
		r.ok(err)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				s, err := r.Start(context.Background(), multiplayer.Start{SessionID: "one", Game: game, Players: []string{"ada", "bob"}})
				if err != nil || s.ID != "one" {
					t.Errorf("%+v %v", s, err)
				}
			})
		}
		group.Wait()
		r.balance("ada", 100, 10)
		r.replays("one")
	})
}

// TestSharedPlayers checks that sessions that hold stakes of the same players in different orders
// do not deadlock.
func TestSharedPlayers(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		players := []string{"ada", "bob", "cid", "dan"}
		r.give(10_000, players...)
		game, err := r.Game("staked")
		r.ok(err)
		var group sync.WaitGroup
		for i := range 32 {
			group.Go(func() {
				a, b := players[i%4], players[(i+1+i/4%3)%4]
				if _, err := r.Start(context.Background(), multiplayer.Start{Game: game, Players: []string{a, b}}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var held int64
		r.ok(r.db.QueryRow(t.Context(), `SELECT CAST(SUM(held) AS BIGINT) FROM ledger_account`).Scan(&held))
		if held != 640 {
			t.Errorf("%d are held", held)
		}
	})
}

// TestSharedPlayersAtTheEnd checks the same for sessions that settle stakes of the same players in
// different orders, some of them by leaving them open.
func TestSharedPlayersAtTheEnd(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		r := node(t, db, kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
			Games: []multiplayer.Game{{Key: "script", Kind: "script", Players: 1}}})
		players := []string{"ada", "bob", "cid", "dan"}
		r.give(10_000, players...)
		var group sync.WaitGroup
		for i := range 32 {
			id, a, b, c := r.create("script", "dealer").ID, players[i%4], players[(i+1+i/4%3)%4], players[(i+2+i/8%2)%4]
			group.Go(func() {
				for _, move := range []scriptMove{
					{Effects: []multiplayer.Effect{multiplayer.Hold(c, "coins", 10, "c"), multiplayer.Hold(a, "coins", 10, "a"), multiplayer.Hold(b, "coins", 10, "b")}},
					{Effects: []multiplayer.Effect{multiplayer.Capture("b"), multiplayer.Release("a"), multiplayer.Credit(b, "coins", 10, "back")}, End: true},
				} {
					if err := errorOf(r.play(id, "dealer", move)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		group.Wait()
		for _, player := range players {
			r.balance(player, 10_000, 0)
		}
	})
}

// TestBatch checks that queued steps are written together, except those that must be alone, and
// that a refused step fails no other. A caller that cancels in time has not acted.
func TestBatch(t *testing.T) {
	r := node(t, databasetest.File(t), kittest.NewClock(), multiplayer.Config{Models: []multiplayer.Model{script},
		Games: []multiplayer.Game{{Key: "script", Kind: "script", Players: 1}}})
	r.give(100, "ada")
	id := r.create("script", "ada").ID
	begun, leave := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { // holds the only writer of the database
		if err := r.db.InTx(context.Background(), func(context.Context) error {
			close(begun)
			<-leave
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	hold := func(amount int64, name string) scriptMove {
		return scriptMove{Effects: []multiplayer.Effect{multiplayer.Hold("ada", "coins", amount, name)}}
	}
	plain := scriptMove{}
	gone, goAway := context.WithCancel(context.Background())
	steps := []struct {
		ctx     context.Context
		move    scriptMove
		id      string
		version int64
		err     error
	}{
		{move: plain, version: 2}, // under way, the others wait for it
		{move: plain, id: "x", version: 3}, {move: hold(0, "none"), err: capability.ErrInternal}, {move: plain, id: "x", version: 3},
		{move: hold(101, "much"), err: ledger.ErrInsufficientFunds}, {move: plain, version: 4}, {ctx: gone, move: plain, err: context.Canceled},
		{move: hold(100, "all"), version: 5}, {move: hold(1, "more"), err: ledger.ErrInsufficientFunds}, {move: plain, version: 6},
		{move: scriptMove{End: true}, version: 7}, {move: plain, err: multiplayer.ErrInvalidTransition},
	}
	for i, s := range steps {
		if s.ctx == nil {
			s.ctx = context.Background()
		}
		data, err := json.Marshal(s.move)
		r.ok(err)
		group.Go(func() {
			ack, err := r.Act(s.ctx, id, "ada", multiplayer.Action{ID: s.id, Data: data})
			if refusal := capability.AsError(err); ack.Version != s.version || err != nil && !errors.Is(err, s.err) && !errors.Is(refusal, s.err) {
				t.Errorf("step %d: %+v, %v", i, ack, err)
			}
		})
		for i > 0 && r.Waiting(id) < i || i == 0 && r.Busy() == 0 {
			runtime.Gosched()
		}
	}
	goAway()
	for r.Waiting(id) == len(steps)-1 {
		runtime.Gosched()
	}
	close(leave)
	group.Wait()
	if v := r.view(id, "ada"); v.Version != 7 || v.Phase != multiplayer.PhaseResolved {
		t.Errorf("%+v", v)
	}
	r.balance("ada", 100, 0)
	r.replays(id)

	r.ok(r.close(context.Background()))
	if _, err := r.play(id, "ada", plain); !errors.Is(err, database.ErrClosed) {
		t.Errorf("after the end of the node: %v", err)
	}
}

// TestBusy checks that the callers of a session are bounded.
func TestBusy(t *testing.T) {
	r := node(t, databasetest.File(t), kittest.NewClock(), countConfig())
	id, players := crowd(r)
	begun, leave := make(chan struct{}), make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { // holds the only writer of the database
		if err := r.db.InTx(context.Background(), func(context.Context) error {
			close(begun)
			<-leave
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-begun
	var refused, accepted atomic.Int64
	for i := range 200 {
		group.Go(func() {
			_, err := r.Act(context.Background(), id, players[i%64], multiplayer.Action{Data: json.RawMessage("1")})
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, capability.ErrRateLimited):
				if refused.Add(1) == 200-96 { // 64 wait, at most 32 are under way
					close(leave)
				}
			default:
				t.Error(err)
			}
		})
	}
	group.Wait()
	if accepted.Load() < 64 || accepted.Load() > 96 { // 64 when none was under way before the queue was full
		t.Errorf("%d were accepted", accepted.Load())
	}
	r.replays(id)
}

// TestIdleSessionsAreForgotten checks that a node caches only the sessions in use.
func TestIdleSessionsAreForgotten(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		var ids []string
		for range 10 {
			ids = append(ids, r.create("duel", "ada").ID)
		}
		if n := r.Warm(); n != 10 {
			t.Errorf("%d are in memory", n)
		}
		r.clock.Advance(59 * time.Second)
		r.view(ids[0], "ada")
		r.clock.Advance(2 * time.Second)
		r.view(ids[1], "ada")
		r.clock.Advance(30 * time.Second)
		if r.view(ids[2], "ada"); r.Warm() != 3 {
			t.Errorf("%d are in memory", r.Warm())
		}
	})
}

// book is a game whose state has as many bytes as its rules say, and which goes on for ever.
var book = multiplayer.Define(multiplayer.Definition[int, []string]{
	Kind: "book", MinPlayers: 1, MaxPlayers: 1,
	Init: func(c multiplayer.Context[int]) ([]string, []multiplayer.Effect, error) {
		return []string{strings.Repeat("x", c.Config)}, nil, nil
	},
	Apply: func(_ multiplayer.Context[int], s []string, _ multiplayer.Move) ([]string, []multiplayer.Effect, error) {
		return s, nil, nil
	},
	IsComplete: func(multiplayer.Context[int], []string) bool { return false },
	Resolve:    func(multiplayer.Context[int], []string) multiplayer.Outcome { return multiplayer.Outcome{} },
	Redact:     func(multiplayer.Context[int], []string, string, bool) any { return nil },
})

func bookConfig() multiplayer.Config {
	return multiplayer.Config{Models: []multiplayer.Model{book}, Games: []multiplayer.Game{
		{Key: "book", Kind: "book", Players: 1, Rules: 200 << 10}, {Key: "note", Kind: "book", Players: 1, Rules: 1000}}}
}

// TestCachedStatesAreBoundedInBytes checks that large states displace each other from a node's
// cache, and that small ones do not.
func TestCachedStatesAreBoundedInBytes(t *testing.T) {
	r := node(t, databasetest.Memory(t), kittest.NewClock(), bookConfig())
	for range 50 {
		r.create("note", "ada")
	}
	if n := r.Warm(); n != 50 {
		t.Errorf("%d small sessions are cached, want 50", n)
	}
	var ids []string
	for range multiplayer.MaxStates/(200<<10) + 10 {
		ids = append(ids, r.create("book", "ada").ID)
		cached, counted := r.StateBytes()
		if cached != counted || cached > multiplayer.MaxStates+201<<10 {
			t.Fatalf("after %d sessions: %d bytes are cached, %d counted", len(ids), cached, counted)
		}
	}
	r.view(ids[0], "ada")
	warm := r.Warm()
	r.view(ids[0], "ada")
	if n := r.Warm(); n != warm || n < 2 {
		t.Errorf("%d sessions are cached, then %d", warm, n)
	}
}

// TestCachedBytesAreCounted checks the count against the cache after callers, reads, and removals
// of all kinds have raced.
func TestCachedBytesAreCounted(t *testing.T) {
	r := node(t, databasetest.Memory(t), kittest.NewClock(), bookConfig())
	var ids []string
	for range 4 {
		ids = append(ids, r.create("note", "ada").ID)
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for range 50 {
				if _, err := r.play(ids[i%4], "ada", nil); err != nil {
					t.Error(err)
				}
				if _, err := r.View(t.Context(), ids[(i+1)%4], "ada"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Go(func() {
		for range 50 {
			r.clock.Advance(time.Minute) // every session without a caller is idle
			if _, err := r.Create(t.Context(), "note", "ada"); err != nil {
				t.Error(err)
			}
		}
	})
	group.Wait()
	if cached, counted := r.StateBytes(); cached != counted || cached == 0 {
		t.Errorf("%d bytes are cached, %d counted", cached, counted)
	}
}
