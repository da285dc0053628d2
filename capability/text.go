package capability

import (
	"strings"
	"unicode/utf8"
)

// MaxUserID bounds a user id, in bytes.
const MaxUserID = 128

// CheckText refuses text of fewer than least or more than most bytes, and text that a database
// cannot store because it is not UTF-8 or holds a NUL. The refusal is kit/invalid_request and names
// the field.
func CheckText(field, text string, least, most int) error {
	switch {
	case text == "" && least > 0:
		return ErrInvalidRequest.Saying("%s is missing.", field)
	case len(text) < least:
		return ErrInvalidRequest.Saying("%s is shorter than %d bytes.", field, least)
	case len(text) > most:
		return ErrInvalidRequest.Saying("%s is longer than %d bytes.", field, most)
	case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
		return ErrInvalidRequest.Saying("%s is not UTF-8 text without NUL.", field)
	}
	return nil
}

// CheckUserID refuses what cannot be a user id, with kit/invalid_request: empty
// text, more than [MaxUserID] bytes, text that the databases cannot store.
func CheckUserID(id string) error { return CheckText("userId", id, 1, MaxUserID) }
