package support

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
)

// store contains all SQL of support.
type store struct{ db *database.DB }

const threadColumns = `t.id, t.channel, t.state, t.subject, t.user_id, t.from_address, t.from_key, t.link_source, t.verified,
	t.inbox, t.related_id, t.declared_category, t.category, t.priority, t.sentiment, t.summary, t.confidence, t.classified_by,
	t.classified_at, t.classified_count, t.auth_failed, t.starred, t.needs_reply, t.spam, t.suspicious, t.assignee,
	t.snoozed_until, t.message_count, t.first_replied_at, t.last_inbound_at, t.last_outbound_at, t.last_at, t.created_at,
	t.archived_at`

func scanThread(row database.Scanner) (t Thread, err error) {
	var user, from, link, related, declared, assignee string
	var classified, snoozed, replied, inbound, outbound, created, archived int64
	err = row.Scan(&t.ID, &t.Channel, &t.State, &t.Subject, &user, &from, &t.fromKey, &link, &t.verified,
		&t.inbox, &related, &declared, &t.Category, &t.Priority, &t.Sentiment, &t.Summary, &t.Confidence, &t.By,
		&classified, &t.classifiedOfCount, &t.authFailed, &t.Flags.Starred, &t.Flags.NeedsReply, &t.Flags.Spam,
		&t.Flags.Suspicious, &assignee, &snoozed, &t.MessageCount, &replied, &inbound, &outbound, &t.lastAt, &created, &archived)
	t.UserID, t.FromAddress, t.RelatedThreadID = optional.Text(user), optional.Text(from), optional.Text(related)
	t.DeclaredCategory, t.Flags.Assignee = optional.Text(declared), optional.Text(assignee)
	if link != "" {
		source := LinkSource(link)
		t.AccountLinkSource = &source
	}
	t.ClassifiedAt, t.Flags.SnoozedUntil, t.FirstRepliedAt = optional.Time(classified), optional.Time(snoozed), optional.Time(replied)
	t.LastInboundAt, t.LastOutboundAt, t.ArchivedAt = optional.Time(inbound), optional.Time(outbound), optional.Time(archived)
	t.CreatedAt = capability.Millis(created)
	return t, err
}

func (s store) thread(ctx context.Context, id string) (Thread, bool, error) {
	return database.Get(ctx, s.db, scanThread, `SELECT `+threadColumns+` FROM support_thread t WHERE t.id = $1`, id)
}

// lockThread reads and locks a thread that the transaction will change.
func (s store) lockThread(ctx context.Context, id string) (Thread, bool, error) {
	return database.Get(ctx, s.db, scanThread, `SELECT `+threadColumns+` FROM support_thread t WHERE t.id = $1 `+database.ForUpdate, id)
}

// insertThread inserts a thread; its first message is inbound.
func (s store) insertThread(ctx context.Context, t Thread, now time.Time) error {
	link := ""
	if t.AccountLinkSource != nil {
		link = string(*t.AccountLinkSource)
	}
	_, err := s.db.Exec(ctx, `INSERT INTO support_thread (id, channel, state, subject, user_id, from_address, from_key,
		link_source, verified, inbox, related_id, declared_category, category, priority, sentiment, summary, confidence,
		classified_by, classified_at, classified_count, auth_failed, starred, needs_reply, spam, suspicious, assignee,
		snoozed_until, message_count, first_replied_at, last_inbound_at, last_outbound_at, last_at, created_at, archived_at)
		VALUES ($1, $2, 'open', $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'normal', 'neutral', '', 0, 'none', 0, 0, $13, $14,
			$15, $14, $16, '', 0, 1, 0, $17, 0, $17, $17, 0)`,
		t.ID, string(t.Channel), t.Subject, optional.TextOf(t.UserID), optional.TextOf(t.FromAddress), t.fromKey, link, t.verified,
		t.inbox, optional.TextOf(t.RelatedThreadID), optional.TextOf(t.DeclaredCategory), CategoryUncategorized, t.authFailed, false,
		t.Flags.NeedsReply, t.Flags.Suspicious, now.UnixMilli())
	return err
}

// inbound counts another message of the customer, which reopens the thread and ends its snooze. A
// message from a program needs no reply.
func (s store) inbound(ctx context.Context, id, declared string, needsReply, suspicious bool, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE support_thread SET state = 'open', archived_at = 0, snoozed_until = 0,
			message_count = message_count + 1, last_inbound_at = $2, last_at = $2, needs_reply = (needs_reply OR $3),
			suspicious = (suspicious OR $4),
			declared_category = CASE WHEN declared_category = '' THEN $5 ELSE declared_category END
		WHERE id = $1`, id, now.UnixMilli(), needsReply, suspicious, declared)
	return err
}

// outbound counts a reply; address and key are the recipient of a reply by mail, else empty.
func (s store) outbound(ctx context.Context, id, address, key string, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE support_thread SET message_count = message_count + 1, last_outbound_at = $2, last_at = $2,
			needs_reply = FALSE, snoozed_until = 0,
			first_replied_at = CASE WHEN first_replied_at = 0 THEN $2 ELSE first_replied_at END,
			from_address = CASE WHEN CAST($3 AS TEXT) = '' THEN from_address ELSE $3 END,
			from_key = CASE WHEN CAST($4 AS TEXT) = '' THEN from_key ELSE $4 END
		WHERE id = $1`, id, now.UnixMilli(), address, key)
	return err
}

func (s store) setState(ctx context.Context, id string, state State, archivedAt int64) error {
	_, err := s.db.Exec(ctx, `UPDATE support_thread SET state = $2, archived_at = $3 WHERE id = $1`, id, string(state), archivedAt)
	return err
}

func (s store) setFlags(ctx context.Context, id string, f Flags) error {
	snoozed := int64(0)
	if f.SnoozedUntil != nil {
		snoozed = f.SnoozedUntil.UnixMilli()
	}
	_, err := s.db.Exec(ctx, `UPDATE support_thread SET starred = $2, needs_reply = $3, spam = $4, suspicious = $5, assignee = $6,
		snoozed_until = $7 WHERE id = $1`, id, f.Starred, f.NeedsReply, f.Spam, f.Suspicious, optional.TextOf(f.Assignee), snoozed)
	return err
}

// setVerdict writes a classification of the thread's first ofCount messages, unless a newer one was
// written. Without force, a category that a person has set stays.
func (s store) setVerdict(ctx context.Context, id string, v Verdict, by Classifier, ofCount int64, force bool, now time.Time) (bool, error) {
	n, err := s.db.Exec(ctx, `UPDATE support_thread SET priority = $3, sentiment = $4, summary = $5, classified_at = $8, classified_count = $9,
			category = CASE WHEN classified_by <> 'staff' OR $10 THEN $2 ELSE category END,
			confidence = CASE WHEN classified_by <> 'staff' OR $10 THEN $6 ELSE confidence END,
			classified_by = CASE WHEN classified_by <> 'staff' OR $10 THEN $7 ELSE classified_by END
		WHERE id = $1 AND classified_count <= $9`,
		id, v.Category, string(v.Priority), string(v.Sentiment), v.Summary, v.Confidence, string(by), now.UnixMilli(), ofCount, force)
	return n == 1, err
}

func (s store) setCategory(ctx context.Context, id, category string, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE support_thread SET category = $2, classified_by = 'staff', classified_at = $3 WHERE id = $1`,
		id, category, now.UnixMilli())
	return err
}

// newMessage is a message to insert.
type newMessage struct {
	Message
	recipient, dedupe string
	refs              []string
}

// insertMessage returns false if the mail is already stored.
func (s store) insertMessage(ctx context.Context, m newMessage) (added bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO support_message (id, thread_id, direction, channel, from_address, text, stripped, html,
		message_id, in_reply_to, refs, recipient, automated, warnings, metadata, email_job_id, actor, dedupe, created_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19) ON CONFLICT DO NOTHING`,
		m.ID, m.ThreadID, string(m.Direction), string(m.Channel), optional.TextOf(m.From), m.Text, m.StrippedText, optional.TextOf(m.HTML),
		optional.TextOf(m.MessageID), optional.TextOf(m.InReplyTo), jsonText(m.refs), m.recipient, m.Automated, jsonText(m.Warnings),
		jsonText(m.Metadata), optional.TextOf(m.EmailJobID), optional.TextOf(m.Actor), m.dedupe, m.CreatedAt.UnixMilli())
	if err != nil || n == 0 {
		return false, err
	}
	for _, a := range m.Attachments {
		if _, err := s.db.Exec(ctx, `INSERT INTO support_attachment (id, message_id, thread_id, name, type, size, object_id)
			VALUES ($1, $2, $3, $4, $5, $6, $7)`, a.ID, m.ID, m.ThreadID, a.Name, a.Type, a.Size, a.objectID); err != nil {
			return false, err
		}
	}
	return true, nil
}

func jsonText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // lists and maps of strings always encode
	}
	return string(text)
}

const messageColumns = `m.id, m.thread_id, m.direction, m.channel, m.from_address, m.text, m.stripped, m.html, m.message_id,
	m.in_reply_to, m.automated, m.warnings, m.metadata, m.email_job_id, m.actor, m.created_at`

func scanMessage(row database.Scanner) (m Message, err error) {
	var from, html, messageID, inReplyTo, warnings, metadata, job, actor string
	var created int64
	if err := row.Scan(&m.ID, &m.ThreadID, &m.Direction, &m.Channel, &from, &m.Text, &m.StrippedText, &html, &messageID,
		&inReplyTo, &m.Automated, &warnings, &metadata, &job, &actor, &created); err != nil {
		return m, err
	}
	m.From, m.HTML, m.MessageID, m.InReplyTo = optional.Text(from), optional.Text(html), optional.Text(messageID), optional.Text(inReplyTo)
	m.EmailJobID, m.Actor, m.CreatedAt = optional.Text(job), optional.Text(actor), capability.Millis(created)
	m.Warnings, m.Metadata, m.Attachments = []string{}, map[string]string{}, []Attachment{}
	if err := json.Unmarshal([]byte(warnings), &m.Warnings); err != nil {
		return m, err
	}
	return m, json.Unmarshal([]byte(metadata), &m.Metadata)
}

// messages returns the newest messages of a thread, newest first.
func (s store) messages(ctx context.Context, threadID string, limit int) ([]Message, error) {
	return database.All(ctx, s.db, scanMessage, `SELECT `+messageColumns+` FROM support_message m
		WHERE m.thread_id = $1 ORDER BY m.id DESC LIMIT $2`, threadID, limit)
}

// heads returns the newest messages of the customer that no program sent, newest first.
func (s store) heads(ctx context.Context, threadID string, limit int) ([]Message, error) {
	return database.All(ctx, s.db, scanMessage, `SELECT `+messageColumns+` FROM support_message m
		WHERE m.thread_id = $1 AND m.direction = 'inbound' AND NOT m.automated ORDER BY m.id DESC LIMIT $2`, threadID, limit)
}

// replies lists outbound messages with ids less than below, newest first.
func (s store) replies(ctx context.Context, below string, limit int) ([]Message, error) {
	return database.All(ctx, s.db, scanMessage, `SELECT `+messageColumns+` FROM support_message m
		WHERE m.direction = 'outbound' AND (CAST($1 AS TEXT) = '' OR m.id < $1) ORDER BY m.id DESC LIMIT $2`, below, limit)
}

// mailIDs returns the Message-IDs of a thread, newest first.
func (s store) mailIDs(ctx context.Context, threadID string, limit int) ([]string, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT message_id FROM support_message WHERE thread_id = $1 AND message_id <> '' ORDER BY id DESC LIMIT $2`, threadID, limit)
}

// lastMachine reports whether the customer's newest message was sent by a program, and when the
// newest automatic reply was sent.
func (s store) lastMachine(ctx context.Context, threadID string) (program bool, repliedAt int64, err error) {
	program, _, err = database.Get(ctx, s.db, func(row database.Scanner) (b bool, err error) { return b, row.Scan(&b) },
		`SELECT automated FROM support_message WHERE thread_id = $1 AND direction = 'inbound' ORDER BY id DESC LIMIT 1`, threadID)
	if err != nil {
		return false, 0, err
	}
	repliedAt, _, err = database.Get(ctx, s.db, func(row database.Scanner) (at int64, err error) { return at, row.Scan(&at) },
		`SELECT created_at FROM support_message WHERE thread_id = $1 AND direction = 'outbound' AND automated ORDER BY id DESC LIMIT 1`, threadID)
	return program, repliedAt, err
}

// attachmentRow is an attachment with the id of its message.
type attachmentRow struct {
	messageID string
	Attachment
}

func scanAttachment(row database.Scanner) (a attachmentRow, err error) {
	err = row.Scan(&a.messageID, &a.ID, &a.Name, &a.Type, &a.Size, &a.objectID)
	return a, err
}

func (s store) attachments(ctx context.Context, threadID string, limit int) ([]attachmentRow, error) {
	return database.All(ctx, s.db, scanAttachment, `SELECT message_id, id, name, type, size, object_id FROM support_attachment
		WHERE thread_id = $1 ORDER BY message_id DESC, id DESC LIMIT $2`, threadID, limit)
}

// stored returns the ids of the message and the thread that a mail is already stored in.
func (s store) stored(ctx context.Context, dedupe string) (messageID, threadID string, found bool, err error) {
	type ids [2]string
	pair, found, err := database.Get(ctx, s.db, func(row database.Scanner) (p ids, err error) {
		return p, row.Scan(&p[0], &p[1])
	}, `SELECT id, thread_id FROM support_message WHERE dedupe = $1 AND dedupe <> ''`, dedupe)
	return pair[0], pair[1], found, err
}

// messageOf returns the message with a dedupe key, without its attachments.
func (s store) messageOf(ctx context.Context, dedupe string) (Message, bool, error) {
	return database.Get(ctx, s.db, scanMessage, `SELECT `+messageColumns+` FROM support_message m WHERE m.dedupe = $1 AND m.dedupe <> ''`, dedupe)
}

// reference is a thread with the Message-ID by which it was found.
type reference struct {
	messageID string
	thread    Thread
}

// referenced returns the threads of an address that contain one of the messages.
func (s store) referenced(ctx context.Context, ids []string, fromKey string, limit int) ([]reference, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (r reference, err error) {
		r.thread, err = scanThread(prefixed{row, []any{&r.messageID}})
		return r, err
	}, `SELECT m.message_id, `+threadColumns+` FROM support_message m JOIN support_thread t ON t.id = m.thread_id
		WHERE m.message_id `+database.InList(1)+` AND t.from_key = $2 ORDER BY m.id DESC LIMIT $3`, database.List(ids), fromKey, limit)
}

// prefixed scans further columns before those of another scan function.
type prefixed struct {
	row  database.Scanner
	head []any
}

func (p prefixed) Scan(dest ...any) error { return p.row.Scan(append(p.head, dest...)...) }

// anyReferenced returns the newest thread that contains one of the messages, or "".
func (s store) anyReferenced(ctx context.Context, ids []string) (string, error) {
	id, _, err := database.Get(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT thread_id FROM support_message WHERE message_id `+database.InList(1)+` ORDER BY id DESC LIMIT 1`, database.List(ids))
	return id, err
}

// familiar reports whether an address has another thread that is not spam.
func (s store) familiar(ctx context.Context, fromKey, besides string) (bool, error) {
	_, found, err := database.Get(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT id FROM support_thread WHERE from_key = $1 AND from_key <> '' AND id <> $2 AND NOT spam LIMIT 1`, fromKey, besides)
	return found, err
}

// countGuard increments the counter of an hour; it returns false if the counter has reached its
// maximum.
func (s store) countGuard(ctx context.Context, bucket string, hour int64, most int) (bool, error) {
	n, err := s.db.Exec(ctx, `INSERT INTO support_guard (bucket, hour, count) VALUES ($1, $2, 1)
		ON CONFLICT (bucket) DO UPDATE SET count = support_guard.count + 1 WHERE support_guard.count < $3`, bucket, hour, most)
	return n == 1, err
}

// spent reports whether a counter has reached its maximum.
func (s store) spent(ctx context.Context, bucket string, most int) (bool, error) {
	n, _, err := database.Get(ctx, s.db, func(row database.Scanner) (n int, err error) { return n, row.Scan(&n) },
		`SELECT count FROM support_guard WHERE bucket = $1`, bucket)
	return n >= most, err
}

func (s store) count(ctx context.Context, where string) (n int64, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*) FROM (SELECT 1 FROM support_thread WHERE `+where+` LIMIT $1) AS counted`, maxCounted).Scan(&n)
	return n, err
}

// flagConditions are the conditions of the flags that a list can be filtered by.
var flagConditions = map[string]string{
	"starred": "t.starred", "needsReply": "t.needs_reply", "spam": "t.spam", "suspicious": "t.suspicious", "snoozed": "t.snoozed_until > 0",
}

var flags = slices.Sorted(maps.Keys(flagConditions))

// threads lists the threads that match a filter, without its query, after a position, newest first.
func (s store) threads(ctx context.Context, f Filter, at int64, id string, limit int) ([]Thread, error) {
	where := new(database.Conditions)
	where.Equal("t.state", string(f.State))
	where.Equal("t.category", f.Category)
	where.Equal("t.priority", string(f.Priority))
	where.Equal("t.sentiment", string(f.Sentiment))
	where.Equal("t.channel", string(f.Channel))
	where.Equal("t.assignee", f.Assignee)
	where.Equal("t.user_id", f.UserID)
	flag := ""
	if f.Flag != "" {
		flag = " AND " + flagConditions[f.Flag]
	}
	n := where.Next()
	return database.All(ctx, s.db, scanThread, fmt.Sprintf(`SELECT `+threadColumns+` FROM support_thread t WHERE (t.last_at, t.id) < ($%d, $%d) AND %s%s
		ORDER BY t.last_at DESC, t.id DESC LIMIT $%d`, n, n+1, where.Text(), flag, n+2), where.Args(at, id, limit)...)
}

func (s store) sweepGuard(ctx context.Context, hour int64, limit int) (int64, error) {
	return s.db.Exec(ctx, `DELETE FROM support_guard WHERE bucket IN (SELECT bucket FROM support_guard WHERE hour < $1 LIMIT $2)`, hour, limit)
}
