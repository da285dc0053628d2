package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/bulk"
)

// store contains the SQL of events; that of the chains is in store_chain.go.
type store struct {
	db    *database.DB
	chunk int // rows per step of a scan
}

var insertEvents = bulk.New("audit_event", []string{
	"id TEXT", "occurred_at BIGINT", "action TEXT", "actor_kind TEXT", "actor_id TEXT", "actor_key_id TEXT",
	"subject_type TEXT", "subject_id TEXT", "targets TEXT", "outcome TEXT", "code TEXT", "request_id TEXT",
	"route TEXT", "environment TEXT", "detail TEXT", "commitment BYTEA", "hash BYTEA"}, "")

var insertPersonal = bulk.New("audit_personal", []string{"event_id TEXT", "salt BYTEA", "ip TEXT", "user_agent TEXT"}, "")

// insert writes events and their personal data, if any.
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

// textOf returns targets as stored, "" for none.
func textOf(targets []Target) (string, error) {
	if len(targets) == 0 {
		return "", nil
	}
	text, err := json.Marshal(targets)
	return string(text), err
}

// record is a stored event with the inputs of its hash.
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

// parseTargets sets Targets from the hashed text.
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

// A page of a list examines at most scanChunks times scanChunk events; tests set a smaller chunk.
const (
	scanChunk  = 5000
	scanChunks = 4
)

// list returns at most limit events with ids less than before, newest first. If no index serves the
// filter it examines a bounded number of events; next is the id to continue before, or "" at the
// end.
func (s store) list(ctx context.Context, f Filter, before string, limit int) (entries []Entry, next string, err error) {
	for chunk := 1; ; chunk++ {
		lowest := ""
		if f.scans() {
			if lowest, err = s.lowest(ctx, f, before); err != nil {
				return nil, "", err
			}
		}
		where := f.conditions()
		span(where, before, lowest)
		some, err := database.All(ctx, s.db, scanEntry, fmt.Sprintf(`SELECT `+recordColumns+` WHERE %s ORDER BY e.id DESC LIMIT $%d`,
			where.Text(), where.Next()), where.Args(limit-len(entries))...)
		if err != nil {
			return nil, "", err
		}
		entries = append(entries, some...)
		switch {
		case len(entries) == limit || lowest == "":
			return entries, "", nil
		case chunk == scanChunks:
			return entries, lowest, nil
		}
		before = lowest
	}
}

// lowest returns the id of the last event of the next chunk before an id, or "" if there are no
// more.
func (s store) lowest(ctx context.Context, f Filter, before string) (id string, err error) {
	where := f.seek()
	span(where, before, "")
	id, _, err = database.Get(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		fmt.Sprintf(`SELECT e.id FROM audit_event e WHERE %s ORDER BY e.id DESC LIMIT 1 OFFSET $%d`, where.Text(), where.Next()),
		where.Args(s.chunk-1)...)
	return id, err
}

// span adds the condition before > id >= lowest.
func span(where *database.Conditions, before, lowest string) {
	if before != "" {
		where.Add("e.id < $%d", before)
	}
	if lowest != "" {
		where.Add("e.id >= $%d", lowest)
	}
}

func (s store) event(ctx context.Context, id string) (Entry, bool, error) {
	return database.Get(ctx, s.db, scanEntry, `SELECT `+recordColumns+` WHERE e.id = $1`, id)
}

// erase removes the personal data of at most limit events.
func (s store) erase(ctx context.Context, f Filter, limit int) (erased int64, err error) {
	where := f.conditions()
	return s.db.Exec(ctx, fmt.Sprintf(`DELETE FROM audit_personal WHERE event_id IN (SELECT e.id FROM audit_event e
		WHERE %s AND EXISTS (SELECT 1 FROM audit_personal p WHERE p.event_id = e.id) LIMIT $%d)`, where.Text(), where.Next()), where.Args(limit)...)
}

// firstID returns an id that is not greater than any id created at t or later: ids start with 48
// bits of milliseconds, which do not decrease when the clock jumps back.
func firstID(t time.Time) string {
	const letters = "0123456789abcdefghjkmnpqrstvwxyz"
	ms := uint64(max(t.UnixMilli(), 0)) << 2 // ten letters hold 50 bits
	var text [10]byte
	for i := range text {
		text[len(text)-1-i] = letters[ms>>(5*i)&31]
	}
	return string(text[:])
}

// seek returns the conditions of a filter that use an index.
func (f Filter) seek() *database.Conditions {
	where := new(database.Conditions)
	where.Equal("e.actor_id", f.ActorID)
	where.Equal("e.subject_id", f.Subject.ID)
	if !f.From.IsZero() {
		where.Add("e.id >= $%d", firstID(f.From))
	}
	return where
}

// scans reports whether a filter has conditions that seek does not include.
func (f Filter) scans() bool { return f.conditions().Len() > f.seek().Len() }

func (f Filter) conditions() *database.Conditions {
	where := f.seek()
	if f.Namespace != "" {
		where.Begins("e.action", f.Namespace+"/")
	}
	where.Equal("e.action", f.Action)
	where.Equal("e.actor_kind", string(f.ActorKind))
	where.Equal("e.subject_type", f.Subject.Type)
	where.Equal("e.outcome", string(f.Outcome))
	if !f.From.IsZero() {
		where.Add("e.occurred_at >= $%d", f.From.UnixMilli())
	}
	if !f.To.IsZero() {
		where.Add("e.occurred_at < $%d", f.To.UnixMilli())
	}
	return where
}
