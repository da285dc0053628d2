package auth

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kitbackend/kit/audit"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/database"
	"github.com/kitbackend/kit/hooks"
	"github.com/kitbackend/kit/internal/id"
	"github.com/kitbackend/kit/internal/mailbox"
)

// Bounds of a user's names and image, in bytes.
const (
	maxName     = 256
	maxImage    = 2048
	maxUsername = 64
)

// CreateUser makes a user. Refuses with auth/email_taken, auth/username_taken,
// and kit/invalid_request for an id that is taken and for text out of bounds: a
// name has at most 256 bytes, a username 64, an image 2 KiB.
func (a *Auth) CreateUser(ctx context.Context, n NewUser) (user User, err error) {
	if user, err = a.newUser(n); err != nil {
		return User{}, err
	}
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		created := user
		if created.ID == "" {
			created.ID = id.New(a.host.DB.Now(ctx))
		}
		inserted, err := a.insertUser(ctx, &created)
		if err != nil {
			return err
		}
		if !inserted {
			return a.taken(ctx, created)
		}
		user = created
		return nil
	})
	return user, err
}

// newUser returns a user who is not stored yet.
func (a *Auth) newUser(n NewUser) (user User, err error) {
	user = User{ID: n.ID, Email: n.Email, EmailVerified: n.EmailVerified, Name: n.Name, Image: n.Image,
		Username: n.Username, DisplayUsername: cmp.Or(n.DisplayUsername, n.Username), Anonymous: n.Anonymous}
	if user.Profile, err = a.cfg.withFields(nil, n.Profile); err == nil {
		err = user.normalize()
	}
	return user, err
}

// EnsureUser creates the user unless there is one. An id is 1 to 64 letters,
// digits, dots, hyphens and underscores, a letter or digit first; another is
// refused with kit/invalid_request.
func (a *Auth) EnsureUser(ctx context.Context, userID string) error {
	user := User{ID: userID}
	if userID == "" {
		return errUserID
	}
	if err := user.normalize(); err != nil {
		return err
	}
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		created := user
		_, err := a.insertUser(ctx, &created)
		return err
	})
}

// insertUser returns false when a unique value of the user is taken.
func (a *Auth) insertUser(ctx context.Context, user *User) (inserted bool, err error) {
	now := a.host.DB.Now(ctx)
	user.CreatedAt, user.UpdatedAt = now, now
	inserted, err = a.store.insertUser(ctx, *user, id.New(now))
	if err != nil || !inserted {
		return false, err
	}
	if err := a.peers.Audit.Record(ctx, audit.Event{
		Action: "auth/user_created", Subject: audit.Target{Type: "user", ID: user.ID},
	}); err != nil {
		return false, err
	}
	return true, a.host.Hooks.UserCreated.Fire(ctx, hooks.UserCreated{UserID: user.ID, Anonymous: user.Anonymous})
}

// taken returns why a user could not be inserted.
func (a *Auth) taken(ctx context.Context, user User) error {
	if _, found, err := a.store.userBy(ctx, "email", user.Email); err != nil || found && user.Email != "" {
		return errOr(err, ErrEmailTaken)
	}
	if _, found, err := a.store.userBy(ctx, "username", user.Username); err != nil || found && user.Username != "" {
		return errOr(err, ErrUsernameTaken)
	}
	return capability.ErrInvalidRequest.Saying("There is a user of this id.")
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// User returns a user. Refuses with auth/user_not_found.
func (a *Auth) User(ctx context.Context, userID string) (User, error) {
	if !userIDForm.MatchString(userID) {
		return User{}, ErrUserNotFound
	}
	user, found, err := a.store.userBy(ctx, "id", userID)
	if err == nil && !found {
		err = ErrUserNotFound
	}
	return user, err
}

// UserByEmail returns the user of an address in any spelling. Text that is not an address has none.
func (a *Auth) UserByEmail(ctx context.Context, address string) (user User, found bool, err error) {
	canonical, err := mailbox.Canonical(address)
	if err != nil {
		return User{}, false, nil
	}
	return a.store.userBy(ctx, "email", canonical)
}

// UserByUsername finds a user by a username in any case.
func (a *Auth) UserByUsername(ctx context.Context, name string) (user User, found bool, err error) {
	if name = canonicalUsername(name); name == "" || !isText(name, maxUsername) {
		return User{}, false, nil
	}
	return a.store.userBy(ctx, "username", name)
}

// UsersNamed lists at most limit users of a name: the one with that username, else those with
// exactly that display name.
func (a *Auth) UsersNamed(ctx context.Context, name string, limit int) ([]User, error) {
	user, found, err := a.UserByUsername(ctx, name)
	if err != nil {
		return nil, err
	}
	if found {
		return []User{user}, nil
	}
	if name == "" || !isText(name, maxName) {
		return []User{}, nil
	}
	return a.store.usersNamed(ctx, name, limit)
}

// UpdateUser changes a user. Refuses with auth/user_not_found, auth/email_taken,
// auth/username_taken and, for text out of bounds, kit/invalid_request.
func (a *Auth) UpdateUser(ctx context.Context, userID string, patch UserPatch) (user User, err error) {
	err = a.host.DB.InTx(ctx, func(ctx context.Context) error {
		before, found, err := a.store.lockUser(ctx, userID)
		if err != nil {
			return err
		}
		if !found {
			return ErrUserNotFound
		}
		user = patch.apply(before)
		if user.Profile, err = a.cfg.withFields(before.Profile, patch.Profile); err != nil {
			return err
		}
		if err := user.normalize(); err != nil {
			return err
		}
		if user.Email != before.Email && patch.EmailVerified == nil {
			user.EmailVerified = false
		}
		user.UpdatedAt = a.host.DB.Now(ctx)
		updated, err := a.store.updateUser(ctx, user)
		switch {
		case err != nil:
			return err
		case !updated:
			return a.takenByOther(ctx, user)
		}
		return a.told(ctx, before, user)
	})
	return user, uniqueUser(err)
}

func (a *Auth) takenByOther(ctx context.Context, user User) error {
	other, found, err := a.store.userBy(ctx, "email", user.Email)
	if err != nil || found && user.Email != "" && other.ID != user.ID {
		return errOr(err, ErrEmailTaken)
	}
	return ErrUsernameTaken
}

// uniqueUser turns the violation of an index, which alone decides a race for one
// address or name, into the refusal.
func uniqueUser(err error) error {
	var violation *database.ConstraintError
	if !errors.As(err, &violation) || violation.Kind != database.Unique {
		return err
	}
	if violation.Name == "auth_user_by_username" {
		return ErrUsernameTaken.Because(err)
	}
	return ErrEmailTaken.Because(err)
}

// DeleteUser removes a user with all devices, all sessions, whose tokens are refused from the
// commit on, and all rows of the library that refer to the user. Refuses with auth/user_not_found.
func (a *Auth) DeleteUser(ctx context.Context, userID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if _, err := a.endAll(ctx, userID); err != nil {
			return err
		}
		if err := a.store.deleteUser(ctx, userID); err != nil {
			return err
		}
		if err := a.peers.Audit.Record(ctx, audit.Event{
			Action: "auth/user_deleted", Subject: audit.Target{Type: "user", ID: userID},
		}); err != nil {
			return err
		}
		return a.host.Hooks.UserDeleted.Fire(ctx, hooks.UserDeleted{UserID: userID})
	})
}

// DisableUser locks a user out: all sessions end, and they cannot sign in
// until [Auth.EnableUser]. Refuses with auth/user_not_found.
func (a *Auth) DisableUser(ctx context.Context, userID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		if _, err := a.endAll(ctx, userID); err != nil {
			return err
		}
		return a.setDisabled(ctx, userID, a.host.DB.Now(ctx), "auth/user_disabled")
	})
}

// EnableUser lets a disabled user sign in again. Refuses with
// auth/user_not_found.
func (a *Auth) EnableUser(ctx context.Context, userID string) error {
	return a.host.DB.InTx(ctx, func(ctx context.Context) error {
		return a.setDisabled(ctx, userID, time.Time{}, "auth/user_enabled")
	})
}

func (a *Auth) setDisabled(ctx context.Context, userID string, at time.Time, action string) error {
	found, err := a.store.setDisabled(ctx, userID, at, a.host.DB.Now(ctx))
	if err != nil {
		return err
	}
	if !found {
		return ErrUserNotFound
	}
	return a.peers.Audit.Record(ctx, audit.Event{Action: action, Subject: audit.Target{Type: "user", ID: userID}})
}

// ListUsers lists users by id; query, unless empty, is the beginning of their
// e-mail address or name, in any case as far as letters are ASCII. Refuses with kit/invalid_request for a
// cursor of another list.
func (a *Auth) ListUsers(ctx context.Context, query string, page capability.Page) (capability.Items[User], error) {
	page = page.Bounded()
	none := capability.Items[User]{}
	if len(query) > maxName {
		return none, capability.ErrInvalidRequest.Saying("query has at most %d bytes.", maxName)
	}
	var after string
	if _, err := page.After(&after); err != nil {
		return none, err
	}
	rows, err := a.store.users(ctx, strings.ToLower(query), lowerASCII(query), after, page.Limit+1)
	if err != nil {
		return none, err
	}
	return capability.Paged(page, rows, func(u User) []any { return []any{u.ID} }), nil
}

func (p UserPatch) apply(user User) User {
	set(&user.Email, p.Email)
	set(&user.EmailVerified, p.EmailVerified)
	set(&user.Name, p.Name)
	set(&user.Image, p.Image)
	set(&user.Username, p.Username)
	set(&user.DisplayUsername, p.Username)
	set(&user.DisplayUsername, p.DisplayUsername)
	set(&user.Anonymous, p.Anonymous)
	return user
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// normalize brings the user's address and names into their canonical forms and checks their bounds.
func (u *User) normalize() error {
	if u.ID != "" && !userIDForm.MatchString(u.ID) {
		return errUserID
	}
	if u.Email != "" {
		canonical, err := mailbox.Canonical(u.Email)
		if err != nil {
			return capability.ErrInvalidRequest.Saying("That is no e-mail address.")
		}
		u.Email = canonical
	}
	u.Username, u.DisplayUsername = canonicalUsername(u.Username), strings.TrimSpace(u.DisplayUsername)
	for _, text := range []struct {
		name, value string
		limit       int
	}{{"name", u.Name, maxName}, {"image", u.Image, maxImage}, {"username", u.Username, maxUsername}, {"displayUsername", u.DisplayUsername, maxUsername}} {
		if !isText(text.value, text.limit) {
			return capability.ErrInvalidRequest.Saying("%s is UTF-8 text of at most %d bytes.", text.name, text.limit)
		}
	}
	return nil
}

// isText reports whether a column can store a text of at most limit bytes: UTF-8 without NUL.
func isText(text string, limit int) bool {
	return len(text) <= limit && utf8.ValidString(text) && !strings.ContainsRune(text, 0)
}

// lowerASCII returns the text in lower case as both databases do: only ASCII letters change.
func lowerASCII(text string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, text)
}

func canonicalUsername(name string) string { return strings.ToLower(strings.TrimSpace(name)) }

var errUserID = capability.ErrInvalidRequest.Saying("A user id is 1 to 64 letters, digits, dots, hyphens and underscores.")
