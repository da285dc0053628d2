package mailcode

import (
	"context"
	"time"

	"github.com/kitbackend/kit/database"
)

type store struct{ db *database.DB }

// put replaces the code of the subject for its browser.
func (s store) put(ctx context.Context, c Code) error {
	_, err := s.db.Exec(ctx, `INSERT INTO signin_code (kind, subject, browser, salt, code_hash, attempts, expires_at)
		VALUES ($1, $2, $3, $4, $5, 0, $6)
		ON CONFLICT (kind, subject, browser) DO UPDATE SET salt = excluded.salt, code_hash = excluded.code_hash,
			attempts = 0, expires_at = excluded.expires_at`,
		c.Kind, c.Subject, c.browser, c.salt, c.hash, c.expiresAt.UnixMilli())
	return err
}

// try counts an attempt and returns the code it is made at, its attempts this one
// included.
func (s store) try(ctx context.Context, k Key, browser []byte) (Code, bool, error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (Code, error) {
		c := Code{Key: k, browser: browser}
		var expires int64
		err := row.Scan(&c.salt, &c.hash, &c.attempts, &expires)
		c.expiresAt = time.UnixMilli(expires)
		return c, err
	}, `UPDATE signin_code SET attempts = attempts + 1 WHERE kind = $1 AND subject = $2 AND browser = $3
		RETURNING salt, code_hash, attempts, expires_at`, k.Kind, k.Subject, browser)
}

// at lists the codes of a key, and locks them against concurrent guesses: those of browsers, and
// the last one that counts from any client.
func (s store) at(ctx context.Context, k Key) ([]Code, error) {
	return database.All(ctx, s.db, func(row database.Scanner) (Code, error) {
		c := Code{Key: k}
		var expires int64
		err := row.Scan(&c.browser, &c.salt, &c.hash, &c.attempts, &expires)
		c.expiresAt = time.UnixMilli(expires)
		return c, err
	}, `SELECT browser, salt, code_hash, attempts, expires_at FROM signin_code WHERE kind = $1 AND subject = $2
		ORDER BY browser `+database.Text("", "FOR UPDATE"), k.Kind, k.Subject)
}

// count counts a guess at a code, by however many browsers it was asked for.
func (s store) count(ctx context.Context, c Code, by int64) error {
	_, err := s.db.Exec(ctx, `UPDATE signin_code SET attempts = attempts + $4 WHERE kind = $1 AND subject = $2 AND code_hash = $3
		AND attempts + $4 >= 0`, c.Kind, c.Subject, c.hash, by)
	return err
}

// take uses a code up, with those that other browsers have of its key: of any number of
// callers one gets it.
func (s store) take(ctx context.Context, c Code) (taken bool, err error) {
	n, err := s.db.Exec(ctx, `DELETE FROM signin_code WHERE kind = $1 AND subject = $2 AND browser = $3 AND code_hash = $4`,
		c.Kind, c.Subject, c.browser, c.hash)
	if err != nil || n == 0 {
		return false, err
	}
	return true, s.remove(ctx, c.Key)
}

func (s store) remove(ctx context.Context, k Key) error {
	_, err := s.db.Exec(ctx, `DELETE FROM signin_code WHERE kind = $1 AND subject = $2`, k.Kind, k.Subject)
	return err
}

// sweep removes one batch of the codes whose time is over.
func (s store) sweep(ctx context.Context, now time.Time, limit int64) (removed int64, err error) {
	return s.db.Exec(ctx, `DELETE FROM signin_code WHERE (kind, subject, browser) IN
		(SELECT kind, subject, browser FROM signin_code WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)`, now.UnixMilli(), limit)
}
