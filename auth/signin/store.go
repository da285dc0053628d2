package signin

import (
	"context"
	"database/sql"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

// The provider and issuer of a password.
const (
	credential  = "credential"
	localIssuer = "local"
)

// account is a row of signin_account.
type account struct {
	id, userID, provider, issuer, accountID string
	passwordHash, scopes                    string
	createdAt, updatedAt                    capability.Time
}

const accountColumns = `id, user_id, provider, issuer, account_id, password_hash, scopes, created_at, updated_at`

func scanAccount(row database.Scanner) (a account, err error) {
	var hash sql.NullString
	var created, updated int64
	err = row.Scan(&a.id, &a.userID, &a.provider, &a.issuer, &a.accountID, &hash, &a.scopes, &created, &updated)
	a.passwordHash, a.createdAt, a.updatedAt = hash.String, capability.Millis(created), capability.Millis(updated)
	return a, err
}

// insertAccount inserts an account; it returns false if the subject is linked already.
func (s store) insertAccount(ctx context.Context, a account) (inserted bool, err error) {
	hash := sql.NullString{String: a.passwordHash, Valid: a.provider == credential}
	n, err := s.db.Exec(ctx, `INSERT INTO signin_account (`+accountColumns+`)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) ON CONFLICT (provider, issuer, account_id) DO NOTHING`,
		a.id, a.userID, a.provider, a.issuer, a.accountID, hash, a.scopes, a.createdAt.UnixMilli())
	return n == 1, err
}

// setPassword sets the one password of a user.
func (s store) setPassword(ctx context.Context, id, userID, hash string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_account (`+accountColumns+`)
		VALUES ($1, $2, 'credential', 'local', $2, $3, '', $4, $4)
		ON CONFLICT (provider, issuer, account_id) DO UPDATE SET password_hash = excluded.password_hash, updated_at = excluded.updated_at`,
		id, userID, hash, now.UnixMilli())
	return err
}

// replacePassword changes the hash unless it has changed meanwhile.
func (s store) replacePassword(ctx context.Context, userID, old, hash string, now time.Time) (replaced bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE signin_account SET password_hash = $3, updated_at = $4
		WHERE provider = 'credential' AND issuer = 'local' AND account_id = $1 AND password_hash = $2`,
		userID, old, hash, now.UnixMilli())
	return n == 1, err
}

func (s store) password(ctx context.Context, userID string) (hash string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `SELECT password_hash FROM signin_account
		WHERE provider = 'credential' AND issuer = 'local' AND account_id = $1`, userID)
}

// accounts lists the accounts by which a user may sign in. In a transaction that changes them use
// lockAccounts, which also locks them.
func (s store) accounts(ctx context.Context, userID string) ([]account, error) {
	return database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM signin_account
		WHERE user_id = $1 ORDER BY id`, userID)
}

func (s store) lockAccounts(ctx context.Context, userID string) ([]account, error) {
	return database.All(ctx, s.db, scanAccount, `SELECT `+accountColumns+` FROM signin_account
		WHERE user_id = $1 ORDER BY id `+database.ForUpdate, userID)
}

func (s store) deleteAccount(ctx context.Context, userID, id string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_account WHERE user_id = $1 AND id = $2`, userID, id)
	return err
}

func (s store) deleteAccounts(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_account WHERE user_id = $1`, userID)
	return err
}

// link is a row of signin_link.
type link struct {
	hash                        []byte
	kind, subject, userID, data string
	createdAt, expiresAt        time.Time
}

// linksPerSubject bounds the live links of a kind; beyond it the oldest are removed.
const linksPerSubject = 5

func (s store) insertLink(ctx context.Context, k link) error {
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_link WHERE token_hash IN (
		SELECT token_hash FROM signin_link WHERE kind = $1 AND subject = $2
		ORDER BY created_at DESC, token_hash LIMIT 1000 OFFSET $3)`, k.kind, k.subject, linksPerSubject-1); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `INSERT INTO signin_link (token_hash, kind, subject, user_id, data, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7)`, k.hash, k.kind, k.subject,
		sql.NullString{String: k.userID, Valid: k.userID != ""}, k.data, k.createdAt.UnixMilli(), k.expiresAt.UnixMilli())
	return err
}

const linkColumns = `kind, subject, user_id, data, expires_at`

func scanLink(row database.Scanner) (k link, err error) {
	var user sql.NullString
	var expires int64
	err = row.Scan(&k.kind, &k.subject, &user, &k.data, &expires)
	k.userID, k.expiresAt = user.String, time.UnixMilli(expires)
	return k, err
}

// peekLink reads a link and leaves it usable.
func (s store) peekLink(ctx context.Context, hash []byte) (link, bool, error) {
	return database.Get(ctx, s.db, scanLink, `SELECT `+linkColumns+` FROM signin_link WHERE token_hash = $1`, hash)
}

// takeLink uses a link up: of any number of callers one gets it.
func (s store) takeLink(ctx context.Context, hash []byte) (link, bool, error) {
	return database.Get(ctx, s.db, scanLink, `DELETE FROM signin_link WHERE token_hash = $1 RETURNING `+linkColumns, hash)
}

func (s store) deleteLinks(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_link WHERE user_id = $1`, userID)
	return err
}

func (s store) deleteLinksTo(ctx context.Context, kind, subject string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_link WHERE kind = $1 AND subject = $2`, kind, subject)
	return err
}

// clientsPerUser bounds the known clients of a user; beyond it those unseen longest are removed.
const clientsPerUser = 20

func (s store) knowsClient(ctx context.Context, userID string, hash []byte) (bool, error) {
	_, found, err := database.Get(ctx, s.db, scanText,
		`SELECT user_id FROM signin_client WHERE user_id = $1 AND secret_hash = $2`, userID, hash)
	return found, err
}

// clientOfOthers reports whether an account of somebody else knows a client.
func (s store) clientOfOthers(ctx context.Context, userID string, hash []byte) (bool, error) {
	_, found, err := database.Get(ctx, s.db, scanText,
		`SELECT user_id FROM signin_client WHERE secret_hash = $2 AND user_id <> $1 LIMIT 1`, userID, hash)
	return found, err
}

func (s store) rememberClient(ctx context.Context, userID string, hash []byte, now time.Time) error {
	if _, err := s.db.Exec(ctx, `INSERT INTO signin_client (secret_hash, user_id, seen_at) VALUES ($1, $2, $3)
		ON CONFLICT (user_id, secret_hash) DO UPDATE SET seen_at = excluded.seen_at`, hash, userID, now.UnixMilli()); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `DELETE FROM signin_client WHERE user_id = $1 AND secret_hash IN (
		SELECT secret_hash FROM signin_client WHERE user_id = $1 ORDER BY seen_at DESC, secret_hash LIMIT 1000 OFFSET $2)`,
		userID, clientsPerUser)
	return err
}

// insertNewcomer notes a user who has yet to prove an address to enter.
func (s store) insertNewcomer(ctx context.Context, userID string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_newcomer (user_id, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		userID, now.UnixMilli())
	return err
}

// deleteNewcomer notes that a user has proved an address.
func (s store) deleteNewcomer(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_newcomer WHERE user_id = $1`, userID)
	return err
}

// staleNewcomers lists those of before an instant.
func (s store) staleNewcomers(ctx context.Context, before time.Time, limit int) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT user_id FROM signin_newcomer WHERE created_at < $1 ORDER BY created_at LIMIT $2`,
		before.UnixMilli(), limit)
}

func (s store) forgetClients(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_client WHERE user_id = $1`, userID)
	return err
}

func (s store) insertBrowserSession(ctx context.Context, hash []byte, sessionID string, now time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_browser_session (session_id, secret_hash, created_at) VALUES ($1, $2, $3)`,
		sessionID, hash, now.UnixMilli())
	return err
}

// moveBrowserSessions has a browser known by another cookie.
func (s store) moveBrowserSessions(ctx context.Context, from, to []byte) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_browser_session SET secret_hash = $2 WHERE secret_hash = $1`, from, to)
	return err
}

// browserSessions lists the newest sessions of a browser. Rows go with their
// sessions.
func (s store) browserSessions(ctx context.Context, hash []byte) ([]string, error) {
	return database.All(ctx, s.db, scanText, `SELECT session_id FROM signin_browser_session
		WHERE secret_hash = $1 ORDER BY created_at DESC, session_id DESC LIMIT 20`, hash)
}

// letterKept is how long the row of a letter is kept that no job has sent.
const letterKept = time.Hour

// sweepBatch bounds one transaction of the sweep.
const sweepBatch = 1000

// sweep removes one batch of expired rows; more reports that there may be others.
func (s store) sweep(ctx context.Context, now, unseen time.Time) (more bool, err error) {
	for _, q := range []struct {
		text   string
		before time.Time
	}{
		{`DELETE FROM signin_link WHERE token_hash IN
			(SELECT token_hash FROM signin_link WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now},
		{`DELETE FROM signin_client WHERE (user_id, secret_hash) IN
			(SELECT user_id, secret_hash FROM signin_client WHERE seen_at <= $1 ORDER BY seen_at LIMIT $2)`, unseen},
		{`DELETE FROM signin_letter WHERE id IN
			(SELECT id FROM signin_letter WHERE due_at <= $1 ORDER BY due_at LIMIT $2)`, now.Add(-letterKept)},
		{`DELETE FROM signin_quota WHERE hash IN
			(SELECT hash FROM signin_quota WHERE spent_until <= $1 ORDER BY spent_until LIMIT $2)`, now},
		{`DELETE FROM signin_spent_token WHERE hash IN
			(SELECT hash FROM signin_spent_token WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now},
		{`DELETE FROM signin_used WHERE hash IN
			(SELECT hash FROM signin_used WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now},
	} {
		n, err := s.db.Exec(ctx, q.text, q.before.UnixMilli(), sweepBatch)
		if err != nil {
			return false, err
		}
		more = more || n == sweepBatch
	}
	return more, nil
}

// lockUser locks a user against other changes of factors and sessions. A transaction calls it
// first, as in auth.
func (s store) lockUser(ctx context.Context, userID string) error {
	_, _, err := database.Get(ctx, s.db, scanText, `SELECT id FROM auth_user WHERE id = $1 `+database.ForUpdate, userID)
	return err
}

// forgetSince removes the accounts and clients of a user that were added at an instant or later,
// and the links and letters since then, because a link of a later change would reverse the undoing.
// It also removes older links that change the address by an earlier approval.
func (s store) forgetSince(ctx context.Context, userID string, since time.Time) error {
	for _, query := range []string{
		`DELETE FROM signin_account WHERE user_id = $1 AND (created_at >= $2 OR provider = 'credential' AND updated_at >= $2)`,
		`DELETE FROM signin_client WHERE user_id = $1 AND seen_at >= $2`,
		`DELETE FROM signin_link WHERE user_id = $1 AND (created_at >= $2 OR kind = 'change_email' AND substr(subject, 1, 5) <> 'undo ')`,
		`DELETE FROM signin_letter WHERE user_id = $1 AND due_at >= $2`,
	} {
		if _, err := s.db.Exec(ctx, query, userID, since.UnixMilli()); err != nil {
			return err
		}
	}
	return nil
}

func scanInt(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) }

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }
