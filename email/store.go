package email

import (
	"context"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

type store struct{ db *database.DB }

// newJob is a new row of email_job.
type newJob struct {
	id                                  string
	state                               State
	category                            Category
	addressKey, address, subject        string
	template, messageID, idempotencyKey string
	requestHash                         []byte
	userID, quota                       string
	maxAttempts                         int
	now, due                            time.Time
}

// lockAddress serializes the messages to one address until the transaction ends, so that each
// counts the others.
func (s store) lockAddress(ctx context.Context, addressKey string) error {
	return s.db.Lock(ctx, "email "+addressKey)
}

// recent counts the messages of a quota to an address since an instant.
func (s store) recent(ctx context.Context, addressKey, quota string, since time.Time) (n int, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM email_job WHERE address_key = $1 AND created_at > $2 AND quota = $3`,
		addressKey, since.UnixMilli(), quota).Scan(&n)
	return n, err
}

// insertJob adds a job; it returns false if the idempotency key is taken.
func (s store) insertJob(ctx context.Context, j newJob) (added bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO email_job (id, state, category, address_key, address, subject, template, message_id,
			idempotency_key, request_hash, max_attempts, next_attempt_at, round_began_at, user_id, created_at, quota)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12, $13, $14, $15)
		ON CONFLICT (idempotency_key) WHERE idempotency_key <> '' DO NOTHING`,
		j.id, string(j.state), string(j.category), j.addressKey, j.address, j.subject, j.template, j.messageID,
		j.idempotencyKey, j.requestHash, j.maxAttempts, j.due.UnixMilli(), j.userID, j.now.UnixMilli(), j.quota)
	return n == 1, err
}

func (s store) insertMessage(ctx context.Context, jobID string, sealed []byte, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO email_message (job_id, sealed, created_at) VALUES ($1, $2, $3)`,
		jobID, sealed, now.UnixMilli())
	return err
}

func (s store) message(ctx context.Context, jobID string) (sealed []byte, found bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (b []byte, err error) { return b, row.Scan(&b) },
		`SELECT sealed FROM email_message WHERE job_id = $1`, jobID)
}

func (s store) jobOfKey(ctx context.Context, key string) (jobID string, hash []byte, found bool, err error) {
	jobID, found, err = database.Get(ctx, s.db, func(row database.Scanner) (id string, err error) {
		return id, row.Scan(&id, &hash)
	}, `SELECT id, request_hash FROM email_job WHERE idempotency_key = $1 AND idempotency_key <> ''`, key)
	return jobID, hash, found, err
}

// moveJob changes the state of a job if it has the state from.
func (s store) moveJob(ctx context.Context, jobID string, to, from State) (moved bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE email_job SET state = $2 WHERE id = $1 AND state = $3`, jobID, string(to), string(from))
	return n == 1, err
}

// requeue starts a new round of attempts, if the message is still stored.
func (s store) requeue(ctx context.Context, jobID string, from State, now time.Time) (requeued bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE email_job SET state = 'queued', attempts = 0, pinned = FALSE, next_attempt_at = $3, round_began_at = $3
		WHERE id = $1 AND state = $2 AND EXISTS (SELECT 1 FROM email_message WHERE job_id = $1)`,
		jobID, string(from), now.UnixMilli())
	return n == 1, err
}

// atOnce runs fn in one transaction on SQLite: a read by itself begins without the pages that it had before a write. On
// PostgreSQL it runs statements by themselves, because a transaction takes two more ways to the server.
func (s store) atOnce(ctx context.Context, fn func(ctx context.Context) error) error {
	if s.db.Dialect() == database.PostgreSQL {
		return fn(ctx)
	}
	return s.db.InTx(ctx, fn)
}

// delivery is the input of an attempt.
type delivery struct {
	id, address, addressKey string
	userID                  string
	category                Category
	attempts, maxAttempts   int
	roundBeganAt            time.Time
	pinnedTo                string
	sealed                  []byte
}

// due returns a message that is to be sent.
func (s store) due(ctx context.Context, jobID string) (delivery, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (d delivery, err error) {
		var began int64
		err = row.Scan(&d.id, &d.address, &d.addressKey, &d.category, &d.attempts, &d.maxAttempts, &began, &d.pinnedTo, &d.sealed, &d.userID)
		d.roundBeganAt = time.UnixMilli(began)
		return d, err
	}, `SELECT j.id, j.address, j.address_key, j.category, j.attempts, j.max_attempts, j.round_began_at,
			CASE WHEN j.pinned THEN j.provider ELSE '' END, m.sealed, j.user_id
		FROM email_job j LEFT JOIN email_message m ON m.job_id = j.id
		WHERE j.id = $1 AND j.state IN ('queued', 'sending')`, jobID)
}

// beginLater postpones the round of a message that was not tried yet.
func (s store) beginLater(ctx context.Context, jobID string, at time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE email_job SET round_began_at = $2, next_attempt_at = $2
		WHERE id = $1 AND attempts = 0 AND state = 'queued'`, jobID, at.UnixMilli())
	return err
}

// begin counts an attempt; it returns false if the job was canceled in the meantime.
func (s store) begin(ctx context.Context, jobID string) (begun bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE email_job SET state = 'sending', attempts = attempts + 1
		WHERE id = $1 AND state IN ('queued', 'sending')`, jobID)
	return n == 1, err
}

// refund takes back an attempt that was begun and not made.
func (s store) refund(ctx context.Context, jobID string) error {
	_, err := s.db.Exec(ctx, `UPDATE email_job SET state = 'queued', attempts = attempts - 1
		WHERE id = $1 AND state = 'sending'`, jobID)
	return err
}

// outcomeNote is the record of an attempt.
type outcomeNote struct {
	outcome
	at, nextAttempt time.Time
	lastError       string
}

// settle records an outcome; it returns false if the job was erased in the meantime, or if a report
// about the message was recorded before the outcome and the outcome is not that it was sent. Later
// states of a sent message, such as delivered, are not overwritten.
func (s store) settle(ctx context.Context, jobID string, o outcomeNote) (settled bool, err error) {
	sentAt, next := int64(0), int64(0)
	if o.state == StateSent {
		sentAt = o.at.UnixMilli()
	}
	if o.state == StateQueued {
		next = o.nextAttempt.UnixMilli()
	}
	n, err := s.db.Exec(ctx, `UPDATE email_job SET state = CASE WHEN state IN ('queued', 'sending') THEN $2 ELSE state END,
			provider = $3, provider_message_id = $4, pinned = $5, sent_at = $6, next_attempt_at = $7, last_error = $8
		WHERE id = $1 AND (state IN ('queued', 'sending') OR
			($2 = 'sent' AND sent_at = 0 AND state IN ('delivered', 'bounced', 'complained')))`,
		jobID, string(o.state), o.provider, o.providerID, o.pinned, sentAt, next, o.lastError)
	return n == 1, err
}

// useWarmup takes one of a day's messages, if one is left.
func (s store) useWarmup(ctx context.Context, provider string, day, allowance int64) (ok bool, err error) {
	if allowance < 1 {
		return false, nil
	}
	n, err := s.db.Exec(ctx, `INSERT INTO email_warmup (provider, day, used) VALUES ($1, $2, 1)
		ON CONFLICT (provider, day) DO UPDATE SET used = email_warmup.used + 1 WHERE email_warmup.used < $3`, provider, day, allowance)
	return n == 1, err
}

const jobColumns = `id, state, category, address_key, address, subject, template, message_id, idempotency_key, provider,
	provider_message_id, pinned, attempts, max_attempts, next_attempt_at, last_error, user_id, created_at, sent_at, delivered_at`

func scanJob(row database.Scanner) (j Job, err error) {
	var template, key, provider, providerID, lastError, userID string
	var next, created, sent, delivered int64
	err = row.Scan(&j.ID, &j.State, &j.Category, &j.addressKey, &j.To, &j.Subject, &template, &j.MessageID, &key, &provider,
		&providerID, &j.pinned, &j.Attempts, &j.MaxAttempts, &next, &lastError, &userID, &created, &sent, &delivered)
	j.Template, j.IdempotencyKey, j.Provider = optional.Text(template), optional.Text(key), optional.Text(provider)
	j.ProviderMessageID, j.UserID = optional.Text(providerID), optional.Text(userID)
	j.CreatedAt, j.SentAt, j.DeliveredAt = capability.Millis(created), optional.Time(sent), optional.Time(delivered)
	if j.State == StateQueued || j.State == StateSending {
		j.NextAttemptAt = optional.Time(next)
	}
	j.LastError = []byte("null")
	if lastError != "" {
		j.LastError = []byte(lastError)
	}
	return j, err
}

func (s store) job(ctx context.Context, jobID string) (Job, bool, error) {
	return database.Get(ctx, s.db, scanJob, `SELECT `+jobColumns+` FROM email_job WHERE id = $1`, jobID)
}

// lockJob locks a job against erasure until the transaction ends.
func (s store) lockJob(ctx context.Context, jobID string) (Job, bool, error) {
	return database.Get(ctx, s.db, scanJob, `SELECT `+jobColumns+` FROM email_job WHERE id = $1 `+database.ForUpdate, jobID)
}

// jobs lists jobs after an ID, newest first.
func (s store) jobs(ctx context.Context, f JobFilter, after jobKey, limit int) ([]Job, error) {
	where := new(database.Conditions)
	where.Equal("state", string(f.State))
	where.Equal("address_key", f.To)
	where.Equal("template", f.Template)
	where.Equal("category", string(f.Category))
	if !f.Since.IsZero() {
		where.Add("created_at >= $%d", f.Since.UnixMilli())
	}
	if !f.Until.IsZero() {
		where.Add("created_at < $%d", f.Until.UnixMilli())
	}
	at := where.Next()
	return database.All(ctx, s.db, scanJob, fmt.Sprintf(`SELECT `+jobColumns+` FROM email_job
		WHERE %s AND (created_at, id) < ($%d, $%d) ORDER BY created_at DESC, id DESC LIMIT $%d`, where.Text(), at, at+1, at+2),
		where.Args(after.created, after.id, limit)...)
}

// jobKey is the position of a job in a list.
type jobKey struct {
	created int64
	id      string
}

// reported returns and locks the job that a provider or a bounce reports about.
func (s store) reported(ctx context.Context, messageID, providerID string) (Job, bool, error) {
	return database.Get(ctx, s.db, scanJob, `SELECT `+jobColumns+` FROM email_job
		WHERE (message_id = $1 AND $1 <> '') OR (provider_message_id = $2 AND provider_message_id <> '') ORDER BY id DESC LIMIT 1 `+database.ForUpdate,
		messageID, providerID)
}

// jobsOf lists the IDs of the jobs that have a user ID or that, without one, went to one of the
// addresses, in order, after an ID.
func (s store) jobsOf(ctx context.Context, userID string, addressKeys []string, after string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT id FROM email_job WHERE user_id = $1 AND user_id <> '' AND id > $3
		UNION SELECT id FROM email_job WHERE address_key `+database.InList(2)+` AND user_id = '' AND id > $3
		ORDER BY id LIMIT $4`, userID, database.List(addressKeys), after, limit)
}

// jobsTo lists the IDs of the jobs of a quota to an address that have the user ID or none.
func (s store) jobsTo(ctx context.Context, userID, addressKey, quota string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT id FROM email_job WHERE address_key = $1 AND quota = $2 AND user_id IN ('', $3)
		ORDER BY id LIMIT $4`, addressKey, quota, userID, limit)
}

// lockJobTo locks a job to an address until the end of the transaction, so that no erasure passes it;
// it reports whether there is one.
func (s store) lockJobTo(ctx context.Context, addressKey string) (found bool, err error) {
	_, found, err = database.Get(ctx, s.db, scanText, `SELECT id FROM email_job WHERE address_key = $1 LIMIT 1 `+database.ForUpdate, addressKey)
	return found, err
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// addressesOf lists the keys of the addresses to which a user's jobs were sent.
func (s store) addressesOf(ctx context.Context, userID string) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT DISTINCT address_key FROM email_job WHERE user_id = $1 AND user_id <> ''`, userID)
}

// belongings are the tables whose rows belong to a job. Their foreign keys prevent a concurrent
// attempt from adding a row to a job that is being removed.
var belongings = []string{"email_event", "email_message", "email_mailbox"}

// removeJobs deletes jobs with all rows that belong to them.
func (s store) removeJobs(ctx context.Context, jobIDs []string) (n int64, err error) {
	list := database.List(jobIDs)
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		_, err := database.All(ctx, s.db, scanText, `SELECT id FROM email_job WHERE id `+database.InList(1)+` ORDER BY id `+database.ForUpdate, list)
		if err != nil {
			return err
		}
		for _, table := range belongings {
			if _, err := s.db.Exec(ctx, `DELETE FROM `+table+` WHERE job_id `+database.InList(1), list); err != nil {
				return err
			}
		}
		n, err = s.db.Exec(ctx, `DELETE FROM email_job WHERE id `+database.InList(1), list)
		return err
	})
	return n, err
}

// report changes a job that is sending or sent to a reported state: a worse report overrides an
// earlier one, and a late better one changes nothing.
func (s store) report(ctx context.Context, jobID string, to State, now time.Time) (moved bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE email_job SET state = $2,
			delivered_at = CASE WHEN $2 = 'delivered' THEN CAST($3 AS BIGINT) ELSE delivered_at END
		WHERE id = $1 AND (state IN ('sending', 'sent') OR (state = 'delivered' AND $2 IN ('bounced', 'complained'))
			OR (state = 'bounced' AND $2 = 'complained'))`, jobID, string(to), now.UnixMilli())
	return n == 1, err
}

// maxEvents bounds the events that anyone with a link can add to one job.
const maxEvents = 200

func (s store) insertEvent(ctx context.Context, jobID string, event Event, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO email_event (id, job_id, type, at, machine, url, detail)
		SELECT $1, id, $3, $4, $5, $6, $7 FROM email_job
		WHERE id = $2 AND (SELECT count(*) FROM email_event WHERE job_id = $2) < $8`,
		id.New(now), jobID, event.Type, now.UnixMilli(), event.Machine, event.URL, event.Detail, maxEvents)
	return err
}

func (s store) events(ctx context.Context, jobID string) ([]Event, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (e Event, err error) {
		var at int64
		err = row.Scan(&e.Type, &at, &e.Machine, &e.URL, &e.Detail)
		e.At = capability.Millis(at)
		return e, err
	}, `SELECT type, at, machine, url, detail FROM email_event WHERE job_id = $1 ORDER BY id`, jobID)
}

// softBounces counts the temporary bounces of an address.
func (s store) softBounces(ctx context.Context, addressKey string, since time.Time) (n int, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM email_event v JOIN email_job j ON j.id = v.job_id
		WHERE j.address_key = $1 AND v.type = 'bounced' AND v.at > $2`, addressKey, since.UnixMilli()).Scan(&n)
	return n, err
}

func (s store) states(ctx context.Context, ids []string) (map[string]State, error) {
	type pair struct {
		id    string
		state State
	}
	pairs, err := database.All(ctx, s.db, func(row database.Scanner) (p pair, err error) {
		return p, row.Scan(&p.id, &p.state)
	}, `SELECT id, state FROM email_job WHERE id `+database.InList(1), database.List(ids))
	states := make(map[string]State, len(pairs))
	for _, p := range pairs {
		states[p.id] = p.state
	}
	return states, err
}

// softBouncing returns which of some addresses have soft-bounced since an instant.
func (s store) softBouncing(ctx context.Context, addressKeys []string, since time.Time) ([]string, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (key string, err error) { return key, row.Scan(&key) },
		`SELECT DISTINCT j.address_key FROM email_job j JOIN email_event v ON v.job_id = j.id
		WHERE j.address_key `+database.InList(1)+` AND j.created_at > $2 AND v.type = 'bounced' AND v.at > $3`,
		database.List(addressKeys), since.Add(-bounceDelay).UnixMilli(), since.UnixMilli())
}

// bounceDelay is the maximum delay of a bounce after its mail.
const bounceDelay = 7 * day

func (s store) countJobs(ctx context.Context, state State) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM email_job WHERE state = $1`, string(state)).Scan(&n)
	return n, err
}

type sealedKey struct {
	number int64
	sealed []byte
}

func (s store) sealedKeys(ctx context.Context, table string) ([]sealedKey, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (k sealedKey, err error) {
		return k, row.Scan(&k.number, &k.sealed)
	}, `SELECT number, sealed FROM `+table+` ORDER BY number`)
}

func (s store) lastKey(ctx context.Context, table string) (number int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COALESCE(max(number), 0) FROM `+table).Scan(&number)
	return number, err
}

// insertKey adds a key; it returns false if another node took the number.
func (s store) insertKey(ctx context.Context, table string, number int64, sealed []byte, now time.Time) (added bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO `+table+` (number, sealed, created_at) VALUES ($1, $2, $3) ON CONFLICT (number) DO NOTHING`,
		number, sealed, now.UnixMilli())
	return n == 1, err
}
