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

// Bounds of a user's texts, in bytes.
const (
	maxName  = 256
	maxImage = 2048
)

// shownUser is a user in the form of better-auth.
type shownUser struct {
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
}

// wireUser is a shownUser with the fields of the application next to those of better-auth.
type wireUser struct {
	shownUser
	fields map[string]any
}

// Shape returns, for documents, what every response has.
func (wireUser) Shape() any { return shownUser{} }

// MarshalJSON puts the application's fields next to those of better-auth.
func (u wireUser) MarshalJSON() ([]byte, error) {
	own, err := json.Marshal(u.shownUser)
	if err != nil || len(u.fields) == 0 {
		return own, err
	}
	more, err := json.Marshal(u.fields)
	if err != nil {
		return nil, err
	}
	return append(append(own[:len(own)-1], ','), more[1:]...), nil
}

// shownFields returns the application's fields that a user sees; one that is not set is null, as in
// better-auth.
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

// wire returns a user in the form in which users see themselves.
func (l *library) wire(ctx context.Context, u auth.User) (wireUser, error) {
	twoFactor, err := l.twoFactorEnabled(ctx, u.ID)
	if err != nil {
		return wireUser{}, err
	}
	return wireUser{fields: l.shownFields(u.Profile), shownUser: shownUser{
		ID: u.ID, Name: u.Name, Email: u.Email, EmailVerified: u.EmailVerified, Image: orNull(u.Image),
		CreatedAt: capability.Time{Time: u.CreatedAt}, UpdatedAt: capability.Time{Time: u.UpdatedAt},
		IsAnonymous: u.Anonymous, Username: orNull(u.Username), DisplayUsername: orNull(cmp.Or(u.DisplayUsername, u.Username)),
		TwoFactorEnabled: twoFactor,
	}}, nil
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

// checkProfile refuses a name or image that is out of bounds, with VALIDATION_ERROR.
func checkProfile(name, image string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, text.Misleads) {
		return errValidation.Saying("name is text of at most %d bytes, without control characters.", maxName)
	}
	if len(image) > maxImage || !utf8.ValidString(image) || strings.ContainsFunc(image, unicode.IsControl) ||
		image != "" && !strings.HasPrefix(image, "https://") && !strings.HasPrefix(image, "http://") && image[0] != '/' {
		return errValidation.Saying("image is a URL of at most %d bytes.", maxImage)
	}
	return nil
}

// newUser creates the user of a sign-up. An anonymous caller becomes that user and keeps the id,
// and so all data, but not the sessions and factors, of which an attacker may have a copy. If the
// address must be proved before sign-in, an anonymous caller does not become the user before that.
// It runs in a transaction.
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

// disown removes what a thief of an anonymous session could use to access the user it becomes: the
// other sessions, and passkeys and a second factor, which a session alone suffices to add. It runs
// in a transaction.
func (l *library) disown(ctx context.Context, userID, keep string) error {
	if err := l.forgetFactors(ctx, userID); err != nil {
		return err
	}
	_, err := l.auth.RevokeOthers(ctx, userID, keep)
	return err
}

// reclaim gives an account to the user who has just proved its address for the first time: it
// removes the ways to sign in that were set before, and ends all sessions. It runs in a
// transaction.
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
