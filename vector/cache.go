package vector

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kitbackend/kit/vector/internal/flat"
)

// pageSize is how many rows a statement reads.
const pageSize = 1024

// cache keeps partitions in memory. A cached partition is never older than the revision that a
// query has read.
type cache struct {
	store store
	limit int64

	mu     sync.Mutex
	loaded map[Space]*loaded
	turn   int64
	total  int64

	running    context.Context // canceled by close
	stop       context.CancelFunc
	background sync.WaitGroup
	training   chan struct{} // held by the one training that runs
}

// loaded is a partition in memory. Queries read current; the holder of the gate updates it.
type loaded struct {
	index   *Index
	space   Space
	current atomic.Pointer[current]

	gate chan struct{}
	next progress

	bytes, used int64 // guarded by cache.mu
	busy        atomic.Bool
}

// current is a set, complete up to a revision of a partition.
type current struct {
	partition string
	revision  int64
	set       *flat.Set
}

// progress is how much of a partition has been read.
type progress struct {
	current
	// since is the revision after which removals have not been read yet.
	since int64
	// Rows up to this revision and ID are in the set.
	revision int64
	id       string
}

func newCache(s store, limit int64) *cache {
	running, stop := context.WithCancel(context.Background())
	return &cache{store: s, limit: limit, loaded: make(map[Space]*loaded),
		running: running, stop: stop, training: make(chan struct{}, 1)}
}

func (c *cache) close() {
	c.mu.Lock()
	c.stop()
	c.mu.Unlock()
	c.background.Wait()
}

func (c *cache) used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

func (c *cache) entry(x *Index, space Space) *loaded {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.loaded[space]
	if l == nil {
		l = &loaded{index: x, space: space, gate: make(chan struct{}, 1)}
		c.loaded[space] = l
	}
	c.turn++
	l.used = c.turn
	return l
}

// view returns the vectors of a partition at the revision of p or later.
func (c *cache) view(ctx context.Context, x *Index, space Space, p partition) (*flat.View, error) {
	l := c.entry(x, space)
	if c.store.db.InTransaction(ctx) {
		return c.private(ctx, l, p)
	}
	if now := l.current.Load(); now.covers(p) {
		return now.set.View(), nil
	}
	select {
	case l.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.gate }()
	if now := l.current.Load(); now.covers(p) { // updated by another goroutine
		return now.set.View(), nil
	}
	if err := c.catchUp(ctx, l); err != nil {
		return nil, err
	}
	now := l.current.Load()
	c.account(l, now.set)
	c.train(l, now.set)
	return now.set.View(), nil
}

func (now *current) covers(p partition) bool {
	return now != nil && now.partition == p.id && now.revision >= p.revision
}

// catchUp reads the changes: pages of rows while there are many, then the rest and the removals in
// one snapshot.
func (c *cache) catchUp(ctx context.Context, l *loaded) error {
	for {
		done, err := c.finish(ctx, l)
		if err != nil || done {
			return err
		}
		if err := c.pages(ctx, l, &l.next, func(rows []flat.Row) { l.next.set.Apply(rows, nil) }); err != nil {
			return err
		}
	}
}

// pages calls fn with all rows after n, and advances n.
func (c *cache) pages(ctx context.Context, l *loaded, n *progress, fn func([]flat.Row)) error {
	for {
		rows, err := c.store.changed(ctx, n.partition, n.revision, n.id, l.index, pageSize)
		if err != nil || len(rows) == 0 {
			return err
		}
		fn(rows)
		last := rows[len(rows)-1]
		n.revision, n.id = last.Revision, last.ID
		if len(rows) < pageSize {
			return nil
		}
	}
}

// finish updates a set to the revision of one snapshot; done is false if there are too many changes
// for one snapshot.
func (c *cache) finish(ctx context.Context, l *loaded) (done bool, err error) {
	var p partition
	var ok bool
	var rows []flat.Row
	var removals []flat.Removal
	var n progress
	err = c.store.db.Read(ctx, func(ctx context.Context) (err error) {
		n = l.next
		if p, ok, err = c.store.partition(ctx, l.space); err != nil {
			return err
		}
		if !ok || n.set == nil || n.partition != p.id || n.since < p.floor {
			n = l.fresh(p)
		}
		if removals, err = c.store.removals(ctx, p.id, n.since, pageSize+1); err != nil {
			return err
		}
		if len(removals) > pageSize {
			n, removals = l.fresh(p), nil
		}
		rows, err = c.store.changed(ctx, p.id, n.revision, n.id, l.index, pageSize+1)
		return err
	})
	if err != nil {
		return false, err
	}
	l.next = n
	if len(rows) > pageSize {
		return false, nil
	}
	n.set.Apply(rows, removals)
	n.set.Publish()
	n.current.revision, n.since, n.revision, n.id = p.revision, p.revision, p.revision+1, ""
	l.next = n
	l.current.Store(&current{p.id, p.revision, n.set})
	return true, nil
}

// fresh starts with an empty set; earlier removals do not matter.
func (l *loaded) fresh(p partition) progress {
	return progress{current: current{partition: p.id, set: l.index.newSet()}, since: p.revision}
}

func (x *Index) newSet() *flat.Set {
	metric := map[Metric]flat.Metric{MetricCosine: flat.Cosine, MetricDot: flat.Dot, MetricEuclidean: flat.Euclidean}[x.Metric]
	return flat.New(metric, x.Dimensions, len(x.Filterable))
}

// private is view inside a transaction, whose uncommitted rows must not be shared. Like finish, it
// starts with an empty set if there are more removals than a page.
func (c *cache) private(ctx context.Context, l *loaded, p partition) (*flat.View, error) {
	now := l.current.Load()
	if now.covers(p) && now.revision == p.revision {
		return now.set.View(), nil
	}
	n := l.fresh(p)
	if now != nil && now.partition == p.id && now.revision < p.revision && now.revision >= p.floor {
		n = progress{current: *now, since: now.revision, revision: now.revision + 1}
	}
	removals, err := c.store.removals(ctx, p.id, n.since, pageSize+1)
	if err != nil {
		return nil, err
	}
	if len(removals) > pageSize {
		n, removals = l.fresh(p), nil
	}
	var rows []flat.Row
	if err := c.pages(ctx, l, &n, func(page []flat.Row) { rows = append(rows, page...) }); err != nil {
		return nil, err
	}
	return n.set.With(rows, removals), nil
}

// account records how much memory a partition takes, and drops the least recently used ones while
// the total exceeds the limit.
func (c *cache) account(l *loaded, set *flat.Set) {
	bytes := set.Bytes()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loaded[l.space] != l {
		return // dropped in the meantime
	}
	c.total += bytes - l.bytes
	l.bytes = bytes
	for c.total > c.limit {
		var oldest *loaded
		for _, other := range c.loaded {
			if other != l && other.bytes > 0 && (oldest == nil || other.used < oldest.used) {
				oldest = other
			}
		}
		if oldest == nil {
			return
		}
		c.total -= oldest.bytes
		delete(c.loaded, oldest.space)
	}
}

// drop removes a partition from the cache.
func (c *cache) drop(space Space) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loaded[space]; l != nil {
		c.total -= l.bytes
		delete(c.loaded, space)
	}
}

// train trains a set that has grown, or rebuilds one that is worn, in the background.
func (c *cache) train(l *loaded, set *flat.Set) {
	worn := set.Worn()
	if !worn && !set.Untrained() || !l.busy.CompareAndSwap(false, true) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running.Err() != nil {
		return
	}
	c.background.Go(func() {
		defer l.busy.Store(false)
		select {
		case c.training <- struct{}{}:
		case <-c.running.Done():
			return
		}
		defer func() { <-c.training }()
		if worn {
			c.renew(l)
			return
		}
		set.Train()
	})
}

// renew rebuilds a partition, while queries use the old one.
func (c *cache) renew(l *loaded) {
	ctx := c.running
	other := &loaded{index: l.index, space: l.space, gate: make(chan struct{}, 1)}
	if err := c.catchUp(ctx, other); err != nil {
		return // queries continue to use the worn one
	}
	other.next.set.Train()
	select {
	case l.gate <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-l.gate }()
	if err := c.catchUp(ctx, other); err != nil {
		return
	}
	l.next = other.next
	l.current.Store(other.current.Load())
	c.account(l, l.next.set)
}
