package jobs

import (
	"context"
	"strings"
	"time"

	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bulk"
)

// row is what a new job consists of.
type row struct {
	Job
	runAt, createdAt int64
	maxAttempts      int
	trace            string
}

const jobColumns = `id, binding, key, holds_key, payload, state, run_at, attempt, max_attempts, created_at, trace`

// insertJobs adds jobs, those with a key unless it is held: on PostgreSQL any number, given as columns, on SQLite one.
var insertJobs = `INSERT INTO kit_job (` + jobColumns + `)
	` + database.Text(`VALUES ($1, $2, $3, $3 <> '', $4, 'available', $5, 0, $6, $7, $8)`, `SELECT id, binding, key, key <> '',
		payload, 'available', run_at, 0, max_attempts, created_at, trace
		FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[])
			AS n (id, binding, key, payload, run_at, max_attempts, created_at, trace)`) +
	`ON CONFLICT (binding, key) WHERE holds_key DO NOTHING`

func (r *row) values() []any {
	return []any{r.ID, r.Binding, r.Key, string(r.Payload), r.runAt, int64(r.maxAttempts), r.createdAt, r.trace}
}

// insert adds jobs, those with a key unless it is held, and returns how many it added.
func (q *Queue) insert(ctx context.Context, rows ...*row) (added int64, err error) {
	values := make([][]any, len(rows))
	for i, r := range rows {
		values[i] = r.values()
	}
	return q.writeAll(ctx, insertJobs, values)
}

// writeAll writes rows of text and integers, by one statement on PostgreSQL, and returns how many were changed.
func (q *Queue) writeAll(ctx context.Context, query string, rows [][]any) (changed int64, err error) {
	if q.db.Dialect() == database.PostgreSQL {
		return q.db.Exec(ctx, query, bulk.Columns(rows)...)
	}
	for _, row := range rows {
		n, err := q.db.Exec(ctx, query, row...)
		if err != nil {
			return changed, err
		}
		changed += n
	}
	return changed, nil
}

// upsert adds a job or moves the available one that holds its key.
func (q *Queue) upsert(ctx context.Context, r row) (set bool, err error) {
	n, err := q.db.Exec(ctx, `
		INSERT INTO kit_job (`+jobColumns+`)
		VALUES ($1, $2, $3, $4, $5, 'available', $6, 0, $7, $8, $9)
		ON CONFLICT (binding, key) WHERE holds_key DO UPDATE SET payload = excluded.payload, run_at = excluded.run_at,
			trace = excluded.trace, attempt = 0, max_attempts = excluded.max_attempts, last_error = ''
		WHERE kit_job.state = 'available'`,
		r.ID, r.Binding, r.Key, true, string(r.Payload), r.runAt, r.maxAttempts, r.createdAt, r.trace)
	return n == 1, err
}

func (q *Queue) keyHolder(ctx context.Context, binding, key string) (id string, found bool, err error) {
	return database.Get(ctx, q.db, scanID, `SELECT id FROM kit_job WHERE binding = $1 AND key = $2 AND holds_key`, binding, key)
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
	}, dueBindings, database.List(names))
}

var dueBindings = `
		SELECT name, run_at FROM (
			SELECT n.value AS name, (
				SELECT run_at FROM kit_job WHERE state = 'available' AND binding = n.value ORDER BY run_at LIMIT 1
			) AS run_at
			FROM ` + database.Text(`json_each($1) AS n`, `jsonb_array_elements_text($1::jsonb) AS n (value)`) + `
		) AS first_job
		WHERE run_at IS NOT NULL ORDER BY run_at, name`

const leasedJobs = `SELECT count(*) FROM kit_job WHERE state = 'running' AND lease_until > $1 AND lease_until <= $2`

// leased counts the jobs whose lease has not expired. A lease that ends implausibly late was
// written by a clock that was ahead, and does not count.
func (q *Queue) leased(ctx context.Context, now int64) (n int64, err error) {
	err = q.db.QueryRow(ctx, leasedJobs, now, now+(lease+maxDoubt).Milliseconds()).Scan(&n)
	return n, err
}

type dueBinding struct {
	name  string
	runAt int64
}

// dueJobs are the jobs of a binding that are due longest.
const dueJobs = ` FROM kit_job WHERE state = 'available' AND binding = $1 AND run_at <= $2
	ORDER BY run_at, id LIMIT $3 ` + database.SkipLocked

const claimedColumns = `id, binding, key, payload, attempt, max_attempts, run_at, trace`

// claim leases up to limit due jobs of a binding, those that are due longest. On SQLite, where nobody comes in between,
// it is a statement a job: one for all would make tables of its own, which cost more.
func (q *Queue) claim(ctx context.Context, binding string, limit int, token string, now, until int64) ([]claimedJob, error) {
	var claimed []claimedJob
	err := q.db.InTx(ctx, func(ctx context.Context) (err error) {
		if q.db.Dialect() == database.PostgreSQL {
			claimed, err = database.All(ctx, q.db, scanClaimed, `WITH due (job) AS MATERIALIZED (SELECT id`+dueJobs+`)
				UPDATE kit_job SET state = 'running', attempt = attempt + 1, lease_token = $4, lease_until = $5
				WHERE id IN (SELECT job FROM due) RETURNING `+claimedColumns, binding, now, limit, token, until)
			return err
		}
		claimed, err = database.All(ctx, q.db, scanClaimed, `SELECT `+claimedColumns+dueJobs, binding, now, limit)
		for i := 0; i < len(claimed) && err == nil; i++ {
			claimed[i].Attempt++
			_, err = q.db.Exec(ctx, `UPDATE kit_job SET state = 'running', attempt = $2, lease_token = $3, lease_until = $4
				WHERE id = $1`, claimed[i].ID, claimed[i].Attempt, token, until)
		}
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

// settle ends jobs whose lease is still ours or, where the state is available, puts them back and refunds attempts; one
// that lost its key ends there. The arguments are SQL for the values of an outcome.
func settle(state, runAt, refund, reason, now string) string {
	return strings.NewReplacer("@state", state, "@run_at", runAt, "@refund", refund, "@reason", reason, "@now", now, "\n", " ").Replace(
		`UPDATE kit_job SET lease_token = '', lease_until = 0, attempt = attempt - @refund, last_error = @reason,
			run_at = CASE WHEN @state = 'available' THEN @run_at ELSE kit_job.run_at END,
			holds_key = holds_key AND @state = 'available',
			state = CASE WHEN @state = 'available' AND key <> '' AND NOT holds_key THEN 'cancelled' ELSE @state END,
			finished_at = CASE WHEN @state = 'available' AND (key = '' OR holds_key) THEN 0 ELSE @now END`)
}

const (
	outcomes = `SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[])
		AS o (id, token, state, run_at, refund, reason, now)`
	ofOutcome = ` FROM n WHERE kit_job.id = n.id AND kit_job.lease_token = n.token`
)

var (
	// settleOne takes its values as columns on PostgreSQL.
	settleOne = database.Text(settle("$3", "$4", "$5", "$6", "$7")+` WHERE id = $1 AND lease_token = $2`,
		`WITH n AS (`+outcomes+`) `+settle("n.state", "n.run_at", "n.refund", "n.reason", "n.now")+ofOutcome)
	// settleFree is for PostgreSQL. It leaves out rows that others hold, and what it would wait for.
	settleFree = database.Text(``, `WITH given AS (`+outcomes+`), n AS MATERIALIZED (
			SELECT given.* FROM given JOIN kit_job AS j ON j.id = given.id AND j.lease_token = given.token FOR UPDATE OF j SKIP LOCKED
		) `+settle("n.state", "n.run_at", "n.refund", "n.reason", "n.now")+ofOutcome+` RETURNING kit_job.id`)
)

func (o *outcome) values() []any {
	return []any{o.id, o.token, string(o.state), o.runAt.UnixMilli(), int64(o.refund), o.reason, o.now}
}

// settleOne settles a job and reports whether its lease still was ours.
func (q *Queue) settleOne(ctx context.Context, o *outcome) (ours bool, err error) {
	n, err := q.writeAll(ctx, settleOne, [][]any{o.values()})
	return n == 1, err
}

// settleAll settles jobs and returns the ids of those whose lease still was ours; of those that it leaves out because
// others hold their rows it says nothing.
func (q *Queue) settleAll(ctx context.Context, all []*outcome) (settled map[string]bool, err error) {
	rows := make([][]any, len(all))
	for i, o := range all {
		rows[i] = o.values()
	}
	err = q.db.InTx(ctx, func(ctx context.Context) error {
		settled = make(map[string]bool, len(all))
		if q.db.Dialect() == database.PostgreSQL {
			ids, err := database.All(ctx, q.db, scanID, settleFree, bulk.Columns(rows)...)
			for _, id := range ids {
				settled[id] = true
			}
			return err
		}
		for i, row := range rows {
			n, err := q.db.Exec(ctx, settleOne, row...)
			if err != nil {
				return err
			}
			settled[all[i].id] = n == 1
		}
		return nil
	})
	return settled, err
}

func scanID(s database.Scanner) (id string, err error) {
	err = s.Scan(&id)
	return id, err
}

// finish completes a job whose lease is still ours.
func (q *Queue) finish(ctx context.Context, id, token string, now int64) (bool, error) {
	n, err := q.db.Exec(ctx, `UPDATE kit_job SET state = 'completed', holds_key = FALSE, lease_token = '', lease_until = 0,
			last_error = '', finished_at = $3
		WHERE id = $1 AND lease_token = $2`, id, token, now)
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
