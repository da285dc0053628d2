package signin

import (
	"context"
	"regexp"
	"strings"
)

// Bounds of a user name, in characters.
const (
	minUsername = 3
	maxUsername = 30
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

// readUsername reads a name that a user chose, or "", as it is to be written: as
// it was typed, or as display says if that is the same name. Refuses with
// USERNAME_TOO_SHORT, USERNAME_TOO_LONG and INVALID_USERNAME.
func (l *library) readUsername(text, display string) (string, error) {
	name := strings.ToLower(text)
	if strings.ToLower(display) == name {
		text = display
	}
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

// freeUsername reads a name that nobody has. It is asked about before any
// address, so that its answer tells nothing about one. Refuses with
// USERNAME_IS_ALREADY_TAKEN too.
func (l *library) freeUsername(ctx context.Context, text, display string) (string, error) {
	name, err := l.readUsername(text, display)
	if err != nil || name == "" {
		return "", err
	}
	if _, taken, err := l.auth.UserByUsername(ctx, name); err != nil || taken {
		return "", errOr(err, errUsernameTaken)
	}
	return name, nil
}

func (l *library) signInUsername(c *call) (any, error) {
	var in signInBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if l.cfg.DisablePasswords {
		return nil, errPasswordDisabled
	}
	name, err := l.readUsername(in.Username, "")
	if err != nil || name == "" {
		return nil, errInvalidUsernamePassword
	}
	user, found, err := l.auth.UserByUsername(c.Context(), name)
	if err != nil {
		return nil, err
	}
	return l.signInPassword(c, in, strings.ToLower(name), user, found, errInvalidUsernamePassword)
}

// isUsernameAvailable tells everybody which names are taken: that is what it is
// for. Addresses it does not tell.
func (l *library) isUsernameAvailable(c *call) (any, error) {
	var in signInBody
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	name, err := l.readUsername(in.Username, "")
	if err != nil {
		return nil, err
	}
	if name == "" {
		return nil, errInvalidUsername
	}
	_, taken, err := l.auth.UserByUsername(c.Context(), name)
	return map[string]bool{"available": !taken}, err
}
