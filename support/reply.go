package support

import (
	"context"
	"crypto/rand"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// The bounds of a reply in bytes, and of the number of its references.
const (
	maxReply      = 20_000
	maxReplyHTML  = 100_000
	maxReferences = 20
	maxReplyKey   = 256
	// automaticPause is the minimum time between automatic replies to a thread.
	automaticPause = 24 * time.Hour
)

// ReplyData is the data of a reply template.
type ReplyData struct {
	// Subject is the subject of the thread, prefixed with "Re: ".
	Subject string
	// Message is the text of the reply.
	Message string
	Thread  Thread
}

// mailIDForm is the form of a message id that email accepts.
var mailIDForm = regexp.MustCompile(`^<[!-;=?-~]{1,240}@[!-;=?-~]{1,240}>$`)

// Reply sends a reply to the person of a thread. In a thread of mail it is sent by mail; in a
// thread of the app the user reads it in the app, and also receives it by mail if the account has a
// verified address; the channel of the message is email if it was sent by mail. Message and mail
// commit in one transaction. Refuses with support/not_found, kit/invalid_request,
// kit/idempotency_conflict, and with support/reply_failed if there is no address, the address is
// suppressed, or an automatic reply would be sent to a program.
func (s *Support) Reply(ctx context.Context, a Reply) (m Message, err error) {
	for _, err := range []error{
		capability.CheckText("message", strings.TrimSpace(a.Message), 1, maxReply),
		capability.CheckText("message", a.Message, 1, maxReply),
		capability.CheckText("html", a.HTML, 0, maxReplyHTML),
		capability.CheckText("idempotencyKey", a.IdempotencyKey, 0, maxReplyKey),
		capability.CheckText("actor", a.Actor, 0, maxAssignee),
	} {
		if err != nil {
			return m, err
		}
	}
	if info := capability.RequestInfoOf(ctx); a.Actor == "" && info != nil {
		a.Actor = info.Caller.ConnectionID
	}
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		m, err = s.reply(ctx, a)
		return err
	})
	if err != nil {
		return Message{}, err
	}
	shown := []Message{m}
	return shown[0], errors.Join(s.deliveries(ctx, shown))
}

func (s *Support) reply(ctx context.Context, a Reply) (Message, error) {
	var none Message
	thread, err := s.find(ctx, a.ThreadID, s.store.lockThread)
	if err != nil {
		return none, err
	}
	dedupe := ""
	if a.IdempotencyKey != "" {
		dedupe = "reply:" + digest(thread.ID, a.IdempotencyKey)
		first, found, err := s.store.messageOf(ctx, dedupe)
		if err != nil {
			return none, err
		}
		if found && (first.Text != storable(a.Message) || optional.TextOf(first.HTML) != a.HTML) {
			return none, capability.ErrIdempotencyConflict
		}
		if found {
			return first, nil
		}
	}
	now := s.db.Now(ctx)
	if a.Automatic {
		if err := s.mayReplyAutomatically(ctx, thread, now); err != nil {
			return none, err
		}
	}
	m := newMessage{Message: Message{
		ID: id.New(now), ThreadID: thread.ID, Direction: DirectionOutbound, Channel: thread.Channel,
		Text: storable(a.Message), StrippedText: storable(a.Message), HTML: optional.Text(a.HTML), Automated: a.Automatic,
		Warnings: []string{}, Metadata: map[string]string{}, Attachments: []Attachment{}, Actor: optional.Text(a.Actor),
		CreatedAt: capability.Millis(now.UnixMilli()),
	}, refs: []string{}, dedupe: dedupe}
	address, key, err := s.destination(ctx, thread)
	if err != nil {
		return none, err
	}
	if address != "" {
		m.Channel = ChannelEmail // also if the thread is of the app
		if err := s.mail(ctx, thread, a, address, &m); err != nil {
			return none, err
		}
	}
	if _, err := s.store.insertMessage(ctx, m); err != nil {
		return none, err
	}
	if err := s.store.outbound(ctx, thread.ID, address, key, now); err != nil {
		return none, err
	}
	return m.Message, s.peers.Audit.Record(ctx, audit.Event{
		Action: "support/reply_sent", Subject: audit.Target{Type: "support_thread", ID: thread.ID},
		Targets: []audit.Target{{Type: "support_message", ID: m.ID}},
	})
}

// destination returns the address of a reply by mail, or "" if the reply is read in the app only.
func (s *Support) destination(ctx context.Context, t Thread) (address, key string, err error) {
	if t.Channel == ChannelEmail {
		if s.peers.Email == nil {
			return "", "", ErrReplyFailed.Saying("Mail cannot be sent: email is not composed.")
		}
		if t.FromAddress == nil {
			return "", "", ErrReplyFailed.Saying("The thread has no address to reply to.")
		}
		return *t.FromAddress, t.fromKey, nil
	}
	if s.peers.Email == nil {
		return "", "", nil
	}
	return s.addressOf(ctx, optional.TextOf(t.UserID))
}

// newMailID returns a new random message id for a message of a thread.
func (s *Support) newMailID(t Thread) string {
	return "<support." + strings.ToLower(rand.Text()) + "@" + s.mailDomain(t) + ">"
}

// mail queues the mail of a reply and sets the message ids to which later mails refer.
func (s *Support) mail(ctx context.Context, t Thread, a Reply, address string, m *newMessage) error {
	refs, err := s.store.mailIDs(ctx, t.ID, maxReferences)
	if err != nil {
		return err
	}
	refs = slices.DeleteFunc(refs, func(id string) bool { return !mailIDForm.MatchString(id) })
	slices.Reverse(refs)
	if len(refs) > 0 {
		m.InReplyTo = &refs[len(refs)-1]
	}
	own := s.newMailID(t)
	m.MessageID, m.refs = &own, refs
	message := email.Message{
		To: address, Subject: replySubject(t.Subject), Text: m.Text, HTML: a.HTML, MessageID: own, References: refs,
		InReplyTo: optional.TextOf(m.InReplyTo), ReplyTo: s.inboxOf(t), UserID: optional.TextOf(t.UserID),
		Headers: map[string]string{"Auto-Submitted": "no", headerOwn: t.ID},
	}
	if a.Automatic {
		message.Headers["Auto-Submitted"] = "auto-replied"
	}
	if s.cfg.ReplyTemplate != nil {
		name, err := s.cfg.ReplyTemplate(ctx, t)
		if err != nil {
			return err
		}
		if name != "" {
			message.Template, message.Data = name, ReplyData{Subject: message.Subject, Message: m.Text, Thread: t}
			message.Subject, message.Text, message.HTML = "", "", ""
		}
	}
	job, err := s.peers.Email.Send(ctx, message)
	if err != nil {
		return failed(err)
	}
	m.EmailJobID = &job
	if t.Channel == ChannelApp {
		return nil // the user can read it in the app even if the mail is suppressed
	}
	states, err := s.peers.Email.States(ctx, []string{job})
	if err != nil {
		return err
	}
	if states[job] == email.StateSuppressed {
		return ErrReplyFailed.Saying("The address is suppressed: it does not take our mail.")
	}
	return nil
}

// failed converts a refusal by email to [ErrReplyFailed]; other errors are returned unchanged.
func failed(err error) error {
	var refusal *capability.Error
	if errors.As(err, &refusal) {
		return ErrReplyFailed.Saying("The mail was refused: %s", refusal.Message).Because(err)
	}
	return err
}

// headerOwn is a header field with the id of the thread, for operators who trace a mail.
const headerOwn = "X-Kit-Support"

// inboxOf returns the Reply-To address: the inbound address of the thread, or the first one
// configured.
func (s *Support) inboxOf(t Thread) string {
	if t.inbox != "" {
		return t.inbox
	}
	if len(s.cfg.InboundAddresses) > 0 {
		return s.cfg.InboundAddresses[0]
	}
	return ""
}

func (s *Support) mailDomain(t Thread) string {
	key, err := email.Canonical(s.inboxOf(t))
	if err != nil {
		return s.host.BaseURL.Hostname()
	}
	return key[strings.LastIndexByte(key, '@')+1:]
}

var replyPrefix = regexp.MustCompile(`(?i)^(re|aw|sv|antw|fwd?|wg|tr|rv)\s*(\[\d+\])?\s*:`)

func replySubject(subject string) string {
	if replyPrefix.MatchString(subject) {
		return subject
	}
	return strings.TrimSpace("Re: " + subject)
}

// mayReplyAutomatically refuses an automatic reply that would begin a mail loop.
func (s *Support) mayReplyAutomatically(ctx context.Context, t Thread, now time.Time) error {
	program, repliedAt, err := s.store.lastMachine(ctx, t.ID)
	switch {
	case err != nil:
		return err
	case program:
		return ErrReplyFailed.Saying("A program wrote last: an automatic reply would begin a loop.")
	case repliedAt > 0 && now.Sub(time.UnixMilli(repliedAt)) < automaticPause:
		return ErrReplyFailed.Saying("The thread got an automatic reply within a day.")
	}
	return nil
}
