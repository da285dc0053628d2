package auth

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

const sessionColumns = `id, user_id, device_id, methods, remembered, ip, user_agent, created_at, used_at, expires_at, ends_at,
	refresh_key, refresh_counter, rotated_at, refresh_confirmed, confirmed_at, factor_at, used_day`

func scanSession(row database.Scanner) (s Session, err error) {
	var methods string
	var created, used, expires, ends, rotated, confirmed, factor int64
	err = row.Scan(&s.ID, &s.UserID, &s.DeviceID, &methods, &s.Remembered, &s.IP, &s.UserAgent, &created, &used, &expires, &ends,
		&s.refresh.sealed, &s.refresh.counter, &rotated, &s.refresh.confirmed, &confirmed, &factor, &s.usedDay)
	s.Methods = splitMethods(methods)
	s.CreatedAt, s.UpdatedAt, s.ExpiresAt, s.EndsAt = instant(created), instant(used), instant(expires), instant(ends)
	if rotated != 0 {
		s.refresh.rotatedAt = instant(rotated)
	}
	if s.ConfirmedAt = instant(confirmed); confirmed == 0 {
		s.ConfirmedAt = s.CreatedAt
	}
	if factor != 0 {
		s.FactorAt = instant(factor)
	}
	return s, err
}

func (s store) insertSession(ctx context.Context, session Session, hash []byte) error {
	_, err := s.db.Exec(ctx, `INSERT INTO auth_session (id, user_id, device_id, secret_hash, refresh_key, methods, remembered, ip, user_agent,
		created_at, used_at, expires_at, ends_at, confirmed_at, factor_at, used_day)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
		session.ID, session.UserID, session.DeviceID, hash, session.refresh.sealed, joinMethods(session.Methods), session.Remembered,
		session.IP, session.UserAgent, session.CreatedAt.UnixMilli(), session.UpdatedAt.UnixMilli(),
		session.ExpiresAt.UnixMilli(), session.EndsAt.UnixMilli(), session.ConfirmedAt.UnixMilli(), millis(session.FactorAt), session.usedDay)
	return err
}

// millis returns the stored form of an instant, 0 for the zero time.
func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// confirmSession records a proof of its user.
func (s store) confirmSession(ctx context.Context, sessionID string, factor bool, now time.Time) error {
	factorAt := int64(0)
	if factor {
		factorAt = now.UnixMilli()
	}
	_, err := s.db.Exec(ctx, `UPDATE auth_session SET confirmed_at = $2, factor_at = CASE WHEN $3 > factor_at THEN $3 ELSE factor_at END
		WHERE id = $1`, sessionID, now.UnixMilli(), factorAt)
	return err
}

// sessionBySecret finds a live session by the hash of its cookie.
func (s store) sessionBySecret(ctx context.Context, hash []byte, now time.Time) (Session, bool, error) {
	return database.Get(ctx, s.db, scanSession, `SELECT `+sessionColumns+` FROM auth_session WHERE secret_hash = $1 AND expires_at > $2`,
		hash, now.UnixMilli())
}

// sessionByID finds a live session.
func (s store) sessionByID(ctx context.Context, sessionID string, now time.Time) (Session, bool, error) {
	return database.Get(ctx, s.db, scanSession, `SELECT `+sessionColumns+` FROM auth_session WHERE id = $1 AND expires_at > $2`,
		sessionID, now.UnixMilli())
}

func (s store) sessionsOf(ctx context.Context, userID string, now time.Time, limit int) ([]Session, error) {
	return database.All(ctx, s.db, scanSession, `SELECT `+sessionColumns+` FROM auth_session WHERE user_id = $1 AND expires_at > $2
		ORDER BY created_at DESC, id DESC LIMIT $3`, userID, now.UnixMilli(), limit)
}

// touchSession writes a use of a session unless another request has written one since before.
func (s store) touchSession(ctx context.Context, session Session, before time.Time) (touched bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE auth_session SET used_at = $2, expires_at = $3, ip = $4, user_agent = $5, used_day = $7
		WHERE id = $1 AND used_at = $6`,
		session.ID, session.UpdatedAt.UnixMilli(), session.ExpiresAt.UnixMilli(), session.IP, session.UserAgent, before.UnixMilli(), session.usedDay)
	return n == 1, err
}

func (s store) replaceSecret(ctx context.Context, sessionID string, hash []byte) (found bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE auth_session SET secret_hash = $2 WHERE id = $1`, sessionID, hash)
	return n == 1, err
}

// rotate makes the next refresh token of a live session the valid one; it returns false if the
// given one is no longer valid.
func (s store) rotate(ctx context.Context, session Session, counter int64, now time.Time) (rotated bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE auth_session SET refresh_counter = refresh_counter + 1, rotated_at = $3, refresh_confirmed = FALSE,
		used_at = $3, expires_at = $4, ip = $5, user_agent = $6, used_day = $7 WHERE id = $1 AND refresh_counter = $2 AND expires_at > $3`,
		session.ID, counter, now.UnixMilli(), session.ExpiresAt.UnixMilli(), session.IP, session.UserAgent, session.usedDay)
	return n == 1, err
}

// confirmRefresh records that the client has received its refresh token.
func (s store) confirmRefresh(ctx context.Context, sessionID string, counter int64) error {
	_, err := s.db.Exec(ctx, `UPDATE auth_session SET refresh_confirmed = TRUE WHERE id = $1 AND refresh_counter = $2 AND refresh_confirmed = FALSE`,
		sessionID, counter)
	return err
}

func (s store) deleteExpiredSessions(ctx context.Context, userID string, now time.Time) error {
	n, err := s.db.Exec(ctx, `DELETE FROM auth_session WHERE user_id = $1 AND expires_at <= $2`, userID, now.UnixMilli())
	if err != nil || n == 0 {
		return err
	}
	return s.deleteIdleDevices(ctx, userID)
}

func (s store) userOfSession(ctx context.Context, sessionID string) (userID string, found bool, err error) {
	return database.Get(ctx, s.db, scanText, `SELECT user_id FROM auth_session WHERE id = $1`, sessionID)
}

func (s store) deleteSession(ctx context.Context, sessionID string) (found bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM auth_session WHERE id = $1`, sessionID)
	return n == 1, err
}

func (s store) deleteSessionsBut(ctx context.Context, userID, keep string) (ids []string, err error) {
	return database.All(ctx, s.db, scanText, `DELETE FROM auth_session WHERE user_id = $1 AND id <> $2 RETURNING id`, userID, keep)
}

// deleteOldestSessions deletes all but the most recently used sessions.
func (s store) deleteOldestSessions(ctx context.Context, userID string, keep int) (ids []string, err error) {
	return database.All(ctx, s.db, scanText, `DELETE FROM auth_session WHERE id IN (SELECT id FROM auth_session WHERE user_id = $1
		ORDER BY used_at DESC, id DESC LIMIT $3 OFFSET $2) RETURNING id`, userID, keep, sweepChunk)
}

func (s store) deleteSessionsOfDevice(ctx context.Context, userID, deviceID string) (ids []string, err error) {
	return database.All(ctx, s.db, scanText, `DELETE FROM auth_session WHERE user_id = $1 AND device_id = $2 RETURNING id`, userID, deviceID)
}

func scanText(row database.Scanner) (text string, err error) { return text, row.Scan(&text) }

const deviceColumns = `id, user_id, name, user_agent, ip, created_at, last_seen_at`

func scanDevice(row database.Scanner) (d Device, err error) {
	var created, seen int64
	err = row.Scan(&d.ID, &d.UserID, &d.Name, &d.UserAgent, &d.IP, &created, &seen)
	d.CreatedAt, d.LastSeenAt = instant(created), instant(seen)
	return d, err
}

func (s store) insertDevice(ctx context.Context, d Device) error {
	_, err := s.db.Exec(ctx, `INSERT INTO auth_device (id, user_id, name, user_agent, ip, created_at, last_seen_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		d.ID, d.UserID, d.Name, d.UserAgent, d.IP, d.CreatedAt.UnixMilli(), d.LastSeenAt.UnixMilli())
	return err
}

func (s store) hasDevice(ctx context.Context, userID, deviceID string) (bool, error) {
	_, found, err := database.Get(ctx, s.db, scanText, `SELECT id FROM auth_device WHERE id = $1 AND user_id = $2`, deviceID, userID)
	return found, err
}

func (s store) touchDevice(ctx context.Context, deviceID string, from origin, now time.Time) error {
	_, err := s.db.Exec(ctx, `UPDATE auth_device SET last_seen_at = $2, ip = $3, user_agent = $4 WHERE id = $1`,
		deviceID, now.UnixMilli(), from.ip, from.userAgent)
	return err
}

// The lists of devices with a live session after an id: everybody's, and one
// user's, which reads no other's.
const (
	liveDevices = `id > $1 AND EXISTS (SELECT 1 FROM auth_session WHERE device_id = auth_device.id AND expires_at > $2) ORDER BY id LIMIT $3`
	allDevices  = `SELECT ` + deviceColumns + ` FROM auth_device WHERE ` + liveDevices
	devicesOf   = `SELECT ` + deviceColumns + ` FROM auth_device WHERE user_id = $4 AND ` + liveDevices
)

// devices lists a user's devices, or, for an empty user, everybody's.
func (s store) devices(ctx context.Context, userID, after string, now time.Time, limit int) ([]Device, error) {
	if userID == "" {
		return database.All(ctx, s.db, scanDevice, allDevices, after, now.UnixMilli(), limit)
	}
	return database.All(ctx, s.db, scanDevice, devicesOf, after, now.UnixMilli(), limit, userID)
}

func (s store) deleteDevice(ctx context.Context, userID, deviceID string) (found bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM auth_device WHERE id = $1 AND user_id = $2`, deviceID, userID)
	return n == 1, err
}

// deleteIdleDevices removes a user's devices that have no session left.
func (s store) deleteIdleDevices(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM auth_device WHERE user_id = $1
		AND NOT EXISTS (SELECT 1 FROM auth_session WHERE device_id = auth_device.id)`, userID)
	return err
}
