package multiplayer

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kitbackend/kit/database"
)

// store is the SQL of multiplayer.
type store struct{ db *database.DB }

// errStale reports that the session no longer has the version that a transition was made from.
var errStale = errors.New("multiplayer: the session has changed")

const columns = `id, config, creator, phase, version, players, former, seed, words, state, deadline, alarm, created_at, updated_at`

func scanSession(row database.Scanner) (*session, error) {
	var s session
	var config, players, left, seed string
	var state sql.NullString
	err := row.Scan(&s.id, &config, &s.creator, &s.phase, &s.version, &players, &left, &seed, &s.cursor, &state,
		&s.deadline, &s.alarm, &s.createdAt, &s.updatedAt)
	if err != nil {
		return nil, err
	}
	if state.Valid {
		s.state, s.decoded = json.RawMessage(state.String), new(atomic.Value)
	}
	s.seed, err = hex.DecodeString(seed)
	return &s, errors.Join(err, json.Unmarshal([]byte(config), &s.game),
		json.Unmarshal([]byte(players), &s.players), json.Unmarshal([]byte(left), &s.left))
}

const selectSession = `SELECT ` + columns + ` FROM multiplayer_session WHERE id = $1`

// load returns a session, nil if there is none.
func (s store) load(ctx context.Context, id string) (*session, error) {
	return s.read(ctx, id, selectSession)
}

// lock is load with the row locked, for the transaction of a caller.
func (s store) lock(ctx context.Context, id string) (*session, error) {
	return s.read(ctx, id, selectSession+` `+database.ForUpdate)
}

func (s store) read(ctx context.Context, id, query string) (*session, error) {
	found, ok, err := database.Get(ctx, s.db, scanSession, query, id)
	if err != nil || !ok || !found.phase.Terminal() {
		return found, err
	}
	found.result, _, err = s.result(ctx, id)
	return found, err
}

// version returns the version of a session, 0 if there is none.
func (s store) version(ctx context.Context, id string) (int64, error) {
	version, _, err := database.Get(ctx, s.db, func(row database.Scanner) (v int64, err error) {
		return v, row.Scan(&v)
	}, `SELECT version FROM multiplayer_session WHERE id = $1`, id)
	return version, err
}

// insert writes a new session and reports whether its id was free.
func (s store) insert(ctx context.Context, n *session) (bool, error) {
	config, err := json.Marshal(n.game)
	if err != nil {
		return false, err
	}
	rows, err := s.db.Exec(ctx, `INSERT INTO multiplayer_session (game, ended_at, `+columns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT DO NOTHING`,
		n.game.Key, n.endedAt(), n.id, string(config), n.creator, string(n.phase), n.version, text(n.players), text(n.left),
		hex.EncodeToString(n.seed), n.cursor, stateText(n), n.deadline, n.alarm, n.createdAt, n.updatedAt)
	return rows == 1, err
}

const updateSession = `UPDATE multiplayer_session SET phase = $3, version = $4, players = $5, former = $6, words = $7,
	state = $8, deadline = $9, alarm = $10, updated_at = $11, ended_at = $12 WHERE id = $1 AND version = $2`

func updateArgs(before, after *session) []any {
	return []any{after.id, before.version, string(after.phase), after.version, text(after.players), text(after.left),
		after.cursor, stateText(after), after.deadline, after.alarm, after.updatedAt, after.endedAt()}
}

// update replaces the version that the session was made from, or returns errStale and changes
// nothing.
func (s store) update(ctx context.Context, before, after *session) error {
	rows, err := s.db.Exec(ctx, updateSession, updateArgs(before, after)...)
	if err == nil && rows == 0 {
		err = errStale
	}
	return err
}

// move writes moves of different sessions, each replacing the version it was made from, or returns
// errStale and changes nothing. On PostgreSQL it is a single statement, which locks the sessions in
// order of their ids, as other nodes do.
func (s store) move(ctx context.Context, moves []move) error {
	if s.db.Dialect() == database.PostgreSQL {
		return s.moveAtOnce(ctx, moves)
	}
	return s.db.InTx(ctx, func(ctx context.Context) error {
		for _, m := range moves {
			rows, err := s.db.Exec(ctx, `UPDATE multiplayer_session SET version = $3, words = $4, state = $5, deadline = $6, updated_at = $7
				WHERE id = $1 AND version = $2`,
				m.after.id, m.before.version, m.after.version, m.after.cursor, string(m.after.state), m.after.deadline, m.after.updatedAt)
			if err == nil && rows == 0 {
				err = errStale
			}
			if err == nil {
				err = s.append(ctx, m.after.id, m.before.version+1, m.steps)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const moveAtOnce = `WITH n AS (
		SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
			AS n (id, before, version, words, state, deadline, at)
	), held AS (
		SELECT s.id FROM multiplayer_session AS s JOIN n ON s.id = n.id AND s.version = n.before ORDER BY s.id FOR NO KEY UPDATE OF s
	), moved AS (
		UPDATE multiplayer_session AS s SET version = n.version, words = n.words, state = n.state, deadline = n.deadline, updated_at = n.at
		FROM n WHERE s.id = n.id AND s.version = n.before AND (SELECT count(*) FROM held) = cardinality($1::text[]) RETURNING s.id
	)
	INSERT INTO multiplayer_action (session_id, version, kind, actor, action_id, data, at)
		SELECT moved.id, a.version, a.kind, a.actor, a.action_id, a.data, a.at
		FROM unnest($8::text[], $9::bigint[], $10::text[], $11::text[], $12::text[], $13::text[], $14::bigint[])
			AS a (id, version, kind, actor, action_id, data, at) JOIN moved ON moved.id = a.id`

func (s store) moveAtOnce(ctx context.Context, moves []move) error {
	var ids, states, of, kinds, actors, actions, data []string
	var befores, versions, words, deadlines, ats, numbers, times []int64
	for _, m := range moves {
		ids, befores, versions = append(ids, m.after.id), append(befores, m.before.version), append(versions, m.after.version)
		words, states = append(words, m.after.cursor), append(states, string(m.after.state))
		deadlines, ats = append(deadlines, m.after.deadline), append(ats, m.after.updatedAt)
		for i, st := range m.steps {
			of, numbers, kinds = append(of, m.after.id), append(numbers, m.before.version+1+int64(i)), append(kinds, string(st.kind))
			actors, actions, data = append(actors, st.actor), append(actions, st.actionID), append(data, string(st.data))
			times = append(times, st.at)
		}
	}
	rows, err := s.db.Exec(ctx, moveAtOnce, ids, befores, versions, words, states, deadlines, ats,
		of, numbers, kinds, actors, actions, data, times)
	if err == nil && rows == 0 {
		err = errStale
	}
	return err
}

// append writes the steps that led to the versions from first on, one statement for each: SQLite
// keeps a journal for a statement of several rows.
func (s store) append(ctx context.Context, id string, first int64, steps []step) error {
	for i, st := range steps {
		data := string(st.data)
		if _, err := s.db.Exec(ctx, `INSERT INTO multiplayer_action (session_id, version, kind, actor, action_id, data, at)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`,
			id, first+int64(i), string(st.kind), st.actor, st.actionID, data, st.at); err != nil {
			return err
		}
	}
	return nil
}

// logged is a row of the log.
type logged struct {
	step
	version int64
}

const actionColumns = `version, kind, actor, action_id, data, at`

func scanLogged(row database.Scanner) (l logged, err error) {
	var data string
	err = row.Scan(&l.version, &l.kind, &l.actor, &l.actionID, &data, &l.at)
	l.data = json.RawMessage(data)
	return l, err
}

// known returns the log rows of action ids that were accepted before, of any actor.
func (s store) known(ctx context.Context, id string, actionIDs []string) ([]logged, error) {
	return database.All(ctx, s.db, scanLogged, `SELECT `+actionColumns+` FROM multiplayer_action
		WHERE session_id = $1 AND action_id <> '' AND action_id `+database.InList(2), id, database.List(actionIDs))
}

// log returns the steps after a version, at most limit, in order.
func (s store) log(ctx context.Context, id string, after int64, limit int) ([]logged, error) {
	return database.All(ctx, s.db, scanLogged, `SELECT `+actionColumns+` FROM multiplayer_action
		WHERE session_id = $1 AND version > $2 ORDER BY version LIMIT $3`, id, after, limit)
}

// The parts of the key of an effect: a ref may have one effect of each.
const (
	partMove   = "move"
	partSettle = "settle"
)

func (e Effect) part() string {
	if e.settles() {
		return partSettle
	}
	return partMove
}

// claim records an effect. It returns false and the first effect if one of the same ref and part
// was recorded before.
func (s store) claim(ctx context.Context, id string, e Effect, version int64) (claimed bool, first Effect, err error) {
	data, err := json.Marshal(e)
	if err != nil {
		return false, first, err
	}
	rows, err := s.db.Exec(ctx, `INSERT INTO multiplayer_effect (session_id, ref, part, kind, effect, version)
		VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`, id, e.Ref, e.part(), string(e.Kind), string(data), version)
	if err != nil || rows == 1 {
		return rows == 1, e, err
	}
	var kept string
	err = s.db.QueryRow(ctx, `SELECT effect FROM multiplayer_effect WHERE session_id = $1 AND ref = $2 AND part = $3`,
		id, e.Ref, e.part()).Scan(&kept)
	if err == nil {
		first, err = readEffect(kept)
	}
	return false, first, err
}

// readEffect decodes a stored effect. Rows written before All existed store a capture of the whole
// hold without an amount.
func readEffect(data string) (e Effect, err error) {
	err = json.Unmarshal([]byte(data), &e)
	e.All = e.All || e.Kind == EffectCapture && e.Amount == 0
	return e, err
}

// openHolds returns the holds that no effect has ended, by ref.
func (s store) openHolds(ctx context.Context, id string) ([]Effect, error) {
	return database.All(ctx, s.db, scanEffect, `SELECT effect FROM multiplayer_effect AS h
		WHERE session_id = $1 AND part = 'move' AND kind = 'hold' AND NOT EXISTS (
			SELECT 1 FROM multiplayer_effect AS e WHERE e.session_id = $1 AND e.ref = h.ref AND e.part = 'settle')
		ORDER BY ref`, id)
}

// effects returns all effects of a session, by ref.
func (s store) effects(ctx context.Context, id string) ([]Effect, error) {
	return database.All(ctx, s.db, scanEffect, `SELECT effect FROM multiplayer_effect WHERE session_id = $1 ORDER BY ref, part`, id)
}

func scanEffect(row database.Scanner) (e Effect, err error) {
	var data string
	if err = row.Scan(&data); err == nil {
		e, err = readEffect(data)
	}
	return e, err
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// finish writes the result of a terminal session.
func (s store) finish(ctx context.Context, n *session, r *Result) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	members := append(append([]string{}, n.players...), n.left...)
	_, err = s.db.Exec(ctx, `INSERT INTO multiplayer_result (session_id, game, phase, members, result, ended_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, n.id, n.game.Key, string(n.phase), text(members), string(data), n.updatedAt)
	return err
}

// result returns how a session ended and who may read it; nil if it has not ended.
func (s store) result(ctx context.Context, id string) (r *Result, members []string, err error) {
	var data, list string
	err = s.db.QueryRow(ctx, `SELECT result, members FROM multiplayer_result WHERE session_id = $1`, id).Scan(&data, &list)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	r = new(Result)
	return r, members, errors.Join(json.Unmarshal([]byte(data), r), json.Unmarshal([]byte(list), &members))
}

// count returns how many sessions are in a phase that is not terminal.
func (s store) count(ctx context.Context, phase Phase) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM multiplayer_session WHERE phase IN ('open', 'active') AND phase = $1`,
		string(phase)).Scan(&n)
	return n, err
}

// waiting counts the sessions of a creator that have not begun and that the creator has not left.
func (s store) waiting(ctx context.Context, creator string) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM multiplayer_session AS s WHERE creator = $1 AND phase = 'open'
		AND EXISTS (SELECT 1 FROM multiplayer_seat WHERE user_id = $1 AND session_id = s.id AND live)`, creator).Scan(&n)
	return n, err
}

// text encodes a list for storage.
func text(ids []string) string { return database.List(ids) }

func stateText(s *session) sql.NullString {
	return sql.NullString{String: string(s.state), Valid: s.state != nil}
}

// overdue returns the sessions after an id whose deadline passed before an instant, in order of
// their ids.
func (s store) overdue(ctx context.Context, before time.Time, after string) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT id FROM multiplayer_session
		WHERE phase IN ('open', 'active') AND deadline > 0 AND deadline < $1 AND id > $2 ORDER BY id LIMIT $3`,
		before.UnixMilli(), after, sweepChunk)
}

// remove deletes some of the sessions that ended before an instant, and returns how many; their
// results stay.
func (s store) remove(ctx context.Context, before time.Time) (n int, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		over, err := database.All(ctx, s.db, scanSession, `SELECT `+columns+` FROM multiplayer_session
			WHERE ended_at > 0 AND ended_at < $1 ORDER BY ended_at, id LIMIT $2 `+database.SkipLocked,
			before.UnixMilli(), sweepChunk)
		if err != nil {
			return err
		}
		var ids []string
		for steps := int64(0); len(ids) < len(over) && steps < removeSteps; {
			steps += over[len(ids)].version
			ids = append(ids, over[len(ids)].id)
		}
		n = len(ids)
		return s.removeSessions(ctx, ids)
	})
	return n, err
}

// removeSessions deletes sessions that are over, but not their results.
func (s store) removeSessions(ctx context.Context, ids []string) error {
	return s.withoutLogs(ctx, ids, `DELETE FROM multiplayer_session WHERE id `+database.InList(1))
}

// withoutLogs deletes what was done and settled in sessions that are over, and changes their rows.
func (s store) withoutLogs(ctx context.Context, ids []string, change string) error {
	if len(ids) == 0 {
		return nil
	}
	for _, query := range []string{
		`DELETE FROM multiplayer_action WHERE session_id ` + database.InList(1),
		`DELETE FROM multiplayer_effect WHERE session_id ` + database.InList(1),
		change,
	} {
		if _, err := s.db.Exec(ctx, query, database.List(ids)); err != nil {
			return err
		}
	}
	return nil
}

// removeSteps bounds the log rows that one transaction of a sweep deletes, unless a single session
// has more.
const removeSteps = 20_000
