package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bulk"
)

// store is the trail's events; store_chain.go has what seals them.
type store struct{ db *database.DB }

var insertEvents = bulk.New("audit_event", []string{
	"id TEXT", "occurred_at BIGINT", "action TEXT", "actor_kind TEXT", "actor_id TEXT", "actor_key_id TEXT",
	"subject_type TEXT", "subject_id TEXT", "targets TEXT", "outcome TEXT", "code TEXT", "request_id TEXT",
	"route TEXT", "environment TEXT", "detail TEXT", "commitment BYTEA", "hash BYTEA"}, "")

var insertPersonal = bulk.New("audit_personal", []string{"event_id TEXT", "salt BYTEA", "ip TEXT", "user_agent TEXT"}, "")

// insert writes events and, where there is any, their personal data.
func (s store) insert(ctx context.Context, events []Pending) error {
	rows, people := make([][]any, 0, len(events)), make([][]any, 0, len(events))
	for _, p := range events {
		e := p.entry
		rows = append(rows, []any{
			e.ID, e.OccurredAt.UnixMilli(), e.Action, string(e.Actor.Kind), e.Actor.ID, e.Actor.KeyID,
			e.Subject.Type, e.Subject.ID, p.targets, string(e.Outcome), e.Code, e.RequestID, e.Route, e.Environment,
			string(e.Detail), p.commitment, e.Hash})
		if !p.who.empty() {
			people = append(people, []any{e.ID, p.who.Salt, p.who.IP, p.who.UserAgent})
		}
	}
	if _, err := insertPersonal.Write(ctx, s.db, people); err != nil {
		return err
	}
	_, err := insertEvents.Write(ctx, s.db, rows)
	return err
}

// textOf is the form of targets that is kept, empty for none.
func textOf(targets []Target) (string, error) {
	if len(targets) == 0 {
		return "", nil
	}
	text, err := json.Marshal(targets)
	return string(text), err
}

// record is an event as stored, with what its hash is over.
type record struct {
	Entry
	targets          string
	commitment, salt []byte
}

const recordColumns = `e.id, e.occurred_at, e.action, e.actor_kind, e.actor_id, e.actor_key_id, e.subject_type,
	e.subject_id, e.targets, e.outcome, e.code, e.request_id, e.route, e.environment, e.detail, e.commitment, e.hash,
	p.salt, COALESCE(p.ip, ''), COALESCE(p.user_agent, '')
	FROM audit_event e LEFT JOIN audit_personal p ON p.event_id = e.id`

func scanRecord(row database.Scanner) (r record, err error) {
	var at int64
	var detail string
	err = row.Scan(&r.ID, &at, &r.Action, &r.Actor.Kind, &r.Actor.ID, &r.Actor.KeyID, &r.Subject.Type, &r.Subject.ID,
		&r.targets, &r.Outcome, &r.Code, &r.RequestID, &r.Route, &r.Environment, &detail, &r.commitment, &r.Hash,
		&r.salt, &r.IP, &r.UserAgent)
	r.OccurredAt = capability.Millis(at)
	if detail != "" {
		r.Detail = json.RawMessage(detail)
	}
	return r, err
}

// parseTargets fills Targets from the text that the hash is over.
func (r *record) parseTargets() error {
	if r.targets == "" {
		return nil
	}
	return json.Unmarshal([]byte(r.targets), &r.Targets)
}

func scanEntry(row database.Scanner) (Entry, error) {
	r, err := scanRecord(row)
	if err == nil {
		err = r.parseTargets()
	}
	return r.Entry, err
}

// list reads at most limit events with ids before the given one, newest first.
func (s store) list(ctx context.Context, f Filter, before string, limit int) ([]Entry, error) {
	where := f.conditions()
	if before != "" {
		where.add("e.id < $%d", before)
	}
	where.add("TRUE ORDER BY e.id DESC LIMIT $%d", limit)
	return database.All(ctx, s.db, scanEntry,
		`SELECT `+recordColumns+` WHERE `+where.text(), where.args...)
}

func (s store) event(ctx context.Context, id string) (Entry, bool, error) {
	return database.Get(ctx, s.db, scanEntry, `SELECT `+recordColumns+` WHERE e.id = $1`, id)
}

// erase removes the personal data of at most limit events.
func (s store) erase(ctx context.Context, f Filter, limit int) (erased int64, err error) {
	where := f.conditions()
	where.add("EXISTS (SELECT 1 FROM audit_personal p WHERE p.event_id = e.id) LIMIT $%d", limit)
	return s.db.Exec(ctx, `DELETE FROM audit_personal WHERE event_id IN (SELECT e.id FROM audit_event e
		WHERE `+where.text()+`)`, where.args...)
}

// firstID is not after any id drawn at an instant or later: ids start with 48
// bits of milliseconds, and those of a clock that jumped back run ahead of it.
func firstID(t time.Time) string {
	const letters = "0123456789abcdefghjkmnpqrstvwxyz"
	ms := uint64(max(t.UnixMilli(), 0)) << 2 // ten letters hold 50 bits
	var text [10]byte
	for i := range text {
		text[len(text)-1-i] = letters[ms>>(5*i)&31]
	}
	return string(text[:])
}

func (f Filter) conditions() *conditions {
	where := new(conditions)
	if f.Namespace != "" {
		where.add("e.action >= $%d", f.Namespace+"/")
		where.add("e.action < $%d", f.Namespace+"0") // the byte after "/"
	}
	where.equal("e.action", f.Action)
	where.equal("e.actor_kind", string(f.ActorKind))
	where.equal("e.actor_id", f.ActorID)
	where.equal("e.subject_type", f.Subject.Type)
	where.equal("e.subject_id", f.Subject.ID)
	where.equal("e.outcome", string(f.Outcome))
	if !f.From.IsZero() {
		where.add("e.occurred_at >= $%d", f.From.UnixMilli())
		where.add("e.id >= $%d", firstID(f.From))
	}
	if !f.To.IsZero() {
		where.add("e.occurred_at < $%d", f.To.UnixMilli())
	}
	return where
}

// conditions collects a WHERE clause and its arguments.
type conditions struct {
	texts []string
	args  []any
}

func (c *conditions) add(text string, arg any) {
	c.args = append(c.args, arg)
	c.texts = append(c.texts, fmt.Sprintf(text, len(c.args)))
}

func (c *conditions) text() string { return strings.Join(c.texts, " AND ") }

// equal compares a column unless value is empty; saying that the column is not
// empty either lets both databases use a partial index.
func (c *conditions) equal(column, value string) {
	if value != "" {
		c.add(column+" = $%d AND "+column+" <> ''", value)
	}
}
