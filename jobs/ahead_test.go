package jobs_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/database/databasetest"
	"github.com/kitbackend/kit/jobs"
	"github.com/kitbackend/kit/pubsub"
)

// aheadNode is a node of four workers, three for a binding, whose runs of A take nothing until slow is set, and 20
// seconds from then on.
type aheadNode struct {
	*jobs.Queue
	stop func()
	slow atomic.Bool
	runs atomic.Int32
}

func newAheadNode(t *testing.T, db *database.DB, bus *pubsub.Bus, workers, maxAttempts int) *aheadNode {
	n := &aheadNode{}
	n.Queue = jobs.New(db, bus, jobs.Options{Log: discard, Workers: workers})
	if err := n.Register(jobs.Binding{Name: "A", MaxAttempts: maxAttempts, Run: func(context.Context, jobs.Job) error {
		n.runs.Add(1)
		if n.slow.Load() {
			pass(20 * time.Second)
		}
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	return n
}

// holdMany runs the node, shows it a quick job, and gives it slow ones.
func (n *aheadNode) holdMany(t *testing.T, many int) (ids []string) {
	n.stop = runInBubble(t, n.Queue)
	enqueue(t, n.Queue, "A", nil)
	synctest.Wait()
	n.slow.Store(true)
	ids, err := n.EnqueueAll(t.Context(), "A", make([]any, many))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return ids
}

func (n *aheadNode) want(t *testing.T, available, running, completed int64) {
	t.Helper()
	s, err := n.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, s, jobs.Stats{Available: available, Running: running, Leased: running, Completed: completed, Lag: s.Lag})
}

// A job that was claimed ahead and finds that runs have become slow is another node's within a tenth of a second.
func TestClaimedAheadDoesNotWaitBehindSlowRuns(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		bus := pubsub.NewMemory()
		busy, free := newAheadNode(t, db, bus, 4, 0), newAheadNode(t, db, bus, 100, 0)
		ids := busy.holdMany(t, 30)
		busy.want(t, 0, 30, 1) // three run, the others were claimed ahead
		stopFree := runInBubble(t, free.Queue)
		pass(99 * time.Millisecond)
		synctest.Wait()
		equal(t, free.runs.Load(), int32(0))
		pass(time.Millisecond)
		synctest.Wait()
		equal(t, free.runs.Load(), int32(27))
		busy.want(t, 0, 3, 28)

		if _, err := busy.EnqueueAll(t.Context(), "A", make([]any, 5)); err != nil { // runs have not been quick again
			t.Fatal(err)
		}
		pass(time.Second)
		synctest.Wait()
		equal(t, busy.runs.Load(), int32(4))
		equal(t, free.runs.Load(), int32(32))
		stopFree()
		busy.stop()
		busy.want(t, 0, 0, 36)
		for _, id := range ids {
			equal(t, status(t, busy.Queue, id).Attempt, 1)
		}
	})
}

func TestHowManyAreClaimedAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		n := newAheadNode(t, db, nil, 4, 0)
		n.holdMany(t, 1000)
		n.want(t, 1000-128-3, 128+3, 1)
		n.slow.Store(false)
		pass(25 * time.Second)
		n.want(t, 0, 0, 1001)
		n.stop()
	})
}

// A node that dies spends an attempt of what it had claimed: a job with a single one might never run.
func TestSingleAttemptIsNotClaimedAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		n := newAheadNode(t, db, nil, 4, 1)
		n.holdMany(t, 30)
		n.want(t, 27, 3, 1)
		n.slow.Store(false)
		pass(25 * time.Second)
		n.want(t, 0, 0, 31)
		n.stop()
	})
}

// A node that is told to stop gives back at once what it has not begun, no attempt spent, though others still run.
func TestStopGivesBackWhatWasClaimedAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		n := newAheadNode(t, db, nil, 4, 0)
		ids := n.holdMany(t, 30)
		began := time.Now()
		go n.stop()
		synctest.Wait()
		n.want(t, 27, 3, 1)
		refunded := 0
		for _, id := range ids {
			if s := status(t, n.Queue, id); s.State == jobs.StateAvailable && s.Attempt == 0 {
				refunded++
			}
		}
		equal(t, refunded, 27)
		pass(20 * time.Second)
		synctest.Wait()
		n.want(t, 27, 0, 4)
		equal(t, time.Since(began), 20*time.Second)
		equal(t, n.runs.Load(), int32(4))
	})
}

// A node that stood still for longer than a lease begins nothing of what it had claimed: it is another node's.
func TestClaimedAheadBeginsOnlyUnderItsLease(t *testing.T) {
	inBubble(t, func(t *testing.T, db *database.DB) {
		c := newClock()
		hold, holding, ran := make(chan bool), atomic.Bool{}, atomic.Int32{}
		still := node(t, db, jobs.Options{Now: c.Now, Workers: 4}, jobs.Binding{Name: "A", Run: func(context.Context, jobs.Job) error {
			ran.Add(1)
			if holding.Load() {
				<-hold
			}
			return nil
		}})
		stop := runInBubble(t, still)
		enqueue(t, still, "A", nil)
		synctest.Wait()
		holding.Store(true)
		if _, err := still.EnqueueAll(t.Context(), "A", make([]any, 5)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		equal(t, ran.Load(), int32(4))

		c.Advance(2 * time.Minute)
		l := &log{}
		runDue(t, node(t, db, jobs.Options{Now: c.Now}, jobs.Binding{Name: "A", Run: l.Run}))
		equal(t, len(l.runs), 5)
		close(hold)
		synctest.Wait()
		equal(t, ran.Load(), int32(4))
		pass(settling)
		stop()
		equal(t, ran.Load(), int32(4))
		s, err := still.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, s.Completed, int64(6))
	})
}

// Jobs are given back as they were, those with a key too; one whose key an alarm has taken ends, and one that another
// node has taken over stays there.
func TestGivenBack(t *testing.T) {
	databasetest.Each(t, func(t *testing.T, db *database.DB) {
		q := open(t, db, newClock(), jobs.Binding{Name: "A", Run: (&log{}).Run})
		keyed, free := enqueue(t, q, "A", nil, jobs.Key("k")), enqueue(t, q, "A", nil)
		replaced, lost := enqueue(t, q, "A", nil, jobs.Key("replaced")), enqueue(t, q, "A", nil)
		ids, err := q.TakeAndGiveBack(t.Context(), "A", 10, func() {
			if err := q.SetAlarm(t.Context(), "A", "replaced", start.Add(time.Hour), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(t.Context(), `UPDATE kit_job SET lease_token = 'of another node' WHERE id = $1`, lost); err != nil {
				t.Fatal(err)
			}
		})
		if err != nil || len(ids) != 4 {
			t.Fatal(ids, err)
		}
		for id, want := range map[string]jobs.Status{
			keyed: {State: jobs.StateAvailable}, free: {State: jobs.StateAvailable},
			replaced: {State: jobs.StateCancelled}, lost: {State: jobs.StateRunning, Attempt: 1},
		} {
			got := status(t, q, id)
			equal(t, jobs.Status{State: got.State, Attempt: got.Attempt}, want)
		}
	})
}

// settling is longer than a node tries to record an outcome.
const settling = 10 * time.Second
