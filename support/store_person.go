package support

import (
	"context"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/email"
)

// threadsOf lists the threads of a user, and the threads of the user's addresses that are linked to
// no user, after an id.
func (s store) threadsOf(ctx context.Context, person capability.Person, after string, limit int) ([]string, error) {
	var keys []string
	for _, address := range person.Emails {
		if key, err := email.Canonical(address); err == nil {
			keys = append(keys, key)
		}
	}
	return database.All(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
		`SELECT id FROM support_thread WHERE id > $1 AND ((user_id = $2 AND user_id <> '') OR (user_id = '' AND from_key `+database.InList(3)+` AND from_key <> ''))
		ORDER BY id LIMIT $4`, after, person.ID, database.List(keys), limit)
}

func (s store) messagesBelow(ctx context.Context, threadID, after string, limit int) ([]Message, error) {
	return database.All(ctx, s.db, scanMessage, `SELECT `+messageColumns+` FROM support_message m
		WHERE m.thread_id = $1 AND m.id > $2 ORDER BY m.id LIMIT $3`, threadID, after, limit)
}

func (s store) attachmentsOf(ctx context.Context, messageID string) ([]Attachment, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (a Attachment, err error) {
		return a, row.Scan(&a.ID, &a.Name, &a.Type, &a.Size)
	}, `SELECT id, name, type, size FROM support_attachment WHERE thread_id = (SELECT thread_id FROM support_message WHERE id = $1) AND message_id = $1 ORDER BY id`, messageID)
}

// deleteThread removes a thread unless it has more than the given number of attachments. Its lock
// excludes concurrent messages: they commit before the removal, or find no thread.
func (s store) deleteThread(ctx context.Context, id string, attachments int) (n int64, gone bool, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		n, gone = 0, false
		if _, _, err := s.lockThread(ctx, id); err != nil {
			return err
		}
		var there int
		if err := s.db.QueryRow(ctx, `SELECT count(*) FROM support_attachment WHERE thread_id = $1`, id).Scan(&there); err != nil || there > attachments {
			return err
		}
		for _, statement := range []string{
			`DELETE FROM support_attachment WHERE thread_id = $1`, `DELETE FROM support_message WHERE thread_id = $1`,
			`UPDATE support_thread SET related_id = '' WHERE related_id = $1 AND related_id <> ''`, `DELETE FROM support_thread WHERE id = $1`,
		} {
			rows, err := s.db.Exec(ctx, statement, id)
			if err != nil {
				return err
			}
			n += rows
		}
		gone = true
		return nil
	})
	return n, gone, err
}

func (s store) unassign(ctx context.Context, userID string) (int64, error) {
	return s.db.Exec(ctx, `UPDATE support_thread SET assignee = '' WHERE assignee = $1 AND assignee <> ''`, userID)
}
