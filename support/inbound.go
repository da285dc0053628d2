package support

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// Envelope is the SMTP envelope of a mail.
type Envelope struct {
	// From is the reverse path, empty for bounces.
	From string
	// To is the recipients; the recipients in the mail's header are ignored.
	To []string
}

// Outcome is what happened to a mail.
type Outcome string

// The outcomes. A mail is ignored if it is for none of the inbound addresses.
const (
	OutcomeStored    Outcome = "stored"
	OutcomeDuplicate Outcome = "duplicate"
	OutcomeBounce    Outcome = "bounce"
	OutcomeIgnored   Outcome = "ignored"
)

// Receipt is the result of [Support.Receive].
type Receipt struct {
	Outcome Outcome
	// ThreadID and MessageID are set if the mail is stored, by this call or an earlier one.
	ThreadID, MessageID string
}

// Receive processes a mail. If it returns without an error, the mail is stored or does not need to
// be. A mail that is received again is stored once. Refuses with kit/body_too_large,
// support/rejected and support/unparseable_message.
func (s *Support) Receive(ctx context.Context, envelope Envelope, raw []byte) (Receipt, error) {
	inbox, ok := s.inbox(envelope.To)
	if !ok {
		return Receipt{Outcome: OutcomeIgnored}, nil
	}
	if int64(len(raw)) > s.cfg.Guard.MaxRawBytes {
		return Receipt{}, capability.BodyOver(s.cfg.Guard.MaxRawBytes).Saying("A mail has at most %d bytes.", s.cfg.Guard.MaxRawBytes)
	}
	if err := s.admit(ctx, string(ChannelEmail), senderKey(envelope.From)); err != nil {
		return Receipt{}, err
	}
	p, ok := parse(raw)
	if !ok {
		return Receipt{}, ErrUnparseable
	}
	if bounced, err := s.bounce(ctx, envelope, &p, raw); err != nil || bounced {
		return Receipt{Outcome: OutcomeBounce}, err
	}
	in := s.understand(envelope, inbox, &p, raw)
	if receipt, found, err := s.before(ctx, in); err != nil || found {
		return receipt, err
	}
	if err := s.keepFiles(ctx, in); err != nil {
		return Receipt{}, err
	}
	receipt, err := s.put(ctx, in)
	switch {
	case errors.Is(err, database.ErrUnknownOutcome): // the mail may be stored; files that are not committed expire
	case err != nil, receipt.Outcome == OutcomeDuplicate:
		s.dropFiles(ctx, in)
	}
	return receipt, err
}

// inbox returns the inbound address that a mail is for.
func (s *Support) inbox(recipients []string) (address string, ok bool) {
	if len(s.inboxes) == 0 {
		s.inert.Do(func() { s.host.Log.Info("support has no inbound address: mail is ignored") })
		return "", false
	}
	for _, recipient := range recipients {
		if address, ok := s.inboxOfRecipient(recipient); ok {
			return address, true
		}
	}
	return "", false
}

// inboxOfRecipient compares canonical addresses, with the plus tag and then without it.
func (s *Support) inboxOfRecipient(recipient string) (string, bool) {
	key, err := email.Canonical(recipient)
	if err != nil {
		return "", false
	}
	if address, ok := s.inboxes[key]; ok {
		return address, true
	}
	local, domain, _ := strings.Cut(key, "@")
	if tag := strings.IndexByte(local, '+'); tag > 0 {
		address, ok := s.inboxes[local[:tag]+"@"+domain]
		return address, ok
	}
	return "", false
}

// senderKey returns the key by which the guard counts a sender, "" for a bounce.
func senderKey(address string) string {
	if address == "" || address == "<>" {
		return ""
	}
	if key, err := email.Canonical(address); err == nil {
		return key
	}
	return strings.ToLower(clip(strings.ToValidUTF8(address, ""), 320))
}

// bounce passes the report of a mail server to email. A report is never a message of a thread.
func (s *Support) bounce(ctx context.Context, envelope Envelope, p *parsed, raw []byte) (bool, error) {
	if !p.report && senderKey(envelope.From) != "" {
		return false, nil
	}
	applied := 0
	if s.peers.Email != nil {
		var err error
		if applied, err = s.peers.Email.IngestMail(ctx, raw); err != nil {
			return false, err
		}
	}
	return p.report || applied > 0 || (senderKey(envelope.From) == "" && p.fromMachine()), nil
}

// incoming is a mail to be stored in a thread.
type incoming struct {
	message   newMessage
	files     []part
	subject   string
	inbox     string
	fromKey   string
	user      string // the user whose verified address sent it, or ""
	auth      authenticity
	refs      []string
	automated bool
}

// mailID matches the message ids in In-Reply-To and References.
var mailID = regexp.MustCompile(`<[^<>\s]{3,996}>`)

// maxMailIDs bounds the ids that are looked up.
const maxMailIDs = 50

// referredTo returns the message ids that a mail refers to: In-Reply-To first, then References,
// newest first.
func referredTo(h header) (ids []string) {
	add := func(found []string) {
		for _, one := range found {
			if len(ids) < maxMailIDs && clean(one) && !slices.Contains(ids, one) {
				ids = append(ids, one)
			}
		}
	}
	add(mailID.FindAllString(h.get("in-reply-to"), maxMailIDs))
	references := mailID.FindAllString(h.get("references"), -1)
	slices.Reverse(references)
	add(references[:min(len(references), maxMailIDs)])
	return ids
}

func (s *Support) understand(envelope Envelope, inbox string, p *parsed, raw []byte) *incoming {
	from := p.header.from()
	fromKey, err := email.Canonical(from.address)
	address := ""
	if err == nil {
		address = clip(line(from.address, 320), 254)
	}
	in := &incoming{
		inbox: inbox, fromKey: fromKey, files: p.files, refs: referredTo(p.header),
		subject: line(p.header.text("subject"), maxSubject), auth: s.authenticate(raw, p.header, from, fromKey),
		automated: p.automated(senderKey(envelope.From), fromKey, s.own),
	}
	s.suspect(p, in, from)
	messageID := mailID.FindString(p.header.get("message-id"))
	if !clean(messageID) {
		messageID = ""
	}
	in.message = newMessage{Message: Message{
		Direction: DirectionInbound, Channel: ChannelEmail, From: optional.Text(address), Text: p.text, StrippedText: stripped(p.text),
		MessageID: optional.Text(messageID), Automated: in.automated, Warnings: append([]string{}, p.warnings...),
		Metadata: map[string]string{},
	}, recipient: inbox, refs: append([]string{}, in.refs...), dedupe: dedupe(messageID, inbox, fromKey, raw)}
	if len(in.refs) > 0 {
		in.message.InReplyTo = &in.refs[0]
	}
	return in
}

// dedupe returns a key that is equal for repeated deliveries of a mail. It includes sender and
// inbox, so that nobody can suppress the mail of somebody else.
func dedupe(messageID, inbox, fromKey string, raw []byte) string {
	if messageID == "" {
		sum := sha256.Sum256(raw)
		messageID = string(sum[:])
	}
	return digest(inbox, fromKey, messageID)
}

// digest returns a hash of a list of texts.
func digest(parts ...string) string {
	sum := sha256.New()
	for _, part := range parts {
		_, _ = fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// suspect adds warnings for the signs of a deception.
func (s *Support) suspect(p *parsed, in *incoming, from sender) {
	if in.auth.failed {
		p.warn(warnAuthFailed)
	}
	if !from.single && p.header.has("from") {
		p.warn(warnSenders)
	}
	if strings.Contains(from.name, "@") && !strings.Contains(strings.ToLower(from.name), strings.ToLower(from.address)) {
		p.warn(warnNameAddress)
	}
	if strings.ContainsFunc(p.header.text("subject")+p.header.text("from"), func(r rune) bool { return r != '\t' && r >= 0x2000 && unfit(r) }) {
		p.warn(warnBidi)
	}
	if reply := bareAddress(p.header.get("reply-to")); reply != "" && in.fromKey != "" {
		if !aligned(afterAt(strings.ToLower(reply)), afterAt(in.fromKey)) {
			p.warn(warnReplyTo)
		}
	}
}

func (in *incoming) warn(what string) {
	if !slices.Contains(in.message.Warnings, what) {
		in.message.Warnings = append(in.message.Warnings, what)
	}
}

func (in *incoming) suspicious() bool {
	return slices.ContainsFunc(in.message.Warnings, func(w string) bool { return suspicions[w] })
}

// before returns the receipt of a mail that was already stored.
func (s *Support) before(ctx context.Context, in *incoming) (Receipt, bool, error) {
	messageID, threadID, found, err := s.store.stored(ctx, in.message.dedupe)
	return Receipt{Outcome: OutcomeDuplicate, ThreadID: threadID, MessageID: messageID}, found, err
}

// keepFiles stores attachments if file storage is configured. If the storage refuses one, only its
// name is recorded, because a new delivery would be refused again.
func (s *Support) keepFiles(ctx context.Context, in *incoming) error {
	now := s.host.Now()
	for _, file := range in.files {
		a := Attachment{ID: id.New(now), Name: file.name, Type: file.kind, Size: file.size}
		if s.peers.Files.Keep != nil && file.size > 0 {
			content, err := io.ReadAll(file.open())
			if err == nil {
				a.objectID, err = s.peers.Files.Keep(ctx, a.Name, a.Type, content)
				if refusal := new(capability.Error); errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError {
					a.objectID, err = "", nil
					in.warn(warnFileRefused)
				}
				if err != nil {
					s.dropFiles(ctx, in)
					return err
				}
			}
		}
		in.message.Attachments = append(in.message.Attachments, a)
	}
	return nil
}

// commitFiles makes the stored files permanent in the transaction of their message.
func (s *Support) commitFiles(ctx context.Context, files []Attachment) error {
	for _, a := range files {
		if a.objectID == "" || s.peers.Files.Commit == nil {
			continue
		}
		if err := s.peers.Files.Commit(ctx, a.objectID); err != nil {
			return capability.ErrUnavailable.Because(err) // also if the object has expired: the next delivery stores it again
		}
	}
	return nil
}

// dropFiles removes the files that were stored for a mail that is not stored.
func (s *Support) dropFiles(ctx context.Context, in *incoming) {
	for _, a := range in.message.Attachments {
		if a.objectID != "" && s.peers.Files.Remove != nil {
			if err := s.peers.Files.Remove(context.WithoutCancel(ctx), a.objectID); err != nil {
				s.host.Log.Warn("support could not remove an attachment", "error", err)
			}
		}
	}
}

var errStoredMeanwhile = errors.New("support: another node stored the mail")

// put stores a mail in the thread it belongs to, or in a new one.
func (s *Support) put(ctx context.Context, in *incoming) (receipt Receipt, err error) {
	if in.user, err = s.userOf(ctx, in); err != nil {
		return receipt, err
	}
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		now := s.db.Now(ctx)
		m := in.message
		m.ID, m.CreatedAt = id.New(now), capability.Millis(now.UnixMilli())
		thread, related, err := s.belongs(ctx, in)
		if err != nil {
			return err
		}
		opened := thread == ""
		if !opened {
			err = s.store.inbound(ctx, thread, "", !in.automated, in.suspicious(), now)
		} else {
			thread = id.New(now)
			err = s.store.insertThread(ctx, in.thread(thread, related), now)
		}
		if err != nil {
			return err
		}
		m.ThreadID = thread
		added, err := s.store.insertMessage(ctx, m)
		if err != nil {
			return err
		}
		if !added {
			return errStoredMeanwhile
		}
		if err := s.commitFiles(ctx, m.Attachments); err != nil {
			return err
		}
		receipt = Receipt{Outcome: OutcomeStored, ThreadID: thread, MessageID: m.ID}
		if in.automated {
			return nil
		}
		return s.received(ctx, hooks.SupportReceived{ThreadID: thread, MessageID: m.ID, UserID: in.user, Opened: opened}, now)
	})
	if errors.Is(err, errStoredMeanwhile) {
		receipt, _, err = s.before(ctx, in)
	}
	return receipt, err
}

// userOf returns the user to link a mail to: the one who verified its address, if the mail proved
// its origin. A disabled user is not linked: the user may be in the middle of an erasure, and the
// thread would be written after support's part of it.
func (s *Support) userOf(ctx context.Context, in *incoming) (userID string, err error) {
	if !in.auth.aligned || s.peers.Auth == nil || in.fromKey == "" {
		return "", nil
	}
	user, found, err := s.peers.Auth.UserByEmail(ctx, in.fromKey)
	if err != nil || !found || !user.EmailVerified || !user.DisabledAt.IsZero() {
		return "", err
	}
	return user.ID, nil
}

func (in *incoming) thread(threadID, related string) Thread {
	t := Thread{
		ID: threadID, Subject: in.subject, Channel: ChannelEmail, UserID: optional.Text(in.user), FromAddress: in.message.From,
		RelatedThreadID: optional.Text(related), fromKey: in.fromKey, inbox: in.inbox, verified: in.auth.aligned, authFailed: in.auth.failed,
		Flags: Flags{NeedsReply: !in.automated, Suspicious: in.suspicious()},
	}
	if in.user != "" {
		source := LinkEmailAddress
		t.AccountLinkSource = &source
	}
	return t
}

// maxReferred bounds the candidate threads of a mail.
const maxReferred = 100

// belongs finds the thread that a mail refers to and that belongs to its sender. A thread of
// anybody else can only be the related one.
func (s *Support) belongs(ctx context.Context, in *incoming) (threadID, related string, err error) {
	if len(in.refs) == 0 {
		return "", "", nil
	}
	if in.fromKey != "" {
		hits, err := s.store.referenced(ctx, in.refs, in.fromKey, maxReferred)
		if err != nil {
			return "", "", err
		}
		for _, ref := range in.refs {
			for _, hit := range hits {
				if hit.messageID != ref || !in.entitled(hit) {
					continue
				}
				_, found, err := s.store.lockThread(ctx, hit.thread.ID) // keeps its messages in order
				if err != nil {
					return "", "", err
				}
				if found {
					return hit.thread.ID, "", nil
				}
			}
		}
	}
	related, err = s.store.anyReferenced(ctx, in.refs)
	return "", related, err
}

// entitled reports whether the sender, whose address is the thread's, may append to it: a thread
// that began with a proof of the address requires one, and a thread of a previous owner of the
// address is not open to the sender.
func (in *incoming) entitled(hit reference) bool {
	owner := optional.TextOf(hit.thread.UserID)
	switch {
	case in.auth.failed, hit.thread.MessageCount >= maxMessages, owner != "" && in.user != "" && owner != in.user:
		return false
	}
	return in.auth.aligned || !hit.thread.verified
}

// received fires the hook for a person's message and schedules the classification of its thread,
// both in the transaction.
func (s *Support) received(ctx context.Context, e hooks.SupportReceived, now time.Time) error {
	if err := s.host.Hooks.SupportReceived.Fire(ctx, e); err != nil {
		return err
	}
	return s.host.Jobs.SetAlarm(ctx, classifyBinding, e.ThreadID, now, e.ThreadID)
}
