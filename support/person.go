package support

import (
	"context"

	"github.com/kitbackend/kit/capability"
)

// exported is a message in the export of a person, with its thread.
type exported struct {
	ThreadID string  `json:"threadId"`
	Channel  Channel `json:"channel"`
	TicketMessage
	From     *string           `json:"from"`
	Metadata map[string]string `json:"metadata"`
}

const personChunk = 50

// Export emits the threads of a person and their messages.
func (s *Support) Export(ctx context.Context, person capability.Person, emit capability.Emit) error {
	after := ""
	for {
		ids, err := s.store.threadsOf(ctx, person, after, personChunk)
		if err != nil || len(ids) == 0 {
			return err
		}
		for _, id := range ids {
			if err := s.exportThread(ctx, id, emit); err != nil {
				return err
			}
		}
		after = ids[len(ids)-1]
	}
}

func (s *Support) exportThread(ctx context.Context, id string, emit capability.Emit) error {
	thread, found, err := s.store.thread(ctx, id)
	if err != nil || !found {
		return err
	}
	if err := emit("support_thread", thread); err != nil {
		return err
	}
	below := ""
	for {
		messages, err := s.store.messagesBelow(ctx, id, below, personChunk)
		if err != nil || len(messages) == 0 {
			return err
		}
		for _, m := range messages {
			files, err := s.store.attachmentsOf(ctx, m.ID)
			if err != nil {
				return err
			}
			record := exported{ThreadID: id, Channel: m.Channel, From: m.From, Metadata: m.Metadata, TicketMessage: TicketMessage{
				ID: m.ID, Direction: m.Direction, Text: m.Text, Attachments: files, CreatedAt: m.CreatedAt}}
			if err := emit("support_message", record); err != nil {
				return err
			}
		}
		below = messages[len(messages)-1].ID
	}
}

// Erase removes the threads of a person, one transaction for each, files first.
func (s *Support) Erase(ctx context.Context, person capability.Person) (erasure capability.Erasure, err error) {
	for {
		ids, err := s.store.threadsOf(ctx, person, "", personChunk)
		if err != nil {
			return erasure, err
		}
		if len(ids) == 0 {
			break
		}
		for _, id := range ids {
			n, err := s.eraseThread(ctx, id)
			if err != nil {
				return erasure, err
			}
			erasure.Removed += n
		}
	}
	n, err := s.store.unassign(ctx, person.ID)
	erasure.Removed += n
	return erasure, err
}

// eraseThread removes a thread. It starts over if a message with files was added after the files
// were removed.
func (s *Support) eraseThread(ctx context.Context, id string) (n int64, err error) {
	if err := s.host.Jobs.CancelAlarm(ctx, classifyBinding, id); err != nil {
		return 0, err
	}
	for {
		files, err := s.store.attachments(ctx, id, 2*maxMessages*maxAttachments) // concurrent messages may exceed the bound
		if err != nil {
			return 0, err
		}
		if err := s.removeFiles(ctx, files); err != nil {
			return 0, err
		}
		if n, gone, err := s.store.deleteThread(ctx, id, len(files)); err != nil || gone {
			return n, err
		}
	}
}

func (s *Support) removeFiles(ctx context.Context, files []attachmentRow) error {
	for _, file := range files {
		if file.objectID == "" || s.peers.Files.Remove == nil {
			continue
		}
		if err := s.peers.Files.Remove(ctx, file.objectID); err != nil {
			return err
		}
	}
	return nil
}
