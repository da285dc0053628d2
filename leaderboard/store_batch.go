package leaderboard

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/kitbackend/kit/database"
)

// load reads the states of calls, on one snapshot.
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
	` + database.Text(`CROSS JOIN json_each($7) AS n LEFT JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = n.value`, `CROSS JOIN unnest((SELECT $7::text[])) AS n (value)
		LEFT JOIN LATERAL (SELECT * FROM leaderboard_entry e WHERE e.window_id = w.id AND e.user_id = n.value LIMIT 1) e ON true`) + `
	WHERE b.key = $1`

// saveSQL writes entries and their counts, if the version of the board is still $2. saveRangedSQL
// also updates the ranges, for a window that has them.
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

// save writes the changes of operations; done is false, and nothing is written, if the board has
// been changed since they were loaded.
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
	// A version is never used again, even if the database loses its last commits.
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

// column lists one field of many rows, as an argument of unnest.
func column[T, V any](rows []T, field func(T) V) []V {
	values := make([]V, len(rows))
	for i, row := range rows {
		values[i] = field(row)
	}
	return values
}
