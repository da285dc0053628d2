package events

import (
	"context"
	"encoding/json"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/text"
)

// store contains the SQL of the outbox.
type store struct{ db *database.DB }

func (s store) insert(ctx context.Context, id, kind, data string, subjects []string, now time.Time) error {
	if _, err := s.db.Exec(ctx, `INSERT INTO events_message (id, type, data, created_at) VALUES ($1, $2, $3, $4)`,
		id, kind, data, now.UnixMilli()); err != nil {
		return err
	}
	if len(subjects) == 0 {
		return nil
	}
	_, err := s.db.Exec(ctx, database.Text(
		`INSERT INTO events_subject (subject, message_id) SELECT value, $2 FROM json_each($1)`,
		`INSERT INTO events_subject (subject, message_id) SELECT value, $2 FROM jsonb_array_elements_text($1::jsonb) AS n (value)`),
		database.List(subjects), id)
	return err
}

func (s store) insertDelivery(ctx context.Context, endpoint, messageID string, state State, reason string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO events_delivery (endpoint, message_id, state, last_error, updated_at) VALUES ($1, $2, $3, $4, $5)`,
		endpoint, messageID, string(state), reason, now.UnixMilli())
	return err
}

// disabled returns the names of disabled endpoints.
func (s store) disabled(ctx context.Context) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT name FROM events_endpoint WHERE disabled_at > 0`)
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

// waiting is a pending delivery as a run read it.
type waiting struct {
	task
	message
	made      int64 // attempts
	updatedAt int64
}

// pending returns the message of a delivery that is still pending.
func (s store) pending(ctx context.Context, t task) (waiting, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (w waiting, err error) {
		w.task = t
		w.message, err = scanMessage(row, &w.made, &w.updatedAt)
		return w, err
	}, `SELECT m.id, m.type, m.data, m.created_at, d.attempts, d.updated_at FROM events_delivery d JOIN events_message m ON m.id = d.message_id
		WHERE d.endpoint = $1 AND d.message_id = $2 AND d.state = 'pending'`, t.Endpoint, t.MessageID)
}

func scanMessage(row database.Scanner, more ...any) (m message, err error) {
	var data string
	var created int64
	err = row.Scan(append([]any{&m.id, &m.Type, &data, &created}, more...)...)
	m.Data, m.Timestamp = json.RawMessage(data), capability.Millis(created)
	return m, err
}

// settle records the result of an attempt. It fails with errOvertaken if the delivery has changed
// since the run read it.
func (s store) settle(ctx context.Context, w waiting, state State, attempts int64, status int, reason string, now time.Time) error {
	n, err := s.db.Exec(ctx, `UPDATE events_delivery SET state = $3, attempts = $4, last_status = $5, last_error = $6, updated_at = $7
		WHERE endpoint = $1 AND message_id = $2 AND state = 'pending' AND updated_at = $8`,
		w.Endpoint, w.MessageID, string(state), attempts, status, cut(reason), max(now.UnixMilli(), w.updatedAt+1), w.updatedAt)
	if err == nil && n == 0 {
		err = errOvertaken
	}
	return err
}

// restart makes a delivery pending again; a run that has read it before cannot settle it.
func (s store) restart(ctx context.Context, t task, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE events_delivery SET state = 'pending', attempts = 0, last_status = 0, last_error = '',
		updated_at = CASE WHEN updated_at < $3 THEN $3 ELSE updated_at + 1 END WHERE endpoint = $1 AND message_id = $2`,
		t.Endpoint, t.MessageID, now.UnixMilli())
	return err
}

// cut returns a reason that can be stored.
func cut(reason string) string { return text.Storable(reason[:min(len(reason), maxReason)]) }

// endpoint returns the status of an endpoint; ok is false if it is neither failing nor disabled.
func (s store) endpoint(ctx context.Context, name string) (status EndpointStatus, ok bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (status EndpointStatus, err error) {
		var since, disabled int64
		err = row.Scan(&since, &disabled, &status.Reason)
		if since > 0 {
			status.FailingSince = capability.Millis(since)
		}
		if disabled > 0 {
			status.DisabledAt = capability.Millis(disabled)
		}
		return status, err
	}, `SELECT failing_since, disabled_at, reason FROM events_endpoint WHERE name = $1`, name)
}

// noteTrouble records that the endpoint failed and returns since when it fails.
func (s store) noteTrouble(ctx context.Context, endpoint string, now time.Time) (since time.Time, err error) {
	ms, _, err := database.Get(ctx, s.db, func(row database.Scanner) (ms int64, err error) { return ms, row.Scan(&ms) },
		`INSERT INTO events_endpoint (name, failing_since) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET failing_since =
			CASE WHEN events_endpoint.failing_since = 0 THEN excluded.failing_since ELSE events_endpoint.failing_since END
		RETURNING failing_since`, endpoint, now.UnixMilli())
	return time.UnixMilli(ms), err
}

func (s store) disable(ctx context.Context, endpoint, reason string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO events_endpoint (name, disabled_at, reason) VALUES ($1, $2, $3)
		ON CONFLICT (name) DO UPDATE SET disabled_at = excluded.disabled_at, reason = excluded.reason`, endpoint, now.UnixMilli(), reason)
	return err
}

// recover deletes the failures of an endpoint; one that was disabled meanwhile stays disabled. If
// the endpoint had no failure, nothing is written, so that deliveries do not wait for one another.
func (s store) recover(ctx context.Context, endpoint string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM events_endpoint WHERE name = $1 AND disabled_at = 0`, endpoint)
	return err
}

// enable deletes the status of an endpoint.
func (s store) enable(ctx context.Context, endpoint string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM events_endpoint WHERE name = $1`, endpoint)
	return err
}

// count returns the number of deliveries of an endpoint in a state, up to a bound.
func (s store) count(ctx context.Context, endpoint string, state State, most int) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM events_delivery
		WHERE endpoint = $1 AND state = $2 AND state <> 'delivered' LIMIT $3) AS n`, endpoint, string(state), most).Scan(&n)
	return n, err
}

// deliveries lists the deliveries to an endpoint with ids less than below, newest first.
func (s store) deliveries(ctx context.Context, f DeliveryFilter, below string, limit int) ([]Delivery, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (d Delivery, err error) {
		var created, updated int64
		err = row.Scan(&d.MessageID, &d.Endpoint, &d.Type, &d.State, &d.Attempts, &created, &updated, &d.LastStatus, &d.LastError)
		d.CreatedAt, d.UpdatedAt = capability.Millis(created), capability.Millis(updated)
		return d, err
	}, `SELECT d.message_id, d.endpoint, m.type, d.state, d.attempts, m.created_at, d.updated_at, d.last_status, d.last_error
		FROM events_delivery d JOIN events_message m ON m.id = d.message_id
		WHERE d.endpoint = $1 AND d.message_id < $2 AND (CAST($3 AS TEXT) = '' OR d.state = $3)
		ORDER BY d.message_id DESC LIMIT $4`, f.Endpoint, below, string(f.State), limit)
}

// failedSince lists the failed messages of an endpoint after an id, oldest first.
func (s store) failedSince(ctx context.Context, endpoint string, since time.Time, after string, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT d.message_id FROM events_delivery d JOIN events_message m ON m.id = d.message_id
		WHERE d.endpoint = $1 AND d.state = 'failed' AND d.message_id > $2 AND m.created_at >= $3
		ORDER BY d.message_id LIMIT $4`, endpoint, after, since.UnixMilli(), limit)
}

func (s store) has(ctx context.Context, endpoint, messageID string) (ok bool, err error) {
	_, ok, err = database.Get(ctx, s.db, scanText, `SELECT message_id FROM events_delivery WHERE endpoint = $1 AND message_id = $2`,
		endpoint, messageID)
	return ok, err
}

func (s store) exists(ctx context.Context, messageID string) (ok bool, err error) {
	_, ok, err = database.Get(ctx, s.db, scanText, `SELECT id FROM events_message WHERE id = $1`, messageID)
	return ok, err
}

// about lists the messages about a subject after an id.
func (s store) about(ctx context.Context, subject, after string, limit int) ([]message, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (message, error) { return scanMessage(row) },
		`SELECT m.id, m.type, m.data, m.created_at FROM events_subject s JOIN events_message m ON m.id = s.message_id
		WHERE s.subject = $1 AND s.message_id > $2 ORDER BY s.message_id LIMIT $3`, subject, after, limit)
}

// lock reads and locks a message that the transaction will change.
func (s store) lock(ctx context.Context, messageID string) (message, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (message, error) { return scanMessage(row) },
		`SELECT id, type, data, created_at FROM events_message WHERE id = $1 `+database.ForUpdate, messageID)
}

// replace changes the data of a message and removes a subject.
func (s store) replace(ctx context.Context, messageID, data, subject string) error {
	if _, err := s.db.Exec(ctx, `UPDATE events_message SET data = $2 WHERE id = $1`, messageID, data); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `DELETE FROM events_subject WHERE subject = $1 AND message_id = $2`, subject, messageID)
	return err
}

// before lists messages from before a time; it reads only the oldest ones.
func (s store) before(ctx context.Context, at time.Time, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT id FROM (SELECT id, created_at FROM events_message ORDER BY id LIMIT $2) AS oldest
		WHERE created_at < $1`, at.UnixMilli(), limit)
}

// removeTold removes a message that has no pending delivery. Concurrent deliveries of the message
// are serialized, so that the last one sees the others.
func (s store) removeTold(ctx context.Context, messageID string) error {
	if _, _, err := database.Get(ctx, s.db, scanText, `SELECT id FROM events_message WHERE id = $1 `+database.ForUpdate,
		messageID); err != nil {
		return err
	}
	_, waits, err := database.Get(ctx, s.db, scanText,
		`SELECT endpoint FROM events_delivery WHERE message_id = $1 AND state = 'pending' LIMIT 1`, messageID)
	if err != nil || waits {
		return err
	}
	return s.remove(ctx, []string{messageID})
}

// remove removes messages with their deliveries and subjects.
func (s store) remove(ctx context.Context, ids []string) error {
	list := database.List(ids)
	for _, from := range []string{"events_delivery WHERE message_id", "events_subject WHERE message_id", "events_message WHERE id"} {
		if _, err := s.db.Exec(ctx, `DELETE FROM `+from+` `+database.InList(1), list); err != nil {
			return err
		}
	}
	return nil
}
