package email

import (
	"context"
	"fmt"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/internal/optional"
)

// suppressionRow is a new row of email_suppression.
type suppressionRow struct {
	key         subject
	scope       Scope
	reason      Reason
	source      string
	jobID, note string
	expiresAt   int64
}

// suppress adds a row, or extends the existing one of its address, scope and reason.
func (s store) suppress(ctx context.Context, row suppressionRow, now time.Time) (added bool, err error) {
	const same = `address_key IN ($1, $2) AND scope = $3 AND reason = $4`
	if _, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE `+same+` AND expires_at > 0 AND expires_at <= $5`,
		row.key.address, row.key.hash, string(row.scope), string(row.reason), now.UnixMilli()); err != nil {
		return false, err
	}
	n, err := s.db.Exec(ctx, `UPDATE email_suppression SET expires_at = CASE WHEN expires_at = 0 OR CAST($5 AS BIGINT) = 0 THEN 0
			WHEN expires_at < $5 THEN CAST($5 AS BIGINT) ELSE expires_at END
		WHERE `+same, row.key.address, row.key.hash, string(row.scope), string(row.reason), row.expiresAt)
	if err != nil || n > 0 {
		return false, err
	}
	n, err = s.db.Exec(ctx, `INSERT INTO email_suppression (address_key, scope, reason, source, job_id, note, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (address_key, scope, reason) DO NOTHING`,
		row.key.address, string(row.scope), string(row.reason), row.source, row.jobID, row.note, now.UnixMilli(), row.expiresAt)
	return n == 1, err
}

func (s store) unsuppress(ctx context.Context, key subject, scope Scope, reason Reason) error {
	_, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key IN ($1, $2) AND scope = $3 AND reason = $4`,
		key.address, key.hash, string(scope), string(reason))
	return err
}

// resubscribe removes only what the reader's own link has added.
func (s store) resubscribe(ctx context.Context, key subject) error {
	_, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key IN ($1, $2) AND reason = 'unsubscribe' AND source = 'link'`,
		key.address, key.hash)
	return err
}

const suppressionColumns = `address_key, scope, reason, source, job_id, note, created_at, expires_at`

// strongest orders suppressions: the widest, and hardest to lift, first.
const strongest = ` ORDER BY scope, CASE reason WHEN 'complaint' THEN 0 WHEN 'manual' THEN 1 WHEN 'hard_bounce' THEN 2
	WHEN 'invalid' THEN 3 WHEN 'unsubscribe' THEN 4 ELSE 5 END`

func scanSuppression(row database.Scanner) (s Suppression, err error) {
	var jobID, note string
	var created, expires int64
	err = row.Scan(&s.Address, &s.Scope, &s.Reason, &s.Source, &jobID, &note, &created, &expires)
	s.JobID, s.Note = optional.Text(jobID), optional.Text(note)
	s.CreatedAt, s.ExpiresAt = capability.Millis(created), optional.Time(expires)
	return s, err
}

// suppressionsOf returns all suppressions of an address, the strongest first: at most one for each
// scope and reason.
func (s store) suppressionsOf(ctx context.Context, key subject, now time.Time) ([]Suppression, error) {
	return database.All(ctx, s.db, scanSuppression, `SELECT `+suppressionColumns+` FROM email_suppression
		WHERE address_key IN ($1, $2) AND (expires_at = 0 OR expires_at > $3)`+strongest, key.address, key.hash, now.UnixMilli())
}

// scopesOf returns the scopes of all suppressions of an address. It reads the keys one after the other, because SQLite
// makes a table of a list of them.
func (s store) scopesOf(ctx context.Context, key subject, now time.Time) ([]Scope, error) {
	const scopes = `SELECT scope FROM email_suppression WHERE (expires_at = 0 OR expires_at > $3) AND address_key = `
	return database.All(ctx, s.db, func(row database.Scanner) (scope Scope, err error) { return scope, row.Scan(&scope) },
		scopes+`$1 UNION ALL `+scopes+`$2`, key.address, key.hash, now.UnixMilli())
}

func (s store) suppressionsAmong(ctx context.Context, keys []string, now time.Time) ([]Suppression, error) {
	return database.All(ctx, s.db, scanSuppression, `SELECT `+suppressionColumns+` FROM email_suppression
		WHERE address_key `+database.InList(1)+` AND (expires_at = 0 OR expires_at > $2)`+strongest, database.List(keys), now.UnixMilli())
}

func (s store) suppressions(ctx context.Context, f SuppressionFilter, after Suppression, now time.Time, limit int) ([]Suppression, error) {
	where := new(database.Conditions)
	where.Begins("address_key", f.Begins)
	where.Equal("reason", string(f.Reason))
	where.Equal("scope", string(f.Scope))
	at := where.Next()
	return database.All(ctx, s.db, scanSuppression, fmt.Sprintf(`SELECT `+suppressionColumns+` FROM email_suppression
		WHERE %s AND (address_key, scope, reason) > ($%d, $%d, $%d) AND (expires_at = 0 OR expires_at > $%d)
		ORDER BY address_key, scope, reason LIMIT $%d`, where.Text(), at, at+1, at+2, at+3, at+4),
		where.Args(after.Address, string(after.Scope), string(after.Reason), now.UnixMilli(), limit)...)
}

// forgetAddress replaces an address in its suppressions by its keyed hash, and removes the job and
// the note that could identify the person.
func (s store) forgetAddress(ctx context.Context, key subject) (n int64, err error) {
	err = s.db.InTx(ctx, func(ctx context.Context) error {
		if _, err := s.db.Exec(ctx, `INSERT INTO email_suppression (address_key, scope, reason, source, job_id, note, created_at, expires_at)
			SELECT $2, scope, reason, source, '', '', created_at, expires_at FROM email_suppression WHERE address_key = $1
			ON CONFLICT (address_key, scope, reason) DO UPDATE SET expires_at = CASE WHEN email_suppression.expires_at = 0
				OR excluded.expires_at = 0 THEN 0 WHEN email_suppression.expires_at < excluded.expires_at THEN excluded.expires_at
				ELSE email_suppression.expires_at END`, key.address, key.hash); err != nil {
			return err
		}
		n, err = s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key = $1`, key.address)
		return err
	})
	return n, err
}
