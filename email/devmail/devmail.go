// Package devmail stores mail in the database instead of sending it, sealed under the master keys,
// and shows it on a page. The page exists only in development and is only served to browsers on the
// same machine, because mails contain sign-in links.
package devmail

import (
	"context"
	"strings"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/seal"
)

// Mailbox stores mail. It is safe for concurrent use.
type Mailbox struct {
	host   capability.Host
	sealer capability.Sealer
}

// New returns a mailbox on the table email_mailbox of a host's database.
func New(host capability.Host, sealer capability.Sealer) *Mailbox { return &Mailbox{host, sealer} }

// Sealed is the column of the sealed messages.
var Sealed = seal.Column[string]{Table: "email_mailbox", Key: "id", Column: "message", Context: sealContext}

// sealContext binds a sealed message to its row.
func sealContext(mailID string) string { return "email/mailbox/" + mailID }

// Keep stores the complete message of a job for an address and returns its ID. It fails if the job
// was removed.
func (b *Mailbox) Keep(ctx context.Context, jobID, to string, message []byte) (string, error) {
	now := b.host.Now()
	mailID := id.New(now)
	_, err := b.host.DB.Exec(ctx, `INSERT INTO email_mailbox (id, job_id, address_key, message, created_at) VALUES ($1, $2, $3, $4, $5)`,
		mailID, jobID, strings.ToLower(to), b.sealer.Seal(sealContext(mailID), message), now.UnixMilli())
	return mailID, err
}

const columns = `id, address_key, message, created_at`

// scan opens a stored mail. A mail that an earlier run sealed under an ephemeral key is returned
// without content.
func (b *Mailbox) scan(row database.Scanner) (Mail, error) {
	var mailID, to string
	var sealed []byte
	var created int64
	if err := row.Scan(&mailID, &to, &sealed, &created); err != nil {
		return Mail{}, err
	}
	at := time.UnixMilli(created).UTC()
	message, err := b.sealer.Open(sealContext(mailID), sealed)
	if err != nil {
		return Mail{ID: mailID, To: to, Subject: "(sealed by another run)", KeptAt: at}, nil
	}
	return parse(mailID, to, message, at), nil
}

// Last returns the newest mail to an address; ok is false if there is none.
func (b *Mailbox) Last(ctx context.Context, to string) (mail Mail, ok bool, err error) {
	return database.Get(ctx, b.host.DB, b.scan, `SELECT `+columns+` FROM email_mailbox WHERE address_key = $1 ORDER BY id DESC LIMIT 1`,
		strings.ToLower(to))
}

func (b *Mailbox) mail(ctx context.Context, mailID string) (Mail, bool, error) {
	return database.Get(ctx, b.host.DB, b.scan, `SELECT `+columns+` FROM email_mailbox WHERE id = $1`, mailID)
}

// listed is how many mails the page shows.
const listed = 100

func (b *Mailbox) newest(ctx context.Context) ([]Mail, error) {
	return database.All(ctx, b.host.DB, b.scan, `SELECT `+columns+` FROM email_mailbox ORDER BY id DESC LIMIT $1`, listed)
}

// Sweep deletes up to limit mails stored before the instant.
func (b *Mailbox) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return b.host.DB.Exec(ctx, `DELETE FROM email_mailbox WHERE id IN (
		SELECT id FROM (SELECT id, created_at FROM email_mailbox ORDER BY id LIMIT $2) AS oldest WHERE created_at < $1)`,
		before.UnixMilli(), limit)
}
