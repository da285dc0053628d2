package leaderboard

import (
	"context"
	"fmt"
	"slices"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// view is a resolved [View].
type view struct {
	*board
	openedAt int64
	closed   bool
}

// ranked is an entry with its rank. total is the total of the window, if requested.
type ranked struct {
	entry
	score, rank, total int64
}

func scanRanked(row database.Scanner) (r ranked, err error) {
	err = row.Scan(&r.userID, &r.key, &r.achievedAt, &r.hidden, &r.attempts, &r.lastActiveAt, &r.score, &r.rank, &r.total)
	return r, err
}

// placedSQL adds to places the beginning of their bucket and of their range in it, and the number
// of entries in the range.
func placedSQL(places string) string {
	return `(SELECT e.*, COALESCE(r.key, e.first_key) AS from_key, COALESCE(r.achieved_at, 0) AS from_at,
		COALESCE(r.user_id, '') AS from_user, r.n AS from_n
		FROM (SELECT e.*, ` + firstKeySQL + ` AS first_key FROM (` + places + `) AS e) AS e` + rangeSQL + `)`
}

// entriesSQL selects the entries of the window $1, $2 that are joined to it, as e.
func entriesSQL(joined string) string {
	return placedSQL(`SELECT e.*, w.ranged, w.sign FROM leaderboard_window w ` + joined + `
		WHERE w.board = $1 AND w.opened_at = $2 AND NOT w.swept`)
}

// rankedSQL lists the columns of entries, which must be named m. The rank is the materialized one
// if $3 is true; a hidden entry has none and is ranked live.
var rankedSQL = `m.user_id, m.key, m.achieved_at, m.hidden, m.attempts, m.last_active_at, m.sign * m.key,
	CASE WHEN $3 AND m.hidden = 0 THEN m.rank ELSE 1 + ` + aheadSQL + ` END, ` + totalSQL

const ofUserSQL = `JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id `

var (
	segmentSQL = `WITH m AS MATERIALIZED ` + entriesSQL(ofUserSQL+database.InList(4)) + ` SELECT ` + rankedSQL + ` FROM m
		WHERE m.hidden = 0 ORDER BY m.key, m.achieved_at, m.user_id`

	// For SQLite: the entry of $4, and the entries around it.
	standingSQL = `WITH m AS MATERIALIZED ` + entriesSQL(ofUserSQL+"= $4") + ` SELECT ` + rankedSQL + ` FROM m`
	aroundSQL   = standingSQL + sideSQL("<", "DESC") + sideSQL(">", "ASC")

	// For PostgreSQL: the entries of all players of $4 and around them, every row with the user id
	// of the player it was requested for; $5 is how many entries each has on a side.
	standingManySQL = `WITH m AS MATERIALIZED ` + entriesSQL(`
			CROSS JOIN unnest((SELECT $4::text[]), (SELECT $5::bigint[])) AS asked (user_id, n)
			CROSS JOIN LATERAL (SELECT o.*, asked.n FROM leaderboard_entry o
				WHERE o.window_id = w.id AND o.user_id = asked.user_id LIMIT 1) AS e`) + ` SELECT m.user_id, ` + rankedSQL + ` FROM m`
	aroundManySQL = standingManySQL + sideManySQL("<", "DESC") + sideManySQL(">", "ASC")
)

// fewSQL completes a SELECT of entries with a limit n, at most one more than [capability.MaxLimit],
// in an order of key, achieved_at and user_id. With a bare parameter as LIMIT SQLite would compile
// the statement anew each time, and PostgreSQL would plan it anew each time if nothing said that
// the number is small.
func fewSQL(entries, order, n string) string {
	order = ` ORDER BY key ` + order + `, achieved_at ` + order + `, user_id ` + order
	return database.Text(``, `SELECT * FROM (`) + entries + order + ` ` +
		database.Text(``, fmt.Sprintf(`LIMIT %d) AS few`, capability.MaxLimit+1)+order) + `LIMIT CAST(` + n + ` AS BIGINT)`
}

// besideSQL selects the n visible entries next to m on one side; of returns the SQL of columns of
// m. In live mode their rank is 0: it is computed from the rank of m.
func besideSQL(of func(columns string) string, side, order, n string) string {
	return fewSQL(`SELECT o.user_id, o.key, o.achieved_at, o.hidden, o.attempts, o.last_active_at,
			`+of("m.sign")+` * o.key, CASE WHEN $3 THEN o.rank ELSE 0 END, 0
		FROM leaderboard_entry o WHERE o.window_id = `+of("m.window_id")+` AND o.hidden = 0
			AND (o.key, o.achieved_at, o.user_id) `+side+` `+of(boundSQL("m")), order, n)
}

func sideSQL(side, order string) string {
	m := func(columns string) string { return "(SELECT " + columns + " FROM m)" }
	return ` UNION ALL SELECT * FROM (` + besideSQL(m, side, order, "$5") + `) AS side`
}

func sideManySQL(side, order string) string {
	m := func(columns string) string { return "(" + columns + ")" }
	return ` UNION ALL SELECT m.user_id, side.* FROM m CROSS JOIN LATERAL (` + besideSQL(m, side, order, "m.n") + `) AS side WHERE m.n > 0`
}

// segment returns the visible entries of some players, in order.
func (s store) segment(ctx context.Context, v view, materialized bool, userIDs []string) ([]ranked, error) {
	return database.All(ctx, s.db, scanRanked, segmentSQL, v.Key, v.openedAt, materialized, database.List(userIDs))
}

// near is the entry of a player and visible ones on each side of it, in order.
type near struct {
	rows []ranked
	me   int // index of the player's entry, -1 without one
}

// nearOf orders the rows that were found for a player and completes their ranks.
func nearOf(rows []ranked, userID string, materialized bool) near {
	slices.SortFunc(rows, func(x, y ranked) int { return x.compare(y.place) })
	me := slices.IndexFunc(rows, func(r ranked) bool { return r.userID == userID })
	if !materialized {
		for i := range rows {
			rows[i].rank = rows[me].rank + int64(i-me)
			if i > me && rows[me].hidden != 0 {
				rows[i].rank-- // whose rank equals that of the hidden one
			}
		}
	}
	return near{rows, me}
}

// around returns the entry of a player and at most n visible ones on each side of it.
func (s store) around(ctx context.Context, v view, materialized bool, userID string, n int) (near, error) {
	if s.db.Dialect() == database.PostgreSQL {
		found, err := s.aroundMany(ctx, v, materialized, map[string]int{userID: n})
		return found[userID], err
	}
	query, args := standingSQL, []any{v.Key, v.openedAt, materialized, userID}
	if n > 0 {
		query, args = aroundSQL, append(args, n)
	}
	rows, err := database.All(ctx, s.db, scanRanked, query, args...)
	if err != nil {
		return near{}, err
	}
	return nearOf(rows, userID, materialized), nil
}

// aroundMany is around for several players, with a number for each.
func (s store) aroundMany(ctx context.Context, v view, materialized bool, asked map[string]int) (map[string]near, error) {
	userIDs, numbers := make([]string, 0, len(asked)), make([]int64, 0, len(asked))
	query := standingManySQL
	for id, n := range asked {
		userIDs, numbers = append(userIDs, id), append(numbers, int64(n))
		if n > 0 {
			query = aroundManySQL
		}
	}
	rows := make(map[string][]ranked, len(asked))
	if _, err := database.All(ctx, s.db, func(row database.Scanner) (of string, err error) {
		var r ranked
		err = row.Scan(&of, &r.userID, &r.key, &r.achievedAt, &r.hidden, &r.attempts, &r.lastActiveAt, &r.score, &r.rank, &r.total)
		rows[of] = append(rows[of], r)
		return of, err
	}, query, v.Key, v.openedAt, materialized, userIDs, numbers); err != nil {
		return nil, err
	}
	found := make(map[string]near, len(asked))
	for id := range asked {
		found[id] = nearOf(rows[id], id, materialized)
	}
	return found, nil
}

const windowSQL = ` FROM leaderboard_window w WHERE w.board = $1 AND w.opened_at = $2 AND NOT w.swept`

// listing is the statements of a list. Unless the board tracks activity the order index alone
// covers all columns of a list.
type listing struct{ top, page string }

func listings(activity string) listing {
	columns := `SELECT o.user_id, o.key, o.achieved_at, ` + activity
	return listing{
		// The first $3 entries. The window is not joined, because a join would lose the order of
		// the index.
		top: fewSQL(columns+`, (SELECT w.sign`+windowSQL+`), 0
			FROM leaderboard_entry o WHERE o.window_id = (SELECT w.id`+windowSQL+`) AND o.hidden = 0`, "ASC", "$3"),
		// The first $3 entries from a place on, each with the number of entries ahead of the first.
		page: `WITH m AS MATERIALIZED ` + placedSQL(`SELECT w.id AS window_id, w.ranged, w.sign,
				CAST($4 AS BIGINT) AS key, CAST($5 AS BIGINT) AS achieved_at, CAST($6 AS TEXT) AS user_id, CAST($7 AS BIGINT) AS bucket
				`+windowSQL) + ` ` + fewSQL(columns+`, (SELECT m.sign FROM m), (SELECT `+aheadSQL+` FROM m)
			FROM leaderboard_entry o WHERE o.window_id = (SELECT m.window_id FROM m) AND o.hidden = 0
				AND (o.key, o.achieved_at, o.user_id) >= ($4, $5, $6)`, "ASC", "$3"),
	}
}

var plainList, activityList = listings("0, 0"), listings("o.attempts, o.last_active_at")

// list returns visible entries in order.
func (s store) list(ctx context.Context, q listQuery) ([]ranked, error) {
	text := plainList
	if q.view.TrackActivity {
		text = activityList
	}
	query, args := text.top, []any{q.view.Key, q.view.openedAt, q.limit}
	if q.after != (place{}) {
		from := q.after.next()
		query, args = text.page, append(args, from.key, from.achievedAt, from.userID, from.bucket())
	}
	rows, err := s.db.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	list := make([]ranked, 0, q.limit)
	var r ranked
	var sign, ahead int64
	into := []any{&r.userID, &r.key, &r.achievedAt, &r.attempts, &r.lastActiveAt, &sign, &ahead}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		r.score, r.rank = sign*r.key, ahead+int64(len(list))+1
		list = append(list, r)
	}
	return list, rows.Err()
}

// closedWindows returns when the latest closed windows of a board opened, the newest first.
func (s store) closedWindows(ctx context.Context, board string, open int64, limit int) ([]int64, error) {
	return database.All(ctx, s.db, scanInt, `SELECT opened_at FROM leaderboard_window
		WHERE board = $1 AND opened_at < $2 AND NOT swept ORDER BY opened_at DESC LIMIT CAST($3 AS BIGINT)`, board, open, limit)
}

// extent returns the first and the last bucket with visible entries.
func (s store) extent(ctx context.Context, window int64) (first, last int64, ok bool, err error) {
	for _, end := range []struct {
		order string
		into  *int64
	}{{"", &first}, {" DESC", &last}} {
		var key int64
		key, ok, err = database.Get(ctx, s.db, scanInt, `SELECT key FROM leaderboard_entry WHERE window_id = $1 AND hidden = 0
			ORDER BY key`+end.order+`, achieved_at`+end.order+`, user_id`+end.order+` LIMIT 1`, window)
		if err != nil || !ok {
			return 0, 0, false, err
		}
		*end.into = bucketOf(key)
	}
	return first, last, true, nil
}

// filled returns the counts of the buckets of a level that have entries, from one bucket up to and
// including another.
func (s store) filled(ctx context.Context, window int64, level int, first, last int64) (map[int64]int64, error) {
	return s.tally(ctx, `SELECT bucket, n FROM leaderboard_count
		WHERE window_id = $1 AND level = $2 AND bucket >= $3 AND bucket <= $4 AND n > 0`, window, level, first, last)
}
