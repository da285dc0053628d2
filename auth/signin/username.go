package signin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/kitbackend/kit/capability"
	"github.com/kitbackend/kit/internal/text"
)

// Bounds of a user name, in characters.
const (
	minUsername = 3
	maxUsername = 30
	// maxDisplayUsername is in bytes.
	maxDisplayUsername = 64
)

var usernameForm = regexp.MustCompile(`^[a-z0-9_.]+$`)

func (l *library) usernameRoutes() []route {
	if !l.cfg.Usernames {
		return nil
	}
	return []route{
		post("/sign-in/username", rateSignIn, l.signInUsername),
		post("/is-username-available", rateSignIn, l.isUsernameAvailable),
	}
}

// readUsername reads a name that a user chose, or "". Refuses with
// USERNAME_TOO_SHORT, USERNAME_TOO_LONG and INVALID_USERNAME.
func (l *library) readUsername(text string) (string, error) {
	name := strings.ToLower(text)
	switch {
	case name == "":
		return "", nil
	case len(name) < minUsername:
		return "", errUsernameTooShort
	case len(name) > maxUsername:
		return "", errUsernameTooLong
	case !usernameForm.MatchString(name):
		return "", errInvalidUsername
	default:
		return text, nil
	}
}

// lookedUp is readUsername for a name to look up: the codes are the same, with the status that
// better-auth uses there.
func (l *library) lookedUp(text string) (string, error) {
	name, err := l.readUsername(text)
	if refusal := (*capability.Error)(nil); errors.As(err, &refusal) {
		err = withStatus(refusal, http.StatusUnprocessableEntity)
	}
	return name, err
}

// displayUsername reads the displayed form of a user name, which may differ. Refuses with
// VALIDATION_ERROR.
func displayUsername(given string) (string, error) {
	if len(given) > maxDisplayUsername || !utf8.ValidString(given) || strings.ContainsFunc(given, text.Misleads) {
		return "", invalidField("displayUsername", fmt.Sprintf("is text of at most %d bytes, without control characters", maxDisplayUsername))
	}
	return given, nil
}

// freeUsername reads a name and checks that it is free. It runs before anything about an address is
// read, so that its response reveals nothing about one. Refuses with USERNAME_IS_ALREADY_TAKEN too.
func (l *library) freeUsername(ctx context.Context, text string) (string, error) {
	name, err := l.readUsername(text)
	if err != nil || name == "" {
		return "", err
	}
	if _, taken, err := l.auth.UserByUsername(ctx, name); err != nil || taken {
		return "", errOr(err, errUsernameTaken)
	}
	return name, nil
}

type signInUsernameBody struct {
	Username    string `json:"username"`
	Password    string `json:"password"`
	CallbackURL string `json:"callbackURL,omitempty"`
	RememberMe  *bool  `json:"rememberMe,omitempty"`
}

func (l *library) signInUsername(c *call) (any, error) {
	var in signInUsernameBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if err := c.needs("username", "password"); err != nil {
		return nil, err
	}
	if l.cfg.DisablePasswords {
		return nil, errPasswordDisabled
	}
	name, err := l.lookedUp(in.Username)
	if err == nil && name == "" {
		err = errInvalidUsernamePassword
	}
	if err != nil {
		return nil, err
	}
	user, found, err := l.auth.UserByUsername(c.Context(), name)
	if err != nil {
		return nil, err
	}
	return l.signInPassword(c, passwordEntry{in.Password, in.CallbackURL, in.RememberMe}, strings.ToLower(name), user, found, errInvalidUsernamePassword)
}

// available is better-auth's response to /is-username-available.
type available struct {
	Available bool `json:"available"`
}

type usernameBody struct {
	Username string `json:"username"`
}

// isUsernameAvailable reports to any caller whether a name is taken. It reveals no address.
func (l *library) isUsernameAvailable(c *call) (any, error) {
	var in usernameBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	name, err := l.lookedUp(in.Username)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, withStatus(errInvalidUsername, http.StatusUnprocessableEntity)
	}
	_, taken, err := l.auth.UserByUsername(c.Context(), name)
	return available{!taken}, err
}
