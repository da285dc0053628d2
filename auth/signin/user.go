package signin

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kitbackend/kit/auth"
	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/mailbox"
	"github.com/kitbackend/kit/internal/text"
)

// Bounds of what users say about themselves, in bytes.
const (
	maxName  = 256
	maxImage = 2048
)

// wireUser is a user as better-auth's clients know one.
type wireUser struct {
	ID               string          `json:"id"`
	Name             string          `json:"name"`
	Email            string          `json:"email"`
	EmailVerified    bool            `json:"emailVerified"`
	Image            *string         `json:"image"`
	CreatedAt        capability.Time `json:"createdAt"`
	UpdatedAt        capability.Time `json:"updatedAt"`
	IsAnonymous      bool            `json:"isAnonymous"`
	Username         *string         `json:"username"`
	DisplayUsername  *string         `json:"displayUsername"`
	TwoFactorEnabled bool            `json:"twoFactorEnabled"`
	// fields are those of the application.
	fields map[string]any
}

// MarshalJSON puts the application's fields next to those of better-auth.
func (u wireUser) MarshalJSON() ([]byte, error) {
	type plain wireUser
	own, err := json.Marshal(plain(u))
	if err != nil || len(u.fields) == 0 {
		return own, err
	}
	more, err := json.Marshal(u.fields)
	if err != nil {
		return nil, err
	}
	return append(append(own[:len(own)-1], ','), more[1:]...), nil
}

// shownFields are the application's fields that a user sees; one that is not set
// is null, as better-auth has it.
func (l *library) shownFields(profile map[string]any) map[string]any {
	fields := make(map[string]any)
	for _, f := range l.auth.ProfileFields() {
		if !f.Private {
			fields[f.Name] = profile[f.Name]
		}
	}
	return fields
}

// editedFields reads the application's fields that a user may set. Refuses with
// FIELD_NOT_ALLOWED those that a user may not.
func (l *library) editedFields(body map[string]any) (map[string]any, error) {
	fields := make(map[string]any)
	for _, f := range l.auth.ProfileFields() {
		value, given := body[f.Name]
		switch {
		case !given:
		case !f.Editable:
			return nil, errFieldNotAllowed
		default:
			fields[f.Name] = value
		}
	}
	return fields, nil
}

// wire shows users to themselves.
func (l *library) wire(ctx context.Context, u auth.User) (wireUser, error) {
	twoFactor, err := l.twoFactorEnabled(ctx, u.ID)
	if err != nil {
		return wireUser{}, err
	}
	return wireUser{
		ID: u.ID, Name: u.Name, Email: u.Email, EmailVerified: u.EmailVerified, Image: orNull(u.Image),
		CreatedAt: capability.Time{Time: u.CreatedAt}, UpdatedAt: capability.Time{Time: u.UpdatedAt},
		IsAnonymous: u.Anonymous, Username: orNull(u.Username), DisplayUsername: orNull(cmp.Or(u.DisplayUsername, u.Username)),
		TwoFactorEnabled: twoFactor, fields: l.shownFields(u.Profile),
	}, nil
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// address reads an e-mail address. Refuses with INVALID_EMAIL.
func address(text string) (string, error) {
	canonical, err := mailbox.Canonical(text)
	if err != nil {
		return "", errInvalidEmail
	}
	return canonical, nil
}

// checkProfile refuses what a user cannot be called with VALIDATION_ERROR.
func checkProfile(name, image string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, text.Misleads) {
		return errValidation.Saying("name is text of at most %d bytes.", maxName)
	}
	if len(image) > maxImage || !utf8.ValidString(image) || strings.ContainsFunc(image, unicode.IsControl) ||
		image != "" && !strings.HasPrefix(image, "https://") && !strings.HasPrefix(image, "http://") && image[0] != '/' {
		return errValidation.Saying("image is a URL of at most %d bytes.", maxImage)
	}
	return nil
}

// newUser makes the user somebody signs up as. An anonymous caller becomes that
// user and keeps the id, so all that is theirs stays theirs, but for how they got in: who
// has a copy of the session is not to have one of the user. Nor do they before they have
// proved the address where that is required to be in. It runs in a transaction.
func (l *library) newUser(c *call, n auth.NewUser) (auth.User, error) {
	if l.cfg.DisableSignUp {
		return auth.User{}, errSignUpDisabled
	}
	before, ok, err := c.anonymous()
	if err == nil && ok {
		before, ok, err = l.stillAnonymous(c.Context(), before.ID)
	}
	if err != nil {
		return auth.User{}, err
	}
	if !ok || l.cfg.RequireVerification && !n.EmailVerified {
		return l.auth.CreateUser(c.Context(), n)
	}
	no := false
	patch := auth.UserPatch{Email: &n.Email, EmailVerified: &n.EmailVerified, Name: &n.Name, Image: &n.Image, Anonymous: &no, Profile: n.Profile}
	if n.Username != "" {
		patch.Username = &n.Username
	}
	if n.DisplayUsername != "" {
		patch.DisplayUsername = &n.DisplayUsername
	}
	user, err := l.auth.UpdateUser(c.Context(), before.ID, patch)
	if err != nil {
		return user, err
	}
	return user, l.disown(c.Context(), user.ID, "")
}

// disown ends what who has a copy of an anonymous session could keep of the user that
// becomes of it: the other sessions, and passkeys and a second factor, which a session alone
// is enough to set. It runs in a transaction.
func (l *library) disown(ctx context.Context, userID, keep string) error {
	if err := l.forgetFactors(ctx, userID); err != nil {
		return err
	}
	_, err := l.auth.RevokeOthers(ctx, userID, keep)
	return err
}

// reclaim gives an account to the one who has just proved its address, which nobody
// had before: how one could get in until now is removed, and so is who got in.
// It runs in a transaction.
func (l *library) reclaim(ctx context.Context, user auth.User) (auth.User, error) {
	if user.EmailVerified {
		return user, nil
	}
	proved := user.Email
	user, err := l.lockedUser(ctx, user.ID)
	switch {
	case err != nil:
		return user, err
	case user.Email != proved: // nobody's, or another's, by now: the next try finds out
		return user, errUnavailable
	case user.EmailVerified: // by another request: what it has set stays
		return user, nil
	}
	verified, err := l.verifyAddress(ctx, user)
	if err != nil {
		return user, err
	}
	for _, forget := range []func(context.Context, string) error{
		l.store.deleteAccounts, l.store.deleteLinks, l.store.forgetClients, l.forgetFactors,
	} {
		if err := forget(ctx, user.ID); err != nil {
			return user, err
		}
	}
	_, err = l.auth.RevokeUser(ctx, user.ID)
	return verified, err
}
