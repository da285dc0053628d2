package leaderboard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/queue"
)

const batchSize = 256 // submissions in one transaction at most

// maxKnown is how many entries of a board a node caches, about 25 MB.
var maxKnown = 1 << 17 // less in tests

// call is a submission whose caller waits.
type call = queue.Call[*operation, outcome]

// batcher shares transactions between concurrent callers of one board. The
// operations of a batch are decided one after the other in memory, by the same
// rules as alone, and each row is written once.
//
// On PostgreSQL, while nobody else changes the board, a batch is two statements:
// one that reads, and one that writes if the version of the board is still that
// which was read. What earlier batches have left need not be read again: the same
// condition holds it to be the newest. Otherwise a batch is a transaction that
// locks the board first.
type batcher struct {
	queue.Queue[*operation, outcome]
	store store
	board *board

	// The board after the last batch; only for who leads.
	version  int64
	last     state            // without an entry
	openedAt int64            // of its window
	known    map[string]entry // by user id, nil while nothing is known
}

func newBatcher(s store, b *board) *batcher {
	batcher := &batcher{store: s, board: b}
	batcher.Run, batcher.Size = batcher.run, batchSize
	return batcher
}

// run brings calls to their outcomes. A refusal is that of one call; an error
// of the database, which no call by itself can cause, is everybody's.
func (b *batcher) run(ctx context.Context, calls []*call) int {
	done, err := false, error(nil)
	if b.store.db.Dialect() == database.PostgreSQL {
		done, err = b.try(ctx, calls)
	}
	if err == nil && !done {
		err = b.locked(ctx, calls)
	}
	for _, c := range calls {
		if err != nil {
			c.Out, c.Err = outcome{}, err
		}
	}
	return len(calls)
}

// try is the way without a lock. It does nothing if somebody else has changed
// the board since the last batch, or does so now.
func (b *batcher) try(ctx context.Context, calls []*call) (done bool, err error) {
	batch := b.recall(ctx, calls)
	if batch != nil {
		batch.decide(calls)
	}
	if batch == nil || !batch.changed() { // only what is written is held to the version
		batch, err = b.load(ctx, calls)
		if err != nil || !batch.ready() || batch.version != b.version {
			return false, err
		}
		batch.decide(calls)
	}
	known := b.known
	b.known = nil // until it is sure what the batch has left
	if done, err = b.save(ctx, batch); done && err == nil {
		b.known = known
		b.remember(batch)
	}
	return done, err
}

// recall returns what calls meet if all of it is known, and otherwise nil.
func (b *batcher) recall(ctx context.Context, calls []*call) *batch {
	now := b.store.db.Now(ctx)
	if b.known == nil || b.openedAt != b.board.openedAt(now) {
		return nil
	}
	batch := newBatch(calls, now, b.openedAt)
	batch.state, batch.version = b.last, b.version
	for user := range batch.entries {
		e, ok := b.known[user]
		if !ok {
			return nil
		}
		st := batch.state
		st.userID, st.entry, st.hidden = user, &e, e.hidden
		batch.entries[user], batch.was[user] = &st, &e
	}
	return batch
}

// remember keeps what a batch has left.
func (b *batcher) remember(batch *batch) {
	if b.known == nil || b.openedAt != batch.openedAt || len(b.known)+len(batch.entries) > maxKnown {
		b.known = make(map[string]entry)
	}
	b.last, b.openedAt = batch.state, batch.openedAt
	for user, st := range batch.entries {
		if st.entry != nil {
			b.known[user] = *st.entry
		}
	}
}

// locked is the path with the board locked.
func (b *batcher) locked(ctx context.Context, calls []*call) error {
	b.known = nil
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
				c.Err = refusal
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

// batch is what the operations of some calls meet and change.
type batch struct {
	state    // without an entry
	now      int64
	openedAt int64
	entries  map[string]*state // by user id
	was      map[string]*entry // as stored before
}

func newBatch(calls []*call, now time.Time, openedAt int64) *batch {
	b := &batch{now: now.UnixMilli(), openedAt: openedAt,
		entries: make(map[string]*state, len(calls)), was: make(map[string]*entry, len(calls))}
	for _, c := range calls {
		b.entries[c.Op.userID] = nil
	}
	return b
}

// changed reports whether there is something to write.
func (b *batch) changed() bool {
	for user, st := range b.entries {
		if st.differs(b.was[user]) {
			return true
		}
	}
	return false
}

// decide brings calls to their outcomes, each on what those before it left.
func (b *batch) decide(calls []*call) {
	for _, c := range calls {
		st := b.entries[c.Op.userID]
		e, err := c.Op.apply(*st, b.now)
		if c.Err = err; err == nil {
			st.entry, c.Out = &e, outcome{b.window.id, e}
		}
	}
}

// load reads what calls meet, on one snapshot.
func (b *batcher) load(ctx context.Context, calls []*call) (*batch, error) {
	now := b.store.db.Now(ctx)
	loaded := newBatch(calls, now, b.board.openedAt(now))
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
// is still $2. Only a window with ranges pays for theirs.
var saveSQL, saveRangedSQL = saving(""), saving(`, ranges AS (
		UPDATE leaderboard_range r SET n = r.n + moved.n FROM (
			SELECT s.key, s.achieved_at, s.user_id, CAST(SUM(n.n) AS BIGINT) AS n
			FROM board, unnest((SELECT $15::bigint[]), (SELECT $16::bigint[]), (SELECT $17::bigint[]), (SELECT $18::text[]), (SELECT $19::bigint[]))
				AS n (first_key, key, achieved_at, user_id, n)
			JOIN LATERAL (SELECT r.key, r.achieved_at, r.user_id FROM leaderboard_range r
				WHERE r.window_id = $3 AND r.key >= n.first_key
					AND (r.key, r.achieved_at, r.user_id) <= (n.key, n.achieved_at, n.user_id)
				ORDER BY r.key DESC, r.achieved_at DESC, r.user_id DESC LIMIT 1) s ON true
			GROUP BY s.key, s.achieved_at, s.user_id HAVING SUM(n.n) <> 0) AS moved
		WHERE r.window_id = $3 AND r.key = moved.key AND r.achieved_at = moved.achieved_at AND r.user_id = moved.user_id
	)`)

func saving(ranges string) string {
	return `WITH board AS (
		UPDATE leaderboard_board SET version = $14 WHERE key = $1 AND version = $2 RETURNING 1
	), counts AS (
		INSERT INTO leaderboard_count (window_id, level, bucket, n)
		SELECT $3, n.* FROM board, unnest((SELECT $11::bigint[]), (SELECT $12::bigint[]), (SELECT $13::bigint[])) AS n` + onCount + `
	)` + ranges + `
	INSERT INTO leaderboard_entry (window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank)
	SELECT $3, n.*, 0 FROM board, unnest((SELECT $4::text[]), (SELECT $5::bigint[]), (SELECT $6::bigint[]), (SELECT $7::bigint[]), (SELECT $8::bigint[]),
		(SELECT $9::bigint[]), (SELECT $10::bigint[])) AS n` + onEntry
}

// save writes what operations changed; done is false, and nothing written, when
// somebody else has changed the board since they were loaded.
func (b *batcher) save(ctx context.Context, batch *batch) (done bool, err error) {
	var entries []entry
	var moves []move
	sums := make(map[count]int64) // by count without n
	for user, st := range batch.entries {
		was := batch.was[user]
		if !st.differs(was) {
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
	// A version comes up once, also after a database has lost its last commits.
	next := rand.Int64N(1 << 62)
	text, args := saveSQL, []any{b.board.Key, batch.version, batch.window.id,
		column(entries, func(e entry) string { return e.userID }), column(entries, func(e entry) int64 { return e.key }),
		column(entries, func(e entry) int64 { return e.bucket() }), column(entries, func(e entry) int64 { return e.achievedAt }),
		column(entries, func(e entry) int64 { return e.hidden }), column(entries, func(e entry) int64 { return e.attempts }),
		column(entries, func(e entry) int64 { return e.lastActiveAt }),
		column(counts, func(c count) int64 { return int64(c.level) }), column(counts, func(c count) int64 { return c.bucket }),
		column(counts, func(c count) int64 { return c.n }), next}
	if batch.window.ranged {
		var ends []end
		for _, m := range moves {
			ends = append(ends, m.ends()...)
		}
		text, args = saveRangedSQL, append(args,
			column(ends, func(e end) int64 { return firstKey(e.bucket()) }), column(ends, func(e end) int64 { return e.key }),
			column(ends, func(e end) int64 { return e.achievedAt }), column(ends, func(e end) string { return e.userID }),
			column(ends, func(e end) int64 { return e.n }))
	}
	rows, err := b.store.db.Exec(ctx, text, args...)
	b.version = next
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
