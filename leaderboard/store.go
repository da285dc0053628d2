package leaderboard

import (
	"context"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database"
)

// store is the leaderboard's SQL. Everything that changes an entry, a count or a range holds the
// lock of the board, so that nothing else changes meanwhile: two first submissions of a player, a
// submission and a new definition, and a submission and a check of the counts are serialized. The
// one exception, a batch that has locked nothing, takes effect only if the version of the board is
// still the one it has read. See [batcher].
type store struct {
	db    *database.DB
	sizes sizes
}

// window is one window of a board.
type window struct {
	id            int64 // 0 before its first entry
	ranged, swept bool
}

// state is what a submission is decided on.
type state struct {
	version int64 // of the board
	defined bool  // the stored definition equals the configured one
	window  window
	userID  string
	entry   *entry // nil before the first submission
	hidden  int64  // also without an entry
}

// lock serializes the changes of a board; ok is false if the board has no row yet, so that there is
// nothing to lock and nothing to change. SQLite has one writer, so no lock is needed.
func (s store) lock(ctx context.Context, board string) (ok bool, err error) {
	if s.db.Dialect() == database.SQLite {
		return true, nil
	}
	rows, err := s.db.Exec(ctx, `UPDATE leaderboard_board SET version = version + 1 WHERE key = $1`, board)
	return rows == 1, err
}

// submit runs one submission in the transaction of ctx. It refuses before it writes anything, so
// that a caller whose transaction it joined may go on.
func (s store) submit(ctx context.Context, op *operation) (outcome, error) {
	now := s.db.Now(ctx)
	openedAt := op.board.openedAt(now)
	var st state
	locked, err := s.lock(ctx, op.board.Key)
	if err == nil && locked {
		st, err = s.state(ctx, op, openedAt)
	}
	if err == nil && !st.ready() {
		if err = s.prepare(ctx, op.board, openedAt); err == nil {
			st, err = s.state(ctx, op, openedAt)
		}
	}
	if err != nil {
		return outcome{}, err
	}
	e, err := op.apply(st, now.UnixMilli())
	if err != nil {
		return outcome{}, err
	}
	out := outcome{st.window.id, e}
	if st.entry != nil && *st.entry == e {
		return out, nil
	}
	if err := s.put(ctx, st.window.id, st.entry, e); err != nil {
		return outcome{}, err
	}
	return out, s.count(ctx, move{st.window, st.entry.seat(), e.seat()})
}

// stateSQL selects the state of a user; userID is an SQL expression.
func stateSQL(userID string) string {
	return `SELECT b.version, b.store = $3 AND b.direction = $4 AND b.aggregation = $5 AND b.schedule = $6,
		COALESCE(w.id, 0), COALESCE(w.ranged, FALSE), COALESCE(w.swept, FALSE), e.user_id IS NOT NULL,
		COALESCE(e.key, 0), COALESCE(e.achieved_at, 0), COALESCE(e.hidden,
			(SELECT h.hidden FROM leaderboard_hidden h WHERE h.board = b.key AND h.user_id = ` + userID + `), 0),
		COALESCE(e.attempts, 0), COALESCE(e.last_active_at, 0), ` + userID + `
		FROM leaderboard_board b LEFT JOIN leaderboard_window w ON w.board = b.key AND w.opened_at = $2 `
}

var oneStateSQL = stateSQL("$7") + `LEFT JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = $7
	WHERE b.key = $1`

func scanState(row database.Scanner) (st state, err error) {
	var e entry
	var known bool
	err = row.Scan(&st.version, &st.defined, &st.window.id, &st.window.ranged, &st.window.swept, &known,
		&e.key, &e.achievedAt, &e.hidden, &e.attempts, &e.lastActiveAt, &e.userID)
	st.userID, st.hidden = e.userID, e.hidden
	if known {
		st.entry = &e
	}
	return st, err
}

// differs reports whether the entry differs from the stored one.
func (st *state) differs(was *entry) bool {
	return st.entry != nil && (was == nil || *was != *st.entry)
}

// ready reports whether there is a window to write to.
func (st state) ready() bool { return st.defined && st.window.id != 0 && !st.window.swept }

// state reads the state of a submission, on PostgreSQL after the lock.
func (s store) state(ctx context.Context, op *operation, openedAt int64) (state, error) {
	d := op.board.definition()
	st, _, err := database.Get(ctx, s.db, scanState, oneStateSQL,
		op.board.Key, openedAt, d.Store, string(d.Direction), string(d.Aggregation), d.Window, op.userID)
	return st, err
}

// put inserts a first entry or updates an existing one.
func (s store) put(ctx context.Context, window int64, old *entry, e entry) (err error) {
	if old == nil {
		_, err = s.db.Exec(ctx, `INSERT INTO leaderboard_entry
				(window_id, user_id, key, bucket, achieved_at, hidden, attempts, last_active_at, rank)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0)`,
			window, e.userID, e.key, e.bucket(), e.achievedAt, e.hidden, e.attempts, e.lastActiveAt)
		return err
	}
	_, err = s.db.Exec(ctx, `UPDATE leaderboard_entry
		SET key = $3, bucket = $4, achieved_at = $5, attempts = $6, last_active_at = $7
		WHERE window_id = $1 AND user_id = $2`,
		window, e.userID, e.key, e.bucket(), e.achievedAt, e.attempts, e.lastActiveAt)
	return err
}

// onEntry updates the columns of an entry that a submission changes.
const onEntry = ` ON CONFLICT (window_id, user_id) DO UPDATE SET key = excluded.key, bucket = excluded.bucket,
	achieved_at = excluded.achieved_at, attempts = excluded.attempts, last_active_at = excluded.last_active_at`

// prepare stores a board with its definition and opens a window of it. Refuses with
// leaderboard/board_immutable, and with leaderboard/board_not_found if the window is being swept.
func (s store) prepare(ctx context.Context, b *board, openedAt int64) error {
	d := b.definition()
	if _, err := s.db.Exec(ctx, `INSERT INTO leaderboard_board (key, store, direction, aggregation, schedule, version)
		VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING`,
		b.Key, d.Store, string(d.Direction), string(d.Aggregation), d.Window); err != nil {
		return err
	}
	if _, err := s.lock(ctx, b.Key); err != nil {
		return err
	}
	if err := s.define(ctx, b.Key, d); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `INSERT INTO leaderboard_window (board, opened_at, sign, ranged, ranked_at, swept)
		VALUES ($1, $2, $3, FALSE, 0, FALSE) ON CONFLICT DO NOTHING`, b.Key, openedAt, b.sign()); err != nil {
		return err
	}
	_, ok, err := s.windowID(ctx, b.Key, openedAt)
	if err == nil && !ok {
		err = ErrBoardNotFound
	}
	return err
}

// define compares a board with its stored definition, and replaces that if the board has no entry.
func (s store) define(ctx context.Context, key string, d Definition) error {
	var stored Definition
	row := s.db.QueryRow(ctx, `SELECT store, direction, aggregation, schedule FROM leaderboard_board WHERE key = $1`, key)
	err := row.Scan(&stored.Store, &stored.Direction, &stored.Aggregation, &stored.Window)
	if err != nil || stored == d {
		return err
	}
	_, entries, err := database.Get(ctx, s.db, scanInt, `SELECT w.id FROM leaderboard_window w
		JOIN leaderboard_entry e ON e.window_id = w.id WHERE w.board = $1 LIMIT 1`, key)
	if err != nil {
		return err
	}
	if entries {
		return ErrBoardImmutable.With(stored)
	}
	for _, table := range []string{"leaderboard_count", "leaderboard_range"} {
		if _, err := s.db.Exec(ctx, `DELETE FROM `+table+`
			WHERE window_id IN (SELECT id FROM leaderboard_window WHERE board = $1)`, key); err != nil {
			return err
		}
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM leaderboard_window WHERE board = $1`, key); err != nil {
		return err
	}
	_, err = s.db.Exec(ctx, `UPDATE leaderboard_board SET store = $2, direction = $3, aggregation = $4, schedule = $5
		WHERE key = $1`, key, d.Store, string(d.Direction), string(d.Aggregation), d.Window)
	return err
}

// windowID returns the window of a board that opened at an instant; ok is false if there is none,
// or it is being swept.
func (s store) windowID(ctx context.Context, board string, openedAt int64) (id int64, ok bool, err error) {
	return database.Get(ctx, s.db, scanInt, `SELECT id FROM leaderboard_window
		WHERE board = $1 AND opened_at = $2 AND NOT swept`, board, openedAt)
}

// windowEntry is an entry with its window.
type windowEntry struct {
	window window
	entry
}

func scanWindowEntry(row database.Scanner) (e windowEntry, err error) {
	err = row.Scan(&e.window.id, &e.window.ranged, &e.userID, &e.key, &e.achievedAt, &e.hidden)
	return e, err
}

const windowEntryColumns = `w.id, w.ranged, e.user_id, e.key, e.achieved_at, e.hidden`

// remove deletes the entry of a player in one window.
func (s store) remove(ctx context.Context, board string, openedAt int64, userID string) error {
	locked, err := s.lock(ctx, board)
	if err != nil {
		return err
	}
	if !locked {
		return ErrEntryNotFound
	}
	e, ok, err := database.Get(ctx, s.db, scanWindowEntry, `SELECT `+windowEntryColumns+` FROM leaderboard_window w
		JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = $3
		WHERE w.board = $1 AND w.opened_at = $2 AND NOT w.swept`, board, openedAt, userID)
	if err != nil {
		return err
	}
	if !ok {
		return ErrEntryNotFound
	}
	return s.removeEntry(ctx, e)
}

// removeEntry deletes an entry and removes it from the counts.
func (s store) removeEntry(ctx context.Context, e windowEntry) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM leaderboard_entry WHERE window_id = $1 AND user_id = $2`, e.window.id, e.userID); err != nil {
		return err
	}
	if err := s.markRanked(ctx, e.window.id, 0); err != nil {
		return err
	}
	return s.count(ctx, move{e.window, e.seat(), nil})
}

// hide sets who hides a player, in every stored window of a board.
func (s store) hide(ctx context.Context, board, userID string, by Hider, hidden bool) (Visibility, error) {
	none := Visibility{}
	locked, err := s.lock(ctx, board)
	if err != nil {
		return none, err
	}
	if !locked {
		return none, ErrEntryNotFound
	}
	before, known, err := database.Get(ctx, s.db, scanInt,
		`SELECT hidden FROM leaderboard_hidden WHERE board = $1 AND user_id = $2`, board, userID)
	if err != nil {
		return none, err
	}
	entries, err := database.All(ctx, s.db, scanWindowEntry, `SELECT `+windowEntryColumns+` FROM leaderboard_window w
		JOIN leaderboard_entry e ON e.window_id = w.id AND e.user_id = $2
		WHERE w.board = $1 AND NOT w.swept ORDER BY w.id`, board, userID)
	if err != nil {
		return none, err
	}
	if !known && len(entries) == 0 {
		return none, ErrEntryNotFound
	}
	after := before &^ int64(by)
	if hidden {
		after |= int64(by)
	}
	if after == before {
		return Visibility{userID, after != 0}, nil
	}
	if err := s.keepHidden(ctx, board, userID, after); err != nil {
		return none, err
	}
	if err := s.hideEntries(ctx, board, userID, after); err != nil {
		return none, err
	}
	for _, e := range entries {
		from := e.seat()
		e.hidden = after
		if (from == nil) == (e.seat() == nil) {
			continue
		}
		if err := s.count(ctx, move{e.window, from, e.seat()}); err != nil {
			return none, fmt.Errorf("leaderboard: window %d: %w", e.window.id, err)
		}
	}
	return Visibility{userID, after != 0}, nil
}

// hideEntries sets who hides a player in all windows at once: there may be thousands. The windows
// in which that changes the ranks of others are ranked again.
func (s store) hideEntries(ctx context.Context, board, userID string, hidden int64) error {
	for _, statement := range []string{
		`UPDATE leaderboard_window SET ranked_at = 0 WHERE board = $1 AND NOT swept AND ranked_at <> 0 AND EXISTS (
			SELECT 1 FROM leaderboard_entry WHERE window_id = leaderboard_window.id AND user_id = $2 AND (hidden = 0) <> ($3 = 0))`,
		`UPDATE leaderboard_entry SET hidden = $3 WHERE user_id = $2
			AND window_id IN (SELECT id FROM leaderboard_window WHERE board = $1 AND NOT swept)`,
	} {
		if _, err := s.db.Exec(ctx, statement, board, userID, hidden); err != nil {
			return err
		}
	}
	return nil
}

// keepHidden stores a hidden player for future entries.
func (s store) keepHidden(ctx context.Context, board, userID string, hidden int64) error {
	if hidden == 0 {
		_, err := s.db.Exec(ctx, `DELETE FROM leaderboard_hidden WHERE board = $1 AND user_id = $2`, board, userID)
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO leaderboard_hidden (board, user_id, hidden) VALUES ($1, $2, $3)
		ON CONFLICT (board, user_id) DO UPDATE SET hidden = excluded.hidden`, board, userID, hidden)
	return err
}

// takeLock takes a lock that nobody holds, or whose holder has not renewed it for the time after
// which it counts as dead, or has renewed it that far in the future, by a wrong clock.
func (s store) takeLock(ctx context.Context, name, token string, stale time.Duration) (taken bool, err error) {
	now := s.db.Now(ctx)
	rows, err := s.db.Exec(ctx, `INSERT INTO leaderboard_lock (name, token, renewed_at) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET token = excluded.token, renewed_at = excluded.renewed_at
		WHERE leaderboard_lock.renewed_at <= $4 OR leaderboard_lock.renewed_at >= $5`,
		name, token, now.UnixMilli(), now.Add(-stale).UnixMilli(), now.Add(stale).UnixMilli())
	return rows == 1, err
}

func (s store) renewLock(ctx context.Context, name, token string) error {
	rows, err := s.db.Exec(ctx, `UPDATE leaderboard_lock SET renewed_at = $3 WHERE name = $1 AND token = $2`,
		name, token, s.db.Now(ctx).UnixMilli())
	if err == nil && rows == 0 {
		err = errLockLost
	}
	return err
}

func (s store) releaseLock(ctx context.Context, name, token string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM leaderboard_lock WHERE name = $1 AND token = $2`, name, token)
	return err
}
