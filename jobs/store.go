package jobs

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

// row is what a new job consists of.
type row struct {
	Job
	runAt, createdAt int64
	maxAttempts      int
	trace            string
}

// insert adds a job unless its key is held.
func (q *Queue) insert(ctx context.Context, r row) (added bool, err error) {
	n, err := q.db.Exec(ctx, `
		INSERT INTO kit_job (id, binding, key, holds_key, payload, state, run_at, attempt, max_attempts, created_at, trace)
		VALUES ($1, $2, $3, $4, $5, 'available', $6, 0, $7, $8, $9)
		ON CONFLICT (binding, key) WHERE holds_key DO NOTHING`,
		r.ID, r.Binding, r.Key, r.Key != "", string(r.Payload), r.runAt, r.maxAttempts, r.createdAt, r.trace)
	return n == 1, err
}

// upsert adds a job or moves the available one that holds its key.
func (q *Queue) upsert(ctx context.Context, r row) (set bool, err error) {
	n, err := q.db.Exec(ctx, `
		INSERT INTO kit_job (id, binding, key, holds_key, payload, state, run_at, attempt, max_attempts, created_at, trace)
		VALUES ($1, $2, $3, $4, $5, 'available', $6, 0, $7, $8, $9)
		ON CONFLICT (binding, key) WHERE holds_key DO UPDATE SET payload = excluded.payload, run_at = excluded.run_at,
			trace = excluded.trace, attempt = 0, max_attempts = excluded.max_attempts, last_error = ''
		WHERE kit_job.state = 'available'`,
		r.ID, r.Binding, r.Key, true, string(r.Payload), r.runAt, r.maxAttempts, r.createdAt, r.trace)
	return n == 1, err
}

func (q *Queue) keyHolder(ctx context.Context, binding, key string) (id string, found bool, err error) {
	return database.Get(ctx, q.db, func(s database.Scanner) (id string, err error) {
		err = s.Scan(&id)
		return id, err
	}, `SELECT id FROM kit_job WHERE binding = $1 AND key = $2 AND holds_key`, binding, key)
}

// takeKey takes the key from a running job.
func (q *Queue) takeKey(ctx context.Context, binding, key string) error {
	_, err := q.db.Exec(ctx, `UPDATE kit_job SET holds_key = FALSE
		WHERE binding = $1 AND key = $2 AND holds_key AND state = 'running'`, binding, key)
	return err
}

func (q *Queue) cancelKey(ctx context.Context, binding, key string, now int64) error {
	_, err := q.db.Exec(ctx, `UPDATE kit_job SET holds_key = FALSE,
			state = CASE state WHEN 'available' THEN 'cancelled' ELSE state END,
			finished_at = CASE state WHEN 'available' THEN CAST($3 AS BIGINT) ELSE 0 END
		WHERE binding = $1 AND key = $2 AND holds_key`, binding, key, now)
	return err
}

// due returns, for each of the named bindings with a job that waits, when the first one is due; the earliest first. It
// costs one search of the index a binding, however many jobs wait.
func (q *Queue) due(ctx context.Context, names []string) ([]dueBinding, error) {
	return database.All(ctx, q.db, func(s database.Scanner) (d dueBinding, err error) {
		err = s.Scan(&d.name, &d.runAt)
		return d, err
	}, `
		SELECT name, run_at FROM (
			SELECT n.value AS name, (
				SELECT run_at FROM kit_job WHERE state = 'available' AND binding = n.value ORDER BY run_at LIMIT 1
			) AS run_at
			FROM `+database.Text(`json_each($1) AS n`, `jsonb_array_elements_text($1::jsonb) AS n (value)`)+`
		) AS first_job
		WHERE run_at IS NOT NULL ORDER BY run_at, name`, database.List(names))
}

type dueBinding struct {
	name  string
	runAt int64
}

// claim leases up to limit due jobs of a binding, in the order they are due.
func (q *Queue) claim(ctx context.Context, binding string, limit int, token string, now, until int64) ([]claimedJob, error) {
	var claimed []claimedJob
	err := q.db.InTx(ctx, func(ctx context.Context) (err error) {
		claimed, err = database.All(ctx, q.db, scanClaimed, `
			WITH due (job) AS MATERIALIZED (
				SELECT id FROM kit_job WHERE state = 'available' AND binding = $1 AND run_at <= $2
				ORDER BY run_at, id LIMIT $3 `+database.SkipLocked+`
			)
			UPDATE kit_job SET state = 'running', attempt = attempt + 1, lease_token = $4, lease_until = $5
			FROM due WHERE id = job
			RETURNING id, binding, key, payload, attempt, max_attempts, run_at, trace`,
			binding, now, limit, token, until)
		return err
	})
	return claimed, err
}

type claimedJob struct {
	Job
	maxAttempts int
	runAt       int64
	trace       string
}

func scanClaimed(s database.Scanner) (c claimedJob, err error) {
	var payload string
	err = s.Scan(&c.ID, &c.Binding, &c.Key, &payload, &c.Attempt, &c.maxAttempts, &c.runAt, &c.trace)
	c.Payload = []byte(payload)
	return c, err
}

// extend renews a lease and reports whether it still was ours.
func (q *Queue) extend(ctx context.Context, id, token string, until int64) (ours bool, err error) {
	n, err := q.db.Exec(ctx, `UPDATE kit_job SET lease_until = $3 WHERE id = $1 AND lease_token = $2`, id, token, until)
	return n == 1, err
}

// finish ends a job whose lease is still ours.
func (q *Queue) finish(ctx context.Context, id, token string, state State, reason string, now int64) (bool, error) {
	n, err := q.db.Exec(ctx, `UPDATE kit_job SET state = $3, holds_key = FALSE, lease_token = '', lease_until = 0,
			last_error = $4, finished_at = $5
		WHERE id = $1 AND lease_token = $2`, id, token, string(state), reason, now)
	return n == 1, err
}

// release puts a job whose lease is still ours back, refunding attempts; one that lost its key ends here.
func (q *Queue) release(ctx context.Context, id, token string, runAt int64, refund int, reason string, now int64) (bool, error) {
	n, err := q.db.Exec(ctx, `UPDATE kit_job SET attempt = attempt - $4, lease_token = '', lease_until = 0, last_error = $5,
			run_at = $3,
			state = CASE WHEN key = '' OR holds_key THEN 'available' ELSE 'cancelled' END,
			finished_at = CASE WHEN key = '' OR holds_key THEN 0 ELSE CAST($6 AS BIGINT) END
		WHERE id = $1 AND lease_token = $2`, id, token, runAt, refund, reason, now)
	return n == 1, err
}

// rescue puts jobs with an expired lease back; those without attempts left, and those that lost their key, end here. A
// lease that ends too late to be one is of a clock that was ahead.
func (q *Queue) rescue(ctx context.Context, now int64) (rescued int64, err error) {
	err = q.db.InTx(ctx, func(ctx context.Context) error {
		rescued, err = q.db.Exec(ctx, `
			WITH expired (job) AS MATERIALIZED (
				SELECT id FROM kit_job WHERE state = 'running' AND (lease_until <= $1 OR lease_until > $2)
				ORDER BY lease_until LIMIT 1000 `+database.SkipLocked+`
			)
			UPDATE kit_job SET lease_token = '', lease_until = 0, last_error = 'lease expired',
				holds_key = holds_key AND attempt < max_attempts,
				state = CASE WHEN key <> '' AND NOT holds_key THEN 'cancelled'
					WHEN attempt >= max_attempts THEN 'discarded' ELSE 'available' END,
				finished_at = CASE WHEN key <> '' AND NOT holds_key OR attempt >= max_attempts THEN $1 ELSE 0 END
			FROM expired WHERE id = job`, now, now+(lease+maxDoubt).Milliseconds())
		return err
	})
	return rescued, err
}

// sweepEnded deletes up to limit jobs that ended in the state before the instant.
func (q *Queue) sweepEnded(ctx context.Context, state State, before int64, limit int) (deleted int64, err error) {
	return q.db.Exec(ctx, `DELETE FROM kit_job WHERE id IN (
		SELECT id FROM kit_job WHERE state = $1 AND finished_at > 0 AND finished_at < $2 ORDER BY finished_at LIMIT $3)`,
		string(state), before, limit)
}

// moveTick moves the last tick of a schedule forward to tick and reports whether it was behind. A schedule never seen
// before starts at born.
func (q *Queue) moveTick(ctx context.Context, binding string, born, tick int64) (moved bool, err error) {
	if _, err := q.db.Exec(ctx, `INSERT INTO kit_cron (binding, last_tick) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		binding, born); err != nil {
		return false, err
	}
	n, err := q.db.Exec(ctx, `UPDATE kit_cron SET last_tick = $2 WHERE binding = $1 AND last_tick < $2`, binding, tick)
	return n == 1, err
}

// resetTick moves the last tick of a schedule back, if it is still the one given.
func (q *Queue) resetTick(ctx context.Context, binding string, last, tick int64) (moved bool, err error) {
	n, err := q.db.Exec(ctx, `UPDATE kit_cron SET last_tick = $3 WHERE binding = $1 AND last_tick = $2`, binding, last, tick)
	return n == 1, err
}

func (q *Queue) lastTick(ctx context.Context, binding string) (time.Time, error) {
	var ms int64
	err := q.db.QueryRow(ctx, `SELECT last_tick FROM kit_cron WHERE binding = $1`, binding).Scan(&ms)
	return time.UnixMilli(ms).UTC(), err
}
