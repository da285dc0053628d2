package support

import (
	"context"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/email"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

// The bounds of what users send: maxMetadata and maxUserFiles are counts, the others are in bytes.
const (
	maxSubject       = 200
	maxFeedback      = 10_000
	maxMetadata      = 20
	maxMetadataKey   = 64
	maxMetadataValue = 500
	maxUserFiles     = 5
	maxObjectID      = 256
)

// MaxShown is the maximum number of messages that are returned with a thread, the newest ones.
const MaxShown = 100

// maxMessages is the number of messages after which a thread is full: a further mail opens another
// thread, a further message from the app is refused.
const maxMessages = 1000

// farthest is later than the time of any thread, in milliseconds: lists begin there.
const farthest = int64(1) << 53

// Submit stores a message that a user sends from the app: it opens a thread, or appends to a thread
// of the user and reopens it. opened reports which. Refuses with support/not_found,
// support/invalid_category, support/rejected and kit/invalid_request.
func (s *Support) Submit(ctx context.Context, f Feedback) (ticket TicketDetail, opened bool, err error) {
	if err := s.check(&f); err != nil {
		return ticket, false, err
	}
	files, err := s.userFiles(ctx, f)
	if err != nil {
		return ticket, false, err
	}
	from, key, err := s.addressOf(ctx, f.UserID)
	if err != nil {
		return ticket, false, err
	}
	var threadID string
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		now := s.db.Now(ctx)
		if err := s.admit(ctx, string(ChannelApp), f.UserID); err != nil {
			return err
		}
		opened, threadID = f.ThreadID == "", f.ThreadID
		if opened {
			threadID = id.New(now)
			if err := s.openFromApp(ctx, threadID, f, from, key, now); err != nil {
				return err
			}
		} else if err := s.appendFromApp(ctx, f, now); err != nil {
			return err
		}
		m := newMessage{Message: Message{
			ID: id.New(now), ThreadID: threadID, Direction: DirectionInbound, Channel: ChannelApp, Text: f.Message,
			StrippedText: f.Message, Warnings: []string{}, Metadata: f.Metadata, CreatedAt: capability.Millis(now.UnixMilli()),
		}, refs: []string{}}
		own := s.newMailID(Thread{}) // so that the response to a mailed reply finds its thread
		m.MessageID = &own
		for _, file := range files {
			file.ID = id.New(now)
			m.Attachments = append(m.Attachments, file)
		}
		if _, err := s.store.insertMessage(ctx, m); err != nil {
			return err
		}
		return s.received(ctx, hooks.SupportReceived{ThreadID: threadID, MessageID: m.ID, UserID: f.UserID, Opened: opened}, now)
	})
	if err != nil {
		return ticket, false, err
	}
	ticket, err = s.Ticket(ctx, f.UserID, threadID)
	return ticket, opened, err
}

func (s *Support) openFromApp(ctx context.Context, threadID string, f Feedback, from, key string, now time.Time) error {
	source := LinkSession
	return s.store.insertThread(ctx, Thread{
		ID: threadID, Subject: f.Subject, Channel: ChannelApp, UserID: &f.UserID, FromAddress: optional.Text(from), fromKey: key,
		AccountLinkSource: &source, DeclaredCategory: optional.Text(f.DeclaredCategory), Flags: Flags{NeedsReply: true},
	}, now)
}

func (s *Support) appendFromApp(ctx context.Context, f Feedback, now time.Time) error {
	thread, found, err := s.store.lockThread(ctx, f.ThreadID)
	if err != nil {
		return err
	}
	if !found || optional.TextOf(thread.UserID) != f.UserID {
		return ErrNotFound
	}
	if thread.MessageCount >= maxMessages {
		return capability.ErrInvalidRequest.Saying("The thread is full. Open another one.")
	}
	return s.store.inbound(ctx, f.ThreadID, f.DeclaredCategory, true, false, now)
}

func (s *Support) check(f *Feedback) error {
	if f.Subject == "" && f.ThreadID == "" {
		f.Subject = line(firstLine(f.Message), maxSubject)
	}
	for _, err := range []error{
		capability.CheckUserID(f.UserID),
		capability.CheckText("threadId", f.ThreadID, 0, id.Len),
		capability.CheckText("subject", f.Subject, 0, maxSubject),
		capability.CheckText("message", strings.TrimSpace(f.Message), 1, maxFeedback),
		capability.CheckText("message", f.Message, 1, maxFeedback),
		checkMetadata(f.Metadata),
	} {
		if err != nil {
			return err
		}
	}
	if !clean(f.Subject) {
		return capability.ErrInvalidRequest.Saying("subject is not plain text on one line.")
	}
	if f.DeclaredCategory != "" && !s.known(f.DeclaredCategory) {
		return ErrInvalidCategory
	}
	f.Message = storable(f.Message)
	if f.Metadata == nil {
		f.Metadata = map[string]string{}
	}
	return nil
}

func checkMetadata(metadata map[string]string) error {
	if len(metadata) > maxMetadata {
		return capability.ErrInvalidRequest.Saying("metadata has more than %d entries.", maxMetadata)
	}
	for key, value := range metadata {
		if err := capability.CheckText("a key of metadata", key, 1, maxMetadataKey); err != nil {
			return err
		}
		if err := capability.CheckText("metadata", value, 0, maxMetadataValue); err != nil {
			return err
		}
	}
	return nil
}

func firstLine(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return text
}

// addressOf returns the verified address of a user, or "".
func (s *Support) addressOf(ctx context.Context, userID string) (address, key string, err error) {
	if s.peers.Auth == nil {
		return "", "", nil
	}
	user, err := s.peers.Auth.User(ctx, userID)
	if err != nil || !user.EmailVerified || user.Email == "" {
		if capability.AsError(err).Status == 404 {
			err = nil
		}
		return "", "", err
	}
	key, err = email.Canonical(user.Email)
	if err != nil {
		return "", "", nil
	}
	return user.Email, key, nil
}

// ListTickets lists the threads of a user, the most recently changed first.
func (s *Support) ListTickets(ctx context.Context, userID string, page capability.Page) (capability.Items[Ticket], error) {
	var none capability.Items[Ticket]
	if err := capability.CheckUserID(userID); err != nil {
		return none, err
	}
	threads, err := s.ListThreads(ctx, Filter{UserID: userID}, page)
	if err != nil {
		return none, err
	}
	items := capability.Items[Ticket]{Items: make([]Ticket, len(threads.Items)), NextCursor: threads.NextCursor}
	for i, thread := range threads.Items {
		items.Items[i] = thread.ticket()
	}
	return items, nil
}

// Ticket returns a thread of a user with its newest messages. Refuses with support/not_found, also
// if the thread belongs to another user.
func (s *Support) Ticket(ctx context.Context, userID, threadID string) (TicketDetail, error) {
	thread, err := s.Thread(ctx, threadID)
	if err != nil {
		return TicketDetail{}, err
	}
	if userID == "" || optional.TextOf(thread.UserID) != userID {
		return TicketDetail{}, ErrNotFound
	}
	detail := TicketDetail{Ticket: thread.ticket(), Messages: make([]TicketMessage, len(thread.Messages))}
	for i, m := range thread.Messages {
		detail.Messages[i] = TicketMessage{ID: m.ID, Direction: m.Direction, Text: m.Text, Attachments: m.Attachments, CreatedAt: m.CreatedAt}
	}
	return detail, nil
}

func (t Thread) ticket() Ticket {
	return Ticket{
		ID: t.ID, Subject: t.Subject, Channel: t.Channel, State: t.State, DeclaredCategory: t.DeclaredCategory,
		MessageCount: t.MessageCount, CreatedAt: t.CreatedAt, UpdatedAt: capability.Millis(t.lastAt),
	}
}
