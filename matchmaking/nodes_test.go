package matchmaking_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/matchmaking"
	"github.com/kitbackend/kit/multiplayer"
)

// allMatched returns the number of players in each session; every player must be in a match of two.
func (r *rig) allMatched(game string, users []string) map[string]int {
	r.t.Helper()
	matches := map[string]int{}
	for _, user := range users {
		q, err := r.Status(ctx, game, user)
		r.ok(err)
		if q.State != matchmaking.Matched || q.SessionID == "" {
			r.t.Fatalf("%s is %+v, want matched", user, q)
		}
		view, err := r.Multiplayer().View(ctx, q.SessionID, user)
		r.ok(err)
		if len(view.Players) != 2 {
			r.t.Fatalf("the session of %s has %v", user, view.Players)
		}
		matches[q.SessionID]++
	}
	for id, n := range matches {
		if n != 2 {
			r.t.Errorf("session %s has %d of them", id, n)
		}
	}
	return matches
}

// TestNodesMatchOnce sweeps and forms on two nodes at the same time while players come and go: each
// ticket is matched once.
func TestNodesMatchOnce(t *testing.T) {
	cfg := games()
	cfg[0].Queue = matchmaking.Queue{}
	both := nodes(t, 2, matchmaking.Config{Games: cfg})
	users := ids("p", 200)
	for round := range 4 {
		var wg sync.WaitGroup
		for i, r := range both {
			mine := users[round*50+i*25 : round*50+(i+1)*25]
			wg.Go(func() {
				for _, user := range mine {
					if _, err := r.Enqueue(ctx, "duel", "", user); err != nil {
						t.Error(err)
					}
				}
			})
			wg.Go(func() {
				for range 5 {
					if err := r.RunSweep(ctx, "duel"); err != nil && !errors.Is(err, matchmaking.ErrDeposed) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		both[0].Clock.Advance(5 * time.Second)
		for _, r := range both {
			wg.Go(func() { r.RunJobs() })
		}
		wg.Wait()
	}
	both[0].step(5 * time.Second)
	if n := len(both[1].allMatched("duel", users)); n != 100 {
		t.Errorf("%d sessions, want 100", n)
	}
	var matches int
	both[0].ok(both[0].Database().QueryRow(ctx, `SELECT count(*) FROM matchmaking_match`).Scan(&matches))
	if matches != 100 {
		t.Errorf("%d matches for 200 players", matches)
	}
}

// TestSweepingNodeDies checks that a node that dies with the lease, before it has claimed its
// matches, loses nothing: when the lease has ended another node sweeps, and the dead one, if it
// resumes, claims nothing.
func TestSweepingNodeDies(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	users := ids("p", 10)
	for _, user := range users {
		both[0].ok(errorOf(both[0].Enqueue(ctx, "table", "eu", user)))
	}
	dead, ok, err := both[0].Lead(ctx, "table")
	both[0].ok(err)
	if !ok || dead.Matches() != 5 {
		t.Fatalf("leads %v, found %d matches, want 5", ok, dead.Matches())
	}
	alive := both[1]
	alive.ok(alive.RunSweep(ctx, "table")) // it does not have the lease
	for _, q := range alive.status("table", users...) {
		if q.State != matchmaking.Waiting {
			t.Fatalf("%+v while another node leads", q)
		}
	}
	for range 3 { // the chain of sweeps continues
		alive.step(5 * time.Second)
	}
	sessions := alive.allMatched("table", users)
	if err := dead.Claim(ctx); !errors.Is(err, matchmaking.ErrDeposed) {
		t.Errorf("the dead node's claim: %v, want deposed", err)
	}
	both[0].RunJobs()
	if diff := cmp.Diff(sessions, alive.allMatched("table", users)); diff != "" {
		t.Error(diff)
	}
}

// TestFormingNodeDies checks a node that dies between the claim and the session: the match is in
// the database, and another node forms it under its id.
func TestFormingNodeDies(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	users := ids("p", 6)
	for _, user := range users {
		both[0].ok(errorOf(both[0].Enqueue(ctx, "table", "eu", user)))
	}
	sweep, _, err := both[0].Lead(ctx, "table")
	both[0].ok(err)
	both[0].ok(sweep.Claim(ctx))
	for _, q := range both[0].status("table", users...) {
		if q.State != matchmaking.Forming {
			t.Fatalf("%+v, want forming", q)
		}
		again, err := both[1].Enqueue(ctx, "table", "eu", users[0])
		both[1].ok(err)
		if again.State != matchmaking.Forming {
			t.Fatalf("%+v, want the match that forms", again)
		}
	}
	// The job is running on a node that has died.
	both[0].ok(errorOf(both[0].Database().Exec(ctx, `UPDATE kit_job SET state = 'running', lease_until = $1, lease_token = 'dead'
		WHERE binding = 'MATCHMAKING_FORM'`, both[0].Clock.Now().Add(time.Hour).UnixMilli())))
	alive := both[1]
	for range 4 {
		alive.step(5 * time.Second)
	}
	alive.allMatched("table", users)
}

// TestFormingNodeIsOlder checks that a node that does not know the game yet leaves its matches to
// those that do.
func TestFormingNodeIsOlder(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		r.ok(r.RunSweep(ctx, "table"))
		remember := r.Forget("table")
		r.RunJobs()
		remember()
		for range 4 {
			r.step(5 * time.Second)
		}
		r.allMatched("table", []string{"a", "b"})
	})
}

// TestPlayerLeavesDuringSweep checks that a match of which a player has left is not made.
func TestPlayerLeavesDuringSweep(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"a", "b", "c", "d"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		sweep, _, err := r.Lead(ctx, "table")
		r.ok(err)
		r.ok(r.Leave(ctx, "table", "b"))
		r.ok(errorOf(r.Enqueue(ctx, "table", "us", "b"))) // with another ticket
		r.ok(sweep.Claim(ctx))
		r.RunJobs()
		states := map[string]int{}
		for _, q := range r.status("table", "a", "b", "c", "d") {
			states[q.Region+" "+q.State]++
		}
		if diff := cmp.Diff(map[string]int{"eu waiting": 1, "us waiting": 1, "eu matched": 2}, states); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOnlyMatchFallsApart checks that a sweep succeeds if its only match has lost a player.
func TestOnlyMatchFallsApart(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "eu", user)))
		}
		sweep, _, err := r.Lead(ctx, "table")
		r.ok(err)
		r.ok(r.Leave(ctx, "table", "b"))
		r.ok(sweep.Claim(ctx))
		if q := r.status("table", "a")[0]; q.State != matchmaking.Waiting {
			t.Errorf("got %+v, want waiting", q)
		}
	})
}

// TestSweeperAfterClockWentBack checks that, after a node has died with the lease and the clock has
// gone back, a lease too far in the future does not count.
func TestSweeperAfterClockWentBack(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	for _, user := range []string{"a", "b"} {
		both[0].ok(errorOf(both[0].Enqueue(ctx, "table", "eu", user)))
	}
	_, ok, err := both[0].Lead(ctx, "table")
	both[0].ok(err)
	if !ok {
		t.Fatal("the first node does not lead")
	}
	both[1].Clock.Advance(-time.Hour)
	both[1].ok(both[1].RunSweep(ctx, "table"))
	if q := both[1].status("table", "a")[0]; q.State != matchmaking.Forming {
		t.Errorf("got %+v, want forming", q)
	}
}

// TestEnqueueRace checks that concurrent requests of a player make one ticket.
func TestEnqueueRace(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for round := range 5 {
			user := fmt.Sprint("user-", round)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if _, err := r.Enqueue(ctx, "four", "", user); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
		}
		var tickets int
		r.ok(r.Database().QueryRow(ctx, `SELECT count(DISTINCT ticket_id) FROM matchmaking_ticket`).Scan(&tickets))
		if tickets != 5 {
			t.Errorf("%d tickets, want 5", tickets)
		}
	})
}

// TestEnqueueRacesTheEnd ends matches on one node while their players enter the queue on another: a
// request made after the end never gets the match that is over, and the players get another one.
func TestEnqueueRacesTheEnd(t *testing.T) {
	both := nodes(t, 2, matchmaking.Config{})
	one, other := both[0], both[1]
	users := []string{"ada", "bob"}
	seen := map[string]bool{}
	for range 20 {
		for _, user := range users {
			one.ok(errorOf(one.Enqueue(ctx, "table", "", user)))
		}
		one.step(5 * time.Second)
		session := one.status("table", "ada")[0].SessionID
		if session == "" || seen[session] {
			t.Fatalf("session %q, want another one", session)
		}
		seen[session] = true
		var over atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := one.Multiplayer().Act(ctx, session, "ada", multiplayer.Action{Data: []byte(`{}`)}); err != nil {
				t.Error(err)
			}
			over.Store(true)
		})
		for _, user := range users {
			wg.Go(func() {
				for after := false; !after; {
					after = over.Load()
					q, err := other.Enqueue(ctx, "table", "", user)
					if err != nil {
						t.Error(err)
					}
					if after && q.State != matchmaking.Waiting {
						t.Errorf("after the end %s is %+v", user, q)
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestEnqueueAfterMatch checks that a request that found no ticket of the player does not overwrite
// one that another request wrote and the sweep has matched since.
func TestEnqueueAfterMatch(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "", user)))
		}
		r.ok(r.RunSweep(ctx, "table"))
		written, err := r.EnqueueUnseen(ctx, "table", "a")
		r.ok(err)
		if q := r.status("table", "a")[0]; written || q.State != matchmaking.Forming {
			t.Errorf("written: %v; %+v", written, q)
		}
	})
}

// TestBrokenChain checks that the job that runs every minute restarts a broken chain of sweeps.
func TestBrokenChain(t *testing.T) {
	each(t, matchmaking.Config{}, func(t *testing.T, r *rig) {
		r.Clock.Advance(40 * time.Second)
		for _, user := range []string{"a", "b"} {
			r.ok(errorOf(r.Enqueue(ctx, "table", "", user)))
		}
		r.ok(errorOf(r.Database().Exec(ctx, `DELETE FROM kit_job WHERE binding = 'MATCHMAKING_SWEEP'`)))
		r.step(20 * time.Second)
		r.step(5 * time.Second)
		r.allMatched("table", []string{"a", "b"})
	})
}
