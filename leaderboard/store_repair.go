package leaderboard

import (
	"context"
	"encoding/json"

	"github.com/kitbackend/kit/database"
)

const (
	partSize  = 2000 // entries, or buckets of the level below, checked together
	partSpans = 50   // ranges checked together
)

// part is a piece of one level: its buckets up to, but not including, to.
type part struct {
	to      int64
	entries int64
	wrong   []wrongCount
}

// wrongCount is a bucket or, with rangeLevel, one of its ranges, whose stored count is wrong; with
// uncut, a bucket with a correct count that has grown and is not divided into ranges yet; with
// entryLevel, an entry of this user that is stored with a wrong bucket.
type wrongCount struct {
	level                  int
	bucket, stored, actual int64
	uncut                  bool
	userID                 string
}

// inspectLevel compares the counts of a piece of a level with what they count. The piece has at
// least one bucket, however many entries that holds.
func (s store) inspectLevel(ctx context.Context, window int64, level int, from, end int64) (p part, err error) {
	var actual map[int64]int64
	if level == lastLevel {
		p.to, actual, err = s.entriesOf(ctx, window, from, end)
	} else {
		p.to, actual, err = s.childrenOf(ctx, window, level, from, end)
	}
	if err != nil {
		return p, err
	}
	stored, err := s.tally(ctx, `SELECT bucket, n FROM leaderboard_count
		WHERE window_id = $1 AND level = $2 AND bucket >= $3 AND bucket < $4`, window, level, from, p.to)
	if err != nil {
		return p, err
	}
	for bucket, n := range actual {
		if level == lastLevel {
			p.entries += n
		}
		if stored[bucket] != n {
			p.wrong = append(p.wrong, wrongCount{level: level, bucket: bucket, stored: stored[bucket], actual: n})
			continue
		}
		if level == lastLevel && n > s.sizes.ranged {
			ranged, err := s.hasRanges(ctx, window, bucket)
			if err != nil {
				return p, err
			}
			if !ranged {
				p.wrong = append(p.wrong, wrongCount{level: rangeLevel, bucket: bucket, actual: n, uncut: true})
			}
		}
	}
	for bucket, n := range stored {
		if _, known := actual[bucket]; !known && n != 0 {
			p.wrong = append(p.wrong, wrongCount{level: level, bucket: bucket, stored: n})
		}
	}
	return p, nil
}

// entriesOf counts the visible entries of a piece of the last level.
func (s store) entriesOf(ctx context.Context, window, from, end int64) (to int64, actual map[int64]int64, err error) {
	key, more, err := database.Get(ctx, s.db, scanInt, `SELECT key FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND key >= $2
		ORDER BY key, achieved_at, user_id LIMIT 1 OFFSET $3`, window, firstKey(from), partSize)
	if err != nil {
		return 0, nil, err
	}
	if to = end; more {
		to = max(bucketOf(key), from+1)
	}
	keys, err := s.tally(ctx, `SELECT key, COUNT(*) FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND key >= $2 AND key < $3 GROUP BY key`, window, firstKey(from), firstKey(to))
	actual = make(map[int64]int64)
	for key, n := range keys {
		actual[bucketOf(key)] += n
	}
	return to, actual, err
}

// childrenOf sums the counts of the level below a piece of another level.
func (s store) childrenOf(ctx context.Context, window int64, level int, from, end int64) (to int64, actual map[int64]int64, err error) {
	child, more, err := database.Get(ctx, s.db, scanInt, `SELECT bucket FROM leaderboard_count
		WHERE window_id = $1 AND level = $2 AND bucket >= $3 ORDER BY bucket LIMIT 1 OFFSET $4`,
		window, level+1, from<<levelBits, partSize)
	if err != nil {
		return 0, nil, err
	}
	if to = end; more {
		to = max(child>>levelBits, from+1)
	}
	children, err := s.tally(ctx, `SELECT bucket, n FROM leaderboard_count
		WHERE window_id = $1 AND level = $2 AND bucket >= $3 AND bucket < $4`, window, level+1, from<<levelBits, to<<levelBits)
	actual = make(map[int64]int64)
	for bucket, n := range children {
		actual[bucket>>levelBits] += n
	}
	return to, actual, err
}

// tally reads rows of a bucket or key and a number.
func (s store) tally(ctx context.Context, query string, args ...any) (map[int64]int64, error) {
	rows, err := s.db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	tally := make(map[int64]int64)
	for rows.Next() {
		var of, n int64
		if err := rows.Scan(&of, &n); err != nil {
			return nil, err
		}
		tally[of] = n
	}
	return tally, rows.Err()
}

func (s store) hasRanges(ctx context.Context, window, bucket int64) (ok bool, err error) {
	_, ok, err = database.Get(ctx, s.db, scanInt, `SELECT n FROM leaderboard_range
		WHERE window_id = $1 AND key >= $2 AND key < $3 LIMIT 1`, window, firstKey(bucket), firstKey(bucket+1))
	return ok, err
}

// inspectRanges compares the ranges after a place with their entries. It returns the last one; more
// is false at the end of the window.
func (s store) inspectRanges(ctx context.Context, window int64, after place) (wrong []wrongCount, last place, more bool, err error) {
	spans, err := database.All(ctx, s.db, scanSpan, `SELECT key, achieved_at, user_id, n FROM leaderboard_range
		WHERE window_id = $1 AND (key, achieved_at, user_id) > ($2, $3, $4)
		ORDER BY key, achieved_at, user_id LIMIT $5`, window, after.key, after.achievedAt, after.userID, partSpans+1)
	if err != nil {
		return nil, after, false, err
	}
	last = after
	for i, r := range spans[:min(len(spans), partSpans)] {
		bucket := r.bucket()
		until := place{key: firstKey(bucket + 1)}
		if i+1 < len(spans) && spans[i+1].bucket() == bucket {
			until = spans[i+1].place
		}
		// Without a limit PostgreSQL would read on as long as the key is the same.
		var actual int64
		if err := s.db.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT key, achieved_at, user_id FROM leaderboard_entry
			WHERE window_id = $1 AND hidden = 0 AND key <= $5 AND (key, achieved_at, user_id) >= ($2, $3, $4)
			ORDER BY key, achieved_at, user_id LIMIT CAST($8 AS BIGINT)) AS held
			WHERE (key, achieved_at, user_id) < ($5, $6, $7)`,
			window, r.key, r.achievedAt, r.userID, until.key, until.achievedAt, until.userID, max(r.n, 0)+1,
		).Scan(&actual); err != nil {
			return nil, after, false, err
		}
		begins := last.key < firstKey(bucket)
		if actual != r.n || begins != (r.place == place{key: firstKey(bucket)}) {
			wrong = append(wrong, wrongCount{level: rangeLevel, bucket: bucket, stored: r.n, actual: actual})
		}
		last = r.place
	}
	return wrong, last, len(spans) > partSpans, nil
}

// inspectEntries compares the stored buckets of entries, including hidden ones, with their keys, in
// the order of user ids after one of them. It returns the last one; more is false at the end of the
// window.
func (s store) inspectEntries(ctx context.Context, window int64, after string) (wrong []wrongCount, last string, more bool, err error) {
	type seat struct {
		userID      string
		key, bucket int64
	}
	seats, err := database.All(ctx, s.db, func(row database.Scanner) (e seat, err error) {
		err = row.Scan(&e.userID, &e.key, &e.bucket)
		return e, err
	}, `SELECT user_id, key, bucket FROM leaderboard_entry WHERE window_id = $1 AND user_id > $2
		ORDER BY user_id LIMIT $3`, window, after, partSize)
	last = after
	for _, e := range seats {
		if bucket := bucketOf(e.key); e.bucket != bucket {
			wrong = append(wrong, wrongCount{level: entryLevel, bucket: bucket, stored: e.bucket, actual: bucket, userID: e.userID})
		}
		last = e.userID
	}
	return wrong, last, len(seats) == partSize, err
}

// kept reports whether a window still exists, and whether it has ranges.
func (s store) kept(ctx context.Context, window int64) (ranged, ok bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (ranged bool, err error) {
		err = row.Scan(&ranged)
		return ranged, err
	}, `SELECT ranged FROM leaderboard_window WHERE id = $1 AND NOT swept`, window)
}

// repair corrects wrong counts.
func (s store) repair(ctx context.Context, window int64, ranged bool, wrong []wrongCount) error {
	recut := make(map[int64]bool)
	rows := [][3]int64{}
	for _, w := range wrong {
		if w.level < rangeLevel {
			rows = append(rows, [3]int64{int64(w.level), w.bucket, w.actual})
		}
		if w.level == rangeLevel || w.level == lastLevel && (ranged || w.actual > s.sizes.ranged) {
			recut[w.bucket] = true
		}
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `INSERT INTO leaderboard_count (window_id, level, bucket, n)
		SELECT $1, CAST(value->>0 AS BIGINT), CAST(value->>1 AS BIGINT), CAST(value->>2 AS BIGINT)
		FROM `+database.Text(`json_each($2)`, `jsonb_array_elements($2::jsonb)`)+`
		WHERE true ON CONFLICT (window_id, level, bucket) DO UPDATE SET n = excluded.n`, window, string(list)); err != nil {
		return err
	}
	for _, w := range wrong {
		if w.level != entryLevel {
			continue
		}
		if _, err := s.db.Exec(ctx, `UPDATE leaderboard_entry SET bucket = $3 WHERE window_id = $1 AND user_id = $2`,
			window, w.userID, w.actual); err != nil {
			return err
		}
	}
	for bucket := range recut {
		if err := s.recut(ctx, window, bucket); err != nil {
			return err
		}
	}
	if len(recut) == 0 {
		return nil
	}
	return s.setRanged(ctx, window)
}

// recut recreates the ranges of a bucket, each half full.
func (s store) recut(ctx context.Context, window, bucket int64) error {
	first, end := firstKey(bucket), firstKey(bucket+1)
	if _, err := s.db.Exec(ctx, `DELETE FROM leaderboard_range WHERE window_id = $1 AND key >= $2 AND key < $3`,
		window, first, end); err != nil {
		return err
	}
	var n int64
	if err := s.db.QueryRow(ctx, `SELECT COUNT(*) FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND key >= $2 AND key < $3`, window, first, end).Scan(&n); err != nil || n <= s.sizes.ranged {
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO leaderboard_range (window_id, key, achieved_at, user_id, n)
		SELECT $1, CASE WHEN e.i > 0 THEN e.key ELSE $2 END, CASE WHEN e.i > 0 THEN e.achieved_at ELSE 0 END,
			CASE WHEN e.i > 0 THEN e.user_id ELSE '' END, CASE WHEN $4 - e.i < $5 THEN $4 - e.i ELSE $5 END
		FROM (SELECT key, achieved_at, user_id, ROW_NUMBER() OVER (ORDER BY key, achieved_at, user_id) - 1 AS i
			FROM leaderboard_entry WHERE window_id = $1 AND hidden = 0 AND key >= $2 AND key < $3) AS e
		WHERE e.i % $5 = 0`, window, first, end, n, s.sizes.ofRange(n)/2)
	return err
}

// setRanged records that some bucket of a window has ranges.
func (s store) setRanged(ctx context.Context, window int64) error {
	_, err := s.db.Exec(ctx, `UPDATE leaderboard_window SET ranged = TRUE WHERE id = $1 AND NOT ranged`, window)
	return err
}
