package multiplayer_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/capability/capabilitytest"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/kittest"
	"github.com/kitbackend/kit/leaderboard"
	"github.com/kitbackend/kit/ledger"
	"github.com/kitbackend/kit/multiplayer"
)

func TestCapability(t *testing.T) {
	capabilitytest.Run(t, func(h capability.Host, basePath string) (capability.Capability, error) {
		c := trickConfig()
		c.BasePath = basePath
		c.Games[1].Leaderboard = nil
		m, err := multiplayer.New(h, c, multiplayer.Peers{})
		if err != nil {
			return capability.Capability{}, err
		}
		return m.Capability(), nil
	})
}

// each runs a test on a new node on every database.
func each(t *testing.T, f func(t *testing.T, r *rig)) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) { f(t, node(t, db, kittest.NewClock(), trickConfig())) })
}

// TestMatch plays a staked match: the views of the players before the start, during the game and at
// the end, and the effects of the end on other capabilities.
func TestMatch(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob")
		v := r.create("staked", "ada")
		if v.Phase != multiplayer.PhaseOpen || v.State != nil || v.TurnDeadline != nil || v.Version != 1 || v.Seats != 2 || v.Result != nil {
			t.Errorf("%+v", v)
		}
		if _, err := r.play(v.ID, "ada", trickMove{}); !errors.Is(err, multiplayer.ErrInvalidTransition) {
			t.Errorf("acting alone: %v", err)
		}
		r.balance("ada", 100, 0)
		joined := r.join(v.ID, "bob")
		if joined.Phase != multiplayer.PhaseActive || joined.TurnDeadline == nil ||
			!joined.TurnDeadline.Equal(r.clock.Now().Add(30*time.Second)) || joined.You != "bob" {
			t.Errorf("%+v", joined)
		}
		r.balance("ada", 100, 10)
		r.balance("bob", 100, 10)
		var seen trickState
		r.ok(json.Unmarshal(joined.State, &seen))
		if len(seen.Hands["bob"]) != 2 || seen.Hands["bob"][0] == "" || len(seen.Hands["ada"]) != 2 || seen.Hands["ada"][0] != "" {
			t.Errorf("bob sees %v", seen.Hands)
		}
		if f := joined.Fairness; f.Seed != nil || f.SeedHash != v.Fairness.SeedHash || f.Cursor != 4 || f.Algorithm != "hmac-sha256-ctr/1" {
			t.Errorf("%+v", f)
		}
		_, err := r.Result(ctx, v.ID, "ada")
		r.refuses(multiplayer.ErrInvalidTransition, err)

		over := r.finish(v.ID, "ada", "bob")
		if over.Phase != multiplayer.PhaseResolved || over.Fairness.Seed == nil || over.Result == nil || over.TurnDeadline != nil {
			t.Fatalf("%+v", over)
		}
		seed, err := hex.DecodeString(*over.Fairness.Seed)
		r.ok(err)
		if sum := sha256.Sum256(seed); hex.EncodeToString(sum[:]) != v.Fairness.SeedHash || len(seed) != 16 {
			t.Errorf("seed %x is not what was committed to", seed)
		}
		result, err := r.Result(ctx, v.ID, "bob")
		r.ok(err)
		if diff := cmp.Diff(*over.Result, result); diff != "" {
			t.Error(diff)
		}
		checkStakes(t, r, result)
		_, err = r.play(v.ID, "ada", trickMove{})
		r.refuses(multiplayer.ErrInvalidTransition, err)
		r.replays(v.ID)
	})
}

// checkStakes checks balances, points and ratings against the result of the match.
func checkStakes(t *testing.T, r *rig, result multiplayer.Result) {
	t.Helper()
	ctx := context.Background()
	for id, rank := range result.Ranks {
		other := map[string]string{"ada": "bob", "bob": "ada"}[id]
		balance, points := int64(100), int64(1)
		switch {
		case rank == 2:
			balance, points = 90, 0
		case result.Ranks[other] == 2:
			balance, points = 110, 3
		}
		r.balance(id, balance, 0)
		entry, err := r.boards.Me(ctx, leaderboard.View{Board: "wins"}, id)
		if err != nil || entry.Entry.Score != points {
			t.Errorf("%s has %v points, %v; want %d", id, entry.Entry.Score, err, points)
		}
		player, err := r.rating.Rating(ctx, "staked", id)
		if err != nil || player.GamesPlayed != 1 {
			t.Errorf("%s: %+v, %v", id, player, err)
		}
	}
	if len(result.Rating) != 2 {
		t.Errorf("the result tells of %d ratings", len(result.Rating))
	}
	report, err := r.ledger.Verify(ctx)
	if err != nil || report.Err() != nil {
		t.Errorf("%+v, %v", report, err)
	}
}

func TestActionIDsCountOnce(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		id := r.create("duel", "ada").ID
		r.join(id, "bob")
		act := func(r *rig, user, actionID, data string) (multiplayer.Ack, error) {
			return r.Act(ctx, id, user, multiplayer.Action{ID: actionID, Data: json.RawMessage(data)})
		}
		first, err := act(r, "ada", "a1", `{"card":0}`)
		r.ok(err)
		again, err := act(r, "ada", "a1", `{"card":0}`)
		if err != nil || again.Version != first.Version || !again.Replayed || first.Replayed {
			t.Errorf("%+v %+v %v", first, again, err)
		}
		_, err = act(r, "ada", "a1", `{"card":1}`)
		r.refuses(capability.ErrIdempotencyConflict, err)
		_, err = act(r, "ada", "a2", `{"card":0}`) // another action, out of turn
		r.refuses(multiplayer.ErrInvalidTransition, err)
		_, err = act(r, "bob", "a1", `{"card":1}`) // of another player
		r.ok(err)
		_, err = act(r, "ada", "a2", `{"card":0}`) // was refused, so its id may be used again
		r.ok(err)
		other := node(t, r.db, r.clock, trickConfig()) // after a restart
		again, err = act(other, "ada", "a1", `{"card":0}`)
		if err != nil || again.Version != first.Version || !again.Replayed {
			t.Errorf("%+v %v", again, err)
		}
		if v := r.view(id, "ada"); v.Version != 5 {
			t.Errorf("version %d", v.Version)
		}
		r.replays(id)
	})
}

func TestExpectedVersion(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.create("duel", "ada").ID
		r.join(id, "bob")
		_, err := r.Act(t.Context(), id, "ada", multiplayer.Action{Expect: 1, Data: json.RawMessage(`{"card":0}`)})
		r.refuses(multiplayer.ErrInvalidTransition, err)
		if stale, ok := capability.AsError(err).Details.(multiplayer.Stale); !ok || stale.Version != 2 {
			t.Errorf("%+v", capability.AsError(err).Details)
		}
		_, err = r.Act(t.Context(), id, "ada", multiplayer.Action{Expect: 2, Data: json.RawMessage(`{"card":0}`)})
		r.ok(err)
	})
}

// TestStakeNotCovered checks that the transition is not stored, and that the balance of the other
// player is not disclosed.
func TestStakeNotCovered(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(7, "ada")
		r.give(100, "bob")
		id := r.create("staked", "ada").ID
		_, err := r.Join(ctx, id, "bob")
		r.refuses(ledger.ErrInsufficientFunds, err)
		var who *multiplayer.Uncovered
		if !errors.As(err, &who) || who.UserID != "ada" || capability.AsError(err).Details != nil {
			t.Errorf("%v, details %v", err, capability.AsError(err).Details)
		}
		if v := r.view(id, "ada"); v.Phase != multiplayer.PhaseOpen || v.Version != 1 || len(v.Players) != 1 {
			t.Errorf("%+v", v)
		}
		r.balance("ada", 7, 0)
		r.balance("bob", 100, 0)
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.View(ctx, id, "bob")))

		_, err = r.ledger.Credit(ctx, ledger.Entry{UserID: "ada", Currency: "coins", Amount: 10, Ref: "more"})
		r.ok(err)
		_, err = r.Join(ctx, id, "eve") // without an account
		r.refuses(ledger.ErrInsufficientFunds, err)
		if short, ok := capability.AsError(err).Details.(ledger.Shortfall); !ok || short.Required != 10 {
			t.Errorf("%+v", capability.AsError(err).Details)
		}
		r.join(id, "bob")
		r.balance("ada", 17, 10)
		r.replays(id)
	})
}

func errorOf[T any](_ T, err error) error { return err }

// TestViewsAreTheCallers checks that a caller who changes a view does not change the session.
func TestViewsAreTheCallers(t *testing.T) {
	r := node(t, databasetest.Memory(t), kittest.NewClock(), trickConfig())
	id := r.create("duel", "bob").ID
	r.join(id, "ada")
	slices.Sort(r.view(id, "bob").Players)
	if diff := cmp.Diff([]string{"bob", "ada"}, r.view(id, "bob").Players); diff != "" {
		t.Error(diff)
	}
}

// TestTable plays a table: it begins with two players, others join, leave and come back with a new
// stake, and the player who opened it closes it.
func TestTable(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob", "cid", "dan", "eve")
		id := r.create("table", "ada").ID
		if v := r.join(id, "bob"); v.Phase != multiplayer.PhaseActive || v.Seats != 4 {
			t.Fatalf("%+v", v)
		}
		r.join(id, "cid")
		before := r.join(id, "dan")
		if v := r.join(id, "dan"); v.Version != before.Version {
			t.Errorf("joining again changed the session: %+v", v)
		}
		r.refuses(multiplayer.ErrSessionFull, errorOf(r.Join(ctx, id, "eve")))
		r.refuses(multiplayer.ErrNotAMember, r.Leave(ctx, id, "eve"))
		r.ok(r.Leave(ctx, id, "bob"))
		r.balance("bob", 100, 0)
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.View(ctx, id, "bob")))
		r.join(id, "bob")
		r.balance("bob", 100, 5)
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Close(ctx, id, "bob")))
		r.ok(r.Leave(ctx, id, "ada")) // cid has the first seat now, but did not open it
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Close(ctx, id, "cid")))
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.Close(ctx, id, "ada")))
		r.join(id, "ada")
		v, err := r.Close(ctx, id, "ada")
		r.ok(err)
		if v.Phase != multiplayer.PhaseResolved || len(v.Players) != 4 {
			t.Errorf("%+v", v)
		}
		for _, user := range []string{"ada", "cid", "dan", "bob"} {
			r.balance(user, 100, 0) // nobody took a trick: the pot is shared
		}
		if _, err := r.Result(ctx, id, "ada"); err != nil {
			t.Error(err)
		}
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.Result(ctx, id, "eve")))
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Join(ctx, id, "eve")))
		r.replays(id)

		id = r.create("table", "ada").ID
		r.join(id, "bob")
		r.ok(r.Leave(ctx, id, "ada"))
		r.ok(r.Leave(ctx, id, "bob"))
		if result, err := r.Result(ctx, id, "bob"); err != nil || result.Phase != multiplayer.PhaseResolved {
			t.Errorf("the last player left: %+v %v", result, err)
		}
		r.replays(id)
		for _, end := range []func(id string) error{
			func(id string) error { return r.Leave(ctx, id, "ada") },
			func(id string) error { return errorOf(r.Close(ctx, id, "ada")) },
		} {
			id = r.create("table", "ada").ID
			r.ok(end(id))
			if result, err := r.Result(ctx, id, "ada"); err != nil || result.Phase != multiplayer.PhaseAbandoned {
				t.Errorf("it never began: %+v %v", result, err)
			}
			r.replays(id)
		}
	})
}

// TestRefusals produces every refusal code, and exceeds the bounds of the arguments.
func TestRefusals(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		id := r.create("duel", "ada").ID
		r.refuses(multiplayer.ErrGameNotFound, errorOf(r.Create(ctx, "chess", "ada")))
		for _, missing := range []string{"none", "", "a b", strings.Repeat("x", 65)} {
			r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.View(ctx, missing, "ada")))
			r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.Join(ctx, missing, "ada")))
			r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.play(missing, "ada", trickMove{})))
			r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.Result(ctx, missing, "ada")))
			_, _, err := r.Seats(ctx, missing)
			r.refuses(multiplayer.ErrSessionNotFound, err)
		}
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.View(ctx, id, "bob")))
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.Result(ctx, id, "bob")))
		r.join(id, "bob")
		r.refuses(multiplayer.ErrNotAMember, errorOf(r.play(id, "eve", trickMove{})))
		r.refuses(multiplayer.ErrSessionFull, errorOf(r.Join(ctx, id, "eve")))
		r.refuses(multiplayer.ErrInvalidTransition, r.Leave(ctx, id, "ada"))
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Close(ctx, id, "ada")))
		r.refuses(multiplayer.ErrInvalidMove, errorOf(r.play(id, "ada", trickMove{Card: 9})))
		r.refuses(multiplayer.ErrInvalidMove, errorOf(r.play(id, "ada", map[string]int{"color": 1})))
		for _, user := range []string{"", strings.Repeat("u", 129), "a\x00", "\xff"} {
			r.refuses(capability.ErrInvalidRequest, errorOf(r.Join(ctx, id, user)))
			r.refuses(capability.ErrInvalidRequest, errorOf(r.Create(ctx, "duel", user)))
		}
		for _, a := range []multiplayer.Action{
			{}, {Data: json.RawMessage("{")}, {Data: json.RawMessage(`"` + strings.Repeat("x", multiplayer.MaxAction) + `"`)},
			{Data: json.RawMessage(`"\ud800"`), ID: "a b"}, {Data: json.RawMessage("1"), ID: strings.Repeat("i", 65)}, {Data: json.RawMessage("1"), ID: "ü"},
		} {
			r.refuses(capability.ErrInvalidRequest, errorOf(r.Act(ctx, id, "ada", a)))
		}
		for range multiplayer.MaxOpen {
			r.create("duel", "cid")
		}
		r.refuses(capability.ErrRateLimited, errorOf(r.Create(ctx, "duel", "cid")))
	})
}

// TestStart checks that a session is created once by its id, on any repetition, and in the caller's
// transaction.
func TestStart(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		r.give(100, "ada", "bob", "cid")
		game, err := r.Game("staked")
		r.ok(err)
		start := multiplayer.Start{SessionID: "match-7", Game: game, Players: []string{"ada", "bob"}}
		first, err := r.Start(ctx, start)
		r.ok(err)
		again, err := r.Start(ctx, start)
		r.ok(err)
		if diff := cmp.Diff(first, again); diff != "" || first.Phase != multiplayer.PhaseActive {
			t.Errorf("%+v\n%s", first, diff)
		}
		r.balance("ada", 100, 10)
		start.Game.Key = "other"
		r.refuses(capability.ErrIdempotencyConflict, errorOf(r.Start(ctx, start)))
		for _, players := range [][]string{nil, {"ada"}, {"ada", "ada"}, {"a", "b", "c"}, {"ada", ""}} {
			r.refuses(capability.ErrInvalidRequest, errorOf(r.Start(ctx, multiplayer.Start{Game: game, Players: players})))
		}
		r.refuses(capability.ErrInvalidRequest, errorOf(r.Start(ctx, multiplayer.Start{Game: game, Players: []string{"a", "b"}, SessionID: "a/b"})))
		r.refuses(capability.ErrInvalidRequest, errorOf(r.Start(ctx, multiplayer.Start{Game: multiplayer.Game{Key: "x", Kind: "none"}, Players: []string{"a", "b"}})))

		room := multiplayer.Start{SessionID: "room-1", Game: game, Players: []string{"ada"}, Open: true}
		gone := errors.New("gone")
		err = r.db.InTx(ctx, func(ctx context.Context) error {
			if _, err := r.Start(ctx, room); err != nil {
				return err
			}
			if _, err := r.Join(ctx, "room-1", "bob"); err != nil {
				return err
			}
			return gone
		})
		if !errors.Is(err, gone) {
			t.Fatal(err)
		}
		r.refuses(multiplayer.ErrSessionNotFound, errorOf(r.View(ctx, "room-1", "ada")))
		r.balance("bob", 100, 10)
		r.ok(errorOf(r.Start(ctx, room)))
		if free, phase, err := r.Seats(ctx, "room-1"); free != 1 || phase != multiplayer.PhaseOpen || err != nil {
			t.Errorf("%d %s %v", free, phase, err)
		}
		r.ok(r.db.InTx(ctx, func(ctx context.Context) error {
			v, err := r.Join(ctx, "room-1", "bob")
			if err == nil && (v.Phase != multiplayer.PhaseActive || v.You != "bob") {
				t.Errorf("%+v", v)
			}
			if _, err := r.Join(ctx, "room-1", "cid"); !errors.Is(err, multiplayer.ErrSessionFull) { // leaves the transaction usable
				t.Error(err)
			}
			return err
		}))
		r.finish("room-1", "ada", "bob")
		r.replays("room-1")
	})
}

// TestStartUntil checks that a session waits no longer for its players than the caller or the
// configuration says.
func TestStartUntil(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		game, err := r.Game("duel")
		r.ok(err)
		start := func(until time.Duration, players ...string) string {
			s, err := r.Start(ctx, multiplayer.Start{Game: game, Players: players, Open: true, Until: r.clock.Now().Add(until)})
			r.ok(err)
			return s.ID
		}
		short, begun, long := start(time.Minute, "ada"), start(time.Minute, "ada", "bob"), start(48*time.Hour, "ada")
		r.clock.Advance(time.Minute)
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Join(ctx, short, "bob")))
		r.runJobs()
		if v := r.view(short, "ada"); v.Phase != multiplayer.PhaseAbandoned {
			t.Errorf("%+v", v)
		}
		if v := r.view(begun, "ada"); v.Phase != multiplayer.PhaseActive {
			t.Errorf("%+v", v)
		}
		r.clock.Advance(24*time.Hour - time.Minute)
		r.refuses(multiplayer.ErrInvalidTransition, errorOf(r.Join(ctx, long, "bob")))
	})
}

// TestConfigIsKept checks that changes to a game do not affect a session under way.
func TestConfigIsKept(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id := r.create("staked", "ada").ID
		changed := trickConfig()
		changed.Games = changed.Games[:1]
		later := node(t, r.db, r.clock, changed)
		later.join(id, "bob")
		later.balance("bob", 100, 10)
		later.finish(id, "ada", "bob")
		later.replays(id)
	})
}

// TestStoredStateIsChecked checks that a state that does not match its schema is refused when it is
// read, and is not quoted; and that neither that nor a missing model keeps the stakes from being
// released.
func TestStoredStateIsChecked(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.create("duel", "ada").ID
		r.join(id, "bob")
		_, err := r.db.Exec(t.Context(), `UPDATE multiplayer_session SET state = '{"hands":"secret"}' WHERE id = $1`, id)
		r.ok(err)
		cold := node(t, r.db, r.clock, trickConfig())
		inside := r.db.InTx(t.Context(), func(ctx context.Context) error {
			return errorOf(cold.Act(ctx, id, "ada", multiplayer.Action{Data: json.RawMessage(`{"card":0}`)}))
		})
		for _, err := range []error{errorOf(cold.View(t.Context(), id, "ada")), errorOf(cold.play(id, "ada", trickMove{})),
			errorOf(cold.Replay(t.Context(), id)), inside} {
			if err == nil || !capability.AsError(err).Is(capability.ErrInternal) || strings.Contains(err.Error()+cold.log.text(), "secret") {
				t.Errorf("%v", err)
			}
		}
		without := node(t, r.db, r.clock, countConfigWithoutTricks())
		if err := errorOf(without.View(t.Context(), id, "ada")); !capability.AsError(err).Is(capability.ErrInternal) {
			t.Errorf("%v", err)
		}
		for _, other := range []*rig{cold, without} {
			r.clock.Advance(time.Hour)
			r.give(100, "bob", "cid")
			id := r.create("staked", "bob").ID
			r.join(id, "cid")
			r.balance("cid", 100, 10)
			_, err := r.db.Exec(t.Context(), `UPDATE multiplayer_session SET state = '{}' WHERE id = $1`, id)
			r.ok(err)
			r.clock.Advance(time.Minute)
			other.runJobs()
			if result, err := other.Result(t.Context(), id, "bob"); err != nil || result.Phase != multiplayer.PhaseAbandoned {
				t.Errorf("%+v %v", result, err)
			}
			r.balance("cid", 100, 0)
		}
	})
}

// TestClockJumpsBack checks that a session's time does not go back.
func TestClockJumpsBack(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.give(100, "ada", "bob")
		id := r.create("staked", "ada").ID
		r.join(id, "bob")
		before := *r.view(id, "ada").TurnDeadline
		r.clock.Advance(-time.Hour)
		_, err := r.play(id, "ada", trickMove{})
		r.ok(err)
		if after := *r.view(id, "ada").TurnDeadline; after.Before(before.Time) {
			t.Errorf("the deadline went from %v back to %v", before, after)
		}
		r.replays(id)
	})
}

// TestSubscribe checks that every change is announced, after it can be read.
func TestSubscribe(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		id := r.create("duel", "ada").ID
		heard := make(chan int64, 10)
		cancel := r.Subscribe(id, func(version int64) { heard <- version })
		defer cancel()
		r.join(id, "bob")
		if v := <-heard; v != 2 {
			t.Errorf("heard of %d", v)
		}
		_, err := r.play(id, "bob", trickMove{})
		r.ok(err)
		if v := <-heard; v != 3 {
			t.Errorf("heard of %d", v)
		}
	})
}
