package leaderboard

import (
	"context"
	"fmt"
	"math/bits"
	"strings"

	"github.com/kitbackend/kit/database"
)

// The count table is a radix tree over the sort keys: it stores how many visible entries are in
// each bucket of each level, updated in the transaction that moves them. The number of entries
// ahead of a place is then a few short sums, one per level, plus the entries of its own bucket
// before it.
//
// The last level has one bucket for each key of up to exactBits bits, and 2^(exactBits-1) for each
// power of two beyond, so that the number of levels does not depend on how large scores are; every
// level above merges 2^levelBits buckets of the one below. The last level is coarse, because a
// submission updates two of its counts: dense buckets are divided into ranges, as finely as
// necessary.
const (
	exactBits = 10
	levelBits = 5
	levels    = 3
	lastLevel = levels - 1
)

// bucketOf returns the bucket of the last level that contains a key.
func bucketOf(key int64) int64 {
	if key < 0 {
		return ^bucketOf(^key)
	}
	shift := max(0, bits.Len64(uint64(key))-exactBits)
	return int64(shift)<<(exactBits-1) + key>>shift
}

// firstKey returns the lowest key of a bucket of the last level.
func firstKey(bucket int64) int64 {
	if bucket < 0 {
		return -firstKey(-bucket)
	}
	shift := max(0, bucket>>(exactBits-1)-1)
	return (bucket - shift<<(exactBits-1)) << shift
}

// levelShift is the number of bits by which a bucket of the last level is shifted right to get its
// bucket of the given level.
func levelShift(level int) int { return (lastLevel - level) * levelBits }

// firstKeySQL is firstKey of the column e.bucket.
var firstKeySQL = fmt.Sprintf(`CASE WHEN e.bucket BETWEEN -%[1]d AND %[1]d - 1 THEN e.bucket
	WHEN e.bucket > 0 THEN ((e.bucket & %[3]d) | %[2]d) << CAST((e.bucket >> %[4]d) - 1 AS INTEGER)
	ELSE -((((-e.bucket) & %[3]d) | %[2]d) << CAST(((-e.bucket) >> %[4]d) - 1 AS INTEGER)) END`,
	1<<exactBits, 1<<(exactBits-1), 1<<(exactBits-1)-1, exactBits-1)

// boundSQL is the place of an entry as a bound of places. The expressions make SQLite seek by all
// of its columns, not only by the key.
func boundSQL(of string) string {
	return of + `.key + 0, ` + of + `.achieved_at + 0, ` + of + `.user_id || ''`
}

// totalSQL counts the visible entries of the window of m.
const totalSQL = `(SELECT CAST(COALESCE(SUM(c.n), 0) AS BIGINT) FROM leaderboard_count c
	WHERE c.window_id = m.window_id AND c.level = 0)`

// aheadSQL counts the visible entries ahead of the place m. PostgreSQL would read on after m as
// long as the key is the same, hence the limit of its range.
var aheadSQL = func() string {
	var b strings.Builder
	for level := range levels {
		b.WriteString(`(SELECT CAST(COALESCE(SUM(c.n), 0) AS BIGINT) FROM leaderboard_count c
			WHERE c.window_id = m.window_id AND `)
		fmt.Fprintf(&b, `c.level = %d AND c.bucket < (m.bucket >> %d)`, level, levelShift(level))
		if level > 0 {
			fmt.Fprintf(&b, ` AND c.bucket >= ((m.bucket >> %d) << %d)`, levelShift(level-1), levelBits)
		}
		b.WriteString(") + ")
	}
	b.WriteString(rangesAheadSQL + ` + (SELECT COUNT(*) FROM ` + database.Text(``, `(SELECT o.key, o.achieved_at, o.user_id FROM`) + ` leaderboard_entry o
		WHERE o.window_id = m.window_id AND o.hidden = 0
			AND (o.key, o.achieved_at, o.user_id) >= (m.from_key, m.from_at, m.from_user)
			` + database.Text(`AND`, `AND o.key <= m.key ORDER BY o.key, o.achieved_at, o.user_id LIMIT m.from_n) AS o WHERE`) + `
			(o.key, o.achieved_at, o.user_id) < (` + boundSQL("m") + `))`)
	return b.String()
}()

// count is the change of the number of entries in a bucket.
type count struct {
	level  int
	bucket int64
	n      int64
}

// move is a change of an entry's place in a window; nil means no place.
type move struct {
	window   window
	from, to *place
}

// end is a place with the change of its number of entries by a move.
type end struct {
	place
	n int64
}

func (m move) ends() (ends []end) {
	if m.from != nil {
		ends = append(ends, end{*m.from, -1})
	}
	if m.to != nil {
		ends = append(ends, end{*m.to, 1})
	}
	return ends
}

// counts returns the changes of the counts.
func (m move) counts() (changes []count) {
	for level := range levels {
		shift := levelShift(level)
		if m.from != nil && m.to != nil && m.from.bucket()>>shift == m.to.bucket()>>shift {
			continue
		}
		for _, end := range m.ends() {
			changes = append(changes, count{level, end.bucket() >> shift, end.n})
		}
	}
	return changes
}

// addCounts[n] adds to n buckets of one window.
var addCounts = func() (texts [2*levels + 1]string) {
	for n := 1; n < len(texts); n++ {
		rows := make([]string, n)
		for i := range rows {
			rows[i] = fmt.Sprintf("($1, $%d, $%d, $%d)", 3*i+2, 3*i+3, 3*i+4)
		}
		texts[n] = `INSERT INTO leaderboard_count (window_id, level, bucket, n) VALUES ` + strings.Join(rows, ", ") + onCount
	}
	return texts
}()

const onCount = ` ON CONFLICT (window_id, level, bucket) DO UPDATE SET n = leaderboard_count.n + excluded.n`

// count updates the counts for an entry that has moved.
func (s store) count(ctx context.Context, m move) error {
	if changes := m.counts(); len(changes) > 0 {
		args := make([]any, 0, 3*len(changes)+1)
		args = append(args, m.window.id)
		for _, c := range changes {
			args = append(args, c.level, c.bucket, c.n)
		}
		if _, err := s.db.Exec(ctx, addCounts[len(changes)], args...); err != nil {
			return err
		}
	}
	if !m.window.ranged {
		return nil
	}
	return s.moveRange(ctx, m)
}

// total counts the visible entries of a window, 0 if it does not exist.
func (s store) total(ctx context.Context, board string, openedAt int64) (n int64, err error) {
	n, _, err = database.Get(ctx, s.db, scanInt, `SELECT `+totalSQL+`
		FROM (SELECT id AS window_id FROM leaderboard_window WHERE board = $1 AND opened_at = $2 AND NOT swept) AS m`,
		board, openedAt)
	return n, err
}

func scanInt(row database.Scanner) (n int64, err error) {
	err = row.Scan(&n)
	return n, err
}

// rankChunk ranks the entries after a place, up to which there are ranked entries, and returns the
// last place; more is false at the end of the window.
func (s store) rankChunk(ctx context.Context, board string, window int64, after place, ranked int64) (last place, more bool, err error) {
	if _, err := s.lock(ctx, board); err != nil {
		return last, false, err
	}
	if _, kept, err := s.kept(ctx, window); err != nil || !kept {
		return last, false, err
	}
	last, more, err = database.Get(ctx, s.db, scanPlace, `SELECT key, achieved_at, user_id FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) > ($2, $3, $4)
		ORDER BY key, achieved_at, user_id LIMIT 1 OFFSET $5`,
		window, after.key, after.achievedAt, after.userID, s.sizes.walk-1)
	if err != nil {
		return last, false, err
	}
	_, err = s.db.Exec(ctx, `UPDATE leaderboard_entry SET rank = chunk.rank FROM (
			SELECT e.user_id, $5 + ROW_NUMBER() OVER (ORDER BY e.key, e.achieved_at, e.user_id) AS rank FROM (
				SELECT key, achieved_at, user_id FROM leaderboard_entry
				WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) > ($2, $3, $4)
				ORDER BY key, achieved_at, user_id LIMIT $6) AS e) AS chunk
		WHERE leaderboard_entry.window_id = $1 AND leaderboard_entry.user_id = chunk.user_id
			AND leaderboard_entry.rank <> chunk.rank`,
		window, after.key, after.achievedAt, after.userID, ranked, s.sizes.walk)
	return last, more, err
}

// endWalk records that the entries of a window are ranked, unless some were removed or shown during
// the walk, and clears the ranks of hidden entries, which the walk skips.
func (s store) endWalk(ctx context.Context, board string, window, started int64) error {
	if _, err := s.db.Exec(ctx, `UPDATE leaderboard_entry SET rank = 0 WHERE window_id = $1 AND hidden <> 0 AND rank <> 0
		AND user_id IN (SELECT user_id FROM leaderboard_hidden WHERE board = $2)`, window, board); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `UPDATE leaderboard_window SET ranked_at = $2 WHERE id = $1 AND ranked_at = $3`,
		window, started, -started)
	return err
}

// markRanked records when the ranks of a window were stored: 0, after a change other than a
// submission, makes the next walk include the window even if it is closed; a negative start marks a
// walk under way.
func (s store) markRanked(ctx context.Context, window, at int64) error {
	_, err := s.db.Exec(ctx, `UPDATE leaderboard_window SET ranked_at = $2 WHERE id = $1 AND ranked_at <> $2`, window, at)
	return err
}

// rankedWindow is a window and when its ranks were last stored.
type rankedWindow struct{ id, openedAt, rankedAt int64 }

func (s store) rankedWindows(ctx context.Context, board string) ([]rankedWindow, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (w rankedWindow, err error) {
		err = row.Scan(&w.id, &w.openedAt, &w.rankedAt)
		return w, err
	}, `SELECT id, opened_at, ranked_at FROM leaderboard_window WHERE board = $1 AND NOT swept ORDER BY opened_at DESC`, board)
}
