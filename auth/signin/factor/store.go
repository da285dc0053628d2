package factor

import (
	"context"
	"time"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

func (s store) state(ctx context.Context, userID string) (State, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (State, error) {
		f := State{userID: userID}
		err := row.Scan(&f.Enabled, &f.Mails, &f.totp, &f.pending, &f.step, &f.backupKey, &f.failures, &f.lockedUntil,
			&f.sessionFailures, &f.sessionLocked)
		return f, err
	}, `SELECT enabled, mails, totp, totp_pending, totp_step, backup_key, failures, locked_until, session_failures, session_locked_until
		FROM signin_two_factor WHERE user_id = $1`, userID)
}

// ensure makes the row of a user who has none, not enabled.
func (s store) ensure(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_two_factor
		(user_id, enabled, mails, totp, totp_pending, totp_step, backup_key, failures, locked_until, created_at)
		VALUES ($1, $2, $2, $3, $3, 0, $3, 0, 0, $4) ON CONFLICT DO NOTHING`,
		userID, false, []byte{}, s.db.Now(ctx).UnixMilli())
	return err
}

func (s store) setPendingTOTP(ctx context.Context, userID string, sealed []byte) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET totp_pending = $2 WHERE user_id = $1`, userID, sealed)
	return err
}

// confirmTOTP makes the pending secret the active one, unless it was replaced meanwhile.
func (s store) confirmTOTP(ctx context.Context, userID string, pending []byte, step int64) (confirmed bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET enabled = $4, totp = totp_pending, totp_pending = $5, totp_step = $3
		WHERE user_id = $1 AND totp_pending = $2`, userID, pending, step, true, []byte{})
	return n == 1, err
}

// takeStep uses up the steps until one; of two callers that take the same, one succeeds.
func (s store) takeStep(ctx context.Context, userID string, step int64) (taken bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET totp_step = $2 WHERE user_id = $1 AND totp_step < $2`, userID, step)
	return n == 1, err
}

func (s store) enableMails(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET enabled = $2, mails = $2 WHERE user_id = $1`, userID, true)
	return err
}

// setFailures counts wrong codes; until is when codes are taken again.
func (s store) setFailures(ctx context.Context, userID string, failures, until int64) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET failures = $2, locked_until = $3 WHERE user_id = $1`, userID, failures, until)
	return err
}

// setSessionFailures is setFailures for proofs in sessions.
func (s store) setSessionFailures(ctx context.Context, userID string, failures, until int64) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET session_failures = $2, session_locked_until = $3 WHERE user_id = $1`,
		userID, failures, until)
	return err
}

func (s store) removeSince(ctx context.Context, userID string, since time.Time) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_two_factor WHERE user_id = $1 AND created_at >= $2`, userID, since.UnixMilli())
	return err
}

// remove ends the second factor of a user and all that goes with it.
func (s store) remove(ctx context.Context, userID string) (had bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_two_factor WHERE user_id = $1`, userID)
	if err != nil {
		return false, err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_backup_code WHERE user_id = $1`, userID); err != nil {
		return false, err
	}
	return n == 1, s.removeChallenges(ctx, userID)
}

// removeChallenges ends the sign-ins of a user that wait for a second factor,
// and the trust in their browsers.
func (s store) removeChallenges(ctx context.Context, userID string) error {
	for _, table := range []string{"signin_challenge", "signin_trusted_device"} {
		if _, err := s.db.Exec(ctx, `DELETE FROM `+table+` WHERE user_id = $1`, userID); err != nil {
			return err
		}
	}
	return nil
}

// replaceBackupCodes puts codes in place of those before.
func (s store) replaceBackupCodes(ctx context.Context, userID string, key []byte, hashes [][]byte) error {
	if _, err := s.db.Exec(ctx, `UPDATE signin_two_factor SET backup_key = $2 WHERE user_id = $1`, userID, key); err != nil {
		return err
	}
	if _, err := s.db.Exec(ctx, `DELETE FROM signin_backup_code WHERE user_id = $1`, userID); err != nil {
		return err
	}
	for _, hash := range hashes {
		if _, err := s.db.Exec(ctx, `INSERT INTO signin_backup_code (user_id, hash) VALUES ($1, $2)`, userID, hash); err != nil {
			return err
		}
	}
	return nil
}

// takeBackupCode uses a code up; of two that take one, one wins.
func (s store) takeBackupCode(ctx context.Context, userID string, hash []byte) (taken bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_backup_code WHERE user_id = $1 AND hash = $2`, userID, hash)
	return n == 1, err
}

func (s store) insertChallenge(ctx context.Context, c Challenge, expiresAt time.Time) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_challenge (hash, user_id, method, remembered, attempts, created_at, expires_at)
		VALUES ($1, $2, $3, $4, 0, $5, $6)`, c.hash, c.UserID, c.Method, c.Remembered, c.CreatedAt.UnixMilli(), expiresAt.UnixMilli())
	return err
}

func (s store) challenge(ctx context.Context, hash []byte, now time.Time) (Challenge, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (Challenge, error) {
		c := Challenge{hash: hash}
		var attempts, created, expires int64
		err := row.Scan(&c.UserID, &c.Method, &c.Remembered, &attempts, &created, &expires)
		c.CreatedAt = time.UnixMilli(created).UTC()
		return c, err
	}, `SELECT user_id, method, remembered, attempts, created_at, expires_at FROM signin_challenge
		WHERE hash = $1 AND expires_at > $2`, hash, now.UnixMilli())
}

// countAttempt returns how often a challenge was tried, this time included.
func (s store) countAttempt(ctx context.Context, hash []byte) (attempts int64, found bool, err error) {
	return database.Get(ctx, s.db, scanInt, `UPDATE signin_challenge SET attempts = attempts + 1 WHERE hash = $1 RETURNING attempts`, hash)
}

// removeChallenge uses a challenge up; of two that do, one wins.
func (s store) removeChallenge(ctx context.Context, hash []byte) (removed bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_challenge WHERE hash = $1`, hash)
	return n == 1, err
}

// insertTrusted keeps the latest devices of a user, as many as limit.
func (s store) insertTrusted(ctx context.Context, hash []byte, userID string, now, expiresAt time.Time, limit int) error {
	if _, err := s.db.Exec(ctx, `INSERT INTO signin_trusted_device (hash, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4)`,
		hash, userID, now.UnixMilli(), expiresAt.UnixMilli()); err != nil {
		return err
	}
	_, err := s.db.Exec(ctx, `DELETE FROM signin_trusted_device WHERE user_id = $1 AND (expires_at <= $2 OR hash NOT IN (
		SELECT hash FROM signin_trusted_device WHERE user_id = $1 ORDER BY created_at DESC, hash LIMIT $3))`,
		userID, now.UnixMilli(), limit)
	return err
}

// takeTrusted uses the trust in a browser up, to be given anew.
func (s store) takeTrusted(ctx context.Context, hash []byte, userID string, now time.Time) (taken bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_trusted_device WHERE hash = $1 AND user_id = $2 AND expires_at > $3`,
		hash, userID, now.UnixMilli())
	return n == 1, err
}

// trustedUntil lists when the trust in a user's browsers ends.
func (s store) trustedUntil(ctx context.Context, userID string) ([]capability.Time, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (capability.Time, error) {
		at, err := scanInt(row)
		return capability.Millis(at), err
	}, `SELECT expires_at FROM signin_trusted_device WHERE user_id = $1 ORDER BY expires_at`, userID)
}

// sweep removes one batch of the sign-ins whose time is over.
func (s store) sweep(ctx context.Context, now time.Time, limit int64) (removed int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM signin_challenge WHERE hash IN
		(SELECT hash FROM signin_challenge WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now.UnixMilli(), limit)
}

func scanInt(row database.Scanner) (n int64, err error) { return n, row.Scan(&n) }
