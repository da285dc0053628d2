package rating

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// store is the SQL of rating.
type store struct{ db *database.DB }

// row is a player in a pool.
type row struct {
	userID string
	rated
	xp, games, updatedAt int64
}

const columns = `user_id, algorithm, state, skill, xp, games_played, updated_at`

// scan reads a row of the pool, which must be of the pool's algorithm.
func (p *pool) scan(s database.Scanner) (r row, err error) {
	var algorithm string
	err = s.Scan(&r.userID, &algorithm, &r.state, &r.skill, &r.xp, &r.games, &r.updatedAt)
	if err == nil && algorithm != p.algorithm {
		err = p.wrongAlgorithm(algorithm)
	}
	return r, err
}

func (p *pool) wrongAlgorithm(found string) error {
	return fmt.Errorf("%w: pool %s holds ratings by %s and is configured for %s", ErrOtherAlgorithm, p.name, found, p.algorithm)
}

const (
	unlessMade = ` ON CONFLICT (pool, user_id) DO NOTHING`
	overwrite  = ` ON CONFLICT (pool, user_id) DO UPDATE SET state = excluded.state, skill = excluded.skill,
		xp = excluded.xp, games_played = excluded.games_played, updated_at = excluded.updated_at`
)

var (
	selectRows = `SELECT ` + columns + ` FROM rating_player WHERE pool = $1 AND user_id ` + database.InList(2)
	lockRows   = selectRows + ` ORDER BY user_id FOR UPDATE`
)

// read returns the existing rows of the players; query is selectRows or lockRows.
func (s store) read(ctx context.Context, p *pool, query string, userIDs []string) (map[string]row, error) {
	rows, err := database.All(ctx, s.db, p.scan, query, p.name, database.List(userIDs))
	m := make(map[string]row, len(rows))
	for _, r := range rows {
		m[r.userID] = r
	}
	return m, err
}

// lock inserts the missing rows and locks all, both in the order of the user ids, which are sorted.
// Every transaction inserts rows before it locks any, so that waits for inserts and waits for locks
// cannot form a cycle. Only a row that was erased before it was locked is inserted again. SQLite
// has one writer, and nothing to lock.
func (s store) lock(ctx context.Context, p *pool, userIDs []string, now int64) (map[string]row, error) {
	rows, err := s.read(ctx, p, selectRows, userIDs)
	for err == nil {
		var fresh []row
		for _, id := range userIDs {
			if _, ok := rows[id]; !ok {
				rows[id] = row{userID: id, rated: p.initial, updatedAt: now}
				fresh = append(fresh, rows[id])
			}
		}
		if len(fresh) > 0 {
			if err := s.insert(ctx, p, fresh, unlessMade); err != nil {
				return nil, err
			}
		}
		if s.db.Dialect() == database.SQLite {
			return rows, nil
		}
		if rows, err = s.read(ctx, p, lockRows, userIDs); len(rows) == len(userIDs) {
			break
		}
	}
	return rows, err
}

// save writes locked rows: one by one on SQLite, which is fastest there, and by one statement on
// PostgreSQL, to save round trips.
func (s store) save(ctx context.Context, p *pool, rows map[string]row) error {
	changed := make([]row, 0, len(rows))
	for _, id := range slices.Sorted(maps.Keys(rows)) {
		changed = append(changed, rows[id])
	}
	if s.db.Dialect() == database.PostgreSQL {
		return s.insert(ctx, p, changed, overwrite)
	}
	for _, r := range changed {
		if _, err := s.db.Exec(ctx, `UPDATE rating_player SET state = $3, skill = $4, xp = $5, games_played = $6, updated_at = $7
			WHERE pool = $1 AND user_id = $2`, p.name, r.userID, r.state, r.skill, r.xp, r.games, r.updatedAt); err != nil {
			return err
		}
	}
	return nil
}

func (s store) insert(ctx context.Context, p *pool, rows []row, onConflict string) error {
	const width = 8
	args := make([]any, 0, width*len(rows))
	for _, r := range rows {
		args = append(args, p.name, r.userID, p.algorithm, r.state, r.skill, r.xp, r.games, r.updatedAt)
	}
	_, err := s.db.Exec(ctx, `INSERT INTO rating_player (pool, `+columns+`) VALUES `+tuples(len(rows), width)+onConflict, args...)
	return err
}

// tuples returns ($1, $2), ($3, $4), ... for n rows of some width.
func tuples(n, width int) string {
	var b []byte
	for i := range n * width {
		switch {
		case i == 0:
			b = append(b, "($"...)
		case i%width == 0:
			b = append(b, "), ($"...)
		default:
			b = append(b, ", $"...)
		}
		b = strconv.AppendInt(b, int64(i+1), 10)
	}
	return string(append(b, ')'))
}

// check refuses a pool that has rows of another algorithm; own reports whether it has rows of its
// own. On PostgreSQL, until there are some, transactions that insert the first ones are serialized.
func (s store) check(ctx context.Context, p *pool) (own bool, err error) {
	var other string
	err = s.db.QueryRow(ctx, `SELECT COALESCE(
		(SELECT algorithm FROM rating_player WHERE pool = $1 AND algorithm < $2 LIMIT 1),
		(SELECT algorithm FROM rating_player WHERE pool = $1 AND algorithm > $2 LIMIT 1), ''),
		EXISTS (SELECT 1 FROM rating_player WHERE pool = $1 AND algorithm = $2)`, p.name, p.algorithm).Scan(&other, &own)
	if err == nil && other != "" {
		err = p.wrongAlgorithm(other)
	}
	return own, err
}

// first serializes the transactions that insert the first rows of a pool.
func (s store) first(ctx context.Context, p *pool) error {
	return s.db.Lock(ctx, "rating "+p.name)
}

// claim takes a key that is free or has expired.
func (s store) claim(ctx context.Context, game, key, hash string, now time.Time) (bool, error) {
	rows, err := s.db.Exec(ctx, `INSERT INTO rating_key (game, key, hash, answer, expires_at) VALUES ($1, $2, $3, '', $4)
		ON CONFLICT (game, key) DO UPDATE SET hash = excluded.hash, answer = '', expires_at = excluded.expires_at
		WHERE rating_key.expires_at <= $5`, game, key, hash, now.Add(KeyLifetime).UnixMilli(), now.UnixMilli())
	return rows == 1, err
}

// unclaim releases a key.
func (s store) unclaim(ctx context.Context, game, key string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM rating_key WHERE game = $1 AND key = $2`, game, key)
	return err
}

func (s store) keep(ctx context.Context, game, key, result string) error {
	_, err := s.db.Exec(ctx, `UPDATE rating_key SET answer = $3 WHERE game = $1 AND key = $2`, game, key, result)
	return err
}

func (s store) recall(ctx context.Context, game, key string) (hash, result string, err error) {
	err = s.db.QueryRow(ctx, `SELECT hash, answer FROM rating_key WHERE game = $1 AND key = $2`, game, key).Scan(&hash, &result)
	return hash, result, err
}

// top lists the players of a pool, the most skilled first; with later, only those after a skill and
// user id.
func (s store) top(ctx context.Context, p *pool, skill float64, below string, later bool, limit int) ([]row, error) {
	const order = ` ORDER BY skill DESC, user_id DESC LIMIT `
	query, args := `SELECT `+columns+` FROM rating_player WHERE pool = $1 AND algorithm = $2`, []any{p.name, p.algorithm}
	if later {
		return database.All(ctx, s.db, p.scan, query+` AND (skill, user_id) < ($3, $4)`+order+`$5`, append(args, skill, below, limit)...)
	}
	return database.All(ctx, s.db, p.scan, query+order+`$3`, append(args, limit)...)
}

// players counts the players of a pool, up to a limit.
func (s store) players(ctx context.Context, p *pool, limit int64) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM rating_player WHERE pool = $1 AND algorithm = $2 LIMIT $3) AS few`,
		p.name, p.algorithm, limit).Scan(&n)
	return n, err
}

// keepDistribution stores the distribution that a job has counted.
func (s store) keepDistribution(ctx context.Context, pool, value string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO rating_distribution (pool, value) VALUES ($1, $2)
		ON CONFLICT (pool) DO UPDATE SET value = excluded.value`, pool, value)
	return err
}

// keptDistribution returns the stored distribution, "" if there is none.
func (s store) keptDistribution(ctx context.Context, pool string) (string, error) {
	value, _, err := database.Get(ctx, s.db, scanText, `SELECT value FROM rating_distribution WHERE pool = $1`, pool)
	return value, err
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// pools lists the pools that have players, configured or not, by index seeks from one pool to the
// next.
func (s store) pools(ctx context.Context) ([]string, error) {
	return database.All(ctx, s.db, scanText, `WITH RECURSIVE held (pool) AS (
		SELECT MIN(pool) FROM rating_player
		UNION ALL SELECT (SELECT MIN(p.pool) FROM rating_player AS p WHERE p.pool > held.pool) FROM held WHERE held.pool IS NOT NULL)
		SELECT pool FROM held WHERE pool IS NOT NULL`)
}

// record is a player's exported row.
type record struct {
	Pool        string          `json:"pool"`
	Algorithm   string          `json:"algorithm"`
	State       json.RawMessage `json:"state"`
	Skill       float64         `json:"skill"`
	XP          int64           `json:"xp"`
	GamesPlayed int64           `json:"gamesPlayed"`
	UpdatedAt   capability.Time `json:"updatedAt"`
}

// record returns the row of a player in a pool, whatever its algorithm.
func (s store) record(ctx context.Context, pool, userID string) (record, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (r record, err error) {
		var state string
		var at int64
		err = row.Scan(&r.Pool, &r.Algorithm, &state, &r.Skill, &r.XP, &r.GamesPlayed, &at)
		r.State, r.UpdatedAt = json.RawMessage(state), capability.Millis(at)
		return r, err
	}, `SELECT pool, algorithm, state, skill, xp, games_played, updated_at FROM rating_player WHERE pool = $1 AND user_id = $2`, pool, userID)
}

// erase removes the row of a player in a pool.
func (s store) erase(ctx context.Context, pool, userID string) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM rating_player WHERE pool = $1 AND user_id = $2`, pool, userID)
}

// extent returns the least and the greatest skill in a pool; ok is false if the pool is empty.
func (s store) extent(ctx context.Context, p *pool) (least, greatest float64, ok bool, err error) {
	var players int64
	err = s.db.QueryRow(ctx, `SELECT
		COALESCE((SELECT MIN(skill) FROM rating_player WHERE pool = $1 AND algorithm = $2), 0),
		COALESCE((SELECT MAX(skill) FROM rating_player WHERE pool = $1 AND algorithm = $2), 0),
		(SELECT COUNT(*) FROM (SELECT 1 FROM rating_player WHERE pool = $1 AND algorithm = $2 LIMIT 1) AS one)`,
		p.name, p.algorithm).Scan(&least, &greatest, &players)
	return least, greatest, players > 0, err
}

// count returns how many players of a pool have a skill in the range from from up to, but not
// including, below. It reads that part of an index.
func (s store) count(ctx context.Context, p *pool, from, below float64) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM rating_player
		WHERE pool = $1 AND algorithm = $2 AND skill >= $3 AND skill < $4`, p.name, p.algorithm, from, below).Scan(&n)
	return n, err
}

// removeKeys deletes some of the keys that expired before an instant.
func (s store) removeKeys(ctx context.Context, now time.Time, limit int) (removed int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM rating_key WHERE (game, key) IN
		(SELECT game, key FROM rating_key WHERE expires_at <= $1 LIMIT $2)`, now.UnixMilli(), limit)
}
