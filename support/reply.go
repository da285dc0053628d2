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

// The bounds of a reply in bytes, and of what it refers to.
const (
	maxReply      = 20_000
	maxReplyHTML  = 100_000
	maxReferences = 20
	maxReplyKey   = 256
	// automaticPause is how long an automatic reply keeps others of a thread back.
	automaticPause = 24 * time.Hour
)

// ReplyData is what the template of a reply gets.
type ReplyData struct {
	// Subject is that of the thread, with "Re: " before it.
	Subject string
	// Message is the reply.
	Message string
	Thread  Thread
}

// mailIDForm is what email takes as a message id.
var mailIDForm = regexp.MustCompile(`^<[!-;=?-~]{1,240}@[!-;=?-~]{1,240}>$`)

// Reply writes to the person of a thread. In a thread of mail it goes by mail;
// in a thread of the app the user reads it there, and also gets it by mail where
// the account has a verified address; the message's channel says whether it went
// by mail. Row and mail commit together. Refuses with
// support/not_found, kit/invalid_request, kit/idempotency_conflict, and support/reply_failed where there
// is no address, the address is suppressed, or an automatic reply would go to
// a program.
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
		m.Channel = ChannelEmail // also where the thread is of the app
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

// destination returns where a reply goes by mail, or nothing for one that is
// read in the app only.
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

// newMailID draws a message id for a message of a thread.
func (s *Support) newMailID(t Thread) string {
	return "<support." + strings.ToLower(rand.Text()) + "@" + s.mailDomain(t) + ">"
}

// mail queues the mail of a reply and notes what later replies refer to.
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
		if name := s.cfg.ReplyTemplate(t); name != "" {
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
		return nil // the user reads it in the app all the same
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

// failed makes a refusal of email one of ours; faults stay what they are.
func failed(err error) error {
	var refusal *capability.Error
	if errors.As(err, &refusal) {
		return ErrReplyFailed.Saying("The mail was refused: %s", refusal.Message).Because(err)
	}
	return err
}

// headerOwn names the thread of a reply, for operators who trace a mail.
const headerOwn = "X-Kit-Support"

// inboxOf is where the person replies to: the address that was written to, or
// the first one.
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

// mayReplyAutomatically keeps programs from talking to each other.
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
