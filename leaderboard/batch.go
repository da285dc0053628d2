package leaderboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

const (
	batchSize = 256              // operations in a batch
	batchTime = 30 * time.Second // for one
)

// batcher shares transactions between concurrent callers of one board. The
// operations of a batch are decided one after the other in memory, by the same
// rules as alone, and each row is written once. Nothing waits for a batch to
// fill; one is what queued up while the last was written.
//
// On PostgreSQL, while nobody else changes the board, a batch is two statements:
// one that reads, and one that writes if the version of the board is still that
// which was read. Otherwise it is a transaction that locks the board first.
type batcher struct {
	store store
	board *board

	mu      sync.Mutex
	queue   []*call
	writing bool
	closed  bool
	ended   sync.WaitGroup

	version int64 // of the board after the last batch; only for the writer
}

// call is an operation whose caller waits.
type call struct {
	op   *operation
	out  outcome
	err  error
	done chan struct{}
}

// do queues an operation and waits for its outcome. A caller that goes away
// takes back an operation that has not begun.
func (b *batcher) do(ctx context.Context, op *operation) (outcome, error) {
	if err := ctx.Err(); err != nil {
		return outcome{}, err
	}
	c := &call{op: op, done: make(chan struct{})}
	if err := b.enqueue(c); err != nil {
		return outcome{}, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if b.withdraw(c) {
			return outcome{}, ctx.Err()
		}
		<-c.done
	}
	return c.out, c.err
}

func (b *batcher) enqueue(c *call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return database.ErrClosed
	}
	b.queue = append(b.queue, c)
	if !b.writing {
		b.writing = true
		b.ended.Go(b.write)
	}
	return nil
}

func (b *batcher) withdraw(c *call) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.queue, c)
	if i < 0 {
		return false
	}
	b.queue = slices.Delete(b.queue, i, i+1)
	return true
}

// gather lets callers that the last batch let go come to the queue again: it is
// their next calls that fill the next one. It ends when nobody comes.
func (b *batcher) gather() {
	for before := -1; before < b.waiting(); {
		before = b.waiting()
		runtime.Gosched()
	}
}

func (b *batcher) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queue)
}

// write empties the queue, batch by batch, and ends.
func (b *batcher) write() {
	for {
		b.gather()
		b.mu.Lock()
		calls := b.queue[:min(len(b.queue), batchSize)]
		b.queue = b.queue[len(calls):]
		if len(calls) == 0 {
			b.writing = false
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		err := b.run(calls)
		for _, c := range calls {
			if err != nil {
				c.err = err
			}
			close(c.done)
		}
	}
}

// run brings calls to their outcomes. A refusal is that of one call; an error
// of the database, which no call by itself can cause, is everybody's.
func (b *batcher) run(calls []*call) error {
	ctx, cancel := context.WithTimeout(context.Background(), batchTime)
	defer cancel()
	if b.store.db.Dialect() == database.PostgreSQL {
		done, err := b.try(ctx, calls)
		if err != nil || done {
			return err
		}
	}
	return b.insist(ctx, calls)
}

// try is the way without a lock. It does nothing if somebody else has changed
// the board since the last batch, or does so now.
func (b *batcher) try(ctx context.Context, calls []*call) (done bool, err error) {
	batch, err := b.load(ctx, calls)
	if err != nil || !batch.ready() || batch.version != b.version {
		return false, err
	}
	batch.decide(calls)
	return b.save(ctx, batch)
}

// insist is the way in a transaction.
func (b *batcher) insist(ctx context.Context, calls []*call) error {
	return b.store.db.InTx(ctx, func(ctx context.Context) error {
		batch := &batch{}
		locked, err := b.store.lock(ctx, b.board.Key)
		if err == nil && locked {
			batch, err = b.load(ctx, calls)
		}
		if err == nil && !batch.ready() {
			if err = b.store.prepare(ctx, b.board, b.board.openedAt(b.store.db.Now(ctx))); err == nil {
				batch, err = b.load(ctx, calls)
			}
		}
		var refusal *capability.Error
		switch {
		case errors.As(err, &refusal):
			for _, c := range calls {
				c.err = refusal
			}
			return nil
		case err != nil:
			return err
		}
		batch.decide(calls)
		done, err := b.save(ctx, batch)
		if err == nil && !done {
			err = fmt.Errorf("leaderboard: board %q has changed in spite of its lock", b.board.Key)
		}
		return err
	})
}

// close lets what is queued finish; later calls answer [database.ErrClosed].
func (b *batcher) close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		b.ended.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batch is what the operations of some calls meet and change.
type batch struct {
	state    // without an entry
	now      int64
	openedAt int64
	entries  map[string]*state // by user id
	was      map[string]*entry // as stored before
}

// decide brings calls to their outcomes, each on what those before it left.
func (b *batch) decide(calls []*call) {
	for _, c := range calls {
		st := b.entries[c.op.userID]
		e, err := c.op.apply(*st, b.now)
		if c.err = err; err == nil {
			st.entry, c.out = &e, outcome{b.window.id, e}
		}
	}
}

// load reads what calls meet, on one snapshot.
func (b *batcher) load(ctx context.Context, calls []*call) (*batch, error) {
	now := b.store.db.Now(ctx)
	loaded := &batch{now: now.UnixMilli(), openedAt: b.board.openedAt(now),
		entries: make(map[string]*state, len(calls)), was: make(map[string]*entry, len(calls))}
	for _, c := range calls {
		loaded.entries[c.op.userID] = nil
	}
	var users any = slices.Collect(maps.Keys(loaded.entries))
	if b.store.db.Dialect() == database.SQLite {
		users = database.List(users.([]string))
	}
	d := b.board.definition()
	states, err := database.All(ctx, b.store.db, scanState, manyStatesSQL,
		b.board.Key, loaded.openedAt, d.Store, string(d.Direction), string(d.Aggregation), d.Window, users)
	for _, st := range states {
		loaded.state = st
		loaded.entries[st.userID], loaded.was[st.userID] = &st, st.entry
	}
	return loaded, err
}

var manyStatesSQL = stateSQL("n.value") + `
	/*pg CROSS JOIN unnest((SELECT $7::text[])) AS n (value)
		LEFT JOIN LATERAL (SELECT * FROM leaderboard_entry e WHERE e.window_id = w.id AND e.user_id = n.value LIMIT 1) e ON true
	--*/ CROSS JOIN json_each($7) AS n LEFT JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = n.value
	WHERE b.key = $1`

// saveSQL writes entries and what follows from them, if the version of the board
// is still $2.
const saveSQL = `WITH board AS (
		UPDATE leaderboard_board SET version = version + 1 WHERE key = $1 AND version = $2 RETURNING 1
	), counts AS (
		INSERT INTO leaderboard_count (window_id, level, bucket, n)
		SELECT $3, n.* FROM board, unnest((SELECT $11::bigint[]), (SELECT $12::bigint[]), (SELECT $13::bigint[])) AS n` + onCount + `
	), ranges AS (
		UPDATE leaderboard_range r SET n = r.n + moved.n FROM (
			SELECT s.key, s.achieved_at, s.user_id, CAST(SUM(n.n) AS BIGINT) AS n
			FROM board, unnest((SELECT $14::bigint[]), (SELECT $15::bigint[]), (SELECT $16::bigint[]), (SELECT $17::text[]), (SELECT $18::bigint[]))
				AS n (first_key, key, achieved_at, user_id, n)
			JOIN LATERAL (SELECT r.key, r.achieved_at, r.user_id FROM leaderboard_range r
				WHERE r.window_id = $3 AND r.key >= n.first_key
					AND (r.key, r.achieved_at, r.user_id) <= (n.key, n.achieved_at, n.user_id)
				ORDER BY r.key DESC, r.achieved_at DESC, r.user_id DESC LIMIT 1) s ON true
			GROUP BY s.key, s.achieved_at, s.user_id) AS moved
		WHERE r.window_id = $3 AND r.key = moved.key AND r.achieved_at = moved.achieved_at AND r.user_id = moved.user_id
	)
	INSERT INTO leaderboard_entry (window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank)
	SELECT $3, n.*, 0 FROM board, unnest((SELECT $4::text[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]), (SELECT $7::bigint[]), (SELECT $8::bigint[]),
		(SELECT $9::bigint[]), (SELECT $10::bigint[])) AS n` + onEntry

// save writes what operations changed; done is false, and nothing written, when
// somebody else has changed the board since they were loaded.
func (b *batcher) save(ctx context.Context, batch *batch) (done bool, err error) {
	var entries []entry
	var moves []move
	sums := make(map[count]int64) // by count without n
	for user, st := range batch.entries {
		was := batch.was[user]
		if st.entry == nil || was != nil && *was == *st.entry {
			continue
		}
		entries = append(entries, *st.entry)
		m := move{batch.window, was.seat(), st.entry.seat()}
		moves = append(moves, m)
		for _, c := range m.counts() {
			sums[count{c.level, c.bucket, 0}] += c.n
		}
	}
	if len(entries) == 0 {
		return true, nil
	}
	maps.DeleteFunc(sums, func(_ count, n int64) bool { return n == 0 })
	counts := slices.SortedFunc(maps.Keys(sums), func(x, y count) int {
		return cmp.Or(cmp.Compare(x.level, y.level), cmp.Compare(x.bucket, y.bucket))
	})
	for i := range counts {
		counts[i].n = sums[counts[i]]
	}
	if b.store.db.Dialect() == database.SQLite {
		return true, b.saveRows(ctx, batch, entries, moves, counts)
	}
	var ends []end
	if batch.window.ranged {
		for _, m := range moves {
			ends = append(ends, m.ends()...)
		}
	}
	rows, err := b.store.db.Exec(ctx, saveSQL, b.board.Key, batch.version, batch.window.id,
		column(entries, func(e entry) string { return e.userID }), column(entries, func(e entry) int64 { return e.key }),
		column(entries, func(e entry) int64 { return e.bucket() }), column(entries, func(e entry) int64 { return e.achievedAt }),
		column(entries, func(e entry) int64 { return e.hidden }), column(entries, func(e entry) int64 { return e.attempts }),
		column(entries, func(e entry) int64 { return e.lastActiveAt }),
		column(counts, func(c count) int64 { return int64(c.level) }), column(counts, func(c count) int64 { return c.bucket }),
		column(counts, func(c count) int64 { return c.n }),
		column(ends, func(e end) int64 { return firstKey(e.bucket()) }), column(ends, func(e end) int64 { return e.key }),
		column(ends, func(e end) int64 { return e.achievedAt }), column(ends, func(e end) string { return e.userID }),
		column(ends, func(e end) int64 { return e.n }))
	b.version = batch.version + 1
	return rows > 0, err
}

// saveRows is save on SQLite.
func (b *batcher) saveRows(ctx context.Context, batch *batch, entries []entry, moves []move, counts []count) error {
	for _, e := range entries {
		if err := b.store.put(ctx, batch.window.id, batch.was[e.userID], e); err != nil {
			return err
		}
	}
	for _, c := range counts {
		if _, err := b.store.db.Exec(ctx, addCounts[1], batch.window.id, c.level, c.bucket, c.n); err != nil {
			return err
		}
	}
	if batch.window.ranged {
		for _, m := range moves {
			if err := b.store.moveRange(ctx, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// column lists one field of many rows, as unnest takes them.
func column[T, V any](rows []T, field func(T) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = field(row)
	}
	return values
}
