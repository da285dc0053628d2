package leaderboard

import (
	"context"
	"math"

	"github.com/kitbackend/kit/database"
)

// sizes bound pieces of work; tests make them smaller.
type sizes struct {
	// ranged is the largest number of entries that a rank counts one by one. A bucket of the last
	// level that holds more is divided into ranges in the order of the board, and a range that has
	// grown past it is halved: soon, by one of the next relieve submissions, because until then
	// ranks only cost more. A submission that moves an entry of such a bucket also updates its
	// range. The ranges of a bucket cover all of it: the first begins at its first key.
	ranged, relieve int64
	// walk is how many entries a transaction of the walk ranks.
	walk int64
	// known is how many entries of a board a node caches, about 25 MB.
	known int
}

var usual = sizes{ranged: 128, relieve: 64, walk: 1000, known: 1 << 17}

// ofRange returns the largest size of a range in a bucket of n entries: more than s.ranged if there
// would be so many ranges that their sum costs more.
func (s sizes) ofRange(n int64) int64 { return max(s.ranged, int64(math.Sqrt(float64(n)))) }

// rangeSQL joins to the place e its range, as r: the last one in its bucket that does not begin
// after it. There is none if the bucket is not divided.
var rangeSQL = ` LEFT JOIN ` + database.Text(`leaderboard_range r ON e.ranged AND r.window_id = e.window_id AND (r.key, r.achieved_at, r.user_id) =`, `LATERAL`) + `
	(SELECT s.key, s.achieved_at, s.user_id ` + database.Text(``, `, GREATEST(s.n, 0) AS n`) + ` FROM leaderboard_range s
		WHERE s.window_id = e.window_id AND s.key >= e.first_key
			AND (s.key, s.achieved_at, s.user_id) <= (` + boundSQL("e") + `)
		ORDER BY s.key DESC, s.achieved_at DESC, s.user_id DESC LIMIT 1) ` + database.Text(``, `AS r ON e.ranged`)

// rangesAheadSQL counts the visible entries of the ranges before the one of m in its bucket.
const rangesAheadSQL = `CASE WHEN m.ranged THEN (SELECT CAST(COALESCE(SUM(r.n), 0) AS BIGINT) FROM leaderboard_range r
	WHERE r.window_id = m.window_id AND r.key >= m.first_key
		AND (r.key, r.achieved_at, r.user_id) < (m.from_key, m.from_at, m.from_user)) ELSE 0 END`

// span is a range and its number of entries.
type span struct {
	place
	n int64
}

func scanSpan(row database.Scanner) (r span, err error) {
	err = row.Scan(&r.key, &r.achievedAt, &r.userID, &r.n)
	return r, err
}

// moveRange updates the ranges for an entry that has moved, if its bucket has any.
func (s store) moveRange(ctx context.Context, m move) error {
	for _, end := range m.ends() {
		if _, err := s.db.Exec(ctx, `UPDATE leaderboard_range SET n = n + $6
			WHERE window_id = $1 AND (key, achieved_at, user_id) = (`+rangeOfSQL+`)`,
			m.window.id, firstKey(end.bucket()), end.key, end.achievedAt, end.userID, end.n); err != nil {
			return err
		}
	}
	return nil
}

// rangeOfSQL selects the range of the window $1 that contains the place $3, $4, $5; its bucket
// begins at the key $2.
const rangeOfSQL = `SELECT r.key, r.achieved_at, r.user_id FROM leaderboard_range r
	WHERE r.window_id = $1 AND r.key >= $2 AND (r.key, r.achieved_at, r.user_id) <= ($3, $4, $5)
	ORDER BY r.key DESC, r.achieved_at DESC, r.user_id DESC LIMIT 1`

// crowded reports whether the rank of a place counts too many entries one by one.
func (s store) crowded(ctx context.Context, window int64, p place) (bool, error) {
	var among *int64 // in its range
	var bucket int64
	err := s.db.QueryRow(ctx, `SELECT
		(SELECT r.n FROM leaderboard_range r WHERE r.window_id = $1 AND (r.key, r.achieved_at, r.user_id) = (`+rangeOfSQL+`)),
		COALESCE((SELECT c.n FROM leaderboard_count c WHERE c.window_id = $1 AND c.level = $6 AND c.bucket = $7), 0)`,
		window, firstKey(p.bucket()), p.key, p.achievedAt, p.userID, lastLevel, p.bucket()).Scan(&among, &bucket)
	if among == nil {
		return bucket > s.sizes.ranged, err
	}
	return *among > s.sizes.ofRange(bucket), err
}

// relieve divides the range or bucket of a place, and merges empty ranges of its bucket into those
// before them.
func (s store) relieve(ctx context.Context, board string, window int64, p place) error {
	if _, err := s.lock(ctx, board); err != nil {
		return err
	}
	if crowded, err := s.crowded(ctx, window, p); err != nil || !crowded {
		return err // another caller was faster
	}
	bucket := p.bucket()
	first, end := firstKey(bucket), firstKey(bucket+1)
	r, ranged, err := database.Get(ctx, s.db, scanSpan, `SELECT key, achieved_at, user_id, n FROM leaderboard_range
		WHERE window_id = $1 AND (key, achieved_at, user_id) = (`+rangeOfSQL+`)`, window, first, p.key, p.achievedAt, p.userID)
	switch {
	case err != nil:
		return err
	case !ranged:
		if err := s.recut(ctx, window, bucket); err != nil {
			return err
		}
		return s.setRanged(ctx, window)
	}
	if err := s.halve(ctx, window, r); err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `DELETE FROM leaderboard_range WHERE window_id = $1 AND key >= $2 AND key < $3 AND n = 0
		AND (key, achieved_at, user_id) <> ($2, 0, '')`, window, first, end)
	return err
}

// halve divides a range in the middle.
func (s store) halve(ctx context.Context, window int64, r span) error {
	half := r.n / 2
	middle, ok, err := database.Get(ctx, s.db, scanPlace, `SELECT key, achieved_at, user_id FROM leaderboard_entry
		WHERE window_id = $1 AND hidden = 0 AND (key, achieved_at, user_id) >= ($2, $3, $4)
		ORDER BY key, achieved_at, user_id LIMIT 1 OFFSET $5`, window, r.key, r.achievedAt, r.userID, half)
	if err != nil || !ok || middle.bucket() != r.bucket() {
		return err // without a middle the count is wrong, and the next check will find it
	}
	if err := s.cut(ctx, window, span{middle, r.n - half}); err != nil {
		return err
	}
	return s.cut(ctx, window, span{r.place, half})
}

// cut inserts a range, or sets its number of entries.
func (s store) cut(ctx context.Context, window int64, r span) error {
	_, err := s.db.Exec(ctx, `INSERT INTO leaderboard_range (window_id, key, achieved_at, user_id, n)
		VALUES ($1, $2, $3, $4, $5) ON CONFLICT (window_id, key, achieved_at, user_id) DO UPDATE SET n = excluded.n`,
		window, r.key, r.achievedAt, r.userID, r.n)
	return err
}

func scanPlace(row database.Scanner) (p place, err error) {
	err = row.Scan(&p.key, &p.achievedAt, &p.userID)
	return p, err
}
