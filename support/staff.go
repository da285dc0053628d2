package support

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/optional"
)

const (
	maxQuery    = 100
	queryWindow = 1000
	maxAssignee = 128
)

// ListThreads lists threads, the most recently changed first. Refuses with kit/invalid_request if
// the filter has invalid values.
func (s *Support) ListThreads(ctx context.Context, f Filter, page capability.Page) (capability.Items[Thread], error) {
	page = page.Bounded()
	var none capability.Items[Thread]
	if err := s.checkFilter(f); err != nil {
		return none, err
	}
	at, last := farthest, ""
	if _, err := page.After(&at, &last); err != nil {
		return none, err
	}
	keys := func(t Thread) []any { return []any{t.lastAt, t.ID} }
	if f.Query == "" {
		rows, err := s.store.threads(ctx, f, at, last, page.Limit+1)
		if err != nil {
			return none, err
		}
		return capability.Paged(page, rows, keys), nil
	}
	rows, err := s.store.threads(ctx, f, at, last, queryWindow+1)
	if err != nil {
		return none, err
	}
	return matching(rows, strings.ToLower(f.Query), page, keys), nil
}

// matching returns the threads that contain the query, with a cursor after the last thread
// examined.
func matching(rows []Thread, query string, page capability.Page, keys func(Thread) []any) capability.Items[Thread] {
	matches, looked := []Thread{}, 0
	for looked < min(len(rows), queryWindow) && len(matches) < page.Limit {
		t := rows[looked]
		looked++
		text := t.Subject + "\n" + optional.TextOf(t.FromAddress) + "\n" + t.Summary
		if strings.Contains(strings.ToLower(text), query) {
			matches = append(matches, t)
		}
	}
	page.Limit = looked
	items := capability.Paged(page, rows, keys)
	items.Items = matches
	return items
}

func (s *Support) checkFilter(f Filter) error {
	for _, err := range []error{
		capability.CheckText("assignee", f.Assignee, 0, maxAssignee),
		capability.CheckText("userId", f.UserID, 0, capability.MaxUserID),
		capability.CheckText("q", f.Query, 0, maxQuery),
	} {
		if err != nil {
			return err
		}
	}
	switch {
	case f.Flag != "" && flagConditions[f.Flag] == "":
		return capability.ErrInvalidRequest.Saying("flag is one of %s.", strings.Join(flags, ", "))
	case f.Category != "" && !s.known(f.Category):
		return ErrInvalidCategory
	}
	return nil
}

// Thread returns a thread with its newest messages. Refuses with
// support/not_found.
func (s *Support) Thread(ctx context.Context, threadID string) (detail ThreadDetail, err error) {
	var files []attachmentRow
	err = s.db.Read(ctx, func(ctx context.Context) error {
		var err error
		if detail.Thread, err = s.find(ctx, threadID, s.store.thread); err != nil {
			return err
		}
		if detail.Messages, err = s.store.messages(ctx, threadID, MaxShown); err != nil {
			return err
		}
		files, err = s.store.attachments(ctx, threadID, MaxShown*maxAttachments)
		return err
	})
	if err != nil {
		return ThreadDetail{}, err
	}
	slices.Reverse(detail.Messages)
	at := make(map[string]int, len(detail.Messages))
	for i, m := range detail.Messages {
		at[m.ID] = i
	}
	s.link(ctx, files)
	for _, file := range slices.Backward(files) {
		if i, shown := at[file.messageID]; shown {
			detail.Messages[i].Attachments = append(detail.Messages[i].Attachments, file.Attachment)
		}
	}
	return detail, s.deliveries(ctx, detail.Messages)
}

// find returns a thread that it reads by read, which locks it or not.
func (s *Support) find(ctx context.Context, threadID string, read func(context.Context, string) (Thread, bool, error)) (Thread, error) {
	if len(threadID) != id.Len || !clean(threadID) {
		return Thread{}, ErrNotFound
	}
	thread, found, err := read(ctx, threadID)
	if err != nil {
		return Thread{}, err
	}
	if !found {
		return Thread{}, ErrNotFound
	}
	return thread, nil
}

// deliveries sets the delivery states of replies by mail.
func (s *Support) deliveries(ctx context.Context, messages []Message) error {
	if s.peers.Email == nil {
		return nil
	}
	var ids []string
	for _, m := range messages {
		if m.EmailJobID != nil {
			ids = append(ids, *m.EmailJobID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	states, err := s.peers.Email.States(ctx, ids)
	if err != nil {
		return err
	}
	for i, m := range messages {
		if m.EmailJobID != nil {
			messages[i].Delivery = optional.Text(string(states[*m.EmailJobID]))
		}
	}
	return nil
}

// ListReplies lists the replies of all threads, newest first.
func (s *Support) ListReplies(ctx context.Context, page capability.Page) (capability.Items[Message], error) {
	page = page.Bounded()
	var below string
	if _, err := page.After(&below); err != nil {
		return capability.Items[Message]{}, err
	}
	rows, err := s.store.replies(ctx, below, page.Limit+1)
	if err != nil {
		return capability.Items[Message]{}, err
	}
	items := capability.Paged(page, rows, func(m Message) []any { return []any{m.ID} })
	return items, s.deliveries(ctx, items.Items)
}

// change runs a staff operation on a thread and records it in audit, in one transaction.
func (s *Support) change(ctx context.Context, threadID, action string, detail any, do func(context.Context, Thread) (changed bool, err error)) (after Thread, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		before, err := s.find(ctx, threadID, s.store.lockThread)
		if err != nil {
			return err
		}
		after = before
		changed, err := do(ctx, before)
		if err != nil || !changed {
			return err
		}
		if err := s.peers.Audit.Record(ctx, audit.Event{
			Action: action, Subject: audit.Target{Type: "support_thread", ID: threadID}, Detail: detail,
		}); err != nil {
			return err
		}
		after, err = s.find(ctx, threadID, s.store.thread)
		return err
	})
	return after, err
}

// Archive archives or reopens a thread; a thread that is already in that state is unchanged.
// Refuses with support/not_found.
func (s *Support) Archive(ctx context.Context, threadID string, archived bool) (Thread, error) {
	state, action := StateArchived, "support/thread_archived"
	if !archived {
		state, action = StateOpen, "support/thread_reopened"
	}
	return s.change(ctx, threadID, action, nil, func(ctx context.Context, t Thread) (bool, error) {
		if t.State == state {
			return false, nil
		}
		at := int64(0)
		if archived {
			at = s.db.Now(ctx).UnixMilli()
		}
		return true, s.store.setState(ctx, threadID, state, at)
	})
}

// SetFlags sets flags of a thread. Refuses with support/not_found and kit/invalid_request.
func (s *Support) SetFlags(ctx context.Context, threadID string, c FlagChange) (Thread, error) {
	if c.Assignee != nil {
		if err := capability.CheckText("assignee", *c.Assignee, 0, maxAssignee); err != nil {
			return Thread{}, err
		}
	}
	var until *capability.Time
	if c.SnoozedUntil != nil && *c.SnoozedUntil != "" {
		at, err := time.Parse(time.RFC3339, *c.SnoozedUntil)
		if err != nil || at.Year() < 2000 || at.Year() > 2200 {
			return Thread{}, capability.ErrInvalidRequest.Saying("snoozedUntil is not an instant of RFC 3339.")
		}
		t := capability.Millis(at.UnixMilli())
		until = &t
	}
	return s.change(ctx, threadID, "support/thread_flagged", c.names(), func(ctx context.Context, t Thread) (bool, error) {
		flags := t.Flags
		set(&flags.Starred, c.Starred)
		set(&flags.NeedsReply, c.NeedsReply)
		set(&flags.Spam, c.Spam)
		set(&flags.Suspicious, c.Suspicious)
		if c.Assignee != nil {
			flags.Assignee = optional.Text(*c.Assignee)
		}
		if c.SnoozedUntil != nil {
			flags.SnoozedUntil = until
		}
		return c != FlagChange{}, s.store.setFlags(ctx, threadID, flags)
	})
}

func set(flag *bool, to *bool) {
	if to != nil {
		*flag = *to
	}
}

// names returns the names of the flags that a change sets, for audit.
func (c FlagChange) names() map[string][]string {
	names := []string{}
	for name, set := range map[string]bool{
		"starred": c.Starred != nil, "needsReply": c.NeedsReply != nil, "spam": c.Spam != nil, "suspicious": c.Suspicious != nil,
		"assignee": c.Assignee != nil, "snoozedUntil": c.SnoozedUntil != nil,
	} {
		if set {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return map[string][]string{"flags": names}
}
