package email

import (
	"context"
	"time"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

// Scope says what a suppression holds back.
type Scope string

// The scopes: everything, or lists only.
const (
	ScopeAll  Scope = "all"
	ScopeList Scope = "list"
)

// holdsBack returns for no scope, "", as well.
func (s Scope) holdsBack(c Category) bool {
	return s == ScopeAll || (s == ScopeList && c == List)
}

// Reason says why an address is suppressed.
type Reason string

// The reasons.
const (
	HardBounce      Reason = "hard_bounce"
	SoftBounceLimit Reason = "soft_bounce_limit"
	Complaint       Reason = "complaint"
	Unsubscribed    Reason = "unsubscribe"
	Manual          Reason = "manual"
	InvalidAddress  Reason = "invalid"
)

// Suppression holds messages to an address back.
type Suppression struct {
	// Address is in canonical form.
	Address string `json:"address"`
	Scope   Scope  `json:"scope"`
	Reason  Reason `json:"reason"`
	// Source is dsn, provider, link, controlplane or system.
	Source    string           `json:"source"`
	JobID     *string          `json:"jobId"`
	Note      *string          `json:"note"`
	CreatedAt capability.Time  `json:"createdAt"`
	ExpiresAt *capability.Time `json:"expiresAt"`
}

const maxNote = 1000

// Suppress holds messages to an address back until [Email.Unsuppress]. One that
// is suppressed already keeps its reason; the scope only widens. Refuses with
// email/invalid_address and kit/invalid_request.
func (e *Email) Suppress(ctx context.Context, text string, scope Scope, note string) (suppressed Suppression, added bool, err error) {
	a, err := parseAddress(text)
	switch {
	case err != nil:
		return Suppression{}, false, err
	case scope != ScopeAll && scope != ScopeList:
		return Suppression{}, false, capability.ErrInvalidRequest.Saying("A scope is all or list.")
	case len(note) > maxNote || !storableText(note):
		return Suppression{}, false, capability.ErrInvalidRequest.Saying("A note is at most %d bytes of text.", maxNote)
	}
	key := e.keyOf(a)
	err = e.host.DB.InTx(ctx, func(ctx context.Context) error {
		now := e.host.DB.Now(ctx)
		row := suppressionRow{key: key, address: a.spec, scope: scope, reason: Manual, source: "controlplane", note: note}
		if added, err = e.store.suppress(ctx, row, now); err != nil {
			return err
		}
		if suppressed, _, err = e.store.suppression(ctx, key, now); err != nil {
			return err
		}
		return e.peers.Audit.Record(ctx, audit.Event{
			Action: "email/suppressed", Subject: audit.Target{Type: "email_address", ID: key}, Detail: map[string]any{"scope": scope, "added": added},
		})
	})
	return suppressed, added, err
}

// Unsuppress lets mail to an address through again. A complaint needs force.
// Refuses with email/invalid_address, suppression_not_found and
// suppression_protected.
func (e *Email) Unsuppress(ctx context.Context, text string, force bool) error {
	a, err := parseAddress(text)
	if err != nil {
		return err
	}
	key := e.keyOf(a)
	return e.host.DB.InTx(ctx, func(ctx context.Context) error {
		s, found, err := e.store.suppression(ctx, key, e.host.DB.Now(ctx))
		switch {
		case err != nil:
			return err
		case !found:
			return ErrNotSuppressed
		case s.Reason == Complaint && !force:
			return ErrProtected
		}
		if err := e.store.unsuppress(ctx, key); err != nil {
			return err
		}
		return e.peers.Audit.Record(ctx, audit.Event{
			Action: "email/unsuppressed", Subject: audit.Target{Type: "email_address", ID: key}, Detail: map[string]any{"reason": s.Reason},
		})
	})
}

// Suppression returns what holds an address back; ok is false for nothing.
// Refuses with email/invalid_address.
func (e *Email) Suppression(ctx context.Context, text string) (s Suppression, ok bool, err error) {
	a, err := parseAddress(text)
	if err != nil {
		return Suppression{}, false, err
	}
	return e.store.suppression(ctx, e.keyOf(a), e.host.DB.Now(ctx))
}

// SuppressionFilter selects suppressions; zero fields select all.
type SuppressionFilter struct {
	// Begins is how the canonical address begins.
	Begins string
	Reason Reason
	Scope  Scope
}

// Suppressions lists by address. A cursor of another list is refused with
// kit/invalid_request.
func (e *Email) Suppressions(ctx context.Context, f SuppressionFilter, page capability.Page) (capability.Items[Suppression], error) {
	var after string
	if _, err := page.After(&after); err != nil {
		return capability.Items[Suppression]{}, err
	}
	rows, err := e.store.suppressions(ctx, f, after, e.host.DB.Now(ctx), page.Limit+1)
	if err != nil {
		return capability.Items[Suppression]{}, err
	}
	return capability.Paged(page, rows, func(s Suppression) []any { return []any{s.Address} }), nil
}

// suppressAfter suppresses an address because of what happened to a message;
// until is zero for ever.
func (e *Email) suppressAfter(ctx context.Context, key, address string, reason Reason, source, jobID string, until time.Time) error {
	row := suppressionRow{key: key, address: address, scope: ScopeAll, reason: reason, source: source, jobID: jobID}
	if reason == Unsubscribed {
		row.scope = ScopeList
	}
	if !until.IsZero() {
		row.expiresAt = until.UnixMilli()
	}
	_, err := e.store.suppress(ctx, row, e.host.DB.Now(ctx))
	return err
}

// suppressionRow is a row of email_suppression to be.
type suppressionRow struct {
	key, address string
	scope        Scope
	reason       Reason
	source       string
	jobID, note  string
	expiresAt    int64
}

// suppress adds a row or strengthens the one there is: its scope only widens,
// its end only moves away, and a complaint, which protects, stays one.
func (s store) suppress(ctx context.Context, row suppressionRow, now time.Time) (added bool, err error) {
	if _, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key = $1 AND expires_at > 0 AND expires_at <= $2`,
		row.key, now.UnixMilli()); err != nil {
		return false, err
	}
	n, err := s.db.Exec(ctx, `INSERT INTO email_suppression (address_key, address, scope, reason, source, job_id, note, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (address_key) DO NOTHING`,
		row.key, row.address, string(row.scope), string(row.reason), row.source, row.jobID, row.note, now.UnixMilli(), row.expiresAt)
	if err != nil || n == 1 {
		return n == 1, err
	}
	_, err = s.db.Exec(ctx, `UPDATE email_suppression SET
			scope = CASE WHEN $2 = 'all' THEN 'all' ELSE scope END,
			reason = CASE WHEN $3 = 'complaint' OR (scope = 'list' AND $2 = 'all') THEN $3 ELSE reason END,
			source = CASE WHEN $3 = 'complaint' OR (scope = 'list' AND $2 = 'all') THEN $4 ELSE source END,
			expires_at = CASE WHEN expires_at = 0 OR CAST($5 AS BIGINT) = 0 THEN 0 WHEN expires_at < $5 THEN CAST($5 AS BIGINT) ELSE expires_at END
		WHERE address_key = $1`, row.key, string(row.scope), string(row.reason), row.source, row.expiresAt)
	return false, err
}

func (s store) unsuppress(ctx context.Context, key string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key = $1`, key)
	return err
}

// resubscribe takes back what the reader's own link did, and nothing else.
func (s store) resubscribe(ctx context.Context, key string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM email_suppression WHERE address_key = $1 AND reason = 'unsubscribe' AND source = 'link'`, key)
	return err
}

const suppressionColumns = `address_key, scope, reason, source, job_id, note, created_at, expires_at`

func scanSuppression(row database.Scanner) (s Suppression, err error) {
	var jobID, note string
	var created, expires int64
	err = row.Scan(&s.Address, &s.Scope, &s.Reason, &s.Source, &jobID, &note, &created, &expires)
	s.JobID, s.Note = optionalText(jobID), optionalText(note)
	s.CreatedAt, s.ExpiresAt = capability.Millis(created), optionalTime(expires)
	return s, err
}

func (s store) suppression(ctx context.Context, key string, now time.Time) (Suppression, bool, error) {
	return database.Get(ctx, s.db, scanSuppression, `SELECT `+suppressionColumns+` FROM email_suppression
		WHERE address_key = $1 AND (expires_at = 0 OR expires_at > $2)`, key, now.UnixMilli())
}

func (s store) suppressions(ctx context.Context, f SuppressionFilter, after string, now time.Time, limit int) ([]Suppression, error) {
	return database.All(ctx, s.db, scanSuppression, `SELECT `+suppressionColumns+` FROM email_suppression
		WHERE address_key > $1 AND address_key >= $2 AND ($2 = '' OR substr(address_key, 1, length($2)) = $2)
			AND ($3 = '' OR reason = $3) AND ($4 = '' OR scope = $4) AND (expires_at = 0 OR expires_at > $5)
		ORDER BY address_key LIMIT $6`, after, f.Begins, string(f.Reason), string(f.Scope), now.UnixMilli(), limit)
}
