package auth

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/kitbackend/kit/database"
)

const userColumns = `id, email, email_verified, name, image, username, anonymous, created_at, updated_at, disabled_at, display_username, profile`

func scanUser(row database.Scanner) (u User, err error) {
	var created, updated, disabled int64
	var profile string
	err = row.Scan(&u.ID, &u.Email, &u.EmailVerified, &u.Name, &u.Image, &u.Username, &u.Anonymous, &created, &updated, &disabled, &u.DisplayUsername, &profile)
	if err != nil {
		return u, err
	}
	if profile != "{}" {
		err = json.Unmarshal([]byte(profile), &u.Profile)
	}
	u.CreatedAt, u.UpdatedAt = instant(created), instant(updated)
	if disabled != 0 {
		u.DisabledAt = instant(disabled)
	}
	return u, err
}

// instant returns the time of a column of milliseconds.
func instant(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// insertUser returns false when the id, address or username is taken.
func (s store) insertUser(ctx context.Context, u User, family string) (inserted bool, err error) {
	n, err := s.db.Exec(ctx, `INSERT INTO auth_user (id, email, email_verified, name, image, username, anonymous, token_family, created_at, updated_at,
		display_username, profile) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING`,
		u.ID, u.Email, u.EmailVerified, u.Name, u.Image, u.Username, u.Anonymous, family, u.CreatedAt.UnixMilli(), u.UpdatedAt.UnixMilli(),
		u.DisplayUsername, profileText(u.Profile))
	return n == 1, err
}

// userBy finds a user by a unique column.
func (s store) userBy(ctx context.Context, column, value string) (User, bool, error) {
	return database.Get(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user WHERE `+column+` = $1 AND `+column+` <> ''`, value)
}

func (s store) lockUser(ctx context.Context, userID string) (User, bool, error) {
	return database.Get(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user WHERE id = $1 `+database.ForUpdate, userID)
}

func (s store) usersNamed(ctx context.Context, name string, limit int) ([]User, error) {
	return database.All(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user WHERE name = $1 AND name <> '' ORDER BY id LIMIT $2`, name, limit)
}

// usersByID reads the users of some ids.
func (s store) usersByID(ctx context.Context, ids []string) ([]User, error) {
	return database.All(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user WHERE id `+database.InList(1), database.List(ids))
}

// rowsOf counts the rows that are deleted with a user.
func (s store) rowsOf(ctx context.Context, userID string) (n int64, err error) {
	return n, s.db.QueryRow(ctx, `SELECT 1 + (SELECT count(*) FROM auth_session WHERE user_id = $1)
		+ (SELECT count(*) FROM auth_device WHERE user_id = $1)`, userID).Scan(&n)
}

// fewNamed is the largest number of users for which a prefix is looked up in the indexes of
// addresses and names. If more have it, a scan by id finds a page of them soon.
const fewNamed = 5000

// users lists users after an id whose address begins with one prefix, in lower
// case, or whose name with another, in what the databases take for lower case.
func (s store) users(ctx context.Context, email, name, after string, limit int) ([]User, error) {
	if name == "" {
		return database.All(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user WHERE id > $1 ORDER BY id LIMIT $2`, after, limit)
	}
	ids, err := s.usersBeginning(ctx, email, name)
	if err != nil {
		return nil, err
	}
	if len(ids) <= fewNamed {
		return database.All(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user
			WHERE id `+database.InList(1)+` AND id > $2 ORDER BY id LIMIT $3`, database.List(ids), after, limit)
	}
	return database.All(ctx, s.db, scanUser, `SELECT `+userColumns+` FROM auth_user
		WHERE id > $1 AND (substr(email, 1, length($2)) = $2 OR substr(lower(name), 1, length($3)) = $3) ORDER BY id LIMIT $4`,
		after, email, name, limit)
}

// usersBeginning returns the ids of more than fewNamed users at most.
func (s store) usersBeginning(ctx context.Context, email, name string) ([]string, error) {
	var addressed, named database.Conditions
	addressed.Begins("email", email)
	named.Begins("lower(name)", name)
	var ids []string
	for column, where := range map[string]database.Conditions{"email": addressed, "name": named} {
		some, err := database.All(ctx, s.db, func(row database.Scanner) (id string, err error) { return id, row.Scan(&id) },
			fmt.Sprintf(`SELECT id FROM auth_user WHERE %s AND %s <> '' LIMIT $%d`, where.Text(), column, where.Next()), where.Args(fewNamed+1)...)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	return ids, nil
}

// updateUser returns false when the address or username is another user's.
func (s store) updateUser(ctx context.Context, u User) (updated bool, err error) {
	n, err := s.db.Exec(ctx, `UPDATE auth_user SET email = $2, email_verified = $3, name = $4, image = $5, username = $6, anonymous = $7, updated_at = $8,
		display_username = $9, profile = $10
		WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM auth_user AS other WHERE other.id <> $1
			AND (other.email = $2 AND other.email <> '' OR other.username = $6 AND other.username <> ''))`,
		u.ID, u.Email, u.EmailVerified, u.Name, u.Image, u.Username, u.Anonymous, u.UpdatedAt.UnixMilli(),
		u.DisplayUsername, profileText(u.Profile))
	return n == 1, err
}

func (s store) setDisabled(ctx context.Context, userID string, at, now time.Time) (found bool, err error) {
	disabled := int64(0)
	if !at.IsZero() {
		disabled = at.UnixMilli()
	}
	n, err := s.db.Exec(ctx, `UPDATE auth_user SET disabled_at = $2, updated_at = $3 WHERE id = $1`, userID, disabled, now.UnixMilli())
	return n == 1, err
}

func (s store) deleteUser(ctx context.Context, userID string) error {
	_, err := s.db.Exec(ctx, `DELETE FROM auth_user WHERE id = $1`, userID)
	return err
}

// tokenFamily returns the id by which the tokens of a user that were issued without a session are
// revoked, and whether the user is disabled.
func (s store) tokenFamily(ctx context.Context, userID string) (family tokenFamily, found bool, err error) {
	return database.Get(ctx, s.db, func(row database.Scanner) (f tokenFamily, err error) {
		return f, row.Scan(&f.id, &f.disabled)
	}, `SELECT token_family, disabled_at <> 0 FROM auth_user WHERE id = $1`, userID)
}

type tokenFamily struct {
	id       string
	disabled bool
}

func (s store) setTokenFamily(ctx context.Context, userID, family string) error {
	_, err := s.db.Exec(ctx, `UPDATE auth_user SET token_family = $2 WHERE id = $1`, userID, family)
	return err
}
