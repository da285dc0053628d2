// Package text says what a character does to the text around it, and which text can
// be stored. Any package may call it.
package text

import (
	"strings"
	"unicode"
)

// Misleads reports whether a character does not stand for itself in a name: it
// controls, or has what follows shown in another order (Unicode UAX 9).
func Misleads(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }

// Storable returns what both databases can store of a text: UTF-8 without NUL.
func Storable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, ""), "\x00", "")
}
