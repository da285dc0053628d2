package queue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
	"github.com/kitbackend/kit/internal/queue/queuetest"
)

type call = queue.Call[int, int]

// square is an operation: its outcome, or an error for a negative number.
var errNegative = errors.New("negative")

func square(c *call) {
	c.Out, c.Err = c.Op*c.Op, nil
	if c.Op < 0 {
		c.Out, c.Err = 0, errNegative
	}
}

// recorder runs batches and remembers them.
type recorder struct {
	queue.Queue[int, int]
	serve   int // of each batch, all if 0
	batches [][]int
}

func newRecorder(size int) *recorder {
	r := &recorder{}
	r.Size, r.Run = size, r.run
	return r
}

func (r *recorder) run(_ context.Context, calls []*call) int {
	n := len(calls)
	if r.serve > 0 {
		n = min(n, r.serve)
	}
	batch := []int{}
	for _, c := range calls[:n] {
		batch = append(batch, c.Op)
		square(c)
	}
	r.batches = append(r.batches, batch)
	return n
}

// calls are operations whose outcomes are held to what they are alone.
func (r *recorder) calls(t *testing.T, ops ...int) (calls []func()) {
	for _, op := range ops {
		calls = append(calls, func() {
			alone := &call{Op: op}
			square(alone)
			if out, err := r.Do(t.Context(), op); out != alone.Out || !errors.Is(err, alone.Err) {
				t.Errorf("%d: %d, %v", op, out, err)
			}
		})
	}
	return calls
}

// TestBatches cuts what has queued up into batches, in the order of the queue.
func TestBatches(t *testing.T) {
	for _, c := range []struct {
		size, serve int
		want        [][]int
	}{
		{size: 9, want: [][]int{{1, -2, 3, 4, 5}}},
		{size: 2, want: [][]int{{1, -2}, {3, 4}, {5}}},
		{size: 1, want: [][]int{{1}, {-2}, {3}, {4}, {5}}},
		{size: 4, serve: 3, want: [][]int{{1, -2, 3}, {4, 5}}},
		{size: 4, serve: 1, want: [][]int{{1}, {-2}, {3}, {4}, {5}}},
	} {
		r := newRecorder(c.size)
		r.serve = c.serve
		queuetest.Gather(r, r.calls(t, 1, -2, 3, 4, 5)...)
		if diff := cmp.Diff(c.want, r.batches); diff != "" {
			t.Errorf("size %d, serve %d: %s", c.size, c.serve, diff)
		}
		if r.Busy() || r.Waiting() != 0 {
			t.Error("busy in the end")
		}
	}
}

// TestEachOnce lets many callers race: every operation is run once, no batch is
// too large, and no more run at once than may.
func TestEachOnce(t *testing.T) {
	for leaders := 1; leaders <= 3; leaders++ {
		var under, runs atomic.Int64
		q := &queue.Queue[int, int]{Size: 7, Leaders: func() int { return leaders }}
		q.Run = func(_ context.Context, calls []*call) int {
			if n := under.Add(1); n > int64(leaders) || len(calls) > 7 {
				t.Errorf("%d batches at once, one of %d", n, len(calls))
			}
			defer under.Add(-1)
			for _, c := range calls {
				square(c)
				runs.Add(1)
			}
			return len(calls)
		}
		var group sync.WaitGroup
		for i := range 32 {
			group.Go(func() {
				for j := range 100 {
					op := i*100 + j
					if out, err := q.Do(t.Context(), op); err != nil || out != op*op {
						t.Errorf("%d: %d, %v", op, out, err)
					}
				}
			})
		}
		group.Wait()
		if runs.Load() != 3200 || q.Busy() {
			t.Errorf("%d runs", runs.Load())
		}
	}
}

// TestWithdraw takes back what has not begun when its caller goes away.
func TestWithdraw(t *testing.T) {
	r := newRecorder(9)
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{})
	calls := append(r.calls(t, 1), func() {
		defer close(left)
		if _, err := r.Do(ctx, 2); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}, func() { cancel(); <-left })
	queuetest.Gather(r, append(calls, r.calls(t, 3)...)...)
	if _, err := r.Do(ctx, 4); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if diff := cmp.Diff([][]int{{1, 3}}, r.batches); diff != "" {
		t.Error(diff)
	}
}

// TestBegun holds a caller that goes away to the outcome of what has begun.
func TestBegun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := &queue.Queue[int, int]{Size: 2, Run: func(ctx context.Context, calls []*call) int {
		cancel()
		for _, c := range calls {
			square(c)
			c.Err = ctx.Err() // that of the batch, which goes on
		}
		return len(calls)
	}}
	do := func() {
		if out, err := q.Do(ctx, 3); out != 9 || err != nil {
			t.Error(out, err)
		}
	}
	queuetest.Gather(q, do, do)
}

// TestGone lets a caller of reads go in the middle of a batch, served in it or
// not: nobody waits for it, and it is not led later.
func TestGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan struct{}, 2)
	var batches [][]int
	q := &queue.Queue[int, int]{Size: 9, Reads: true, Run: func(_ context.Context, calls []*call) int {
		var batch []int
		for _, c := range calls {
			batch = append(batch, c.Op)
		}
		if batches = append(batches, batch); len(batches) == 1 {
			cancel()
			<-left
			<-left
		}
		for _, c := range calls[:min(2, len(calls))] {
			square(c)
		}
		return min(2, len(calls))
	}}
	stays := func(n int) func() {
		return func() {
			if out, err := q.Do(t.Context(), n); out != n*n || err != nil {
				t.Error(out, err)
			}
		}
	}
	goes := func(n int) func() {
		return func() {
			if out, err := q.Do(ctx, n); out != 0 || !errors.Is(err, context.Canceled) {
				t.Error(out, err)
			}
			left <- struct{}{}
		}
	}
	queuetest.Gather(q, stays(1), goes(2), goes(3), stays(4), stays(5))
	if diff := cmp.Diff([][]int{{1, 2, 3, 4, 5}, {4, 5}}, batches); diff != "" {
		t.Error(diff)
	}
	if q.Busy() || q.Waiting() != 0 {
		t.Error("somebody is waited for")
	}
}

// TestFull refuses callers beyond the bound.
func TestFull(t *testing.T) {
	r := newRecorder(9)
	r.MaxWaiting = 2
	queuetest.Gather(r, append(r.calls(t, 1, 2), func() {
		if _, err := r.Do(t.Context(), 3); !errors.Is(err, queue.ErrFull) {
			t.Error(err)
		}
	})...)
	if diff := cmp.Diff([][]int{{1, 2}}, r.batches); diff != "" {
		t.Error(diff)
	}
}

// TestPanic leaves a panic to the leader, tells those it led, and goes on with
// those behind them.
func TestPanic(t *testing.T) {
	r := newRecorder(2)
	r.Run = func(ctx context.Context, calls []*call) int {
		if calls[0].Op == 0 {
			calls[1].Out = 7 // half done
			panic("zero")
		}
		return r.run(ctx, calls)
	}
	var caught any
	queuetest.Gather(r, append([]func(){
		func() {
			defer func() { caught = recover() }()
			_, _ = r.Do(t.Context(), 0)
		},
		func() {
			if out, err := r.Do(t.Context(), 1); out != 0 || !errors.Is(err, queue.ErrAbandoned) {
				t.Error(out, err)
			}
		},
	}, r.calls(t, 2, 3, 4)...)...)
	if caught != "zero" {
		t.Error(caught)
	}
	if diff := cmp.Diff([][]int{{2, 3}, {4}}, r.batches); diff != "" {
		t.Error(diff)
	}
}

// TestClose lets those in the queue finish and refuses later ones.
func TestClose(t *testing.T) {
	r := newRecorder(9)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	queuetest.Gather(r, append(r.calls(t, 1, 2), func() {
		if err := r.Close(gone); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if _, err := r.Do(t.Context(), 3); !errors.Is(err, database.ErrClosed) {
			t.Error(err)
		}
	})...)
	for range 2 {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(slices.Concat(r.batches...), []int{1, 2}) {
		t.Error(r.batches)
	}
}
